"""Photos as they come, made alike: upright, sRGB, eight bit, alpha known, of a sensible size.

The header is judged before a pixel is decoded. An animation gives its first picture, and that is
told. Pillow may open only what is named here.
"""

from pathlib import Path

import msgspec
from PIL import Image, ImageFile

from gpu_runners.pipelines.colours import eight_bit, in_srgb, is_opaque, profile_of
from gpu_runners.pipelines.pictures import (
    decode_about,
    frames_of,
    kind_of_picture,
    opened,
    told_as_damage,
    upright,
    upright_size,
)
from gpu_runners.pipelines.pipeline import InputError, InputReason

_LONG_SIDE = 2_560
"""Larger ones are made smaller at once: no cell of a film shows more."""
_SIDE_MIN = 16


class Photo(msgspec.Struct, frozen=True, kw_only=True):
    picture: Image.Image
    """RGBA where something can be seen through, else RGB."""
    width: int
    """Of the file, upright."""
    height: int
    notes: tuple[str, ...]

    @property
    def has_alpha(self) -> bool:
        return self.picture.mode == "RGBA"


def photo_format(path: Path) -> str | None:
    """What kind of picture a file is, by its first bytes; None: it is none. Errors: InputError."""
    return kind_of_picture(path)


def open_photo(path: Path, kind: str) -> Photo:
    """Read a photo of a kind and make it alike. Errors: InputError."""
    with opened(path, kind) as image, told_as_damage():
        if min(image.size) < _SIDE_MIN:
            raise InputError(
                InputReason.TOO_SHORT,
                f"The photo has only {image.width} x {image.height} pixels.",
            )
        return _made_alike(image, profile_of(image, path))


def _made_alike(image: ImageFile.ImageFile, profile: bytes | None) -> Photo:
    moves = frames_of(image) > 1
    width, height = upright_size(image)
    decode_about(image, _LONG_SIDE)
    image.load()
    picture = eight_bit(upright(image))
    picture.thumbnail((_LONG_SIDE, _LONG_SIDE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    colours = in_srgb(picture, profile)
    if not is_opaque(picture):
        colours.putalpha(picture.getchannel("A"))
    return Photo(
        picture=colours,
        width=width,
        height=height,
        notes=("animation: its first picture is used",) if moves else (),
    )
