"""What keeps a stylised clip from flickering: each frame takes over from the one before.

Where the clip moves, the last made frame is moved along; where something new appears, or the shot
changes, nothing is taken over.
"""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_TOLERANCE = 24.0
"""Of 255: by so much a place may differ after it was moved, until it counts a third."""

_BEFORE = 0.5
"""Share of the smoothing that goes in before a frame is made; all of it goes in afterwards."""


class Smoothing:
    """Remembers the last frame of the clip and what was made of it."""

    def __init__(self, amount: float) -> None:
        cv2.setNumThreads(1)
        self._amount = amount
        self._flow: Any = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
        self._source: Pixels | None = None
        self._made: Pixels | None = None
        self._moved: NDArray[np.float32] | None = None
        self._weight: NDArray[np.float32] | None = None

    def before(self, source: Pixels) -> Pixels:
        """What to make the next frame from: the clip's own, and a part of what was made."""
        self._moved = self._weight = None
        if self._source is not None and self._made is not None and self._amount > 0:
            self._moved, self._weight = self._follow(source, self._source, self._made)
        self._source = source
        if self._moved is None or self._weight is None:
            return source
        return _mixed(source, self._moved, self._weight * _BEFORE)

    def after(self, made: Pixels) -> Pixels:
        """The frame as it goes into the film."""
        if self._moved is not None and self._weight is not None:
            made = _mixed(made, self._moved, self._weight)
        self._made = made
        return made

    def resume(self, source: Pixels, made: Pixels) -> None:
        """Remember these as the last: of an attempt that was stopped."""
        self._source, self._made = source, made

    def _follow(
        self, source: Pixels, last_source: Pixels, last_made: Pixels
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        flow = self._flow.calc(_grey(source), _grey(last_source), None)
        height, width = source.shape[:2]
        across, down = np.meshgrid(
            np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)
        )
        across, down = across + flow[..., 0], down + flow[..., 1]
        moved = _moved(last_made, across, down)
        apart = np.abs(_moved(last_source, across, down) - source).mean(axis=2, keepdims=True)
        weight = self._amount * np.exp(-np.square(apart / _TOLERANCE))
        return moved, weight.astype(np.float32)


def _moved(picture: Pixels, across: Any, down: Any) -> NDArray[np.float32]:  # noqa: ANN401 - arrays
    moved = cv2.remap(picture, across, down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, dtype=np.float32)


def _mixed(own: Pixels, other: NDArray[np.float32], weight: NDArray[np.float32]) -> Pixels:
    mixed = own + (other - own) * weight
    return np.asarray(np.rint(np.clip(mixed, 0, 255)), dtype=np.uint8)


def _grey(picture: Pixels) -> Pixels:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
