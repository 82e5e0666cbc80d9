"""Films and sound: the header's claims against what is read and decoded.

Every packet of a film is read, so its frames are counted and its length is measured. Up to a number
of pixels every frame is decoded; beyond that one a second that stands alone, which shows damage at
a small part of the work.
"""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final

import av
import av.container
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.error import DecoderNotFoundError, FFmpegError
from av.packet import Packet
from av.stream import Stream
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from gpu_runners.pipelines.probe import (
    claimed_size,
    is_decodable,
    is_film,
    is_hdr,
    opened,
    refuse_cut_short,
)
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.probing.boxes import refuse_boxes
from gpu_runners.probing.counts import Film, Sound
from gpu_runners.probing.elements import refuse_locked_tracks
from gpu_runners.probing.limits import MaterialLimits
from gpu_runners.probing.verdicts import RefusedError
from schema.commands import MediaFacts
from schema.refusals import MaterialRefusal
from schema.words import MediaKind

_START_BYTES: Final = 4096
_SOUND_PACKETS: Final = 64
"""Of each sound stream of a film that are decoded: enough to know that it can be."""
_DAMAGED_PACKETS_MAX: Final = 0.2
_MISSING_MAX: Final = 0.02
_FEW: Final = 2
_MILLION: Final = 1_000_000
_ALPHA: Final = ("yuva", "rgba", "bgra", "argb", "abgr", "gbrap", "ya", "ayuv", "vuya")


