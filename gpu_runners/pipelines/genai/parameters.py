"""What a caller may ask of the scene `genai`, and what becomes of it.

A wish becomes an `Order`: every default is filled in, sizes are multiples of eight, the lower spec
has halved what it halves. The order alone decides the picture, on one fingerprint.
"""

import hashlib
from enum import StrEnum
from typing import Annotated

import msgspec

from gpu_runners.pipelines.pipeline import InputError, InputReason

SIDE_STEP = 8
"""Sizes are multiples of this: what a pixel of the latents stands for."""

_SIDE_MIN = 64
_SIDE_MAX = 1536
_PIXELS_MAX = 1_572_864
"""1024 x 1536: more of a picture than any of the usual models can hold together."""

FRAMES_MAX = 160
BATCH_PIXELS_MAX = 2_097_152
"""Pictures made at once, in pixels: eight of 512 x 512."""

_SEED_MAX = (1 << 53) - 1
_CLIP_SIDE = 512
_PROMPT_CHARACTERS_MAX = 4_000


class Kind(StrEnum):
    """What an attempt makes, told by its inputs."""

    TEXT = "text_to_picture"
    PICTURE = "picture_to_picture"
    CLIP = "clip_to_film"


class SchedulerName(StrEnum):
    """The ways from noise to a picture that can be stopped and gone on with, bit by bit."""

    DEFAULT = "default"
    """The model's own."""
    DDIM = "ddim"
    DDPM = "ddpm"
    PNDM = "pndm"
    LMS = "lms"
    EULER = "euler"
    EULER_ANCESTRAL = "euler_ancestral"
    DPM_MULTISTEP = "dpm_multistep"
    DPM_SINGLESTEP = "dpm_singlestep"
    UNIPC = "unipc"
    HEUN = "heun"
    DEIS = "deis"
    KDPM2 = "kdpm2"
    KDPM2_ANCESTRAL = "kdpm2_ancestral"
    SA_SOLVER = "sa_solver"
    LCM = "lcm"
    TCD = "tcd"


_Side = Annotated[int, msgspec.Meta(ge=_SIDE_MIN, le=_SIDE_MAX, multiple_of=SIDE_STEP)]
_Text = Annotated[str, msgspec.Meta(max_length=_PROMPT_CHARACTERS_MAX)]


class GenaiParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One prompt; with a picture or a clip as input, what to make of it."""

    prompt: _Text = ""
    negative_prompt: _Text = ""
    pictures: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    width: _Side | None = None
    """None: the model's own, or the input's shape."""
    height: _Side | None = None
    steps: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    """None: 25, for each frame of a clip 12."""
    guidance: Annotated[float, msgspec.Meta(ge=0, le=30)] = 7.5
    """How much the prompt counts; up to 1 the negative prompt does not."""
    strength: Annotated[float, msgspec.Meta(ge=0.05, le=1)] | None = None
    """How far from the input it may go. None: 0.6, for a clip 0.45."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=_SEED_MAX)] | None = None
    """None: drawn from the task, so that every attempt makes the same."""
    scheduler: SchedulerName = SchedulerName.DEFAULT
    start_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """Of a clip: from where on it is taken."""
    seconds: Annotated[float, msgspec.Meta(ge=0.5, le=20)] = 4.0
    """Of a clip: how much of it at most."""
    frame_rate: Annotated[int, msgspec.Meta(ge=1, le=24)] = 8
    """Of the film of a clip, in frames a second."""
    smoothing: Annotated[float, msgspec.Meta(ge=0, le=0.95)] = 0.6
    """Of a clip: how much of each frame is carried over from the one before, along the motion."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A wish without gaps."""

    kind: Kind
    prompt: str
    negative_prompt: str
    pictures: int
    width: int
    height: int
    steps: int
    guidance: float
    strength: float
    seed: int
    scheduler: SchedulerName
    start_seconds: float
    seconds: float
    frame_rate: int
    smoothing: float
    batch: int
    """Pictures made at once, at most."""

    @property
    def steps_each(self) -> int:
        """Steps of one picture: only the last part of the way, where it begins with an input."""
        if self.kind is Kind.TEXT:
            return self.steps
        return max(1, int(self.steps * self.strength))


