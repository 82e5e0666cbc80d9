"""Clips with a known truth, joined from real clips of packages, for the demo and tests."""

from pathlib import Path

import msgspec

from cutlog.ffmpeg import run_ffmpeg

_AUDIO_RATE = 48_000


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of one sample, with no cut inside."""

    sample: str
    """File name of the sample."""
    start: float
    seconds: float


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    pieces: tuple[Piece, ...]
    silences: tuple[tuple[float, float], ...]
    """Where the sound is taken away, in seconds of the clip."""
    music: str = "sax.wav"
    width: int = 1280
    height: int = 720
    rate: int = 25


class ClipFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about a clip, known because it was built."""

    path: Path
    seconds: float
    cuts: tuple[float, ...]
    silences: tuple[tuple[float, float], ...]
    width: int
    height: int
    rate: int


def _piece(sample: str, start: float, seconds: float) -> Piece:
    return Piece(sample=sample, start=start, seconds=seconds)


DEMO = Recipe(
    pieces=(
        _piece("bigbuckbunny.mp4", 0.0, 4.8),
        _piece("world.mp4", 6.0, 4.0),
        _piece("bikes.mp4", 3.12, 2.2),
        _piece("carphone_pristine.mp4", 0.0, 3.6),
        _piece("bikes.mp4", 5.6, 1.8),
        _piece("b.mp4", 0.6, 3.0),
        _piece("bigbuckbunny.mp4", 1.6, 3.4),
        _piece("a.mp4", 1.6, 4.0),
    ),
    silences=((6.9, 8.5), (17.0, 18.6)),
)


def build_demo_clip(samples: list[Path], out: Path) -> ClipFacts:
    """Join the demo's clip: 26.8 s, 720p, six package clips, music, two planted silences."""
    return build_clip(samples, DEMO, out)


def build_clip(samples: list[Path], recipe: Recipe, out: Path) -> ClipFacts:
    """Build a clip by its recipe. Errors: LookupError (a sample is missing), FfmpegError."""
    places = {path.name: path for path in samples}
    missing = sorted({*(p.sample for p in recipe.pieces), recipe.music} - places.keys())
    if missing:
        raise LookupError(f"These samples are missing: {', '.join(missing)}")
    inputs: list[str] = []
    for piece in recipe.pieces:
        inputs += ["-ss", str(piece.start), "-t", str(piece.seconds + 1)]
        inputs += ["-i", str(places[piece.sample])]
    inputs += ["-stream_loop", "-1", "-i", str(places[recipe.music])]
    seconds = round(sum(piece.seconds for piece in recipe.pieces), 6)
    out.parent.mkdir(parents=True, exist_ok=True)
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-threads", "2", *inputs),
        *("-filter_complex", _graph(recipe, seconds), "-map", "[v]", "-map", "[a]"),
        *("-c:v", "libx264", "-preset", "ultrafast", "-crf", "20", "-threads", "2"),
        *("-c:a", "aac", "-b:a", "160k", "-t", str(seconds), "-movflags", "+faststart"),
        str(out),
    )
    return ClipFacts(
        path=out,
        seconds=seconds,
        cuts=_cuts(recipe),
        silences=recipe.silences,
        width=recipe.width,
        height=recipe.height,
        rate=recipe.rate,
    )


def _graph(recipe: Recipe, seconds: float) -> str:
    """Pictures joined; music over a quiet room tone, so that only planted silence is silent."""
    size = f"{recipe.width}:{recipe.height}"
    chains = [
        f"[{i}:v:0]fps={recipe.rate},trim=end_frame={round(piece.seconds * recipe.rate)},"
        f"setpts=PTS-STARTPTS,scale={size}:force_original_aspect_ratio=decrease"
        f":force_divisible_by=2,pad={size}:(ow-iw)/2:(oh-ih)/2,setsar=1,format=yuv420p[v{i}]"
        for i, piece in enumerate(recipe.pieces)
    ]
    count = len(recipe.pieces)
    chains.append("".join(f"[v{i}]" for i in range(count)) + f"concat=n={count}:v=1:a=0[v]")
    gates = "".join(
        f",volume=0:enable='between(t,{start},{end})'" for start, end in recipe.silences
    )
    chains.append(
        f"anoisesrc=color=brown:seed=7:amplitude=0.3:sample_rate={_AUDIO_RATE}:"
        f"duration={seconds}[room]"
    )
    chains.append(
        f"[{count}:a:0]aresample={_AUDIO_RATE},volume=0.5,atrim=end={seconds}[music];"
        f"[music][room]amix=inputs=2:duration=first:normalize=0,"
        f"aformat=sample_fmts=fltp:channel_layouts=stereo,asetnsamples=48{gates}[a]"
    )
    return ";".join(chains)


def _cuts(recipe: Recipe) -> tuple[float, ...]:
    cuts: list[float] = []
    at = 0.0
    for piece in recipe.pieces[:-1]:
        at += round(piece.seconds * recipe.rate) / recipe.rate
        cuts.append(round(at, 6))
    return tuple(cuts)
