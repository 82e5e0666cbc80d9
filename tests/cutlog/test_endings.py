"""What the command line announces a file as."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from api.contracts import MaterialRequest
from cutlog.client import describe
from cutlog.endings import ANYTHING, content_type_of


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("IMG_0001.HEIC", "image/heic"),
        ("a.heif", "image/heif"),
        ("DSC1.HIF", "image/heif"),
        ("a.avif", "image/avif"),
        ("a.webp", "image/webp"),
        ("PXL_1.MP.jpg", "image/jpeg"),
        ("IMG_0001.MOV", "video/quicktime"),
        ("a.mts", "video/mp2t"),
        ("voice.m4a", "audio/mp4"),
        # a film to some phones, a voice to others
        ("a.3gp", ANYTHING),
        ("a.ogg", ANYTHING),
        ("IMG_0001.DNG", ANYTHING),
        ("none", ANYTHING),
        (".heic", ANYTHING),
    ],
)
def test_what_phones_write_is_announced_as_what_it_is_and_the_api_takes_it(
    name: str, wanted: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(b"x")
    assert content_type_of(path) == wanted
    told = TypeAdapter(MaterialRequest).validate_python(describe(path))
    assert told.content_type == wanted
