"""What a caller may ask of the scene `genai`."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import msgspec

from schema.scenes.judging import Fault, Strict

SIDE_STEP = 8
"""Sizes are multiples of this: what a pixel of the latents stands for."""

SIDE_MIN = 64
SIDE_MAX = 1536
PIXELS_MAX = 1_572_864
"""1024 x 1536: more of a picture than any of the usual models can hold together."""

FRAMES_MAX = 160

_SEED_MAX = (1 << 53) - 1
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


_Side = Annotated[int, msgspec.Meta(ge=SIDE_MIN, le=SIDE_MAX, multiple_of=SIDE_STEP)]
_Text = Annotated[str, msgspec.Meta(max_length=_PROMPT_CHARACTERS_MAX)]


class GenaiParameters(Strict, frozen=True, kw_only=True):
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


INPUTS_MAX = 1


def faults(wish: GenaiParameters, materials: int, kind: Kind | None) -> Iterator[Fault]:
    """What is wrong across the fields; `kind` is None where nobody knows what the material is."""
    if materials > INPUTS_MAX:
        yield Fault(
            "materials", f"Genai takes no input, one picture or one clip; {materials} were given."
        )
    if kind is Kind.TEXT and not wish.prompt.strip():
        yield Fault("prompt", "Without an input the parameter prompt is needed: say what to make.")
    if kind is Kind.CLIP:
        yield from _of_a_clip(wish)
    width, height = wish.width or wish.height or 0, wish.height or wish.width or 0
    if width * height > PIXELS_MAX:
        yield Fault(
            "parameters.width" if wish.width else "parameters.height",
            f"{width} x {height} are more pixels than are made at once "
            f"({PIXELS_MAX / 1_000_000:.1f} million). Ask for a smaller width or height.",
        )


def _of_a_clip(wish: GenaiParameters) -> Iterator[Fault]:
    if wish.pictures != 1:
        yield Fault(
            "parameters.pictures", "A clip becomes one film: leave the parameter pictures out."
        )
    frames = round(wish.seconds * wish.frame_rate)
    if frames > FRAMES_MAX:
        yield Fault(
            "parameters.seconds",
            f"{wish.seconds:g} s at {wish.frame_rate} frames a second are {frames} frames; "
            f"at most {FRAMES_MAX} are made. Ask for less seconds or a lower frame_rate.",
        )
