"""Text as pictures: which font has which letter, where a line breaks, and the drawing itself.

A user's text never comes near a filter's syntax: it becomes a transparent picture here, and the
film lays the picture over its frames. The fonts come from packages (all under the SIL Open Font
License), never from the machine, so that a film looks the same wherever it is made. A letter that
the wished font lacks is taken from the next of a chain: Latin, CJK by language, other scripts,
signs, emoji in one colour.
"""

import functools
import importlib.util
import unicodedata
from pathlib import Path

import msgspec
from fontTools.ttLib import TTFont  # type: ignore[import-untyped]
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from schema.scenes.smart import Family, Language

Colour = tuple[int, int, int]

_CLUSTER_MARKS_MAX = 4
"""Marks stacked on one letter; more are only ever meant to break a layout."""
_SHRINK = 0.92
_SMALLEST = 0.45
"""A text is made smaller to fit, down to this part of its size; then it is cut with an ellipsis."""
_NOT_AT_LINE_START = frozenset(
    "、。，．・：；？！）］｝」』】〉》〕ー…,.:;?!)]}%’”"  # noqa: RUF001 - they are meant
    "ぁぃぅぇぉっゃゅょァィゥェォッャュョ々"
)
_NOT_AT_LINE_END = frozenset("（［｛「『【〈《〔([{‘“")  # noqa: RUF001 - the same
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")
_BLANK = " "


class TextStyle(msgspec.Struct, frozen=True, kw_only=True):
    pixels: int
    """Height of the em."""
    family: Family = Family.SANS
    weight: int = 600
    """100 to 900, as far as the font goes."""
    italic: bool = False
    colour: Colour = (255, 255, 255)
    align: str = "center"
    """left, center or right, of lines among each other."""
    tracking: float = 0.0
    """Space added between letters, in em; not for scripts that join their letters."""
    leading: float = 1.16
    """From line to line, in em."""
    shadow: float = 0.0
    """Opacity of a soft shadow below the letters, 0 to 1."""
    outline_pixels: int = 0
    outline: Colour = (0, 0, 0)
    plate: Colour | None = None
    """Colour of a rounded plate behind the text."""
    plate_opacity: float = 0.85


class _Face(msgspec.Struct, frozen=True, kw_only=True):
    package: str
    file: str
    index: int = 0

    @property
    def path(self) -> Path | None:
        return _file_of(self.package, self.file)


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    face: _Face | None
    """None: no font at all is installed; Pillow's own draws."""


_OWN: dict[tuple[Family, bool], _Face] = {
    (Family.SANS, True): _Face(package="manimgx_fonts", file="NotoSans-Italic[wght].ttf"),
    (Family.SERIF, False): _Face(
        package="fontpkg_playfair_display", file="files/PlayfairDisplay[wght].ttf"
    ),
    (Family.SERIF, True): _Face(
        package="fontpkg_playfair_display", file="files/PlayfairDisplay-Italic[wght].ttf"
    ),
    (Family.HAND, False): _Face(package="fontpkg_caveat", file="files/Caveat[wght].ttf"),
    (Family.POSTER, False): _Face(package="fontpkg_anton", file="files/Anton-Regular.ttf"),
}
_LATIN = _Face(package="manimgx_fonts", file="NotoSans[wght].ttf")
_SCRIPTS = (
    *("Arabic", "Armenian", "Bengali", "Devanagari", "Ethiopic", "Georgian", "Gujarati"),
    *("Gurmukhi", "Hebrew", "Kannada", "Khmer", "Lao", "Malayalam", "Myanmar", "Oriya"),
    *("Sinhala", "Symbols", "Tamil", "Telugu", "Thai"),
)
_OTHERS = (
    *(_Face(package="manimgx_fonts", file=f"NotoSans{script}[wght].ttf") for script in _SCRIPTS),
    _Face(package="manimgx_fonts", file="NotoEmoji[wght].ttf"),
)
_HAN_INDEX = {
    Language.JAPANESE: 0,
    Language.KOREAN: 1,
    Language.CHINESE: 2,
    Language.TRADITIONAL: 3,
}


