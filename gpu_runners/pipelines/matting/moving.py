"""Animations and films, frame by frame: the same cut, held steady over time.

An animation becomes an animated WebP that lasts as long, frame by frame; a film becomes a WebM
whose VP9 has an alpha channel (or the wanted colour behind the subject), with the film's own sound.
"""

import contextlib
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import av
import av.container
import cv2
import imageio_ffmpeg
import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame
from PIL import Image

from gpu_runners.pipelines.colours import in_srgb, made_profile
from gpu_runners.pipelines.matting.canvas import Box, on_colour, refuse_long_sides, squared
from gpu_runners.pipelines.matting.cutting import cut, no_subject
from gpu_runners.pipelines.matting.pixels import Colours, CutOut, Picture, Soft
from gpu_runners.pipelines.matting.saliency import Saliency
from gpu_runners.pipelines.matting.stills import Still, read_frames
from gpu_runners.pipelines.pipeline import InputError, InputReason, PipelineError
from gpu_runners.pipelines.probe import SourceHeader, kind_of, opened, probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.signatures import FILM
from gpu_runners.pipelines.smart.ffmpeg import loudest, reading
from schema.failures import FailureClass
from schema.scenes.matting import Format, MattingParameters

FRAMES_MAX = 1_800
"""Of one film or animation: each costs as much as a picture."""
SHORT_SIDE_MAX = 720
LOWER_SHORT_SIDE_MAX = 480

_ANIMATION_PIXELS_MAX = 64_000_000
"""Of all frames together: the library wants them all at once."""
_RATE_MAX = 30
_DEFAULT_RATE = 25
_RATE_DENOMINATOR_MAX = 1_001
_HD_LINES = 720
_UNKNOWN, _BT2020 = 2, 9
"""Primaries of ITU-T H.273."""
Told = Callable[[float], None]
"""Hears the done part of one material, 0 to 1."""

_EARLIER_PART = 0.35
"""What the mask before weighs in the next one: it takes the shimmer away, and drags nothing."""
_SAME_SHOT_CHANGE_MAX = 0.08
_AHEAD = 3
_WEBP_EFFORT = 2
_STDERR_TAIL = 800
_WAIT_SECONDS_MAX = 600


class Moved(NamedTuple):
    """What was made of an animation or a film."""

    path: Path
    content_type: str
    width: int
    height: int
    frames: int
    covered: float
    refined: bool
    notes: tuple[str, ...]


class Cutter:
    """Cuts pictures that follow each other, a few at a time, in their order."""

    def __init__(
        self, saliency: Saliency, pool: Executor, wishes: MattingParameters, side_max: int
    ) -> None:
        self._saliency = saliency
        self._pool = pool
        self._wishes = wishes
        self._side_max = side_max
        self._earlier: tuple[Soft, Colours] | None = None
        self.frames = 0
        self.refined = True
        self.first: CutOut | None = None
        self._covered = 0.0

    @property
    def covered(self) -> float:
        return self._covered / max(1, self.frames)

    def cut_all(self, pictures: Iterable[Picture]) -> Iterator[CutOut]:
        """A cut-out of each; one without a subject is empty. Errors: InputError, if all are."""
        looking: deque[tuple[Picture, Future[Soft]]] = deque()
        cutting: deque[Future[CutOut]] = deque()
        for picture in pictures:
            looking.append((picture, self._pool.submit(self._saliency.look, picture.colours)))
            if len(looking) > _AHEAD:
                cutting.append(self._start(*looking.popleft()))
            if len(cutting) > _AHEAD:
                yield self._counted(cutting.popleft())
        while looking:
            cutting.append(self._start(*looking.popleft()))
        while cutting:
            yield self._counted(cutting.popleft())
        if self._covered == 0:
            raise no_subject()

    def _start(self, picture: Picture, looked: "Future[Soft]") -> "Future[CutOut]":
        mask = looked.result()
        small = cv2.resize(picture.colours, (32, 32), interpolation=cv2.INTER_AREA)
        thumb = np.asarray(small, np.uint8)
        if self._earlier is not None:
            before, thumb_before = self._earlier
            change = float(np.abs(thumb.astype(np.int16) - thumb_before).mean()) / 255
            if change < _SAME_SHOT_CHANGE_MAX:
                mask = (1 - _EARLIER_PART) * mask + _EARLIER_PART * before
        self._earlier = mask, thumb
        return self._pool.submit(self._cut, picture, mask)

    def _cut(self, picture: Picture, mask: Soft) -> CutOut:
        try:
            made = cut(picture, mask, refined=self._wishes.refine, side_max=self._side_max)
        except InputError as error:
            if error.reason != InputReason.NO_SUBJECT:
                raise
            empty = np.zeros_like(picture.colours)
            made = CutOut(empty, np.zeros(empty.shape[:2], np.uint8), refined=True)
        if self._wishes.size is None:
            return made
        whole = Box(0, 0, picture.width, picture.height)  # it must not jump from frame to frame
        return squared(made, whole, self._wishes.size, self._wishes.free_part)

    def _counted(self, future: "Future[CutOut]") -> CutOut:
        made = future.result()
        self.frames += 1
        if self.first is None and made.alpha.any():
            self.first = made
        self._covered += float((made.alpha > 0).mean())
        self.refined = self.refined and made.refined
        return made


