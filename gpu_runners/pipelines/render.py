"""The film: one ffmpeg filter graph from the source and a keep list to a film and its poster.

One decode, one encode: steady rate by the frames' own instants, exact ranges, joined with their
sound, turned once, fitted into 720p, eight bit; H.264 and AAC with the index first. Nothing of the
source's metadata (places, devices, names) goes into the film.
"""

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import imageio_ffmpeg
import msgspec

from gpu_runners.pipelines.keep_list import KeepList
from gpu_runners.pipelines.pipeline import PipelineError
from gpu_runners.pipelines.probe import CONTAINERS, PROTOCOLS, SourceHeader
from schema.failures import FailureClass

SHORT_SIDE = 720
LOWER_SHORT_SIDE = 480
"""Of a film that is made with less."""
AUDIO_RATE = 48_000

_FADE_SECONDS = 0.008
"""Sound fades this long at each join, so that it does not click."""

_HD_LINES = 720
_HDR_TAGS = "setparams=color_primaries=bt2020:colorspace=bt2020nc,"
_THREADS = "2"
_STDERR_TAIL = 800
_MEMORY_WORDS = ("Cannot allocate memory", "Resource temporarily unavailable", "malloc of size")
_ENCODER_WORDS = "Generic error in an external library"
_MICROSECONDS = 1_000_000


class Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """How a picture is fitted: scaled to `width` x `height`, centred on the canvas."""

    canvas_width: int
    canvas_height: int
    width: int
    height: int


class RenderPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides the film, beside the source's bytes."""

    source: Path
    header: SourceHeader
    rotation: int
    interlaced: bool
    audio_index: int | None
    keep: KeepList
    film: Path
    poster: Path
    short_side: int = SHORT_SIDE

    @property
    def geometry(self) -> Geometry:
        return fit(self.header, self.rotation, self.short_side)


def fit(header: SourceHeader, rotation: int, short_side: int = SHORT_SIDE) -> Geometry:
    """Fit a picture into 1280 x 720, or 720 x 1280 if it is shown upright; sizes are even.

    Another `short_side` gives another canvas of 16 to 9.
    """
    width, height = Fraction(header.width) * header.pixel_shape, Fraction(header.height)
    if rotation % 180:
        width, height = height, width
    wide = width >= height
    long_side = round(short_side * 16 / 9 / 2) * 2
    canvas = (long_side, short_side) if wide else (short_side, long_side)
    factor = min(canvas[0] / width, canvas[1] / height)
    return Geometry(
        canvas_width=canvas[0],
        canvas_height=canvas[1],
        width=min(canvas[0], max(2, round(width * factor / 2) * 2)),
        height=min(canvas[1], max(2, round(height * factor / 2) * 2)),
    )


def filter_graph(plan: RenderPlan) -> str:
    """The graph: outputs [film], [poster] and, with sound, [sound]."""
    ranges = plan.keep.ranges
    rate = plan.keep.rate
    count = len(ranges)
    deinterlace = "bwdif=mode=send_frame:deint=interlaced," if plan.interlaced else ""
    chains = [
        f"[0:{plan.header.video_index}]{deinterlace}fps=fps={rate}:start_time=0:round=near,"
        f"split={count}" + "".join(f"[v{i}]" for i in range(count))
    ]
    for i, kept in enumerate(ranges):
        chains.append(
            f"[v{i}]trim=start_frame={kept.start_frame}:end_frame={kept.end_frame},"
            f"setpts=PTS-STARTPTS[cv{i}]"
        )
    sound = plan.audio_index is not None
    if sound:
        chains += _sound_chains(plan)
    pairs = "".join(f"[cv{i}][ca{i}]" if sound else f"[cv{i}]" for i in range(count))
    chains.append(f"{pairs}concat=n={count}:v=1:a={int(sound)}[joined]" + ("[sound]" * sound))
    chains.append(f"[joined]{_picture_chain(plan)},split=2[film][still]")
    chains.append(
        f"[still]select=eq(n\\,{plan.keep.poster_frame}),scale=out_range=pc,format=yuvj420p[poster]"
    )
    return ";\n".join(chains)


def _sound_chains(plan: RenderPlan) -> list[str]:
    ranges = plan.keep.ranges
    chains = [
        f"[0:{plan.audio_index}]aresample={AUDIO_RATE}:async=1:first_pts=0,"
        f"aformat=sample_fmts=fltp:channel_layouts=stereo,asplit={len(ranges)}"
        + "".join(f"[a{i}]" for i in range(len(ranges)))
    ]
    for i, kept in enumerate(ranges):
        start = round(kept.start_frame * AUDIO_RATE / plan.keep.rate)
        end = round(kept.end_frame * AUDIO_RATE / plan.keep.rate)
        fade_out = (end - start) / AUDIO_RATE - _FADE_SECONDS
        chains.append(
            f"[a{i}]atrim=start_sample={start}:end_sample={end},asetpts=PTS-STARTPTS,"
            f"afade=t=in:d={_FADE_SECONDS},afade=t=out:st={fade_out:.6f}:d={_FADE_SECONDS}[ca{i}]"
        )
    return chains


