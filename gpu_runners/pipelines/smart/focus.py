"""What a picture is about: faces where the model is there, else where most of its detail is."""

from pathlib import Path

import cv2
import msgspec
import numpy as np
from av.video.frame import VideoFrame
from PIL import Image

from gpu_runners.pipelines.faces import Face, FaceFinder, face_model

_DETAIL_SIDE = 96
_FACE_UP = 0.06
"""A face stands a little above the middle of what is shown, by the height of the picture."""
_HAIR = 0.85
"""From the middle of a face to the top of the head, by the height of the face."""


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """Where faces are with their hair: parts of a picture's width and height."""

    left: float
    top: float
    right: float
    bottom: float

    def with_(self, other: "Heads") -> "Heads":
        return Heads(
            left=min(self.left, other.left),
            top=min(self.top, other.top),
            right=max(self.right, other.right),
            bottom=max(self.bottom, other.bottom),
        )


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a picture, by its width and height; it may reach beyond it."""

    left: float
    top: float
    width: float
    height: float


class Focus(msgspec.Struct, frozen=True, kw_only=True):
    """A point of a picture, 0 to 1 from the left and from the top."""

    x: float = 0.5
    y: float = 0.5
    faces: int = 0
    heads: Heads | None = None
    """Of all faces together."""

    def seen_in(self, window: Window) -> "Focus":
        """The same in what a window shows."""
        heads = self.heads and heads_in(self.heads, window)
        return Focus(
            x=min(1.0, max(0.0, (self.x - window.left) / window.width)),
            y=min(1.0, max(0.0, (self.y - window.top) / window.height)),
            faces=self.faces,
            heads=heads,
        )


class Crop(msgspec.Struct, frozen=True, kw_only=True):
    left: int
    top: int
    width: int
    height: int


def focus_of(picture: Image.Image, models: Path) -> Focus:
    """Where to look. Deterministic: no model, another answer, but always the same one."""
    plain = picture.convert("RGB")
    plain.thumbnail((640, 640))
    model = face_model(models)
    if model:
        finder = FaceFinder(model, plain.width, plain.height)
        finder.see(VideoFrame.from_ndarray(np.asarray(plain), format="rgb24"), 0.0, 0)
        faces = finder.looks[-1].faces
        if faces:
            return of_faces(faces)
    return _of_detail(picture)


def of_faces(faces: tuple[Face, ...]) -> Focus:
    """The middle of the faces, the larger ones counting more."""
    weights = np.array([face.width * face.height for face in faces])
    weights = weights / weights.sum()
    x = float(sum(w * face.x for w, face in zip(weights, faces, strict=True)))
    y = float(sum(w * face.y for w, face in zip(weights, faces, strict=True)))
    heads = Heads(
        left=min(face.x - face.width / 2 for face in faces),
        top=max(0.0, min(face.y - _HAIR * face.height for face in faces)),
        right=max(face.x + face.width / 2 for face in faces),
        bottom=max(face.y + face.height / 2 for face in faces),
    )
    y = max(0.0, y + _FACE_UP)
    return Focus(x=round(x, 4), y=round(y, 4), faces=len(faces), heads=heads)


def heads_in(heads: Heads, window: Window) -> Heads:
    """The same in what a window shows; it may lie outside."""
    return Heads(
        left=(heads.left - window.left) / window.width,
        top=(heads.top - window.top) / window.height,
        right=(heads.right - window.left) / window.width,
        bottom=(heads.bottom - window.top) / window.height,
    )


def _of_detail(picture: Image.Image) -> Focus:
    """The middle of edges (or of what is opaque), drawn towards the middle of the picture."""
    small = picture.resize((_DETAIL_SIDE, _DETAIL_SIDE), Image.Resampling.BOX)
    if small.mode == "RGBA":
        detail = np.asarray(small.getchannel("A"), dtype=np.float64)
    else:
        colours = cv2.cvtColor(np.asarray(small.convert("RGB")), cv2.COLOR_RGB2LAB)
        lab = np.asarray(colours, dtype=np.float64)
        mean = lab.reshape(-1, 3).mean(axis=0)
        unusual = np.sqrt(((lab - mean) ** 2).sum(axis=2))
        light = lab[:, :, 0]
        edges = np.hypot(cv2.Sobel(light, cv2.CV_64F, 1, 0), cv2.Sobel(light, cv2.CV_64F, 0, 1))
        detail = np.sqrt(edges) * (unusual / (unusual.mean() + 1e-6))
    detail = np.asarray(cv2.GaussianBlur(detail, (0, 0), 5), dtype=np.float64)
    places = (np.arange(_DETAIL_SIDE) + 0.5) / _DETAIL_SIDE
    liking = np.exp(-(((places - 0.5) / 0.42) ** 2))
    detail = (detail * liking[:, None] * liking[None, :]) ** 2
    total = float(detail.sum())
    if total <= 0:
        return Focus()
    x = float((detail.sum(axis=0) * places).sum() / total)
    y = float((detail.sum(axis=1) * places).sum() / total)
    return Focus(x=round(x, 4), y=round(y, 4))


def crop_around(width: float, height: float, aspect: float, focus: Focus) -> Crop:
    """The largest part of a picture with an aspect (width by height) around the focus."""
    wide = min(width, height * aspect)
    high = min(height, width / aspect)
    left = min(max(0.0, focus.x * width - wide / 2), width - wide)
    top = top_of(high / height, focus) * height
    return Crop(left=round(left), top=round(top), width=int(wide), height=int(high))


def top_of(high: float, focus: Focus) -> float:
    """Where a window of this part of a picture's height begins: no head is cut that has room."""
    top = focus.y - high / 2
    heads = focus.heads
    if heads and heads.bottom - heads.top <= high:
        top = min(max(top, heads.bottom - high), heads.top)
    return min(max(0.0, top), 1 - high)
