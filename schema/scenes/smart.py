"""What a caller may ask of the scene `smart`, and what a template may say.

A template is the schema of a film to be filled with pictures, clips, words, music. Everything is a
value of a closed set or a number within limits; nothing of it is ever read as a filter, an
expression or a path.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from schema.scenes.judging import COLOUR, NAME, BadParametersError, Fault, Size, Strict, struct_of

INPUTS_MAX = 60
_SECONDS_MAX = 120.0

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A part of the canvas or of the full strength."""
Hex = Annotated[str, msgspec.Meta(pattern=COLOUR)]
Key = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,23}$")]
Wording = Annotated[str, msgspec.Meta(max_length=200)]


class Family(StrEnum):
    """What a template may ask for; each falls back on `SANS` for letters that it lacks."""

    SANS = "sans"
    SERIF = "serif"
    HAND = "hand"
    POSTER = "poster"


class Language(StrEnum):
    """Which form Han characters take: one code point looks different in each."""

    CHINESE = "zh"
    TRADITIONAL = "zh-Hant"
    JAPANESE = "ja"
    KOREAN = "ko"


class Aspect(StrEnum):
    WIDE = "16:9"
    TALL = "9:16"
    SQUARE = "1:1"
    PORTRAIT = "4:5"


class Kind(StrEnum):
    """What a slot takes. The other kind is taken where there is nothing else."""

    ANY = "any"
    PHOTO = "photo"
    CLIP = "clip"


class Fit(StrEnum):
    COVER = "cover"
    """Fills the cell; what sticks out is cut, around faces where there are any."""
    CONTAIN = "contain"
    """All of it is seen, on a blurred copy of itself."""
    PLAIN = "plain"
    """All of it is seen, on the backdrop's colours: for cut-outs of products."""


class Move(StrEnum):
    """How the camera goes over a picture (Ken Burns)."""

    NONE = "none"
    IN = "in"
    OUT = "out"
    LEFT = "left"
    RIGHT = "right"
    UP = "up"
    DOWN = "down"
    AUTO = "auto"
    """Another one for each slot, in a fixed order."""


class TransitionKind(StrEnum):
    CUT = "cut"
    DISSOLVE = "dissolve"
    DIP_BLACK = "dip_black"
    DIP_WHITE = "dip_white"
    WIPE_LEFT = "wipe_left"
    WIPE_RIGHT = "wipe_right"
    WIPE_UP = "wipe_up"
    WIPE_DOWN = "wipe_down"
    SLIDE_LEFT = "slide_left"
    SLIDE_RIGHT = "slide_right"
    SLIDE_UP = "slide_up"
    SLIDE_DOWN = "slide_down"
    SMOOTH_LEFT = "smooth_left"
    SMOOTH_RIGHT = "smooth_right"
    SMOOTH_UP = "smooth_up"
    SMOOTH_DOWN = "smooth_down"
    CIRCLE_OPEN = "circle_open"
    CIRCLE_CLOSE = "circle_close"
    ZOOM = "zoom"
    BLUR = "blur"
    RADIAL = "radial"
    PIXELS = "pixels"


class Look(StrEnum):
    """A colour table (`luts/*.cube`)."""

    NONE = "none"
    WARM = "warm"
    TEAL = "teal"
    FADED = "faded"
    VIVID = "vivid"
    MONO = "mono"
    CLEAN = "clean"


class MusicStyle(StrEnum):
    WARM = "warm"
    DRIVE = "drive"
    POP = "pop"
    CALM = "calm"
    CINEMA = "cinema"
    NONE = "none"


class Entrance(StrEnum):
    NONE = "none"
    FADE = "fade"
    RISE = "rise"
    DROP = "drop"
    FROM_LEFT = "from_left"
    FROM_RIGHT = "from_right"


class Missing(StrEnum):
    """What is done with slots that no input is left for."""

    REPEAT = "repeat"
    """Inputs come again: another move, another moment."""
    SHORTEN = "shorten"
    """The slots fall away, and the film is shorter."""


class Cell(Strict, frozen=True, kw_only=True):
    """Where in the canvas a picture stands; the whole of it, unless told otherwise."""

    x: Share = 0.0
    y: Share = 0.0
    width: Annotated[float, msgspec.Meta(gt=0.05, le=1)] = 1.0
    height: Annotated[float, msgspec.Meta(gt=0.05, le=1)] = 1.0
    take: Annotated[int, msgspec.Meta(ge=0, le=40)] | None = None
    """Which input, from 0; None: the next one."""
    tilt: Annotated[float, msgspec.Meta(ge=-12, le=12)] = 0.0
    """Degrees, clockwise."""
    border: Annotated[float, msgspec.Meta(ge=0, le=0.1)] = 0.0
    """Of paper around the picture, by the canvas' short side."""
    border_bottom: Annotated[float, msgspec.Meta(ge=0, le=0.3)] | None = None
    """As on an instant photograph; None: as `border`."""
    radius: Annotated[float, msgspec.Meta(ge=0, le=0.2)] = 0.0


