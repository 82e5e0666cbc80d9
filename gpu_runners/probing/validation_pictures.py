"""Pictures: judged by their header, then decoded, every one of them if they move."""

from pathlib import Path
from typing import Final

from PIL import ImageFile

from gpu_runners.pipelines.heic import HeicFile
from gpu_runners.pipelines.pictures import (
    decode_about,
    opened,
    orientation_of,
    refuse_pixels,
    told_as_damage,
    upright_size,
)
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.probing.limits import MaterialLimits
from gpu_runners.probing.verdicts import RefusedError
from schema.commands import MediaFacts
from schema.refusals import MaterialRefusal
from schema.words import MediaKind

_TURNED: Final = {3: 180, 4: 180, 5: 90, 6: 90, 7: 270, 8: 270}
"""Degrees clockwise of each orientation of EXIF; 2, 4, 5 and 7 are mirrored besides."""
_MOVING: Final = frozenset({"gif", "png", "webp", "avif"})
_ALPHA: Final = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})
_SMALLER: Final = 8


def examine(path: Path, kind: str, limits: MaterialLimits) -> MediaFacts:
    """What the picture is. Raises RefusedError, InputError, MemoryError."""
    try:
        with told_as_damage(), opened(path, kind, pixels_max=limits.picture_pixels_max) as image:
            size = path.stat().st_size
            if kind in _BOXED and _reach(path, size) > size:
                raise _truncated()  # a decoder misses nothing beside the picture that is meant
            if isinstance(image, HeicFile):
                return _heic_facts(image, limits)
            return _facts(image, kind, _frames(image, kind, limits))
    except RefusedError:
        raise
    except InputError as error:
        raise _in_our_words(error, path, kind) from error


def _heic_facts(image: HeicFile, limits: MaterialLimits) -> MediaFacts:
    """Of the picture that is meant, which its reader has turned; those beside it are nobody's."""
    made = image.decode()
    refuse_pixels(made.width, made.height, limits.picture_pixels_max)
    return MediaFacts(
        kind=MediaKind.PICTURE,
        container="heic",
        width=made.width,
        height=made.height,
        frames=1,
        pixels=made.width * made.height,
        has_alpha=made.has_alpha,
    )


def _facts(image: ImageFile.ImageFile, kind: str, frames: int) -> MediaFacts:
    width, height = upright_size(image)
    rotation = _TURNED.get(orientation_of(image), 0)
    has_alpha = image.mode in _ALPHA or "transparency" in image.info
    decode_about(image, max(width, height) // _SMALLER)  # every byte is read, less of it is kept
    milliseconds = 0.0
    for number in range(frames):
        image.seek(number)
        image.load()
        has_alpha = has_alpha or image.mode in _ALPHA
        milliseconds += float(image.info.get("duration", 0) or 0)
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


def _truncated() -> RefusedError:
    return RefusedError(MaterialRefusal.TRUNCATED, "The picture is cut short: its end is missing.")


def _in_our_words(error: InputError, path: Path, kind: str) -> InputError | RefusedError:
    """Of damage, which of the two it is: something is wrong inside, or the end has not come.

    What a reader says may hold some of the file's content: it is not passed on.
    """
    if error.reason not in (InputReason.DAMAGED, InputReason.TRUNCATED):
        return error
    if error.reason == InputReason.TRUNCATED or _lacks_its_end(path, kind):
        return _truncated()
    return RefusedError(
        MaterialRefusal.DAMAGED, "The picture is damaged: it can't be decoded to its end."
    )


def _lacks_its_end(path: Path, kind: str) -> bool:
    size = path.stat().st_size
    if kind in _BOXED:
        over = size - _reach(path, size)
        return over < 0 or 0 < over < _BOX_HEAD
    mark = _ENDS.get(kind)
    with path.open("rb") as file:
        file.seek(max(0, size - _END_BYTES))
        return mark is not None and mark not in file.read()


def _reach(path: Path, size: int) -> int:
    """Where the last outermost box ends; what some phones write behind them is none."""
    at = 0
    with path.open("rb") as file:
        while at + _BOX_HEAD <= size:
            file.seek(at)
            head = file.read(16)
            length, kind = int.from_bytes(head[:4], "big"), head[4:8]
            if length == 1:
                length = int.from_bytes(head[8:16], "big")
            if kind not in _OUTER_BOXES or length < _BOX_HEAD:  # 0: to the end
                break
            at += length
    return at


_BOX_HEAD: Final = 8
_END_BYTES: Final = 65_536
_ENDS: Final = {"png": b"IEND", "jpeg": b"\xff\xd9", "gif": b";"}
_BOXED: Final = frozenset({"heic", "avif"})
_OUTER_BOXES: Final = frozenset(
    {b"ftyp", b"meta", b"mdat", b"moov", b"free", b"skip", b"uuid", b"mpvd", b"sefd", b"wide"}
)
