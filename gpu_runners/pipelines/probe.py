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
from gpu_runners.pipelines.signatures import FILM, is_text, kinds_of, names_others

CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,wav,mp3,aac,flac,aiff,amr"
)
"""Demuxers that may open an input. Sound alone is opened too, to be refused in the right words."""

PROTOCOLS = "file"

_PICTURE_DECODERS = (
    "h264 hevc libdav1d av1 vp8 vp9 libvpx libvpx-vp9 mpeg4 msmpeg4v1 msmpeg4v2 msmpeg4 "
    "mpeg1video mpeg2video mjpeg mjpegb h263 h263p flv wmv1 wmv2 wmv3 vc1 theora prores dnxhd "
    "dvvideo ffv1 ffvhuff huffyuv utvideo magicyuv qtrle png rawvideo v210 r210 v410 cfhd "
    "cinepak svq1 svq3 vp6 vp6f vp6a jpeg2000 gif rpza 8bps flashsv flashsv2 zmbv hap dxv "
)
_SOUND_DECODERS = (
    "aac aac_latm mp3 mp3float mp2 mp2float mp1 mp1float opus libopus vorbis libvorbis flac "
    "alac ac3 eac3 dca truehd mlp amrnb amrwb libopencore_amrnb libopencore_amrwb wmav1 wmav2 "
    "wmapro wmalossless tta wavpack nellymoser speex libspeex gsm gsm_ms qdm2 mace3 mace6 "
    "adpcm_ima_qt adpcm_ima_wav adpcm_ms adpcm_swf adpcm_yamaha adpcm_g722 g722 "
    "pcm_alaw pcm_bluray pcm_dvd pcm_f32be pcm_f32le pcm_f64be pcm_f64le pcm_mulaw pcm_s16be "
    "pcm_s16be_planar pcm_s16le pcm_s16le_planar pcm_s24be pcm_s24le pcm_s24le_planar "
    "pcm_s32be pcm_s32le pcm_s32le_planar pcm_s64be pcm_s64le pcm_s8 pcm_s8_planar pcm_u8 "
    "pcm_u16be pcm_u16le pcm_u24be pcm_u24le pcm_u32be pcm_u32le"
)
DECODERS = frozenset(f"{_PICTURE_DECODERS} {_SOUND_DECODERS}".split())
"""Decoders of what phones, cameras and editors write. No other is ever run on a stranger's file."""

_MATRICES = frozenset({1, 4, 5, 6, 7, 9, 10})
"""Of YUV, that a renderer can undo: a reserved number, or the one of RGB, says nothing."""
_TRC_PQ = 16
_TRC_HLG = 18
_AUDIO_STREAMS_MAX = 8
_SNIFFED_BYTES = 4096
_MILLION = 1_000_000
_OUTER_BOXES = frozenset(
    {b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"moof", b"mfra", b"sidx", b"styp"}
    | {b"meta", b"uuid", b"udta", b"pdin", b"emsg"}
)
_STREAMED = b"\xff\xff\xff\xff"
"""Length of a RIFF file that was written into a pipe: unknown."""
_ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")


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
def opened(
    path: Path, limits: ProbeLimits, *, decoders: frozenset[str] = DECODERS, **more: str
) -> Generator[av.container.InputContainer]:
    """Open a source for reading with the restrictions of this module. Errors: InputError.

    `more` are further options of the demuxer.
    """
    kind = kind_of(path)
    options = {
        "format_whitelist": CONTAINERS,
        "protocol_whitelist": PROTOCOLS,
        "codec_whitelist": ",".join(sorted(decoders)) or "none",
        "max_pixels": str(limits.pixels_max),
    }
    try:
        container = av.open(
            f"file:{path.absolute()}",
            mode="r",
            format=FILM[kind],
            container_options=more | options,
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


def kind_of(path: Path) -> str:
    """Which of `FILM` a file is, by its first bytes. Errors: InputError."""
    with path.open("rb") as file:
        start = file.read(_SNIFFED_BYTES)
    kinds = kinds_of(start)
    if len(kinds) > 1:
        raise InputError(
            InputReason.NOT_MEDIA, f"The file is two things at once: {' and '.join(kinds)}."
        )
    if not kinds or kinds[0] not in FILM:
        what = f"a {kinds[0]} file" if kinds else "not a kind of file that is known"
        raise InputError(InputReason.NOT_MEDIA, f"This is not a video: it is {what}.")
    return kinds[0]


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
    refuse_cut_short(path, start, size)
    with opened(path, limits) as container:
        return _header(container, path, size, limits)


def claimed_size(path: Path, limits: ProbeLimits) -> tuple[int, int]:
    """The picture size that the container writes beside the film; asks no decoder. (0, 0): none.

    The library forgets a size that it would not decode; this is how to tell it from none at all.
    """
    with opened(path, limits, decoders=frozenset()) as container:
        for stream in container.streams:
            if isinstance(stream, VideoStream) and is_film(stream) and has_decoder(stream):
                return stream.codec_context.width, stream.codec_context.height
    return 0, 0


def _header(
    container: av.container.InputContainer, path: Path, size: int, limits: ProbeLimits
) -> SourceHeader:
    audio = tuple(
        s.index for s in container.streams if isinstance(s, AudioStream) and is_decodable(s)
    )
    video = _film_stream(container, has_sound=bool(audio))
    codec = video.codec_context
    width, height = codec.width, codec.height
    if width <= 0 or height <= 0:
        width, height = claimed_size(path, limits)
    if width * height > limits.pixels_max:
        raise InputError(
            InputReason.TOO_LARGE,
            f"The picture has {width} x {height} pixels; "
            f"at most {limits.pixels_max / _MILLION:.0f} million are taken.",
        )
    if codec.width <= 0 or codec.height <= 0:
        raise InputError(InputReason.DAMAGED, "The video stream does not say its picture size.")
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
        hdr=is_hdr(video),
        matrix_known=int(codec.colorspace) in _MATRICES,
        audio_indexes=audio[:_AUDIO_STREAMS_MAX],
        claimed_seconds=claimed,
        claimed_frames=video.frames,
        origin_seconds=(container.start_time or 0) / av.time_base,
        bytes=size,
    )


