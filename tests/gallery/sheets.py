"""Contact sheets: a film's poster and eight frames, or pictures on chequers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import av
import numpy as np
from PIL import Image, ImageDraw

_FRAMES: Final = 8
_CELL: Final = 360
_GAP: Final = 8
_LABEL: Final = 16


def film_sheet(name: str, film: Path, poster: Path | None, out: Path) -> None:
    """The poster first, then frames from all along the film, with their seconds."""
    cells = [("poster", Image.open(poster).convert("RGB"))] if poster else []
    cells += _frames(film)
    _lay(name, cells, out)


def picture_sheet(name: str, pictures: Sequence[tuple[str, Path]], out: Path) -> None:
    """Each picture over chequers, where it lets anything through."""
    cells: list[tuple[str, Image.Image]] = []
    for label, path in pictures:
        with Image.open(path) as opened:
            cells.append((f"{label} {opened.width}x{opened.height}", _on_chequers(opened)))
    _lay(name, cells, out)


def _frames(film: Path) -> list[tuple[str, Image.Image]]:
    with av.open(str(film)) as opened:
        video = opened.streams.video[0]
        frames = [(frame.time or 0.0, frame) for frame in opened.decode(video)]
        wanted = np.linspace(0, len(frames) - 1, _FRAMES)
        picked = sorted({round(float(one)) for one in wanted})
        return [
            (f"{frames[i][0]:.2f} s", Image.fromarray(frames[i][1].to_ndarray(format="rgb24")))
            for i in picked
        ]


def _on_chequers(picture: Image.Image) -> Image.Image:
    seen = picture.convert("RGBA")
    y, x = np.mgrid[0 : seen.height, 0 : seen.width]
    squares = np.where((x // 24 + y // 24) % 2, 255, 190).astype(np.uint8)
    ground = Image.fromarray(squares).convert("RGBA")
    return Image.alpha_composite(ground, seen).convert("RGB")


def _lay(name: str, cells: Sequence[tuple[str, Image.Image]], out: Path) -> None:
    columns = 4 if all(one.width >= one.height for _, one in cells) else 6
    sized = [(label, _fitted(one)) for label, one in cells]
    width = max(one.width for _, one in sized)
    height = max(one.height for _, one in sized) + _LABEL
    rows = -(-len(sized) // columns)
    sheet = Image.new(
        "RGB",
        (columns * (width + _GAP) + _GAP, rows * (height + _GAP) + _GAP + _LABEL),
        (70, 90, 120),
    )
    pen = ImageDraw.Draw(sheet)
    pen.text((_GAP, 2), name, fill="white")
    for i, (label, one) in enumerate(sized):
        x = _GAP + i % columns * (width + _GAP)
        y = _GAP + _LABEL + i // columns * (height + _GAP)
        pen.text((x, y), label, fill="white")
        sheet.paste(one, (x, y + _LABEL))
    out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(out, quality=88)


def _fitted(picture: Image.Image) -> Image.Image:
    small = picture.copy()
    small.thumbnail((_CELL, _CELL), Image.Resampling.LANCZOS)
    return small
