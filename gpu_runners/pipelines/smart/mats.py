"""Pictures that lie around and above the inputs: backdrops, paper frames with holes, the lid.

A mat is as large as the canvas; through its holes the cells' pictures are seen. The lid lies over
the whole film: vignette and bars.
"""

import math

import msgspec
import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from gpu_runners.pipelines.smart.template import rgb
from gpu_runners.pipelines.smart.timeline import even
from schema.scenes.smart import Backdrop, Cell

_FINER = 2
"""Holes are drawn this much larger and made smaller, so that their edges are smooth."""
_SEED = 417


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cell's picture lies on the canvas, in even pixels, its tilt included."""

    x: int
    y: int
    width: int
    height: int


class Hole(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a cell through which its picture is seen, before it is tilted."""

    x: float
    y: float
    width: float
    height: float
    middle: tuple[float, float]
    """What the whole cell, paper and all, is turned around."""


def hole_of(cell: Cell, canvas: tuple[int, int]) -> Hole:
    short = min(canvas)
    border = cell.border * short
    bottom = border if cell.border_bottom is None else cell.border_bottom * short
    x, y = cell.x * canvas[0], cell.y * canvas[1]
    width, height = cell.width * canvas[0], cell.height * canvas[1]
    return Hole(
        x=x + border,
        y=y + border,
        width=max(8.0, width - 2 * border),
        height=max(8.0, height - border - bottom),
        middle=(x + width / 2, y + height / 2),
    )


def box_of(cell: Cell, canvas: tuple[int, int]) -> Box:
    """The upright rectangle around a cell's tilted hole, within the canvas."""
    hole = hole_of(cell, canvas)
    corners = _turned(
        [
            (hole.x, hole.y),
            (hole.x + hole.width, hole.y),
            (hole.x + hole.width, hole.y + hole.height),
            (hole.x, hole.y + hole.height),
        ],
        hole.middle,
        cell.tilt,
    )
    left = max(0, math.floor(min(x for x, _ in corners) / 2) * 2)
    top = max(0, math.floor(min(y for _, y in corners) / 2) * 2)
    right = min(canvas[0], math.ceil(max(x for x, _ in corners) / 2) * 2)
    bottom = min(canvas[1], math.ceil(max(y for _, y in corners) / 2) * 2)
    return Box(x=left, y=top, width=even(right - left), height=even(bottom - top))


def fills_canvas(cell: Cell) -> bool:
    """Whether nothing but the picture is seen, so that no mat is needed."""
    plain = cell.tilt == 0 and cell.border == 0 and not cell.border_bottom and cell.radius == 0
    return plain and cell.width >= 1 and cell.height >= 1


def backdrop_picture(backdrop: Backdrop, canvas: tuple[int, int]) -> Image.Image:
    """A soft gradient from top to bottom, with light and texture as wished (RGB)."""
    width, height = canvas
    down = np.linspace(0, 1, height)[:, None, None]
    top, bottom = np.array(rgb(backdrop.top)), np.array(rgb(backdrop.bottom))
    colours = np.repeat(top * (1 - down) + bottom * down, width, axis=1)
    noise = np.random.default_rng(_SEED)
    if backdrop.spotlight:
        ys, xs = np.mgrid[0:height, 0:width]
        far = np.hypot((xs / width - 0.5) * 1.25, (ys / height - 0.46) * 1.25)
        light = np.exp(-((far / 0.42) ** 2))[:, :, None]
        colours += (255 - colours) * light * backdrop.spotlight * 0.8
        colours *= 1 - backdrop.spotlight * 0.28 * np.clip(far - 0.3, 0, 1)[:, :, None]
    if backdrop.texture:
        fine = noise.standard_normal((height, width))
        rough = noise.standard_normal((height // 6, width // 6)).astype(np.float32)
        coarse = Image.fromarray(rough)
        fibres = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
        colours += (fine * 3.0 + fibres * 5.0)[:, :, None] * backdrop.texture
    colours += noise.uniform(-0.5, 0.5, colours.shape)  # against bands
    return Image.fromarray(np.clip(colours, 0, 255).astype(np.uint8))


def mat_picture(
    cells: tuple[Cell, ...], backdrop: Backdrop, canvas: tuple[int, int]
) -> Image.Image:
    """The backdrop with paper, shadows and holes (RGBA). Later cells lie on earlier ones."""
    mat = backdrop_picture(backdrop, canvas).convert("RGBA")
    short = min(canvas)
    for cell in cells:
        paper = _shape(cell, canvas, paper=True)
        if cell.border or cell.tilt:
            shadow = paper.filter(ImageFilter.GaussianBlur(short * 0.018))
            shadow = ImageChops.offset(shadow, 0, round(short * 0.012))
            shadow = shadow.point([round(level * 0.42) for level in range(256)])
            # A shadow falls on paper below, never into another cell's hole.
            dark = Image.new("RGBA", canvas, (22, 16, 10, 0))
            dark.putalpha(ImageChops.multiply(shadow, mat.getchannel("A")))
            mat = Image.alpha_composite(mat, dark)
            mat.paste((*rgb(backdrop.paper), 255), (0, 0, *canvas), paper)
        hole = _shape(cell, canvas, paper=False)
        mat.putalpha(ImageChops.multiply(mat.getchannel("A"), ImageChops.invert(hole)))
    return mat


def lid_picture(vignette: float, bars: float, canvas: tuple[int, int]) -> Image.Image:
    """What lies over the whole film (RGBA): dark corners, black bars."""
    width, height = canvas
    ys, xs = np.mgrid[0:height, 0:width]
    far = np.hypot((xs + 0.5) / width - 0.5, (ys + 0.5) / height - 0.5) / math.hypot(0.5, 0.5)
    dark = np.clip((far - 0.45) / 0.55, 0, 1) ** 2 * 0.62 * vignette * 255
    dark += np.random.default_rng(_SEED).uniform(0, 1, dark.shape) * (dark > 0)
    edge = round(bars * height / 2) * 2
    if edge:
        dark[:edge] = dark[-edge:] = 255
    lid = Image.new("RGBA", canvas, (0, 0, 0, 0))
    lid.putalpha(Image.fromarray(np.clip(dark, 0, 255).astype(np.uint8)))
    return lid


def _shape(cell: Cell, canvas: tuple[int, int], *, paper: bool) -> Image.Image:
    """The mask of a cell's paper or of its hole."""
    hole = hole_of(cell, canvas)
    if paper:
        left, top = cell.x * canvas[0], cell.y * canvas[1]
        right, bottom = left + cell.width * canvas[0], top + cell.height * canvas[1]
    else:
        left, top = hole.x, hole.y
        right, bottom = left + hole.width, top + hole.height
    large = Image.new("L", (canvas[0] * _FINER, canvas[1] * _FINER), 0)
    ImageDraw.Draw(large).rounded_rectangle(
        (left * _FINER, top * _FINER, right * _FINER - 1, bottom * _FINER - 1),
        radius=cell.radius * min(canvas) * _FINER,
        fill=255,
    )
    if cell.tilt:
        middle = (hole.middle[0] * _FINER, hole.middle[1] * _FINER)
        large = large.rotate(-cell.tilt, Image.Resampling.BICUBIC, center=middle)
    return large.resize(canvas, Image.Resampling.BOX)


def _turned(
    points: list[tuple[float, float]], middle: tuple[float, float], degrees: float
) -> list[tuple[float, float]]:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return [
        (
            middle[0] + (x - middle[0]) * cos - (y - middle[1]) * sin,
            middle[1] + (x - middle[0]) * sin + (y - middle[1]) * cos,
        )
        for x, y in points
    ]
