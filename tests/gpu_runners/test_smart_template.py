"""Templates as data: what they may say, which slot gets which input, and that cuts are on beats."""

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runners.pipelines.faces import Face
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe import SourceHeader
from gpu_runners.pipelines.smart import looks
from gpu_runners.pipelines.smart.clips import (
    Clip,
    FacesAt,
    Glance,
    best_moment,
    focus_along,
    with_used,
)
from gpu_runners.pipelines.smart.film import canvas_of
from gpu_runners.pipelines.smart.focus import Focus, crop_around, heads_in, of_faces
from gpu_runners.pipelines.smart.mats import box_of
from gpu_runners.pipelines.smart.moves import views_of, window_of
from gpu_runners.pipelines.smart.placing import Rectangle, shifts
from gpu_runners.pipelines.smart.template import shipped, template_inline, template_named
from gpu_runners.pipelines.smart.timeline import (
    RATE,
    Grid,
    Source,
    Timeline,
    make_timeline,
)
from schema.scenes.smart import (
    Aspect,
    Cell,
    Look,
    Move,
    Slot,
    Template,
    Transition,
    TransitionKind,
)

SIZE = (1280, 720)
ONE_SLOT: dict[str, Any] = {"slots": [{"beats": 4}]}


def planned(
    template: Template, inputs: int, kinds: tuple[Source, ...] | None = None, **words: str
) -> Timeline:
    kinds = kinds or (Source.PHOTO,) * inputs
    return make_timeline(template, kinds, Grid((), template.music.bpm), SIZE, dict(words))


def test_at_least_five_templates_are_shipped_and_each_passes_its_own_check() -> None:
    assert len(shipped()) >= 5
    assert {"postcard", "beat-cut", "story", "before-after", "showcase"} <= set(shipped())


def test_an_unknown_template_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(InputError, match=r"beat-cut, before-after, .*postcard") as refused:
        template_named("../../etc/passwd")
    assert refused.value.reason == InputReason.PARAMETERS
    assert "passwd" not in refused.value.message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"slots": []}, "length >= 1"),
        ({"slots": [{"beats": 1}] * 41}, "length <= 40"),
        ({"slots": [{"beats": 4, "seconds": 2}]}, "either `beats` or `seconds`"),
        ({"slots": [{}]}, "either `beats` or `seconds`"),
        ({"slots": [{"beats": 1e9}]}, "<= 64"),
        ({"slots": [{"beats": float("nan")}]}, "beats"),
        ({"slots": [{"seconds": 30}] * 5}, "longer than 120 s"),
        (
            {"slots": [{"beats": 4, "filter": "movie=/etc/passwd"}]},
            "slots[0].filter`: there is none",
        ),
        ({"slots": [{"beats": 4, "transition": {"kind": "custom"}}]}, "custom"),
        ({"look": "../../x"}, "../../x is none of none, warm"),
        ({"slots": [{"beats": 4, "cells": [{"x": 0.8, "width": 0.5}]}]}, "beyond the canvas"),
        ({"texts": [{"key": "t", "slot": 3}]}, "names slot 3"),
        ({"texts": [{"key": "t", "default": "x" * 201}]}, "length <= 200"),
        ({"texts": [{"key": "a';drop"}]}, "matching regex"),
        ({"texts": [{"key": "t"}] * 21}, "length <= 20"),
        ({"extend": {"first": 0, "count": 2}}, "not there"),
        ({"backdrop": {"top": "red"}}, "a colour like #ffffff"),
        ({"music": {"bpm": 0}}, ">= 50"),
        ({"name": "../up"}, "a name of small letters"),
    ],
)
def test_a_wrong_inline_template_is_refused_with_the_place_that_is_wrong(
    change: dict[str, Any], told: str
) -> None:
    template_inline(ONE_SLOT)
    with pytest.raises(InputError, match="The template is wrong") as refused:
        template_inline(ONE_SLOT | change)
    assert told in refused.value.message


