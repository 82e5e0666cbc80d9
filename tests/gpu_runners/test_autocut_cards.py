"""Title cards in a film of another shape, and what is blank between them."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import opentimelineio as otio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from cutlog.ffmpeg import run_ffmpeg
from gpu_runners.pipelines.autocut.cards import Card, find_card
from gpu_runners.pipelines.autocut.lettering import CardFinder, CardLook, look_at
from gpu_runners.pipelines.autocut.survey import find_air
from gpu_runners.pipelines.faces import Face, Look
from gpu_runners.pipelines.fitting import Fit, lay_fit
from gpu_runners.pipelines.fonts import Colour, TextStyle
from gpu_runners.pipelines.silence import Span, find_blank, without
from schema.scenes.autocut import AutocutParameters
from schema.scenes.smart import Family
from tests.gpu_runners.conftest import Film, MakeFilm, cut
from tests.support.cards import card, joined, still
from tests.support.clips import samples
from tests.support.features import made_up_analysis
from tests.support.signals import X264, moving_box

pytestmark = pytest.mark.media

Points = NDArray[np.uint8]

_CARDS = {
    "serif": ("The Long Way Home", TextStyle(pixels=110, family=Family.SERIF)),
    "small": ("a film by somebody with a long name", TextStyle(pixels=36, weight=400)),
    "spaced": ("CINEMA", TextStyle(pixels=80, tracking=0.9, weight=400)),
    "hand": ("Wish you were here", TextStyle(pixels=140, family=Family.HAND)),
    "chinese": ("夏日的一天在湖边漫步", TextStyle(pixels=100)),
    "arabic": ("مرحبا بكم في الفيلم الجديد", TextStyle(pixels=100)),
    "credits": ("Directed by One\nWritten by Another", TextStyle(pixels=60, leading=1.6)),
}


def _small(picture: Image.Image) -> Points:
    small = picture.resize((480, round(480 * picture.height / picture.width)), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.uint8)[..., ::-1].copy()


def _found(picture: Points, *, faces: tuple[Look, ...] = ()) -> Card | None:
    looks = tuple(look_at(picture, at / 4) for at in range(8))
    return find_card(looks, faces, 0.0, 2.0, across=True)


# --------------------------------------------------------------------------------------- finding


@pytest.mark.parametrize("name", _CARDS)
def test_a_card_of_any_script_and_style_is_found_with_all_of_its_lettering(name: str) -> None:
    text, style = _CARDS[name]
    picture, (left, right) = card(text, style)
    found = _found(_small(picture))
    assert found is not None
    assert found.low <= left / 1280 - 0.02
    assert found.high >= right / 1280 + 0.02
    assert found.share < (right - left) / 1280 + 0.15
    assert found.level_rim


def test_lettering_that_goes_downwards_is_found_too() -> None:
    picture, (left, right) = card("The Long Way Home", TextStyle(pixels=70), size=(720, 720))
    small = np.ascontiguousarray(_small(picture).transpose(1, 0, 2))
    looks = tuple(look_at(small, at / 4) for at in range(8))
    found = find_card(looks, (), 0.0, 2.0, across=False)
    assert found is not None
    assert found.low <= left / 720
    assert found.high >= right / 720


@pytest.mark.parametrize(
    ("letters", "ground"),
    [
        ((20, 20, 30), (255, 255, 255)),
        ((230, 30, 30), (30, 30, 200)),
        ((250, 220, 0), (48, 58, 72)),
    ],
)
def test_the_colours_of_a_card_do_not_matter(letters: Colour, ground: Colour) -> None:
    style = TextStyle(pixels=100, colour=letters)
    picture, _ = card("Quarterly results", style, ground=ground)
    assert _found(_small(picture)) is not None


def test_the_grain_of_an_old_film_does_not_hide_its_card() -> None:
    picture, (left, right) = card("The Long Way Home", TextStyle(pixels=110), ground=(40, 40, 40))
    noise = np.random.default_rng(3).normal(0, 7, (270, 480, 3))
    grained = np.clip(_small(picture) + noise, 0, 255).astype(np.uint8)
    found = _found(grained)
    assert found is not None
    assert found.low <= left / 1280
    assert found.high >= right / 1280


def test_words_beside_a_face_are_no_card() -> None:
    picture, _ = card("The Long Way Home", TextStyle(pixels=110))
    face = Face(x=0.5, y=0.4, width=0.2, height=0.3, score=0.9)
    faces = tuple(Look(at=at / 4, faces=(face,)) for at in range(8))
    assert _found(_small(picture), faces=faces) is None


def test_lettering_that_is_seen_for_a_moment_of_a_camera_shot_makes_no_card() -> None:
    picture, _ = card("The Long Way Home", TextStyle(pixels=110))
    lettered = look_at(_small(picture), 0.0)
    looks = tuple(
        CardLook(at=at / 4, plain=at < 2, lines=lettered.lines if at < 2 else ())
        for at in range(12)
    )
    assert find_card(looks, (), 0.0, 3.0, across=True) is None


def test_what_a_camera_saw_is_no_card(tmp_path: Path) -> None:
    words, _ = card("And this is what they say to each other", TextStyle(pixels=44))
    words.crop((0, 300, 1280, 420)).save(tmp_path / "words.png")
    subtitled = tmp_path / "subtitled.mp4"
    rabbit = next(path for path in samples() if path.name == "bigbuckbunny.mp4")
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-i", str(rabbit), "-i", str(tmp_path / "words.png")),
        *("-filter_complex", "overlay=0:H-h", "-an", *X264, str(subtitled)),
    )
    clips = [path for path in samples() if path.suffix == ".mp4" and path.name != "a.mp4"]
    for clip in (*clips, subtitled):
        looks = _looks(clip)
        for start in np.arange(0.0, looks[-1].at, 0.5):
            for seconds in (0.6, 2.0, 8.0):
                found = find_card(looks, (), float(start), float(start) + seconds, across=True)
                assert found is None, (clip.name, start)


def _looks(clip: Path) -> tuple[CardLook, ...]:
    with av.open(str(clip)) as opened:
        video = opened.streams.video[0]
        finder = CardFinder(video.width, video.height)
        for frame in opened.decode(video):
            finder.see(frame, float(frame.time or 0), 0)
    return tuple(finder.looks)


# ----------------------------------------------------------------------------------------- films


def _frames(film: Path) -> Points:
    with av.open(str(film)) as opened:
        pictures = [frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0)]
    return np.stack(pictures).astype(np.uint8)


@given(
    canvas=st.sampled_from([(720, 1280), (720, 720), (1280, 720), (480, 854), (1080, 1920)]),
    shape=st.floats(0.3, 3.4),
    part=st.floats(0.0, 1.0),
    middle=st.floats(0.0, 1.0),
)
def test_a_fitted_picture_lies_within_its_canvas_with_all_of_its_other_side(
    canvas: tuple[int, int], shape: float, part: float, middle: float
) -> None:
    across = shape > canvas[0] / canvas[1]
    wanted = canvas[0] / canvas[1]
    window = min(wanted / shape, shape / wanted)
    fit = Fit(middle=middle, share=window + part * (1 - window), plain=True)
    laid = lay_fit(fit, canvas, shape, across=across)
    long, other = (0, 1) if across else (1, 0)
    assert laid.shown[long] == canvas[long]
    assert 0 <= laid.offset <= laid.scaled[long] - laid.shown[long]
    assert laid.shown[other] == laid.scaled[other] <= canvas[other]
    assert all(side % 2 == 0 for side in (*laid.scaled, *laid.shown, laid.offset))
    assert canvas[other] - laid.shown[other] != 2
    assert laid.scaled[0] / laid.scaled[1] == pytest.approx(shape, rel=0.02)


@pytest.mark.parametrize(("aspect", "size"), [("9:16", (720, 1280)), ("1:1", (720, 720))])
def test_a_card_that_is_wider_than_the_window_is_shown_whole_on_its_own_ground(
    make_film: MakeFilm, tmp_path: Path, aspect: str, size: tuple[int, int]
) -> None:
    ground = (48, 58, 72)
    picture, (left, right) = card(
        "THANKS FOR WATCHING", TextStyle(pixels=90, colour=(250, 220, 0)), ground=ground
    )
    source = still(picture, tmp_path / "card.mp4")
    film = make_film(source, target_seconds=2, aspect=aspect)
    (kept,) = film.facts.keep
    assert (film.facts.width, film.facts.height) == size
    assert kept.follow == "lettering"
    assert kept.fit is not None
    assert kept.fit.plain
    shown = _frames(film.path)[10].astype(np.int16)
    seen = np.flatnonzero((shown[..., 0] > 150).any(axis=0))
    wide = (right - left) / 1280 / kept.fit.share * size[0]
    assert seen[0] > 0.02 * size[0]
    assert seen[-1] < 0.98 * size[0]
    assert seen[-1] - seen[0] == pytest.approx(wide, abs=6)
    empty = shown[:, : max(2, seen[0] // 2)]
    assert np.abs(empty - np.array(ground)).max() <= 6  # no bar, no seam


def test_a_card_that_ends_in_a_frame_lies_on_a_dark_blur_of_itself(
    make_film: MakeFilm, tmp_path: Path
) -> None:
    picture, _ = card("The Long Way Home", TextStyle(pixels=100), ground=(120, 20, 40))
    ImageDraw.Draw(picture).rectangle([6, 6, 1273, 713], outline=(200, 160, 60), width=14)
    film = make_film(still(picture, tmp_path / "card.mp4"), target_seconds=2, aspect="9:16")
    (kept,) = film.facts.keep
    assert kept.fit is not None
    assert (kept.fit.share, kept.fit.plain) == (1.0, False)
    shown = _frames(film.path)[10].astype(np.int16)
    beside, within = shown[200, 360], shown[500, 360]
    assert 20 < beside.sum() < within.sum() * 0.6
    assert np.abs(np.diff(shown[150:350, 360].sum(axis=1))).max() < 20  # soft


def test_lettering_that_fits_into_the_window_is_not_cut_by_it(
    make_film: MakeFilm, tmp_path: Path
) -> None:
    picture, (left, right) = card("The end.", TextStyle(pixels=60), middle=0.8)
    film = make_film(still(picture, tmp_path / "card.mp4"), target_seconds=2, aspect="9:16")
    (kept,) = film.facts.keep
    assert (kept.follow, kept.fit) == ("lettering", None)
    seen = np.flatnonzero((_frames(film.path)[10] > 150).any(axis=(0, 2)))
    assert seen[0] > 10
    assert seen[-1] < 710
    assert seen[-1] - seen[0] == pytest.approx((right - left) * 1280 / 720, abs=8)


def test_a_tall_card_is_shown_whole_in_a_wide_film(make_film: MakeFilm, tmp_path: Path) -> None:
    style = TextStyle(pixels=150, leading=1.9)
    picture, _ = card("MORNING\nNOON\nNIGHT", style, size=(720, 1280), width_max=0.95)
    whole = np.flatnonzero((np.asarray(picture) > 150).any(axis=(1, 2)))
    film = make_film(still(picture, tmp_path / "card.mp4"), target_seconds=2, aspect="16:9")
    (kept,) = film.facts.keep
    assert kept.fit is not None
    seen = np.flatnonzero((_frames(film.path)[10] > 150).any(axis=(1, 2)))
    tall = (whole[-1] - whole[0]) / 1280 / kept.fit.share * 720
    assert seen[-1] - seen[0] == pytest.approx(tall, abs=6)


def test_a_card_in_a_turned_clip_is_shown_whole(make_film: MakeFilm, tmp_path: Path) -> None:
    picture, _ = card("THANKS FOR WATCHING", TextStyle(pixels=90))
    stored = still(picture.transpose(Image.Transpose.ROTATE_90), tmp_path / "stored.mp4")
    turned = tmp_path / "turned.mp4"
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-display_rotation", "-90", "-i", str(stored)),
        *("-c", "copy", str(turned)),
    )
    film = make_film(turned, target_seconds=2, aspect="1:1")
    (kept,) = film.facts.keep
    assert kept.fit is not None
    letters = _frames(film.path)[10].min(axis=2) > 150
    columns, rows = np.flatnonzero(letters.any(axis=0)), np.flatnonzero(letters.any(axis=1))
    assert columns[0] > 10
    assert columns[-1] < 710
    assert columns[-1] - columns[0] > 5 * (rows[-1] - rows[0])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A card, a blank, a box that wanders, a card, a blank: 3, 1.2, 4, 3 and 0.3 seconds."""
    folder = tmp_path_factory.mktemp("mixed")
    picture, _ = card("The Long Way Home", TextStyle(pixels=110, family=Family.SERIF))
    other, _ = card(
        "To be continued", TextStyle(pixels=110, colour=(20, 20, 30)), ground=(200, 200, 205)
    )
    return joined(
        folder / "mixed.mp4",
        still(picture, folder / "one.mp4"),
        still(Image.new("RGB", (1280, 720), (60, 60, 66)), folder / "blank.mp4", seconds=1.2),
        moving_box(folder / "box.mp4", seconds=4),
        still(other, folder / "two.mp4"),
        still(Image.new("RGB", (1280, 720)), folder / "end.mp4", seconds=0.32),
    )


