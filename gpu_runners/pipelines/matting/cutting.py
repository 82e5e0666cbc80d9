"""Cut the subject out of one picture: mask -> alpha -> colours freed of the ground.

Only the region that the mask tells is worked on, and at most so many pixels of it: the float arrays
of a whole 50-megapixel photo would not fit beside each other. Colours of the ground shine through
hair and glass; they are always taken out, or they would show as a fringe on another ground.
"""

from typing import NamedTuple

import cv2
import numpy as np

from gpu_runners.pipelines.matting.edges import refine
from gpu_runners.pipelines.matting.fringes import freed
from gpu_runners.pipelines.matting.pixels import OPAQUE, Colours, CutOut, Picture, Plane, Soft
from gpu_runners.pipelines.pipeline import InputError, InputReason

WORK_SIDE_MAX = 2048
LOWER_WORK_SIDE_MAX = 1024
"""When there is little memory or time."""

_SUBJECT_MIN = 0.5
"""A picture in which nothing reaches this has no subject."""
_SUBJECT_PART_MIN = 0.0005
_REGION_FROM = 0.05
_REGION_SLACK = 1 / 24
_FAINT = 4
"""Alpha under this is dust of the arithmetic; so is what lacks less to be opaque."""
_LEVELS = np.array(
    [0 if a < _FAINT else OPAQUE if a > OPAQUE - _FAINT else a for a in range(OPAQUE + 1)], np.uint8
)


class _Region(NamedTuple):
    """A rectangle in parts of the picture."""

    left: float
    top: float
    right: float
    bottom: float

    def within(self, height: int, width: int) -> tuple[slice, slice]:
        return (
            slice(int(self.top * height), max(1, round(self.bottom * height))),
            slice(int(self.left * width), max(1, round(self.right * width))),
        )


def cut(picture: Picture, mask: Soft, *, refined: bool, side_max: int) -> CutOut:
    """The subject of a picture, on the picture's own canvas. Errors: InputError.

    mask: square, of the whole picture, 0 to 1.
    """
    region = _region(mask)
    view = region.within(picture.height, picture.width)
    part = picture.colours[view]
    height, width = part.shape[:2]
    scale = min(1.0, side_max / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    work = part
    if scale < 1:
        work = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)
    masked = mask[region.within(*mask.shape)]
    alpha = refine(np.asarray(work, np.float32) / OPAQUE, masked) if refined else None
    was_refined = alpha is not None
    if alpha is None:
        soft = cv2.resize(masked, size, interpolation=cv2.INTER_CUBIC)
        alpha = np.clip(np.asarray(soft, np.float32), 0, 1)
    if picture.alpha is not None:
        own = cv2.resize(picture.alpha[view], size, interpolation=cv2.INTER_AREA)
        alpha = np.asarray(alpha * (np.asarray(own, np.float32) / OPAQUE), np.float32)
    levels = _LEVELS[np.rint(alpha * OPAQUE).astype(np.uint8)]
    colours = freed(work, levels)
    if scale < 1:
        colours, levels = _enlarged(part, colours, levels)
        colours[levels == 0] = 0
    canvas = np.zeros_like(picture.colours)
    canvas_alpha = np.zeros(picture.colours.shape[:2], np.uint8)
    canvas[view], canvas_alpha[view] = colours, levels
    if not canvas_alpha.any():
        raise no_subject()
    return CutOut(canvas, canvas_alpha, was_refined)


def _region(mask: Soft) -> _Region:
    """Where to work: all that the mask hints at, and a rim of ground around it."""
    if float((mask > _SUBJECT_MIN).mean()) < _SUBJECT_PART_MIN:
        raise no_subject()
    rows = np.flatnonzero((mask > _REGION_FROM).any(axis=1))
    columns = np.flatnonzero((mask > _REGION_FROM).any(axis=0))
    height, width = mask.shape
    return _Region(
        left=max(0.0, columns[0] / width - _REGION_SLACK),
        top=max(0.0, rows[0] / height - _REGION_SLACK),
        right=min(1.0, (columns[-1] + 1) / width + _REGION_SLACK),
        bottom=min(1.0, (rows[-1] + 1) / height + _REGION_SLACK),
    )


def _enlarged(part: Colours, colours: Colours, levels: Plane) -> tuple[Colours, Plane]:
    """To the part's own size; where it is opaque, its own pixels are the sharper ones."""
    size = part.shape[1], part.shape[0]
    alpha = np.asarray(cv2.resize(levels, size, interpolation=cv2.INTER_CUBIC), np.uint8)
    alpha = _LEVELS[alpha]
    large = np.asarray(cv2.resize(colours, size, interpolation=cv2.INTER_CUBIC), np.uint8)
    opaque = alpha == OPAQUE
    large[opaque] = part[opaque]
    return large, alpha


def no_subject() -> InputError:
    """The refusal of a picture in which the network sees nothing."""
    return InputError(
        InputReason.NO_SUBJECT,
        "Nothing stands out of the picture. Take one with a subject in front of a plainer ground.",
    )
