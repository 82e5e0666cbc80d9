"""Photos for their cells: cut around what matters, or whole on a backdrop; look and glow baked in.

What is done here once need not be done in each frame.
"""

from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter

from gpu_runners.pipelines.smart.focus import Focus, Window, crop_around
from gpu_runners.pipelines.smart.looks import applied
from schema.scenes.smart import Fit, Look

_COVER_KEEPS_MIN = 0.42
"""A photo that would lose more than the rest of this is shown whole instead."""
_COVER_KEEPS_FACES_MIN = 0.3
_CONTAIN_LARGER_MAX = 1.4
"""Whole is not quite whole: a little is cut, so that the picture does not look lost."""


def fit_for(width: float, height: float, aspect: float, wished: Fit, focus: Focus) -> Fit:
    """How a picture is really fitted: one that would lose too much is shown whole."""
    if wished is not Fit.COVER:
        return wished
    own = width / height
    kept = min(own, aspect) / max(own, aspect)
    least = _COVER_KEEPS_FACES_MIN if focus.faces else _COVER_KEEPS_MIN
    return Fit.COVER if kept >= least else Fit.CONTAIN


def contained(width: float, height: float, size: tuple[int, int]) -> float:
    """By which factor a picture is scaled to be shown (nearly) whole."""
    whole = min(size[0] / width, size[1] / height)
    cover = max(size[0] / width, size[1] / height)
    return min(cover, whole * _CONTAIN_LARGER_MAX)


def baked(
    photo: Image.Image,
    size: tuple[int, int],
    *,
    fit: Fit,
    focus: Focus,
    look: Look,
    glow: float,
    backdrop: Image.Image,
) -> tuple[Image.Image, Focus]:
    """A photo filling a cell of `size` (RGB), and where its focus is now.

    `backdrop` fills what is seen through or around it.
    """
    own = fit_for(photo.width, photo.height, size[0] / size[1], fit, focus)
    if own is Fit.PLAIN or photo.mode == "RGBA":
        made, focus = _plain(photo, size, look, backdrop), Focus()
    elif own is Fit.CONTAIN:
        made = _contained(applied(photo, look), size)
        factor = contained(photo.width, photo.height, size)
        wide, high = size[0] / (photo.width * factor), size[1] / (photo.height * factor)
        around = Window(left=0.5 - wide / 2, top=0.5 - high / 2, width=wide, height=high)
        focus = focus.seen_in(around)
    else:
        crop = crop_around(photo.width, photo.height, size[0] / size[1], focus)
        box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
        made = applied(_sized(photo, size, box), look)
        window = Window(
            left=crop.left / photo.width,
            top=crop.top / photo.height,
            width=crop.width / photo.width,
            height=crop.height / photo.height,
        )
        focus = focus.seen_in(window)
    return (_glowing(made, glow) if glow else made), focus


def _sized(
    photo: Image.Image, size: tuple[int, int], box: tuple[int, int, int, int] | None = None
) -> Image.Image:
    made = photo.resize(size, Image.Resampling.LANCZOS, box=box)
    larger = photo.width * photo.height > size[0] * size[1]
    return made.filter(ImageFilter.UnsharpMask(0.8, 35, 2)) if larger else made


def _contained(photo: Image.Image, size: tuple[int, int]) -> Image.Image:
    crop = crop_around(photo.width, photo.height, size[0] / size[1], Focus())
    box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
    small = (max(8, size[0] // 12), max(8, size[1] // 12))
    behind = photo.resize(small, Image.Resampling.BOX, box=box).filter(
        ImageFilter.GaussianBlur(2.4)
    )
    behind = ImageEnhance.Brightness(behind.resize(size, Image.Resampling.BICUBIC)).enhance(0.58)
    factor = contained(photo.width, photo.height, size)
    shown = _sized(photo, (round(photo.width * factor), round(photo.height * factor)))
    at = ((size[0] - shown.width) // 2, (size[1] - shown.height) // 2)
    shadow = Image.new("L", size, 0)
    ImageDraw.Draw(shadow).rectangle((at[0], at[1], at[0] + shown.width, at[1] + shown.height), 150)
    behind.paste((0, 0, 0), (0, 0, *size), shadow.filter(ImageFilter.GaussianBlur(min(size) / 28)))
    behind.paste(shown, at)
    return behind


def _plain(
    photo: Image.Image, size: tuple[int, int], look: Look, backdrop: Image.Image
) -> Image.Image:
    """Whole, on the backdrop, with a shadow of its own shape."""
    made = backdrop.resize(size, Image.Resampling.BICUBIC)
    if photo.mode == "RGBA":
        bounds = photo.getchannel("A").point([0] * 8 + [255] * 248).getbbox()
        photo = photo.crop(bounds) if bounds else photo
    factor = min(size[0] * 0.86 / photo.width, size[1] * 0.66 / photo.height)
    extent = (max(1, round(photo.width * factor)), max(1, round(photo.height * factor)))
    # Colour under a transparent pixel means nothing: it must not bleed into the edge.
    shown = photo.convert("RGBa").resize(extent, Image.Resampling.LANCZOS).convert("RGBA")
    alpha = shown.getchannel("A")
    if photo.mode != "RGBA":
        alpha = Image.new("L", extent, 0)
        ImageDraw.Draw(alpha).rounded_rectangle(
            (0, 0, extent[0] - 1, extent[1] - 1), radius=round(min(extent) * 0.035), fill=255
        )
    at = ((size[0] - extent[0]) // 2, (size[1] - extent[1]) // 2)
    shadow = Image.new("L", size, 0)
    shadow.paste(alpha, (at[0], at[1] + round(size[1] * 0.022)))
    shadow = shadow.filter(ImageFilter.GaussianBlur(min(size) * 0.03))
    made.paste((30, 24, 20), (0, 0, *size), shadow.point([round(a * 0.45) for a in range(256)]))
    made.paste(applied(shown.convert("RGB"), look), at, alpha)
    return made


def _glowing(picture: Image.Image, strength: float) -> Image.Image:
    small = picture.resize((max(8, picture.width // 4), max(8, picture.height // 4)))
    light = small.point([round(max(0, v - 90) * 255 / 165) for v in range(256)] * 3)
    soft = light.filter(ImageFilter.GaussianBlur(picture.height / 90)).resize(picture.size)
    screened = ImageChops.screen(picture, soft)
    return Image.blend(picture, screened, min(1.0, strength) * 0.7)
