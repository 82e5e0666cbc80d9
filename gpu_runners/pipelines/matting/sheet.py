"""The poster of a task: its first cut-outs side by side, small, for lists and previews."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from gpu_runners.pipelines.matting.canvas import on_colour, squared, subject_box
from gpu_runners.pipelines.matting.pixels import Colours, CutOut

PICTURES_MAX = 12

_SIDE = 320
_FREE_PART = 0.05
_COLUMNS = 4
_GAP = 8
_QUALITY = 88
_PAPER = (244, 244, 242)


class Sheet(NamedTuple):
    """The pictures so far, each a small square."""

    colour: tuple[int, int, int] | None
    tiles: list[Colours]

    @property
    def wants_more(self) -> bool:
        return len(self.tiles) < PICTURES_MAX

    def write(self, path: Path) -> None:
        """As a JPEG of as many columns as it takes."""
        columns = min(_COLUMNS, len(self.tiles))
        rows = -(-len(self.tiles) // columns)
        step = _SIDE + _GAP
        sheet = np.empty((rows * step + _GAP, columns * step + _GAP, 3), np.uint8)
        sheet[:] = self.colour or _PAPER
        for number, tile in enumerate(self.tiles):
            top, left = _GAP + number // columns * step, _GAP + number % columns * step
            sheet[top : top + _SIDE, left : left + _SIDE] = tile
        Image.fromarray(sheet).save(path, "JPEG", quality=_QUALITY)


def tile(cut_out: CutOut, colour: tuple[int, int, int] | None) -> Colours:
    """A small square of a cut-out."""
    small = squared(cut_out, subject_box(cut_out.alpha), _SIDE, _FREE_PART)
    return on_colour(small, colour or _PAPER)
