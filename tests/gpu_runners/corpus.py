"""Odd files, each with what must be said of it: the facts, or the reason of its refusal.

`python -m tests.gpu_runners.corpus FOLDER` writes them all. Everything is made here, from drawn
pictures and tones, with seeds that don't change.
"""

import random
import struct
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from PIL import Image, TiffImagePlugin

from cutlog.ffmpeg import run_ffmpeg
from schema.refusals import MaterialRefusal as No
from tests.gpu_runners import phones
from tests.gpu_runners.phone_films import with_dolby_vision, with_tracks

CANARY = b"canary-3f9a17-this-must-stay-where-it-is"
"""Content of a file that many of the odd ones name; none of it may come out anywhere."""
SECONDS = 2
_SIZE = "160x120"


class Odd(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    name: str
    make: "Make"
    reasons: tuple[No, ...] = ()
    """It is refused for one of these; empty: it is taken."""
    facts: dict[str, Any] = {}
    """What must be among the facts; numbers of milliseconds may be 60 apart."""
    content_type: str = ""
    seconds_max: float = 0
    either: bool = False
    """Broken by chance: facts and any reason are right, silence is not."""
    film: bool = False
    """AutoCut has to make a film of it."""


class Forge:
    """Makes files; `canary` and `port` are what hostile ones name."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.canary = folder / "canary.txt"
        self.canary.write_bytes(CANARY)
        self._made: dict[str, bytes] = {}
        self._making = threading.RLock()

    def film(
        self,
        out: Path,
        *arguments: str,
        picture: str = "",
        sound: str = "",
        before: tuple[str, ...] = (),
    ) -> None:
        """Write a film of a drawn picture and a tone; either may be left out with `-`."""
        picture = picture or f"testsrc2=s={_SIZE}:r=25:d={SECONDS}"
        sound = sound or f"sine=f=440:r=48000:d={SECONDS}"
        inputs = [x for one in (picture, sound) if one != "-" for x in ("-f", "lavfi", "-i", one)]
        run_ffmpeg(
            *("-loglevel", "error", "-y", "-threads", "1", *before, *inputs),
            *(*arguments, "-threads", "1", f"file:{out}"),
        )

    def again(
        self, out: Path, *arguments: str, source: str = "base.mp4", before: tuple[str, ...] = ()
    ) -> None:
        """Write another file of one that was made before."""
        path = self.path(source)
        run_ffmpeg(
            *("-loglevel", "error", "-y", *before, "-i", str(path), *arguments, f"file:{out}")
        )

    def path(self, name: str) -> Path:
        """A file that others are made of."""
        path = self.folder / f"from-{name}"
        with self._making:  # one thread makes it, and nobody sees it before it is whole
            if not path.exists():
                _BASES[name](self, path)
        return path

    def bytes(self, name: str) -> bytes:
        with self._making:
            if name not in self._made:
                self._made[name] = self.path(name).read_bytes()
            return self._made[name]


Make = Callable[[Forge, Path], object]
"""Writes a file where it is told to."""
_H264 = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
_WIDE = "setparams=color_primaries=bt2020:colorspace=bt2020nc"
_RESERVED = "colour_primaries=3:transfer_characteristics=3:matrix_coefficients=3"
_AAC = ("-c:a", "aac", "-b:a", "64k")
_HEVC = (
    *("-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1"),
    *("-x265-params", "log-level=none:pools=1"),
)
_HDR10 = (
    "log-level=none:pools=1:hdr10=1:max-cll=1000,400:"
    "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)"
)


def _photo(width: int = 96, height: int = 64, mode: str = "RGB") -> Image.Image:
    image = Image.radial_gradient("L").resize((width, height)).convert("RGB")
    image.paste((200, 40, 40), (4, 4, width // 3, height // 2))
    return image.convert(mode)


_BASES: dict[str, Make] = {
    "base.mp4": lambda f, out: f.film(out, *_H264, *_AAC, "-movflags", "+faststart"),
    "tail.mp4": lambda f, out: f.film(out, *_H264, *_AAC),
    "base.mkv": lambda f, out: f.film(out, *_H264, *_AAC),
    "base.avi": lambda f, out: f.film(out, "-c:v", "mpeg4", "-c:a", "mp3"),
    "base.wmv": lambda f, out: f.film(out, "-c:v", "wmv2", "-c:a", "wmav2"),
    "base.ts": lambda f, out: f.film(out, *_H264, *_AAC),
    "base.webm": lambda f, out: f.film(
        out, "-c:v", "libvpx", "-deadline", "realtime", "-c:a", "libopus"
    ),
    "base.flv": lambda f, out: f.film(out, "-c:v", "flv", "-ar", "44100", "-c:a", "mp3"),
    "base.wav": lambda f, out: f.film(out, picture="-"),
    "base.mp3": lambda f, out: f.film(out, picture="-"),
    "base.jpg": lambda _, out: _photo().save(out, quality=90),
    "base.png": lambda _, out: _photo().save(out),
    "base.gif": lambda _, out: _photo().save(out),
    "base.webp": lambda _, out: _photo().save(out),
    "base.tif": lambda _, out: _photo().save(out, compression="tiff_lzw"),
    "base.heic": lambda _, out: out.write_bytes(phones.upright_iphone()),
    "base.avif": lambda _, out: _photo().save(out),
}

# --- what is taken ------------------------------------------------------------------------------

_FILMS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "h264-aac.mp4": ((*_H264, *_AAC), {"video_codec": "h264", "audio_codec": "aac"}),
    "hevc-ac3.mp4": (
        (
            "-c:v",
            "libx265",
            "-preset",
            "ultrafast",
            "-x265-params",
            "log-level=none:pools=1",
            "-tag:v",
            "hvc1",
            "-c:a",
            "ac3",
        ),
        {"video_codec": "hevc", "audio_codec": "ac3"},
    ),
    "av1-opus.mp4": (
        ("-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime", "-c:a", "libopus"),
        {"video_codec": "av1", "audio_codec": "opus"},
    ),
    "mpeg4-mp3.mp4": (("-c:v", "mpeg4", "-c:a", "mp3"), {"video_codec": "mpeg4"}),
    "vp9-flac.mp4": (
        ("-c:v", "libvpx-vp9", "-cpu-used", "8", "-deadline", "realtime", "-c:a", "flac"),
        {"video_codec": "vp9", "audio_codec": "flac"},
    ),
    "h264-alac.mov": ((*_H264, "-c:a", "alac"), {"container": "mov", "audio_codec": "alac"}),
    "prores-pcm24.mov": (
        ("-c:v", "prores_ks", "-c:a", "pcm_s24le"),
        {"container": "mov", "video_codec": "prores"},
    ),
    "prores4444.mov": (
        ("-vf", "format=yuva444p10le", "-c:v", "prores_ks", "-profile:v", "4444", "-an"),
        {"has_alpha": True, "video_codec": "prores"},
    ),
    "mjpeg-pcm.mov": (("-c:v", "mjpeg", "-c:a", "pcm_s16be"), {"video_codec": "mjpeg"}),
    "qtrle.mov": (("-c:v", "qtrle", "-pix_fmt", "argb", "-an"), {"has_alpha": True}),
    "png.mov": (("-c:v", "png", "-pix_fmt", "rgba", "-an"), {"has_alpha": True}),
    "rawvideo.mov": (("-c:v", "rawvideo", "-pix_fmt", "uyvy422", "-an"), {"width": 160}),
    "dnxhr.mov": (
        (
            "-vf",
            "scale=256:128",
            "-c:v",
            "dnxhd",
            "-profile:v",
            "dnxhr_lb",
            "-pix_fmt",
            "yuv422p",
            "-c:a",
            "pcm_s16le",
        ),
        {"video_codec": "dnxhd"},
    ),
    "cineform.mov": (("-c:v", "cfhd", "-pix_fmt", "yuv422p10le", "-an"), {"video_codec": "cfhd"}),
    "h264-flac.mkv": ((*_H264, "-c:a", "flac"), {"container": "matroska"}),
    "ffv1-pcm.mkv": (("-c:v", "ffv1", "-c:a", "pcm_f32le"), {"video_codec": "ffv1"}),
    "huffyuv-vorbis.mkv": (
        ("-c:v", "ffvhuff", "-c:a", "libvorbis"),
        {"audio_codec": "vorbis"},
    ),
    "mpeg2-dts.mkv": (
        ("-c:v", "mpeg2video", "-c:a", "dca", "-strict", "-2"),
        {"video_codec": "mpeg2video", "audio_codec": "dts"},
    ),
    "h264-truehd.mkv": ((*_H264, "-c:a", "truehd", "-strict", "-2"), {"audio_codec": "truehd"}),
    "vp8-vorbis.webm": (
        ("-c:v", "libvpx", "-deadline", "realtime", "-c:a", "libvorbis"),
        {"container": "webm", "video_codec": "vp8"},
    ),
    "vp9-alpha.webm": (
        (
            "-vf",
            "format=yuva420p",
            "-c:v",
            "libvpx-vp9",
            "-cpu-used",
            "8",
            "-deadline",
            "realtime",
            "-auto-alt-ref",
            "0",
            "-an",
        ),
        {"has_alpha": True, "video_codec": "vp9"},
    ),
    "mpeg4-mp3.avi": (("-c:v", "mpeg4", "-c:a", "mp3"), {"container": "avi"}),
    "mjpeg-pcm.avi": (("-c:v", "mjpeg", "-c:a", "pcm_u8"), {"container": "avi"}),
    "divx3.avi": (("-c:v", "msmpeg4", "-c:a", "adpcm_ms"), {"container": "avi"}),
    "utvideo.avi": (("-c:v", "utvideo", "-an"), {"video_codec": "utvideo"}),
    "h264.ts": ((*_H264, *_AAC), {"container": "mpegts"}),
    "mpeg2.ts": (("-c:v", "mpeg2video", "-c:a", "mp2"), {"audio_codec": "mp2"}),
    "camera.m2ts": ((*_H264, "-c:a", "ac3", "-mpegts_m2ts_mode", "1"), {"container": "mpegts"}),
    "mpeg1.mpg": (("-c:v", "mpeg1video", "-c:a", "mp2"), {"container": "mpeg"}),
    "dvd.vob": (
        ("-c:v", "mpeg2video", "-c:a", "ac3", "-f", "vob"),
        {"container": "mpeg", "audio_codec": "ac3"},
    ),
    "sorenson.flv": (("-c:v", "flv", "-ar", "44100", "-c:a", "mp3"), {"container": "flv"}),
    "h264.flv": ((*_H264, "-ar", "44100", *_AAC), {"container": "flv"}),
    "wmv2.wmv": (("-c:v", "wmv2", "-c:a", "wmav2"), {"container": "asf"}),
    "old-phone.3gp": (
        (
            "-vf",
            "scale=176:144",
            "-c:v",
            "h263",
            "-ar",
            "8000",
            "-ac",
            "1",
            "-c:a",
            "libopencore_amrnb",
            "-b:a",
            "12.2k",
        ),
        {"video_codec": "h263", "audio_codec": "amr_nb"},
    ),
    "theora.ogv": (("-c:v", "libtheora", "-c:a", "libvorbis"), {"container": "ogg"}),
    "fragments.mp4": (
        (*_H264, "-g", "10", *_AAC, "-movflags", "frag_keyframe+empty_moov+default_base_moof"),
        {"frames": 50},
    ),
    # rates
    "rate-film.mp4": (("-r", "24000/1001", *_H264, "-an"), {"frame_rate": "24000/1001"}),
    "rate-ntsc.mp4": (("-r", "30000/1001", *_H264, "-an"), {"frame_rate": "30000/1001"}),
    "rate-60.mkv": (("-r", "60000/1001", *_H264, "-an"), {"frames": 120}),
    "rate-240.mp4": (("-r", "240", *_H264, "-an"), {"frame_rate": "240/1", "frames": 480}),
    "rate-2.mp4": (("-vf", "fps=2", *_H264, "-an"), {"frame_rate": "2/1", "frames": 4}),
    "vfr.mp4": (
        ("-vf", "select='lt(t,1)+not(mod(n,5))'", "-fps_mode", "vfr", *_H264, "-an"),
        {"frames": 30},
    ),
    # pictures
    "odd-size.mp4": (
        ("-vf", "scale=161:121,format=yuv444p", *_H264[:4], "-an"),
        {"width": 161, "height": 121},
    ),
    "grey.mp4": ((*_H264[:4], "-pix_fmt", "gray", "-an"), {"video_codec": "h264"}),
    "full-range.mp4": ((*_H264[:4], "-pix_fmt", "yuvj420p", "-an"), {"hdr": False}),
    "ten-bit-422.mov": ((*_H264[:4], "-pix_fmt", "yuv422p10le", "-an"), {"hdr": False}),
    "rgb.mkv": (("-c:v", "libx264rgb", "-preset", "ultrafast", "-an"), {"video_codec": "h264"}),
    "anamorphic.mp4": (("-vf", "setsar=2/1", *_H264, "-an"), {"width": 160}),
    "interlaced.mp4": ((*_H264, "-flags", "+ilme+ildct", "-x264opts", "tff=1", "-an"), {}),
    "pq.mp4": (
        ("-vf", f"format=yuv420p10le,{_WIDE}:color_trc=smpte2084", *_H264[:4], "-an"),
        {"hdr": True},
    ),
    "hlg.mov": (
        ("-vf", f"format=yuv420p10le,{_WIDE}:color_trc=arib-std-b67", *_H264[:4], "-an"),
        {"hdr": True},
    ),
    "hdr10.mp4": (
        (
            *("-vf", f"format=yuv420p10le,{_WIDE}:color_trc=smpte2084", *_HEVC[:-1], _HDR10),
            "-an",
        ),
        {"hdr": True, "video_codec": "hevc"},
    ),
    "slow-motion.mov": (
        ("-r", "240", *_HEVC, *_AAC),
        {"frame_rate": "240/1", "frames": 480, "video_codec": "hevc"},
    ),
    "reserved-colours.mp4": (
        (*_H264, "-an", "-bsf:v", f"h264_metadata={_RESERVED}"),
        {"hdr": False, "frames": 50},
    ),
    "gbr-matrix-on-yuv.mp4": (
        (*_H264, "-an", "-bsf:v", "h264_metadata=matrix_coefficients=0"),
        {"frames": 50},
    ),
    # sound
    "mono-8k.mp4": ((*_H264, *_AAC, "-ac", "1", "-ar", "8000"), {"has_audio": True}),
    "sound-5.1.mp4": ((*_H264, "-c:a", "aac", "-ac", "6"), {"has_audio": True}),
    "sound-7.1.mkv": ((*_H264, "-c:a", "flac", "-ac", "8", "-ar", "96000"), {"has_audio": True}),
    "96k.mov": ((*_H264, "-c:a", "pcm_s24le", "-ar", "96000"), {"has_audio": True}),
    "no-sound.mp4": ((*_H264, "-an"), {"has_audio": False}),
    # time
    "starts-at-5.mkv": ((*_H264, *_AAC, "-output_ts_offset", "5"), {"duration_ms": 2000}),
    "starts-at-minus.mkv": (
        (*_H264, *_AAC, "-output_ts_offset", "-1", "-avoid_negative_ts", "disabled"),
        {"frames": 50},
    ),
}


def _turned(degrees: int) -> Make:
    return lambda f, out: f.again(out, "-c", "copy", before=("-display_rotation", str(degrees)))


def _with_exif(orientation: int) -> Make:
    def make(_: Forge, out: Path) -> None:
        image = _photo()
        exif = image.getexif()
        exif[0x0112] = orientation
        image.save(out, exif=exif)

    return make


def _moving(count: int) -> Make:
    def make(_: Forge, out: Path) -> None:
        pictures = [_photo().rotate(20 * n) for n in range(count)]
        pictures[0].save(out, save_all=True, append_images=pictures[1:], duration=100)

    return make


def _see_through(_: Forge, out: Path) -> None:
    image = _photo(mode="RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    image.save(out, lossless=True)


def _palette(_: Forge, out: Path) -> None:
    _photo().quantize(16).save(out, transparency=3)


def _multi_picture(_: Forge, out: Path) -> None:
    """As cameras with two lenses write it."""
    _photo().save(out, format="MPO", save_all=True, append_images=[_photo()])


def _motion_photo(forge: Forge, out: Path) -> None:
    """As phones write it: a picture, and a film behind it."""
    out.write_bytes(forge.bytes("base.jpg") + forge.bytes("base.mp4"))


def _motion_heic(forge: Forge, out: Path) -> None:
    """As Samsung writes it: the film in a box of its own, and notes that are no box."""
    film = forge.bytes("base.mp4")
    box = struct.pack(">I", len(film) + 8) + b"mpvd" + film
    out.write_bytes(phones.upright_iphone() + box + b"\0\0\x21\x0aMotionPhoto_DataSEFT")


def _of(content: Callable[[], bytes]) -> Make:
    return lambda _, out: out.write_bytes(content())


def _cover(forge: Forge, out: Path) -> None:
    run_ffmpeg(
        *("-loglevel", "error", "-i", str(forge.path("base.mp3")), "-i"),
        *(str(forge.path("base.jpg")), "-map", "0", "-map", "1", "-c", "copy", f"file:{out}"),
    )


def _trimmed(forge: Forge, out: Path) -> None:
    """As a phone trims: all frames are there, the edit list shows some of them."""
    forge.again(out, "-c", "copy", "-an", source="tail.mp4", before=("-ss", "1.2"))


def _short_picture(forge: Forge, out: Path) -> None:
    """The container says 5 s, because of its sound; the film has 2."""
    forge.film(out, *_H264, *_AAC, sound="sine=f=440:d=5")


def _iphone(forge: Forge, out: Path) -> None:
    """Held upright: HEVC with HLG and Dolby Vision 8.4, AAC, sound in space, timed notes."""
    words, plain = forge.folder / "notes.srt", forge.folder / "iphone-plain.mov"
    words.write_text("1\n00:00:00,000 --> 00:00:01,000\nnote\n\n")
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-f", "lavfi", "-i", "testsrc2=s=160x120:r=30:d=2"),
        *("-f", "lavfi", "-i", "sine=f=440:d=2", "-i", str(words)),
        *("-map", "0:v", "-map", "1:a", "-map", "1:a", "-map", "2:s", "-map", "2:s"),
        *("-vf", f"format=yuv420p10le,{_WIDE}:color_trc=arib-std-b67", *_HEVC, *_AAC),
        *("-c:s", "mov_text", f"file:{plain}"),
    )
    turned = forge.folder / "iphone-turned.mov"
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-display_rotation", "-90", "-i", str(plain)),
        *("-map", "0", "-c", "copy", f"file:{turned}"),
    )
    notes = {b"mhlrtext": b"mhlrmeta", b"@text": b"@mebx"}
    tracks = {2: {b"mp4a": b"apac", b"esds": b"dapa"}, 3: notes, 4: notes}
    out.write_bytes(with_dolby_vision(with_tracks(turned.read_bytes(), tracks)))


def _late_picture(_: Forge, out: Path) -> None:
    """The sound begins half a second before the picture, by an empty edit."""
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-itsoffset", "0.5", "-f", "lavfi"),
        *("-i", "testsrc2=s=160x120:r=25:d=2", "-f", "lavfi", "-i", "sine=f=440:d=2.5"),
        *(*_H264, *_AAC, f"file:{out}"),
    )


def _turned_hevc(degrees: int) -> Make:
    def make(forge: Forge, out: Path) -> None:
        plain = forge.folder / f"plain-{out.name}"
        forge.film(plain, *_HEVC, *_AAC)
        run_ffmpeg(
            *("-loglevel", "error", "-display_rotation", str(degrees), "-i", str(plain)),
            *("-c", "copy", f"file:{out}"),
        )

    return make


def _two_sounds(forge: Forge, out: Path) -> None:
    streams = "[1:a]asplit[a][b];[a]volume=0[quiet]"
    maps = ("-map", "0:v", "-map", "[quiet]", "-map", "[b]")
    forge.film(out, "-filter_complex", streams, *maps, *_H264, *_AAC)


_PICTURES: dict[str, tuple[Make, dict[str, Any]]] = {
    "plain.jpg": (lambda f, out: out.write_bytes(f.bytes("base.jpg")), {"frames": 1}),
    "progressive.jpg": (lambda _, out: _photo().save(out, progressive=True), {"width": 96}),
    "grey.jpg": (lambda _, out: _photo(mode="L").save(out), {"container": "jpeg"}),
    "cmyk.jpg": (lambda _, out: _photo(mode="CMYK").save(out), {"container": "jpeg"}),
    "exif-6.jpg": (_with_exif(6), {"width": 64, "height": 96, "rotation": 90}),
    "exif-3.jpg": (_with_exif(3), {"width": 96, "rotation": 180}),
    "exif-99.jpg": (_with_exif(99), {"rotation": 0}),
    "exif-broken.jpg": (
        lambda f, out: out.write_bytes(
            b"\xff\xd8\xff\xe1\x00\x20Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\xee" * 14
            + f.bytes("base.jpg")[2:]
        ),
        {"width": 96},
    ),
    "two-lenses.jpg": (_multi_picture, {"frames": 1, "animated": False}),
    "motion-photo.jpg": (_motion_photo, {"kind": "picture", "animated": False}),
    "rgba.png": (lambda _, out: _photo(mode="RGBA").save(out), {"has_alpha": True}),
    "grey-alpha.png": (lambda _, out: _photo(mode="LA").save(out), {"has_alpha": True}),
    "palette.png": (_palette, {"has_alpha": True}),
    "one-bit.png": (lambda _, out: _photo(mode="1").save(out), {"has_alpha": False}),
    "sixteen-bit.png": (lambda _, out: Image.new("I;16", (40, 30), 9000).save(out), {"width": 40}),
    "moving.png": (_moving(4), {"animated": True, "frames": 4}),
    "moving.gif": (_moving(5), {"animated": True, "frames": 5, "duration_ms": 500}),
    "moving.webp": (_moving(3), {"animated": True, "frames": 3}),
    "plain.gif": (lambda _, out: _photo().save(out), {"animated": False}),
    "alpha.webp": (_see_through, {"has_alpha": True}),
    "plain.avif": (lambda _, out: _photo().save(out), {"container": "avif"}),
    "plain.bmp": (lambda _, out: _photo().save(out), {"container": "bmp"}),
    "sixteen-bit-colours.png": (lambda _, out: phones.deep_png(out), {"width": 180}),
    "exif-6.tif": (_with_exif(6), {"width": 64, "height": 96, "rotation": 90}),
    "exif-6.avif": (_with_exif(6), {"width": 64, "height": 96, "rotation": 90}),
    "exif-6.webp": (_with_exif(6), {"width": 64, "height": 96, "rotation": 90}),
    "moving.avif": (_moving(3), {"animated": True, "frames": 3}),
    "ultra-hdr.jpg": (_of(phones.gain_mapped_jpeg), {"frames": 1, "animated": False}),
    "many-notes.jpg": (_of(phones.noted_jpeg), {"width": 120, "rotation": 90}),
    "iphone.heic": (
        _of(phones.upright_iphone),
        {"container": "heic", "width": 120, "height": 180, "frames": 1},
    ),
    "iphone-called.jpg": (_of(phones.selfie), {"container": "heic", "width": 120}),
    "jpeg-called.heic": (
        lambda f, out: out.write_bytes(f.bytes("base.jpg")),
        {"container": "jpeg"},
    ),
    "burst.heic": (_of(phones.burst), {"width": 180, "frames": 1, "animated": False}),
    "odd-notes.heic": (_of(phones.odd_notes), {"width": 180}),
    "tone-mapped.heic": (_of(phones.tone_mapped), {"width": 180, "frames": 1}),
    "ten-bit.heic": (lambda _, out: out.write_bytes(phones.ten_bit(_photo())), {"width": 96}),
    "alpha.heic": (
        lambda _, out: out.write_bytes(phones.encoded(_photo(mode="RGBA"))),
        {"has_alpha": True},
    ),
    "motion-photo.heic": (_motion_heic, {"container": "heic", "animated": False}),
    "pages.tif": (_moving(3), {"frames": 1, "animated": False}),
    "cmyk.tif": (lambda _, out: _photo(mode="CMYK").save(out), {"container": "tiff"}),
}  # fmt: skip

_SOUNDS: dict[str, tuple[str, ...]] = {
    "pcm.wav": ("-c:a", "pcm_s16le"),
    "float.wav": ("-c:a", "pcm_f64le"),
    "song.mp3": ("-c:a", "mp3"),
    "song.m4a": _AAC,
    "song.flac": ("-c:a", "flac"),
    "song.opus": ("-c:a", "libopus"),
    "song.aac": _AAC,
    "song.wma": ("-c:a", "wmav2"),
    "song.aiff": ("-c:a", "pcm_s16be"),
    "voice.amr": ("-ar", "8000", "-ac", "1", "-c:a", "libopencore_amrnb"),
}


def _film(name: str, arguments: tuple[str, ...], facts: dict[str, Any]) -> Odd:
    return Odd(
        name=name,
        make=lambda f, out: f.film(out, *arguments),
        facts={"kind": "video", **facts},
        film=True,
    )


def _sound(name: str, arguments: tuple[str, ...]) -> Odd:
    return Odd(
        name=name,
        make=lambda f, out: f.film(out, *arguments, picture="-"),
        facts={"kind": "audio", "duration_ms": 2000},
        content_type="audio/x",
    )


def _taken() -> list[Odd]:
    hostile = (
        "-i.mp4", "concat:a|b.mp4", "%03d.mp4", "a\nb.mp4", "file:passwd.mp4", "$(touch x).mp4",
        "; rm -rf .mp4", "\u202egnp.mp4", "http:127.0.0.1.mp4", "' or 1=1.mp4", "x" * 200 + ".mp4",
        "subfile,,start,0,end,9,,:a.mp4", "pipe:0.mp4", "\u4e2d\u6587 \U0001f3ac.mp4", "list.m3u8",
    )  # fmt: skip
    return [
        *(_film(name, *what) for name, what in _FILMS.items()),
        *(
            Odd(
                name=f"turned-{degrees}.mp4",
                make=_turned(degrees),
                facts={"width": 120 if degrees != 180 else 160, "rotation": turned},
                film=True,
            )
            for degrees, turned in ((90, 270), (180, 180), (270, 90))
        ),
        Odd(name="trimmed.mp4", make=_trimmed, facts={"kind": "video"}),
        Odd(
            name="sound-is-longer.mp4",
            make=_short_picture,
            facts={"duration_ms": 2000, "frames": 50},
            film=True,
        ),
        Odd(
            name="camera-notes.mp4",
            make=_and("base.mp4", b"\x8f\x21\x43\x58notes of a camera behind its film" * 40),
            facts={"frames": 50},
            film=True,
        ),
        Odd(name="silent-first.mp4", make=_two_sounds, facts={"has_audio": True}, film=True),
        *(Odd(name=n, make=m, facts={"kind": "picture", **x}) for n, (m, x) in _PICTURES.items()),
        *(_sound(name, arguments) for name, arguments in _SOUNDS.items()),
        Odd(name="cover.mp3", make=_cover, facts={"kind": "audio"}, content_type="audio/mpeg"),
        *(
            Odd(
                name=name,
                make=lambda f, out: out.write_bytes(f.bytes("base.mp4")),
                facts={"kind": "video", "frames": 50, "duration_ms": 2000},
                film=True,
            )
            for name in hostile
        ),
    ]


# --- what is refused ----------------------------------------------------------------------------


def _bytes(data: bytes) -> Make:
    return lambda _, out: out.write_bytes(data)


def _text(template: str) -> Make:
    """`{canary}` and `{port}` are filled in."""
    return lambda f, out: out.write_bytes(
        template.replace("{canary}", str(f.canary)).replace("{port}", str(f.port)).encode()
    )


def _cut(base: str, share: float) -> Make:
    def make(forge: Forge, out: Path) -> None:
        whole = forge.bytes(base)
        out.write_bytes(whole[: int(len(whole) * share)])

    return make


def _open_ended(share: float) -> Make:
    """Cut, and its last box says that it reaches to the end, wherever that is."""

    def make(forge: Forge, out: Path) -> None:
        whole = forge.bytes("base.mp4")
        at = whole.index(b"mdat") - 4
        out.write_bytes((whole[:at] + b"\0\0\0\0" + whole[at + 4 :])[: int(len(whole) * share)])

    return make


def _fuzzed(base: str, seed: int, count: int, first: int = 0) -> Make:
    def make(forge: Forge, out: Path) -> None:
        chance = random.Random(seed)
        data = bytearray(forge.bytes(base))
        for _ in range(count):
            data[chance.randrange(min(first, len(data) - 1), len(data))] = chance.randrange(256)
        out.write_bytes(data)

    return make


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def _png(width: int, height: int, *chunks: bytes, rows: int = 1) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    line = zlib.compress(b"\0" * (1 + (width + 7) // 8) * rows, 9)
    parts = (_chunk(b"IHDR", header), *chunks, _chunk(b"IDAT", line), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _png_text_bomb() -> bytes:
    return _png(8, 8, _chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * (64 << 20), 9)), rows=8)


def _gif_bomb(forge: Forge, out: Path) -> None:
    whole = forge.bytes("base.gif")
    out.write_bytes(whole[:6] + struct.pack("<HH", 65535, 65535) + whole[10:])


def _jpeg_bomb(forge: Forge, out: Path) -> None:
    whole = forge.bytes("base.jpg")
    at = whole.index(b"\xff\xc0") + 5
    out.write_bytes(whole[:at] + struct.pack(">HH", 65500, 65500) + whole[at + 4 :])


def _tiff_bomb(_: Forge, out: Path) -> None:
    entries = TiffImagePlugin.ImageFileDirectory_v2()
    entries[256], entries[257] = 60000, 60000
    _photo(8, 8, "1").save(out, tiffinfo=entries)
    data = bytearray(out.read_bytes())
    at = struct.unpack_from("<I", data, 4)[0]
    for n in range(struct.unpack_from("<H", data, at)[0]):
        entry = at + 2 + 12 * n
        if struct.unpack_from("<H", data, entry)[0] in (256, 257):
            struct.pack_into("<HII", data, entry + 2, 4, 1, 60000)
    out.write_bytes(data)


def _webp_bomb() -> bytes:
    canvas = (16382).to_bytes(3, "little") * 2
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + canvas
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _bmp_bomb() -> bytes:
    size = struct.pack("<IiiHHIIiiII", 40, 60000, 60000, 1, 1, 0, 0, 0, 0, 2, 0)
    return (
        b"BM" + struct.pack("<IHHI", 100, 0, 0, 62) + size + b"\0\0\0\0\xff\xff\xff\0" + b"\0" * 38
    )


def _film_bomb(forge: Forge, out: Path) -> None:
    """16000 x 16000, one picture."""
    picture = forge.folder / "large.png"
    picture.write_bytes(_png(16_000, 16_000, rows=16_000))
    copied = ("-c", "copy", "-f", "mov", f"file:{out}")
    run_ffmpeg("-loglevel", "error", "-y", "-i", str(picture), *copied)


def _small_outside(forge: Forge, out: Path) -> None:
    """The container says 160 x 120, the pictures inside are far larger than is taken."""
    forge.film(
        out, *_H264, "-an", "-frames:v", "3", sound="-",
        picture="color=blue:s=9000x4400:r=25:d=0.2",
    )  # fmt: skip
    data = bytearray(out.read_bytes())
    at = data.index(b"avc1") + 28
    struct.pack_into(">HH", data, at, 160, 120)
    out.write_bytes(data)


def _zip_of(forge: Forge, out: Path) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * (8 << 20))
        archive.write(forge.path("base.mp4"), "film.mp4")


def _and_zip(base: str) -> Make:
    """One thing from the front, an archive from the back."""

    def make(forge: Forge, out: Path) -> None:
        out.write_bytes(forge.bytes(base))
        with zipfile.ZipFile(out, "a") as archive:
            archive.writestr("index.html", "<b>other</b>")

    return make


def _and(base: str, more: bytes) -> Make:
    return lambda f, out: out.write_bytes(f.bytes(base) + more)


def _commented(comment: bytes) -> Make:
    """A JPEG with a comment in front."""
    head = b"\xff\xd8\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment
    return lambda f, out: out.write_bytes(head + f.bytes("base.jpg")[2:])


def _page_in_front(forge: Forge, out: Path) -> None:
    page = b"<html><script src=http://127.0.0.1/></script>"
    box = struct.pack(">I", len(page) + 8) + b"free" + page
    out.write_bytes(box + forge.bytes("tail.mp4"))


def _stream_and_picture(forge: Forge, out: Path) -> None:
    """A GIF whose bytes also keep the beat of a transport stream."""
    data = bytearray(forge.bytes("base.gif")[:13] + b"\0" * 4096)
    data[0:6] = b"GIF89a"
    for at in range(4, len(data), 192):
        data[at] = 0x47
    data[0:4] = b"RIFF"
    data[8:12] = b"WEBP"
    out.write_bytes(data)


def _other_place(entry: bytes) -> Make:
    """A film whose index says that its pictures stand in the canary's file."""

    def make(forge: Forge, out: Path) -> None:
        data = bytearray(forge.bytes("tail.mp4"))
        place = str(forge.canary).encode() + b"\0"
        new = struct.pack(">I", 12 + len(place)) + entry + b"\0\0\0\0" + place
        old = data.index(b"url \0\0\0\1") - 4
        data[old : old + 12] = new
        for kind in (b"dref", b"dinf", b"minf", b"mdia", b"trak", b"moov"):
            at = data.index(kind) - 4
            struct.pack_into(">I", data, at, struct.unpack_from(">I", data, at)[0] + len(new) - 12)
        out.write_bytes(data)

    return make


def _reference_film(forge: Forge, out: Path) -> None:
    """A QuickTime film that is nothing but the name of another one."""
    place = str(forge.canary).encode() + b"\0"
    content = b"\0\0\0\0url " + struct.pack(">I", len(place)) + place
    for kind in (b"rdrf", b"rmda", b"rmra", b"moov"):
        content = struct.pack(">I", len(content) + 8) + kind + content
    out.write_bytes(content)


def _locked(forge: Forge, out: Path) -> None:
    key = "00112233445566778899aabbccddeeff"
    scheme = ("-encryption_scheme", "cenc-aes-ctr", "-encryption_key", key, "-encryption_kid", key)
    forge.again(out, "-c", "copy", *scheme)


_SEEK_HEAD, _CUES = 0x114D9B74, 0x1C53BB6B
_PARENTS = frozenset({0x18538067, 0x1654AE6B, 0x1F43B675, 0xA0})
"""The segment, its tracks, a cluster, and a group of blocks."""
_TRACK_ENTRY, _BLOCKS = 0xAE, frozenset({0xA1, 0xA3})


def _element(kind: int, content: bytes) -> bytes:
    """One element of EBML, its length told in eight bytes."""
    head = kind.to_bytes((kind.bit_length() + 7) // 8)
    return head + (len(content) | 1 << 56).to_bytes(8) + content


def _number(data: bytes, at: int, *, whole: bool) -> tuple[int, int]:
    """A number of EBML, with its length marker or without, and where it ends."""
    width = 9 - data[at].bit_length()
    value = int.from_bytes(data[at : at + width])
    return value if whole else value & ((1 << 7 * width) - 1), at + width


def _locked_elements(data: bytes) -> bytes:
    """The same tracks and blocks, encrypted (after a fashion); no index, whose places are gone."""
    encryption = _element(0x5035, _element(0x47E1, b"\x05") + _element(0x47E2, bytes(range(16))))
    encoding = _element(0x6240, _element(0x5033, b"\x01") + encryption)
    out, at = b"", 0
    while at < len(data):
        kind, at = _number(data, at, whole=True)
        length, start = _number(data, at, whole=False)
        at = start + length
        content = data[start:at]
        if kind in (_SEEK_HEAD, _CUES):
            continue
        if kind in _PARENTS:
            content = _locked_elements(content)
        elif kind == _TRACK_ENTRY:
            content += _element(0x6D80, encoding)
        elif kind in _BLOCKS:
            content = content[:4] + bytes(byte ^ 0x5A for byte in content[4:])
        out += _element(kind, content)
    return out


def _locked_tracks(base: str) -> Make:
    def make(forge: Forge, out: Path) -> None:
        out.write_bytes(_locked_elements(forge.bytes(base)))

    return make


def _two_sizes(forge: Forge, out: Path) -> None:
    parts: list[bytes] = []
    for size in ("160x120", "320x240"):
        part = forge.folder / f"part-{size}.ts"
        forge.film(part, *_H264, "-an", picture=f"testsrc2=s={size}:r=25:d=1", sound="-")
        parts.append(part.read_bytes())
    out.write_bytes(b"".join(parts))


def _many_streams(forge: Forge, out: Path) -> None:
    maps = [x for _ in range(70) for x in ("-map", "0:a")]
    forge.film(out, *maps, "-c:a", "pcm_u8", "-ar", "8000", picture="-", sound="sine=d=0.2")


def _only_words(forge: Forge, out: Path) -> None:
    words = forge.folder / "words.srt"
    words.write_text("1\n00:00:00,000 --> 00:00:01,000\nhello\n")
    run_ffmpeg("-loglevel", "error", "-y", "-i", str(words), "-c:s", "srt", f"file:{out}")


_LISTS: dict[str, str] = {
    "file.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:8\n#EXTINF:8,\n{canary}\n#EXT-X-ENDLIST\n",
    "host.mp4": "#EXTM3U\n#EXTINF:8,\nhttp://127.0.0.1:{port}/x.ts\n",
    "zeros.mp4": "#EXTM3U\n#EXTINF:8,\nhttp://127.0.0.1:{port}/x.ts\n\0\0\0\0",
    "bom.mp4": "\ufeff#EXTM3U\n#EXTINF:8,\nhttp://127.0.0.1:{port}/x.ts\n",
    "spaces.mp4": " \r\n\t#EXTM3U\n#EXTINF:8,\nhttp://127.0.0.1:{port}/x.ts\n",
    "key.m3u8": '#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI="http://127.0.0.1:{port}/k"\n{canary}\n',
    "map.m3u8": '#EXTM3U\n#EXT-X-MAP:URI="file:{canary}"\n#EXTINF:1,\n{canary}\n',
    "subfile.m3u8": "#EXTM3U\n#EXTINF:1,\nsubfile,,start,0,end,40,,:{canary}\n",
    "script.ffconcat": "ffconcat version 1.0\nfile '{canary}'\n",
    "script.mp4": "file '{canary}'\nfile 'http://127.0.0.1:{port}/x'\n",
    "concat.mp4": "concat:{canary}|{canary}",
    "dash.mpd": "<?xml version='1.0'?><MPD><BaseURL>http://127.0.0.1:{port}/</BaseURL></MPD>",
    "smooth.ism": "<SmoothStreamingMedia><x u='http://127.0.0.1:{port}/'/></SmoothStreamingMedia>",
    "session.sdp": "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\nm=video {port} RTP/AVP 96\r\n",
    "player.pls": "[playlist]\nFile1=http://127.0.0.1:{port}/x\n",
    "player.asx": "<ASX version='3'><Ref href='http://127.0.0.1:{port}/'/></ASX>",
    "player.smil": "<smil><video src='http://127.0.0.1:{port}/'/></smil>",
    "player.xspf": "<?xml version='1.0'?><playlist><xspf/><location>{canary}</location></playlist>",
    "graph.txt": "movie={canary}:f=rawvideo[out]",
    "address.url": "[InternetShortcut]\nURL=http://127.0.0.1:{port}/\n",
    "rtsp.mov": "RTSPtext\nrtsp://127.0.0.1:{port}/x",
    "old.asx": "[Reference]\nRef1=http://127.0.0.1:{port}/x\n",
}
_TEXTS: dict[str, str] = {
    "text.mp4": "This is no film.\n" * 40,
    "page.html": "<!doctype html><html><img src='x.png'></html>",
    "words.srt": "1\n00:00:00,000 --> 00:00:01,000\nhello\n",
    "settings.ffmetadata": ";FFMETADATA1\ntitle=x\n",
    "program.sh": "#!/bin/sh\necho hello > /tmp/hello\n",
}
_SVG = (
    "<?xml version='1.0'?><!DOCTYPE svg [<!ENTITY x SYSTEM 'file://{canary}'>]>"
    "<svg xmlns='http://www.w3.org/2000/svg'><image href='http://127.0.0.1:{port}/'/>"
    "<text>&x;</text></svg>"
)
_CUTS = (
    *(("base.mp4", share) for share in (0.05, 0.2, 0.4, 0.6, 0.9, 0.99)),
    *(("tail.mp4", share) for share in (0.3, 0.7, 0.95)),
    *(("base.mkv", share) for share in (0.3, 0.6, 0.95)),
    *(("base.webm", share) for share in (0.5, 0.9)),
    *(("base.avi", share) for share in (0.3, 0.9)),
    *(("base.wmv", share) for share in (0.5,)),
    *(("base.wav", share) for share in (0.5,)),
    *(("base.jpg", share) for share in (0.3, 0.6, 0.9)),
    *(("base.png", share) for share in (0.3, 0.9)),
    *(("base.gif", share) for share in (0.5, 0.9)),
    *(("base.webp", share) for share in (0.5, 0.9)),
    *(("base.heic", share) for share in (0.5, 0.7, 0.99)),
    *(("base.avif", share) for share in (0.5, 0.9)),
)
_FUZZED = ("base.mp4", "base.mkv", "base.avi", "base.ts", "base.webm", "base.flv", "base.wmv",
           "base.mp3", "base.jpg", "base.png", "base.gif", "base.webp", "base.tif",
           "base.heic", "base.avif")  # fmt: skip


def _foreign() -> list[Odd]:
    """Lists, text, archives, other media."""
    plain: dict[str, bytes] = {
        "archive.gz": zlib.compress(b"\0" * 1000, wbits=31),
        "archive.7z": b"7z\xbc\xaf\x27\x1c" + b"\0" * 60,
        "archive.rar": b"Rar!\x1a\x07\x01\0" + b"\0" * 60,
        "archive.tar": b"film.mp4".ljust(257, b"\0") + b"ustar\0" + b"00" + b"\0" * 300,
        "paper.pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + b"1 0 obj\n" * 20,
        "program.exe": b"MZ\x90\0\x03\0\0\0" + b"\0" * 200,
        "program.elf": b"\x7fELF\x02\x01\x01" + b"\0" * 200,
        "letter.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600,
        "noise.mp4": random.Random(7).randbytes(20_000),
        "zeros.mov": b"\0" * 20_000,
        "one-byte.mp4": b"\x80",
    }
    elsewhere: dict[str, bytes] = {
        "raw.dng": phones.dng(),
        "canon.cr2": b"II*\0\x10\0\0\0CR\x02\0" + b"\0" * 60,
        "canon.cr3": struct.pack(">I", 24) + b"ftypcrx \0\0\0\1crx isom" + b"\0" * 40,
        "rare.heif": struct.pack(">I", 24) + b"ftypavci\0\0\0\0mif1avci" + b"\0" * 40,
        "plain.jxl": b"\xff\x0a" + b"\x11" * 40,
        "layers.psd": b"8BPS\0\x01" + b"\0" * 60,
        "plain.jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0" * 40,
        "broadcast.mxf": bytes.fromhex("060e2b34020501010d010201") + b"\0" * 60,
        "old.rm": b".RMF\0\0\0\x12" + b"\0" * 60,
        "icon.ico": b"\0\0\1\0\1\0\x10\x10" + b"\0" * 60,
    }
    return [
        *(
            Odd(name=f"list-{name}", make=_text(template), reasons=(No.NAMES_OTHERS,))
            for name, template in _LISTS.items()
        ),
        Odd(
            name="list-utf16.m3u8",
            make=_bytes("#EXTM3U\n#EXTINF:8,\nhttp://127.0.0.1/\n".encode("utf-16")),
            reasons=(No.NAMES_OTHERS,),
        ),
        *(Odd(name=n, make=_text(t), reasons=(No.NOT_MEDIA,)) for n, t in _TEXTS.items()),
        Odd(
            name="drawing.svg",
            make=_text(_SVG),
            reasons=(No.CONTAINER_UNSUPPORTED, No.NAMES_OTHERS),
        ),
        Odd(
            name="plain.svg",
            make=_bytes(b"<svg width='9' height='9'><rect/></svg>"),
            reasons=(No.CONTAINER_UNSUPPORTED,),
        ),
        Odd(name="empty.mp4", make=lambda _, out: out.touch(), reasons=(No.EMPTY,)),
        Odd(name="bomb.zip", make=_zip_of, reasons=(No.NOT_MEDIA,)),
        *(Odd(name=n, make=_bytes(data), reasons=(No.NOT_MEDIA,)) for n, data in plain.items()),
        *(
            Odd(name=n, make=_bytes(data), reasons=(No.CONTAINER_UNSUPPORTED,))
            for n, data in elsewhere.items()
        ),
        Odd(name="other-url.mp4", make=_other_place(b"url "), reasons=(No.NAMES_OTHERS,)),
        Odd(name="other-alias.mov", make=_other_place(b"alis"), reasons=(No.NAMES_OTHERS,)),
        Odd(name="reference.mov", make=_reference_film, reasons=(No.NAMES_OTHERS,)),
    ]  # fmt: skip


def _double() -> list[Odd]:
    """Two things at once."""
    seven = b"7z\xbc\xaf\x27\x1c" + b"\0" * 80
    double: dict[str, Make] = {
        **{f"zip-{base[5:]}": _and_zip(base) for base in ("base.jpg", "base.png", "base.gif",
                                                          "base.mp4", "base.mkv", "base.mp3")},
        "7z.png": _and("base.png", seven),
        "rar.jpg": _and("base.jpg", b"Rar!\x1a\x07\x01\0" + b"\0" * 80),
        "script.gif": _and("base.gif", b"<script>alert(1)</script>"),
        "php.jpg": _commented(b"<?php system($_GET['x']); ?>"),
        "pdf.jpg": _commented(b"%PDF-1.4 1 0 obj"),
        "page.mp4": _page_in_front,
        "beat.webp": _stream_and_picture,
    }  # fmt: skip
    return [
        Odd(name=f"double-{n}", make=m, reasons=(No.TWO_IDENTITIES,)) for n, m in double.items()
    ]


def _bombs() -> list[Odd]:
    """Small files of large things."""
    far = (No.PIXELS_TOO_MANY,)
    return [
        Odd(name="bomb-bits.png", make=_bytes(_png(30_000, 30_000, rows=30_000)), reasons=far),
        Odd(name="bomb-film.mov", make=_film_bomb, reasons=far),
        Odd(name="bomb-inside.mp4", make=_small_outside, reasons=(No.PIXELS_TOO_MANY, No.DAMAGED)),
        Odd(name="bomb.gif", make=_gif_bomb, reasons=far),
        Odd(name="bomb.jpg", make=_jpeg_bomb, reasons=far),
        Odd(name="bomb.tif", make=_tiff_bomb, reasons=far),
        Odd(name="bomb.webp", make=_bytes(_webp_bomb()), reasons=far),
        Odd(name="bomb.heic", make=_of(phones.too_large), reasons=far),
        Odd(name="bomb-inside.heic", make=_of(phones.lying), reasons=(No.DAMAGED,)),
        Odd(name="bomb.bmp", make=_bytes(_bmp_bomb()), reasons=far),
        Odd(
            name="bomb-text.png",
            make=_bytes(_png_text_bomb()),
            reasons=(No.DAMAGED, No.PROBE_LIMIT),
        ),
    ]  # fmt: skip


def _of_codec(codec: str) -> Make:
    return lambda f, out: f.film(out, "-c:v", codec, "-strict", "-2", "-an")


def _wrong() -> list[Odd]:
    """Media that can't be used as they are."""
    single = ("-frames:v", "1", *_H264, "-an")
    return [
        Odd(
            name="sound-alone.mp4",
            make=lambda f, out: f.film(out, *_AAC, picture="-"),
            reasons=(No.OTHER_KIND,),
            content_type="video/mp4",
        ),
        Odd(
            name="picture-as-film.mp4",
            make=lambda f, out: out.write_bytes(f.bytes("base.png")),
            reasons=(No.OTHER_KIND,),
            content_type="video/mp4",
        ),
        Odd(
            name="film-as-picture.png",
            make=lambda f, out: out.write_bytes(f.bytes("base.mp4")),
            reasons=(No.OTHER_KIND,),
            content_type="image/png",
        ),
        Odd(name="single.mp4", make=lambda f, out: f.film(out, *single), reasons=(No.TOO_SHORT,)),
        Odd(
            name="longer-than-declared.mp4",
            make=lambda f, out: f.film(out, *_H264, "-an", picture="testsrc2=s=64x64:d=4"),
            reasons=(No.MATERIAL_TOO_LONG,),
            seconds_max=2,
        ),
        Odd(name="locked.mp4", make=_locked, reasons=(No.ENCRYPTED,)),
        *(
            Odd(name=f"locked.{b}", make=_locked_tracks(f"base.{b}"), reasons=(No.ENCRYPTED,))
            for b in ("mkv", "webm")
        ),
        Odd(name="two-sizes.ts", make=_two_sizes, reasons=(No.CODEC_UNSUPPORTED,)),
        Odd(name="many-streams.mkv", make=_many_streams, reasons=(No.STREAMS_TOO_MANY,)),
        Odd(name="words.mkv", make=_only_words, reasons=(No.NO_STREAMS,)),
        *(
            Odd(
                name=f"codec-{codec}.{ending}",
                make=_of_codec(codec),
                reasons=(No.CODEC_UNSUPPORTED,),
            )
            for codec, ending in (("snow", "mkv"), ("asv1", "avi"))
        ),
        Odd(
            name="too-fast.mkv",
            make=lambda f, out: f.film(
                out, "-c:v", "ffv1", "-an", picture="testsrc2=s=16x16:r=5000:d=0.1", sound="-"
            ),
            reasons=(No.FRAMES_TOO_MANY,),
        ),
        *(
            Odd(name=f"cut-{int(s * 100)}-{b}", make=_cut(b, s), reasons=(No.TRUNCATED,))
            for b, s in _CUTS
        ),
        *(
            Odd(name=f"open-{int(s * 100)}.mp4", make=_open_ended(s), reasons=(No.TRUNCATED,))
            for s in (0.4, 0.6, 0.8)
        ),
        *(
            Odd(name=f"fuzzed-{count}-{base}", make=_fuzzed(base, n, count, first), either=True)
            for n, base in enumerate(_FUZZED)
            for count, first in ((20, 0), (300, 200))
        ),
    ]


def _of_phones() -> list[Odd]:
    """What only phones write, and what is nearly that."""
    return [
        Odd(
            name="iphone.mov",
            make=_iphone,
            facts={
                "width": 120,
                "height": 160,
                "rotation": 90,
                "hdr": True,
                "video_codec": "hevc",
                "audio_codec": "aac",
                "frames": 60,
                "duration_ms": 2000,
            },
            film=True,
        ),
        *(
            Odd(
                name=f"samsung-{degrees}.mp4",
                make=_turned_hevc(degrees),
                facts={"width": 120, "height": 160, "rotation": turned},
                film=True,
            )
            for degrees, turned in ((90, 270), (270, 90))
        ),
        Odd(
            name="late-picture.mov",
            make=_late_picture,
            facts={"frames": 50, "duration_ms": 2000},
            film=True,
        ),
        Odd(name="no-meta.heic", make=_of(phones.without_meta), reasons=(No.DAMAGED,)),
        Odd(
            name="tiles-missing.heic",
            make=_of(lambda: phones.iphone(tiles=4)),
            reasons=(No.DAMAGED,),
        ),
        Odd(
            name="raw-far.dng",
            make=_of(lambda: phones.dng(far=True)),
            reasons=(No.CODEC_UNSUPPORTED,),
        ),
        Odd(name="av1-inside.heic", make=_of(phones.other_coding), reasons=(No.CODEC_UNSUPPORTED,)),
    ]


def corpus() -> list[Odd]:
    """All of it."""
    found = [*_taken(), *_of_phones(), *_foreign(), *_double(), *_bombs(), *_wrong()]
    assert len({odd.name for odd in found}) == len(found)
    return found


CASES: dict[int, tuple[str, ...]] = {
    1: ("vfr.mp4",),
    2: ("turned-90.mp4", "turned-180.mp4", "turned-270.mp4"),
    3: ("odd-size.mp4",),
    4: ("no-sound.mp4",),
    5: ("pq.mp4", "hlg.mov"),
    6: ("cut-60-base.mp4", "cut-70-tail.mp4", "open-40.mp4", "open-60.mp4", "open-80.mp4"),
    7: ("bomb-bits.png", "bomb-film.mov", "bomb-inside.mp4"),
    8: ("exif-6.jpg", "exif-3.jpg"),
    9: ("cmyk.jpg", "rgba.png"),
    10: ("rgba.png", "palette.png", "moving.gif"),
    11: ("starts-at-5.mkv", "starts-at-minus.mkv"),
    12: ("vp9-alpha.webm", "prores4444.mov"),
    13: ("sound-alone.mp4", "single.mp4", "empty.mp4", "text.mp4", "cut-60-base.jpg"),
    14: ("silent-first.mp4", "sound-5.1.mp4", "96k.mov"),
    15: ("sound-is-longer.mp4",),
}
"""Which of them show the cases of `docs/cases.md` about files."""


def main() -> None:
    folder = Path(sys.argv[1])
    (folder / "files").mkdir(parents=True, exist_ok=True)
    forge = Forge(folder, 9)
    for odd in corpus():
        odd.make(forge, folder / "files" / odd.name)
        print(odd.name)


if __name__ == "__main__":
    main()
