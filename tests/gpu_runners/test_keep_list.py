"""The edit as arithmetic: laws of every keep list, on made-up features."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpu_runners.pipelines.faces import Face, Look
from gpu_runners.pipelines.keep_list import KeepList, Signs, Wish, film_rate, make_keep_list
from gpu_runners.pipelines.silence import Span, find_silences, find_still
from tests.support.features import made_up_analysis

_RATES = st.sampled_from([Fraction(24), Fraction(25), Fraction(30000, 1001), Fraction(60)])


@settings(max_examples=200)
@given(
    seconds=st.floats(2, 120),
    rate=_RATES,
    cut_parts=st.lists(st.floats(0.01, 0.99), max_size=30),
    dead_parts=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.3)), max_size=8),
    target=st.floats(1, 60),
    least=st.floats(0.2, 5),
)
def test_ranges_are_ordered_within_shots_clear_of_dead_air_and_add_up(
    seconds: float,
    rate: Fraction,
    cut_parts: list[float],
    dead_parts: list[tuple[float, float]],
    target: float,
    least: float,
) -> None:
    analysis = made_up_analysis(seconds, rate)
    cuts = tuple(sorted({part * seconds for part in cut_parts}))
    dead = tuple(
        Span(start=at * seconds, end=min(1.0, at + long) * seconds) for at, long in dead_parts
    )
    wish = Wish(target_seconds=target, shot_seconds_min=least)
    keep = make_keep_list(analysis, cuts, dead, rate, wish)
    assert keep == make_keep_list(analysis, cuts, dead, rate, wish)
    borders = [0, *(round(cut * rate) for cut in cuts), int(analysis.seconds * rate)]
    before = 0
    for kept in keep.ranges:
        assert before <= kept.start_frame < kept.end_frame
        assert borders[kept.shot] <= kept.start_frame
        assert kept.end_frame <= borders[kept.shot + 1]
        before = kept.end_frame
        for span in dead:
            start, end = kept.start_frame / rate, kept.end_frame / rate
            assert end <= span.start + 1e-3 or start >= span.end - 1e-3 or span.seconds <= 1e-6
    assert keep.frames <= round(target * rate) + 1
    assert keep.target_reached == (abs(keep.frames - round(target * rate)) <= int(rate / 2))
    if keep.ranges:
        assert 0 <= keep.poster_frame < keep.frames


def test_with_enough_material_the_target_is_met_to_the_frame_over_all_shots() -> None:
    rate = Fraction(25)
    keep = make_keep_list(
        made_up_analysis(60, rate),
        tuple(float(at) for at in range(5, 60, 5)),
        (),
        rate,
        Wish(target_seconds=15, shot_seconds_min=1),
    )
    assert keep.frames == 375
    assert {kept.shot for kept in keep.ranges} == set(range(12))


def test_a_lively_shot_gets_more_than_a_dull_one() -> None:
    rate = Fraction(25)
    analysis = made_up_analysis(20, rate)
    analysis.power[:1000] *= 0.01
    analysis.change[:250] *= 0.1
    keep = make_keep_list(analysis, (10.0,), (), rate, Wish(target_seconds=6, shot_seconds_min=1))
    frames = [0, 0]
    for kept in keep.ranges:
        frames[kept.shot] += kept.frames
    assert 0 < frames[0] < frames[1]


def _joins(keep: KeepList) -> np.ndarray:
    """Frames of the film at which one range meets the next."""
    return np.cumsum([kept.frames for kept in keep.ranges])[:-1]


@settings(max_examples=60)
@given(bpm=st.floats(60, 180), target=st.floats(8, 30), first=st.floats(0, 0.5), rate=_RATES)
# As many parts as fit leave no room before the first beat: one part less does.
@example(bpm=79.0, target=18.25, first=0.375, rate=Fraction(25))
@example(bpm=144.0, target=17.5, first=0.5, rate=Fraction(60))
@example(bpm=92.0, target=9.25, first=0.25, rate=Fraction(60))
def test_joins_lie_on_beats_of_the_music_wherever_one_is_in_reach(
    bpm: float, target: float, first: float, rate: Fraction
) -> None:
    beats = np.arange(first, target, 60 / bpm)
    keep = make_keep_list(
        made_up_analysis(90, rate),
        tuple(float(at) for at in range(6, 90, 6)),
        (Span(start=20, end=23),),
        rate,
        Wish(target_seconds=target, shot_seconds_min=1.2),
        Signs(film_beats=tuple(float(beat) for beat in beats)),
    )
    assert keep.frames == round(target * rate)
    assert len(keep.ranges) >= 2
    assert [join for join in _joins(keep) if np.abs(beats * float(rate) - join).min() > 1] == []


def test_with_too_little_material_the_joins_lie_on_beats_all_the_same() -> None:
    rate, beats = Fraction(25), np.arange(0.3, 60, 0.5)
    keep = make_keep_list(
        made_up_analysis(20, rate),
        (4.1, 9.7, 13.3),
        (),
        rate,
        Wish(target_seconds=60, shot_seconds_min=1),
        Signs(film_beats=tuple(beats)),
    )
    assert len(keep.ranges) == 4
    for join in _joins(keep):
        assert np.abs(beats * 25 - join).min() <= 1
    assert keep.frames > 20 * 25 - 4 * 13 - 8


def test_ranges_begin_and_end_on_the_beats_of_the_clips_own_music() -> None:
    rate, beats = Fraction(25), np.arange(0.21, 60, 60 / 112)
    keep = make_keep_list(
        made_up_analysis(60, rate),
        tuple(float(at) for at in range(7, 60, 7)),
        (),
        rate,
        Wish(target_seconds=15, shot_seconds_min=1),
        Signs(source_beats=tuple(beats)),
    )
    assert keep.target_reached
    assert len(keep.ranges) > 4
    for i, kept in enumerate(keep.ranges):
        assert np.abs(beats * 25 - kept.start_frame).min() <= 1
        if i < len(keep.ranges) - 1:
            assert np.abs(beats * 25 - kept.end_frame).min() <= 1


def test_a_range_does_not_begin_or_end_within_a_word_if_there_is_a_pause() -> None:
    rate = Fraction(25)
    analysis = made_up_analysis(60, rate)
    speech = tuple(Span(start=at + 0.2, end=at + 1.6) for at in np.arange(0, 60, 2.0))
    keep = make_keep_list(
        analysis,
        tuple(float(at) for at in range(10, 60, 10)),
        (),
        rate,
        Wish(target_seconds=20, shot_seconds_min=2, margin_seconds=0.1),
        Signs(speech=speech),
    )
    cut_words = 0
    for kept in keep.ranges:
        for frame in (kept.start_frame, kept.end_frame):
            at = frame / 25
            cut_words += any(span.start < at < span.end for span in speech)
    assert keep.frames == 500
    assert cut_words <= len(keep.ranges) / 2  # of twice as many borders


def test_a_face_makes_a_stretch_worth_more() -> None:
    rate = Fraction(25)
    face = Face(x=0.5, y=0.4, width=0.3, height=0.4, score=0.9)
    looks = tuple(Look(at=at / 4, faces=(face,) if 40 <= at < 56 else ()) for at in range(4 * 20))
    keep = make_keep_list(
        made_up_analysis(20, rate),
        (5.0, 10.0, 15.0),
        (),
        rate,
        Wish(target_seconds=3, shot_seconds_min=3),
        Signs(looks=looks),
    )
    assert [kept.shot for kept in keep.ranges] == [2]


def test_a_shot_does_not_go_on_after_a_gap_of_a_moment() -> None:
    rate = Fraction(25)
    for seed in range(20):
        keep = make_keep_list(
            made_up_analysis(60, rate, seed),
            (30.0,),
            (),
            rate,
            Wish(target_seconds=45, shot_seconds_min=1),
        )
        assert keep.frames == 45 * 25
        for one, other in itertools.pairwise(keep.ranges):
            assert one.shot != other.shot or other.start_frame - one.end_frame >= 25


@pytest.mark.parametrize(
    ("rate", "claimed", "wanted"),
    [
        (Fraction(25), Fraction(25), Fraction(25)),
        (Fraction(30000, 1001), Fraction(30000, 1001), Fraction(30000, 1001)),
        (Fraction(30), Fraction(1000), Fraction(30)),
        (Fraction(120), Fraction(120), Fraction(60)),
        (Fraction(5), Fraction(5), Fraction(10)),
    ],
)
def test_the_film_has_a_usual_steady_rate(
    rate: Fraction, claimed: Fraction, wanted: Fraction
) -> None:
    assert film_rate(made_up_analysis(5, rate), claimed) == wanted


def test_a_click_does_not_end_a_silence_and_a_short_pause_is_none() -> None:
    analysis = made_up_analysis(10, Fraction(25))
    analysis.peak[200:400] = 0
    analysis.peak[300] = 1
    analysis.peak[600:640] = 0
    assert find_silences(analysis, silence_db=-40, seconds_min=0.5) == (Span(start=2.0, end=4.0),)


def test_where_the_sound_has_ended_it_is_silent() -> None:
    analysis = made_up_analysis(10, Fraction(25))
    analysis.peak[700:] = 0
    (span,) = find_silences(analysis, silence_db=-40, seconds_min=0.5)
    assert (span.start, span.end) == (7.0, 10.0)


def test_a_picture_that_stands_still_is_found() -> None:
    analysis = made_up_analysis(10, Fraction(25))
    analysis.change[:] = 3
    analysis.change[100:150] = 0.1
    (span,) = find_still(analysis, seconds_min=0.5)
    assert (span.start, span.end) == (4.0, 6.0)
