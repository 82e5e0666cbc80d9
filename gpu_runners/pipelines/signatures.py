"""What the first bytes of a file say that it is: one demuxer or picture format, or why not.

A file is opened as what its signature says and as nothing else, so that no reader guesses: a file
that is two things at once would be one of them here and the other there.
"""

import struct
from collections.abc import Mapping
from typing import Final

FILM: Final[dict[str, str]] = {
    "mp4": "mov",
    "mov": "mov",
    "matroska": "matroska",
    "webm": "matroska",
    "avi": "avi",
    "mpegts": "mpegts",
    "mpeg": "mpeg",
    "flv": "flv",
    "asf": "asf",
    "ogg": "ogg",
    "wav": "wav",
    "mp3": "mp3",
    "aac": "aac",
    "flac": "flac",
    "aiff": "aiff",
    "amr": "amr",
}
"""Containers of films and sound that are opened, and the demuxer of each."""

PICTURES: Final[dict[str, str]] = {
    "jpeg": "JPEG",
    "png": "PNG",
    "gif": "GIF",
    "webp": "WEBP",
    "bmp": "BMP",
    "tiff": "TIFF",
    "avif": "AVIF",
    "heic": "HEIF",
}
"""Picture formats that are opened, and what Pillow calls each."""

UNSUPPORTED: Final[dict[str, str]] = {
    "raw": "raw photo",
    "heif": "HEIF picture of a rare kind",
    "jxl": "JPEG XL picture",
    "psd": "Photoshop document",
    "jp2": "JPEG 2000 picture",
    "ico": "icon",
    "svg": "SVG drawing",
    "mxf": "MXF film",
    "caf": "CAF sound",
    "w64": "Wave64 sound",
    "rm": "RealMedia film",
    "dv": "DV stream",
    "ape": "Monkey's Audio sound",
    "midi": "MIDI score",
    "postscript": "PostScript drawing",
}
"""Media that could be shown elsewhere, and are not taken here."""

_INSTEAD: Final[dict[str, str]] = {
    "raw": "Export it as JPEG or HEIC (on an iPhone, with Apple ProRAW turned off).",
    "heif": "Export it as JPEG.",
    "jxl": "Export it as JPEG or HEIC.",
}

STRANGERS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document"),
)
"""What holds no media, by its first bytes."""

_LISTS: Final[tuple[bytes, ...]] = (
    b"#extm3u",
    b"#ext-x-",
    b"ffconcat",
    b"[playlist]",
    b"[reference]",
    b"rtsptext",
    b"smtext",
    b"<mpd",
    b"<smil",
    b"<asx",
    b"<xspf",
    b"<smoothstreamingmedia",
)
_LISTED: Final[tuple[bytes, ...]] = (
    b"file:",
    b"concat:",
    b"subfile,",
    b"crypto:",
    b"data:",
    b"http://",
    b"https://",
    b"rtsp://",
    b"rtmp://",
    b"ftp://",
    b"tcp://",
    b"udp://",
    b"hls+",
    b"lavfi",
    b"movie=",
    b"v=0\r\no=",
    b"v=0\no=",
)
_SCRIPTS: Final[tuple[bytes, ...]] = (b"<?php", b"<script", b"<html", b"<!doctype html", b"<svg")
_TS_PACKETS: Final = (188, 192, 204)
_HEAD_BYTES: Final = 4096
_EOCD_BYTES: Final = 22
_SUBFILE, _SUB_IMAGES, _DNG_VERSION = 254, 330, 50706
_SHORT: Final = 3
_BRAND_KINDS: Final[dict[bytes, str]] = {
    b"avif": "avif",
    b"avis": "avif",
    b"heic": "heic",
    b"heix": "heic",
    b"hevc": "heic",
    b"heim": "heic",
    b"heis": "heic",
    b"hevx": "heic",
    b"hevm": "heic",
    b"hevs": "heic",
    b"mif1": "heic",
    b"msf1": "heic",
    b"mif2": "heif",
    b"miaf": "heif",
    b"avci": "heif",
    b"avcs": "heif",
    b"j2ki": "heif",
    b"jpeg": "heif",
    b"vvic": "heif",
    b"unif": "heif",
    b"jp2 ": "jp2",
    b"jxl ": "jxl",
    b"crx ": "raw",
    b"qt  ": "mov",
}


