"""How a picture that must not be cut is laid into a film of another shape, as filters of ffmpeg.

Only one side of a picture is ever too long. The part of it that is needed fills the frame that
way; what stays free beside it goes on as the ground that ends there or, where that is not plain,
as a dark blur of the picture itself.
"""

from typing import Final

import msgspec

_EDGE: Final = 4
"""Rows of a picture whose mean goes on beside it: fewer would show the noise of a codec."""
_GROUND_POINTS: Final = 8
"""Along an edge that goes on: a ground may be brighter on one side."""
_BLUR_STEP: Final = 12
_BLUR_SIGMA: Final = 2.4
_BLUR_LIGHT: Final = 0.45
_BLUR_COLOUR: Final = 0.6
_FREE_MIN: Final = 4
"""Rows beside a picture, on both sides, under which it is stretched over them."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a picture: a part of its longer side, and the whole of the other."""

    middle: float
    """Of that part, 0 to 1 of the side."""
    share: float
    """Its length, 0 to 1 of the side."""
    plain: bool
    """Whether the picture ends in plain ground, which goes on; else a blur of it fills the rest."""


class Laid(msgspec.Struct, frozen=True, kw_only=True):
    """A fitted picture in pixels: scaled to `scaled`, cut to `shown`, on a canvas."""

    canvas: tuple[int, int]
    scaled: tuple[int, int]
    shown: tuple[int, int]
    offset: int
    """Where on the longer side the shown part begins."""
    across: bool


def lay_fit(fit: Fit, canvas: tuple[int, int], shape: float, *, across: bool) -> Laid:
    """Lay a picture of this shape, width by height. All sizes are even."""
    width, height = canvas
    if across:
        side, window = max(width, _even(width / fit.share)), width
        other = _filling(_even(width / fit.share / shape), height)
        scaled, shown = (side, other), (width, other)
    else:
        side, window = max(height, _even(height / fit.share)), height
        other = _filling(_even(height / fit.share * shape), width)
        scaled, shown = (other, side), (other, height)
    offset = max(0, min(side - window, round((fit.middle * side - window / 2) / 2) * 2))
    return Laid(canvas=canvas, scaled=scaled, shown=shown, offset=offset, across=across)


def fit_chain(fit: Fit, laid: Laid, mark: str) -> str:
    """Filters from a picture of the scaled size to the canvas; `mark` makes the labels unique."""
    (width, height), (wide, high) = laid.canvas, laid.shown
    x, y = (laid.offset, 0) if laid.across else (0, laid.offset)
    cut = f"crop={wide}:{high}:{x}:{y}:exact=1"
    before = (height - high if laid.across else width - wide) // 4 * 2
    after = (height - high if laid.across else width - wide) - before
    if not before:
        return cut
    if not fit.plain:
        small = tuple(max(16, side // _BLUR_STEP // 2 * 2) for side in laid.canvas)
        faded = f"128+(val-128)*{_BLUR_COLOUR}"
        place = f"0:{before}" if laid.across else f"{before}:0"
        return (
            f"{cut},split[{mark}a][{mark}b];"
            f"[{mark}a]scale={small[0]}:{small[1]}:force_original_aspect_ratio=increase,"
            f"crop={small[0]}:{small[1]},gblur=sigma={_BLUR_SIGMA},"
            f"scale={width}:{height}:flags=bicubic,lutyuv=y=16+(val-16)*{_BLUR_LIGHT}:u={faded}:v={faded},"
            f"setsar=1[{mark}c];[{mark}b]setsar=1[{mark}d];"
            f"[{mark}c][{mark}d]overlay={place}:format=yuv420"
        )
    ends = []
    for label, length, first in (("e", before, True), ("f", after, False)):
        if laid.across:
            strip, tiny = f"{wide}:{_EDGE}:0:{0 if first else high - _EDGE}", (_GROUND_POINTS, 2)
            size = f"{width}:{length}"
        else:
            strip, tiny = f"{_EDGE}:{high}:{0 if first else wide - _EDGE}:0", (2, _GROUND_POINTS)
            size = f"{length}:{height}"
        ends.append(
            f"[{mark}{label}]crop={strip}:exact=1,scale={tiny[0]}:{tiny[1]}:flags=area,"
            f"scale={size}:flags=bicubic,setsar=1[{mark}{label}o]"
        )
    stack = "vstack" if laid.across else "hstack"
    return (
        f"{cut},split=3[{mark}e][{mark}m][{mark}f];{';'.join(ends)};[{mark}m]setsar=1[{mark}n];"
        f"[{mark}eo][{mark}n][{mark}fo]{stack}=inputs=3"
    )


def _filling(length: int, whole: int) -> int:
    """A length, or the whole where hardly anything is free beside it."""
    return whole if length > whole - _FREE_MIN else length


def _even(length: float) -> int:
    return max(2, round(length / 2) * 2)
