"""HEIC files put together box by box, as phones write them and encoders here don't.

A picture of tiles with turns, a gain map, a depth map, a thumbnail and EXIF beside it; several
pictures; damage and lies at a chosen place. The encoder of `pillow_heif` makes the tiles.
"""

import io
import struct
from typing import NamedTuple

import msgspec
import pillow_heif
from PIL import Image

GAIN_MAP = b"urn:com:apple:photo:2020:aux:hdrgainmap\0"
DEPTH = b"urn:mpeg:hevc:2015:auxid:2\0"
ALPHA = b"urn:mpeg:hevc:2015:auxid:1\0"


class Coded(NamedTuple):
    """A picture encoded with HEVC: its bytes, and the box that a decoder needs before them."""

    data: bytes
    configuration: bytes
    size: tuple[int, int]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the file: a picture, a recipe for one, or what is told of one."""

    kind: bytes
    data: bytes
    properties: tuple[bytes, ...] = ()
    hidden: bool = False
    length: int | None = None
    """As the index claims it; None: as it is."""


class Reference(NamedTuple):
    kind: bytes
    """`dimg` made of, `thmb` small one of, `auxl` beside, `cdsc` told of."""
    of: int
    to: tuple[int, ...]


def box(kind: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I", len(body) + 8) + kind + body


def full(kind: bytes, *content: bytes, version: int = 0, flags: int = 0) -> bytes:
    return box(kind, struct.pack(">I", version << 24 | flags), *content)


def extent(width: int, height: int) -> bytes:
    return full(b"ispe", struct.pack(">II", width, height))


def turned(quarters: int) -> bytes:
    """Anti-clockwise."""
    return box(b"irot", bytes([quarters]))


def mirrored(axis: int) -> bytes:
    """0: top and bottom change places; 1: left and right."""
    return box(b"imir", bytes([axis]))


def auxiliary(of: bytes) -> bytes:
    return full(b"auxC", of)


def profile(icc: bytes) -> bytes:
    return box(b"colr", b"prof", icc)


def coded_colours(primaries: int, transfer: int, matrix: int) -> bytes:
    return box(b"colr", b"nclx", struct.pack(">HHHB", primaries, transfer, matrix, 0x80))


def coded(image: Image.Image, quality: int = 90) -> Coded:
    """Encode a picture; the boxes around it are thrown away."""
    out = io.BytesIO()
    pillow_heif.from_pillow(image).save(out, quality=quality, chroma=444)
    data = out.getvalue()
    at = data.index(b"hvcC") - 4
    length = struct.unpack_from(">I", data, at)[0]
    start = data.index(b"mdat") + 4
    return Coded(data[start:], data[at : at + length], image.size)


def picture(made: Coded, *more: bytes, hidden: bool = False) -> Item:
    """An entry that is a coded picture, with further properties."""
    properties = (made.configuration, extent(*made.size), *more)
    return Item(kind=b"hvc1", data=made.data, properties=properties, hidden=hidden)


def grid(columns: int, rows: int, size: tuple[int, int], *more: bytes) -> Item:
    """A recipe: tiles row by row, cut to a size."""
    recipe = struct.pack(">BBBBII", 0, 1, rows - 1, columns - 1, *size)
    return Item(kind=b"grid", data=recipe, properties=(extent(*size), *more))


def exif(orientation: int) -> Item:
    """The notes of a camera, with the turn that the file's own properties make already."""
    notes = Image.Exif()
    notes[0x0112] = orientation
    return Item(kind=b"Exif", data=struct.pack(">I", 6) + notes.tobytes(), hidden=True)


def heic(
    items: list[Item],
    references: list[Reference] = [],  # noqa: B006 - never changed
    *,
    primary: int = 1,
    brand: bytes = b"heic",
) -> bytes:
    """A whole file. Entries are numbered from 1."""
    head = box(b"ftyp", brand, bytes(4), b"mif1", b"MiHE", b"miaf", brand)
    length = len(_meta(items, references, primary, 0))
    places = len(head) + length + 8
    body = b"".join(item.data for item in items)
    return head + _meta(items, references, primary, places) + box(b"mdat", body)


def _meta(items: list[Item], references: list[Reference], primary: int, start: int) -> bytes:
    handler = full(b"hdlr", bytes(4), b"pict", bytes(13))
    entries = [
        full(
            b"infe",
            struct.pack(">HH", number, 0) + item.kind + b"\0",
            version=2,
            flags=int(item.hidden),
        )
        for number, item in enumerate(items, 1)
    ]
    return full(
        b"meta",
        handler,
        full(b"pitm", struct.pack(">H", primary)),
        full(b"iinf", struct.pack(">H", len(items)), *entries),
        *_references(references),
        _properties(items),
        _places(items, start),
    )


def _references(references: list[Reference]) -> list[bytes]:
    if not references:
        return []
    boxes = [
        box(kind, struct.pack(f">HH{len(to)}H", of, len(to), *to)) for kind, of, to in references
    ]
    return [full(b"iref", *boxes)]


def _properties(items: list[Item]) -> bytes:
    every = list(dict.fromkeys(one for item in items for one in item.properties))
    told: list[bytes] = []
    for number, item in enumerate(items, 1):
        indexes = [
            every.index(one) + 1 | (0x80 if one[4:8] in (b"hvcC", b"irot", b"imir") else 0)
            for one in item.properties
        ]
        if indexes:
            told.append(struct.pack(">HB", number, len(indexes)) + bytes(indexes))
    links = full(b"ipma", struct.pack(">I", len(told)), *told)
    return box(b"iprp", box(b"ipco", *every), links)


def _places(items: list[Item], start: int) -> bytes:
    lines: list[bytes] = []
    for number, item in enumerate(items, 1):
        length = len(item.data) if item.length is None else item.length
        lines.append(struct.pack(">HHHII", number, 0, 1, start, length))
        start += len(item.data)
    return full(b"iloc", struct.pack(">BBH", 0x44, 0, len(items)), *lines)
