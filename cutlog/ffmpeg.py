"""The ffmpeg that the media package brings, run as a process: this side decodes nothing itself."""

import functools
import importlib.util
import os
import re
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class FfmpegError(RuntimeError):
    """ffmpeg is not there, or could not do what it was asked."""


@functools.cache
def ffmpeg_path() -> Path:
    """Where the binary is. Errors: FfmpegError."""
    given = os.environ.get("IMAGEIO_FFMPEG_EXE")
    if given:
        return Path(given)
    package = importlib.util.find_spec("imageio_ffmpeg")  # found, not imported
    for place in (package.submodule_search_locations or []) if package else []:
        for binary in sorted((Path(place) / "binaries").glob("ffmpeg-*")):
            return binary
    raise FfmpegError("ffmpeg was not found: install the package imageio-ffmpeg.")


def run_ffmpeg(*arguments: str) -> tuple[bytes, str]:
    """Run ffmpeg to its end: what it wrote to its output and what it said. Errors: FfmpegError."""
    done = subprocess.run(
        [str(ffmpeg_path()), "-hide_banner", "-nostdin", "-nostats", *arguments],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    said = done.stderr.decode(errors="replace")
    if done.returncode:
        raise FfmpegError(f"ffmpeg ended with {done.returncode}: {said[-600:].strip()}")
    return done.stdout, said


def input_from_nought(path: Path) -> tuple[str, ...]:
    """Arguments that open a file with its first instant at 0, whichever of its streams are used."""
    said = subprocess.run(
        [str(ffmpeg_path()), "-hide_banner", "-nostdin", "-i", str(path)],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    ).stderr.decode(errors="replace")
    start = re.search(r"Duration: .*, start: (-?[\d.]+)", said)
    offset = f"{-float(start.group(1)):.6f}" if start else "0"
    return ("-copyts", "-itsoffset", offset, "-i", str(path))


def decode_sound(path: Path, rate: int) -> NDArray[np.float32]:
    """All sound of a file from its first instant on, one channel. Errors: FfmpegError."""
    raw, _ = run_ffmpeg(
        *("-loglevel", "error", *input_from_nought(path), "-map", "0:a:0"),
        *("-af", f"aresample={rate}:async=1:first_pts=0", "-ac", "1", "-f", "f32le", "pipe:1"),
    )
    return np.frombuffer(raw, dtype="<f4")
