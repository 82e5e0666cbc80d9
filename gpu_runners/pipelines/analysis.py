"""One pass over a source: every frame decoded once, small; every sound sample seen once.

The pass answers what is really in the file (frames, instants, damage) and gives the features that
the shot list, the silence list and the keep list are made from.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import av.container
import msgspec
import numpy as np
from av.audio.frame import AudioFrame
from av.error import DecoderNotFoundError, FFmpegError
from av.packet import Packet
from av.stream import Stream
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe import SourceHeader, opened, too_long
from gpu_runners.pipelines.probe_limits import ProbeLimits

Floats = NDArray[np.float32]

Watch = Callable[[VideoFrame, float, int], None]
"""Sees each frame too: the frame, its instant in seconds, the degrees that it is turned by."""

WINDOW_SECONDS = 0.01
"""Sound is judged in windows of this length."""

_SMALL_PIXELS = 160 * 90
_DAMAGED_PACKETS_MAX = 0.2
_TWO_THREADS = 2
_PROGRESS_EVERY_FRAMES = 12
_MOVES_FROM = 10.0
"""A point whose colours change by less, of 255, stands still: noise of cameras and codecs."""


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """Features of a source; arrays have one row for each decoded frame, in order of time."""

    instants: NDArray[np.float64]
    """Seconds from the container's origin at which a frame appears."""
    seconds: float
    """Where the last frame ends."""
    rotation: int
    """Degrees clockwise that a player turns the picture: 0, 90, 180 or 270."""
    interlaced: bool
    change: Floats
    """Mean absolute difference to the frame before, 0 to 255; 0 for the first."""
    luma: Floats
    """Mean brightness, 0 to 255."""
    contrast: Floats
    """Standard deviation of the brightness."""
    spread: Floats
    """From the darkest to the brightest point of one colour, 0 to 255: that which differs most."""
    sharpness: Floats
    """Variance of the Laplacian of the small picture."""
    colour: Floats
    """How far from grey, on average."""
    motion_x: Floats
    """Where the picture, as it is shown, moves: the middle, 0 to 1 from the left."""
    motion_y: Floats
    """The same from the top."""
    motion: Floats
    """How much moves: mean difference beyond noise, of 255; with 0 the two above say nothing."""
    detail_x: Floats
    """Where there is something to see in the picture, as it is shown: the middle of its detail."""
    detail_y: Floats
    audio_index: int | None
    """The stream that is heard: the first that is not silent all through, else the first."""
    peak: Floats
    """Loudest sample of each window of WINDOW_SECONDS, 0 to 1; empty without sound."""
    power: Floats
    """Mean square of each window."""
    damaged_packets: int


class _Sound:
    """Windows of one audio stream, filled in as frames come."""

    def __init__(self) -> None:
        self.peak = np.zeros(1024, dtype=np.float32)
        self.power = np.zeros(1024, dtype=np.float32)
        self.end = 0

    def hear(self, frame: AudioFrame, at_seconds: float) -> None:
        samples = _mono(frame)
        first = round(at_seconds * frame.sample_rate)
        if first < 0:
            samples = samples[-first:]
            first = 0
        if not len(samples):
            return
        step = frame.sample_rate * WINDOW_SECONDS
        windows = ((first + np.arange(len(samples))) / step).astype(np.int64)
        starts = np.flatnonzero(np.diff(windows, prepend=windows[0] - 1))
        index = windows[starts]
        self._grow(int(index[-1]) + 1)
        self.peak[index] = np.maximum(self.peak[index], np.maximum.reduceat(samples, starts))
        counts = np.diff(np.append(starts, len(samples)))
        self.power[index] += np.add.reduceat(samples * samples, starts) / np.maximum(counts, step)

    def _grow(self, end: int) -> None:
        self.end = max(self.end, end)
        if end > len(self.peak):
            more = np.zeros(max(end, 2 * len(self.peak)) - len(self.peak), dtype=np.float32)
            self.peak = np.append(self.peak, more)
            self.power = np.append(self.power, more)


