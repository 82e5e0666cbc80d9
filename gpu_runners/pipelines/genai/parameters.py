"""What a caller may ask of the scene `genai`, and what becomes of it.

A wish becomes an `Order`: every default is filled in, sizes are multiples of eight, the lower spec
has halved what it halves. The order alone decides the picture, on one fingerprint.
"""

import hashlib

import msgspec

from gpu_runners.pipelines.pipeline import InputError, InputReason
from schema.scenes.genai import (
    SIDE_MAX,
    SIDE_MIN,
    SIDE_STEP,
    GenaiParameters,
    Kind,
    SchedulerName,
    faults,
)

BATCH_PIXELS_MAX = 2_097_152
"""Pictures made at once, in pixels: eight of 512 x 512."""

_CLIP_SIDE = 512


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
    for fault in faults(wish, kind is not Kind.TEXT, kind):
        raise InputError(InputReason.PARAMETERS, fault.message)


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
    return min(SIDE_MAX, max(SIDE_MIN, round(pixels / SIDE_STEP) * SIDE_STEP))


def _seed_of(task_id: str) -> int:
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:4], "big")
