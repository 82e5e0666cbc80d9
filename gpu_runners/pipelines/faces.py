"""Faces in the frames of a source: YuNet through OpenCV, a few looks a second, small pictures."""

from pathlib import Path

import cv2
import msgspec
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from gpu_runners.pipelines.looks import SmallPictures

MODEL_FILES = "face_detection_yunet*.onnx"

_LONG_SIDE = 320
_SCORE_MIN = 0.7
_FACES_MAX = 8


class Face(msgspec.Struct, frozen=True, kw_only=True):
    """A face in a picture as it is shown: 0 to 1 from the left and from the top."""

    x: float
    """Of its middle."""
    y: float
    width: float
    height: float
    score: float


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen at one instant, the largest face first."""

    at: float
    """Seconds from the start of the source."""
    faces: tuple[Face, ...]


class FaceFinder:
    """Looks at some of the frames that are decoded; keeps what it saw in `looks`."""

    def __init__(self, model: Path, shown_width: float, shown_height: float) -> None:
        """`shown_*` is the size of the picture before it is turned, with square pixels."""
        self._pictures = SmallPictures(shown_width, shown_height, _LONG_SIDE)
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # it warns of each network
        self._detector = cv2.FaceDetectorYN.create(str(model), "", self._pictures.size, _SCORE_MIN)
        self.looks: list[Look] = []

    def see(self, frame: VideoFrame, at_seconds: float, rotation: int) -> None:
        """Look at a frame, if it is time to."""
        picture = self._pictures.take(frame, at_seconds, rotation)
        if picture is None:
            return
        height, width = picture.shape[:2]
        self._detector.setInputSize((width, height))
        rows = np.asarray(self._detector.detect(picture)[1])  # of None where there is no face
        faces = [_face(row, width, height) for row in rows] if rows.ndim else []
        faces.sort(key=lambda face: (-face.width * face.height, face.x))
        self.looks.append(Look(at=at_seconds, faces=tuple(faces[:_FACES_MAX])))


def face_model(directory: Path | None) -> Path | None:
    """The newest model of faces in a folder, if there is one."""
    return max(directory.glob(MODEL_FILES), default=None) if directory else None


def _face(row: NDArray[np.float32], width: int, height: int) -> Face:
    left, top, wide, high = (float(value) for value in row[:4])
    return Face(
        x=round((left + wide / 2) / width, 4),
        y=round((top + high / 2) / height, 4),
        width=round(wide / width, 4),
        height=round(high / height, 4),
        score=round(float(row[14]), 3),
    )
