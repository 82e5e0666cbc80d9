"""Pictures in and out: a stranger's file made safe and plain, results as PNG, WebP and JPEG."""

import io
from pathlib import Path

from PIL import Image, ImageFile

from gpu_runners.pipelines.colours import eight_bit, in_srgb, profile_of
from gpu_runners.pipelines.pictures import (
    decode_about,
    frames_of,
    kind_of_picture,
    opened,
    told_as_damage,
    upright,
)
from gpu_runners.pipelines.pipeline import InputError, InputReason, ProductFile

_SIDE_MIN = 16
_SHAPE_MAX = 8
_SIDE_MAX = 4096
"""Larger ones are made smaller at once: no model begins with more."""
_POSTER_SIDE = 1280


def is_picture(path: Path) -> bool:
    """Whether a file begins like a picture. Errors: InputError for one that is not taken."""
    return kind_of_picture(path) is not None


def open_picture(path: Path) -> Image.Image:
    """The picture, upright, without transparency, in sRGB, of a sensible size. Errors: InputError.

    Its header is judged before anything is decoded.
    """
    kind = kind_of_picture(path)
    if kind is None:
        raise InputError(InputReason.NOT_MEDIA, "The file is not a picture.")
    with opened(path, kind) as file, told_as_damage():
        _judge(file)
        profile = profile_of(file, path)
        decode_about(file, _SIDE_MAX)
        file.load()
        return _plain(file, profile)


def png(picture: Image.Image) -> bytes:
    """A picture without loss and without a word about who asked for what."""
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=3)
    return out.getvalue()


def from_png(data: bytes) -> Image.Image:
    """A picture of `png`. Errors: ValueError."""
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as file:
            return file.convert("RGB")
    except OSError as error:
        raise ValueError("no picture") from error


def write_preview(picture: Image.Image, path: Path) -> ProductFile:
    picture.save(path, "WEBP", quality=82, method=4)
    return ProductFile(name=path.name, path=path, content_type="image/webp")


def write_poster(picture: Image.Image, path: Path) -> ProductFile:
    """A JPEG of at most 1280 pixels a side."""
    small = picture.copy()
    small.thumbnail((_POSTER_SIDE, _POSTER_SIDE), Image.Resampling.LANCZOS)
    small.save(path, "JPEG", quality=88)
    return ProductFile(name=path.name, path=path, content_type="image/jpeg")


def _judge(file: ImageFile.ImageFile) -> None:
    width, height = file.size
    if min(width, height) < _SIDE_MIN:
        raise InputError(
            InputReason.UNSUPPORTED,
            f"The picture is {width} x {height} pixels: too small to begin with.",
        )
    if max(width, height) > _SHAPE_MAX * min(width, height):
        raise InputError(
            InputReason.UNSUPPORTED,
            f"The picture is {width} x {height} pixels: cut it to a shape of at most "
            f"{_SHAPE_MAX} to 1.",
        )
    if frames_of(file) > 1:
        raise InputError(
            InputReason.UNSUPPORTED,
            "The picture is animated: upload a single frame, or the animation as a film.",
        )


def _plain(file: Image.Image, profile: bytes | None) -> Image.Image:
    picture = eight_bit(upright(file))
    picture.thumbnail((_SIDE_MAX, _SIDE_MAX), Image.Resampling.LANCZOS, reducing_gap=2.0)
    colours = in_srgb(picture, profile)
    if picture.mode != "RGBA":
        return colours
    clear = Image.new("RGB", picture.size, "white")
    clear.paste(colours, mask=picture.getchannel("A"))
    return clear