def text_picture(
    text: str,
    style: TextStyle,
    *,
    width_max: int,
    lines_max: int = 3,
    language: Language | None = None,
) -> Image.Image | None:
    """Draw a text into a transparent picture (RGBA) at most `width_max` pixels wide.

    It is broken into lines, then made smaller, then cut with an ellipsis, until it fits. None, if
    nothing of it can be seen.
    """
    cleaned = clean(text)
    if not cleaned:
        return None
    language = language or language_of(cleaned)
    margin = _margin(style)
    room = max(1, width_max - 2 * margin)
    pixels = float(style.pixels)
    while True:
        fitted = msgspec.structs.replace(style, pixels=max(4, round(pixels)))
        lines = _broken(cleaned, fitted, language, room)
        fits = len(lines) <= lines_max and all(
            _width(line, fitted, language) <= room for line in lines
        )
        if fits or pixels <= style.pixels * _SMALLEST:
            break
        pixels *= _SHRINK
    lines = _cut(lines, fitted, language, room, lines_max)
    return _drawn(lines, fitted, language)


def clean(text: str) -> str:
    """What of a text is drawn: no controls, no direction overrides, few marks on each letter."""
    kept: list[str] = []
    marks = 0
    for letter in unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\t", _BLANK)):
        kind = unicodedata.category(letter)
        if letter in "\r\n\u2028\u2029":
            kept.append("\n")
        elif kind == "Zs":
            kept.append(_BLANK)
        elif kind[0] == "C" and letter not in _JOINERS:
            continue
        elif kind[0] == "M" and letter not in _JOINERS:
            marks += 1
            if marks > _CLUSTER_MARKS_MAX or not kept:
                continue
            kept.append(letter)
            continue
        else:
            kept.append(letter)
        marks = 0
    lines = "".join(kept).split("\n")
    return "\n".join(_BLANK.join(line.split()) for line in lines).strip("\n")


def language_of(text: str) -> Language:
    """The language that decides the form of Han characters, by the letters around them."""
    for letter in text:
        if "\u3040" <= letter <= "\u30ff":
            return Language.JAPANESE
        if "\uac00" <= letter <= "\ud7a3" or "\u1100" <= letter <= "\u11ff":
            return Language.KOREAN
        if "\u3100" <= letter <= "\u312f":
            return Language.TRADITIONAL
    return Language.CHINESE


@functools.lru_cache(maxsize=64)
def _file_of(package: str, file: str) -> Path | None:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / file
    return path if path.is_file() else None


@functools.lru_cache(maxsize=64)
def _letters(path: Path, index: int) -> frozenset[int]:
    with TTFont(str(path), fontNumber=index, lazy=True) as font:
        return frozenset(font.getBestCmap() or ())


@functools.lru_cache(maxsize=64)
def _font(face: _Face | None, pixels: int, weight: int) -> ImageFont.FreeTypeFont:
    path = face.path if face else None
    if face is None or path is None:
        own = ImageFont.load_default(pixels)
        assert isinstance(own, ImageFont.FreeTypeFont)  # noqa: S101 - Pillow with FreeType
        return own
    font = ImageFont.truetype(str(path), pixels, index=face.index)
    try:
        axes = font.get_variation_axes()
    except OSError:  # a font of one weight
        return font
    span = axes[0]
    low, high = span["minimum"] or 0, span["maximum"] or 0
    others = [axis["default"] or 0 for axis in axes[1:]]
    font.set_variation_by_axes([min(max(weight, low), high), *others])
    return font


def _chain(style: TextStyle, language: Language) -> list[_Face]:
    wished = [_OWN.get((style.family, style.italic)) or _OWN.get((style.family, False))]
    han = _Face(
        package="manimgx_fonts_cjk",
        file="NotoSansCJK-VF.otf.ttc",
        index=_HAN_INDEX[language],
    )
    faces = [*(face for face in wished if face), _LATIN, han, *_OTHERS]
    return [face for face in faces if face.path]


