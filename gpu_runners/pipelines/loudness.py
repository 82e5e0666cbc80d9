"""How loud a film's sound is, and the gain that brings it to -14 LUFS: measured, and again.

A limiter holds peaks down and so takes a little loudness away: the gain is found on the mixed sound
itself, in two or three quick passes of ffmpeg's own meter (EBU R 128).
"""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import imageio_ffmpeg
import msgspec

from gpu_runners.pipelines.pipeline import PipelineError
from schema.failures import FailureClass

TARGET_LUFS = -14.0
PEAK_DB = -2.0
"""No sample is louder: what an encoder and a player make of it stays below full scale."""
GAIN_DB_MAX = 32.0
"""More would only make noise loud."""

SILENT_DB = -91.0
"""What the meter says of 16 bits without any sound."""

_VOLUME = re.compile(r"max_volume: (-?[\d.]+|-inf) dB")
_INAUDIBLE_LUFS = -69.0
_NEAR_DB = 0.3
_PASSES_MAX = 4
_LOUDNESS = re.compile(r"^\s+I:\s+(-?[\d.]+|-?inf|nan) LUFS", re.MULTILINE)
_PEAK = re.compile(r"^\s+Peak:\s+(-?[\d.]+|-?inf|nan) dBFS", re.MULTILINE)


class Loudness(msgspec.Struct, frozen=True, kw_only=True):
    before_lufs: float | None
    """Of the mix as it came; None: nothing can be heard."""
    after_lufs: float | None
    gain_db: float
    limited: bool
    """Whether peaks had to be held down."""


def limited(gain_db: float) -> str:
    """The filters of a gain and the limiter behind it; sound stays in its place in time."""
    level = 10 ** (PEAK_DB / 20)
    return (
        f"volume={gain_db:.2f}dB:precision=float,"
        f"alimiter=limit={level:.4f}:attack=3:release=80:level=false:latency=true"
    )


def volume_in(said: str) -> float:
    """The loudest sample in dB, from what ffmpeg's `volumedetect` said of a stream."""
    found = _VOLUME.search(said)
    return float(found[1]) if found and found[1] != "-inf" else SILENT_DB


def loudest_of(streams: Sequence[int], volume: Callable[[int], float]) -> int | None:
    """The sound stream that is to be heard: of several, the loudest, and of these the first."""
    if len(streams) <= 1:
        return streams[0] if streams else None
    return max(streams, key=lambda index: (volume(index), -index))


def settle(mix: Path) -> Loudness:
    """Find the gain for a mixed sound (a WAV file of ours). Errors: PipelineError."""
    before, peak = measured(mix, "anull")
    if before is None:
        return Loudness(before_lufs=None, after_lufs=None, gain_db=0.0, limited=False)
    gain = min(GAIN_DB_MAX, TARGET_LUFS - before)
    if peak + gain <= PEAK_DB:
        after = before + gain
    else:
        after = before
        for _ in range(_PASSES_MAX):
            found, _peak = measured(mix, limited(gain))
            after = found if found is not None else before
            missing = TARGET_LUFS - after
            if abs(missing) <= _NEAR_DB or gain >= GAIN_DB_MAX:
                break
            gain = min(GAIN_DB_MAX, gain + 1.3 * missing)
    return Loudness(
        before_lufs=round(before, 1),
        after_lufs=round(after, 1),
        gain_db=round(gain, 2),
        limited=peak + gain > PEAK_DB,
    )


def measured(sound: Path, filters: str) -> tuple[float | None, float]:
    """Loudness (None: inaudible) and loudest sample in dB of a file of ours behind filters."""
    done = subprocess.run(
        [
            imageio_ffmpeg.get_ffmpeg_exe(),
            *("-hide_banner", "-nostdin", "-nostats", "-loglevel", "info"),
            *("-protocol_whitelist", "file", "-i", str(sound), "-map", "0:a:0"),
            *("-af", f"{filters},ebur128=framelog=quiet:peak=sample", "-f", "null", "-"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    said = done.stderr.decode(errors="replace")
    loudness, peak = _LOUDNESS.findall(said), _PEAK.findall(said)
    if done.returncode or not loudness or not peak:
        raise PipelineError(
            FailureClass.INTERNAL,
            f"The loudness could not be measured: ffmpeg ended with {done.returncode}: "
            f"{said[-400:]}",
        )
    lufs = float(loudness[-1])
    audible = lufs > _INAUDIBLE_LUFS
    return (lufs if audible else None), float(peak[-1])
