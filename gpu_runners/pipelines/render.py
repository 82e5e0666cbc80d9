"""The film: one ffmpeg filter graph from a source and its edit to a film, a poster and thumbnails.

One decode, one encode: steady rate by the frames' own instants, exact ranges, joined with their
sound, turned once, fitted or cut to the film's shape, eight bit, a title laid over, music mixed
under, loudness set; H.264 and AAC with the index first. Nothing of the source's metadata (places,
devices, names) goes into the film.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import imageio_ffmpeg
import msgspec
import numpy as np
from PIL import Image

from gpu_runners.pipelines.ffmpeg_ends import failure, tied_to_parent
from gpu_runners.pipelines.fitting import Fit, fit_chain, lay_fit
from gpu_runners.pipelines.keep_list import KeepList
from gpu_runners.pipelines.loudness import limited
from gpu_runners.pipelines.pipeline import PipelineError
from gpu_runners.pipelines.probe import CONTAINERS, DECODERS, PROTOCOLS, SourceHeader, kind_of
from gpu_runners.pipelines.signatures import FILM
from gpu_runners.pipelines.silence import Span

SHORT_SIDE = 720
FULL_SHORT_SIDE = 1080
LOWER_SHORT_SIDE = 480
"""Of a film that is made with less."""
AUDIO_RATE = 48_000
THUMBNAILS_MAX = 10
TITLE_SECONDS = 3.6
"""A title stands this long, less if the film is shorter."""

_FADE_SECONDS = 0.008
"""Sound fades this long at each join, so that it does not click."""
_TITLE_FADE_SECONDS = 0.4
_LAST_FADE_SECONDS = 0.3
_MUSIC_FADE_SECONDS = 1.2
"""The film's sound ends softly, music more so."""
_DUCK_SECONDS = 0.3
"""Music goes down this long before somebody speaks, and comes up this long after."""
_VOICE_DB, _MUSIC_DB = -20.0, -20.0
"""Power of speech and of music that is heard alone, before the loudness of the film is set."""
_MUSIC_UNDER_SPEECH_DB = -16.0
_SOUNDS_UNDER_MUSIC_DB = -12.0
_GAIN_DB_MAX = 30.0
_THUMBNAIL_SHORT_SIDE = 120
_CANVAS_MIN = 32

_HD_LINES = 720
_HDR_TAGS = "setparams=color_primaries=bt2020:colorspace=bt2020nc,"
_THREADS = "2"
_MICROSECONDS = 1_000_000
_BIT_RATES = {SHORT_SIDE: "2M", FULL_SHORT_SIDE: "6M", LOWER_SHORT_SIDE: "1M"}
_STRIP_FILE = "thumbnails.rgb"
_GRAPH_FILE = "graph.txt"
_MIX_GRAPH_FILE = "mix-graph.txt"
"""Graphs stand in files: of many ranges, one is longer than a word of a command line may be."""


class Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """How a picture is laid: scaled to `width` x `height`, centred on or cut to the canvas."""

    canvas_width: int
    canvas_height: int
    width: int
    height: int