def cut_animation(
    still: Still, cutter: Cutter, wishes: MattingParameters, path: Path, told: Told
) -> Moved:
    """Write an animated WebP. Errors: InputError."""
    width, height = still.image.size
    if still.frames > FRAMES_MAX:
        raise _too_many_frames(still.frames)
    notes: list[str] = []
    canvas = wishes.size * wishes.size if wishes.size else width * height
    scale = min(1.0, (_ANIMATION_PIXELS_MAX / (canvas * still.frames)) ** 0.5)
    refuse_long_sides(
        round((wishes.size or width) * scale), round((wishes.size or height) * scale), Format.WEBP
    )
    if scale < 1:
        notes.append("made smaller: so many frames of this size are too many")
    lasting: list[int] = []

    def pictures() -> Iterator[Picture]:
        for picture, milliseconds in read_frames(still):
            lasting.append(milliseconds)
            told(len(lasting) / still.frames)
            yield picture

    images: list[Image.Image] = []
    for made in cutter.cut_all(pictures()):
        laid = np.dstack((made.colours, made.alpha))
        if wishes.background is not None and wishes.colour is not None:
            laid = on_colour(made, wishes.colour)
        image = Image.fromarray(laid)
        if scale < 1:
            size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
            image = image.resize(size)
        images.append(image)
    images[0].save(
        path,
        "WEBP",
        save_all=True,
        append_images=images[1:],
        duration=lasting,
        loop=int(still.image.info.get("loop", 0)),
        quality=wishes.quality,
        method=_WEBP_EFFORT,
    )
    return Moved(
        path=path,
        content_type="image/webp",
        width=images[0].width,
        height=images[0].height,
        frames=cutter.frames,
        covered=cutter.covered,
        refined=cutter.refined,
        notes=tuple(notes),
    )


class Film(NamedTuple):
    """A film that may be cut, and how its frames will be."""

    path: Path
    header: SourceHeader
    limits: ProbeLimits
    rate: Fraction
    width: int
    height: int


def open_film(path: Path, limits: ProbeLimits, short_side_max: int) -> Film:
    """Judge a film by its header. Errors: InputError."""
    header = probe(path, limits)
    rate = min(header.rate or Fraction(_DEFAULT_RATE), Fraction(_RATE_MAX))
    rate = max(rate, Fraction(1)).limit_denominator(_RATE_DENOMINATOR_MAX)
    if header.claimed_seconds is not None and header.claimed_seconds * rate > FRAMES_MAX + rate:
        raise _too_many_frames(round(header.claimed_seconds * rate))
    width = Fraction(header.width) * header.pixel_shape
    height = Fraction(header.height)
    scale = min(Fraction(1), Fraction(short_side_max) / min(width, height))
    return Film(path, header, limits, rate, _even(width * scale), _even(height * scale))


