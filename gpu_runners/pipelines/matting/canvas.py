"""The cut-out as it is handed over: on its own canvas or a shop's square, coloured, encoded."""

import io
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image

from gpu_runners.pipelines.matting.pixels import OPAQUE, Colours, CutOut, Plane
from gpu_runners.pipelines.pipeline import InputError, InputReason
from schema.scenes.matting import Format, MattingParameters

SUFFIXES = {Format.PNG: ".png", Format.WEBP: ".webp", Format.JPEG: ".jpg"}
CONTENT_TYPES = {
    Format.PNG: "image/png",
    Format.WEBP: "image/webp",
    Format.JPEG: "image/jpeg",
}

_SUBJECT_FROM = 24
"""Alpha that counts when the subject is centred: a faint hair shall not push it aside."""
_PNG = (
    *(cv2.IMWRITE_PNG_COMPRESSION, 1),
    *(cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE),
    *(cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP),
)
"""The best level takes as long as the network and saves a tenth of the bytes."""
_SIDES_MAX = {Format.WEBP: 16_383, Format.JPEG: 65_500}
"""What the kinds of file, or their libraries, can say of a side."""
_WEBP_EFFORT = 2


class Box(NamedTuple):
    """A rectangle of whole pixels; right and bottom are outside."""

    left: int
    top: int
    right: int
    bottom: int


def subject_box(alpha: Plane) -> Box:
    """What the subject fills of a picture; the whole picture, if it is faint all over."""
    seen = alpha >= _SUBJECT_FROM
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    if not len(rows):
        return Box(0, 0, alpha.shape[1], alpha.shape[0])
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def squared(cut_out: CutOut, box: Box, size: int, free_part: float) -> CutOut:
    """The subject in the middle of a square, as large as the margins let it."""
    inner = max(1, round(size * (1 - 2 * free_part)))
    width, height = box.right - box.left, box.bottom - box.top
    scale = inner / max(width, height)
    wide, high = max(1, round(width * scale)), max(1, round(height * scale))
    view = slice(box.top, box.bottom), slice(box.left, box.right)
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    alpha = np.asarray(cv2.resize(cut_out.alpha[view], (wide, high), interpolation=how), np.uint8)
    colours = _resized(cut_out.colours[view], cut_out.alpha[view], (wide, high), how)
    colours[alpha == 0] = 0
    top, left = (size - high) // 2, (size - wide) // 2
    place = slice(top, top + high), slice(left, left + wide)
    canvas, canvas_alpha = np.zeros((size, size, 3), np.uint8), np.zeros((size, size), np.uint8)
    canvas[place], canvas_alpha[place] = colours, alpha
    return CutOut(canvas, canvas_alpha, cut_out.refined)


def _resized(colours: Colours, alpha: Plane, size: tuple[int, int], how: int) -> Colours:
    """Colours weighed by alpha: what is transparent must not darken its neighbours."""
    weight = alpha.astype(np.float32) / OPAQUE
    laid = cv2.resize(colours * weight[..., None], size, interpolation=how)
    total = np.asarray(cv2.resize(weight, size, interpolation=how))
    return np.clip(np.rint(laid / np.maximum(total, 1e-3)[..., None]), 0, OPAQUE).astype(np.uint8)


def on_colour(cut_out: CutOut, colour: tuple[int, int, int]) -> Colours:
    """The subject in front of one colour."""
    alpha = cut_out.alpha[..., None].astype(np.uint16)
    ground = np.array(colour, np.uint16)
    mixed = cut_out.colours * alpha + ground * (OPAQUE - alpha) + OPAQUE // 2
    return (mixed // OPAQUE).astype(np.uint8)


def laid_out(cut_out: CutOut, wishes: MattingParameters) -> CutOut:
    """On the canvas that is wanted."""
    if wishes.size is None:
        return cut_out
    return squared(cut_out, subject_box(cut_out.alpha), wishes.size, wishes.free_part)


def refuse_long_sides(width: int, height: int, kind: Format) -> None:
    """Hold a picture against what its kind of file can say of its sides. Errors: InputError."""
    most = _SIDES_MAX.get(kind)
    if most is not None and max(width, height) > most:
        raise InputError(
            InputReason.TOO_LARGE,
            f"The cut-out is {width} x {height}; a {kind.value.upper()} has sides of at most "
            f"{most}. Give a `size`, or make it smaller first; a picture may also become a PNG.",
        )


def encoded(cut_out: CutOut, wishes: MattingParameters) -> bytes:
    """The bytes of the file, with nothing of the source's metadata in them. Errors: InputError."""
    height, width = cut_out.alpha.shape
    refuse_long_sides(width, height, wishes.format)
    colour = wishes.colour
    laid = _stacked(cut_out) if colour is None else on_colour(cut_out, colour)
    if wishes.format is Format.PNG:
        turn = cv2.COLOR_RGBA2BGRA if colour is None else cv2.COLOR_RGB2BGR
        done, data = cv2.imencode(".png", cv2.cvtColor(laid, turn), _PNG)
        if not done:
            raise MemoryError("a PNG could not be written")
        return bytes(data)
    out = io.BytesIO()
    image = Image.fromarray(laid)
    if wishes.format is Format.WEBP:
        image.save(out, "WEBP", quality=wishes.quality, method=_WEBP_EFFORT)
    else:
        image.save(out, "JPEG", quality=wishes.quality, subsampling=0)
    return out.getvalue()


def _stacked(cut_out: CutOut) -> Colours:
    """Red, green, blue and alpha of each pixel beside each other."""
    stack = cv2.cvtColor(cut_out.colours, cv2.COLOR_RGB2RGBA)
    return np.asarray(cv2.insertChannel(cut_out.alpha, stack, 3), np.uint8)
