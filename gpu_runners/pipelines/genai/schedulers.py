"""The ways from noise to a picture: which there are, and all that one remembers between two steps.

Some remember the last results of the model, some where in a double step they stand, some only their
timetable. Every attribute is kept, whether it changes or not, so that none is forgotten when the
library adds one; what can't be kept is told, and that scheduler is then not gone on with.
"""

import inspect
from typing import Any

import diffusers
import numpy as np
import torch

from gpu_runners.pipelines.genai.checkpoints import Kept, UnusableError
from gpu_runners.pipelines.pipeline import InputError, InputReason
from schema.scenes.genai import SchedulerName

_library: Any = diffusers
"""Typed in part only; what comes out of it gets its type where it is taken."""

_CLASSES = {
    SchedulerName.DDIM: "DDIMScheduler",
    SchedulerName.DDPM: "DDPMScheduler",
    SchedulerName.PNDM: "PNDMScheduler",
    SchedulerName.LMS: "LMSDiscreteScheduler",
    SchedulerName.EULER: "EulerDiscreteScheduler",
    SchedulerName.EULER_ANCESTRAL: "EulerAncestralDiscreteScheduler",
    SchedulerName.DPM_MULTISTEP: "DPMSolverMultistepScheduler",
    SchedulerName.DPM_SINGLESTEP: "DPMSolverSinglestepScheduler",
    SchedulerName.UNIPC: "UniPCMultistepScheduler",
    SchedulerName.HEUN: "HeunDiscreteScheduler",
    SchedulerName.DEIS: "DEISMultistepScheduler",
    SchedulerName.KDPM2: "KDPM2DiscreteScheduler",
    SchedulerName.KDPM2_ANCESTRAL: "KDPM2AncestralDiscreteScheduler",
    SchedulerName.SA_SOLVER: "SASolverScheduler",
    SchedulerName.LCM: "LCMScheduler",
    SchedulerName.TCD: "TCDScheduler",
}

_CONFIGURATION = "_internal_dict"
_TENSOR = "tensor"
_ARRAY = "array"
_FLOAT = "float"
_TUPLE = "tuple"
_NUMBER = "number"

Scheduler = Any
"""The library's schedulers share no type that tells more."""


class CannotKeepError(Exception):
    """A scheduler remembers something of a kind that is not kept."""


def make(own: Scheduler, name: SchedulerName) -> Scheduler:
    """A fresh scheduler of this name for a model whose own is `own`. Errors: InputError."""
    if name is SchedulerName.DEFAULT:
        return type(own).from_config(own.config)
    kind: Any = getattr(_library, _CLASSES[name])
    family = {one.name for one in _library.schedulers.KarrasDiffusionSchedulers}
    if type(own).__name__ not in family:
        raise InputError(
            InputReason.PARAMETERS,
            f"This model works with its own scheduler only, not with {name}: "
            "leave the parameter scheduler out.",
        )
    return kind.from_config(own.config)


def keep(scheduler: Scheduler) -> tuple[dict[str, Kept], dict[str, torch.Tensor]]:
    """Everything that it remembers, numbers apart. Errors: CannotKeepError."""
    tensors: dict[str, torch.Tensor] = {}
    kept = {
        name: _keep(value, f"scheduler.{name}", tensors)
        for name, value in vars(scheduler).items()
        if name != _CONFIGURATION and not inspect.isroutine(value)
    }
    return kept, tensors


def restore(
    scheduler: Scheduler, kept: dict[str, Kept], tensors: dict[str, torch.Tensor], device: str
) -> None:
    """Make it remember that again. Errors: UnusableError; then it is not to be used."""
    for name, value in kept.items():
        if name == _CONFIGURATION or not name.isidentifier() or hasattr(type(scheduler), name):
            raise UnusableError("the checkpoint holds what no scheduler remembers")
        setattr(scheduler, name, _restore(value, tensors, device))


def _keep(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Kept:  # noqa: ANN401 - any
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {_FLOAT: value.hex()}
    if isinstance(value, list):
        return [_keep(one, f"{name}.{at}", tensors) for at, one in enumerate(value)]
    if isinstance(value, tuple):
        return {_TUPLE: [_keep(one, f"{name}.{at}", tensors) for at, one in enumerate(value)]}
    if isinstance(value, torch.Tensor):
        # A clone: two attributes may share memory, which the file format refuses.
        tensors[name] = value.detach().cpu().clone()
        return {_TENSOR: name, "device": value.device.type}
    if isinstance(value, np.ndarray | np.generic):
        tensors[name] = torch.from_numpy(np.array(value))
        return {_ARRAY if isinstance(value, np.ndarray) else _NUMBER: name}
    raise CannotKeepError(f"{name} is a {type(value).__name__}")


def _restore(kept: Kept, tensors: dict[str, torch.Tensor], device: str) -> Any:  # noqa: ANN401
    try:
        match kept:
            case None | bool() | int() | str():
                return kept
            case list():
                return [_restore(one, tensors, device) for one in kept]
            case {"float": str(text)}:
                return float.fromhex(text)
            case {"tuple": list(inner)}:
                return tuple(_restore(one, tensors, device) for one in inner)
            case {"tensor": str(name), "device": str(place)}:
                return tensors[name].to("cpu" if place == "cpu" else device)
            case {"array": str(name)}:
                return tensors[name].numpy()
            case {"number": str(name)}:
                return tensors[name].numpy()[()]
            case _:
                pass
    except (KeyError, ValueError) as error:
        raise UnusableError("the checkpoint is damaged") from error
    raise UnusableError("the checkpoint holds what no scheduler remembers")