def cut_film(
    film: Film, cutter: Cutter, wishes: MattingParameters, path: Path, told: Told
) -> Moved:
    """Write a WebM. Errors: InputError, PipelineError."""
    repeats: deque[int] = deque()
    seconds = film.header.claimed_seconds

    def pictures() -> Iterator[Picture]:
        done = 0
        for colours, times in _frames(film):
            repeats.append(times)
            done += times
            told(min(1.0, done / film.rate / seconds) if seconds else 0.0)
            yield Picture(colours, None)

    writer: _Writer | None = None
    count = 0
    try:
        for made in cutter.cut_all(pictures()):
            if writer is None:
                writer = _Writer(film, made, wishes, path)
            times = repeats.popleft()
            count += times
            writer.write(made, times)
        if writer is None:
            raise InputError(InputReason.DAMAGED, "No frame of the film can be decoded.")
        writer.close()
        width, height = writer.width, writer.height
    finally:
        if writer is not None:
            writer.end()
    return Moved(
        path=path,
        content_type="video/webm",
        width=width,
        height=height,
        frames=count,
        covered=cutter.covered,
        refined=cutter.refined,
        notes=_film_notes(film),
    )


def _film_notes(film: Film) -> tuple[str, ...]:
    notes: list[str] = []
    if {film.width, film.height} != {film.header.width, film.header.height}:
        notes.append(f"its frames were made {film.width} x {film.height}, before turning")
    if film.header.rate is not None and film.header.rate > _RATE_MAX:
        notes.append(f"{_RATE_MAX} frames a second are kept of {float(film.header.rate):.0f}")
    if film.header.hdr:
        notes.append("its colours are HDR's, brought to those of an ordinary screen")
    return tuple(notes)


def _frames(film: Film) -> Iterator[tuple[Colours, int]]:
    """Each picture that is shown, and for how many frames of the steady rate."""
    known: Colours | None = None
    shown = 0
    with opened(film.path, film.limits) as container:
        for frame in _decoded(container, film):
            at = (frame.time or 0.0) - film.header.origin_seconds
            index = max(0, round(at * film.rate))
            if index > FRAMES_MAX:
                raise _too_many_frames(index)
            if known is not None and index > shown:
                yield known, index - shown
            if known is None or index >= shown:
                shown = max(shown, index) if known is not None else 0
                known = _colours(frame, film)
    if known is not None:
        yield known, 1


def _decoded(container: av.container.InputContainer, film: Film) -> Iterator[VideoFrame]:
    frames = container.decode(container.streams[film.header.video_index])
    seen = 0
    while True:
        try:
            frame = next(frames)
        except StopIteration:
            return
        except MemoryError:
            raise
        except FFmpegError as error:
            raise InputError(
                InputReason.DAMAGED,
                f"The film is damaged after {seen} frames. Upload the whole file again.",
            ) from error
        if not isinstance(frame, VideoFrame):
            continue
        seen += 1
        if frame.width * frame.height > film.limits.pixels_max:
            raise InputError(InputReason.TOO_LARGE, "A frame of the film is too large.")
        yield frame


def _colours(frame: VideoFrame, film: Film) -> Colours:
    """A frame as it is shown: square pixels, turned."""
    guess = "BT2020" if film.header.hdr else "ITU709" if film.header.height >= _HD_LINES else None
    laid = frame.reformat(
        width=film.width,
        height=film.height,
        format="rgb24",
        src_colorspace=None if film.header.matrix_known else guess,
    )
    quarter_turns = round(getattr(frame, "rotation", 0) / 90) % 4
    colours = np.asarray(np.rot90(laid.to_ndarray(), quarter_turns), np.uint8)
    if film.header.hdr:
        primaries = int(frame.color_primaries)
        wide = made_profile(_BT2020 if primaries == _UNKNOWN else primaries, int(frame.color_trc))
        colours = np.asarray(in_srgb(Image.fromarray(colours), wide))
    return np.ascontiguousarray(colours)


