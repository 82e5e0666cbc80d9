"""Colours freed of the ground that shines through the edge of a subject.

Where a pixel is a mixture, the subject's colour and the ground's are looked for in the pixels
nearby that are surely the one or the other, on a small copy; what the two don't explain of the
mixture belongs to the subject, by its share. Opaque pixels keep their own colour.

Source: Forte, Approximate Fast Foreground Colour Estimation (2021); the weights are steeper here,
so that pixels which are mixtures themselves count for next to nothing.
"""

import cv2
import numpy as np
import numpy.typing as npt

from gpu_runners.pipelines.matting.pixels import OPAQUE, Colours, Plane, Soft

_LOOKED_UP_SIDE = 256
"""The longer side of the copy in which colours are looked for."""
_STEEPNESS = 8
_MIXTURES = 1e-6
_REACHES = ((9, 1.0), (25, 5e-2), (65, 2e-3), (201, 1e-4))
"""Windows in which a colour is looked for, and their weights: the nearest that has some wins."""


def freed(colours: Colours, alpha: Plane) -> Colours:
    """The subject's own colours; 0 where `alpha` is 0."""
    height, width = alpha.shape
    scale = min(1.0, _LOOKED_UP_SIDE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = np.asarray(cv2.resize(colours, size, interpolation=cv2.INTER_AREA), np.float32)
    share = np.asarray(cv2.resize(alpha, size, interpolation=cv2.INTER_AREA), np.float32) / OPAQUE
    subject = _enlarged(nearby(small, _weight(share)), (width, height))
    ground = _enlarged(nearby(small, _weight(1 - share)), (width, height))
    made = np.asarray(cv2.copyTo(colours, alpha), np.uint8)
    mixed = np.flatnonzero((alpha > 0) & (alpha < OPAQUE))
    seen, own, behind = (_taken(plane, mixed) for plane in (colours, subject, ground))
    part = (alpha.reshape(-1).take(mixed).astype(np.float32) / OPAQUE)[:, None]
    own += part * (seen - part * own - (1 - part) * behind)
    made.reshape(-1, 3)[mixed] = np.clip(np.rint(own), 0, OPAQUE)
    return made


def nearby(small: Soft, weight: Soft) -> Soft:
    """The colour of the pixels with weight that are nearest to each pixel."""
    colour: Soft = np.zeros_like(small)
    total: Soft = np.zeros_like(weight)
    weighed = small * weight[..., None]
    for side, share in _REACHES:
        colour = colour + share * cv2.blur(weighed, (side, side))
        total = total + share * cv2.blur(weight, (side, side))
    return np.asarray(colour / (total[..., None] + 1e-9), np.float32)


def _taken(plane: Colours, places: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    return plane.reshape(-1, 3).take(places, axis=0).astype(np.float32)


def _weight(share: Soft) -> Soft:
    """The steep one; where there are only mixtures, as in smoke, these have to do."""
    return np.asarray(share**_STEEPNESS + _MIXTURES * share, np.float32)


def _enlarged(small: Soft, size: tuple[int, int]) -> Colours:
    levels = np.clip(np.rint(small), 0, OPAQUE).astype(np.uint8)
    return np.asarray(cv2.resize(levels, size), np.uint8)
