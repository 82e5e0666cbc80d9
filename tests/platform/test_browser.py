"""What Cutlog makes, in a real browser: films play, pictures show, links download, streams tell."""

from collections.abc import Iterator
from concurrent.futures import Future, wait
from fnmatch import fnmatch
from pathlib import Path
from queue import Empty
from typing import Final, NamedTuple

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from cutlog.ffmpeg import run_ffmpeg
from tests.platform.installed import Platform
from tests.platform.scenes import Works
from tests.support.browser import GRID, MISSING, Browser, Held, Tab, find_chromium

pytestmark = [pytest.mark.media, pytest.mark.timeout(500)]

LEVELS_APART_MAX: Final = 6
"""How far a browser's colours may be from ours in the mean of 0 to 255: chroma is not fine."""
EVENTS: Final = (
    "task.created.v1",
    "task.queued.v1",
    "task.started.v1",
    "task.progressed.v1",
    "task.storing.v1",
    "task.succeeded.v1",
    "progress",
)
_PATIENCE_SECONDS: Final = 60


class Film(NamedTuple):
    work: str
    file: str
    sound: bool


FILMS: Final = (
    Film("autocut", "film.mp4", sound=True),
    Film("postcard", "film.mp4", sound=True),
    Film("stylised", "film.mp4", sound=True),  # so small that a player takes all of it at once
)
PICTURES: Final = (
    ("autocut", "poster.jpg"),
    ("autocut", "thumbnails.jpg"),
    ("postcard", "poster.jpg"),
    ("fox", "picture-1.png"),
    ("cut-outs", "*.png"),
    ("cut-outs in webp", "*.webp"),
    ("cut-outs on white", "*.jpg"),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.skip(MISSING)
    with Browser(executable) as opened:
        yield opened


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with browser.open() as opened:
        yield opened


def small(picture: Image.Image) -> NDArray[np.float64]:
    """A picture as the browser tells it: GRID x GRID pixels."""
    return np.asarray(picture.resize((GRID, GRID), Image.Resampling.BOX), dtype=np.float64)


def apart(seen: bytes, ours: NDArray[np.float64]) -> float:
    shown = np.frombuffer(seen, dtype=np.uint8).astype(np.float64)
    return float(np.abs(shown - ours.reshape(-1)).mean())


def frames_of(film: Path) -> list[tuple[float, NDArray[np.float64]]]:
    """Every frame with its seconds, in the colours of its tags."""
    with av.open(str(film)) as opened:
        video = opened.streams.video[0]
        return [
            (float(frame.time or 0), small(Image.fromarray(frame.to_ndarray(format="rgb24"))))
            for frame in opened.decode(video)
        ]


@pytest.mark.parametrize("film", FILMS, ids=lambda film: film.work)
def test_a_film_plays_to_its_end_and_from_anywhere(tab: Tab, works: Works, film: Film) -> None:
    made = works[film.work].files[film.file]
    address = works.address(film.work, film.file)
    frames = frames_of(made)
    with av.open(str(made)) as opened:
        size = (opened.streams.video[0].width, opened.streams.video[0].height)
        seconds = float(opened.duration or 0) / av.time_base
    seen = tab.film(address)
    assert (seen.width, seen.height) == size
    assert seen.seconds == pytest.approx(seconds, abs=0.05)
    assert seen.ended
    assert 0 < seen.frames[0] < seen.frames[1] < seen.frames[2]
    assert (seen.sound_bytes > 0) == film.sound
    assert [place.ready_state >= 2 for place in seen.places] == [True] * 3
    for place in seen.places:
        shown = max((one for one in frames if one[0] <= place.seconds), key=lambda one: one[0])
        assert apart(place.grid, shown[1]) < LEVELS_APART_MAX
    answers = [one for one in tab.fetched if one.url == address]
    assert answers
    assert all(one.status == 206 and one.got.startswith("bytes ") for one in answers), answers


@pytest.mark.parametrize("film", FILMS[:2], ids=lambda film: film.work)
def test_a_film_begins_while_the_rest_of_it_is_on_its_way(
    browser: Browser, tab: Tab, works: Works, film: Film
) -> None:
    content = works[film.work].files[film.file].read_bytes()
    address, held = browser.host.hold(content, len(content) // 2)
    assert tab.begins(address).result(_PATIENCE_SECONDS) > 0
    assert not held.rest.is_set()


def test_a_film_whose_index_comes_last_would_wait_for_its_end(
    browser: Browser, tab: Tab, works: Works, tmp_path: Path
) -> None:
    """What holds a film back above does hold it back."""
    late = tmp_path / "late.mp4"
    film = works["autocut"].files["film.mp4"]
    run_ffmpeg("-loglevel", "error", "-i", str(film), "-c", "copy", str(late))
    address, held = browser.host.hold(late.read_bytes(), late.stat().st_size // 2)
    begun = tab.begins(address)
    asked_behind(held, begun)
    assert not begun.done()
    held.rest.set()
    assert begun.result(_PATIENCE_SECONDS) > 0


def asked_behind(held: Held, begun: "Future[float]") -> None:
    """Wait until the player has asked for what is held back, or plays without it."""
    while not begun.done():
        try:
            if held.asked.get(timeout=1) >= held.first:
                return
        except Empty:
            wait([begun], timeout=0)


@pytest.mark.parametrize(("work", "pattern"), PICTURES)
def test_a_picture_is_shown_as_it_is(tab: Tab, works: Works, work: str, pattern: str) -> None:
    file = next(name for name in works[work].files if fnmatch(name, pattern))
    with Image.open(works[work].files[file]) as opened:
        ours = opened.convert("RGBA")
    seen = tab.picture(works.address(work, file))
    assert (seen.width, seen.height) == ours.size
    assert apart(seen.alpha, small(ours.getchannel("A"))) < LEVELS_APART_MAX
    on_black = Image.alpha_composite(Image.new("RGBA", ours.size, "black"), ours).convert("RGB")
    assert apart(seen.grid, small(on_black)) < LEVELS_APART_MAX


def test_an_animated_cut_out_plays(tab: Tab, works: Works) -> None:
    made = works["moving cut-out"]
    (file,) = [name for name in made.files if name.endswith(".webm")]
    seen = tab.film(works.address("moving cut-out", file), ())
    with av.open(str(made.files[file])) as opened:
        video = opened.streams.video[0]
        assert (seen.width, seen.height) == (video.width, video.height)
    assert seen.ended


def test_a_link_to_a_film_saves_it_under_its_title(tab: Tab, works: Works) -> None:
    address = works.address("postcard", "film.mp4")
    assert tab.download_name(address) == "海边 · Sommer.mp4"


def test_an_event_source_hears_a_task_to_its_end_and_stays_away(
    browser: Browser, studio: Platform
) -> None:
    """The token is put in by what stands before the api: an EventSource has no headers."""
    with studio.person("eve", tier="studio") as eve:
        task_id = eve.submitted({"seconds": 1.5, "steps": 20, "reports": 20})["task_id"]
        door = {"Authorization": f"Bearer {eve.token}"}
        with browser.open(f"{studio.url}/healthz", door) as tab:
            heard = tab.stream(f"/v1/tasks/{task_id}/events", EVENTS).events
        stored = [event for event in heard if event.name != "progress"]
        seqs = [event.data["seq"] for event in stored]
        assert seqs == list(range(1, len(seqs) + 1))
        assert stored[-1].name == "task.succeeded.v1"
        between = [event.data["percent"] for event in heard if event.name == "progress"]
        assert between == sorted(between)


def test_a_browser_leaves_nothing_behind() -> None:
    executable = find_chromium()
    if executable is None:
        pytest.skip(MISSING)
    with Browser(executable) as opened:
        assert opened.processes()
    assert opened.processes() == []
