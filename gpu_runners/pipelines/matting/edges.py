"""From a coarse mask to the alpha of single hairs.

Trimap: what is surely the subject, surely not, and the band between. In the band the closed form
is solved on a small copy (its cost grows much faster than its use), brought to full size by the
local linear model of colours that it rests on (fast guided filter), and sharpened by where each
pixel lies between the colours of the subject and of the ground around it, as far as these differ.

Sources: Levin et al., A Closed-Form Solution to Natural Image Matting (2008); He and Sun, Fast
Guided Filter (2015).
"""

from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from gpu_runners.pipelines.matting.closed_form import WINDOW, solved
from gpu_runners.pipelines.matting.fringes import nearby
from gpu_runners.pipelines.matting.pixels import Soft

SOLVED_SIDE = 256
"""The longer side of the copy on which the closed form is solved."""

_SURE_SUBJECT = 0.9
_SURE_GROUND = 0.1
_LIKELY_SUBJECT = 0.5
_INNER_MASK_PIXELS = 5
_OUTER_MASK_PIXELS = 10
"""How far the band reaches into the subject and out of it: the network sees nothing finer."""
_REGULARITY = 1e-5
_GUIDE_RADIUS = 2
_GUIDE_SMOOTHNESS = 1e-5
_LEVEL_SMOOTHNESS = 1e-4
_TRUST = 0.07
"""Squared distance of the two colours at which the pixel's own colour weighs half."""
_DOUBT = 32.0
"""Where the model leaves less than a 32nd open, a button as dark as the ground stays a button."""


class _Band(NamedTuple):
    subject: npt.NDArray[np.bool_]
    ground: npt.NDArray[np.bool_]

    @property
    def is_closed(self) -> bool:
        """Whether there is anything to find out, and something to find it out from."""
        known = self.subject | self.ground
        return not bool(known.all()) and bool(self.subject.any()) and bool(self.ground.any())


def refine(colours: Soft, mask: Soft) -> Soft | None:
    """Alpha of a picture at full size; None where the mask leaves nothing to go by.

    colours: height x width x 3; mask: any size, of the same view.
    """
    height, width = colours.shape[:2]
    scale = min(1.0, SOLVED_SIDE / max(height, width))
    # The thin side of a strip is shrunk less: the model looks at squares of pixels.
    wide, high = (min(side, max(WINDOW, round(side * scale))) for side in (width, height))
    if min(wide, high) < WINDOW:
        return None
    size = wide, high
    shrunk = cv2.resize(colours, size, interpolation=cv2.INTER_AREA)
    small = np.clip(shrunk, 0, 1).astype(np.float32)
    band = _band(cv2.resize(mask, size), max(size) / max(mask.shape))
    if not band.is_closed:
        return None
    alpha = solved(small, band.subject, band.ground, _REGULARITY)
    if alpha is None:
        return None
    full = _guided(small, alpha, colours, _GUIDE_SMOOTHNESS)
    full = _sharpened(small, alpha, colours, full)
    full = _guided(colours, full, colours, _LEVEL_SMOOTHNESS)
    whole = (width, height)
    subject = cv2.resize(band.subject.astype(np.uint8), whole, interpolation=cv2.INTER_NEAREST)
    ground = cv2.resize(band.ground.astype(np.uint8), whole, interpolation=cv2.INTER_NEAREST)
    full[subject > 0] = 1.0
    full[ground > 0] = 0.0
    return full


def _band(mask: Soft, scale: float) -> _Band:
    inner, outer = (max(1, round(n * scale)) for n in (_INNER_MASK_PIXELS, _OUTER_MASK_PIXELS))
    subject = cv2.erode((mask > _SURE_SUBJECT).astype(np.uint8), _disc(inner)) > 0
    ground = cv2.dilate((mask > _SURE_GROUND).astype(np.uint8), _disc(outer)) == 0
    # An eye or a logo amid the subject, of which the network is not so sure, is no hole.
    deep = cv2.dilate((mask < _SURE_GROUND).astype(np.uint8), _disc(inner + outer)) == 0
    return _Band(subject | (deep & (mask > _LIKELY_SUBJECT)), ground)


def _disc(radius: int) -> npt.NDArray[np.uint8]:
    side = 2 * radius + 1
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side)), np.uint8)


def _blur(plane: Soft, side: int = 2 * _GUIDE_RADIUS + 1) -> Soft:
    return np.asarray(cv2.blur(plane, (side, side)), np.float32)


def _guided(guide: Soft, alpha: Soft, colours: Soft, smoothness: float) -> Soft:
    """Alpha as a local linear function of `guide`, told for `colours`: of any other size."""
    mean, mean_alpha = _blur(guide), _blur(alpha)
    together = _blur(guide * alpha[..., None]) - mean * mean_alpha[..., None]
    red, green, blue = cv2.split(guide)
    m_red, m_green, m_blue = cv2.split(mean)
    rr = _blur(red * red) - m_red * m_red + smoothness
    rg = _blur(red * green) - m_red * m_green
    rb = _blur(red * blue) - m_red * m_blue
    gg = _blur(green * green) - m_green * m_green + smoothness
    gb = _blur(green * blue) - m_green * m_blue
    bb = _blur(blue * blue) - m_blue * m_blue + smoothness
    i_rr, i_rg, i_rb = gg * bb - gb * gb, gb * rb - rg * bb, rg * gb - gg * rb
    i_gg, i_gb, i_bb = rr * bb - rb * rb, rb * rg - rr * gb, rr * gg - rg * rg
    determinant = i_rr * rr + i_rg * rg + i_rb * rb
    c_red, c_green, c_blue = cv2.split(together)
    slope = cv2.merge(
        (
            (i_rr * c_red + i_rg * c_green + i_rb * c_blue) / determinant,
            (i_rg * c_red + i_gg * c_green + i_gb * c_blue) / determinant,
            (i_rb * c_red + i_gb * c_green + i_bb * c_blue) / determinant,
        )
    )
    offset = _blur(np.asarray(mean_alpha - _summed(slope * mean), np.float32))
    slope = _blur(np.asarray(slope, np.float32))
    height, width = colours.shape[:2]
    if slope.shape[:2] != (height, width):
        slope = np.asarray(cv2.resize(slope, (width, height)), np.float32)
        offset = np.asarray(cv2.resize(offset, (width, height)), np.float32)
    return np.asarray(np.clip(_summed(slope * colours) + offset, 0, 1), np.float32)


def _sharpened(small: Soft, alpha: Soft, colours: Soft, full: Soft) -> Soft:
    """Let each pixel's own colour say how much of it is the subject, where it can."""
    height, width = colours.shape[:2]
    subject = cv2.resize(nearby(small, (alpha > _SURE_SUBJECT).astype(np.float32)), (width, height))
    ground = cv2.resize(nearby(small, (alpha < _SURE_GROUND).astype(np.float32)), (width, height))
    apart = np.asarray(subject - ground, np.float32)
    distance = _summed(apart * apart)
    own = np.clip(_summed((colours - ground) * apart) / (distance + 1e-4), 0, 1)
    open_here = np.asarray(cv2.resize(_blur(alpha, 3), (width, height)), np.float32)
    doubt = np.clip(_DOUBT * open_here * (1 - open_here), 0, 1)
    trust = doubt * distance / (distance + _TRUST)
    return np.asarray(trust * own + (1 - trust) * full, np.float32)


def _summed(three: Soft) -> Soft:
    return np.asarray(cv2.transform(three, np.ones((1, 3), np.float32)), np.float32)
