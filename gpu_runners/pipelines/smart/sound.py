"""The film's sound: music of a template or a track of the user's, the clips under it, -14 LUFS.

It is made before the picture, so that the cuts can follow its beats, and measured after its
limiter, so that the loudness told is that of the film.
"""

import re
from pathlib import Path

import msgspec
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.error import FFmpegError
from numpy.typing import NDArray

from gpu_runners.pipelines.beats import Beats, Onsets, find_beats
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe import opened
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.smart.ffmpeg import reading, run
from gpu_runners.pipelines.smart.music import RATE, Sound

LOUDNESS_LUFS = -14.0

_PEAK = 0.68
"""-3.3 dB: room for what comes between the samples, and for what the codec adds."""
_TRIES = 4
_CLOSE_ENOUGH_LU = 0.15
_TRACK_SECONDS_MAX = 600
_FADE_SECONDS = 1.2
_QUIET_LUFS = -60.0


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """A user's music, decoded."""

    sound: NDArray[np.float32]
    beats: Beats


class ClipSound(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a clip's own sound and its place in the film."""

    file: str
    """Within the scratch directory."""
    demuxer: str
    stream: int
    start_seconds: float
    speed: float
    at_seconds: float
    seconds: float


def is_track(path: Path, limits: ProbeLimits) -> bool:
    """Whether a file is sound without film. Errors: InputError, if it can't be opened at all."""
    with opened(path, limits) as container:
        return any(isinstance(stream, AudioStream) for stream in container.streams)


def read_track(path: Path, limits: ProbeLimits) -> Track:
    """Decode a track and find its beats. Errors: InputError."""
    heard = _Stereo()
    blocks, most = heard.blocks, _TRACK_SECONDS_MAX * RATE
    try:
        with opened(path, limits) as container:
            for frame in container.decode(container.streams.audio[0]):
                heard.take(frame)
                if heard.samples >= most:
                    break
            heard.rest()
    except (MemoryError, BlockingIOError) as error:  # the second: no memory for a thread
        raise MemoryError(f"while decoding: {error}") from error
    except (FFmpegError, IndexError) as error:
        if not blocks:
            raise InputError(
                InputReason.DAMAGED, "The music track is damaged and can't be decoded."
            ) from error
    sound = np.concatenate(blocks, axis=1) if blocks else np.zeros((2, 0), dtype=np.float32)
    sound = sound[:, :most]
    if sound.shape[1] < 2 * RATE:
        raise InputError(InputReason.TOO_SHORT, "The music track is shorter than 2 s.")
    onsets = Onsets()
    onsets.hear(_every_third(sound.mean(axis=0)))
    return Track(sound=sound, beats=find_beats(onsets.row()))


class _Stereo:
    """Frames as stereo at the film's rate, whatever a track changes to along the way."""

    def __init__(self) -> None:
        self.blocks: list[NDArray[np.float32]] = []
        self.samples = 0
        self._kind: tuple[str, str, int] | None = None
        self._resampler: AudioResampler | None = None

    def take(self, frame: AudioFrame) -> None:
        kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        if self._resampler is None or kind != self._kind:
            self.rest()
            self._resampler = AudioResampler(format="fltp", layout="stereo", rate=RATE)
            self._kind = kind
        self._keep(self._resampler.resample(frame))

    def rest(self) -> None:
        """What the resampler still holds."""
        if self._resampler is not None:
            self._keep(self._resampler.resample(None))
            self._resampler = None

    def _keep(self, frames: list[AudioFrame]) -> None:
        for frame in frames:
            block = np.asarray(frame.to_ndarray(), dtype=np.float32)
            self.samples += block.shape[1]
            self.blocks.append(block)


def _every_third(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """From 48 to 16 kHz, without what would be heard as other pitches."""
    kernel = np.sinc(np.arange(-24, 25) / 3.2) * np.hanning(49)
    return np.convolve(sound, kernel / kernel.sum(), mode="same")[::3].astype(np.float32)


def track_for(track: Track, seconds: float) -> Sound:
    """A track from its first beat on, as long as the film: gone through again, then faded out."""
    instants = track.beats.instants
    first = round(instants[0] * RATE) if instants else 0
    last = round(instants[-1] * RATE) if len(instants) > 8 else track.sound.shape[1]  # noqa: PLR2004
    count = round(seconds * RATE)
    once = track.sound[:, first:]
    if once.shape[1] < count:
        loop = track.sound[:, first:last]
        once = np.tile(loop, (1, count // max(1, loop.shape[1]) + 1))
    made = once[:, :count].astype(np.float64)
    fade = min(count, round(_FADE_SECONDS * RATE))
    made[:, count - fade :] *= np.cos(np.linspace(0, np.pi / 2, fade))
    return made


def mix(
    music: Sound,
    clips: list[ClipSound],
    gain: float,
    directory: Path,
    limits: ProbeLimits,
) -> tuple[str, float]:
    """Write `sound.f32` (stereo, 48 kHz). Gives its name and its loudness in LUFS.

    The music makes room where a clip is heard. Silence stays silence.
    """
    _write(directory / "music.f32", music)
    name = "music.f32"
    if clips and gain > 0:
        _mix_clips(clips, gain, music.shape[1] / RATE, directory, limits)
        name = "mixed.f32"
    loudness = _measured(name, "anull", directory)
    if loudness < _QUIET_LUFS:
        return name, loudness
    lift = LOUDNESS_LUFS - loudness
    for _ in range(_TRIES):
        chain = f"volume={lift:.3f}dB,alimiter=limit={_PEAK}:level=0:attack=5:release=80"
        loudness = _measured(name, chain, directory, "sound.f32")
        if abs(LOUDNESS_LUFS - loudness) <= _CLOSE_ENOUGH_LU:
            break
        lift += LOUDNESS_LUFS - loudness
    return "sound.f32", loudness


def raw_input(name: str) -> list[str]:
    """Arguments with which ffmpeg reads a raw file of this module."""
    return ["-f", "f32le", "-ar", str(RATE), "-ch_layout", "stereo", "-i", name]


def _write(path: Path, sound: Sound) -> None:
    path.write_bytes(sound.T.astype("<f4").tobytes())


def _measured(name: str, chain: str, directory: Path, out: str | None = None) -> float:
    target = ["-f", "f32le", out] if out else ["-f", "null", "-"]
    said = run(
        [*raw_input(name), "-af", f"{chain},ebur128=framelog=quiet:peak=none", *target],
        directory,
        log_level="info",
    )
    found = re.findall(r"\bI:\s+(-?[\d.]+|-?inf|nan) LUFS", said)
    value = float(found[-1]) if found else float("-inf")
    return value if value == value else float("-inf")  # noqa: PLR0124 - not a number


def _mix_clips(
    clips: list[ClipSound], gain: float, seconds: float, directory: Path, limits: ProbeLimits
) -> None:
    inputs = raw_input("music.f32")
    chains = [f"[0:a]volume={max(0.35, 1 - 0.6 * gain):.3f}[m]"]
    for i, clip in enumerate(clips, start=1):
        inputs += [*reading(limits, clip.demuxer), "-ss", f"{clip.start_seconds:.3f}"]
        inputs += ["-t", f"{clip.seconds * clip.speed + 0.2:.3f}", "-i", f"file:{clip.file}"]
        fade = min(0.12, clip.seconds / 4)
        chains.append(
            f"[{i}:{clip.stream}]aresample={RATE}:async=1:first_pts=0,"
            f"aformat=sample_fmts=fltp:channel_layouts=stereo,{_tempo(clip.speed)}"
            f"apad,atrim=end={clip.seconds:.4f},afade=t=in:d={fade:.3f},"
            f"afade=t=out:st={clip.seconds - fade:.4f}:d={fade:.3f},volume={gain:.3f},"
            f"adelay={round(clip.at_seconds * 1000)}:all=1[c{i}]"
        )
    names = "".join(f"[c{i}]" for i in range(1, len(clips) + 1))
    chains.append(
        f"[m]{names}amix=inputs={len(clips) + 1}:normalize=0:duration=first,"
        f"atrim=end={seconds:.4f}[mixed]"
    )
    (directory / "mix.txt").write_text(";\n".join(chains))  # too long for an argument
    run(
        [
            *(*inputs, "-/filter_complex", "mix.txt"),
            *("-map", "[mixed]", "-f", "f32le", "mixed.f32"),
        ],
        directory,
    )


def _tempo(speed: float) -> str:
    if speed == 1:
        return ""
    steps: list[float] = []
    while speed < 0.5:  # noqa: PLR2004 - the filter's own limit
        steps.append(0.5)
        speed /= 0.5
    return "".join(f"atempo={step:.4f}," for step in (*steps, speed))