@pytest.mark.parametrize("name", list(shipped()))
@pytest.mark.parametrize("inputs", [1, 2, 3, 7, 30])
def test_every_cut_of_every_template_stands_on_a_beat(name: str, inputs: int) -> None:
    timeline = planned(shipped()[name], inputs)
    beats = set(timeline.beat_frames)
    assert all(frame in beats for frame in timeline.cut_frames)
    assert timeline.frames == timeline.segments[-1].end_frame
    assert timeline.seconds < 121


@given(
    beats=st.lists(st.integers(1, 8), min_size=1, max_size=12),
    seconds=st.floats(0.1, 4),
    inputs=st.integers(1, 9),
    bpm=st.floats(50, 180),
    kind=st.sampled_from(TransitionKind),
)
@settings(max_examples=60)
def test_segments_join_without_holes_whatever_the_tempo_and_the_transitions(
    beats: list[int], seconds: float, inputs: int, bpm: float, kind: TransitionKind
) -> None:
    template = Template(
        slots=tuple(Slot(beats=float(count)) for count in beats),
        transition=Transition(kind=kind, seconds=seconds),
    )
    timeline = make_timeline(template, (Source.PHOTO,) * inputs, Grid((), bpm), SIZE, {})
    segments = timeline.segments
    assert segments[0].start_frame == 0
    shown = sum(segment.frames for segment in segments)
    overlaps = sum(2 * segment.lead for segment in segments[1:])
    assert shown - overlaps == timeline.frames
    for before, after in itertools.pairwise(segments):
        assert before.end_frame == after.start_frame
        assert before.tail == after.lead
        assert before.lead + before.tail <= before.end_frame - before.start_frame


def test_seconds_go_to_the_nearest_beat_or_stay_where_they_are() -> None:
    slots = (Slot(seconds=1.3), Slot(seconds=1.3))
    beat = 60 / 96
    snapped = planned(Template(slots=slots), 2)
    assert snapped.cut_frames == (round(2 * beat * RATE),)
    free = planned(Template(slots=slots, snap=False), 2)
    assert free.cut_frames == (round(1.3 * RATE),)


def test_a_track_that_breathes_moves_the_cuts_with_it() -> None:
    instants = (2.0, 2.5, 3.1, 3.6, 4.2)
    slots = (Slot(beats=2), Slot(beats=2), Slot(beats=2))
    timeline = make_timeline(Template(slots=slots), (Source.PHOTO,), Grid(instants, 110), SIZE, {})
    assert timeline.cut_frames == (round(1.1 * RATE), round(2.2 * RATE))


def test_inputs_too_few_are_shown_again_in_turn_or_the_film_is_shorter() -> None:
    again = planned(shipped()["beat-cut"], 2)
    order = [piece.source for segment in again.segments for piece in segment.pieces]
    assert order[:4] == [0, 1, 0, 1]
    assert again.repeated == len(order) - 2
    full, short = planned(shipped()["postcard"], 7), planned(shipped()["postcard"], 2)
    assert short.left_out > 0
    assert short.repeated == 0
    assert short.frames < full.frames


def test_inputs_too_many_extend_the_film_and_what_is_left_is_told() -> None:
    postcard = shipped()["postcard"]
    assert planned(postcard, 12).unused == ()
    assert planned(postcard, 12).frames > planned(postcard, 7).frames
    assert planned(Template(slots=(Slot(beats=4),)), 3).unused == (1, 2)
    crowd = planned(postcard, 60)
    assert crowd.unused
    assert len(crowd.segments) <= 20


def test_a_slot_for_a_clip_takes_the_clip() -> None:
    kinds = (Source.PHOTO, Source.CLIP, Source.PHOTO)
    template = template_inline(
        {"slots": [{"beats": 4, "kind": "clip"}, {"beats": 4, "kind": "photo"}, {"beats": 4}]}
    )
    timeline = planned(template, 3, kinds)
    assert [segment.pieces[0].source for segment in timeline.segments] == [1, 0, 2]