def is_hdr(video: VideoStream) -> bool:
    """Whether its brightness goes beyond that of an ordinary screen (PQ or HLG)."""
    return int(video.codec_context.color_trc) in (_TRC_PQ, _TRC_HLG)


def too_long(seconds: float, limits: ProbeLimits) -> InputError:
    """The refusal of a source that is longer than the limits."""
    return InputError(
        InputReason.TOO_LONG,
        f"The video is {seconds:.0f} s long; at most {limits.seconds_max:.0f} s are taken.",
    )


def _film_stream(container: av.container.InputContainer, *, has_sound: bool) -> VideoStream:
    """The first moving picture; a cover picture of a song is none."""
    for stream in container.streams:
        if isinstance(stream, VideoStream) and is_film(stream):
            if not is_decodable(stream):
                raise InputError(InputReason.UNSUPPORTED, "The video's codec is unknown.")
            return stream
    if has_sound:
        raise InputError(InputReason.NO_VIDEO, "The file has sound but no video.")
    raise InputError(InputReason.NO_VIDEO, "The file has neither video nor sound.")


def is_film(stream: VideoStream) -> bool:
    """Whether it moves; the cover of a song does not."""
    return not stream.disposition & Disposition.attached_pic


def has_decoder(stream: AudioStream | VideoStream) -> bool:
    """Whether any is known; the library's types don't say that there may be none."""
    return getattr(stream, "codec_context", None) is not None


def is_decodable(stream: AudioStream | VideoStream) -> bool:
    """Whether it may be decoded."""
    return has_decoder(stream) and stream.codec.name in DECODERS


def _claimed_seconds(container: av.container.InputContainer, video: VideoStream) -> float | None:
    if video.duration is not None and video.time_base is not None:
        return float(video.duration * video.time_base)
    return container.duration / av.time_base if container.duration is not None else None


def _refuse_text(start: bytes) -> None:
    """Text holds no film, but a playlist or a script could name other files and hosts."""
    if names_others(start):
        raise InputError(
            InputReason.NOT_MEDIA, "This is a list that names other files, not a video."
        )
    if not is_text(start):
        return
    raise InputError(InputReason.NOT_MEDIA, "This is a text file, not a video.")


def refuse_cut_short(path: Path, start: bytes, size: int) -> None:
    """Refuse half an upload: one whose outermost boxes reach beyond its end. Errors: InputError."""
    if start[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        claimed, has_index = _mp4_extent(path, size)
        if claimed > size:
            raise _cut_short(size, claimed)
        if not has_index:
            raise InputError(
                InputReason.TRUNCATED,
                "The file is cut short: its index is missing. Upload it again.",
            )
    elif start[:4] == b"RIFF":
        claimed = 8 + int.from_bytes(start[4:8], "little")
        if claimed > size and start[4:8] != _STREAMED:
            raise _cut_short(size, claimed)
    elif start[:4] == b"\x1a\x45\xdf\xa3":
        claimed = _matroska_extent(start)
        if claimed > size:
            raise _cut_short(size, claimed)
    elif (claimed := _asf_extent(start)) > size:
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
            if at + length > size and kind not in _OUTER_BOXES:
                break  # no box: some cameras write their notes behind the film
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


def _asf_extent(start: bytes) -> int:
    """How long a Windows Media file says that it is; 0 if it does not, or was broadcast."""
    at = start.find(_ASF_PROPERTIES)
    properties = start[at : at + 104]
    if at < 0 or len(properties) < 104 or properties[88] & 1:  # noqa: PLR2004 - its whole length
        return 0
    return int.from_bytes(properties[40:48], "little")


def _ebml_number(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length number of EBML at this place, and the place after it."""
    first = data[at] if at < len(data) else 0
    width = 9 - first.bit_length()
    if width > 8:  # noqa: PLR2004 - no such number
        return 0, at + 1
    value = first & ((1 << 8 - width) - 1)
    return int.from_bytes(bytes([value]) + data[at + 1 : at + width], "big"), at + width