def kinds_of(start: bytes) -> tuple[str, ...]:
    """Every format whose signature is at the start: none, one, or (two identities) more."""
    found = [name for mark, at, name in _MARKS if start[at : at + len(mark)] == mark]
    if start[4:8] in _BOXES:
        found.append(_box_kind(start))
    if start[:4] == b"\x1a\x45\xdf\xa3":
        found.append("webm" if b"webm" in start[:64] else "matroska")
    if start[:4] == b"RIFF":
        found += [name for form, name in _RIFFS if start[8:12] == form]
    if _is_transport_stream(start):
        found.append("mpegts")
    if not found:
        found = _sound(start)
    if found == ["tiff"] and is_raw(_tiff_tags(start)):
        found = ["raw"]
    return tuple(dict.fromkeys(found))


def instead_of(kind: str) -> str:
    """What the owner of a file of an unsupported kind can do, where there is more to say."""
    return _INSTEAD.get(kind, "")


def is_raw(tags: Mapping[int, int]) -> bool:
    """Whether a TIFF's first tags are those of what a sensor saw, with a small picture in front."""
    is_small = bool(tags.get(_SUBFILE, 0) & 1)
    return _DNG_VERSION in tags or (is_small and _SUB_IMAGES in tags)


def _tiff_tags(start: bytes) -> dict[int, int]:
    """Tags of its first image and their values; of long ones, the place. None: too far away."""
    if start[8:10] == b"CR":  # Canon's, which has none of its own
        return {_DNG_VERSION: 0}
    order = "<" if start[:2] == b"II" else ">"
    try:
        (at,) = struct.unpack_from(order + "I", start, 4)
        (count,) = struct.unpack_from(order + "H", start, at)
        found: dict[int, int] = {}
        for n in range(count):
            place = at + 2 + 12 * n
            tag, form = struct.unpack_from(order + "HH", start, place)
            (value,) = struct.unpack_from(
                order + ("H" if form == _SHORT else "I"), start, place + 8
            )
            found[tag] = value
    except struct.error:
        return {}
    return found


def _box_kind(start: bytes) -> str:
    if start[4:8] != b"ftyp":
        return "mov"
    brand = start[8:12]
    brands = start[8 : int.from_bytes(start[:4], "big")]
    if brand in (b"mif1", b"msf1") and (b"avif" in brands or b"avis" in brands):
        return "avif"
    return _BRAND_KINDS.get(brand, "mp4")


def _is_transport_stream(start: bytes) -> bool:
    for length in _TS_PACKETS:
        first = 4 if length == _TS_PACKETS[1] else 0
        places = range(first, len(start), length)
        if len(places) > 1 and all(start[at] == 0x47 for at in places):  # noqa: PLR2004 - sync byte
            return True
    return False


def _sound(start: bytes) -> list[str]:
    """Streams without a container, whose marks are short: asked only when nothing else fits."""
    if start[:3] == b"ID3" and len(start) > 10:  # noqa: PLR2004 - the length of its header
        size = 0
        for byte in start[6:10]:
            size = size << 7 | byte & 0x7F
        return _sound(start[10 + size :]) or ["mp3"]
    if start[:1] == b"\xff" and len(start) > 1:
        second = start[1]
        if second & 0xF6 == 0xF0:  # noqa: PLR2004 - ADTS
            return ["aac"]
        if second & 0xE0 == 0xE0 and second & 0x06:  # noqa: PLR2004 - MPEG sound
            return ["mp3"]
    return ["flac"] if start[:4] == b"fLaC" else []


def stranger_of(start: bytes) -> str | None:
    """The name of what is no media at all, or None."""
    for mark, name in STRANGERS:
        if start.startswith(mark) and not (mark == b"MZ" and b"\0" not in start[:64]):
            return name
    if start[257:262] == b"ustar":
        return "a tar archive"
    return None


