"""Photos and drawings from strangers' files, the one way in: opened as what they are, made alike.

A file is opened as what its first bytes say and as nothing else; its header is judged before a
pixel is decoded. What phones write is read as they mean it: HEIC from its tiles, turned by its own
properties; of several pictures (a burst, a gain map, a depth map, a thumbnail) the one that is
meant; what lies behind a JPEG (a film, a brighter copy) left alone.
"""

import contextlib
import functools
import struct
import warnings
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Final

from PIL import AvifImagePlugin, Image, ImageFile, TiffImagePlugin, UnidentifiedImageError

from gpu_runners.pipelines.heic import load_reader, why_not
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.signatures import (
    PICTURES,
    UNSUPPORTED,
    instead_of,
    is_raw,
    kinds_of,
)

PIXELS_MAX: Final = 210_000_000
"""The cameras of phones reach 200 million; the same stands at the door."""
ANIMATED: Final = frozenset({"PNG", "WEBP", "GIF", "AVIF"})
"""Formats whose further pictures are frames; those of others (MPO, TIFF, HEIF) are others."""

_MILLION: Final = 1_000_000
_SNIFFED_BYTES: Final = 4096
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By the orientations of EXIF. Pillow's own way writes EXIF anew, which fails on odd notes."""
_CUT_SHORT: Final = ("truncated", "unexpected end of file", "outside of file bounds")
_NOT_BUILT_IN: Final = ("unsupported", "error while loading plugin")
_NO_LACK: Final = ("security limit", "invalid image size")
"""What the reader of HEIC calls a lack of memory, and is a header that lies."""
_OUT_OF_MEMORY: Final = (
    "cannot allocate",
    "out of memory",
    "memory error",
    "memory allocation",
    "codec error -9",
)
FAULTS: Final = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    RuntimeError,
    struct.error,
    zlib.error,
)
"""What readers raise on bytes that are not as they should be (they check little)."""


def load_readers() -> None:
    """Load every reader now: a process that is shut in has no files to load one from later."""
    _set_up()
    Image.init()
    load_reader()


@functools.cache
def _set_up() -> None:
    """Once in a process: threads, and no limits but our own."""
    Image.preinit()
    Image.MAX_IMAGE_PIXELS = None  # the limits are ours, and are asked before
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # a process that is shut in may start none


def kind_of_picture(path: Path) -> str | None:
    """Which of `PICTURES` a file is, by its first bytes; None: no picture.

    Errors: InputError for what is not taken, and for what is two things at once.
    """
    with path.open("rb") as file:
        kinds = kinds_of(file.read(_SNIFFED_BYTES))
    if len(kinds) > 1:
        if any(kind in PICTURES for kind in kinds):
            raise InputError(
                InputReason.NOT_MEDIA, f"The file is two things at once: {' and '.join(kinds)}."
            )
        return None
    if kinds and kinds[0] in UNSUPPORTED:
        raise not_taken(kinds[0])
    return kinds[0] if kinds and kinds[0] in PICTURES else None


def not_taken(kind: str) -> InputError:
    """The refusal of a kind of `UNSUPPORTED`."""
    instead = instead_of(kind) or "Save it as JPEG, PNG, MP4 or MOV."
    return InputError(
        InputReason.UNSUPPORTED, f"This is a {UNSUPPORTED[kind]}, which is not taken. {instead}"
    )


def opened(path: Path, kind: str, *, pixels_max: int = PIXELS_MAX) -> ImageFile.ImageFile:
    """A picture of a kind of `PICTURES`, of which only the header was read. Errors: InputError."""
    _set_up()
    if kind == "heic":
        load_reader()
    _judge_before(path, kind, pixels_max)
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd metadata: nobody reads them
            image = Image.open(path, formats=(PICTURES[kind],))
    except UnidentifiedImageError as error:
        raise _unopened(path, kind) from error
    except MemoryError:
        raise
    except FAULTS as error:
        raise refusal_of(error) from error
    try:
        if isinstance(image, TiffImagePlugin.TiffImageFile):
            _refuse_raw(image)
        refuse_pixels(image.width, image.height, pixels_max)
    except InputError:
        image.close()
        raise
    return image


