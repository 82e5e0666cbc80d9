"""What a caller may ask of AutoCut."""

from enum import StrEnum
from typing import Annotated

import msgspec

from gpu_runners.pipelines.autocut.framing import Aspect

TITLE_CHARACTERS_MAX = 120


class Size(StrEnum):
    """Lines of the film's shorter side: the first to look at, the second to publish."""

    PREVIEW = "720p"
    FULL = "1080p"


class AutocutParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
