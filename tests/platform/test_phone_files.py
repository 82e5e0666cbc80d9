"""What phones write, on the whole platform: checked at the door and made into something."""

import json
from pathlib import Path

import pytest
from PIL import Image

from cutlog.client import Refused
from tests.gpu_runners import phones
from tests.gpu_runners.corpus import Forge, corpus
from tests.platform.scenes import Works

pytestmark = [pytest.mark.media, pytest.mark.timeout(500)]


def test_an_iphones_picture_and_film_become_a_template_and_a_cut_out(
    works: Works, tmp_path: Path
) -> None:
    client = works.client
    photo, clip = tmp_path / "IMG_0001.HEIC", tmp_path / "IMG_0002.MOV"
    photo.write_bytes(phones.upright_iphone())
    next(odd for odd in corpus() if odd.name == "iphone.mov").make(Forge(tmp_path, 9), clip)
    ids = [client.upload(path) for path in (photo, clip)]
    checked = [client.await_material(one) for one in ids]
    assert [one["status"] for one in checked] == ["READY", "READY"]
    assert [one["content_type"] for one in checked] == ["image/heic", "video/quicktime"]
    facts = checked[0]["facts"]
    assert (facts["width"], facts["height"]) == (120, 180)
    for scene, inputs, parameters in (
        ("smart", ids, {"template": "postcard", "texts": {"title": "iPhone"}}),
        ("matting", ids[:1], {"refine": False}),
    ):
        task_id = client.submit(scene, materials=inputs, parameters=parameters).task_id
        assert list(client.watch(task_id))[-1].name == "task.succeeded.v1"
        files = {path.name: path for path in client.download(task_id, tmp_path / scene)}
        if scene == "smart":
            assert files["film.mp4"].stat().st_size > 10_000
            continue
        (entry,) = json.loads(files["manifest.json"].read_bytes())["pictures"]
        with Image.open(files[entry["file"]]) as cut_out:
            assert cut_out.size == (120, 180)


def test_a_raw_photo_is_refused_with_what_to_do_instead(works: Works, tmp_path: Path) -> None:
    path = tmp_path / "IMG_0003.DNG"
    path.write_bytes(phones.dng())
    try:
        found = works.client.await_material(works.client.upload(path))
        told = f"{found['status']} {found['detail']} {found['advice']}"
    except Refused as refused:  # the answer to its completion may know it already
        told = str(refused)
    assert "ProRAW turned off" in told
    assert "JPEG, HEIC or PNG" in told