class Backdrop(Strict, frozen=True, kw_only=True):
    """What is seen around cells that don't fill the canvas."""

    top: Hex = "#f4efe6"
    bottom: Hex = "#e3d9c8"
    paper: Hex = "#ffffff"
    texture: Share = 0.0
    """Grain of paper or wall."""
    spotlight: Share = 0.0
    """A soft light behind the middle."""


class Transition(Strict, frozen=True, kw_only=True):
    kind: TransitionKind = TransitionKind.CUT
    seconds: Annotated[float, msgspec.Meta(ge=0.1, le=4)] = 0.5
    """Its middle stands on the beat."""


class Effects(Strict, frozen=True, kw_only=True):
    zoom: Share = 0.0
    """A push towards the picture on each beat."""
    shake: Share = 0.0
    glow: Share = 0.0
    speed: Annotated[float, msgspec.Meta(ge=0.25, le=4)] = 1.0
    """Of clips; 0.5 is slow motion."""


class Slot(Strict, frozen=True, kw_only=True):
    kind: Kind = Kind.ANY
    beats: Annotated[float, msgspec.Meta(ge=0.25, le=64)] | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0.2, le=30)] | None = None
    """One of both; seconds go to the nearest beat where the template says `snap`."""
    fit: Fit = Fit.COVER
    move: Move = Move.AUTO
    move_amount: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.1
    effects: Effects = Effects()
    look: Look | None = None
    """None: the template's."""
    cells: Annotated[tuple[Cell, ...], msgspec.Meta(min_length=1, max_length=6)] = (Cell(),)
    transition: Transition | None = None
    """Into this slot; None: the template's. The first slot has none."""
    optional: bool = False
    """Falls away first, where inputs are too few and the template shortens."""


class Text(Strict, frozen=True, kw_only=True):
    key: Key
    """The name under which the parameters give the words."""
    default: Wording = ""
    """Shown where none are given; empty: nothing is shown."""
    slot: Annotated[int, msgspec.Meta(ge=-40, le=39)] = 0
    """The slot that it comes with; negative counts from the end."""
    slots: Annotated[int, msgspec.Meta(ge=1, le=40)] = 1
    """Over how many slots it stays."""
    delay: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.25
    """Seconds after the slot's beginning."""
    x: Share = 0.5
    y: Share = 0.5
    """Of the text's own middle, or of the side that `align` names."""
    width: Annotated[float, msgspec.Meta(gt=0.1, le=1)] = 0.84
    size: Annotated[float, msgspec.Meta(ge=0.02, le=0.3)] = 0.09
    """Height of the em by the canvas' short side."""
    lines: Annotated[int, msgspec.Meta(ge=1, le=6)] = 2
    family: Family = Family.SANS
    weight: Annotated[int, msgspec.Meta(ge=100, le=900)] = 700
    italic: bool = False
    upper: bool = False
    colour: Hex = "#ffffff"
    align: Annotated[str, msgspec.Meta(pattern=r"^(left|center|right)$")] = "center"
    tracking: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.0
    shadow: Share = 0.55
    outline: Annotated[float, msgspec.Meta(ge=0, le=0.1)] = 0.0
    """By the size of the letters."""
    outline_colour: Hex = "#000000"
    plate: Hex | None = None
    plate_opacity: Share = 0.85
    entrance: Entrance = Entrance.FADE
    exit_fade: Annotated[float, msgspec.Meta(ge=0, le=2)] = 0.35


class Music(Strict, frozen=True, kw_only=True):
    style: MusicStyle = MusicStyle.WARM
    bpm: Annotated[float, msgspec.Meta(ge=50, le=180)] = 96.0
    root: Annotated[int, msgspec.Meta(ge=0, le=11)] = 0
    """The key: semitones over C."""
    clip_sound: Share = 0.0
    """How loud the clips' own sound is under it."""


class Extension(Strict, frozen=True, kw_only=True):
    """Slots that are gone through again while inputs are left."""

    first: Annotated[int, msgspec.Meta(ge=0, le=39)]
    count: Annotated[int, msgspec.Meta(ge=1, le=40)]
    slots_max: Annotated[int, msgspec.Meta(ge=1, le=40)] = 24


