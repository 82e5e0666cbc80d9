"""Lettering in the frames of a source: title cards, credits, logos with words beside them.

A few looks a second, at small pictures. A card is told by what all scripts have in common: strokes
of about one width that stand out from their ground, many of them side by side, and nothing but
plain ground around them. Shop signs and number plates are none: a camera's picture is not plain.
"""

from typing import Final, NamedTuple

import cv2
import msgspec
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from gpu_runners.pipelines.looks import SmallPictures

_LONG_SIDE: Final = 480
_GROUND_STEP: Final = 8
"""The ground is seen in a picture smaller by this, out of which a median takes what is thin."""
_GROUND_KERNEL: Final = 7
_INK_MIN: Final = 44
"""Strokes differ from their ground by so much, of 255, in one colour at least."""
_FAINT_MIN: Final = 18
"""What differs by less is noise, or can't be seen."""
_EDGE_MIN: Final = 16
"""From a point to its neighbours, of 255: what is less is smooth, as a painted ground is. Grain and
the noise of codecs are taken out before."""
_GRAIN_KERNEL: Final = 3
_EDGES_MAX: Final = 0.4
"""Part of the picture; with more of it being edges nobody looks for letters."""
_PLAIN_MIN: Final = 0.91
"""Part of the picture away from the letters that has no edges. A camera's picture with what might
be letters in it reaches 0.8; 0.9 where it fades out."""
_AWAY: Final = 4
"""Points from a stroke at which its ground must be plain: its soft edge and the codec's ringing."""
_PIECES_MAX: Final = 1500
_PIECE_POINTS_MIN: Final = 4
_HEIGHT: Final = (0.018, 0.4)
"""Of a line of letters, in parts of the picture's shorter side."""
_GAP_MAX: Final = 1.8
"""Between letters of a line, in heights of it: titles are often spaced."""
_OVERLAP_MIN: Final = 0.5
_STROKES_MIN: Final = 5
"""Side by side in a line."""
_STANDING_STROKES_MIN: Final = 8
"""In a line that goes downwards: there are few, and more in nature that looks alike."""
_HDR_GAIN: Final = 1.8
"""A bright film, read as an ordinary one, is dull: its white lies so much lower."""
_STROKES_A_HEIGHT: Final = (0.35, 4.0)
"""How many of them in a width of one height."""
_DENSITY: Final = (0.1, 0.75)
"""Part of a line's box that is ink."""
_STROKE_WIDTH: Final = (0.03, 0.4)
"""In heights of the line."""
_RIM: Final = 0.06
_RIM_EDGES_MAX: Final = 0.03

Points = NDArray[np.uint8]
Marks = NDArray[np.bool_]


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the picture as it is shown: 0 to 1 from the left and from the top."""

    left: float
    top: float
    right: float
    bottom: float

    def along(self, *, across: bool) -> tuple[float, float]:
        """From where to where it goes."""
        return (self.left, self.right) if across else (self.top, self.bottom)


class CardLook(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen at one instant."""

    at: float
    """Seconds from the start of the source."""
    plain: bool = False
    """Whether all that is not lettering is plain ground."""
    lines: tuple[Box, ...] = ()
    """Of lettering."""
    ink: Box | None = None
    """All that stands out from the ground, however faint: letters, and what is beside them."""
    level_rim: bool = False
    """Whether the upper and the lower rim are plain ground."""
    upright_rim: bool = False
    """The same of the left and the right one."""