class _Picture:
    """Rows of features, one for each frame."""

    def __init__(self, header: SourceHeader) -> None:
        scale = min(1.0, (_SMALL_PIXELS / (header.width * header.height)) ** 0.5)
        self._width = max(16, round(header.width * scale / 2) * 2)
        self._height = max(16, round(header.height * scale / 2) * 2)
        self._before: NDArray[np.int16] | None = None
        self._size: tuple[int, int] | None = None
        self._across = (np.arange(self._width, dtype=np.float32) + 0.5) / self._width
        self._down = (np.arange(self._height, dtype=np.float32) + 0.5) / self._height
        self.rows: list[tuple[float, ...]] = []
        self.rotation = 0
        self.interlaced_frames = 0

    def see(self, frame: VideoFrame, at_seconds: float) -> None:
        size = (frame.width, frame.height)
        if self._size is None:
            self._size = size
            self.rotation = -frame.rotation % 360
        elif size != self._size:
            raise InputError(
                InputReason.UNSUPPORTED,
                f"The picture size changes inside the video, from {self._size} to {size}.",
            )
        self.interlaced_frames += frame.interlaced_frame
        small = frame.reformat(
            width=self._width, height=self._height, format="rgb24", interpolation="AREA"
        ).to_ndarray()
        colours = small.astype(np.int16)
        grey = colours.sum(axis=2, dtype=np.int16) // 3
        difference = np.abs(colours - self._before) if self._before is not None else None
        change = float(difference.mean()) if difference is not None else 0.0
        laplacian = (
            4 * grey[1:-1, 1:-1]
            - grey[:-2, 1:-1]
            - grey[2:, 1:-1]
            - grey[1:-1, :-2]
            - grey[1:-1, 2:]
        )
        colour = float(np.abs(colours - grey[:, :, None]).mean())
        self.rows.append(
            (
                at_seconds,
                change,
                float(grey.mean()),
                float(grey.std()),
                float((small.max(axis=(0, 1)) - small.min(axis=(0, 1))).max()),
                float(laplacian.var()),
                colour,
                *(self._motion(difference) if difference is not None else (0.5, 0.5, 0.0)),
                *self._detail(grey, laplacian),
            )
        )
        self._before = colours

    def _motion(self, difference: NDArray[np.int16]) -> tuple[float, float, float]:
        """Where the picture moves, as it is shown, and how much."""
        moves = difference.max(axis=2) - np.float32(_MOVES_FROM)
        np.maximum(moves, 0, out=moves)
        total = float(moves.sum())
        if total <= 0:
            return 0.5, 0.5, 0.0
        x, y = self._middle(moves, total)
        return x, y, total / moves.size

    def _detail(self, grey: NDArray[np.int16], laplacian: NDArray[np.int16]) -> tuple[float, float]:
        """Between the middle of the edges and that of what stands out in brightness."""
        edges = np.zeros(grey.shape, dtype=np.float32)
        edges[1:-1, 1:-1] = np.abs(laplacian)
        stands_out = np.abs(grey - np.float32(np.median(grey[::3, ::3])))
        sums = float(edges.sum()), float(stands_out.sum())
        if min(sums) <= 0:
            return 0.5, 0.5
        (x, y), (u, v) = self._middle(edges, sums[0]), self._middle(stands_out, sums[1])
        return (x + u) / 2, (y + v) / 2

    def _middle(self, weights: Floats, total: float) -> tuple[float, float]:
        """Where these weights of the stored picture are in the picture as it is shown."""
        x = float(weights.sum(axis=0) @ self._across) / total
        y = float(weights.sum(axis=1) @ self._down) / total
        return {90: (1 - y, x), 180: (1 - x, 1 - y), 270: (y, 1 - x)}.get(self.rotation, (x, y))


def analyse(
    path: Path,
    header: SourceHeader,
    limits: ProbeLimits,
    report: Callable[[float], None],
    watch: Watch | None = None,
) -> Analysis:
    """Decode a source once. `report` hears the fraction that is done. Errors: InputError."""
    picture = _Picture(header)
    sounds: dict[int, _Sound] = {index: _Sound() for index in header.audio_indexes}
    last_end = 0.0
    packets = damaged = 0
    with opened(path, limits) as container:
        video = container.streams[header.video_index]
        streams = [video, *(container.streams[index] for index in sounds)]
        for packet in _packets(container, streams):
            packets += 1
            frames, broken = _decoded(packet)
            damaged += broken
            for frame in frames:
                at = frame.time - header.origin_seconds if frame.time is not None else last_end
                if isinstance(frame, AudioFrame):
                    if at > limits.seconds_max:
                        continue  # the pictures decide what is too long
                    sounds[packet.stream.index].hear(frame, at)
                else:
                    picture.see(frame, max(0.0, at))
                    if watch is not None:
                        watch(frame, max(0.0, at), picture.rotation)
                    last_end = at + _frame_seconds(frame, header)
                    if last_end > limits.seconds_max:
                        raise too_long(last_end, limits)
                    if len(picture.rows) % _PROGRESS_EVERY_FRAMES == 0 and header.claimed_seconds:
                        report(min(1.0, last_end / header.claimed_seconds))
    _refuse_damage(header, frames=len(picture.rows), packets=packets, damaged=damaged)
    _refuse_short(last_end, len(picture.rows), limits)
    return _analysis(picture, sounds, last_end, damaged)