def examine(path: Path, kind: str, limits: MaterialLimits) -> MediaFacts:
    """What the film or the sound is. Raises RefusedError, InputError, MemoryError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        refuse_cut_short(path, file.read(_START_BYTES), size)
    if kind in ("mp4", "mov"):
        refuse_boxes(path, size)
    if kind in ("matroska", "webm"):
        refuse_locked_tracks(path, size)
    opening = ProbeLimits(
        seconds_max=limits.seconds_max,
        pixels_max=limits.film_pixels_max,
        bytes_max=limits.bytes_max,
    )
    with opened(path, opening) as container:
        video, sounds = _streams(container, limits)
        if video is not None:
            _refuse_header(video, path, limits, opening)
        if video is None:
            return _sound_facts(container, kind, sounds, size, limits)
        film = Film(video, limits)
        heard = _read(container, film, sounds)
        claimed = video.frames
        facts = _film_facts(film, kind, heard, size)
    if _is_missing(film, claimed) and not _is_edited(path, film, claimed, opening):
        raise RefusedError(
            MaterialRefusal.TRUNCATED,
            f"The film is cut short: {film.frames} of {claimed} pictures can be decoded.",
        )
    return facts


def _streams(
    container: av.container.InputContainer, limits: MaterialLimits
) -> tuple[VideoStream | None, list[AudioStream]]:
    """The moving picture, and the sound. Raises RefusedError."""
    streams = list(container.streams)
    if len(streams) > limits.streams_max:
        raise RefusedError(
            MaterialRefusal.STREAMS_TOO_MANY,
            f"The file has {len(streams)} streams; at most {limits.streams_max} are taken.",
        )
    sounds = [s for s in streams if isinstance(s, AudioStream)]
    films = [s for s in streams if isinstance(s, VideoStream) and is_film(s)]
    if not films and not sounds:
        raise RefusedError(
            MaterialRefusal.NO_STREAMS, "The file has neither pictures that move nor sound."
        )
    if films:
        return films[0], [s for s in sounds if is_decodable(s)]
    usable = [s for s in sounds if is_decodable(s)]
    if not usable:
        raise RefusedError(MaterialRefusal.CODEC_UNSUPPORTED, _of_codec(sounds[0], "sound"))
    return None, usable


def _of_codec(stream: Stream, what: str) -> str:
    codec = getattr(stream, "codec_context", None)
    name = f" ({codec.name})" if codec is not None else ""
    return f"The codec of the {what} is not taken{name}."


def _refuse_header(
    video: VideoStream, path: Path, limits: MaterialLimits, opening: ProbeLimits
) -> None:
    if not is_decodable(video):
        raise RefusedError(MaterialRefusal.CODEC_UNSUPPORTED, _of_codec(video, "film"))
    width, height = video.codec_context.width, video.codec_context.height
    is_told = width > 0 and height > 0
    if not is_told:
        width, height = claimed_size(path, opening)
    if width * height > limits.film_pixels_max:
        raise RefusedError(
            MaterialRefusal.PIXELS_TOO_MANY,
            f"The film has {width} x {height} pixels; "
            f"at most {limits.film_pixels_max / _MILLION:.0f} million are taken.",
        )
    if not is_told:
        raise RefusedError(MaterialRefusal.DAMAGED, "The film does not say its picture size.")
    if video.frames > limits.frames_max:
        raise RefusedError(
            MaterialRefusal.FRAMES_TOO_MANY,
            f"The film has {video.frames} pictures; at most {limits.frames_max} are taken.",
        )


def _read(
    container: av.container.InputContainer, film: Film, sounds: list[AudioStream]
) -> list[Sound]:
    """Read a film to its end; the sounds that can be decoded."""
    heard = {sound.index: Sound(sound) for sound in sounds}
    for packet in _packets(container, [film.stream, *sounds]):
        if packet.stream.index in heard:
            sound = heard[packet.stream.index]
            if sound.packets < _SOUND_PACKETS:
                sound.take(*_decoded(packet))
            continue
        film.take(packet, *(_decoded(packet) if film.wants(packet) else (None, False)))
    film.refuse_damage(_DAMAGED_PACKETS_MAX)
    return [sound for sound in heard.values() if sound.samples]


def _packets(
    container: av.container.InputContainer, streams: list[VideoStream | AudioStream]
) -> "Iterator[Packet[Stream]]":
    """All packets of these streams, as far as they can be read."""
    for stream in streams:
        stream.codec_context.thread_count = 1
    packets = container.demux(*streams)
    while True:
        try:
            yield next(packets)
        except StopIteration:
            return
        except IndexError:  # a stream that began later than the header: not one of ours
            packets = container.demux(*streams)
        except MemoryError:
            raise
        except FFmpegError:  # the rest can't be read; what was decoded is counted
            return


def _decoded(packet: "Packet[Stream]") -> tuple[list[VideoFrame | AudioFrame], bool]:
    """Frames of a packet, and whether it was damaged."""
    try:
        return [f for f in packet.decode() if isinstance(f, (VideoFrame, AudioFrame))], False
    except (MemoryError, BlockingIOError) as error:  # the second: no memory for a thread
        raise MemoryError(f"while decoding: {error}") from error
    except DecoderNotFoundError as error:
        raise RefusedError(
            MaterialRefusal.CODEC_UNSUPPORTED, _of_codec(packet.stream, "film")
        ) from error
    except FFmpegError:
        return [], True


def _is_missing(film: Film, claimed: int) -> bool:
    found = max(film.frames, film.packets - film.damaged)
    return claimed - found > max(_FEW, claimed * _MISSING_MAX)


def _is_edited(path: Path, film: Film, claimed: int, limits: ProbeLimits) -> bool:
    """Whether the frames that a film claims are all there and its edit list leaves some out."""
    if film.container != "mov":
        return False
    with opened(path, limits, ignore_editlist="1") as container:
        stream = container.streams[film.stream_index]
        if not isinstance(stream, VideoStream):
            return False
        there = sum(packet.size > 0 for packet in _packets(container, [stream]))
    return claimed - there <= max(_FEW, claimed * _MISSING_MAX)


def _film_facts(film: Film, kind: str, heard: list[Sound], size: int) -> MediaFacts:
    video, codec = film.stream, film.stream.codec_context
    width, height = film.size
    if film.rotation in (90, 270):
        width, height = height, width
    pixel_format = str(codec.pix_fmt or "")
    alpha_beside = str(video.metadata.get("alpha_mode", "")) == "1"
    return MediaFacts(
        kind=MediaKind.VIDEO,
        container=kind,
        video_codec=video.codec.canonical_name,
        audio_codec=heard[0].codec if heard else "",
        width=width,
        height=height,
        rotation=film.rotation,
        frames=film.frames,
        duration_ms=round(film.seconds * 1000),
        frame_rate=_written(film.rate),
        pixels=width * height,
        bit_rate=round(size * 8 / max(film.seconds, 1.0)),
        has_audio=bool(heard),
        has_alpha=alpha_beside or pixel_format.startswith(_ALPHA),
        hdr=is_hdr(video),
    )


def _written(rate: Fraction) -> str:
    return f"{rate.numerator}/{rate.denominator}"


def _sound_facts(
    container: av.container.InputContainer,
    kind: str,
    streams: list[AudioStream],
    size: int,
    limits: MaterialLimits,
) -> MediaFacts:
    """Sound alone is decoded whole, its first stream."""
    sound = Sound(streams[0])
    for packet in _packets(container, [streams[0]]):
        sound.take(*_decoded(packet))
        if sound.seconds > limits.seconds_max:
            raise RefusedError(
                MaterialRefusal.MATERIAL_TOO_LONG,
                f"The sound is longer than {limits.seconds_max:.0f} s, which is the most.",
            )
    if not sound.samples or sound.damaged > sound.packets * _DAMAGED_PACKETS_MAX:
        raise RefusedError(MaterialRefusal.DAMAGED, "The sound is damaged: it can't be decoded.")
    return MediaFacts(
        kind=MediaKind.AUDIO,
        container=kind,
        audio_codec=sound.codec,
        duration_ms=round(sound.seconds * 1000),
        bit_rate=round(size * 8 / max(sound.seconds, 1.0)),
        has_audio=True,
    )
