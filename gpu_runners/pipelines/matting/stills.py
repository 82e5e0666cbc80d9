"""Pictures from files: judged by the header, decoded, turned, brought to sRGB, freed of extras.

Every kind that cameras and shops write is taken: CMYK, palettes, 16 bit, own alpha, profiles.
What a picture's alpha hides is painted white, so that hidden colours neither show nor mislead.
"""

import contextlib
import io
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from gpu_runners.pipelines.matting.pixels import OPAQUE, Picture
from gpu_runners.pipelines.pipeline import InputError, InputReason
from gpu_runners.pipelines.probe_limits import ProbeLimits
from gpu_runners.pipelines.signatures import PICTURES, UNSUPPORTED, kinds_of

_SNIFFED_BYTES = 4096
_ANIMATED = frozenset({"PNG", "WEBP", "GIF", "AVIF"})
"""Kinds whose further pictures are frames; those of others (MPO, TIFF) are other pictures."""
_SIDE_MIN = 8
_MILLION = 1_000_000
_DEFAULT_FRAME_MS = 100
"""What browsers make of a frame that claims to last no time."""
_FRAME_MS_MIN = 20
_WIDE_MODES = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
_SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
_profiles = threading.Lock()


class Still(NamedTuple):
    """An open picture file of which only the header has been read."""

    image: Image.Image
    frames: int

    @property
    def moves(self) -> bool:
        return self.frames > 1


def open_still(path: Path, limits: ProbeLimits) -> Still | None:
    """Judge a file by its header; None, if it is no picture. Errors: InputError.

    It is opened as what its first bytes say, and as nothing else.
    """
    size = path.stat().st_size
    if size == 0:
        raise InputError(InputReason.EMPTY, "The file is empty (0 bytes).")
    if size > limits.bytes_max:
        raise InputError(
            InputReason.TOO_LARGE, f"The file is larger than {limits.bytes_max} bytes."
        )
    with path.open("rb") as file:
        kinds = kinds_of(file.read(_SNIFFED_BYTES))
    if len(kinds) == 1 and kinds[0] in UNSUPPORTED:
        raise InputError(
            InputReason.UNSUPPORTED,
            f"This is a {UNSUPPORTED[kinds[0]]}: save it as JPEG, PNG or WebP first.",
        )
    if len(kinds) != 1 or kinds[0] not in PICTURES:
        return None
    try:
        image = Image.open(path, formats=(PICTURES[kinds[0]],))
    except UnidentifiedImageError as error:
        raise InputError(
            InputReason.DAMAGED, f"The picture's header is damaged ({PICTURES[kinds[0]]})."
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_many_pixels("far too many", limits) from error
    except (OSError, SyntaxError, ValueError, EOFError, TypeError, OverflowError) as error:
        raise _damaged(error) from error
    width, height = image.size
    if width * height > limits.pixels_max:
        image.close()
        raise _too_many_pixels(f"{width} x {height}", limits)
    if min(width, height) < _SIDE_MIN:
        image.close()
        raise InputError(
            InputReason.TOO_SMALL,
            f"The picture has {width} x {height} pixels; each side needs at least {_SIDE_MIN}.",
        )
    frames = _frames(image) if image.format in _ANIMATED else 1
    return Still(image, frames)


def read(still: Still) -> Picture:
    """Decode a picture. Errors: InputError."""
    with _told_as_damage():
        still.image.load()
        return _normalised(still.image)


def read_frames(still: Still) -> Iterator[tuple[Picture, int]]:
    """Each frame of an animation and how many milliseconds it lasts. Errors: InputError."""
    for number in range(still.frames):
        with _told_as_damage():
            still.image.seek(number)
            still.image.load()
            lasts = int(still.image.info.get("duration") or 0)
            picture = _normalised(still.image)
        yield picture, lasts if lasts >= _FRAME_MS_MIN else _DEFAULT_FRAME_MS


@contextlib.contextmanager
def _told_as_damage() -> Generator[None]:
    """What a decoder says of a broken file, in one word: they raise whatever comes to hand."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise _damaged(error) from error


def _frames(image: Image.Image) -> int:
    with _told_as_damage():
        return int(getattr(image, "n_frames", 1))


def _normalised(image: Image.Image) -> Picture:
    profile = image.info.get("icc_profile")
    image = _eight_bit(ImageOps.exif_transpose(image))
    has_alpha = image.has_transparency_data
    if has_alpha and image.mode != "RGBA":
        image = image.convert("RGBA")
    alpha = np.asarray(image.getchannel("A")) if has_alpha else None
    colours = np.array(_in_srgb(image, profile))
    if alpha is None or bool((alpha == OPAQUE).all()):
        return Picture(colours, None)
    share = alpha[..., None].astype(np.uint16)
    on_white = (colours * share + OPAQUE * (OPAQUE - share) + OPAQUE // 2) // OPAQUE
    return Picture(on_white.astype(np.uint8), alpha.copy())


def _eight_bit(image: Image.Image) -> Image.Image:
    """Wider greys by their upper bits: the library would cut them off at 255."""
    if image.mode in _WIDE_MODES:
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode == "I":
        wide = np.clip(np.asarray(image), 0, 0xFFFF)
        return Image.fromarray((wide >> 8).astype(np.uint8))
    if image.mode == "F":
        raise InputError(
            InputReason.UNSUPPORTED,
            "The picture's brightness is in floating point; save it with 8 or 16 bit.",
        )
    return image


def _in_srgb(image: Image.Image, profile: object) -> Image.Image:
    """Colours as a screen takes them: by the profile where there is a good one."""
    if isinstance(profile, bytes) and profile and image.mode in {"RGB", "RGBA", "CMYK", "L"}:
        flat = image.convert("RGB") if image.mode == "RGBA" else image
        try:
            with _profiles:  # the library's profiles are not made for two threads at once
                source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
                if "srgb" in ImageCms.getProfileDescription(source).lower():
                    return flat.convert("RGB")
                turned = ImageCms.profileToProfile(flat, source, _SRGB, outputMode="RGB")
        except (ImageCms.PyCMSError, OSError):  # a broken profile: as if there were none
            return flat.convert("RGB")
        if turned is not None:
            return turned
    return image.convert("RGB")


def _damaged(error: Exception) -> InputError:
    told = str(error)
    if "truncated" in told.lower():
        return InputError(
            InputReason.TRUNCATED, "The picture is cut short. Upload the whole file again."
        )
    return InputError(InputReason.DAMAGED, f"The picture is damaged ({told[:200]}).")


def _too_many_pixels(told: str, limits: ProbeLimits) -> InputError:
    return InputError(
        InputReason.TOO_LARGE,
        f"The picture has {told} pixels; "
        f"at most {limits.pixels_max / _MILLION:.0f} million are taken. Make it smaller.",
    )
