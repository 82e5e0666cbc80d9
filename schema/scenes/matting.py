"""What a caller may ask of the scene `matting`, and where its limits lie."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import msgspec

from schema.scenes.judging import COLOUR, Fault, Strict

PICTURES_MAX = 500
"""Materials of one task."""

DEFAULT_MARGIN = 0.06
DEFAULT_JPEG_BACKGROUND = "#ffffff"


class Format(StrEnum):
    """What still pictures become. Animations become WebP, films WebM, whatever is asked here."""

    PNG = "png"
    WEBP = "webp"
    JPEG = "jpeg"


class MattingParameters(Strict, frozen=True, kw_only=True):
    format: Format = Format.PNG
    quality: Annotated[int, msgspec.Meta(ge=1, le=100)] = 88
    """Of WebP and JPEG; PNG loses nothing."""
    refine: bool = True
    """Find the edge in the picture's own pixels; without it the network's soft mask is taken."""
    size: Annotated[int, msgspec.Meta(ge=16, le=4096)] | None = None
    """Side of a square canvas with the subject in its middle; None: the picture's own canvas."""
    margin: Annotated[float, msgspec.Meta(ge=0, le=0.45)] | None = None
    """Part of the canvas's side that stays free on each side of the subject; needs `size`."""
    background: Annotated[str, msgspec.Meta(pattern=COLOUR)] | None = None
    """A colour behind the subject instead of transparency; JPEG is white without it."""

    @property
    def colour(self) -> tuple[int, int, int] | None:
        """What stands behind the subject as red, green, blue; None: nothing does."""
        told = self.background
        if told is None and self.format is Format.JPEG:
            told = DEFAULT_JPEG_BACKGROUND
        if told is None:
            return None
        red, green, blue = bytes.fromhex(told[1:])
        return red, green, blue

    @property
    def free_part(self) -> float:
        return DEFAULT_MARGIN if self.margin is None else self.margin


def faults(wishes: MattingParameters, materials: int) -> Iterator[Fault]:
    """What is wrong across the fields."""
    if wishes.margin is not None and wishes.size is None:
        yield Fault(
            "parameters.margin", "`margin` is a part of a canvas; give its `size` in pixels too."
        )
    if not 1 <= materials <= PICTURES_MAX:
        yield Fault(
            "materials", f"Matting takes 1 to {PICTURES_MAX} pictures; {materials} were given."
        )