def _picture_chain(plan: RenderPlan) -> str:
    fitted = plan.geometry
    pad = (
        f"pad={fitted.canvas_width}:{fitted.canvas_height}"
        f":{(fitted.canvas_width - fitted.width) // 4 * 2}"
        f":{(fitted.canvas_height - fitted.height) // 4 * 2},setsar=1"
    )
    if plan.header.hdr:
        tags = "" if plan.header.matrix_known else _HDR_TAGS
        return (
            f"{tags}zscale=w={fitted.width}:h={fitted.height}:t=linear:npl=203,format=gbrpf32le,"
            "zscale=p=bt709,tonemap=tonemap=mobius:param=0.5:peak=5:desat=0,"
            f"zscale=t=bt709:m=bt709:r=tv,format=yuv420p,{pad}"
        )
    guess = "bt709" if plan.header.height >= _HD_LINES else "smpte170m"
    matrix = "" if plan.header.matrix_known else f":in_color_matrix={guess}"
    return (
        f"scale={fitted.width}:{fitted.height}:flags=bicubic{matrix}"
        f":out_color_matrix=bt709:out_range=tv,format=yuv420p,{pad},"
        "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709"
    )


def arguments(plan: RenderPlan) -> list[str]:
    """The command line of ffmpeg for this plan."""
    rate = plan.keep.rate
    sound = plan.audio_index is not None
    film_sound = ["-map", "[sound]", "-c:a", "aac", "-b:a", "128k", "-ar", str(AUDIO_RATE)]
    return [
        imageio_ffmpeg.get_ffmpeg_exe(),
        *("-hide_banner", "-nostdin", "-loglevel", "error", "-y"),
        *("-progress", "pipe:1", "-stats_period", "0.2"),
        *("-filter_complex_threads", "1", "-threads", _THREADS),
        *("-protocol_whitelist", PROTOCOLS, "-format_whitelist", CONTAINERS),
        *("-copyts", "-itsoffset", f"{-plan.header.origin_seconds:.6f}", "-i", str(plan.source)),
        *("-filter_complex", filter_graph(plan)),
        *("-map", "[film]", "-c:v", "libx264", "-preset", "veryfast", "-profile:v", "high"),
        # One thread: with a bound on the rate, x264's threads look at how far the others are, and
        # the same clip would give other bytes on a busy machine.
        *("-crf", "21", "-maxrate", "2M", "-bufsize", "4M", "-threads", "1"),
        *("-r", str(rate), "-g", str(max(1, round(2 * rate)))),
        *(film_sound if sound else []),
        *("-map_metadata", "-1", "-map_chapters", "-1", "-fflags", "+bitexact"),
        *("-flags:v", "+bitexact", "-flags:a", "+bitexact", "-movflags", "+faststart"),
        *("-f", "mp4", str(plan.film)),
        *("-map", "[poster]", "-frames:v", "1", "-c:v", "mjpeg", "-q:v", "3", "-threads", "1"),
        *("-map_metadata", "-1", "-f", "image2", "-update", "1", str(plan.poster)),
    ]


def render(plan: RenderPlan, report: Callable[[float], None]) -> None:
    """Make the film. `report` hears the fraction that is written. Errors: PipelineError."""
    log = plan.film.with_suffix(".log")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*_tied_to_parent(), *arguments(plan)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        )
        try:
            _follow(process, plan.keep.seconds, report)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode:
        raise _failure(process.returncode, log)
    log.unlink()


def _follow(
    process: subprocess.Popen[str], seconds: float, report: Callable[[float], None]
) -> None:
    assert process.stdout is not None  # noqa: S101 - asked for a pipe above
    with process.stdout:
        for line in process.stdout:
            key, _, value = line.strip().partition("=")
            if key == "out_time_us" and value.isdigit():
                report(min(1.0, int(value) / _MICROSECONDS / seconds))
    process.wait()


def _tied_to_parent() -> list[str]:
    """Let the kernel end ffmpeg with the worker, even a killed one, where util-linux is there."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _failure(returncode: int, log: Path) -> PipelineError:
    said = ""
    with contextlib.suppress(OSError):
        said = log.read_text(errors="replace").strip()
    memory = any(words in said for words in _MEMORY_WORDS) or (
        resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        and _ENCODER_WORDS in said  # x264 tells no more of an allocation that failed
    )
    return PipelineError(
        FailureClass.OUT_OF_MEMORY if memory else FailureClass.INTERNAL,
        f"ffmpeg ended with {returncode}: {said[-_STDERR_TAIL:]}",
    )