def test_no_input_comes_again_while_one_of_the_other_kind_was_never_shown() -> None:
    kinds = (Source.PHOTO, Source.CLIP, Source.PHOTO)
    template = template_inline({"slots": [{"beats": 4, "kind": "clip"}] * 4})
    timeline = planned(template, 3, kinds)
    assert [segment.pieces[0].source for segment in timeline.segments] == [1, 0, 2, 1]


def test_a_text_without_words_is_not_shown_and_a_default_is() -> None:
    template = shipped()["before-after"]
    assert {caption.words for caption in planned(template, 2).captions} == {"Before", "After"}
    told = planned(template, 2, after="Danach", before=" ").captions
    assert {caption.words for caption in told} == {"Danach"}


def test_a_text_whose_slot_fell_away_does_not_come_with_another_picture() -> None:
    postcard = shipped()["postcard"]
    words = {"message": "Hello", "closing": "Bye"}
    short = make_timeline(postcard, (Source.PHOTO,), Grid((), 96), SIZE, words)
    assert all(caption.end_frame <= short.frames for caption in short.captions)
    assert {caption.words for caption in short.captions} == {"Bye"}  # on the film's last slot


def test_closing_words_stay_away_from_a_last_slot_that_has_words_of_its_own() -> None:
    words = {"caption": "Erst Kaffee", "closing": "Gute Nacht"}
    short = make_timeline(shipped()["story"], (Source.PHOTO,), Grid((), 108), SIZE, words)
    assert {caption.words for caption in short.captions} == {"Erst Kaffee"}


def test_prints_side_by_side_stand_one_above_the_other_in_an_upright_film() -> None:
    upright = make_timeline(
        shipped()["postcard"], (Source.PHOTO,) * 7, Grid((), 96), (720, 1280), {}
    )
    lying = planned(shipped()["postcard"], 7)
    pairs = [
        [(cell.width, cell.height) for cell in segment.slot.cells]
        for segment in (upright.segments[2], lying.segments[2])
    ]
    assert pairs[0] == [(high, wide) for wide, high in pairs[1]]
    first, second = upright.segments[2].slot.cells
    assert first.y + first.height < second.y + 0.1
    compared = make_timeline(
        shipped()["before-after"], (Source.PHOTO,) * 2, Grid((), 100), (720, 1280), {}
    )
    assert [segment.slot for segment in compared.segments] == list(shipped()["before-after"].slots)


@pytest.mark.parametrize("aspect", list(Aspect))
def test_canvases_are_even_and_as_wide_as_their_name_says(aspect: Aspect) -> None:
    width, height = canvas_of(aspect, 720)
    across, down = (int(part) for part in aspect.value.split(":"))
    assert width % 2 == height % 2 == 0
    assert min(width, height) == 720
    assert width / height == pytest.approx(across / down, abs=0.01)


@pytest.mark.parametrize("tilt", [0.0, 4.0, -12.0])
def test_a_tilted_cell_stays_on_the_canvas_in_even_pixels(tilt: float) -> None:
    box = box_of(Cell(x=0.0, y=0.0, width=1.0, height=1.0, tilt=tilt), SIZE)
    assert box.x >= 0
    assert box.y >= 0
    assert box.x + box.width <= SIZE[0]
    assert box.y + box.height <= SIZE[1]
    assert not any(value % 2 for value in (box.x, box.y, box.width, box.height))


def test_shipped_colour_tables_are_those_that_the_module_makes() -> None:
    for look in Look:
        if look is not Look.NONE:
            assert looks.path_of(look).read_text() == looks.cube_text(look)


def test_the_guide_names_every_template(request: pytest.FixtureRequest) -> None:
    guide = (Path(request.config.rootpath) / "docs" / "templates.md").read_text()
    assert all(f"`{name}`" in guide for name in shipped())


HIGH_FACE = Face(x=0.5, y=0.22, width=0.2, height=0.2, score=0.9)


