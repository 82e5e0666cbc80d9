"""Pictures as phones write them, drawn here: an iPhone's tiles, gain maps, bursts, films behind."""

import io
import struct
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pillow_heif
from PIL import Image

from gpu_runners.pipelines.colours import made_profile
from tests.gpu_runners.heic import (
    DEPTH,
    GAIN_MAP,
    Item,
    Reference,
    auxiliary,
    coded,
    coded_colours,
    exif,
    grid,
    heic,
    mirrored,
    picture,
    profile,
    turned,
)

TILE = 64
SIZE = (180, 120)
"""As it is stored: three tiles by two, cut to this."""
CORNERS = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (40, 60, 210),
    "grey": (90, 90, 90),
}
"""Of the stored picture: left above, right above, left below, right below."""
DISPLAY_P3 = made_profile(12, 13) or b""
RED_IN_P3 = (234, 51, 35)
"""What sRGB's red (255, 0, 0) is there."""


def corners(size: tuple[int, int] = SIZE, mode: str = "RGB") -> Image.Image:
    """Four quarters of plain colours, so that every turn is seen."""
    width, height = size
    image = Image.new("RGB", size)
    for n, colour in enumerate(CORNERS.values()):
        left, top = n % 2 * (width // 2), n // 2 * (height // 2)
        image.paste(colour, (left, top, width, height))
    return image.convert(mode)


def iphone(
    *properties: bytes,
    orientation: int = 6,
    size: tuple[int, int] = SIZE,
    tiles: int = 6,
    brand: bytes = b"heic",
) -> bytes:
    """Tiles that are hidden, the recipe, EXIF, a thumbnail, a gain map and a depth map."""
    whole = Image.new("RGB", (3 * TILE, 2 * TILE))
    whole.paste(corners())
    boxes = [(x * TILE, y * TILE, (x + 1) * TILE, (y + 1) * TILE) for y in (0, 1) for x in range(3)]
    other = coded(Image.new("RGB", (TILE, TILE), (255, 0, 255)))
    beside = [
        Item(
            kind=b"hvc1", data=other.data, properties=(*picture(other).properties, auxiliary(what))
        )
        for what in (GAIN_MAP, DEPTH)
    ]
    items = [
        *(picture(coded(whole.crop(box)), hidden=True) for box in boxes),
        grid(3, 2, size, *properties),
        exif(orientation),
        picture(other),
        *beside,
    ]
    references = [
        Reference(b"dimg", 7, tuple(range(1, tiles + 1))),
        Reference(b"cdsc", 8, (7,)),
        Reference(b"thmb", 9, (7,)),
        Reference(b"auxl", 10, (7,)),
        Reference(b"auxl", 11, (7,)),
    ]
    return heic(items, references, primary=7, brand=brand)


def upright_iphone() -> bytes:
    """Held upright: stored lying, turned a quarter clockwise by a property, and told so by EXIF."""
    return iphone(turned(3), profile(DISPLAY_P3))


def selfie() -> bytes:
    """Turned and mirrored."""
    return iphone(turned(3), mirrored(1), orientation=5)


def burst() -> bytes:
    """Three pictures, of which the second is meant."""
    blank = picture(coded(Image.new("RGB", (48, 32), "white")))
    return heic([blank, picture(coded(corners())), blank], primary=2)


def odd_notes() -> bytes:
    """Beside a good picture, notes of a kind whose name is no text."""
    notes = msgspec.structs.replace(exif(6), kind=b"\xb0xif")
    return heic([picture(coded(corners())), notes], [Reference(b"cdsc", 2, (1,))])


def tone_mapped() -> bytes:
    """As newer phones have it: the brighter copy is a recipe that readers don't know."""
    other = picture(coded(Image.new("RGB", (48, 32), "white")), hidden=True)
    recipe = Item(kind=b"tmap", data=bytes(62), properties=())
    made = Reference(b"dimg", 3, (1, 2))
    return heic([picture(coded(corners())), other, recipe], [made])


def with_numbers(colour: tuple[int, int, int], primaries: int, transfer: int) -> bytes:
    """A plain colour whose meaning the file tells by numbers alone."""
    made = coded(Image.new("RGB", (64, 64), colour))
    return heic([picture(made, coded_colours(primaries, transfer, 6))])


def encoded(image: Image.Image) -> bytes:
    """By the encoder alone."""
    out = io.BytesIO()
    pillow_heif.from_pillow(image).save(out, quality=95, chroma=444)
    return out.getvalue()


def ten_bit(image: Image.Image) -> bytes:
    wide = (np.asarray(image).astype("<u2") * 257).tobytes()
    out = io.BytesIO()
    pillow_heif.from_bytes("RGB;16", image.size, wide).save(out, quality=95, chroma=444)
    return out.getvalue()


def lying() -> bytes:
    """Its header claims 64 x 64 pixels; a million are in it."""
    made = coded(Image.new("RGB", (1024, 1024)))
    return heic([picture(made._replace(size=(64, 64)))])


def too_large() -> bytes:
    """The recipe claims six hundred million pixels."""
    return iphone(size=(30_000, 20_000))


def other_coding() -> bytes:
    """AV1 where HEVC is usual."""
    box = struct.pack(">I", 12) + b"av1C\x81\0\0\0"
    size = picture(coded(corners())).properties[1]
    return heic([Item(kind=b"av01", data=bytes(50), properties=(box, size))], brand=b"mif1")


def without_meta() -> bytes:
    return b"\0\0\0\x18ftypheic" + bytes(64)


def gain_mapped_jpeg(film: bytes = b"") -> bytes:
    """As Android's Ultra HDR: XMP, a directory of pictures, a gain map behind, perhaps a film."""
    out, second = io.BytesIO(), io.BytesIO()
    corners().save(out, "JPEG", quality=95, subsampling=0, icc_profile=DISPLAY_P3)
    Image.new("L", (45, 30), 200).save(second, "JPEG")
    xmp = (
        b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF "
        b"xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'><rdf:Description "
        b"xmlns:hdrgm='http://ns.adobe.com/hdr-gain-map/1.0/' hdrgm:Version='1.0' "
        b"xmlns:GCamera='http://ns.google.com/photos/1.0/camera/' GCamera:MotionPhoto='1'/>"
        b"</rdf:RDF></x:xmpmeta>"
    )
    segment = b"\xff\xe1" + struct.pack(">H", len(xmp) + 2) + xmp
    plain = out.getvalue()
    first = len(plain) + len(segment) + _DIRECTORY_BYTES
    directory = _directory(first, len(second.getvalue()), 2 + len(segment) + 8)
    return plain[:2] + segment + directory + plain[2:] + second.getvalue() + film


def _directory(first: int, second: int, base: int) -> bytes:
    """Of two pictures (CIPA DC-007); places count from `base`."""
    entries = struct.pack(">IIIHH", 0x030000, first, 0, 0, 0) + struct.pack(
        ">IIIHH", 0, second, first - base, 0, 0
    )
    tags = (
        struct.pack(">HHI4s", 0xB000, 7, 4, b"0100")
        + struct.pack(">HHII", 0xB001, 4, 1, 2)
        + struct.pack(">HHII", 0xB002, 7, len(entries), 8 + 2 + 3 * 12 + 4)
    )
    body = b"MPF\0MM\0*" + struct.pack(">IH", 8, 3) + tags + bytes(4) + entries
    return b"\xff\xe2" + struct.pack(">H", len(body) + 2) + body


_DIRECTORY_BYTES = len(_directory(0, 0, 0))


def noted_jpeg() -> bytes:
    """EXIF of a whole segment, with an orientation, and 600 KB of further XMP (a depth map)."""
    out = io.BytesIO()
    notes = Image.Exif()
    notes[0x0112] = 6
    notes[0x927C] = b"\xee" * 60_000
    corners().save(out, "JPEG", quality=95, subsampling=0, exif=notes)
    plain = out.getvalue()
    head = b"http://ns.adobe.com/xmp/extension/\0" + b"A" * 32
    segments = b"".join(
        b"\xff\xe1" + struct.pack(">H", len(head) + 60_010) + head + struct.pack(">II", 600_000, n)
        + b"Q" * 60_000
        for n in range(0, 600_000, 60_000)
    )  # fmt: skip
    return plain[:2] + segments + plain[2:]


def dng(*, far: bool = False) -> bytes:
    """A raw photo as Apple's ProRAW begins: a TIFF of a small picture, the rest in sub-images."""
    preview = corners((64, 48)).tobytes()
    at = 5_000 if far else 8
    entries = [
        (254, 4, 1, 1),
        (256, 3, 1, 64 << 16),
        (257, 3, 1, 48 << 16),
        (258, 3, 1, 8 << 16),
        (259, 3, 1, 1 << 16),
        (262, 3, 1, 2 << 16),
        (273, 4, 1, at + 2 + 12 * 11 + 4),
        (277, 3, 1, 3 << 16),
        (278, 3, 1, 48 << 16),
        (279, 4, 1, len(preview)),
        (50706, 1, 4, 0x01060000),
    ]
    index = b"".join(struct.pack(">HHII", *entry) for entry in entries)
    head = (b"MM\0*" + struct.pack(">I", at)).ljust(at, b"\0")
    return head + struct.pack(">H", len(entries)) + index + bytes(4) + preview


def deep_png(path: Path, *, alpha: bool = False) -> None:
    """A screenshot with 16 bits a colour, by hand: Pillow writes none."""
    pixels = np.asarray(corners(mode="RGBA" if alpha else "RGB")).astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", *SIZE, 16, 6 if alpha else 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )  # fmt: skip