class _Line(NamedTuple):
    """A row of pieces, in points of the small picture."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def part(self) -> tuple[slice, slice]:
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def turned(self) -> "_Line":
        """Rows for columns."""
        return _Line(self.top, self.left, self.bottom, self.right)


class CardFinder:
    """Looks at some of the frames that are decoded; keeps what it saw in `looks`."""

    def __init__(self, shown_width: float, shown_height: float, *, hdr: bool = False) -> None:
        """The size of the picture before it is turned, with square pixels."""
        self._hdr = hdr
        long_side = min(_LONG_SIDE, max(shown_width, shown_height))
        self._pictures = SmallPictures(shown_width, shown_height, long_side)
        self.looks: list[CardLook] = []

    def see(self, frame: VideoFrame, at_seconds: float, rotation: int) -> None:
        """Look at a frame, if it is time to."""
        picture = self._pictures.take(frame, at_seconds, rotation)
        if picture is None:
            return
        if self._hdr:
            picture = np.asarray(cv2.convertScaleAbs(picture, alpha=_HDR_GAIN), dtype=np.uint8)
        self.looks.append(look_at(picture, at_seconds))


def look_at(picture: Points, at_seconds: float) -> CardLook:
    """Look at one small picture, height x width x 3."""
    edges = _edges(picture)
    if float(edges.mean()) > _EDGES_MAX:
        return CardLook(at=at_seconds)
    height, width = edges.shape
    apart = _apart_from_ground(picture)
    ink = (apart > _INK_MIN).astype(np.uint8)
    lines = [line for line in _lines(ink) if _is_lettering(line, ink, _STROKES_MIN)]
    standing = np.ascontiguousarray(ink.T)  # some scripts go downwards, some clips lie on a side
    lines += [
        line.turned()
        for line in _lines(standing)
        if _is_lettering(line, standing, _STANDING_STROKES_MIN)
    ]
    near = np.zeros(edges.shape, dtype=np.uint8)
    for line in lines:
        near[line.part] = ink[line.part]
    reach = np.ones((2 * _AWAY + 1, 2 * _AWAY + 1), dtype=np.uint8)
    away = cv2.dilate(near, reach) == 0
    rim = max(2, round(_RIM * height)), max(2, round(_RIM * width))
    return CardLook(
        at=at_seconds,
        plain=bool(away.any()) and float(edges[away].mean()) <= 1 - _PLAIN_MIN,
        lines=tuple(_box(line, width, height) for line in lines),
        ink=_extent(apart > _FAINT_MIN),
        level_rim=_is_plain(edges[: rim[0]]) and _is_plain(edges[-rim[0] :]),
        upright_rim=_is_plain(edges[:, : rim[1]]) and _is_plain(edges[:, -rim[1] :]),
    )


def _edges(picture: Points) -> Marks:
    clean = cv2.medianBlur(picture, _GRAIN_KERNEL)
    steps = cv2.morphologyEx(clean, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8))
    marks: Marks = _largest(np.asarray(steps, dtype=np.uint8)) > _EDGE_MIN
    return marks


def _largest(picture: Points) -> Points:
    """Of the three colours of each point."""
    blue, green, red = cv2.split(picture)
    return np.asarray(cv2.max(cv2.max(blue, green), red), dtype=np.uint8)


def _apart_from_ground(picture: Points) -> Points:
    """How much each point differs from the ground behind it, in one colour at least."""
    height, width = picture.shape[:2]
    size = max(1, width // _GROUND_STEP), max(1, height // _GROUND_STEP)
    small = cv2.medianBlur(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), _GROUND_KERNEL)
    ground = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    return _largest(np.asarray(cv2.absdiff(picture, ground), dtype=np.uint8))


def _lines(ink: Points) -> list[_Line]:
    """Pieces of ink side by side, as rows; none where there are too many to be letters."""
    count, _, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    if count > _PIECES_MAX:
        return []
    tallest = _HEIGHT[1] * min(ink.shape)
    pieces = sorted(
        _Line(int(x), int(y), int(x + w), int(y + h))
        for x, y, w, h, points in np.asarray(stats)[1:]
        if h <= tallest and points >= _PIECE_POINTS_MIN
    )
    rows: list[_Line] = []
    for piece in pieces:
        fits = [i for i, row in enumerate(rows) if _goes_on(row, piece)]
        if not fits:
            rows.append(piece)
            continue
        nearest = max(fits, key=lambda i: rows[i].right)
        row = rows[nearest]
        rows[nearest] = _Line(
            row.left,
            min(row.top, piece.top),
            max(row.right, piece.right),
            max(row.bottom, piece.bottom),
        )
    return rows


def _goes_on(row: _Line, piece: _Line) -> bool:
    """Whether a piece is the next of a row."""
    heights = row.bottom - row.top, piece.bottom - piece.top
    overlap = min(row.bottom, piece.bottom) - max(row.top, piece.top)
    return overlap >= _OVERLAP_MIN * min(heights) and piece.left - row.right <= _GAP_MAX * max(
        heights
    )


def _is_lettering(line: _Line, ink: Points, strokes_min: int) -> bool:
    high, wide = ink.shape
    height, width = line.bottom - line.top, line.right - line.left
    touches = line.left <= 1 or line.top <= 1 or line.right >= wide - 1 or line.bottom >= high - 1
    if touches or not _HEIGHT[0] * min(high, wide) <= height <= _HEIGHT[1] * min(high, wide):
        return False
    box = ink[line.part]
    rows = box[height // 5 : max(height // 5 + 1, height * 4 // 5)].astype(np.int8)
    strokes = float(np.median((np.diff(rows, axis=1, prepend=0) == 1).sum(axis=1)))
    points = float(box.sum())
    padded = cv2.copyMakeBorder(box, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    rim = points - float(np.asarray(cv2.erode(padded, np.ones((3, 3), np.uint8))).sum())
    return (
        strokes >= strokes_min
        and _within(points / box.size, _DENSITY)
        and _within(strokes * height / width, _STROKES_A_HEIGHT)
        and _within(2 * points / max(1.0, rim) / height, _STROKE_WIDTH)
    )


def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= value <= bounds[1]


def _is_plain(edges: Marks) -> bool:
    return float(edges.mean()) <= _RIM_EDGES_MAX


def _extent(marks: Marks) -> Box | None:
    """The box around all that is more than a grain."""
    high, wide = marks.shape
    stats = np.asarray(cv2.connectedComponentsWithStats(marks.astype(np.uint8), connectivity=8)[2])
    x, y, w, h, points = stats[1:].T
    seen = points >= _PIECE_POINTS_MIN
    if not seen.any():
        return None
    x, y, w, h = x[seen], y[seen], w[seen], h[seen]
    around = _Line(int(x.min()), int(y.min()), int((x + w).max()), int((y + h).max()))
    return _box(around, wide, high)


def _box(line: _Line, width: int, height: int) -> Box:
    return Box(
        left=round(line.left / width, 4),
        top=round(line.top / height, 4),
        right=round(line.right / width, 4),
        bottom=round(line.bottom / height, 4),
    )
