"""What a caller may ask of AutoCut."""

from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction
from typing import Annotated

import msgspec

from schema.scenes.judging import Fault, Size, Strict

TITLE_CHARACTERS_MAX = 120
INPUTS_MAX = 2


class Aspect(StrEnum):
    SOURCE = "source"
    WIDE = "16:9"
    SQUARE = "1:1"
    TALL = "9:16"

    @property
    def ratio(self) -> Fraction | None:
        """Width by height; None: that of the source."""
        if self is Aspect.SOURCE:
            return None
        width, height = self.value.split(":")
        return Fraction(int(width), int(height))


class AutocutParameters(Strict, frozen=True, kw_only=True):
    target_seconds: Annotated[float, msgspec.Meta(ge=1, le=600)] = 15.0
    min_shot_seconds: Annotated[float, msgspec.Meta(ge=0.2, le=30)] = 1.0
    silence_db: Annotated[float, msgspec.Meta(ge=-90, le=-10)] = -40.0
    """Sound is silent under this peak, in dBFS."""
    silence_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=30)] = 0.5
    """Shorter pauses stay: they belong to speech and music."""
    margin_seconds: Annotated[float, msgspec.Meta(ge=0, le=2)] = 0.1
    """Room that is left before and after speech."""
    aspect: Aspect = Aspect.SOURCE
    """Shape of the film; where it is not that of the clip, the window follows the subject."""
    size: Size = Size.PREVIEW
    title: Annotated[str, msgspec.Meta(max_length=TITLE_CHARACTERS_MAX)] = ""
    """Stands on the first seconds of the film; empty: none."""
    beats: bool = True
    """Cut to the beats of the music, if there is any with a beat."""


def faults(materials: int) -> Iterator[Fault]:
    """What is wrong with the number of materials."""
    if not 1 <= materials <= INPUTS_MAX:
        yield Fault(
            "materials",
            "AutoCut takes one video and, beside it, one piece of music; "
            f"{materials} files were given.",
        )