def _has(face: _Face, text: str) -> bool:
    path = face.path
    if path is None:
        return False
    letters = _letters(path, face.index)
    return all(ord(letter) in letters for letter in text if letter not in _JOINERS)


def _runs(text: str, style: TextStyle, language: Language) -> list[_Run]:
    """Split a line where the font changes. One font for all of it keeps its shaping whole."""
    chain = _chain(style, language)
    if not chain:
        return [_Run(text=text, face=None)]
    runs: list[_Run] = []
    for cluster in _clusters(text):
        last = runs[-1] if runs else None
        face: _Face | None
        if last and last.face and (cluster == _BLANK or not _drawable(cluster)):
            face = last.face
        else:
            base = cluster[0]
            whole = next((one for one in chain if _has(one, cluster)), None)
            face = whole or next((one for one in chain if _has(one, base)), None)
        if face is None:
            continue  # no font has it: an empty box says nothing to anybody
        if last and last.face == face:
            runs[-1] = _Run(text=last.text + cluster, face=face)
        else:
            runs.append(_Run(text=cluster, face=face))
    return runs[::-1] if _from_the_right(text) else runs


def _drawable(cluster: str) -> bool:
    return unicodedata.category(cluster[0])[0] not in "CZ"


def _clusters(text: str) -> list[str]:
    """Letters with all that belongs to them: marks, variation selectors, joined emoji."""
    clusters: list[str] = []
    for letter in text:
        joined = bool(clusters) and (
            unicodedata.category(letter)[0] == "M"
            or letter in _JOINERS
            or clusters[-1][-1] == "\u200d"
        )
        if joined:
            clusters[-1] += letter
        else:
            clusters.append(letter)
    return clusters


def _from_the_right(text: str) -> bool:
    for letter in text:
        direction = unicodedata.bidirectional(letter)
        if direction in ("R", "AL"):
            return True
        if direction == "L":
            return False
    return False


def _spaced(run: _Run, style: TextStyle) -> bool:
    """Whether tracking applies: never to scripts that join or reorder their letters."""
    return style.tracking > 0 and not (run.face and run.face in _OTHERS)


def _run_width(run: _Run, style: TextStyle) -> float:
    font = _font(run.face, style.pixels, style.weight)
    if not _spaced(run, style):
        return font.getlength(run.text)
    clusters = _clusters(run.text)
    return sum(font.getlength(one) for one in clusters) + (
        style.tracking * style.pixels * len(clusters)
    )


def _width(line: str, style: TextStyle, language: Language) -> float:
    runs = _runs(line, style, language)
    width = sum(_run_width(run, style) for run in runs)
    trailing = style.tracking * style.pixels if runs and _spaced(runs[-1], style) else 0.0
    return width - trailing


def _broken(text: str, style: TextStyle, language: Language, room: int) -> list[str]:
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for piece in _pieces(paragraph):
            if line and _width((line + piece).rstrip(), style, language) > room:
                lines.append(line.rstrip())
                line = piece.lstrip()
            else:
                line += piece
        lines.append(line.rstrip())
    return lines


def _pieces(paragraph: str) -> list[str]:
    """What must stay on one line: words with the space after them, single Han letters."""
    pieces: list[str] = []
    for cluster in _clusters(paragraph):
        last = pieces[-1] if pieces else ""
        glued = (
            not last
            or cluster == _BLANK
            or cluster[0] in _NOT_AT_LINE_START
            or last[-1] in _NOT_AT_LINE_END
            or not (last[-1] in " -\u2013\u2014" or _wide(last[-1]) or _wide(cluster[0]))
        )
        if last and glued:
            pieces[-1] += cluster
        else:
            pieces.append(cluster)
    return pieces


def _wide(letter: str) -> bool:
    """Han, kana and full-width signs break anywhere; Hangul breaks at its spaces."""
    return unicodedata.east_asian_width(letter) in ("W", "F") and not (
        "\uac00" <= letter <= "\ud7a3"
    )