@pytest.mark.parametrize("move", list(Move))
def test_no_move_and_no_cut_takes_the_top_off_a_head(move: Move) -> None:
    focus = of_faces((HIGH_FACE,))
    assert focus.heads is not None
    crop = crop_around(1000, 1000, 2.0, focus)
    assert crop.top <= focus.heads.top * 1000 + 1
    assert crop.top + crop.height >= focus.heads.bottom * 1000 - 1
    for view in views_of(move, 0.3, focus):
        seen = heads_in(focus.heads, window_of(view))
        assert seen.top >= -1e-9
        assert seen.bottom <= 1 + 1e-9


def standing(top: float, bottom: float, start: int = 0, end: int = 60) -> Rectangle:
    return Rectangle(left=300, right=900, top=top, bottom=bottom, start_frame=start, end_frame=end)


def test_words_go_below_a_face_and_what_is_shown_with_them_goes_along() -> None:
    face, title, line = standing(100, 400), standing(300, 400), standing(420, 450)
    later = standing(300, 400, 80, 120)
    moved = shifts([title, line, later], [face], 720, 0.0)
    assert moved[0] == moved[1] > 0
    assert 300 + moved[0] >= face.bottom
    assert 450 + moved[1] <= 720
    assert moved[2] == 0  # the face has gone


def test_words_go_above_a_face_or_cover_as_little_of_it_as_they_can() -> None:
    assert shifts([standing(500, 600)], [standing(300, 710)], 720, 0.0)[0] < -300
    assert shifts([standing(300, 400)], [standing(20, 700)], 720, 0.0) == [0]
    assert shifts([standing(300, 400)], [standing(100, 350)], 720, 0.4) == [10]  # black bars


def test_of_plain_pictures_the_least_plain_are_the_best_moment() -> None:
    plain = tuple(
        Glance(at=i / 10, change=0.02, light=0.5, detail=0.03 if 60 <= i < 80 else 0.0)
        for i in range(100)
    )
    clip = msgspec.structs.replace(clip_with(()), glances=plain)
    assert 5.9 <= best_moment(clip, 1.5) <= 6.6


def clip_with(faces: tuple[FacesAt, ...]) -> Clip:
    header = SourceHeader(
        container="mp4",
        video_index=0,
        video_codec="h264",
        width=1280,
        height=720,
        pixel_shape=Fraction(1),
        rate=Fraction(30),
        hdr=False,
        matrix_known=True,
        audio_indexes=(),
        claimed_seconds=10.0,
        claimed_frames=300,
        origin_seconds=0.0,
        bytes=1,
    )
    glances = tuple(
        Glance(at=i / 10, change=0.02, light=0.5, detail=0.0 if i < 30 else 0.2) for i in range(100)
    )
    return Clip(
        path=Path("clip"),
        demuxer="mov",
        header=header,
        seconds=10.0,
        rotation=0,
        interlaced=False,
        shown_width=1280,
        shown_height=720,
        focus=Focus(),
        faces=faces,
        glances=glances,
        cuts=(5.0,),
    )


def test_a_cut_out_follows_the_faces_of_its_stretch_of_a_clip() -> None:
    walking = tuple(FacesAt(at=i / 4, focus=Focus(x=i / 40, faces=1)) for i in range(40))
    first, last = focus_along(clip_with(walking), 4.0, 2.0)
    assert first.x == pytest.approx(0.45, abs=0.03)
    assert last.x == pytest.approx(0.55, abs=0.03)
    assert focus_along(clip_with(()), 4.0, 2.0) == (Focus(), Focus())


def test_the_best_moment_has_no_cut_is_no_wall_and_is_not_shown_twice() -> None:
    clip = clip_with(())
    start = best_moment(clip, 1.5)
    assert start >= 3.0
    assert not start < 5.0 < start + 1.5
    again = best_moment(with_used(clip, start, 1.5), 1.5)
    assert abs(again - start) >= 1.4
    assert best_moment(clip, 20.0) == 0
