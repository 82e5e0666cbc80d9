"""Title cards as pictures and as clips, whose lettering is known."""

from pathlib import Path

import numpy as np
from PIL import Image

from cutlog.ffmpeg import run_ffmpeg
from gpu_runners.pipelines.fonts import Colour, TextStyle, text_picture
from tests.support.signals import X264

BLACK: Colour = (0, 0, 0)


def card(
    text: str,
    style: TextStyle,
    *,
    size: tuple[int, int] = (1280, 720),
    ground: Colour = BLACK,
    middle: float = 0.5,
    width_max: float = 0.85,
) -> tuple[Image.Image, tuple[int, int]]:
    """A text on plain ground, and from which column to which it goes."""
    picture = Image.new("RGB", size, ground)
    drawn = text_picture(text, style, width_max=round(size[0] * width_max))
    assert drawn is not None
    left = round(size[0] * middle - drawn.width / 2)
    picture.paste(drawn, (left, (size[1] - drawn.height) // 2), drawn)
    seen = np.flatnonzero(np.asarray(drawn.getchannel("A")).max(axis=0) > 128)
    return picture, (left + int(seen[0]), left + int(seen[-1]) + 1)


def still(picture: Image.Image, path: Path, *, seconds: float = 3) -> Path:
    """A clip of one picture, 25 a second, without sound."""
    png = path.with_suffix(".png")
    picture.save(png)
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-loop", "1", "-framerate", "25", "-t", str(seconds)),
        *("-i", str(png), *X264, str(path)),
    )
    return path


def joined(path: Path, *clips: Path, size: tuple[int, int] = (1280, 720)) -> Path:
    """Clips one after the other, with a tone all through."""
    inputs = [part for clip in clips for part in ("-i", str(clip))]
    scaled = ";".join(
        f"[{i}:v]scale={size[0]}:{size[1]},fps=25,setsar=1[s{i}]" for i in range(len(clips))
    )
    rows = "".join(f"[s{i}]" for i in range(len(clips)))
    run_ffmpeg(
        *("-loglevel", "error", "-y", *inputs, "-f", "lavfi", "-i", "sine=f=440:r=48000"),
        *("-filter_complex", f"{scaled};{rows}concat=n={len(clips)}[v]", "-map", "[v]"),
        *("-map", f"{len(clips)}:a", "-shortest", *X264, "-c:a", "aac", str(path)),
    )
    return path
