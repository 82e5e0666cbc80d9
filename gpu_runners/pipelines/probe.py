"""What a file is, judged by its header before anything is decoded, and why it is refused.

What the name or the container claims is believed for the limits only: what is really in the file is
counted by `analysis`. Only containers of films are opened, never a playlist, never a second file or
a host that the first one names.
"""

import contextlib
from collections.abc import Generator
from fractions import Fraction
from pathlib import Path

import av
import av.container
import msgspec
from av.audio.stream import AudioStream
from av.error import FFmpegError
from av.stream import Disposition
from av.video.stream import VideoStream

from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe_limits import ProbeLimits

CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,wav,mp3,aac,flac,aiff,amr"
)
"""Demuxers that may open an input. Sound alone is opened too, to be refused in the right words."""

PROTOCOLS = "file"

_MATRIX_UNSPECIFIED = 2
_TRC_PQ = 16
_TRC_HLG = 18
_AUDIO_STREAMS_MAX = 8
_SNIFFED_BYTES = 4096
_MILLION = 1_000_000


class SourceHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What the header says. `claimed_*` is to be checked against what can be decoded."""

    container: str
    video_index: int
    video_codec: str
    width: int
    """Of the stored picture, before rotation and pixel shape."""
    height: int
    pixel_shape: Fraction
    """Width of a pixel by its height."""
    rate: Fraction | None
    hdr: bool
    matrix_known: bool
    """Whether the colours say which matrix they were made with."""
    audio_indexes: tuple[int, ...]
    claimed_seconds: float | None
    claimed_frames: int
    """0 where the container does not say."""
    origin_seconds: float
    """The container's first instant: all times are told from here on."""
    bytes: int


@contextlib.contextmanager
def opened(path: Path, limits: ProbeLimits) -> Generator[av.container.InputContainer]:
    """Open a source for reading with the restrictions of this module. Errors: InputError."""
    options = {
        "format_whitelist": CONTAINERS,
        "protocol_whitelist": PROTOCOLS,
        "max_pixels": str(limits.pixels_max),
    }
    try:
        container = av.open(
            str(path),
            mode="r",
            container_options=options,
            options=options,
            metadata_errors="replace",
        )
    except MemoryError as error:  # a header takes little: this one asks for nonsense
        raise InputError(
            InputReason.DAMAGED,
            "The file's index is damaged: it asks for more memory than there is.",
        ) from error
    except FFmpegError as error:
        raise InputError(
            InputReason.NOT_MEDIA,
            f"This file is not a kind of video that can be read ({error.strerror}).",
        ) from error
    with container:
        yield container


def probe(path: Path, limits: ProbeLimits) -> SourceHeader:
    """Judge a file by its first bytes, its structure and its header. Errors: InputError."""
    size = path.stat().st_size
    if size == 0:
        raise InputError(InputReason.EMPTY, "The file is empty (0 bytes).")
    if size > limits.bytes_max:
        raise InputError(
            InputReason.TOO_LARGE, f"The file is larger than {limits.bytes_max} bytes."
        )
    with path.open("rb") as file:
        start = file.read(_SNIFFED_BYTES)
    _refuse_text(start)
    _refuse_cut_short(path, start, size)
    with opened(path, limits) as container:
        return _header(container, size, limits)


def _header(container: av.container.InputContainer, size: int, limits: ProbeLimits) -> SourceHeader:
    audio = tuple(
        s.index for s in container.streams if isinstance(s, AudioStream) and _decodable(s)
    )
    video = _film_stream(container, has_sound=bool(audio))
    codec = video.codec_context
    if codec.width <= 0 or codec.height <= 0:
        raise InputError(InputReason.DAMAGED, "The video stream does not say its picture size.")
    if codec.width * codec.height > limits.pixels_max:
        raise InputError(
            InputReason.TOO_LARGE,
            f"The picture has {codec.width} x {codec.height} pixels; "
            f"at most {limits.pixels_max / _MILLION:.0f} million are taken.",
        )
    claimed = _claimed_seconds(container, video)
    if claimed is not None and claimed > limits.seconds_max:
        raise too_long(claimed, limits)
    return SourceHeader(
        container=container.format.name,
        video_index=video.index,
        video_codec=codec.name,
        width=codec.width,
        height=codec.height,
        pixel_shape=video.sample_aspect_ratio or Fraction(1),
        rate=video.average_rate or video.guessed_rate,
        hdr=int(codec.color_trc) in (_TRC_PQ, _TRC_HLG),
        matrix_known=int(codec.colorspace) != _MATRIX_UNSPECIFIED,
        audio_indexes=audio[:_AUDIO_STREAMS_MAX],
        claimed_seconds=claimed,
        claimed_frames=video.frames,
        origin_seconds=(container.start_time or 0) / av.time_base,
        bytes=size,
    )


