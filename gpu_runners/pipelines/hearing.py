"""Sound of one stream as a steady row of samples: 16 kHz, one channel, from the film's origin on.

Speech and beats are judged on it. Holes of the stream are silence, what overlaps is heard once:
sample `n` is what is heard at `n / RATE` seconds.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.error import FFmpegError
from numpy.typing import NDArray

from gpu_runners.pipelines.probe import opened
from gpu_runners.pipelines.probe_limits import ProbeLimits

Samples = NDArray[np.float32]

RATE = 16_000

_JITTER_SAMPLES = RATE // 50
"""Instants of frames are rounded by their container: less than this is no hole."""
_HOLE_SAMPLES_MAX = 60 * RATE
"""Silence is handed out in blocks of this length at most."""


def listen(
    path: Path, limits: ProbeLimits, audio_index: int, origin_seconds: float
) -> Iterator[Samples]:
    """Blocks of samples, -1 to 1, one after the other. Errors: InputError."""
    steady = _Steady(origin_seconds)
    end = round(limits.seconds_max * RATE)
    with opened(path, limits) as container:
        stream = container.streams.audio[_place(container, audio_index)]
        packets = container.demux([stream])
        while steady.heard < end:
            try:
                frames = next(packets).decode()
            except StopIteration:
                break
            except (MemoryError, BlockingIOError):
                raise
            except (FFmpegError, IndexError):
                if steady.failed():
                    break
                continue
            for frame in frames:
                if isinstance(frame, AudioFrame):
                    yield from steady.take(frame)
        yield from steady.rest()


def _place(container: object, audio_index: int) -> int:
    """Which of the audio streams has this index in the file."""
    streams = container.streams.audio  # type: ignore[attr-defined]
    return next(place for place, stream in enumerate(streams) if stream.index == audio_index)


class _Steady:
    """Puts frames where their instants say they belong."""

    def __init__(self, origin_seconds: float) -> None:
        self._origin = origin_seconds
        self._resampler: AudioResampler | None = None
        self._kind: tuple[str, str, int] | None = None
        self._skip = 0
        self._fed = 0
        """Samples at RATE that have gone into the resampler or been handed out as silence."""
        self._failures = 0
        self.heard = 0

    def failed(self) -> bool:
        """Count a packet that can't be read; whether there were too many in a row."""
        self._failures += 1
        return self._failures > 100  # noqa: PLR2004 - the rest of the file is noise

    def take(self, frame: AudioFrame) -> Iterator[Samples]:
        self._failures = 0
        kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        at = round((frame.time - self._origin) * RATE) if frame.time is not None else self._fed
        hole = at - self._fed
        if kind != self._kind or hole > _JITTER_SAMPLES:
            yield from self.rest()
            self._resampler = AudioResampler(format="flt", layout="mono", rate=RATE)
            self._kind = kind
        if hole > _JITTER_SAMPLES:
            self._fed = at
            hole -= self._skip
            while hole > 0:
                silence = np.zeros(min(hole, _HOLE_SAMPLES_MAX), dtype=np.float32)
                hole -= len(silence)
                yield self._handed(silence)
        elif hole < -_JITTER_SAMPLES:  # before the film begins, or said twice
            self._skip -= hole
            self._fed = at
        self._fed += round(frame.samples * RATE / frame.sample_rate)
        frame.pts = None
        assert self._resampler is not None  # noqa: S101 - made above with the first frame
        yield from self._blocks(self._resampler.resample(frame))

    def rest(self) -> Iterator[Samples]:
        """What the resampler still holds."""
        if self._resampler is not None:
            yield from self._blocks(self._resampler.resample(None))
            self._resampler = None
            self._kind = None

    def _blocks(self, frames: list[AudioFrame]) -> Iterator[Samples]:
        for frame in frames:
            block = np.asarray(frame.to_ndarray(), dtype=np.float32).reshape(-1)
            skipped = min(self._skip, len(block))
            self._skip -= skipped
            if len(block) > skipped:
                yield self._handed(np.nan_to_num(block[skipped:]))

    def _handed(self, block: Samples) -> Samples:
        self.heard += len(block)
        return block
