"""What a caller may ask of the scene `matting`, and where its limits lie."""

from enum import StrEnum
from typing import Annotated

import msgspec

from gpu_runners.pipelines.pipeline import InputError, InputReason, Work, parameters_of

PICTURES_MAX = 500
"""Materials of one task."""

DEFAULT_MARGIN = 0.06
DEFAULT_JPEG_BACKGROUND = "#ffffff"


class Format(StrEnum):
    """What still pictures become. Animations become WebP, films WebM, whatever is asked here."""

    PNG = "png"
    WEBP = "webp"
    JPEG = "jpeg"


class MattingParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Format = Format.PNG
    quality: Annotated[int, msgspec.Meta(ge=1, le=100)] = 88
    """Of WebP and JPEG; PNG loses nothing."""
    refine: bool = True
    """Find the edge in the picture's own pixels; without it the network's soft mask is taken."""
    size: Annotated[int, msgspec.Meta(ge=16, le=4096)] | None = None
    """Side of a square canvas with the subject in its middle; None: the picture's own canvas."""
    margin: Annotated[float, msgspec.Meta(ge=0, le=0.45)] | None = None
    """Part of the canvas's side that stays free on each side of the subject; needs `size`."""
    background: Annotated[str, msgspec.Meta(pattern="^#[0-9a-fA-F]{6}$")] | None = None
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


def wishes_of(work: Work) -> MattingParameters:
    """What is wanted. Errors: InputError."""
    parameters = parameters_of(work, MattingParameters)
    if parameters.margin is not None and parameters.size is None:
        raise InputError(
            InputReason.PARAMETERS,
            "The parameters are wrong: `margin` is a part of a canvas; give its `size` too.",
        )
    if not 1 <= len(work.inputs) <= PICTURES_MAX:
        raise InputError(
            InputReason.INPUTS,
            f"Matting takes 1 to {PICTURES_MAX} pictures; {len(work.inputs)} were given.",
        )
    return parameters
