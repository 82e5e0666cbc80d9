"""Pictures whose cut-out is known: a photo seen through a hairy shape, over grass."""

from pathlib import Path
from typing import NamedTuple

import av
import cv2
import numpy as np
import numpy.typing as npt

from tests.support.clips import samples

PHOTOS = (("world.mp4", 3.0), ("bikes.mp4", 4.0), ("a.mp4", 2.0), ("world.mp4", 20.0))
"""Clip and second of each photo."""

_FINE = 16
"""OpenCV draws with 4 bits below the pixel."""


class Hairy(NamedTuple):
    """A picture and its truth."""

    picture: npt.NDArray[np.uint8]
    alpha: npt.NDArray[np.float32]
    photo: npt.NDArray[np.uint8]
    """The subject's own colours, everywhere."""


def hairy(seed: int, size: int = 1024) -> Hairy:
    """A subject with some 1,500 hairs; another one for each seed, always the same."""
    rng = np.random.default_rng(seed)
    photo = _photo(*PHOTOS[seed % len(PHOTOS)], size)
    alpha = _shape(size, rng)
    ground = _grass(size, rng).astype(np.float32)
    share = alpha[..., None]
    laid = np.rint(share * photo.astype(np.float32) + (1 - share) * ground)
    return Hairy(laid.astype(np.uint8), alpha, photo)


def write(picture: npt.NDArray[np.uint8], path: Path) -> Path:
    """As OpenCV writes the kind that the name says; red, green, blue and maybe alpha come in."""
    turn = cv2.COLOR_RGBA2BGRA if picture.shape[2] == 4 else cv2.COLOR_RGB2BGR
    assert cv2.imwrite(str(path), cv2.cvtColor(picture, turn))
    return path


def _photo(name: str, seconds: float, size: int) -> npt.NDArray[np.uint8]:
    path = next(clip for clip in samples() if clip.name == name)
    with av.open(str(path)) as clip:
        frames = (f for f in clip.decode(video=0) if (f.time or 0.0) >= seconds)
        frame = next(frames).to_ndarray(format="rgb24")
    height, width = frame.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = frame[top : top + side, left : left + side]
    return np.asarray(cv2.resize(middle, (size, size), interpolation=cv2.INTER_CUBIC), np.uint8)


def _grass(size: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    base = cv2.resize(rng.random((16, 16), np.float32), (size, size), interpolation=cv2.INTER_CUBIC)
    ground = np.stack((40 + 20 * base, 75 + 35 * base, 25 + 10 * base), axis=-1).astype(np.uint8)
    ground = np.ascontiguousarray(ground)
    count = size * size // 60
    roots = np.stack((rng.integers(0, size, count), np.sort(rng.integers(-20, size + 60, count))))
    lengths, leans = rng.integers(20, 60, count), rng.normal(0, 12, count)
    for root, length, lean, tint in zip(roots.T, lengths, leans, rng.random(count), strict=True):
        bend = [(0.0, 0.0), (lean * 0.3, -length * 0.5), (lean, -length)]
        points = (root + np.array(bend)) * _FINE
        colour = int(40 + 60 * tint), int(80 + 110 * tint), int(15 + 40 * tint)
        thick = 2 if tint > 0.6 else 1
        line = [np.rint(points).astype(np.int32)]
        cv2.polylines(ground, line, isClosed=False, color=colour, thickness=thick,
                      lineType=cv2.LINE_AA, shift=4)  # fmt: skip
    return np.asarray(cv2.GaussianBlur(ground, (0, 0), 0.8), np.uint8)


def _shape(size: int, rng: np.random.Generator, hairs: int = 1_500) -> npt.NDArray[np.float32]:
    turn = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    waves = ((3, 0.03), (5, 0.02), (9, 0.01))
    radius = 0.27 + sum(much * np.sin(n * turn + rng.random() * 6) for n, much in waves)
    rim = size * (0.5 + np.stack((radius * np.cos(turn), 1.15 * radius * np.sin(turn)), axis=-1))
    alpha = np.zeros((size, size), np.uint8)
    cv2.fillPoly(alpha, [np.rint(rim * _FINE).astype(np.int32)], 255, cv2.LINE_AA, 4)
    for _ in range(hairs):
        root = int(rng.integers(0, len(turn)))
        way, bend = turn[root] + rng.normal(0, 0.35), rng.normal(0, 0.5)
        length = size * 0.044 * (0.4 + 0.6 * rng.random())
        along = np.linspace(-0.2, 1, 7)
        angles = way + bend * along
        points = rim[root] + length * along[:, None] * np.stack((np.cos(angles), np.sin(angles)), 1)
        corner = np.maximum(np.floor(points.min(axis=0)).astype(int) - 3, 0)
        end = np.minimum(np.ceil(points.max(axis=0)).astype(int) + 3, size)
        wide, high = (int(n) for n in np.maximum(end - corner, 1))
        box = np.zeros((high, wide), np.uint8)
        line = [np.rint((points - corner) * _FINE).astype(np.int32)]
        strength = int(120 + 135 * rng.random())
        cv2.polylines(box, line, isClosed=False, color=strength,
                      thickness=2 if rng.random() > 0.7 else 1, lineType=cv2.LINE_AA,
                      shift=4)  # fmt: skip
        left, top = (int(n) for n in corner)
        view = slice(top, top + high), slice(left, left + wide)
        alpha[view] = np.maximum(alpha[view], box)
    return np.asarray(alpha / 255, np.float32)