class Template(Strict, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(pattern=NAME)] = "inline"
    title: Annotated[str, msgspec.Meta(max_length=120)] = ""
    aspect: Aspect = Aspect.WIDE
    music: Music = Music()
    snap: bool = True
    missing: Missing = Missing.REPEAT
    extend: Extension | None = None
    transition: Transition = Transition()
    look: Look = Look.NONE
    backdrop: Backdrop = Backdrop()
    grain: Share = 0.0
    vignette: Share = 0.0
    bars: Annotated[float, msgspec.Meta(ge=0, le=0.2)] = 0.0
    """Height of the black bars of a cinema picture."""
    fade_in: Annotated[float, msgspec.Meta(ge=0, le=3)] = 0.0
    fade_out: Annotated[float, msgspec.Meta(ge=0, le=3)] = 0.6
    slots: Annotated[tuple[Slot, ...], msgspec.Meta(min_length=1, max_length=40)]
    texts: Annotated[tuple[Text, ...], msgspec.Meta(max_length=20)] = ()
    poster_slot: Annotated[int, msgspec.Meta(ge=-40, le=39)] = 0


def checked(template: Template) -> Template:
    """Rules across fields. Errors: ValueError that says which."""
    for i, slot in enumerate(template.slots):
        if (slot.beats is None) == (slot.seconds is None):
            raise ValueError(f"slot {i} needs either `beats` or `seconds`")
        for cell in slot.cells:
            if cell.x + cell.width > 1.001 or cell.y + cell.height > 1.001:  # noqa: PLR2004 - slack
                raise ValueError(f"a cell of slot {i} reaches beyond the canvas")
    for text in template.texts:
        if not -len(template.slots) <= text.slot < len(template.slots):
            raise ValueError(f"text `{text.key}` names slot {text.slot}, which is not there")
    if not -len(template.slots) <= template.poster_slot < len(template.slots):
        raise ValueError(f"`poster_slot` {template.poster_slot} is not there")
    extend = template.extend
    if extend and extend.first + extend.count > len(template.slots):
        raise ValueError("`extend` names slots that are not there")
    longest = _seconds(template, template.slots)
    if extend:
        again = template.slots[extend.first : extend.first + extend.count]
        rounds = max(0, extend.slots_max - len(template.slots)) / extend.count
        longest += _seconds(template, again) * rounds
    if longest > _SECONDS_MAX:
        raise ValueError(f"the film could be longer than {_SECONDS_MAX:.0f} s")
    return template


def _seconds(template: Template, slots: tuple[Slot, ...]) -> float:
    beat = 60 / template.music.bpm
    return sum(
        slot.beats * beat if slot.beats is not None else slot.seconds or 0.0 for slot in slots
    )


_KEY_SHOWN = 60


class SmartParameters(Strict, frozen=True, kw_only=True):
    template: Annotated[str, msgspec.Meta(pattern=NAME)] | dict[str, Any] = "postcard"
    """The name of a template that the installation has, or a template itself."""
    texts: Annotated[dict[str, Wording], msgspec.Meta(max_length=20)] = {}
    """Words for the template's texts, by their keys."""
    aspect: Aspect | None = None
    size: Size = Size.PREVIEW
    clip_sound: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    language: Language | None = None
    """Of the words, for the forms of Han characters; None: judged by the letters."""


def template_of(given: dict[str, Any]) -> Template:
    """A template out of the parameters. Errors: BadParametersError naming what is wrong."""
    template = struct_of(given, Template, "parameters.template")
    try:
        return checked(template)
    except ValueError as error:
        raise BadParametersError([Fault("parameters.template", str(error))]) from error


def faults(wishes: SmartParameters, materials: int) -> Iterator[Fault]:
    """What is wrong across the fields; of a named template only the runner knows more."""
    if isinstance(wishes.template, dict):
        try:
            template = template_of(wishes.template)
        except BadParametersError as error:
            yield from error.faults
        else:
            yield from unknown_texts(template, wishes)
    if not materials:
        yield Fault("materials", "A film needs at least one photo or clip.")
    if materials > INPUTS_MAX:
        yield Fault("materials", f"{materials} inputs were given; at most {INPUTS_MAX} are taken.")


def unknown_texts(template: Template, wishes: SmartParameters) -> Iterator[Fault]:
    """Words for which a template has no place."""
    known = [text.key for text in template.texts]
    for key in wishes.texts:
        if key not in known:
            yield Fault(
                "parameters.texts",
                f"The template `{template.name}` has no text `{key[:_KEY_SHOWN]}`; "
                f"it has {', '.join(known) or 'none'}.",
            )
