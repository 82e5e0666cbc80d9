"""Pictures from files, as the parts of matting take them.

What a picture's alpha hides is painted white, so that hidden colours neither show nor mislead.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFile

from gpu_runners.pipelines.colours import eight_bit, in_srgb, profile_of
from gpu_runners.pipelines.matting.pixels import OPAQUE, Picture
from gpu_runners.pipelines.pictures import (
    decode_about,
    frames_of,
    kind_of_picture,
    opened,
    refuse_pixels,
    told_as_damage,
    upright,
)
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe_limits import ProbeLimits

_SIDE_MIN = 8
_KEPT_PIXELS_MAX = 51_000_000
"""Larger ones are made smaller while they are read: several of this size fit into memory."""
_DEFAULT_FRAME_MS = 100
"""What browsers make of a frame that claims to last no time."""
_FRAME_MS_MIN = 20


class Still(NamedTuple):
    """An open picture file of which only the header has been read."""

    image: ImageFile.ImageFile
    frames: int
    profile: bytes | None
    """Of its colours."""

    @property
    def moves(self) -> bool:
        return self.frames > 1


def open_still(path: Path, limits: ProbeLimits) -> Still | None:
    """Judge a file by its header; None, if it is no picture. Errors: InputError."""
    size = path.stat().st_size
    if size == 0:
        raise InputError(InputReason.EMPTY, "The file is empty (0 bytes).")
    if size > limits.bytes_max:
        raise InputError(
            InputReason.TOO_LARGE, f"The file is larger than {limits.bytes_max} bytes."
        )
    kind = kind_of_picture(path)
    if kind is None:
        return None
    image = opened(path, kind)
    try:
        frames = _judge(image, limits)
    except InputError:
        image.close()
        raise
    return Still(image, frames, profile_of(image, path))


def _judge(image: Image.Image, limits: ProbeLimits) -> int:
    """How many pictures move in it. Errors: InputError."""
    width, height = image.size
    if min(width, height) < _SIDE_MIN:
        raise InputError(
            InputReason.TOO_SMALL,
            f"The picture has {width} x {height} pixels; each side needs at least {_SIDE_MIN}.",
        )
    frames = frames_of(image)
    if frames > 1:
        refuse_pixels(width, height, limits.pixels_max)
    return frames


def read(still: Still) -> Picture:
    """Decode a picture. Errors: InputError."""
    image = still.image
    width, height = image.size
    divisor = _divisor(width * height)
    with told_as_damage():
        if divisor > 1:
            decode_about(image, max(width, height) // divisor)
        image.load()
        divisor = _divisor(image.width * image.height)
        return _normalised(image.reduce(divisor) if divisor > 1 else image, still)


def _divisor(pixels: int) -> int:
    """By which its sides are divided, so that it has no more than are kept."""
    divisor = 1
    while pixels > _KEPT_PIXELS_MAX * divisor * divisor:
        divisor += 1
    return divisor


def read_frames(still: Still) -> Iterator[tuple[Picture, int]]:
    """Each frame of an animation and how many milliseconds it lasts. Errors: InputError."""
    for number in range(still.frames):
        with told_as_damage():
            still.image.seek(number)
            still.image.load()
            lasts = int(still.image.info.get("duration") or 0)
            picture = _normalised(still.image, still)
        yield picture, lasts if lasts >= _FRAME_MS_MIN else _DEFAULT_FRAME_MS


def _normalised(image: Image.Image, still: Still) -> Picture:
    if image.mode == "F":
        raise InputError(
            InputReason.UNSUPPORTED,
            "The picture's brightness is in floating point; save it with 8 or 16 bit.",
        )
    image = eight_bit(upright(image))
    alpha = np.asarray(image.getchannel("A")) if image.mode == "RGBA" else None
    colours = np.array(in_srgb(image, still.profile))
    if alpha is None or bool((alpha == OPAQUE).all()):
        return Picture(colours, None)
    share = alpha[..., None].astype(np.uint16)
    on_white = (colours * share + OPAQUE * (OPAQUE - share) + OPAQUE // 2) // OPAQUE
    return Picture(on_white.astype(np.uint8), alpha.copy())
