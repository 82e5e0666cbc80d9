"""Pictures in and out: a stranger's file made safe and plain, results as PNG, WebP and JPEG."""

import io
import warnings
from pathlib import Path

from PIL import Image, ImageOps

from gpu_runners.pipelines.pipeline import InputError, InputReason, ProductFile
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.signatures import PICTURES, kinds_of

_SNIFFED_BYTES = 4096
_SIDE_MIN = 16
_SHAPE_MAX = 8
_POSTER_SIDE = 1280


def is_picture(path: Path) -> bool:
    """Whether a file begins like a picture that is opened here."""
    return _format(path) is not None


def open_picture(path: Path, limits: ProbeLimits) -> Image.Image:
    """The picture, turned upright, without transparency, in RGB. Errors: InputError.

    Its header is judged before anything is decoded.
    """
    try:
        with _quiet(), Image.open(path, formats=(_format(path) or "PNG",)) as file:
            _judge(file, limits)
            file.load()
            return _plain(file)
    except Image.DecompressionBombError as error:
        raise InputError(
            InputReason.TOO_LARGE, "The picture has too many pixels. Upload a smaller one."
        ) from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise InputError(
            InputReason.DAMAGED, "The picture is damaged or cut short. Upload it again."
        ) from error


def png(picture: Image.Image) -> bytes:
    """A picture without loss and without a word about who asked for what."""
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=3)
    return out.getvalue()


def from_png(data: bytes) -> Image.Image:
    """A picture of `png`. Errors: ValueError."""
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as file:
            return file.convert("RGB")
    except OSError as error:
        raise ValueError("no picture") from error


def write_preview(picture: Image.Image, path: Path) -> ProductFile:
    picture.save(path, "WEBP", quality=82, method=4)
    return ProductFile(name=path.name, path=path, content_type="image/webp")


def write_poster(picture: Image.Image, path: Path) -> ProductFile:
    """A JPEG of at most 1280 pixels a side."""
    small = picture.copy()
    small.thumbnail((_POSTER_SIDE, _POSTER_SIDE), Image.Resampling.LANCZOS)
    small.save(path, "JPEG", quality=88)
    return ProductFile(name=path.name, path=path, content_type="image/jpeg")


def _judge(file: Image.Image, limits: ProbeLimits) -> None:
    width, height = file.size
    if width * height > limits.pixels_max:
        raise InputError(
            InputReason.TOO_LARGE,
            f"The picture has {width} x {height} pixels; "
            f"at most {limits.pixels_max / 1_000_000:.0f} million are taken.",
        )
    if min(width, height) < _SIDE_MIN:
        raise InputError(
            InputReason.UNSUPPORTED,
            f"The picture is {width} x {height} pixels: too small to begin with.",
        )
    if max(width, height) > _SHAPE_MAX * min(width, height):
        raise InputError(
            InputReason.UNSUPPORTED,
            f"The picture is {width} x {height} pixels: cut it to a shape of at most "
            f"{_SHAPE_MAX} to 1.",
        )
    if getattr(file, "n_frames", 1) > 1 and file.format != "MPO":
        raise InputError(
            InputReason.UNSUPPORTED,
            "The picture is animated: upload a single frame, or the animation as a film.",
        )


def _plain(file: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(file)
    if upright.has_transparency_data:
        clear = upright.convert("RGBA")
        white = Image.new("RGBA", clear.size, "white")
        return Image.alpha_composite(white, clear).convert("RGB")
    if upright.mode.startswith(("I", "F")):  # 16 bits of grey: convert would cut them off
        upright = upright.point(lambda value: value / 257).convert("L")
    return upright.convert("RGB")


def _format(path: Path) -> str | None:
    with path.open("rb") as file:
        kinds = kinds_of(file.read(_SNIFFED_BYTES))
    return PICTURES.get(kinds[0]) if len(kinds) == 1 else None


def _quiet() -> warnings.catch_warnings:
    """What the library only warns of is judged here, by limits of our own."""
    return warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning)