def _cut(
    lines: list[str], style: TextStyle, language: Language, room: int, lines_max: int
) -> list[str]:
    kept = lines[:lines_max]
    for i, line in enumerate(kept):
        more = len(lines) > lines_max and i == lines_max - 1
        if not more and _width(line, style, language) <= room:
            continue
        clusters = _clusters(line)
        while clusters and _width("".join(clusters) + "…", style, language) > room:
            clusters.pop()
        kept[i] = "".join(clusters).rstrip() + "…"
    return kept


def _margin(style: TextStyle) -> int:
    return round(style.pixels * (0.75 if style.shadow else 0.42 if style.plate else 0.12)) + (
        style.outline_pixels
    )


def _drawn(lines: list[str], style: TextStyle, language: Language) -> Image.Image | None:
    laid = [_runs(line, style, language) for line in lines]
    widths = [_width(line, style, language) for line in lines]
    if max(widths) <= 0:
        return None
    margin, step = _margin(style), style.pixels * style.leading
    size = (
        round(max(widths)) + 2 * margin,
        round(step * (len(lines) - 1) + style.pixels * 1.3) + 2 * margin,
    )
    shape = Image.new("L", size, 0)
    outline = Image.new("L", size, 0) if style.outline_pixels else None
    for i, (runs, width) in enumerate(zip(laid, widths, strict=True)):
        slack = max(widths) - width
        left = margin + slack * {"left": 0.0, "right": 1.0}.get(style.align, 0.5)
        base = margin + style.pixels * 1.02 + i * step
        _draw_runs(shape, runs, style, (left, base), 0)
        if outline:
            _draw_runs(outline, runs, style, (left, base), style.outline_pixels)
    if shape.getbbox() is None:
        return None
    return _composed(shape, outline, style)


def _draw_runs(
    on: Image.Image, runs: list[_Run], style: TextStyle, at: tuple[float, float], stroke: int
) -> None:
    draw = ImageDraw.Draw(on)
    left, base = at
    for run in runs:
        font = _font(run.face, style.pixels, style.weight)
        if not _spaced(run, style):
            draw.text((left, base), run.text, 255, font, anchor="ls", stroke_width=stroke)
            left += font.getlength(run.text)
            continue
        for cluster in _clusters(run.text):
            draw.text((left, base), cluster, 255, font, anchor="ls", stroke_width=stroke)
            left += font.getlength(cluster) + style.tracking * style.pixels


def _composed(shape: Image.Image, outline: Image.Image | None, style: TextStyle) -> Image.Image:
    picture = Image.new("RGBA", shape.size, (*style.colour, 0))
    if style.plate:
        plate = Image.new("L", shape.size, 0)
        ImageDraw.Draw(plate).rounded_rectangle(
            (0, 0, shape.width - 1, shape.height - 1),
            radius=round(style.pixels * 0.28),
            fill=round(255 * style.plate_opacity),
        )
        picture = _over(picture, style.plate, plate)
    if style.shadow:
        # A wide one calms what lies behind the words, a narrow one draws their edges.
        for wide, strength in ((0.36, 0.62), (0.13, 1.0)):
            soft = (outline or shape).filter(ImageFilter.GaussianBlur(style.pixels * wide))
            offset = Image.new("L", shape.size, 0)
            offset.paste(soft, (0, max(1, round(style.pixels * 0.045))))
            table = _strengthened(min(1.0, style.shadow) * strength)
            picture = _over(picture, (0, 0, 0), offset.point(table))
    if outline:
        picture = _over(picture, style.outline, outline)
    return _over(picture, style.colour, shape)


def _strengthened(strength: float) -> list[int]:
    """A blur makes thin letters' shadows too thin: the table lifts them again."""
    return [min(255, round(level * 1.7 * strength)) for level in range(256)]


def _over(picture: Image.Image, colour: Colour, mask: Image.Image) -> Image.Image:
    layer = Image.new("RGBA", picture.size, (*colour, 0))
    layer.putalpha(mask)
    return Image.alpha_composite(picture, layer)