def is_text(start: bytes) -> bool:
    """Whether it can be read as text; 3 bytes of a letter may be cut off at the end."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") and start[2:4] != b"\0\0":
        return _decodes(start[: len(start) // 2 * 2], "utf-16")
    return b"\0" not in start and _decodes(start[: max(1, len(start) - 3)], "utf-8")


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def names_others(start: bytes) -> bool:
    """Whether it is a list of other files or hosts, as players read them."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        start = start.replace(b"\0", b"")[2:]
    words = start[:_HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n\0").lower()
    if words.startswith((*_LISTS, *_LISTED, b"file ")):
        return True
    return is_text(start) and any(mark in words for mark in (*_LISTS, *_LISTED, b"\nfile "))


def is_drawing(start: bytes) -> bool:
    """Whether it is an SVG: text that may name files and hosts, and run programs."""
    return is_text(start) and b"<svg" in start[:_HEAD_BYTES].lower()


def second_identity(start: bytes, end: bytes) -> str | None:
    """What a media file is besides, by its first 4 KiB and its last 64 KiB; None: nothing."""
    head = start[:_HEAD_BYTES]
    if b"%PDF-" in head[:1024]:
        return "a PDF document"
    lower = head.lower()
    if any(mark in lower for mark in _SCRIPTS):
        return "a page or a program"
    if any(mark in end[-_HEAD_BYTES:].lower() for mark in _SCRIPTS[:2]):
        return "a page or a program"
    return "a ZIP archive" if _ends_as_zip(end) else None


def _ends_as_zip(end: bytes) -> bool:
    """Whether the directory of an archive lies where its last record says."""
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or at + _EOCD_BYTES > len(end):
        return False
    length = int.from_bytes(end[at + 12 : at + 16], "little")
    count = int.from_bytes(end[at + 10 : at + 12], "little")
    directory = at - length
    if directory < 0:  # too large to be looked at; what it says of itself is taken for true
        return count > 0
    return count > 0 and end[directory : directory + 4] == b"PK\x01\x02"


_BOXES: Final = frozenset({b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot", b"moof"})
_RIFFS: Final = ((b"AVI ", "avi"), (b"WAVE", "wav"), (b"WEBP", "webp"))
_MARKS: Final[tuple[tuple[bytes, int, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", 0, "png"),
    (b"\xff\xd8\xff", 0, "jpeg"),
    (b"GIF87a", 0, "gif"),
    (b"GIF89a", 0, "gif"),
    (b"II*\0", 0, "tiff"),
    (b"MM\0*", 0, "tiff"),
    (b"IIU\0", 0, "raw"),
    (b"IIRO", 0, "raw"),
    (b"IIRS", 0, "raw"),
    (b"FUJIFILMCCD-RAW", 0, "raw"),
    (b"BM", 0, "bmp"),
    (b"OggS", 0, "ogg"),
    (b"FLV\x01", 0, "flv"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", 0, "asf"),
    (b"\x00\x00\x01\xba", 0, "mpeg"),
    (b"fLaC", 0, "flac"),
    (b"#!AMR", 0, "amr"),
    (b"caff", 0, "caf"),
    (b"riff\x2e\x91\xcf\x11", 0, "w64"),
    (b".RMF", 0, "rm"),
    (b"8BPS", 0, "psd"),
    (b"\xff\x0a", 0, "jxl"),
    (b"\x00\x00\x00\x0cJXL ", 0, "jxl"),
    (b"\x00\x00\x00\x0cjP  ", 0, "jp2"),
    (b"\x00\x00\x01\x00", 0, "ico"),
    (b"\x06\x0e\x2b\x34\x02\x05\x01\x01", 0, "mxf"),
    (b"MAC ", 0, "ape"),
    (b"MThd", 0, "midi"),
    (b"%!PS", 0, "postscript"),
    (b"AIFF", 8, "aiff"),
    (b"AIFC", 8, "aiff"),
)
