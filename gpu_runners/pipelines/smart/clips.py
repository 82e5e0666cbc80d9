"""Clips: how long they really are, where they cut, where they move; and the best moments of them.

A slot gets a stretch without a cut inside, not black, moving but not wild; the next slot of the
same clip gets another one.
"""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import av
import msgspec
import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from gpu_runners.pipelines.faces import FaceFinder, face_model
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe import SourceHeader, kind_of, opened
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.signatures import FILM
from gpu_runners.pipelines.smart.ffmpeg import loudest
from gpu_runners.pipelines.smart.focus import Focus, Heads, of_faces

_THUMB = (48, 27)
_LOOKS_A_SECOND = 12.5
_SCANNED_SECONDS_MAX = 40.0
_REGIONS = 5
"""A longer clip is looked at in this many places."""
_CUT_MIN = 0.16
_CUT_OVER_USUAL = 5.0
_MOTION_LIKED = 0.02
_DARK = 0.07
_PLAIN = 0.07
_DAMAGED_MAX = 20


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    """Seconds from the clip's origin."""
    change: float
    """To the glance before, 0 to 1."""
    light: float
    detail: float
    """How much the parts of the picture differ; little of it is a wall, or a fade."""
    fresh: bool = False
    """The first of a region: its change says nothing."""


