"""One batch from noise to pictures, step by step, from the beginning or from the middle.

The library's own pipelines do the steps. To go on in the middle they are led to believe that they
begin: they get the rest of the timetable for the whole of it, and where they would draw the first
noise they are handed the latents that were kept, while scheduler and random numbers are put back.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any

import msgspec
import torch
from PIL import Image

from gpu_runners.pipelines.genai import schedulers
from gpu_runners.pipelines.genai.checkpoints import Kept, UnusableError
from gpu_runners.pipelines.genai.parameters import Order
from gpu_runners.pipelines.genai.safety import refuse
from schema.scenes.genai import Kind

_LATENTS = "latents"
_RANDOM = "random."

Pipe = Any
"""A pipeline of the library: they share no type that tells more."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides the rest of a batch, after some of its steps."""

    step: int
    scheduler: dict[str, Kept]
    tensors: dict[str, torch.Tensor]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Told after each step; `snapshot` makes the copies only when it is called."""

    done: int
    of: int
    snapshot: Callable[[], Snapshot]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Pictures that are made at once, one for each seed."""

    seeds: tuple[int, ...]
    picture: Image.Image | None = None
    """What they begin with; None: noise."""


def denoise(
    pipe: Pipe,
    scheduler: schedulers.Scheduler,
    order: Order,
    batch: Batch,
    *,
    begun: Snapshot | None,
    on_step: Callable[[Step], None],
) -> list[Image.Image]:
    """The pictures of a batch, by a scheduler that is fresh.

    What `on_step` raises ends it within the step and goes on upwards.

    Errors: UnusableError, if `begun` is of no use; PipelineError (MODERATION), if the model's own
    judge refuses a picture.
    """
    pipe.scheduler = scheduler
    random = [torch.Generator("cpu").manual_seed(seed) for seed in batch.seeds]
    first = begun.step if begun is not None else 0

    def told(at: Pipe, step: int, _: object, values: dict[str, Any]) -> dict[str, Any]:
        latents = values[_LATENTS]
        on_step(
            Step(
                done=first + step + 1,
                of=first + at.num_timesteps,
                snapshot=lambda: _snapshot(first + step + 1, at.scheduler, latents, random),
            )
        )
        return values

    with _led(pipe, begun, random):
        made = pipe(
            **_wanted(pipe, order, batch),
            generator=random if len(random) > 1 else random[0],
            callback_on_step_end=told,
        )
    if any(getattr(made, "nsfw_content_detected", None) or ()):
        refuse("The model's own judge refuses the picture.")
    return [one.convert("RGB") for one in made.images]


def _wanted(pipe: Pipe, order: Order, batch: Batch) -> dict[str, Any]:
    """The arguments of the library's pipeline, as far as it knows them."""
    wanted: dict[str, Any] = {
        "prompt": order.prompt,
        "num_images_per_prompt": len(batch.seeds),
        "num_inference_steps": order.steps,
        "guidance_scale": order.guidance,
        "negative_prompt": order.negative_prompt or None,
    }
    if order.kind is Kind.TEXT:
        wanted |= {"width": order.width, "height": order.height}
    else:
        wanted |= {"image": batch.picture, "strength": order.strength}
    known = inspect.signature(pipe.__call__).parameters
    return {name: value for name, value in wanted.items() if name in known}


def _snapshot(
    step: int,
    scheduler: schedulers.Scheduler,
    latents: torch.Tensor,
    random: list[torch.Generator],
) -> Snapshot:
    kept, tensors = schedulers.keep(scheduler)
    tensors[_LATENTS] = latents.detach().cpu().clone()
    for at, one in enumerate(random):
        tensors[f"{_RANDOM}{at}"] = one.get_state()
    return Snapshot(step=step, scheduler=kept, tensors=tensors)


@contextlib.contextmanager
def _led(pipe: Pipe, begun: Snapshot | None, random: list[torch.Generator]) -> Generator[None]:
    """Let the next call of a pipeline go on from a snapshot; without one, leave it alone."""
    if begun is None:
        yield
        return
    scheduler = pipe.scheduler
    prepare = pipe.prepare_latents
    with contextlib.ExitStack() as undo:
        if hasattr(pipe, "get_timesteps"):  # it takes a part of the timetable by itself
            times = pipe.get_timesteps

            def part(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - the library's own
                return _rest(times(*given, **named), begun.step)

            pipe.get_timesteps = part
            undo.callback(delattr, pipe, "get_timesteps")
        else:
            _shorten(scheduler, begun.step)

        def hand_over(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - the library's own
            drawn = prepare(*given, **named)
            _put_back(scheduler, begun, random)
            return _replaced(drawn, begun)

        pipe.prepare_latents = functools.wraps(prepare)(hand_over)
        undo.callback(delattr, pipe, "prepare_latents")
        yield


def _rest(timetable: Any, step: int) -> Any:  # noqa: ANN401 - a tuple with the instants first
    instants, *others = timetable
    return instants[step:], *others


def _shorten(scheduler: schedulers.Scheduler, step: int) -> None:
    """Let it show the rest of its timetable from when it is set, until it is put back."""
    ready = scheduler.set_timesteps

    def set_timesteps(*given: Any, **named: Any) -> None:  # noqa: ANN401 - the library's own
        ready(*given, **named)
        scheduler.timesteps = scheduler.timesteps[step:]

    scheduler.set_timesteps = functools.wraps(ready)(set_timesteps)


def _put_back(
    scheduler: schedulers.Scheduler, begun: Snapshot, random: list[torch.Generator]
) -> None:
    schedulers.restore(
        scheduler, begun.scheduler, begun.tensors, device=str(scheduler.timesteps.device)
    )
    try:
        for at, one in enumerate(random):
            one.set_state(begun.tensors[f"{_RANDOM}{at}"])
    except (KeyError, RuntimeError, TypeError) as error:
        raise UnusableError("the checkpoint is damaged") from error


def _replaced(drawn: Any, begun: Snapshot) -> Any:  # noqa: ANN401 - latents, or a tuple with them
    latents = drawn[0] if isinstance(drawn, tuple) else drawn
    kept = begun.tensors.get(_LATENTS)
    if kept is None or kept.shape != latents.shape or kept.dtype != latents.dtype:
        raise UnusableError("the checkpoint is of another size")
    kept = kept.to(latents.device)
    return (kept, *drawn[1:]) if isinstance(drawn, tuple) else kept
