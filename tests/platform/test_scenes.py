"""Every scene on the whole platform: from files and words to what a person fetches."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from cutlog.client import Client
from cutlog.installation import RunnerPlan
from tests.platform.installed import Platform
from tests.support.clips import odd, samples

pytestmark = [pytest.mark.media, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform with a runner for each kind of work."""
    found = Platform(
        tmp_path_factory.mktemp("studio"),
        runners=tuple(RunnerPlan(pool, 1) for pool in ("A", "B", "C", "M")),
        processors=1,
    )
    found.start()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def ann(studio: Platform) -> Iterator[Client]:
    token = studio.installation.token("ann", tier="studio")
    with Client(studio.url, token) as client:
        yield client


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bunny = next(clip for clip in samples() if clip.name == "bigbuckbunny.mp4")
    return odd(bunny, tmp_path_factory.mktemp("clip") / "bunny.mp4", "-vf", "scale=640:360")


def picture(path: Path, hue: int) -> Path:
    """Somebody in the middle, more or less: an ellipse on a slope of colour."""
    y, x = np.mgrid[0:480, 0:480]
    pixels = np.stack([x // 2, y // 2, np.full_like(x, hue)], axis=-1).astype(np.uint8)
    pixels[((x - 240) / 120) ** 2 + ((y - 250) / 190) ** 2 < 1] = (230, 190, 160)
    Image.fromarray(pixels).save(path)
    return path


def made(ann: Client, out: Path, scene: str, **asked: Any) -> dict[str, Path]:  # noqa: ANN401
    """The files of a task by name, once it is there. Its end is a success."""
    task_id = ann.submit(scene, **asked).task_id
    events = list(ann.watch(task_id))
    assert events[-1].name == "task.succeeded.v1", events[-1]
    return {path.name: path for path in ann.download(task_id, out)}


def seconds_of(film: Path) -> float:
    with av.open(str(film)) as opened:
        assert opened.streams.video
        return float(opened.duration or 0) / av.time_base


def test_a_clip_becomes_a_film_with_its_edit(ann: Client, clip: Path, tmp_path: Path) -> None:
    files = made(
        ann,
        tmp_path,
        "autocut",
        materials=[ann.upload(clip)],
        parameters={"target_seconds": 3, "aspect": "9:16", "title": "Ein Hase"},
    )
    assert {"film.mp4", "poster.jpg", "edit.otio"} <= set(files)
    assert seconds_of(files["film.mp4"]) == pytest.approx(3, abs=0.5)
    assert json.loads(files["edit.otio"].read_bytes())["OTIO_SCHEMA"].startswith("Timeline")


def test_a_photo_and_a_clip_become_a_template(ann: Client, clip: Path, tmp_path: Path) -> None:
    inputs = [ann.upload(picture(tmp_path / "one.png", 40)), ann.upload(clip)]
    files = made(
        ann,
        tmp_path,
        "smart",
        materials=inputs,
        parameters={"template": "postcard", "texts": {"title": "海边 · Sommer"}},
    )
    assert seconds_of(files["film.mp4"]) > 3


def test_words_become_a_picture_and_stay_sealed(ann: Client, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"parameters": {"width": 64, "height": 64, "steps": 4, "seed": 7}}
    fox, boat = (
        made(ann, tmp_path / words, "genai", prompt=words, **asked) for words in ("fox", "boat")
    )
    pictures = [files["picture-1.png"].read_bytes() for files in (fox, boat)]
    assert Image.open(io.BytesIO(pictures[0])).size == (64, 64)
    assert pictures[0] != pictures[1]  # the words were heard


def test_pictures_are_cut_out_and_a_manifest_tells_of_each(ann: Client, tmp_path: Path) -> None:
    inputs = [ann.upload(picture(tmp_path / f"{hue}.png", hue)) for hue in (10, 200)]
    files = made(ann, tmp_path / "out", "matting", materials=inputs, parameters={"size": 256})
    manifest = json.loads(files["manifest.json"].read_bytes())
    assert [one["name"] for one in manifest["pictures"]] == inputs
    assert [one["status"] for one in manifest["pictures"]] == ["made", "made"], manifest
    with Image.open(files[manifest["pictures"][0]["file"]]) as cut_out:
        alpha = np.asarray(cut_out.convert("RGBA"))[..., 3]
    assert alpha.shape == (256, 256)
    assert alpha[0, 0] == 0
    assert alpha[128, 128] > 200