class FacesAt(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    focus: Focus


class Clip(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    demuxer: str
    """What it is opened as."""
    header: SourceHeader
    seconds: float
    """Counted as far as it was decoded, else claimed."""
    rotation: int
    interlaced: bool
    shown_width: float
    """Upright, with square pixels."""
    shown_height: float
    focus: Focus
    """Of the whole clip."""
    faces: tuple[FacesAt, ...]
    glances: tuple[Glance, ...]
    cuts: tuple[float, ...]
    audio_index: int | None = None
    """The sound stream that is heard."""
    used: tuple[tuple[float, float], ...] = ()


class _Scan:
    def __init__(self, header: SourceHeader, models: Path) -> None:
        self.glances: list[Glance] = []
        self.rotation = 0
        self.interlaced = False
        self.end = 0.0
        self._before: NDArray[np.float32] | None = None
        self._due = -1.0
        model = face_model(models)
        width = float(header.width * header.pixel_shape)
        self.finder = FaceFinder(model, width, header.height) if model else None

    def jump(self) -> None:
        self._before, self._due = None, -1.0

    def see(self, frame: VideoFrame, at: float, length: float) -> None:
        self.end = max(self.end, at + length)
        if at < self._due - 1e-6:
            return
        self._due = at + 1 / _LOOKS_A_SECOND
        self.rotation = -round(frame.rotation) % 360
        self.interlaced = self.interlaced or bool(frame.interlaced_frame)
        width, height = _THUMB
        small = frame.reformat(width=width, height=height, format="rgb24", interpolation="AREA")
        pixels = np.asarray(small.to_ndarray(), dtype=np.float32) / np.float32(255)
        change = 0.0 if self._before is None else float(np.abs(pixels - self._before).mean())
        self.glances.append(
            Glance(
                at=round(at, 4),
                change=change,
                light=float(pixels.mean()),
                detail=float(pixels.mean(axis=2).std()),
                fresh=self._before is None,
            )
        )
        self._before = pixels
        if self.finder:
            self.finder.see(frame, at, self.rotation)


def scan(path: Path, header: SourceHeader, limits: ProbeLimits, models: Path) -> Clip:
    """Look through a clip. Errors: InputError, if there is nothing to see in it."""
    seen = _Scan(header, models)
    claimed = header.claimed_seconds or 0.0
    whole = claimed <= _SCANNED_SECONDS_MAX
    length = _SCANNED_SECONDS_MAX / _REGIONS
    starts = [0.0] if whole else [float(s) for s in np.linspace(0, claimed - length, _REGIONS)]
    for start in starts:
        seen.jump()
        end = start + (limits.seconds_max if whole else length)
        for frame, at, lasts in _frames(path, header, limits, start):
            if at >= end:
                break
            if at >= start - 0.5:
                seen.see(frame, at, lasts)
    if not seen.glances:
        raise InputError(InputReason.DAMAGED, "No picture of the video can be decoded.")
    seconds = seen.end if whole else max(seen.end, claimed if seen.end > claimed - 1 else seen.end)
    if seconds < 0.2:  # noqa: PLR2004 - no slot is shorter
        raise InputError(InputReason.TOO_SHORT, f"The video is only {seconds:.2f} s long.")
    faces = tuple(
        FacesAt(at=look.at, focus=of_faces(look.faces))
        for look in (seen.finder.looks if seen.finder else [])
        if look.faces
    )
    turned = seen.rotation % 180 != 0
    width, height = float(header.width * header.pixel_shape), float(header.height)
    return Clip(
        path=path,
        demuxer=FILM[kind_of(path)],
        header=header,
        seconds=round(seconds, 3),
        rotation=seen.rotation,
        interlaced=seen.interlaced,
        shown_width=height if turned else width,
        shown_height=width if turned else height,
        focus=_middle(faces, len(seen.finder.looks)) if seen.finder else Focus(),
        faces=faces,
        glances=tuple(seen.glances),
        cuts=_cuts(seen.glances),
        audio_index=loudest(path, header, limits, path.parent),
    )


def _frames(
    path: Path, header: SourceHeader, limits: ProbeLimits, start: float
) -> Iterator[tuple[VideoFrame, float, float]]:
    """Frames from about an instant on, with their instant and length. Damage is stepped over."""
    with opened(path, limits) as container:
        stream = container.streams[header.video_index]
        assert isinstance(stream, VideoStream)  # noqa: S101 - the probe has chosen it
        stream.codec_context.thread_count = 1
        usual = float(1 / (header.rate or 25))
        if start > 0:
            container.seek(round((start + header.origin_seconds) * av.time_base))
        packets = container.demux([stream])
        damaged, counted = 0, 0
        while damaged < _DAMAGED_MAX:
            try:
                frames = next(packets).decode()
            except StopIteration:
                return
            except (MemoryError, BlockingIOError) as error:  # the second: no memory for a thread
                raise MemoryError(f"while decoding: {error}") from error
            except FFmpegError:
                damaged += 1
                continue
            for frame in frames:
                if not isinstance(frame, VideoFrame):
                    continue
                own = counted * usual if frame.pts is None else frame.time - header.origin_seconds
                yield frame, max(0.0, own), usual
                counted += 1


def _middle(faces: Sequence[FacesAt], looks: int) -> Focus:
    """Where the faces are, if enough looks found some; else the middle of the picture."""
    if not faces or len(faces) * 4 < looks:
        return Focus()
    middle = np.median([(seen.focus.x, seen.focus.y) for seen in faces], axis=0)
    most = max(seen.focus.faces for seen in faces)
    found = [seen.focus.heads for seen in faces if seen.focus.heads]
    heads = functools.reduce(Heads.with_, found) if found else None
    x, y = (round(float(part), 4) for part in middle)
    return Focus(x=x, y=y, faces=most, heads=heads)


def focus_along(clip: Clip, start: float, seconds: float) -> tuple[Focus, Focus]:
    """Where the faces are at the beginning and at the end of a stretch."""
    halves: list[Focus] = []
    for half in range(2):
        low = start + half * seconds / 2
        seen = [one for one in clip.faces if low <= one.at < low + seconds / 2]
        halves.append(_middle(seen, len(seen)))
    first, last = halves
    if not first.faces and not last.faces:
        return clip.focus, clip.focus
    first, last = (first, last) if first.faces else (last, last)
    return (first, last) if last.faces else (first, first)


def _cuts(glances: list[Glance]) -> tuple[float, ...]:
    changes = np.array([glance.change for glance in glances])
    found: list[float] = []
    for i, glance in enumerate(glances):
        around = np.concatenate([changes[max(0, i - 6) : i], changes[i + 1 : i + 7]])
        usual = float(np.median(around)) if len(around) else 0.0
        if not glance.fresh and glance.change > max(_CUT_MIN, usual * _CUT_OVER_USUAL):
            found.append(glance.at)
    return tuple(found)


def best_moment(clip: Clip, seconds: float) -> float:
    """Where a stretch of this length starts best, given what is used already."""
    last = max(0.0, clip.seconds - seconds)
    places = [float(at) for at in np.arange(0.0, last + 1e-9, 0.2)] or [0.0]
    instants = np.array([glance.at for glance in clip.glances])
    changes = np.array([glance.change for glance in clip.glances])
    lights = np.array([glance.light for glance in clip.glances])
    details = np.array([glance.detail for glance in clip.glances])
    best, chosen = -np.inf, 0.0
    for start in places:
        end = start + seconds
        inside = (instants >= start) & (instants < end)
        if not inside.any():
            continue
        motion = float(np.median(changes[inside]))
        worth = min(1.0, motion / _MOTION_LIKED) - 0.6 * max(0.0, motion - 0.08) / 0.08
        worth -= 3.0 * sum(start + 0.04 < cut < end for cut in clip.cuts)
        worth -= 4.0 * float((lights[inside] < _DARK).mean())
        worth -= 3.0 * float(np.clip(1 - details[inside] / _PLAIN, 0, 1).mean())
        used = sum(max(0.0, min(end, b) - max(start, a)) for a, b in clip.used)
        worth -= 5.0 * used / seconds
        worth -= 0.15 * abs(start / (last or 1.0) - 0.4)
        if worth > best + 1e-9:
            best, chosen = worth, start
    return round(chosen, 3)


def with_used(clip: Clip, start: float, seconds: float) -> Clip:
    """The clip, remembering that a stretch of it is in the film."""
    return msgspec.structs.replace(clip, used=(*clip.used, (start, start + seconds)))
