"""Every scene on the whole platform: from files and words to what a person fetches."""

import json
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from tests.platform.scenes import Works

pytestmark = [pytest.mark.media, pytest.mark.timeout(500)]


def seconds_of(film: Path) -> float:
    with av.open(str(film)) as opened:
        assert opened.streams.video
        return float(opened.duration or 0) / av.time_base


def test_a_clip_becomes_a_film_with_its_edit(works: Works) -> None:
    files = works["autocut"].files
    assert {"film.mp4", "poster.jpg", "edit.otio"} <= set(files)
    assert seconds_of(files["film.mp4"]) == pytest.approx(3, abs=0.5)
    assert json.loads(files["edit.otio"].read_bytes())["OTIO_SCHEMA"].startswith("Timeline")


def test_a_photo_and_a_clip_become_a_template(works: Works) -> None:
    assert seconds_of(works["postcard"].files["film.mp4"]) > 3


def test_a_clip_and_words_become_a_film(works: Works) -> None:
    assert seconds_of(works["stylised"].files["film.mp4"]) == pytest.approx(1.5, abs=0.2)


def test_words_become_a_picture_and_stay_sealed(works: Works) -> None:
    fox, boat = (works[words].files["picture-1.png"] for words in ("fox", "boat"))
    with Image.open(fox) as picture:
        assert picture.size == (64, 64)
    assert fox.read_bytes() != boat.read_bytes()  # the words were heard


def test_pictures_are_cut_out_and_a_manifest_tells_of_each(works: Works) -> None:
    made = works["cut-outs"]
    manifest = json.loads(made.files["manifest.json"].read_bytes())
    assert tuple(one["name"] for one in manifest["pictures"]) == made.inputs
    assert [one["status"] for one in manifest["pictures"]] == ["made", "made"], manifest
    with Image.open(made.files[manifest["pictures"][0]["file"]]) as cut_out:
        alpha = np.asarray(cut_out.convert("RGBA"))[..., 3]
    assert alpha.shape == (256, 256)
    assert alpha[0, 0] == 0
    assert alpha[128, 128] > 200