def too_long(seconds: float, limits: ProbeLimits) -> InputError:
    """The refusal of a source that is longer than the limits."""
    return InputError(
        InputReason.TOO_LONG,
        f"The video is {seconds:.0f} s long; at most {limits.seconds_max:.0f} s are taken.",
    )


def _film_stream(container: av.container.InputContainer, *, has_sound: bool) -> VideoStream:
    """The first moving picture; a cover picture of a song is none."""
    for stream in container.streams:
        if isinstance(stream, VideoStream) and not stream.disposition & Disposition.attached_pic:
            if not _decodable(stream):
                raise InputError(InputReason.UNSUPPORTED, "The video's codec is unknown.")
            return stream
    if has_sound:
        raise InputError(InputReason.NO_VIDEO, "The file has sound but no video.")
    raise InputError(InputReason.NO_VIDEO, "The file has neither video nor sound.")


def _decodable(stream: AudioStream | VideoStream) -> bool:
    """Whether a decoder for it is known; the library's types don't say that there may be none."""
    return getattr(stream, "codec_context", None) is not None


def _claimed_seconds(container: av.container.InputContainer, video: VideoStream) -> float | None:
    if video.duration is not None and video.time_base is not None:
        return float(video.duration * video.time_base)
    return container.duration / av.time_base if container.duration is not None else None


def _refuse_text(start: bytes) -> None:
    """Text holds no film, but a playlist or a script could name other files and hosts."""
    if b"\0" in start:
        return
    try:
        start[: len(start) - 3].decode()
    except UnicodeDecodeError:
        return
    raise InputError(InputReason.NOT_MEDIA, "This is a text file, not a video.")


def _refuse_cut_short(path: Path, start: bytes, size: int) -> None:
    """Refuse half an upload: one whose outermost boxes reach beyond its end."""
    if start[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        claimed, has_index = _mp4_extent(path, size)
        if claimed > size:
            raise _cut_short(size, claimed)
        if not has_index:
            raise InputError(
                InputReason.TRUNCATED,
                "The file is cut short: its index is missing. Upload it again.",
            )
    elif start[:4] == b"RIFF" and start[8:12] == b"AVI ":
        claimed = 8 + int.from_bytes(start[4:8], "little")
        if claimed > size:
            raise _cut_short(size, claimed)
    elif start[:4] == b"\x1a\x45\xdf\xa3":
        claimed = _matroska_extent(start)
        if claimed > size:
            raise _cut_short(size, claimed)


def _cut_short(size: int, claimed: int) -> InputError:
    return InputError(
        InputReason.TRUNCATED,
        f"The file is cut short: {size} of {claimed} bytes are here. Upload it again.",
    )


def _mp4_extent(path: Path, size: int) -> tuple[int, bool]:
    """Where the last outermost box of an MP4 ends, and whether one of them is the index."""
    at = 0
    has_index = False
    with path.open("rb") as file:
        while at + 8 <= size:
            file.seek(at)
            head = file.read(16)
            length, kind = int.from_bytes(head[:4], "big"), head[4:8]
            has_index = has_index or kind in (b"moov", b"moof")
            if length == 1:
                length = int.from_bytes(head[8:16], "big")
            if length == 0:  # to the end of the file
                return size, has_index
            if length < 8:  # noqa: PLR2004 - a box is at least its own header
                break
            at += length
    return at, has_index


def _matroska_extent(start: bytes) -> int:
    """Where the segment of a Matroska file ends, as far as it says so; 0 if it does not."""
    length, at = _ebml_number(start, 4)
    at += length
    if start[at : at + 4] != b"\x18\x53\x80\x67":
        return 0
    length, body = _ebml_number(start, at + 4)
    width = body - at - 4
    unknown = length == (1 << 7 * width) - 1
    return 0 if unknown else body + length


def _ebml_number(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length number of EBML at this place, and the place after it."""
    first = data[at] if at < len(data) else 0
    width = 9 - first.bit_length()
    if width > 8:  # noqa: PLR2004 - no such number
        return 0, at + 1
    value = first & ((1 << 8 - width) - 1)
    return int.from_bytes(bytes([value]) + data[at + 1 : at + width], "big"), at + width
