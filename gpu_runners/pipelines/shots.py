"""Where one shot ends and the next begins, from how much each frame differs from the one before."""

import numpy as np

from gpu_runners.pipelines.analysis import Analysis

CHANGE_MIN = 8.0
"""Mean difference of a cut at least, of 255: below it even two dark pictures look alike."""

_RATIO_MIN = 3.0
"""A cut stands out of the frames around it by this factor; motion and shaking do not."""

_NEIGHBOURS = 5
_SHOT_SECONDS_MIN = 0.3
"""Cuts that follow each other faster are one (a flash): the strongest counts."""


def find_cuts(analysis: Analysis) -> tuple[float, ...]:
    """Instants in seconds, rising, at which the first frame of a new shot appears."""
    change = analysis.change
    candidates: list[int] = []
    for index in map(int, np.flatnonzero(change >= CHANGE_MIN)):
        before = change[max(1, index - _NEIGHBOURS) : index]
        after = change[index + 1 : index + 1 + _NEIGHBOURS]
        around = float(np.median(np.concatenate([before, after]))) if len(change) > 2 else 0.0  # noqa: PLR2004
        if change[index] >= _RATIO_MIN * max(around, 1.0):
            candidates.append(index)
    cuts: list[int] = []
    for index in candidates:
        near = cuts and _apart(analysis, cuts[-1], index) < _SHOT_SECONDS_MIN
        if not near:
            cuts.append(index)
        elif change[index] > change[cuts[-1]]:
            cuts[-1] = index
    return tuple(float(analysis.instants[index]) for index in cuts)


def _apart(analysis: Analysis, first: int, second: int) -> float:
    return float(analysis.instants[second] - analysis.instants[first])
