"""Small pictures of a source, a few a second, for whoever looks for something in them."""

from typing import Final

import cv2
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

LOOKS_A_SECOND: Final = 4

_SIDE_MIN: Final = 32
_TURNS: Final = {
    90: cv2.ROTATE_90_CLOCKWISE,
    180: cv2.ROTATE_180,
    270: cv2.ROTATE_90_COUNTERCLOCKWISE,
}


class SmallPictures:
    """Takes some of the frames that are decoded, and makes small pictures of them."""

    def __init__(self, shown_width: float, shown_height: float, long_side: float) -> None:
        """`shown_*` is the size of the picture before it is turned, with square pixels."""
        scale = long_side / max(shown_width, shown_height)
        self.size = (
            max(_SIDE_MIN, round(shown_width * scale / 2) * 2),
            max(_SIDE_MIN, round(shown_height * scale / 2) * 2),
        )
        """Width and height before they are turned."""
        self._due = 0.0

    def take(self, frame: VideoFrame, at_seconds: float, rotation: int) -> NDArray[np.uint8] | None:
        """Blue, green, red, as it is shown: height x width x 3. None: it is not time to look."""
        if at_seconds < self._due - 1e-6:
            return None
        self._due = at_seconds + 1 / LOOKS_A_SECOND
        width, height = self.size
        small = frame.reformat(width=width, height=height, format="bgr24", interpolation="AREA")
        picture = np.asarray(small.to_ndarray(), dtype=np.uint8)
        if rotation not in _TURNS:
            return picture
        return np.asarray(cv2.rotate(picture, _TURNS[rotation]), dtype=np.uint8)