def _packets(
    container: av.container.InputContainer, streams: list[Stream]
) -> "Iterator[Packet[Stream]]":
    for stream in streams:
        stream.codec_context.thread_count = _TWO_THREADS
        stream.codec_context.thread_type = "AUTO"
    packets = container.demux(streams)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except IndexError:  # a stream that began later than the header: not one of ours
            packets = container.demux(streams)
            continue
        except MemoryError:
            raise
        except FFmpegError:  # the rest can't be read; what was decoded is counted
            return
        yield packet


def _decoded(packet: "Packet[Stream]") -> tuple[list[VideoFrame | AudioFrame], int]:
    """Frames of a packet, and 1 if it was damaged. Errors: MemoryError, InputError."""
    try:
        return [f for f in packet.decode() if isinstance(f, (VideoFrame, AudioFrame))], 0
    except (MemoryError, BlockingIOError) as error:  # the second: no memory for a thread
        raise MemoryError(f"while decoding: {error}") from error
    except DecoderNotFoundError as error:
        raise InputError(InputReason.UNSUPPORTED, "The video's codec is unknown.") from error
    except FFmpegError:
        return [], 1


def _frame_seconds(frame: VideoFrame, header: SourceHeader) -> float:
    if frame.duration and frame.time_base is not None:
        return float(frame.duration * frame.time_base)
    return float(1 / header.rate) if header.rate else 0.04


def _refuse_damage(header: SourceHeader, *, frames: int, packets: int, damaged: int) -> None:
    if frames == 0:
        raise InputError(InputReason.DAMAGED, "No frame of the video can be decoded.")
    missing = damaged > 0 and frames < header.claimed_frames / 2
    if missing or damaged > packets * _DAMAGED_PACKETS_MAX:
        raise InputError(
            InputReason.DAMAGED,
            f"The video is damaged: {damaged} of {packets} packets can't be decoded.",
        )


def _refuse_short(seconds: float, frames: int, limits: ProbeLimits) -> None:
    if frames == 1:
        raise InputError(InputReason.TOO_SHORT, "The video is a single picture.")
    if seconds < limits.seconds_min:
        raise InputError(
            InputReason.TOO_SHORT,
            f"The video is {seconds:.2f} s long; at least {limits.seconds_min:.2f} s are needed.",
        )


def _analysis(
    picture: _Picture, sounds: dict[int, _Sound], seconds: float, damaged: int
) -> Analysis:
    table = np.array(sorted(picture.rows), dtype=np.float64)
    features = table[:, 1:].astype(np.float32)
    loud = (i for i, sound in sounds.items() if sound.end and sound.peak.max() > _INAUDIBLE)
    heard = next(loud, next((i for i, sound in sounds.items() if sound.end), None))
    sound = sounds[heard] if heard is not None else _Sound()
    return Analysis(
        instants=table[:, 0],
        seconds=seconds,
        rotation=picture.rotation,
        interlaced=picture.interlaced_frames > len(picture.rows) / 2,
        change=features[:, 0],
        luma=features[:, 1],
        contrast=features[:, 2],
        spread=features[:, 3],
        sharpness=features[:, 4],
        colour=features[:, 5],
        motion_x=features[:, 6],
        motion_y=features[:, 7],
        motion=features[:, 8],
        detail_x=features[:, 9],
        detail_y=features[:, 10],
        audio_index=heard,
        peak=sound.peak[: sound.end],
        power=sound.power[: sound.end],
        damaged_packets=damaged,
    )


_INAUDIBLE = 10 ** (-60 / 20)


_FULL_SCALE = {"uint8": 2.0**7, "int16": 2.0**15, "int32": 2.0**31, "int64": 2.0**63}


def _mono(frame: AudioFrame) -> Floats:
    """Loudest channel of each sample, 0 to 1."""
    samples = frame.to_ndarray()
    if not frame.format.is_planar:
        samples = samples.reshape(-1, frame.layout.nb_channels).T
    scaled = np.nan_to_num(samples.astype(np.float32))
    kind = samples.dtype.name
    if kind == "uint8":
        scaled -= _FULL_SCALE[kind]
    scaled /= _FULL_SCALE.get(kind, 1.0)
    loudest: Floats = np.abs(scaled).max(axis=0)
    return loudest