@pytest.fixture(scope="module")
def mixed_film(mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> Film:
    return cut(mixed, tmp_path_factory.mktemp("film"), None, target_seconds=30, aspect="9:16")


def test_cards_are_fitted_and_camera_shots_cut_in_one_film(mixed_film: Film) -> None:
    keep = mixed_film.facts.keep
    assert [one.follow for one in keep][:3] == ["lettering", "motion", "lettering"]
    assert [one.fit is not None for one in keep][:3] == [True, False, True]
    pictures = _frames(mixed_film.path).astype(np.int16)
    assert len(pictures) == mixed_film.facts.frames
    first, box, last = (one.end_frame - one.start_frame for one in keep[:3])
    for frame in pictures[first + 5 : first + box - 5 : 10]:  # followed, as without cards
        red = (frame[..., 0] > 150) & (frame[..., 1] < 90)
        columns = np.flatnonzero(red.sum(axis=0) > 8)
        assert columns[0] > 4
        assert columns[-1] < 715
    for start, end in ((3, first - 3), (first + box + 3, first + box + last - 3)):
        letters = np.abs(pictures[(start + end) // 2] - pictures[(start + end) // 2, 2, 2])
        columns = np.flatnonzero((letters.max(axis=2) > 90).any(axis=0))
        assert columns[0] > 10
        assert columns[-1] < 710


def test_an_editor_is_told_which_range_was_fitted(mixed_film: Film) -> None:
    timeline = otio.adapters.read_from_file(str(mixed_film.edit))
    pictures, sound = (list(track.find_clips()) for track in timeline.tracks)
    told = [clip.metadata["cutlog"] for clip in pictures]
    assert [one["laid"] for one in told][:3] == ["fitted", "cut", "fitted"]
    fit = mixed_film.facts.keep[0].fit
    assert fit is not None
    assert told[0]["fit"]["share"] == fit.share
    assert told[1]["follow"] == "motion"
    assert "laid" not in sound[0].metadata["cutlog"]


# ----------------------------------------------------------------------------------------- blanks


def test_blank_stretches_are_left_out_to_the_frame(mixed_film: Film) -> None:
    (blank,) = mixed_film.facts.blank
    assert (blank.start, blank.end) == pytest.approx((3.0, 4.2), abs=0.041)
    for kept in mixed_film.facts.keep:
        assert kept.end_seconds <= blank.start + 1e-3 or kept.start_seconds >= blank.end - 1e-3
    assert mixed_film.facts.keep[0].end_seconds == pytest.approx(3.0, abs=0.041)


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (20, 90, 160)])
def test_a_clip_that_is_nothing_but_blank_is_kept(
    make_film: MakeFilm, tmp_path: Path, colour: Colour
) -> None:
    blank = still(Image.new("RGB", (320, 180), colour), tmp_path / "blank.mp4")
    film = make_film(joined(tmp_path / "heard.mp4", blank, size=(320, 180)), target_seconds=2)
    assert film.facts.blank
    assert film.facts.duration_seconds == pytest.approx(2.0, abs=0.05)


def test_a_blank_picture_is_of_one_colour_for_half_a_second_at_least() -> None:
    analysis = made_up_analysis(12, Fraction(25))
    analysis.spread[50:100] = 6.0
    analysis.spread[150:162] = 0.0  # a fade
    analysis.spread[200:240] = 40.0  # something small is there
    assert find_blank(analysis) == (Span(start=2.0, end=4.0),)


def test_a_blank_picture_that_somebody_speaks_over_stays() -> None:
    analysis = made_up_analysis(12, Fraction(25))
    analysis.spread[50:150] = 0.0
    analysis.luma[200:230], analysis.contrast[200:230] = 0.0, 0.0
    speech = (Span(start=2.9, end=4.0), Span(start=8.0, end=9.3))
    air = find_air(analysis, AutocutParameters(margin_seconds=0.1), speech)
    ((start, end), (then, last)) = ((span.start, span.end) for span in air.blank)
    assert (start, end, then, last) == pytest.approx((2.0, 2.8, 4.1, 6.0))
    assert not any(span.end > 7.9 for span in air.black)


def test_what_is_left_of_a_stretch_is_long_enough_or_stays_too() -> None:
    stretch, other = (Span(start=0.0, end=3.0),), (Span(start=1.0, end=2.0),)
    assert without(stretch, (), margin=0.1, seconds_min=0.5) == stretch
    assert without(stretch, other, margin=0.6, seconds_min=0.5) == ()
    assert without(stretch, other, margin=0.1, seconds_min=0.5) == (
        Span(start=0.0, end=0.9),
        Span(start=2.1, end=3.0),
    )
    assert without(stretch, (Span(start=-1.0, end=5.0),), margin=0.1, seconds_min=0.5) == ()