@contextlib.contextmanager
def told_as_damage() -> Generator[None]:
    """What a decoder says of a broken file, in one word: they raise whatever comes to hand."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except FAULTS as error:
        raise refusal_of(error) from error


def refusal_of(error: Exception) -> InputError:
    """A reader's complaint, as what the caller is told. Raises MemoryError, if it lacked that."""
    told = str(error).lower()
    if isinstance(error, EOFError) or any(word in told for word in _CUT_SHORT):
        return InputError(
            InputReason.TRUNCATED, "The picture is cut short. Upload it again, the whole file."
        )
    if told.startswith(_NOT_BUILT_IN):
        return InputError(
            InputReason.UNSUPPORTED,
            "The picture is coded in a way that is not read. Export it as JPEG, PNG or HEIC.",
        )
    lacks_memory = any(word in told for word in _OUT_OF_MEMORY)
    if lacks_memory and not any(word in told for word in _NO_LACK):
        raise MemoryError(str(error)) from error
    return InputError(
        InputReason.DAMAGED, f"The picture is damaged and can't be read ({str(error)[:200]})."
    )


def refuse_pixels(width: int, height: int, pixels_max: int = PIXELS_MAX) -> None:
    """Errors: InputError for more pixels than are taken."""
    if width * height > pixels_max:
        raise InputError(
            InputReason.TOO_LARGE,
            f"The picture has {width} x {height} pixels; "
            f"at most {pixels_max / _MILLION:.0f} million are taken: make it smaller.",
        )


def frames_of(image: Image.Image) -> int:
    """How many pictures move; of pages, views and bursts the one that is meant stands alone."""
    if image.format not in ANIMATED:
        return 1
    with told_as_damage():
        return int(getattr(image, "n_frames", 1))


def decode_about(image: ImageFile.ImageFile, side: int) -> None:
    """Have a JPEG decoded in a half, a quarter, an eighth: its longer side at least so long."""
    if image.format in ("JPEG", "MPO"):
        part = min(1.0, side / max(image.size))
        width, height = (max(1, int(length * part)) for length in image.size)
        image.draft(None, (width, height))


def upright_size(image: Image.Image, stored: tuple[int, int] | None = None) -> tuple[int, int]:
    """Width and height as people see it; before or after decoding. A TIFF's reader turns both.

    `stored` is the size that its header told, for one that is decoded smaller.
    """
    width, height = stored or image.size
    is_turned = image.format != "TIFF" and orientation_of(image) in (5, 6, 7, 8)
    return (height, width) if is_turned else (width, height)


def orientation_of(image: Image.Image) -> int:
    """As EXIF counts them; 1, upright, where it says nothing or nothing that can be read.

    HEIC is turned by properties of its own, and its reader has done so: EXIF tells the same again.
    """
    if image.format == "HEIF":
        return 1
    try:
        found = int(image.getexif().get(0x0112, 1))
    except FAULTS:
        return 1
    return found if found in _TURNS else 1


def upright(image: Image.Image) -> Image.Image:
    """As people see it."""
    turn = _TURNS.get(orientation_of(image))
    return image if turn is None else image.transpose(turn)


def _judge_before(path: Path, kind: str, pixels_max: int) -> None:
    """WebP: its reader makes room for the canvas before it can be asked how large that is."""
    if kind != "webp":
        return
    with path.open("rb") as file:
        start = file.read(30)
    claimed = int.from_bytes(start[4:8], "little") + 8
    if len(start) < 30 or claimed > path.stat().st_size:  # noqa: PLR2004 - the header
        raise refusal_of(EOFError())
    if start[12:16] == b"VP8X":
        width = int.from_bytes(start[24:27], "little") + 1
        height = int.from_bytes(start[27:30], "little") + 1
        refuse_pixels(width, height, pixels_max)


def _refuse_raw(image: TiffImagePlugin.TiffImageFile) -> None:
    """What a sensor saw looks like a TIFF of its small picture."""
    tags = {tag: n for tag, n in image.tag_v2.items() if isinstance(n, int)}
    marks = dict.fromkeys(image.tag_v2, 0)
    if is_raw(marks | tags):
        raise not_taken("raw")


def _unopened(path: Path, kind: str) -> InputError:
    """Why; Pillow keeps what a reader said on opening to itself."""
    reason = why_not(path) if kind == "heic" else None
    if reason is not None:
        return refusal_of(reason)
    return InputError(InputReason.DAMAGED, f"The picture's header is damaged ({kind}).")
