"""Clips for tests whose truth is known: the montage, and odd files made from it."""

import functools
from pathlib import Path

from cutlog.clips import ClipFacts, Piece, Recipe, build_clip
from cutlog.ffmpeg import run_ffmpeg
from cutlog.samples import ensure_samples

MONTAGE = Recipe(
    pieces=(
        Piece(sample="bigbuckbunny.mp4", start=0.0, seconds=4),
        Piece(sample="world.mp4", start=2.0, seconds=3),
        Piece(sample="carphone_pristine.mp4", start=0.0, seconds=3),
        Piece(sample="a.mp4", start=1.6, seconds=4),
        Piece(sample="bigbuckbunny.mp4", start=2.2, seconds=3),
        Piece(sample="bikes.mp4", start=3.12, seconds=2),
        Piece(sample="carphone_pristine.mp4", start=1.0, seconds=3),
        Piece(sample="world.mp4", start=18.0, seconds=4),
    ),
    silences=((8.0, 10.0), (17.0, 18.5)),
    width=640,
    height=360,
)
"""Eight pieces joined at 4, 7, 10, 14, 17, 19 and 22 s; 26 s in all."""

_SAMPLES = Path(__file__).parents[2] / ".cutlog" / "samples"


@functools.cache
def samples() -> list[Path]:
    """The package clips, fetched once."""
    return ensure_samples(_SAMPLES)


def montage(path: Path) -> ClipFacts:
    """Build the montage at this path."""
    return build_clip(samples(), MONTAGE, path)


def odd(source: Path, out: Path, *arguments: str, before: tuple[str, ...] = ()) -> Path:
    """Another file made of the first 8 s of a source, with these arguments of ffmpeg."""
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-threads", "2", *before, "-t", "8", "-i", str(source)),
        *(*arguments, "-threads", "2", str(out)),
    )
    return out
