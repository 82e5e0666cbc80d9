"""What an editor would measure on a film: decoded whole, heard whole, and played in a browser."""

from itertools import pairwise
from pathlib import Path
from typing import Final

import av
import msgspec
import numpy as np
from numpy.typing import NDArray

from cutlog.ffmpeg import decode_sound, run_ffmpeg
from tests.support.signals import loudness_of

SILENT_LUFS: Final = -60.0
"""Sound under this is near silence: it is left so, and only told."""
_LUFS, _LUFS_APART = -14.0, 1.0
_APART_SECONDS = 0.04
_RATE: Final = 48_000
_DARK: Final = 24
"""Grey, 0 to 255, under which there is nothing to see. Night is brighter somewhere."""
_BRIGHTEST: Final = 99
"""Per cent of a frame that must be under it."""
_DIP_SECONDS: Final = 0.4
"""A transition may go through black for so long."""
_STILL: Final = 0.05
"""Mean difference of two frames' greys at which the second shows nothing new."""
_HELD_SECONDS: Final = 0.2
_SHAPE_APART: Final = 0.01
_EDGE: Final = 0.6
"""The first and last seconds may be dark: films fade."""


class FilmMeasured(msgspec.Struct, frozen=True, kw_only=True):
    width: int
    height: int
    seconds: float
    frames: int
    rate: float
    lufs: float | None
    """None: there is no sound."""
    apart_seconds: float | None
    """Between the end of the pictures and that of the sound."""
    index_first: bool
    decode_errors: str
    dark_seconds: tuple[float, ...]
    """Where frames are black, away from both ends."""
    held: tuple[tuple[float, float], ...]
    """Where pictures stand still that move before and after: from, to."""
    flicker: float
    """Largest jump of brightness to a frame and back, 0 to 255."""
    bars: tuple[int, int]
    """Rows and columns of black around the picture, in all frames."""


def measure(film: Path) -> FilmMeasured:
    """Decode and hear all of a film."""
    times, greys, (width, height), rate = _frames(film)
    step = 1 / rate
    seconds = float(times[-1]) + step
    _, said = run_ffmpeg("-v", "error", "-i", str(film), "-f", "null", "-")
    brightness = greys.mean(axis=(1, 2))
    black = np.percentile(greys, _BRIGHTEST, axis=(1, 2)) < _DARK
    inner = (times > _EDGE) & (times < seconds - _EDGE - step)
    with av.open(str(film)) as opened:
        sound = bool(opened.streams.audio)
    return FilmMeasured(
        width=width,
        height=height,
        seconds=round(seconds, 3),
        frames=len(times),
        rate=round(rate, 3),
        lufs=loudness_of(film) if sound else None,
        apart_seconds=round(len(decode_sound(film, _RATE)) / _RATE - seconds, 4) if sound else None,
        index_first=film.suffix != ".mp4" or _index_first(film),
        decode_errors=said.strip()[:300],
        dark_seconds=tuple(round(float(t), 2) for t in times[inner & black]),
        held=_held(times, greys),
        flicker=round(_flicker(brightness), 1),
        bars=_bars(greys, width, height),
    )


def faults(
    film: FilmMeasured, *, shape: float | None, lines: int | None, seconds: float | None
) -> list[str]:
    """What is wrong with a film that should have this shape, these lines and this length."""
    found: list[str] = []
    if shape is not None and abs(film.width / film.height / shape - 1) > _SHAPE_APART:
        found.append(f"{film.width}x{film.height} is not {shape:.3f} wide")
    if lines is not None and min(film.width, film.height) != lines:
        found.append(f"{film.width}x{film.height} does not have {lines} lines")
    if seconds is not None and abs(film.seconds - seconds) > 1.5 / film.rate:
        found.append(f"{film.seconds} s, {seconds} s were told")
    silent = film.lufs is None or film.lufs < SILENT_LUFS
    if film.lufs is not None and not silent and abs(film.lufs - _LUFS) > _LUFS_APART:
        found.append(f"{film.lufs} LUFS")
    if film.apart_seconds is not None and abs(film.apart_seconds) >= _APART_SECONDS:
        found.append(f"sound ends {film.apart_seconds * 1000:.0f} ms from the pictures")
    if not film.index_first:
        found.append("its index comes last")
    if film.decode_errors:
        found.append(film.decode_errors)
    if len(film.dark_seconds) > _DIP_SECONDS * film.rate:
        found.append(f"black at {film.dark_seconds[:6]}")
    return found


def _frames(
    film: Path,
) -> tuple[NDArray[np.float64], NDArray[np.uint8], tuple[int, int], float]:
    """Times and small greys of all frames, the size, and frames a second."""
    times: list[float] = []
    greys: list[NDArray[np.uint8]] = []
    with av.open(str(film)) as opened:
        video = opened.streams.video[0]
        for frame in opened.decode(video):
            times.append(float(frame.time or 0))
            small = frame.reformat(width=96, height=96, format="gray", interpolation="AREA")
            greys.append(small.to_ndarray().astype(np.uint8))
        size = (video.width, video.height)
        rate = float(video.average_rate or 25)
    return np.array(times), np.stack(greys), size, rate


def _index_first(film: Path) -> bool:
    """Whether what a player needs first stands before what it shows."""
    kinds: list[bytes] = []
    with film.open("rb") as file:
        while len(head := file.read(16)) >= 8:
            length = int.from_bytes(head[:4], "big")
            kinds.append(head[4:8])
            if length == 1:
                length = int.from_bytes(head[8:], "big")
            if length < 8:  # to the end of the file
                break
            file.seek(length - len(head), 1)
    return b"moov" in kinds and kinds.index(b"moov") < kinds.index(b"mdat")


def _held(times: NDArray[np.float64], greys: NDArray[np.uint8]) -> tuple[tuple[float, float], ...]:
    """Spans longer than a blink in which nothing moves, between others in which something does."""
    moved = np.abs(np.diff(greys.astype(np.int16), axis=0)).mean(axis=(1, 2)) > _STILL
    edges = [0, *(np.flatnonzero(np.diff(moved)) + 1), len(moved)]
    found = [
        (round(float(times[begin]), 2), round(float(times[end]), 2))
        for begin, end in pairwise(edges)
        if begin > 0 and end < len(moved) and not moved[begin]
    ]
    return tuple(span for span in found if span[1] - span[0] >= _HELD_SECONDS)


def _flicker(brightness: NDArray[np.float64]) -> float:
    """A frame that differs from both its neighbours, which are alike."""
    before, here, after = brightness[:-2], brightness[1:-1], brightness[2:]
    jump = np.minimum(np.abs(here - before), np.abs(here - after)) - np.abs(after - before)
    return float(max(0.0, jump.max(initial=0.0)))


def _bars(greys: NDArray[np.uint8], width: int, height: int) -> tuple[int, int]:
    loudest = greys.max(axis=0)
    rows = int((loudest.max(axis=1) < _DARK).sum() * height / loudest.shape[0])
    columns = int((loudest.max(axis=0) < _DARK).sum() * width / loudest.shape[1])
    return rows, columns
