"""The camera: zoom, pan, push on the beat, shake and tilt as one warp of each frame.

The warp is ffmpeg's `perspective` with corners that change with the frame number: it samples
between pixels, so that a slow move is smooth (a crop moves in whole pixels, and trembles).
All that is written into the expressions are numbers.
"""

import math

import msgspec

from gpu_runners.pipelines.smart.focus import Focus, Window
from schema.scenes.smart import Move

_SHAKE = 0.012
_PUNCH = 0.075
_TOWARDS = 0.7
"""How far a zoom goes towards the focus."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the camera sees: its zoom, and its middle as a part of the picture."""

    zoom: float
    x: float = 0.5
    y: float = 0.5


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """Where the beats fall in a stream, in its frames."""

    frames: float
    offset: float
    """Of the first beat, from the stream's first frame."""


def views_of(move: Move, amount: float, focus: Focus) -> tuple[View, View]:
    """Where a move begins and ends; heads stay in the picture if there is room for them."""
    start, end = _plain_views(move, amount, focus)
    return _with_heads(start, focus), _with_heads(end, focus)


def _plain_views(move: Move, amount: float, focus: Focus) -> tuple[View, View]:
    wide = View(zoom=1.0)
    near = _inside(
        View(
            zoom=1 + amount,
            x=0.5 + (focus.x - 0.5) * _TOWARDS,
            y=0.5 + (focus.y - 0.5) * _TOWARDS,
        )
    )
    zoom = 1 + amount
    side = 0.5 / zoom
    match move:
        case Move.IN:
            return wide, near
        case Move.OUT:
            return near, wide
        case Move.RIGHT:
            return View(zoom=zoom, x=side, y=near.y), View(zoom=zoom, x=1 - side, y=near.y)
        case Move.LEFT:
            return View(zoom=zoom, x=1 - side, y=near.y), View(zoom=zoom, x=side, y=near.y)
        case Move.DOWN:
            return View(zoom=zoom, x=near.x, y=side), View(zoom=zoom, x=near.x, y=1 - side)
        case Move.UP:
            return View(zoom=zoom, x=near.x, y=1 - side), View(zoom=zoom, x=near.x, y=side)
        case Move.NONE | Move.AUTO:
            return wide, wide


def warp(
    views: tuple[View, View],
    frames: int,
    *,
    tilt: float = 0.0,
    aspect: float = 1.0,
    punch: float = 0.0,
    shake: float = 0.0,
    beat: Beat,
) -> str:
    """The filter for a stream of so many frames; empty where nothing moves."""
    start, end = views
    if start == end and start.zoom == 1 and not (tilt or punch or shake):
        return ""
    turn = math.radians(-tilt)
    cos, sin = math.cos(turn), math.sin(turn)
    # A tilted view needs to lie within the picture, and a shaken one needs room.
    room = max(abs(cos) + abs(sin) * aspect, abs(cos) + abs(sin) / aspect) if tilt else 1.0
    room *= 1 + 2.5 * _SHAKE * shake
    part = f"clip((on-1)/{max(1, frames - 1)},0,1)"
    since = f"mod(on-1+{beat.frames * 64 - beat.offset:.4f},{beat.frames:.4f})/{beat.frames:.4f}"
    zoom = f"{room:.5f}*({start.zoom:.5f}+{end.zoom - start.zoom:.5f}*{part})"
    if punch:
        zoom += f"*(1+{_PUNCH * punch:.5f}*exp(-4.5*{since}))"
    x = f"{start.x:.5f}+{end.x - start.x:.5f}*{part}"
    y = f"{start.y:.5f}+{end.y - start.y:.5f}*{part}"
    if shake:
        fading = f"{_SHAKE * shake:.5f}*exp(-3*{since})"
        x += f"+{fading}*(sin(on*1.93)+0.6*sin(on*3.11+1))"
        y += f"+{fading}*(sin(on*2.27+2)+0.6*sin(on*3.71))"
    corners: list[str] = []
    for i, (right, down) in enumerate(((-1, -1), (1, -1), (-1, 1), (1, 1))):
        across = f"{right * cos:.6f}*W{-down * sin:+.6f}*H"
        along = f"{right * sin:.6f}*W{down * cos:+.6f}*H"
        corners.append(f"x{i}='W*({x})+({across})/(2*{zoom})'")
        corners.append(f"y{i}='H*({y})+({along})/(2*{zoom})'")
    return f"perspective={':'.join(corners)}:interpolation=linear:sense=source:eval=frame"


def window_of(view: View) -> Window:
    """The part of the picture that is seen."""
    side = 1 / view.zoom
    return Window(left=view.x - side / 2, top=view.y - side / 2, width=side, height=side)


def _with_heads(view: View, focus: Focus) -> View:
    side, heads = 0.5 / view.zoom, focus.heads
    if heads is None or heads.bottom - heads.top > 2 * side:
        return view
    y = min(max(view.y, heads.bottom - side), heads.top + side)
    return _inside(View(zoom=view.zoom, x=view.x, y=y))


def _inside(view: View) -> View:
    """The view moved so far that nothing beyond the picture is seen."""
    side = 0.5 / view.zoom
    return View(
        zoom=view.zoom,
        x=min(max(view.x, side), 1 - side),
        y=min(max(view.y, side), 1 - side),
    )
