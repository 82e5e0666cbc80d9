"""Photos as they come, made alike: upright, sRGB, eight bit, alpha known, of a sensible size.

The header is judged before a pixel is decoded. An animation gives its first picture, and that is
told. Pillow may open only what is named here.
"""

import io
import warnings
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image, ImageCms, ImageOps

from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.signatures import PICTURES, kinds_of

_SNIFFED_BYTES = 4096
_LONG_SIDE = 2_560
"""Larger ones are made smaller at once: no cell of a film shows more."""
_SIDE_MIN = 16
_PIXELS_MAX = 80_000_000
_JPEG_PIXELS_MAX = 170_000_000
"""JPEG is made smaller while it is decoded."""
_BELOW_OPAQUE = [255] * 255 + [0]


class Photo(msgspec.Struct, frozen=True, kw_only=True):
    picture: Image.Image
    """RGBA where something can be seen through, else RGB."""
    width: int
    """Of the file, upright."""
    height: int
    notes: tuple[str, ...]

    @property
    def has_alpha(self) -> bool:
        return self.picture.mode == "RGBA"


def photo_format(path: Path) -> str | None:
    """What Pillow calls the format of a photo, by its first bytes; None: it is none.

    Errors: InputError for HEIF and for what is two things at once.
    """
    with path.open("rb") as file:
        kinds = kinds_of(file.read(_SNIFFED_BYTES))
    if "heic" in kinds:
        raise InputError(
            InputReason.UNSUPPORTED,
            "HEIF photos can't be read here: save it as JPEG (most phones do so when they share).",
        )
    photos = [PICTURES[kind] for kind in kinds if kind in PICTURES]
    if not photos:
        return None
    if len(kinds) > 1:
        raise InputError(
            InputReason.NOT_MEDIA, f"The file is two things at once: {' and '.join(kinds)}."
        )
    return photos[0]


def open_photo(path: Path, photo: str) -> Photo:
    """Read a photo of a format and make it alike. Errors: InputError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=(photo,)) as opened:
                _judge(opened)
                return _made_alike(opened)
    except InputError:
        raise
    except Image.DecompressionBombError as error:
        raise _too_large() from error
    except (OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, TypeError) as error:
        cut = "truncated" in str(error) or isinstance(error, EOFError)
        raise InputError(
            InputReason.TRUNCATED if cut else InputReason.DAMAGED,
            "The photo is cut short. Upload it again."
            if cut
            else "The photo is damaged and can't be read.",
        ) from error


def _judge(opened: Image.Image) -> None:
    jpeg = opened.format in ("JPEG", "MPO")
    if opened.width * opened.height > (_JPEG_PIXELS_MAX if jpeg else _PIXELS_MAX):
        raise _too_large()
    if min(opened.size) < _SIDE_MIN:
        raise InputError(
            InputReason.TOO_SHORT,
            f"The photo has only {opened.width} x {opened.height} pixels.",
        )


def _too_large() -> InputError:
    return InputError(
        InputReason.TOO_LARGE,
        f"The photo has more than {_PIXELS_MAX // 1_000_000} million pixels: make it smaller.",
    )


def _made_alike(opened: Image.Image) -> Photo:
    notes: list[str] = []
    if getattr(opened, "n_frames", 1) > 1 and opened.format != "MPO":
        notes.append("animation: its first picture is used")
    profile = opened.info.get("icc_profile")
    if opened.format in ("JPEG", "MPO"):
        opened.draft(None, (_LONG_SIDE, _LONG_SIDE))
    size = opened.size
    turned = opened.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    opened.load()
    picture = ImageOps.exif_transpose(opened)
    picture = _eight_bit(picture)
    picture.thumbnail((_LONG_SIDE, _LONG_SIDE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    picture = _in_srgb(picture, profile)
    if picture.mode == "RGBA" and not picture.getchannel("A").point(_BELOW_OPAQUE).getbbox():
        picture = picture.convert("RGB")
    width, height = size[::-1] if turned else size
    return Photo(picture=picture, width=width, height=height, notes=tuple(notes))


def _eight_bit(picture: Image.Image) -> Image.Image:
    """To L, RGB, RGBA or CMYK with eight bits."""
    if picture.mode.startswith("I") or picture.mode == "F":
        levels = np.asarray(picture, dtype=np.float64)
        low, high = (0.0, 65_535.0) if levels.max() > 255 else (0.0, 255.0)  # noqa: PLR2004
        scaled = np.clip((levels - low) / (high - low) * 255, 0, 255)
        return Image.fromarray(scaled.astype(np.uint8)).convert("RGB")
    if picture.mode in ("P", "PA", "LA", "La", "RGBa") or "transparency" in picture.info:
        return picture.convert("RGBA")
    if picture.mode in ("RGB", "RGBA", "CMYK"):
        return picture
    return picture.convert("RGB")


def _in_srgb(picture: Image.Image, profile: bytes | None) -> Image.Image:
    alpha = picture.getchannel("A") if picture.mode == "RGBA" else None
    plain = picture.convert("RGB") if picture.mode != "CMYK" else picture
    converted: Image.Image | None = None
    if profile:
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            target = ImageCms.createProfile("sRGB")
            converted = ImageCms.profileToProfile(plain, source, target, outputMode="RGB")
        except (ImageCms.PyCMSError, OSError, ValueError):
            converted = None  # a profile that makes no sense is worth less than none
    result = converted or plain.convert("RGB")
    if alpha:
        result.putalpha(alpha)
    return result
