"""Whether a film is what its keep list says: decoded anew and compared with its source.

Knows nothing of how the film was made. Every doubt is an error in words: with them the demo
fails, and the tests.
"""

import re
from bisect import bisect_right
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from cutlog.ffmpeg import decode_sound, input_from_nought, run_ffmpeg

Ranges = list[tuple[float, float]]

_SIDE = 64
"""Pictures are compared in grey, at this width and height."""

_AUDIO_RATE = 16_000
_LENGTH_TOLERANCE_SECONDS = 0.5
_PSNR_MIN = 26.0
_CORRELATION_MIN = 0.9
_APART_SECONDS_MAX = 0.04
_SHIFTS = range(-5, 6)
_SHIFT_SLACK = 1.02
_QUIET = 10 ** (-50 / 20)
_SILENCE = 10 ** (-50 / 20)
_PLANTED_TOLERANCE_SECONDS = 0.05
_LONG_SILENCE_SECONDS = 0.5
_COMPARED_AT = (1 / 6, 1 / 2, 5 / 6)


class FilmCheckError(AssertionError):
    """The film is not what it is said to be."""


class FilmReport(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    target_seconds: float
    width: int
    height: int
    frames: int
    compared_seconds: tuple[float, ...]
    """Instants of the film whose frames were compared with the source."""
    frame_psnr: tuple[float, ...]
    audio_correlation: float | None
    """None: neither the source nor the film has sound."""
    audio_correlation_worst_range: float | None
    audio_apart_seconds: float | None
    """How far the sound is from where the pictures say it should be."""
    longest_silence_seconds: float | None
    index_first: bool


class _Pictures(msgspec.Struct, frozen=True, kw_only=True):
    times: NDArray[np.float64]
    frames: NDArray[np.uint8]
    """One row of _SIDE x _SIDE bytes for each time."""


def check_film(
    film: Path,
    source: Path,
    keep: Ranges,
    target_seconds: float,
    planted_silences: Ranges | None = None,
    *,
    target_reached: bool = True,
) -> FilmReport:
    """Check a film. `keep` and silences are (start, end) in seconds of the source.

    Errors: FilmCheckError, in words.
    """
    index_first = _index_first(film)
    _demand(index_first, "The film's index comes after its data: it can't play while it loads.")
    width, height, _ = _shape(film)
    pictures = _decode(film, _content_crop(film, source))
    frame_seconds = float(np.median(np.diff(pictures.times)))
    seconds = float(pictures.times[-1]) + frame_seconds
    kept_seconds = sum(end - start for start, end in keep)
    _demand(
        not target_reached or abs(seconds - target_seconds) <= _LENGTH_TOLERANCE_SECONDS,
        f"The film is {seconds:.2f} s long; {target_seconds:.2f} s were asked for.",
    )
    _demand(
        abs(seconds - kept_seconds) <= 1.5 * frame_seconds,
        f"The film is {seconds:.3f} s long; its keep list adds up to {kept_seconds:.3f} s.",
    )
    compared = tuple(round(seconds * part, 3) for part in _COMPARED_AT)
    psnr = _compare_pictures(pictures, _decode(source, ""), keep, compared)
    planted = planted_silences or []
    _demand_no_overlap(keep, planted)
    heard = _compare_sound(film, source, keep, seconds)
    if planted and heard is not None:
        _demand(
            heard.longest_silence < _LONG_SILENCE_SECONDS,
            f"The film is silent for {heard.longest_silence:.2f} s: a planted silence is in it.",
        )
    return FilmReport(
        seconds=round(seconds, 3),
        target_seconds=target_seconds,
        width=width,
        height=height,
        frames=len(pictures.times),
        compared_seconds=compared,
        frame_psnr=psnr,
        audio_correlation=heard.correlation if heard else None,
        audio_correlation_worst_range=heard.worst if heard else None,
        audio_apart_seconds=heard.apart if heard else None,
        longest_silence_seconds=heard.longest_silence if heard else None,
        index_first=index_first,
    )


def _demand(holds: bool, words: str) -> None:  # noqa: FBT001 - reads as: demand that …
    if not holds:
        raise FilmCheckError(words)


# ------------------------------------------------------------------------------------- pictures


def _compare_pictures(
    film: _Pictures, source: _Pictures, keep: Ranges, compared: tuple[float, ...]
) -> tuple[float, ...]:
    """PSNR of the compared frames, after the whole film was found to lie on its ranges."""
    step = float(np.median(np.diff(film.times)))
    wanted = np.array([_source_time(keep, t + step / 2) for t in film.times])
    shown = np.searchsorted(source.times, wanted, side="right") - 1
    psnr: list[float] = []
    for at in compared:
        index = int(np.argmin(np.abs(film.times - at)))
        value = _psnr(film.frames[index], source.frames[max(0, shown[index])])
        _demand(
            value >= _PSNR_MIN,
            f"The film's frame at {at:.2f} s is not the source's at {wanted[index]:.2f} s "
            f"(PSNR {value:.1f} dB, at least {_PSNR_MIN:.0f}).",
        )
        psnr.append(round(value, 1))
    errors = {shift: _difference(film, source, shown + shift) for shift in _SHIFTS}
    best = min(errors, key=lambda shift: errors[shift])
    _demand(
        errors[0] <= errors[best] * _SHIFT_SLACK + 1e-9,
        f"The film's pictures fit the source better {best:+d} frames from where the keep list "
        f"says (difference {errors[best]:.2f} against {errors[0]:.2f}).",
    )
    return tuple(psnr)


def _difference(film: _Pictures, source: _Pictures, shown: NDArray[np.int64]) -> float:
    rows = np.clip(shown, 0, len(source.frames) - 1)
    return float(np.abs(film.frames.astype(np.int16) - source.frames[rows]).mean())


def _psnr(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    error = float(((one.astype(np.float64) - other) ** 2).mean())
    return 99.0 if error == 0 else float(10 * np.log10(255**2 / error))


def _source_time(keep: Ranges, film_time: float) -> float:
    """Which instant of the source a film's instant shows."""
    lengths = [end - start for start, end in keep]
    starts = [sum(lengths[:i]) for i in range(len(keep))]
    index = max(0, bisect_right(starts, film_time) - 1)
    return keep[index][0] + film_time - starts[index]


def _decode(path: Path, crop: str) -> _Pictures:
    """Every frame of a file, turned as it is shown, small and grey, with its instant."""
    raw, said = run_ffmpeg(
        *("-loglevel", "info", "-threads", "2", *input_from_nought(path), "-map", "0:v:0", "-an"),
        *("-vf", f"showinfo=checksum=0,{crop}scale={_SIDE}:{_SIDE}:flags=area,format=gray"),
        *("-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1"),
    )
    frames = np.frombuffer(raw, dtype=np.uint8).reshape(-1, _SIDE * _SIDE)
    times = np.array([float(t) for t in re.findall(r"pts_time:\s*(-?[\d.]+)", said)])
    _demand(len(times) == len(frames) > 1, f"{path.name} does not decode to a moving picture.")
    return _Pictures(times=times, frames=frames)


def _shape(path: Path) -> tuple[int, int, float]:
    """Width, height and display aspect of the first frame, turned as it is shown."""
    _, said = run_ffmpeg(
        *("-loglevel", "info", "-i", str(path), "-map", "0:v:0", "-an"),
        *("-vf", "showinfo=checksum=0", "-frames:v", "1", "-f", "null", "-"),
    )
    found = re.search(r"sar:(\d+)/(\d+) s:(\d+)x(\d+)", said)
    if found is None:
        raise FilmCheckError(f"{path.name} has no picture.")
    shape_x, shape_y, width, height = (int(text) for text in found.groups())
    pixel = shape_x / shape_y if shape_x and shape_y else 1.0
    return width, height, width * pixel / height


def _content_crop(film: Path, source: Path) -> str:
    """The filter that cuts the black borders off the film, judged by the source's aspect."""
    width, height, _ = _shape(film)
    _, _, aspect = _shape(source)
    inner_width = min(width, round(height * aspect))
    inner_height = min(height, round(width / aspect))
    return f"crop={inner_width}:{inner_height}:exact=1,"


# ---------------------------------------------------------------------------------------- sound


class _Heard(msgspec.Struct, frozen=True, kw_only=True):
    correlation: float
    worst: float
    apart: float
    longest_silence: float


def _compare_sound(film: Path, source: Path, keep: Ranges, seconds: float) -> _Heard | None:
    if not _has_sound(source):
        _demand(not _has_sound(film), "The film has sound, its source has none.")
        return None
    _demand(_has_sound(film), "The film has no sound, its source has.")
    film_sound = decode_sound(film, _AUDIO_RATE)
    source_sound = decode_sound(source, _AUDIO_RATE)
    parts = [_part(source_sound, start, end) for start, end in keep]
    wanted = np.concatenate(parts)
    _demand(
        abs(len(film_sound) / _AUDIO_RATE - seconds) < _APART_SECONDS_MAX,
        f"The sound is {len(film_sound) / _AUDIO_RATE:.3f} s long, the pictures {seconds:.3f} s.",
    )
    shift, correlation = _best_shift(film_sound, wanted)
    apart = shift / _AUDIO_RATE
    _demand(
        correlation >= _CORRELATION_MIN,
        f"The film's sound is not that of its ranges (correlation {correlation:.3f}).",
    )
    _demand(
        abs(apart) < _APART_SECONDS_MAX,
        f"The film's sound is {apart * 1000:.0f} ms from its pictures.",
    )
    worst = _worst_range(film_sound, parts, shift, keep)
    return _Heard(
        correlation=round(correlation, 4),
        worst=round(worst, 4),
        apart=round(apart, 4),
        longest_silence=_longest_silence(film_sound),
    )


def _has_sound(path: Path) -> bool:
    _, said = run_ffmpeg(
        *("-loglevel", "info", "-i", str(path), "-map", "0:v:0", "-frames:v", "1"),
        *("-f", "null", "-"),
    )
    return " Audio: " in said.split("Stream mapping:")[0]


def _part(sound: NDArray[np.float32], start: float, end: float) -> NDArray[np.float32]:
    """A stretch of sound of exactly this length; beyond its end it is silent."""
    first, last = round(start * _AUDIO_RATE), round(end * _AUDIO_RATE)
    part = sound[first:last]
    return np.pad(part, (0, last - first - len(part)))


def _best_shift(one: NDArray[np.float32], other: NDArray[np.float32]) -> tuple[int, float]:
    """By how many samples `one` is late against `other`, within 0.1 s, and how alike they are."""
    count = min(len(one), len(other))
    first, second = one[:count].astype(np.float64), other[:count].astype(np.float64)
    size = 1 << (2 * count - 1).bit_length()
    cross = np.fft.irfft(np.fft.rfft(first, size) * np.conj(np.fft.rfft(second, size)), size)
    reach = _AUDIO_RATE // 10
    window = np.concatenate([cross[-reach:], cross[: reach + 1]])
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    if norm == 0:
        return 0, 1.0 if not first.any() and not second.any() else 0.0
    best = int(np.argmax(window))
    return best - reach, float(window[best] / norm)


def _worst_range(
    film: NDArray[np.float32], parts: list[NDArray[np.float32]], shift: int, keep: Ranges
) -> float:
    """The lowest correlation of a range that can be heard. Errors: FilmCheckError."""
    worst, at = 1.0, 0
    for part, (start, end) in zip(parts, keep, strict=True):
        heard = film[max(0, at + shift) : max(0, at + shift) + len(part)]
        at += len(part)
        wanted = part[: len(heard)].astype(np.float64)
        if not len(wanted) or float(np.sqrt((wanted**2).mean())) < _QUIET:
            continue
        norm = float(np.linalg.norm(heard) * np.linalg.norm(wanted))
        correlation = float(heard @ wanted) / norm if norm else 0.0
        _demand(
            correlation >= _CORRELATION_MIN,
            f"The sound of the range {start:.2f} to {end:.2f} s is not the source's "
            f"(correlation {correlation:.3f}).",
        )
        worst = min(worst, correlation)
    return worst


def _longest_silence(sound: NDArray[np.float32]) -> float:
    step = _AUDIO_RATE // 100
    windows = np.abs(sound[: len(sound) // step * step]).reshape(-1, step).max(axis=1)
    edges = np.flatnonzero(np.diff((windows < _SILENCE).astype(np.int8), prepend=0, append=0))
    runs = edges[1::2] - edges[::2]
    return float(runs.max()) / 100 if len(runs) else 0.0


def _demand_no_overlap(keep: Ranges, planted: Ranges) -> None:
    for silent_start, silent_end in planted:
        inside = sum(
            max(0.0, min(end, silent_end) - max(start, silent_start)) for start, end in keep
        )
        _demand(
            inside <= _PLANTED_TOLERANCE_SECONDS,
            f"{inside:.2f} s of the planted silence {silent_start:.1f} to {silent_end:.1f} s "
            "are in the film.",
        )


# ------------------------------------------------------------------------------------ container


def _index_first(path: Path) -> bool:
    """Whether the box `moov` stands before `mdat`, so that a player can start at once."""
    kinds: list[bytes] = []
    size, at = path.stat().st_size, 0
    with path.open("rb") as file:
        while at + 8 <= size:
            file.seek(at)
            head = file.read(16)
            length = int.from_bytes(head[:4], "big")
            if length == 1:
                length = int.from_bytes(head[8:16], "big")
            kinds.append(head[4:8])
            if length < 8:  # noqa: PLR2004 - to the end of the file, or no box at all
                break
            at += length
    found = b"moov" in kinds and b"mdat" in kinds
    _demand(found, f"{path.name} is not an MP4 file with an index and data.")
    return kinds.index(b"moov") < kinds.index(b"mdat")
