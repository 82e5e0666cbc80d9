"""The closed form of matting: alpha is locally a linear function of colour, solved where unknown.

In plain numpy with a sparse factorisation of scipy's: nothing is compiled at first use, no cache is
written, and the answer is exact (an iterative solver stops within its tolerance of it).

Source: Levin et al., A Closed-Form Solution to Natural Image Matting (2008).
"""

from itertools import product

import numpy as np
import numpy.typing as npt

from gpu_runners.pipelines.matting.pixels import Soft

WINDOW = 3
"""The pixels of each square of this side are joined; a picture needs one at least."""

_AREA = WINDOW * WINDOW
_REACH = WINDOW - 1
"""Pixels of one square are at most so far apart in each direction."""
_PLACES = tuple(product(range(WINDOW), repeat=2))
_STEPS = tuple(product(range(-_REACH, _REACH + 1), repeat=2))
_Plane = npt.NDArray[np.float64]


def solved(
    colours: Soft, subject: npt.NDArray[np.bool_], ground: npt.NDArray[np.bool_], regularity: float
) -> Soft | None:
    """Alpha, 0 to 1, where neither is sure; None where the picture is too flat to tell.

    colours: height x width x 3, 0 to 1, each side at least WINDOW; subject, ground: height x width.
    """
    # Only whoever refines pays for it.
    from scipy.sparse import csc_matrix  # noqa: PLC0415
    from scipy.sparse.linalg import splu  # noqa: PLC0415

    unknown = ~(subject | ground)
    count = int(unknown.sum())
    joined = _joined(colours.astype(np.float64), regularity)
    numbers = np.full(unknown.shape, -1, np.int32)
    numbers[unknown] = np.arange(count, dtype=np.int32)
    numbers = np.pad(numbers, _REACH, constant_values=-1)
    sure = np.pad(subject, _REACH)
    rows, columns = np.nonzero(unknown)
    values = np.empty((count, len(_STEPS)))
    others = np.empty((count, len(_STEPS)), np.int32)
    wanted = np.zeros(count)
    for place, (down, right) in enumerate(_STEPS):
        there = rows + _REACH + down, columns + _REACH + right
        values[:, place] = joined[place][unknown]
        others[:, place] = numbers[there]
        wanted -= np.where(sure[there], values[:, place], 0.0)
    inside = others >= 0
    starts = np.concatenate(([0], np.cumsum(inside.sum(axis=1)))).astype(np.int32)
    # Rows of a symmetric matrix are its columns.
    matrix = csc_matrix((values[inside], others[inside], starts), (count, count))
    try:
        factors = splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # it is singular
        return None
    found = np.asarray(factors.solve(wanted))
    if not bool(np.isfinite(found).all()):
        return None
    alpha = subject.astype(np.float32)
    alpha[unknown] = np.clip(found, 0, 1)
    return alpha


def _joined(colours: _Plane, regularity: float) -> list[_Plane]:
    """The matting Laplacian: of each pixel and the one that is a step away, by _STEPS."""
    height, width = colours.shape[:2]
    high, wide = height - _REACH, width - _REACH
    # By square: the colours of its pixels less their mean.
    seen = np.stack([colours[y : y + high, x : x + wide] for y, x in _PLACES])
    apart = np.ascontiguousarray(np.moveaxis(seen - seen.mean(axis=0), 3, 1))
    inverse = _inverse(apart, regularity)
    made = {step: np.zeros((height, width)) for step in _STEPS}
    for one, (y, x) in enumerate(_PLACES):
        red, green, blue = apart[one]
        turned = [a * red + b * green + c * blue for a, b, c in inverse]
        for other, (y_other, x_other) in enumerate(_PLACES):
            if other < one:
                continue
            value = turned[0] * apart[other, 0]
            value += turned[1] * apart[other, 1]
            value += turned[2] * apart[other, 2]
            value += 1
            value /= -_AREA
            if one == other:
                value += 1
            made[y_other - y, x_other - x][y : y + high, x : x + wide] += value
            if one != other:
                back = slice(y_other, y_other + high), slice(x_other, x_other + wide)
                made[y - y_other, x - x_other][back] += value
    return [made[step] for step in _STEPS]


def _inverse(apart: _Plane, regularity: float) -> tuple[tuple[_Plane, _Plane, _Plane], ...]:
    """Of the covariance of each square's colours."""
    red, green, blue = (apart[:, channel] for channel in range(3))
    rr, gg, bb = (((c * c).sum(axis=0) + regularity) / _AREA for c in (red, green, blue))
    rg, rb, gb = (
        (one * other).sum(axis=0) / _AREA
        for one, other in ((red, green), (red, blue), (green, blue))
    )
    i_rr, i_rg, i_rb = gg * bb - gb * gb, rb * gb - rg * bb, rg * gb - rb * gg
    i_gg, i_gb, i_bb = rr * bb - rb * rb, rg * rb - rr * gb, rr * gg - rg * rg
    determinant = rr * i_rr + rg * i_rg + rb * i_rb
    i_rr, i_rg, i_rb = i_rr / determinant, i_rg / determinant, i_rb / determinant
    i_gg, i_gb, i_bb = i_gg / determinant, i_gb / determinant, i_bb / determinant
    return (i_rr, i_rg, i_rb), (i_rg, i_gg, i_gb), (i_rb, i_gb, i_bb)
