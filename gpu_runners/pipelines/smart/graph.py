"""The film: one ffmpeg filter graph from prepared pictures, clips and sound to film and pictures.

Each segment is a stream of exactly its frames at a steady rate; cuts join them, transitions lay
them over each other, then come the lid, the captions and the fades. All file names are our own and
all that stands in the graph are numbers and words of this module.
"""

from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from gpu_runners.pipelines.probe import SourceHeader
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.smart.ffmpeg import reading
from gpu_runners.pipelines.smart.music import RATE as AUDIO_RATE
from gpu_runners.pipelines.smart.sound import raw_input
from gpu_runners.pipelines.smart.timeline import RATE, Caption, Segment, Timeline
from schema.scenes.smart import Entrance, TransitionKind

THUMBNAILS = 10
THUMBNAIL_HEIGHT = 120

_THREADS = "2"
_GRAPH_FILE = "graph.txt"
_STRIP_FILE = "thumbnails.rgb"
_ENTRANCE_SECONDS = 0.45
_HD_LINES = 720
_HDR_TAGS = "setparams=color_primaries=bt2020:colorspace=bt2020nc,"
_TO_FILM = "scale=out_color_matrix=bt709:out_range=tv"
_TO_JPEG = "scale=in_color_matrix=bt709:out_color_matrix=smpte170m:out_range=pc"
"""A JPEG does not say its matrix: everybody takes this one for granted."""
_XFADES = {
    TransitionKind.DISSOLVE: "fade",
    TransitionKind.DIP_BLACK: "fadeblack",
    TransitionKind.DIP_WHITE: "fadewhite",
    TransitionKind.WIPE_LEFT: "wipeleft",
    TransitionKind.WIPE_RIGHT: "wiperight",
    TransitionKind.WIPE_UP: "wipeup",
    TransitionKind.WIPE_DOWN: "wipedown",
    TransitionKind.SLIDE_LEFT: "slideleft",
    TransitionKind.SLIDE_RIGHT: "slideright",
    TransitionKind.SLIDE_UP: "slideup",
    TransitionKind.SLIDE_DOWN: "slidedown",
    TransitionKind.SMOOTH_LEFT: "smoothleft",
    TransitionKind.SMOOTH_RIGHT: "smoothright",
    TransitionKind.SMOOTH_UP: "smoothup",
    TransitionKind.SMOOTH_DOWN: "smoothdown",
    TransitionKind.CIRCLE_OPEN: "circleopen",
    TransitionKind.CIRCLE_CLOSE: "circleclose",
    TransitionKind.ZOOM: "zoomin",
    TransitionKind.BLUR: "hblur",
    TransitionKind.RADIAL: "radial",
    TransitionKind.PIXELS: "pixelize",
}


class StillStream(msgspec.Struct, frozen=True, kw_only=True):
    """A photo, baked to the size of its cell."""

    file: str
    warp: str


class ClipStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a clip. Sizes are those after turning it upright."""

    file: str
    demuxer: str
    header: SourceHeader
    interlaced: bool
    start_seconds: float
    speed: float
    scaled: tuple[int, int]
    """Width and height it is scaled to."""
    crop: tuple[int, int]
    """Left and top of what is cut out, once scaled."""
    crop_end: tuple[int, int]
    """The same at the end: the cut follows what it is about."""
    size: tuple[int, int]
    """Of the cell."""
    blurred: bool
    """Whether a blurred copy fills what it does not."""
    table: str | None
    """Colour table."""
    glow: float
    warp: str


Stream = StillStream | ClipStream


class CellStream(msgspec.Struct, frozen=True, kw_only=True):
    x: int
    y: int
    stream: Stream


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A segment, ready to be shown."""

    segment: Segment
    cells: tuple[CellStream, ...]
    mat: str | None


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A caption as a picture and the place of its upper left corner."""

    caption: Caption
    file: str
    x: int
    y: int


class FilmPlan(msgspec.Struct, frozen=True, kw_only=True):
    timeline: Timeline
    scenes: tuple[Scene, ...]
    drawn: tuple[Drawn, ...]
    lid: str | None
    grain: float
    fade_in: float
    fade_out: float
    sound: str
    limits: ProbeLimits
    bit_rate_max: str
    rate_factor: int
    film: str = "film.mp4"
    poster: str = "poster.jpg"
    thumbnails: str = "thumbnails.jpg"


class _Graph:
    """Inputs and chains while they are gathered."""

    def __init__(self, plan: FilmPlan) -> None:
        self.plan = plan
        self.inputs: list[str] = []
        self.chains: list[str] = []
        self._count = 0
        self._labels = 0

    def label(self) -> str:
        self._labels += 1
        return f"[s{self._labels}]"

    def picture(self, file: str) -> str:
        self.inputs += ["-f", "image2", "-pattern_type", "none", "-framerate", str(RATE)]
        return self._input(["-i", file])

    def clip(self, stream: ClipStream, frames: int) -> str:
        seconds = frames / RATE * stream.speed + 1.0
        self.inputs += reading(self.plan.limits, stream.demuxer)
        self.inputs += ["-ss", f"{stream.start_seconds:.3f}", "-t", f"{seconds:.3f}"]
        number = self._input(["-i", f"file:{stream.file}"])
        return f"[{number}:{stream.header.video_index}]"

    def sound(self, name: str) -> str:
        return self._input(raw_input(name))

    def _input(self, arguments: list[str]) -> str:
        self.inputs += arguments
        self._count += 1
        return str(self._count - 1)

    def add(self, chain: str) -> None:
        self.chains.append(chain)


def arguments(plan: FilmPlan, directory: Path) -> list[str]:
    """Arguments of ffmpeg for this plan, to be run in the directory where its files are.

    The graph goes there as well: it may be longer than an argument can be.
    """
    graph = _Graph(plan)
    joined = _joined(graph)
    _finished(graph, joined)
    sound = graph.sound(plan.sound)
    (directory / _GRAPH_FILE).write_text(";\n".join(graph.chains))
    bits = ["-map_metadata", "-1", "-map_chapters", "-1", "-fflags", "+bitexact"]
    return [
        *("-filter_complex_threads", _THREADS),
        *graph.inputs,
        *("-/filter_complex", _GRAPH_FILE),
        *("-map", "[film]", "-map", f"{sound}:a"),
        *("-c:v", "libx264", "-preset", "veryfast", "-profile:v", "high"),
        *("-crf", str(plan.rate_factor), "-maxrate", plan.bit_rate_max),
        *("-bufsize", f"{2 * int(plan.bit_rate_max.rstrip('k'))}k", "-threads", "1"),
        *("-r", str(RATE), "-g", str(2 * RATE), "-frames:v", str(plan.timeline.frames)),
        *("-c:a", "aac", "-b:a", "160k", "-ar", str(AUDIO_RATE)),
        *bits,
        *("-flags:v", "+bitexact", "-flags:a", "+bitexact", "-movflags", "+faststart"),
        *("-f", "mp4", plan.film),
        *("-map", "[poster]", "-fps_mode", "passthrough", "-c:v", "mjpeg", "-q:v", "2"),
        *("-threads", "1", "-map_metadata", "-1", "-f", "image2", "-update", "1", plan.poster),
        *("-map", "[thumbnails]", "-fps_mode", "passthrough"),
        *("-c:v", "rawvideo", "-f", "rawvideo", _STRIP_FILE),
    ]


def join_thumbnails(plan: FilmPlan, directory: Path) -> None:
    """The small pictures side by side, without the frame that only came early."""
    raw = directory / _STRIP_FILE
    width, height = _thumbnail_size(plan.timeline)
    pictures = np.fromfile(raw, dtype=np.uint8).reshape(-1, height, width, 3)
    shown = pictures[-len(thumbnail_frames(plan.timeline)) :]
    strip = Image.fromarray(np.concatenate(list(shown), axis=1))
    strip.save(directory / plan.thumbnails, quality=82, optimize=True)
    raw.unlink()


def _thumbnail_size(timeline: Timeline) -> tuple[int, int]:
    width = timeline.width * THUMBNAIL_HEIGHT / timeline.height
    return max(2, round(width / 2) * 2), THUMBNAIL_HEIGHT


def _joined(graph: _Graph) -> str:
    """All segments one after the other: cuts are joined, transitions overlap."""
    groups: list[list[Scene]] = []
    for scene in graph.plan.scenes:
        if groups and scene.segment.transition is TransitionKind.CUT:
            groups[-1].append(scene)
        else:
            groups.append([scene])
    whole, length = "", 0
    for group in groups:
        labels = [_scene(graph, scene) for scene in group]
        frames = sum(scene.segment.frames for scene in group)
        stream = labels[0]
        if len(labels) > 1:
            stream = graph.label()
            graph.add(
                f"{''.join(labels)}concat=n={len(labels)}:v=1:a=0,"
                f"settb=1/{RATE},setpts=N,fps={RATE}{stream}"
            )
        if not whole:
            whole, length = stream, frames
            continue
        first = group[0].segment
        overlap = 2 * first.lead
        out = graph.label()
        graph.add(
            f"{whole}{stream}xfade=transition={_XFADES[first.transition]}"
            f":duration={overlap / RATE:.6f}:offset={(length - overlap) / RATE:.6f}{out}"
        )
        whole, length = out, length + frames - overlap
    return whole


def _scene(graph: _Graph, scene: Scene) -> str:
    frames = scene.segment.frames
    canvas = (graph.plan.timeline.width, graph.plan.timeline.height)
    whole = ""
    for cell in scene.cells:
        if isinstance(cell.stream, StillStream):
            stream = _still(graph, cell.stream, frames)
        else:
            stream = _clip(graph, cell.stream, frames)
        if scene.mat is None and not cell.y:
            return stream
        out = graph.label()
        if not whole:
            graph.add(f"{stream}pad={canvas[0]}:{canvas[1]}:{cell.x}:{cell.y}{out}")
        else:
            graph.add(f"{whole}{stream}overlay=x={cell.x}:y={cell.y}:eof_action=repeat{out}")
        whole = out
    if scene.mat is None:
        return whole
    mat, out = graph.label(), graph.label()
    graph.add(f"[{graph.picture(scene.mat)}:v]{_TO_FILM},format=yuva420p{mat}")
    graph.add(f"{whole}{mat}overlay=x=0:y=0:eof_action=repeat{out}")
    return out


def _still(graph: _Graph, stream: StillStream, frames: int) -> str:
    out = graph.label()
    warp = f",{stream.warp}" if stream.warp else ""
    graph.add(
        f"[{graph.picture(stream.file)}:v]{_TO_FILM},format=yuv420p,setsar=1,"
        f"loop=loop={frames - 1}:size=1:start=0,settb=1/{RATE},setpts=N{warp}{out}"
    )
    return out


def _clip(graph: _Graph, stream: ClipStream, frames: int) -> str:
    source = graph.clip(stream, frames)
    deinterlace = "bwdif=mode=send_frame:deint=interlaced," if stream.interlaced else ""
    steady, out = graph.label(), graph.label()
    graph.add(
        f"{source}{deinterlace}setpts=(PTS-STARTPTS)/{stream.speed:.4f},"
        f"fps=fps={RATE}:start_time=0:round=near,tpad=stop_mode=clone:stop=-1,"
        f"trim=end_frame={frames},settb=1/{RATE},setpts=N,{_scaled(stream)}{steady}"
    )
    if stream.blurred:
        steady = _on_blurred_copy(graph, stream, steady)
    width, height = stream.size
    if not stream.blurred:
        cropped = graph.label()
        left, top = (
            str(start) if start == end else f"'{start}+{end - start}*n/{frames}'"
            for start, end in zip(stream.crop, stream.crop_end, strict=True)
        )
        graph.add(f"{steady}crop={width}:{height}:{left}:{top}{cropped}")
        steady = cropped
    if stream.table:
        coloured = graph.label()
        graph.add(
            f"{steady}lut3d=file={stream.table}:interp=trilinear,{_TO_FILM},format=yuv420p{coloured}"
        )
        steady = coloured
    if stream.glow:
        steady = _glowing(graph, stream, steady)
    warp = f"{stream.warp}," if stream.warp else ""
    graph.add(f"{steady}{warp}setsar=1{out}")
    return out


def _scaled(stream: ClipStream) -> str:
    width, height = stream.scaled
    header = stream.header
    if header.hdr:
        tags = "" if header.matrix_known else _HDR_TAGS
        return (
            f"{tags}zscale=w={width}:h={height}:t=linear:npl=203,format=gbrpf32le,"
            "zscale=p=bt709,tonemap=tonemap=mobius:param=0.5:peak=5:desat=0,"
            "zscale=t=bt709:m=bt709:r=tv,format=yuv420p"
        )
    guess = "bt709" if header.height >= _HD_LINES else "smpte170m"
    matrix = "" if header.matrix_known else f":in_color_matrix={guess}"
    return (
        f"scale={width}:{height}:flags=bicubic{matrix}:out_color_matrix=bt709:out_range=tv,"
        "format=yuv420p"
    )


def _on_blurred_copy(graph: _Graph, stream: ClipStream, steady: str) -> str:
    width, height = stream.size
    small = (max(16, width // 12 // 2 * 2), max(16, height // 12 // 2 * 2))
    shown = min(stream.scaled[0], width), min(stream.scaled[1], height)
    one, two, behind, front, out = (graph.label() for _ in range(5))
    graph.add(f"{steady}split{one}{two}")
    graph.add(
        f"{one}scale={small[0]}:{small[1]}:force_original_aspect_ratio=increase,"
        f"crop={small[0]}:{small[1]},gblur=sigma=2.4,scale={width}:{height}:flags=bicubic,"
        f"lutyuv=y=16+(val-16)*0.55,setsar=1{behind}"
    )
    graph.add(f"{two}crop={shown[0]}:{shown[1]},setsar=1{front}")
    graph.add(f"{behind}{front}overlay=x=(W-w)/2:y=(H-h)/2{out}")
    return out


def _glowing(graph: _Graph, stream: ClipStream, steady: str) -> str:
    width, height = stream.size
    one, two, soft, out = (graph.label() for _ in range(4))
    graph.add(f"{steady}split{one}{two}")
    graph.add(
        f"{two}scale={even4(width)}:{even4(height)}:flags=area,"
        f"lutyuv=y=clip((val-90)*1.35+16\\,16\\,235),gblur=sigma={height / 360:.2f},"
        f"scale={width}:{height}:flags=bicubic,setsar=1{soft}"
    )
    graph.add(
        f"{one}{soft}blend=c0_mode=screen:c0_opacity={0.42 * stream.glow:.3f}"
        f":c1_mode=normal:c2_mode=normal{out}"
    )
    return out


def even4(value: int) -> int:
    """A quarter of a length, even."""
    return max(4, value // 8 * 2)


def _finished(graph: _Graph, joined: str) -> None:
    """Lid, grain, captions, fades; then film, poster and thumbnails."""
    plan, timeline = graph.plan, graph.plan.timeline
    if plan.lid:
        lid, out = graph.label(), graph.label()
        graph.add(f"[{graph.picture(plan.lid)}:v]{_TO_FILM},format=yuva420p{lid}")
        graph.add(f"{joined}{lid}overlay=x=0:y=0:eof_action=repeat{out}")
        joined = out
    if plan.grain:
        out = graph.label()
        graph.add(f"{joined}noise=c0s={round(2 + 9 * plan.grain)}:c0f=t:all_seed=11{out}")
        joined = out
    for drawn in plan.drawn:
        joined = _captioned(graph, joined, drawn)
    fades = ""
    if plan.fade_in:
        fades += f"fade=t=in:s=0:n={max(1, round(plan.fade_in * RATE))},"
    if plan.fade_out:
        count = min(timeline.frames // 2, max(1, round(plan.fade_out * RATE)))
        fades += f"fade=t=out:s={timeline.frames - count}:n={count},"
    # Each output gets the first frame as well: none begins, and nothing of the film is told,
    # before all have had one. The poster's own frame comes last, and stays.
    early = sorted({0, *thumbnail_frames(timeline)})
    picks = "+".join(f"eq(n\\,{frame})" for frame in early)
    width, height = _thumbnail_size(timeline)
    graph.add(
        f"{joined}split=2[shown][still0];[still0]split=2[still1][still2];"
        f"[shown]{fades}format=yuv420p,setparams=range=tv:colorspace=bt709:"
        "color_primaries=bt709:color_trc=bt709[film]"
    )
    graph.add(
        f"[still1]select=eq(n\\,0)+eq(n\\,{timeline.poster_frame}),"
        f"{_TO_JPEG},format=yuvj420p[poster]"
    )
    graph.add(
        f"[still2]select={picks},scale={width}:{height}:in_color_matrix=bt709:in_range=tv,"
        "format=rgb24[thumbnails]"
    )


def thumbnail_frames(timeline: Timeline) -> list[int]:
    """Frames in the middle of equal parts of the film."""
    count = min(THUMBNAILS, timeline.frames)
    return [(2 * i + 1) * timeline.frames // (2 * count) for i in range(count)]


def _captioned(graph: _Graph, joined: str, drawn: Drawn) -> str:
    caption, text = drawn.caption, drawn.caption.text
    start, end = caption.start_frame, caption.end_frame
    length = end - start
    entering = min(round(_ENTRANCE_SECONDS * RATE), length // 3)
    leaving = min(round(text.exit_fade * RATE), length // 3)
    fades = ""
    if text.entrance is not Entrance.NONE and entering:
        fades += f",fade=t=in:st={start / RATE:.4f}:d={entering / RATE:.4f}:alpha=1"
    if leaving:
        fades += f",fade=t=out:st={(end - leaving) / RATE:.4f}:d={leaving / RATE:.4f}:alpha=1"
    words, out = graph.label(), graph.label()
    graph.add(
        f"[{graph.picture(drawn.file)}:v]{_TO_FILM},format=yuva420p,"
        f"loop=loop={length - 1}:size=1:start=0,settb=1/{RATE},setpts=N+{start}{fades}{words}"
    )
    way = graph.plan.timeline.height * 0.055
    left = f"pow(1-clip((t-{start / RATE:.4f})*{RATE / max(1, entering):.4f},0,1),3)"
    across = {Entrance.FROM_LEFT: -2.2, Entrance.FROM_RIGHT: 2.2}.get(text.entrance, 0.0)
    along = {Entrance.RISE: 1.0, Entrance.DROP: -1.0}.get(text.entrance, 0.0)
    x = f"'{drawn.x}{across * way:+.2f}*{left}'" if across else str(drawn.x)
    y = f"'{drawn.y}{along * way:+.2f}*{left}'" if along else str(drawn.y)
    graph.add(f"{joined}{words}overlay=x={x}:y={y}:eof_action=pass{out}")
    return out


def files_of(directory: Path, plan: FilmPlan) -> tuple[Path, Path, Path]:
    """Film, poster and thumbnails."""
    return (
        directory / plan.film,
        directory / plan.poster,
        directory / plan.thumbnails,
    )