class _Writer:
    """ffmpeg, fed with frames; a child of the group of this process."""

    def __init__(self, film: Film, first: CutOut, wishes: MattingParameters, path: Path) -> None:
        self._colour = wishes.colour if wishes.background is not None else None
        self.height, self.width = (side // 2 * 2 for side in first.alpha.shape)
        self._errors = path.with_suffix(".log")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                _command(film, self.width, self.height, self._colour is None, path),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def write(self, made: CutOut, times: int) -> None:
        view = slice(0, self.height), slice(0, self.width)
        if self._colour is not None:
            laid = on_colour(made, self._colour)[view]
        else:
            laid = np.dstack((_filled(made), made.alpha))[view]
        data = laid.tobytes()
        stdin = self._process.stdin
        if stdin is None:  # pragma: no cover - the type's own
            return
        for _ in range(times):
            try:
                stdin.write(data)
            except BrokenPipeError as error:
                raise self._failure() from error

    def close(self) -> None:
        """Wait for the film. Errors: PipelineError."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        if self._process.wait(_WAIT_SECONDS_MAX):
            raise self._failure()

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._errors.unlink(missing_ok=True)

    def _failure(self) -> PipelineError:
        self._process.wait(_WAIT_SECONDS_MAX)
        told = self._errors.read_bytes()[-_STDERR_TAIL:].decode(errors="replace")
        return PipelineError(FailureClass.INTERNAL, f"The film could not be written: {told}")


def _filled(made: CutOut) -> Colours:
    """The subject's mean colour where it is not: black would bleed into its edges."""
    opaque = made.alpha > 0
    if not opaque.any():
        return made.colours
    mean = made.colours[opaque].mean(axis=0).astype(np.uint8)
    return np.where(opaque[..., None], made.colours, mean)


def _command(film: Film, width: int, height: int, alpha: bool, path: Path) -> list[str]:  # noqa: FBT001
    pixels = "rgba" if alpha else "rgb24"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-nostdin", "-loglevel", "error", "-y"]
    command += ["-protocol_whitelist", "pipe", "-f", "rawvideo", "-pix_fmt", pixels]
    command += ["-s", f"{width}x{height}", "-framerate", str(film.rate), "-i", "pipe:0"]
    sound = loudest(film.path, film.header, film.limits, path.parent)
    if sound is not None:
        command += reading(film.limits, FILM[kind_of(film.path)])
        command += ["-i", f"file:{film.path.absolute()}", "-map", "0:v:0", "-map", f"1:{sound}"]
        command += ["-c:a", "libopus", "-b:a", "128k", "-ac", "2", "-shortest"]
    kept = "yuva420p" if alpha else "yuv420p"
    command += ["-vf", f"scale=out_color_matrix=bt709:out_range=tv,format={kept}"]
    command += ["-c:v", "libvpx-vp9", "-crf", "28", "-b:v", "0", "-deadline", "good"]
    command += ["-cpu-used", "5", "-row-mt", "1", "-threads", "2", "-auto-alt-ref", "0"]
    command += ["-color_primaries", "bt709", "-color_trc", "bt709", "-colorspace", "bt709"]
    command += ["-map_metadata", "-1", "-map_chapters", "-1"]
    return [*command, "-fflags", "+bitexact", "-f", "webm", f"file:{path.absolute()}"]


def _even(length: Fraction) -> int:
    return max(2, round(length / 2) * 2)


def _too_many_frames(count: int) -> InputError:
    return InputError(
        InputReason.TOO_LONG,
        f"It has about {count} frames; at most {FRAMES_MAX} can be cut out. "
        "Cut a shorter piece of it first.",
    )
