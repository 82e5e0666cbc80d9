"""The edit as arithmetic: laws of every keep list, on made-up features."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runners.pipelines.analysis import Analysis
from gpu_runners.pipelines.keep_list import Wish, film_rate, make_keep_list
from gpu_runners.pipelines.silence import Span, find_silences, find_still

_RATES = st.sampled_from([Fraction(24), Fraction(25), Fraction(30000, 1001), Fraction(60)])


def _analysis(seconds: float, rate: Fraction, seed: int = 7) -> Analysis:
    random = np.random.default_rng(seed)
    frames = max(2, int(seconds * rate))

    def feature(top: float) -> np.ndarray:
        return (random.random(frames) * top).astype(np.float32)

    return Analysis(
        instants=np.arange(frames) / float(rate),
        seconds=frames / float(rate),
        rotation=0,
        interlaced=False,
        change=feature(5),
        luma=feature(255),
        contrast=feature(60),
        sharpness=feature(500),
        colour=feature(40),
        audio_index=1,
        peak=np.ones(int(seconds * 100), dtype=np.float32),
        power=random.random(int(seconds * 100)).astype(np.float32),
        damaged_packets=0,
    )


@settings(max_examples=200, deadline=None)
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
    analysis = _analysis(seconds, rate)
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
        _analysis(60, rate),
        tuple(float(at) for at in range(5, 60, 5)),
        (),
        rate,
        Wish(target_seconds=15, shot_seconds_min=1),
    )
    assert keep.frames == 375
    assert {kept.shot for kept in keep.ranges} == set(range(12))


def test_a_lively_shot_gets_more_than_a_dull_one() -> None:
    rate = Fraction(25)
    analysis = _analysis(20, rate)
    analysis.power[:1000] *= 0.01
    analysis.change[:250] *= 0.1
    keep = make_keep_list(analysis, (10.0,), (), rate, Wish(target_seconds=6, shot_seconds_min=1))
    frames = [0, 0]
    for kept in keep.ranges:
        frames[kept.shot] += kept.frames
    assert 0 < frames[0] < frames[1]


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
    assert film_rate(_analysis(5, rate), claimed) == wanted


def test_a_click_does_not_end_a_silence_and_a_short_pause_is_none() -> None:
    analysis = _analysis(10, Fraction(25))
    analysis.peak[200:400] = 0
    analysis.peak[300] = 1
    analysis.peak[600:640] = 0
    assert find_silences(analysis, silence_db=-40, seconds_min=0.5) == (Span(start=2.0, end=4.0),)


def test_where_the_sound_has_ended_it_is_silent() -> None:
    analysis = _analysis(10, Fraction(25))
    analysis.peak[700:] = 0
    (span,) = find_silences(analysis, silence_db=-40, seconds_min=0.5)
    assert (span.start, span.end) == (7.0, 10.0)


def test_a_picture_that_stands_still_is_found() -> None:
    analysis = _analysis(10, Fraction(25))
    analysis.change[:] = 3
    analysis.change[100:150] = 0.1
    (span,) = find_still(analysis, seconds_min=0.5)
    assert (span.start, span.end) == (4.0, 6.0)