class Music(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of music under the whole film, again from its beginning when it ends."""

    path: Path
    audio_index: int
    start_seconds: float
    """Where in the piece the film begins."""
    level_db: float
    """Mean power, in dB of full scale."""


class Camera(msgspec.Struct, frozen=True, kw_only=True):
    """A window of the film's shape that moves over the picture along one side."""

    across: bool
    middles: tuple[float, ...]
    """Of the window, for each frame of the film, 0 to 1 of that side."""
    fits: tuple[Fit | None, ...] = ()
    """For each kept range: how it is shown instead of through the window; empty: none is."""


class _Run(NamedTuple):
    """Kept ranges that follow each other and are shown alike."""

    number: int
    ranges: range
    """Their places among all."""
    frame: int
    """Of the film, its first."""
    frames: int
    fit: Fit | None


class RenderPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides the film, beside the source's bytes."""

    source: Path
    header: SourceHeader
    rotation: int
    interlaced: bool
    audio_index: int | None
    keep: KeepList
    film: Path
    """The other files stand beside it."""
    short_side: int = SHORT_SIDE
    ratio: Fraction | None = None
    """Width by height of the film; None: that of the source."""
    camera: Camera | None = None
    """None: the whole picture is shown, with bars if its shape is another."""
    title: Path | None = None
    """A transparent picture as large as the canvas."""
    music: Music | None = None
    voice_db: float | None = None
    """Mean power of the source's speech, or of its sound if nobody speaks; None: it is silent."""
    speech: tuple[Span, ...] = ()
    """Where somebody speaks, in seconds of the film."""
    gain_db: float | None = None
    """Brings the mixed sound to its loudness; None: left as it is."""

    @property
    def geometry(self) -> Geometry:
        shape = shown_ratio(self.header, self.rotation)
        return lay(shape, self.ratio, self.short_side, covering=self.camera is not None)

    @property
    def has_sound(self) -> bool:
        return self.audio_index is not None or self.music is not None

    @property
    def poster(self) -> Path:
        return self.film.with_name("poster.jpg")

    @property
    def thumbnails(self) -> Path:
        return self.film.with_name("thumbnails.jpg")

    @property
    def thumbnail_count(self) -> int:
        return min(THUMBNAILS_MAX, self.keep.frames)

    @property
    def thumbnail_step(self) -> int:
        """Frames of the film from one thumbnail to the next."""
        return self.keep.frames // self.thumbnail_count

    @property
    def thumbnail_size(self) -> tuple[int, int]:
        laid = self.geometry
        scale = _THUMBNAIL_SHORT_SIDE / min(laid.canvas_width, laid.canvas_height)
        width, height = (
            max(2, round(side * scale / 2) * 2) for side in (laid.canvas_width, laid.canvas_height)
        )
        return width, height


def shown_ratio(header: SourceHeader, rotation: int) -> Fraction:
    """Width by height of a source's picture as it is shown."""
    ratio = Fraction(header.width) * header.pixel_shape / header.height
    return 1 / ratio if rotation % 180 else ratio


def lay(shape: Fraction, ratio: Fraction | None, short_side: int, *, covering: bool) -> Geometry:
    """Lay a picture of one shape onto a canvas of another; all sizes are even.

    Without a `ratio` the canvas is the picture itself, within 16 to 9 or 9 to 16.
    """
    long_side = _even(Fraction(short_side) * 16 / 9)
    wanted = ratio or shape
    if ratio is None:
        box = (long_side, short_side) if shape >= 1 else (short_side, long_side)
        canvas = _fitted(shape, box)
    else:
        side = Fraction(short_side)
        canvas = (_even(side * wanted), short_side) if wanted >= 1 else (
            short_side, _even(side / wanted),
        )  # fmt: skip
    if covering:
        width = max(canvas[0], _even(canvas[1] * shape))
        height = max(canvas[1], _even(canvas[0] / shape))
        if width > canvas[0]:
            height = canvas[1]
    else:
        width, height = _fitted(shape, canvas)
    return Geometry(
        canvas_width=max(_CANVAS_MIN, canvas[0]),
        canvas_height=max(_CANVAS_MIN, canvas[1]),
        width=width,
        height=height,
    )


def _fitted(shape: Fraction, box: tuple[int, int]) -> tuple[int, int]:
    """The largest even size of this shape within a box."""
    return min(box[0], _even(box[1] * shape)), min(box[1], _even(box[0] / shape))


def _even(length: Fraction) -> int:
    return max(2, round(length / 2) * 2)


def filter_graph(plan: RenderPlan) -> str:
    """The graph: outputs [film], [poster], [thumbnails] and, with sound, [sound]."""
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
    chains += _joined_chains(plan)
    chains += _title_chains(plan)
    # The first frame goes to every output too: none of them is told to be ready, and no progress is
    # told, before all have had one. The poster's own frame comes last, and stays.
    chains.append(
        f"[still]select=eq(n\\,0)+eq(n\\,{plan.keep.poster_frame}),scale=out_range=pc,"
        "format=yuvj420p[poster]"
    )
    width, height = plan.thumbnail_size
    chains.append(
        f"[strip]select=not(mod(n\\,{plan.thumbnail_step})),scale={width}:{height},"
        "format=rgb24[thumbnails]"
    )
    if plan.has_sound:
        chains += sound_chains(plan)
    return ";\n".join(chains)


def _joined_chains(plan: RenderPlan) -> list[str]:
    """From the ranges to the film's pictures, thrice: each run of ranges is laid in its own way."""
    runs = _runs(plan)
    ends = ",split=3[main][still][strip]"
    chains: list[str] = []
    for run in runs:
        ranges = "".join(f"[cv{i}]" for i in run.ranges)
        end = ends if len(runs) == 1 else f"[run{run.number}]"
        chains.append(
            f"{ranges}concat=n={len(run.ranges)}:v=1:a=0,{_picture_chain(plan, run)}{end}"
        )
    if len(runs) > 1:
        joined = "".join(f"[run{run.number}]" for run in runs)
        chains.append(f"{joined}concat=n={len(runs)}:v=1:a=0{ends}")
    return chains


def _runs(plan: RenderPlan) -> list[_Run]:
    ranges = plan.keep.ranges
    fits = plan.camera.fits if plan.camera and plan.camera.fits else (None,) * len(ranges)
    runs: list[_Run] = []
    for fit, group in groupby(range(len(ranges)), key=lambda i: fits[i]):
        first, *more = group
        members = range(first, first + 1 + len(more))
        frame = runs[-1].frame + runs[-1].frames if runs else 0
        frames = sum(ranges[i].frames for i in members)
        runs.append(_Run(len(runs), members, frame, frames, fit))
    return runs


def sound_chains(plan: RenderPlan) -> list[str]:
    """The sound of the film, from the inputs to [sound]."""
    chains: list[str] = []
    seconds = plan.keep.seconds
    if plan.audio_index is not None:
        chains += _own_sound(plan)
    fade = _LAST_FADE_SECONDS
    if plan.music is not None:
        fade = _MUSIC_FADE_SECONDS
        under = [span for span in _merged(plan.speech) if span.seconds > 0]
        level = _gain(plan.music.level_db, _MUSIC_DB)
        loud = _levels(under, during=level + _MUSIC_UNDER_SPEECH_DB, else_=level)
        start = plan.music.start_seconds
        chains.append(
            f"[1:{plan.music.audio_index}]aresample={AUDIO_RATE},"
            "aformat=sample_fmts=fltp:channel_layouts=stereo,"
            f"atrim=start={start:.6f}:duration={seconds:.6f},asetpts=PTS-STARTPTS,"
            f"apad=whole_dur={seconds:.6f},asetnsamples=n=480:p=0,{loud}[music]"
        )
        if plan.audio_index is not None:
            own = _gain(plan.voice_db, _VOICE_DB) if plan.voice_db is not None else 0.0
            loud = _levels(under, during=own, else_=own + _SOUNDS_UNDER_MUSIC_DB)
            chains.append(f"[own]asetnsamples=n=480:p=0,{loud}[voice]")
            chains.append("[voice][music]amix=inputs=2:duration=first:normalize=0[mix]")
    last = "[own]" if plan.music is None else "[mix]" if plan.audio_index is not None else "[music]"
    gain = f"{limited(plan.gain_db)}," if plan.gain_db is not None else ""
    fade = min(fade, seconds / 4)
    chains.append(
        f"{last}{gain}aformat=sample_fmts=fltp:channel_layouts=stereo,"
        f"afade=t=out:st={seconds - fade:.6f}:d={fade:.6f}[sound]"
    )
    return chains


def _own_sound(plan: RenderPlan) -> list[str]:
    ranges = plan.keep.ranges
    count = len(ranges)
    chains = [
        f"[0:{plan.audio_index}]aresample={AUDIO_RATE}:async=1:first_pts=0,"
        f"aformat=sample_fmts=fltp:channel_layouts=stereo,asplit={count}"
        + "".join(f"[a{i}]" for i in range(count))
    ]
    before = 0
    for i, kept in enumerate(ranges):
        start = round(kept.start_frame * AUDIO_RATE / plan.keep.rate)
        after = before + kept.frames
        samples = round(after * AUDIO_RATE / plan.keep.rate) - round(
            before * AUDIO_RATE / plan.keep.rate
        )
        before = after
        fade_out = samples / AUDIO_RATE - _FADE_SECONDS
        chains.append(
            f"[a{i}]atrim=start_sample={start}:end_sample={start + samples},asetpts=PTS-STARTPTS,"
            f"apad=whole_len={samples},"
            f"afade=t=in:d={_FADE_SECONDS},afade=t=out:st={fade_out:.6f}:d={_FADE_SECONDS}[ca{i}]"
        )
    joined = "".join(f"[ca{i}]" for i in range(count))
    chains.append(f"{joined}concat=n={count}:v=0:a=1[own]")
    return chains


def _merged(speech: tuple[Span, ...]) -> list[Span]:
    """Spans with little between them as one: music that goes up and down all the time is tiring."""
    merged: list[Span] = []
    for span in speech:
        if merged and span.start - merged[-1].end < 4 * _DUCK_SECONDS:
            merged[-1] = Span(start=merged[-1].start, end=span.end)
        else:
            merged.append(span)
    return merged


def _gain(level_db: float, wanted_db: float) -> float:
    return max(-_GAIN_DB_MAX, min(_GAIN_DB_MAX, wanted_db - level_db))


def _levels(spans: list[Span], *, during: float, else_: float) -> str:
    """A filter that sets one level in the spans and another elsewhere, both in dB, with ramps."""
    low, high = 10 ** (else_ / 20), 10 ** (during / 20)
    if not spans:
        return f"volume={low:.5f}:precision=float"
    ramps = "+".join(
        f"clip(min((t-{span.start:.3f})/{_DUCK_SECONDS}+1\\,({span.end:.3f}-t)/{_DUCK_SECONDS}+1)"
        "\\,0\\,1)"
        for span in spans
    )
    return f"volume=volume={low:.5f}+{high - low:.5f}*({ramps}):eval=frame:precision=float"


def _picture_chain(plan: RenderPlan, run: _Run) -> str:
    """Scaling, colours and shape of a run of ranges."""
    laid = plan.geometry
    size = laid.width, laid.height
    if plan.camera is None:
        shape = (
            f"pad={laid.canvas_width}:{laid.canvas_height}"
            f":{(laid.canvas_width - laid.width) // 4 * 2}"
            f":{(laid.canvas_height - laid.height) // 4 * 2}"
        )
    elif run.fit is None:
        shape = _camera_chain(plan, run)
    else:
        canvas = laid.canvas_width, laid.canvas_height
        source = float(shown_ratio(plan.header, plan.rotation))
        fitted = lay_fit(run.fit, canvas, source, across=plan.camera.across)
        size, shape = fitted.scaled, fit_chain(run.fit, fitted, f"run{run.number}")
    bt709 = "range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709"
    if plan.header.hdr:
        tags = "" if plan.header.matrix_known else _HDR_TAGS
        return (
            f"{tags}zscale=w={size[0]}:h={size[1]}:t=linear:npl=203,format=gbrpf32le,"
            "zscale=p=bt709,tonemap=tonemap=mobius:param=0.5:peak=5:desat=0,"
            f"zscale=t=bt709:m=bt709:r=tv,format=yuv420p,{shape},setsar=1"
            + (f",setparams={bt709}" if run.fit else "")
        )
    guess = "bt709" if plan.header.height >= _HD_LINES else "smpte170m"
    matrix = "" if plan.header.matrix_known else f":in_color_matrix={guess}"
    return (
        f"scale={size[0]}:{size[1]}:flags=bicubic{matrix}"
        f":out_color_matrix=bt709:out_range=tv,format=yuv420p,{shape},setsar=1,setparams={bt709}"
    )


def _camera_chain(plan: RenderPlan, run: _Run) -> str:
    """The window; where it moves, a list of orders beside the film moves it frame by frame."""
    laid, offsets = plan.geometry, _run_offsets(plan, run)
    side = "x" if plan.camera and plan.camera.across else "y"
    first = offsets[0]
    x, y = (first, 0) if side == "x" else (0, first)
    crop = f"crop@camera{run.number}={laid.canvas_width}:{laid.canvas_height}:{x}:{y}:exact=1"
    still = all(offset == first for offset in offsets)
    return crop if still else f"sendcmd=f={_camera_file(run)},{crop}"


def _camera_file(run: _Run) -> str:
    return f"camera{run.number}.txt"


def _run_offsets(plan: RenderPlan, run: _Run) -> list[int]:
    return camera_offsets(plan)[run.frame : run.frame + run.frames]


def camera_offsets(plan: RenderPlan) -> list[int]:
    """Left or upper edge of the window in each frame of the film, in pixels of the picture."""
    if plan.camera is None:
        return []
    laid = plan.geometry
    whole, window = (
        (laid.width, laid.canvas_width) if plan.camera.across else (laid.height, laid.canvas_height)
    )
    return [
        max(0, min(whole - window, round(middle * whole - window / 2)))
        for middle in plan.camera.middles
    ]


def _write_cameras(plan: RenderPlan) -> None:
    """Orders for `sendcmd`: each a little before its frame, and only where something changes."""
    side = "x" if plan.camera and plan.camera.across else "y"
    for run in _runs(plan):
        if run.fit is not None:
            continue
        offsets = _run_offsets(plan, run)
        lines = [
            f"{max(0.0, (frame - 0.5) / float(plan.keep.rate)):.5f} "
            f"crop@camera{run.number} {side} {offset};"
            for frame, offset in enumerate(offsets)
            if frame == 0 or offset != offsets[frame - 1]
        ]
        (plan.film.parent / _camera_file(run)).write_text("\n".join(lines) + "\n")


def _title_chains(plan: RenderPlan) -> list[str]:
    if plan.title is None:
        return ["[main]null[film]"]
    place = 2 if plan.music is not None else 1
    rate = plan.keep.rate
    frames = int(min(TITLE_SECONDS, plan.keep.seconds) * rate)
    fade = max(1, int(min(_TITLE_FADE_SECONDS * rate, frames / 4)))
    tags = "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709"
    fades = f"fade=t=in:s=0:n={fade}:alpha=1,fade=t=out:s={frames - fade - 1}:n={fade}:alpha=1"
    still = f"loop=loop={frames - 1}:size=1,settb={1 / rate},setpts=N"
    return [
        f"[{place}:v]format=yuva420p,{still},{fades}[title]",
        f"[main][title]overlay=0:0:eof_action=pass:format=yuv420,{tags}[film]",
    ]


def _inputs(plan: RenderPlan) -> list[str]:
    origin = ["-copyts", "-itsoffset", f"{-plan.header.origin_seconds:.6f}"]
    inputs = ["-threads", _THREADS, *_media(plan.source), *origin]
    inputs += ["-i", str(plan.source.absolute())]
    if plan.music is not None:
        music = plan.music.path
        inputs += [*_media(music), "-stream_loop", "-1", "-i", str(music.absolute())]
    if plan.title is not None:
        inputs += ["-protocol_whitelist", PROTOCOLS, "-format_whitelist", "png_pipe"]
        inputs += ["-f", "png_pipe", "-codec_whitelist", "png"]
        inputs += ["-i", str(plan.title.absolute())]
    return inputs


def _media(path: Path) -> list[str]:
    """Options before an input that a user sent: it is what its first bytes say, and no more."""
    return [
        *("-protocol_whitelist", PROTOCOLS, "-format_whitelist", CONTAINERS),
        *("-f", FILM[kind_of(path)], "-codec_whitelist", ",".join(sorted(DECODERS))),
    ]


def arguments(plan: RenderPlan) -> list[str]:
    """The command line of ffmpeg for this plan; to be run in the film's folder after `render`."""
    rate = plan.keep.rate
    sound = ["-map", "[sound]", "-c:a", "aac", "-b:a", "160k", "-ar", str(AUDIO_RATE)]
    bit_rate = _BIT_RATES.get(plan.short_side, "2M")
    picture = ["-c:v", "mjpeg", "-q:v", "3", "-threads", "1", "-map_metadata", "-1"]
    picture += ["-fflags", "+bitexact", "-flags:v", "+bitexact", "-f", "image2", "-update", "1"]
    return [
        imageio_ffmpeg.get_ffmpeg_exe(),
        *("-hide_banner", "-nostdin", "-loglevel", "error", "-y"),
        *("-progress", "pipe:1", "-stats_period", "0.2"),
        *("-filter_complex_threads", "1"),
        *_inputs(plan),
        *("-/filter_complex", _GRAPH_FILE),
        *("-map", "[film]", "-c:v", "libx264", "-preset", "veryfast", "-profile:v", "high"),
        # One thread: with a bound on the rate, x264's threads look at how far the others are, and
        # the same clip would give other bytes on a busy machine.
        *("-crf", "21", "-maxrate", bit_rate, "-bufsize", f"{2 * int(bit_rate[:-1])}M"),
        *("-threads", "1", "-r", str(rate), "-g", str(max(1, round(2 * rate)))),
        *(sound if plan.has_sound else []),
        *("-map_metadata", "-1", "-map_chapters", "-1", "-fflags", "+bitexact"),
        *("-flags:v", "+bitexact", "-flags:a", "+bitexact", "-movflags", "+faststart"),
        *("-f", "mp4", plan.film.name),
        *("-map", "[poster]", "-fps_mode", "passthrough", *picture, plan.poster.name),
        *("-map", "[thumbnails]", "-fps_mode", "passthrough"),
        *("-frames:v", str(plan.thumbnail_count), "-c:v", "rawvideo", "-f", "rawvideo"),
        _STRIP_FILE,
    ]


def mix_arguments(plan: RenderPlan, mix: Path) -> list[str]:
    """The command line that writes the film's sound alone, as it comes, into a WAV file."""
    plain = _plain(plan)
    return [
        imageio_ffmpeg.get_ffmpeg_exe(),
        *("-hide_banner", "-nostdin", "-loglevel", "error", "-y"),
        *("-progress", "pipe:1", "-stats_period", "0.2", "-filter_complex_threads", "1"),
        *_inputs(plain),
        *("-/filter_complex", _MIX_GRAPH_FILE),
        *("-map", "[sound]", "-c:a", "pcm_f32le", "-f", "wav", mix.name),
    ]


def _plain(plan: RenderPlan) -> RenderPlan:
    """The plan of the sound alone, as it comes."""
    return msgspec.structs.replace(plan, gain_db=None, title=None)


def render(plan: RenderPlan, report: Callable[[float], None]) -> None:
    """Make the film. `report` hears the fraction that is written. Errors: PipelineError."""
    if plan.camera is not None:
        _write_cameras(plan)
    plan.film.with_name(_GRAPH_FILE).write_text(filter_graph(plan))
    _run(plan, arguments(plan), report)
    _join_thumbnails(plan)


def _join_thumbnails(plan: RenderPlan) -> None:
    """The small pictures side by side."""
    width, height = plan.thumbnail_size
    raw = plan.film.with_name(_STRIP_FILE)
    pictures = np.fromfile(raw, dtype=np.uint8).reshape(-1, height, width, 3)
    strip = np.concatenate(list(pictures), axis=1)
    Image.fromarray(strip).save(plan.thumbnails, quality=82, optimize=True)
    raw.unlink()


def mix_sound(plan: RenderPlan, report: Callable[[float], None]) -> Path:
    """Write the film's sound alone, to be measured; a WAV file. Errors: PipelineError."""
    mix = plan.film.with_name("mix.wav")
    graph = ";\n".join(sound_chains(_plain(plan)))
    plan.film.with_name(_MIX_GRAPH_FILE).write_text(graph)
    _run(plan, mix_arguments(plan, mix), report)
    return mix


def _run(plan: RenderPlan, command: list[str], report: Callable[[float], None]) -> None:
    log = plan.film.with_suffix(".log")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*tied_to_parent(), *command],
            cwd=plan.film.parent,
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
                done = int(value) / _MICROSECONDS / seconds
                if done < 2:  # noqa: PLR2004 - an output that has nothing yet tells nonsense
                    report(min(1.0, done))
    process.wait()


def _failure(returncode: int, log: Path) -> PipelineError:
    said = ""
    with contextlib.suppress(OSError):
        said = log.read_text(errors="replace").strip()
    return failure(returncode, said)
