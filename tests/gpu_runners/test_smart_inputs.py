"""Inputs of the scene `smart` that are rare: tracks that change, memory that ends, two sounds."""

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import av.error
import numpy as np
import pytest

from cutlog.ffmpeg import run_ffmpeg
from gpu_runners.pipelines.probe import opened, probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.smart import clips, sound
from gpu_runners.pipelines.smart.music import RATE

pytestmark = pytest.mark.media

_LIMITS = ProbeLimits(seconds_min=0.2)


def tone(path: Path, *more: str, seconds: float = 3.0) -> Path:
    source = ("-f", "lavfi", "-i", f"sine=frequency=440:duration={seconds}")
    run_ffmpeg("-loglevel", "error", *source, *more, str(path))
    return path


def test_a_long_track_is_cut_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound, "_TRACK_SECONDS_MAX", 3)
    track = sound.read_track(tone(tmp_path / "long.wav", seconds=8.0), _LIMITS)
    assert track.sound.shape == (2, 3 * RATE)
    assert track.sound.dtype == np.float32


def test_a_track_may_change_its_rate_and_channels(tmp_path: Path) -> None:
    one = tone(tmp_path / "one.aac", "-ar", "44100", "-ac", "1")
    two = tone(tmp_path / "two.aac", "-ar", "22050", "-ac", "2")
    both = tmp_path / "both.aac"
    both.write_bytes(one.read_bytes() + two.read_bytes())
    track = sound.read_track(both, _LIMITS)
    assert track.sound.shape[1] / RATE == pytest.approx(6.0, abs=0.3)


class _NoMemory:
    def __init__(self, streams: object) -> None:
        self.streams = streams

    def demux(self, _: object) -> Generator[Any]:
        while True:
            yield self

    def decode(self, *_: object) -> list[object]:
        raise av.error.MemoryError(12, "Cannot allocate memory")


def test_memory_that_ends_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tone(
        tmp_path / "film.mp4", "-f", "lavfi", "-i", "testsrc=size=64x64:duration=3", "-shortest"
    )

    @contextlib.contextmanager
    def without_memory(path: Path, limits: ProbeLimits) -> Generator[_NoMemory]:
        with opened(path, limits) as container:
            yield _NoMemory(container.streams)

    monkeypatch.setattr(sound, "opened", without_memory)
    monkeypatch.setattr(clips, "opened", without_memory)
    with pytest.raises(MemoryError, match="while decoding"):
        sound.read_track(path, _LIMITS)
    with pytest.raises(MemoryError, match="while decoding"):
        clips.scan(path, probe(path, _LIMITS), _LIMITS, tmp_path)


def test_of_two_sounds_the_loudest_is_heard(tmp_path: Path) -> None:
    path = tone(
        tmp_path / "two.mp4",
        *("-f", "lavfi", "-i", "anullsrc=duration=3"),
        *("-f", "lavfi", "-i", "testsrc=size=64x64:duration=3"),
        *("-map", "2:v", "-map", "1:a", "-map", "0:a"),
    )
    header = probe(path, _LIMITS)
    assert header.audio_indexes == (1, 2)
    assert clips.scan(path, header, _LIMITS, tmp_path).audio_index == 2
