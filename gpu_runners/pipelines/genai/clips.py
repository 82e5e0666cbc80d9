"""A clip in and a film out: its frames as pictures of one size and rate, its sound kept.

Both ways go through ffmpeg with the restrictions of `probe`: one local file, known containers and
decoders, nothing that a file names is opened.
"""

import subprocess
from pathlib import Path

import imageio_ffmpeg
import msgspec
from av.error import FFmpegError
from av.video.frame import VideoFrame

from gpu_runners.pipelines.ffmpeg_ends import lacked_memory
from gpu_runners.pipelines.loudness import limited, loudest_of, settle, volume_in
from gpu_runners.pipelines.pipeline import InputError, InputReason, PipelineError
from gpu_runners.pipelines.probe import (
    CONTAINERS,
    DECODERS,
    PROTOCOLS,
    SourceHeader,
    kind_of,
    opened,
)
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.signatures import FILM
from schema.failures import FailureClass

_FRAME = "%05d.png"
_AUDIO_RATE = 48_000
_THREADS = "2"
_STDERR_TAIL = 500
_HD_LINES = 720
_HDR_TAGS = "setparams=color_primaries=bt2020:colorspace=bt2020nc,"
_DISK_WORDS = "No space left on device"


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a clip that is taken, and how."""

    source: Path
    header: SourceHeader
    start_seconds: float
    seconds: float
    frame_rate: int
    shown: tuple[int, int]
    """Width and height of the clip as it is shown."""
    width: int
    height: int


def take_frames(cut: Cut, folder: Path) -> list[Path]:
    """Write the frames of a cut, by their own instants, upright, filling the size.

    Of a damaged clip, those that can be decoded.

    Errors: InputError, if there are none; PipelineError, if it is not the clip's fault.
    """
    folder.mkdir()
    header = cut.header
    factor = max(cut.width / cut.shown[0], cut.height / cut.shown[1])
    width, height = (
        max(own, round(side * factor))
        for own, side in zip((cut.width, cut.height), cut.shown, strict=True)
    )
    chain = (
        f"bwdif=mode=send_frame:deint=interlaced,fps=fps={cut.frame_rate}:start_time=0:round=near,"
        f"{_light(header)}scale={width}:{height}:flags=area{_matrix(header)},setsar=1,"
        f"crop={cut.width}:{cut.height},format=rgb24"
    )
    arguments = [
        *_input(cut),
        *("-map", f"0:{header.video_index}", "-an", "-sn", "-dn", "-vf", chain),
        *("-frames:v", str(round(cut.seconds * cut.frame_rate)), "-c:v", "png", "-threads", "1"),
        *("-map_metadata", "-1", "-f", "image2", str(folder / _FRAME)),
    ]
    said = _ffmpeg(arguments)
    frames = sorted(folder.glob("*.png"))
    if not frames:
        raise _no_frames(cut, said)
    return frames


def write_film(cut: Cut, made: Path, count: int, film: Path) -> bool:
    """Join the made frames with the clip's sound, as loud as films are. Returns whether it has any.

    What can't be heard is left as it is.
    """
    seconds = count / cut.frame_rate
    index = loudest_of(cut.header.audio_indexes, lambda index: _volume(cut, index))
    sound = None if index is None else _sound(cut, index, seconds, film.with_suffix(".wav"))
    chain = (
        "scale=out_color_matrix=bt709:out_range=tv,format=yuv420p,"
        "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709"
    )
    arguments = [
        *("-framerate", str(cut.frame_rate), "-f", "image2", "-i", str(made / _FRAME)),
        *(("-f", "wav", "-i", str(sound)) if sound is not None else ()),
        *("-map", "0:v", "-vf", chain, "-c:v", "libx264", "-preset", "veryfast"),
        *("-profile:v", "high", "-crf", "20", "-maxrate", "2M", "-bufsize", "4M"),
        # One thread: x264's others would make the bytes depend on how busy the machine is.
        *("-g", str(2 * cut.frame_rate), "-threads", "1"),
    ]
    if sound is not None:
        heard = settle(sound)
        filters = "anull" if heard.before_lufs is None else limited(heard.gain_db)
        arguments += ["-map", "1:a", "-c:a", "aac", "-b:a", "128k", "-af", filters]
    arguments += [
        *("-t", f"{seconds:.6f}", "-map_metadata", "-1", "-map_chapters", "-1"),
        *("-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact"),
        *("-movflags", "+faststart", "-f", "mp4", str(film)),
    ]
    said = _ffmpeg(arguments)
    if said is not None:
        raise PipelineError(FailureClass.INTERNAL, f"ffmpeg wrote no film: {said}")
    if sound is not None:
        sound.unlink()
    return sound is not None


def _sound(cut: Cut, index: int, seconds: float, wav: Path) -> Path:
    """The sound of a cut as a file of ours, exactly as long as its film."""
    arguments = [
        *(*_input(cut), "-map", f"0:{index}", "-af"),
        f"aresample={_AUDIO_RATE}:async=1:first_pts=0,aformat=channel_layouts=stereo,apad",
        *("-t", f"{seconds:.6f}", "-c:a", "pcm_f32le", "-fflags", "+bitexact", "-f", "wav"),
        str(wav),
    ]
    said = _ffmpeg(arguments)
    if said is not None:
        raise PipelineError(FailureClass.INTERNAL, f"ffmpeg wrote no sound: {said}")
    return wav


def shown_size(header: SourceHeader, source: Path, limits: ProbeLimits) -> tuple[int, int]:
    """Width and height of a clip as it is shown. Errors: InputError, MemoryError."""
    with opened(source, limits) as container:
        stream = container.streams[header.video_index]
        try:
            frame = next((one for one in container.decode(stream)), None)
        except (MemoryError, BlockingIOError) as error:  # the second: no memory for a thread
            raise MemoryError(f"while decoding: {error}") from error
        except FFmpegError:
            frame = None
    if not isinstance(frame, VideoFrame):
        raise InputError(InputReason.DAMAGED, "The clip can't be decoded. Upload it again.")
    width, height = max(1, round(header.width * header.pixel_shape)), header.height
    return (height, width) if frame.rotation % 180 else (width, height)


def _light(header: SourceHeader) -> str:
    """Bring the colours of a clip to those of a picture."""
    if header.hdr:
        tags = "" if header.matrix_known else _HDR_TAGS
        return (
            f"{tags}zscale=t=linear:npl=203,format=gbrpf32le,zscale=p=bt709,"
            "tonemap=tonemap=mobius:param=0.5:peak=5:desat=0,"
            "zscale=t=bt709:m=bt709:r=tv,format=yuv420p,"
        )
    return ""


def _matrix(header: SourceHeader) -> str:
    """Which colours the clip is made of, where it does not say."""
    if header.hdr or header.matrix_known:
        return ""
    guess = "bt709" if header.height >= _HD_LINES else "smpte170m"
    return f":in_color_matrix={guess}"


def _input(cut: Cut) -> list[str]:
    return [
        *("-protocol_whitelist", PROTOCOLS, "-format_whitelist", CONTAINERS),
        *("-f", FILM[kind_of(cut.source)]),
        *("-codec_whitelist", ",".join(sorted(DECODERS)), "-threads", _THREADS),
        *("-ss", f"{cut.start_seconds:.6f}", "-t", f"{cut.seconds:.6f}"),
        *("-i", f"file:{cut.source.absolute()}"),
    ]


def _volume(cut: Cut, index: int) -> float:
    ended = _run(
        [
            *("-hide_banner", "-nostdin", *_input(cut), "-map", f"0:{index}"),
            *("-af", "volumedetect", "-f", "null", "-"),
        ]
    )
    return volume_in(ended.stderr)


def _ffmpeg(arguments: list[str]) -> str | None:
    """Run it; what it said, if it failed over what it was given.

    Errors: PipelineError, if it was killed, or memory or the disk was short.
    """
    ended = _run(["-hide_banner", "-nostdin", "-loglevel", "error", "-y", *arguments])
    if not ended.returncode:
        return None
    said = ended.stderr.strip()[-_STDERR_TAIL:]
    if lacked_memory(ended.stderr):
        raise PipelineError(FailureClass.OUT_OF_MEMORY, f"ffmpeg ran out of memory: {said}")
    if _DISK_WORDS in ended.stderr:
        raise PipelineError(FailureClass.INTERNAL, f"The disk is full: {said}")
    return f"exit {ended.returncode}: {said}"


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if ended.returncode < 0:
        raise PipelineError(
            FailureClass.CRASHED, f"ffmpeg was ended by signal {-ended.returncode}."
        )
    return ended


def _no_frames(cut: Cut, said: str | None) -> InputError:
    if said is None and cut.start_seconds > 0:
        return InputError(
            InputReason.TOO_SHORT,
            f"The clip has no frame after {cut.start_seconds:g} s: ask for a lower start_seconds.",
        )
    return InputError(InputReason.DAMAGED, "No frame of the clip can be decoded. Upload it again.")
