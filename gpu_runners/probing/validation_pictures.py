"""Pictures: judged by their header, then decoded, every one of them if they move."""

import warnings
from pathlib import Path
from typing import Final

from PIL import AvifImagePlugin, Image, ImageFile

from gpu_runners.pipelines.signatures import PICTURES
from gpu_runners.probing.limits import MaterialLimits
from gpu_runners.probing.verdicts import RefusedError
from schema.commands import MediaFacts
from schema.refusals import MaterialRefusal
from schema.words import MediaKind

_ORIENTATION: Final = 0x0112
_TURNED: Final = {3: 180, 4: 180, 5: 90, 6: 90, 7: 270, 8: 270}
"""Degrees clockwise of each orientation of EXIF; 2, 4, 5 and 7 are mirrored besides."""
_MOVING: Final = frozenset({"gif", "png", "webp", "avif"})
_ALPHA: Final = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})
_MILLION: Final = 1_000_000
_SMALLER: Final = 8
_FAULTS: Final = (
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
)
"""What Pillow raises on bytes that are not as they should be (its readers check little)."""
_ERRORS_OF_MEMORY: Final = ("cannot allocate", "out of memory", "memory error", "codec error -9")


def load_readers() -> None:
    """Load every reader now: later there are no files to load one from."""
    Image.preinit()
    Image.init()
    warnings.simplefilter("ignore")  # of Pillow, on odd metadata: nobody reads them
    Image.MAX_IMAGE_PIXELS = None  # the limits are ours, and are asked before
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # a process that is shut in may start none


def examine(path: Path, kind: str, limits: MaterialLimits) -> MediaFacts:
    """What the picture is. Raises RefusedError, MemoryError."""
    size = path.stat().st_size
    _refuse_by_header(path, kind, size, limits)
    try:
        with Image.open(path, formats=[PICTURES[kind]]) as image:
            _refuse_size(image.width, image.height, limits)
            frames = _frames(image, kind, limits)
            return _facts(image, kind, frames)
    except RefusedError:
        raise
    except _FAULTS as error:
        if any(word in str(error).lower() for word in _ERRORS_OF_MEMORY):
            raise MemoryError(str(error)) from error
        raise _damaged(path, kind, error) from error


def _facts(image: ImageFile.ImageFile, kind: str, frames: int) -> MediaFacts:
    width, height = image.size
    rotation = _TURNED.get(_orientation(image), 0)
    has_alpha = image.mode in _ALPHA or "transparency" in image.info
    if kind == "jpeg" and image.mode != "CMYK":  # every byte is read, an eighth of it is kept
        image.draft("RGB", (width // _SMALLER, height // _SMALLER))
    milliseconds = 0.0
    for number in range(frames):
        image.seek(number)
        image.load()
        has_alpha = has_alpha or image.mode in _ALPHA
        milliseconds += float(image.info.get("duration", 0) or 0)
    if rotation in (90, 270):
        width, height = height, width
    return MediaFacts(
        kind=MediaKind.PICTURE,
        container=kind,
        width=width,
        height=height,
        rotation=rotation,
        frames=frames,
        duration_ms=max(0, round(milliseconds)) if frames > 1 else 0,
        pixels=width * height,
        has_alpha=has_alpha,
        animated=frames > 1,
    )


def _orientation(image: ImageFile.ImageFile) -> int:
    """1, upright, where it says nothing or nothing that can be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except _FAULTS:
        return 1


def _frames(image: ImageFile.ImageFile, kind: str, limits: MaterialLimits) -> int:
    """How many pictures move; of several pages, or views of one camera, the first is meant."""
    if kind not in _MOVING:
        return 1
    frames = int(getattr(image, "n_frames", 1))
    if frames > limits.picture_frames_max:
        raise RefusedError(
            MaterialRefusal.FRAMES_TOO_MANY,
            f"It has {frames} pictures; at most {limits.picture_frames_max} are taken.",
        )
    if frames > 1 and frames * image.width * image.height > limits.decoded_pixels_max:
        raise RefusedError(
            MaterialRefusal.FRAMES_TOO_MANY,
            f"{frames} pictures of {image.width} x {image.height} are more than is taken.",
        )
    return frames


def _refuse_size(width: int, height: int, limits: MaterialLimits) -> None:
    if width * height > limits.picture_pixels_max:
        raise RefusedError(
            MaterialRefusal.PIXELS_TOO_MANY,
            f"The picture has {width} x {height} pixels; "
            f"at most {limits.picture_pixels_max / _MILLION:.0f} million are taken.",
        )


def _refuse_by_header(path: Path, kind: str, size: int, limits: MaterialLimits) -> None:
    """WebP: Pillow would make room for its canvas before it can be asked how large that is."""
    if kind != "webp":
        return
    with path.open("rb") as file:
        start = file.read(30)
    if len(start) < 30 or int.from_bytes(start[4:8], "little") + 8 > size:  # noqa: PLR2004 - header
        raise _truncated()
    if start[12:16] == b"VP8X":
        width = int.from_bytes(start[24:27], "little") + 1
        height = int.from_bytes(start[27:30], "little") + 1
        _refuse_size(width, height, limits)


def _truncated() -> RefusedError:
    return RefusedError(MaterialRefusal.TRUNCATED, "The picture is cut short: its end is missing.")


def _damaged(path: Path, kind: str, error: Exception) -> RefusedError:
    """Which of the two it is: something is wrong inside, or the end has not come."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END_BYTES))
        end = file.read()
    mark = _ENDS.get(kind)
    if "truncated" in str(error).lower() or (mark is not None and mark not in end):
        return _truncated()
    return RefusedError(
        MaterialRefusal.DAMAGED, "The picture is damaged: it can't be decoded to its end."
    )


_END_BYTES: Final = 65_536
_ENDS: Final = {"png": b"IEND", "jpeg": b"\xff\xd9", "gif": b";"}