class _Usual(msgspec.Struct, frozen=True):
    steps: int
    strength: float


_USUAL = {
    Kind.TEXT: _Usual(25, 1.0),
    Kind.PICTURE: _Usual(25, 0.6),
    Kind.CLIP: _Usual(12, 0.45),
}


def check(wish: GenaiParameters, kind: Kind) -> None:
    """Refuse what can't be made, before anything is loaded. Errors: InputError."""
    if kind is Kind.TEXT and not wish.prompt.strip():
        raise _refused("Without an input the parameter prompt is needed: say what to make.")
    if kind is Kind.CLIP and wish.pictures != 1:
        raise _refused("A clip becomes one film: leave the parameter pictures out.")
    frames = round(wish.seconds * wish.frame_rate)
    if kind is Kind.CLIP and frames > FRAMES_MAX:
        raise _refused(
            f"{wish.seconds:g} s at {wish.frame_rate} frames a second are {frames} frames; "
            f"at most {FRAMES_MAX} are made. Ask for less seconds or a lower frame_rate."
        )
    width, height = wish.width or wish.height or 0, wish.height or wish.width or 0
    if width * height > _PIXELS_MAX:
        raise _refused(
            f"{width} x {height} are more pixels than are made at once "
            f"({_PIXELS_MAX / 1_000_000:.1f} million). Ask for a smaller width or height."
        )


def settle(
    wish: GenaiParameters, kind: Kind, task_id: str, shape: tuple[int, int], *, lower_spec: bool
) -> Order:
    """Fill every gap. `shape` is the model's own width and height, or those of the input.

    With the lower spec sizes and steps are halved, and pictures are made one by one.
    """
    usual = _USUAL[kind]
    width, height = _size(wish, shape, lower_spec=lower_spec)
    steps = wish.steps or usual.steps
    strength = wish.strength or usual.strength
    if kind is not Kind.TEXT:
        steps = max(steps, round(1 / strength + 0.5))  # at least one step is left
    if lower_spec:
        steps = max(1 if kind is Kind.TEXT else round(1 / strength + 0.5), steps // 2)
    return Order(
        kind=kind,
        prompt=wish.prompt.strip(),
        negative_prompt=wish.negative_prompt.strip(),
        pictures=wish.pictures,
        width=width,
        height=height,
        steps=steps,
        guidance=wish.guidance,
        strength=1.0 if kind is Kind.TEXT else strength,
        seed=wish.seed if wish.seed is not None else _seed_of(task_id),
        scheduler=wish.scheduler,
        start_seconds=wish.start_seconds,
        seconds=wish.seconds,
        frame_rate=wish.frame_rate,
        smoothing=wish.smoothing,
        batch=1 if lower_spec else max(1, min(wish.pictures, BATCH_PIXELS_MAX // (width * height))),
    )


def fitted(width: int, height: int, pixels: int) -> tuple[int, int]:
    """The size of this shape that has about so many pixels; sides are multiples of eight."""
    factor = (pixels / (width * height)) ** 0.5
    return _side(width * factor), _side(height * factor)


def clip_side(own: int) -> int:
    """The longer side of a clip's frames: a film is many pictures, and need not be large."""
    return min(own, _CLIP_SIDE)


def _size(wish: GenaiParameters, shape: tuple[int, int], *, lower_spec: bool) -> tuple[int, int]:
    width, height = shape
    if wish.width and wish.height:
        width, height = wish.width, wish.height
    elif wish.width:
        width, height = wish.width, _side(height * wish.width / width)
    elif wish.height:
        width, height = _side(width * wish.height / height), wish.height
    if lower_spec:
        width, height = _side(width / 2), _side(height / 2)
    return width, height


def _side(pixels: float) -> int:
    return min(_SIDE_MAX, max(_SIDE_MIN, round(pixels / SIDE_STEP) * SIDE_STEP))


def _seed_of(task_id: str) -> int:
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:4], "big")


def _refused(message: str) -> InputError:
    return InputError(InputReason.PARAMETERS, message)
