"""The model of a worker: loaded once, from a folder or made on the spot, and what identifies it.

Everything comes from the folder: no host is asked, no weights that are code (pickle) are read, no
code of the folder is run.
"""

import copy
import functools
import hashlib
import importlib.metadata
import os
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers

from gpu_runners.device import Device, number_of
from gpu_runners.pipelines.genai import schedulers, tiny
from gpu_runners.pipelines.genai.parameters import Order
from gpu_runners.pipelines.pipeline import InputError, InputReason, PipelineError
from schema.failures import FailureClass
from schema.scenes.genai import Kind, SchedulerName

# Typed in part only; what comes out of them gets its type where it is taken.
_diffusers: Any = diffusers
_transformers: Any = transformers

_SAMPLED_BYTES = 1 << 20
_WHOLE_BYTES_MAX = 16 << 20
_VERSIONS = ("torch", "diffusers", "transformers", "numpy", "opencv-python-headless")
_TOKENS_MAX = 77


class Diffusion:
    """A loaded model: its pipelines, its own size, its identity."""

    def __init__(self, folder: str, device: Device) -> None:
        for library in (_diffusers, _transformers):
            library.utils.logging.set_verbosity_error()
            library.utils.logging.disable_progress_bar()
        self._device = device
        self._text: Any = _load(Path(folder), device) if folder else tiny.make()
        self._text.set_progress_bar_config(disable=True)
        self._text.to(device.kind)
        self._scheduler: schedulers.Scheduler = self._text.scheduler
        self._fresh: dict[SchedulerName, schedulers.Scheduler] = {}
        self.identity = _identity(Path(folder)) if folder else tiny.identity(self._text)

    def pipe(self, kind: Kind) -> Any:  # noqa: ANN401 - a pipeline of the library
        """The pipeline for this kind of work. Errors: InputError, if the model can't do it."""
        return self._text if kind is Kind.TEXT else self._with_picture

    def scheduler(self, name: SchedulerName) -> schedulers.Scheduler:
        """A fresh scheduler for each batch: one that was stopped in the middle is spoilt."""
        if name not in self._fresh:  # to make one can take longer than a step
            self._fresh[name] = schedulers.make(self._scheduler, name)
        return copy.deepcopy(self._fresh[name])

    @functools.cached_property
    def _with_picture(self) -> Any:  # noqa: ANN401 - a pipeline of the library
        # By its name: the library's own search imports every pipeline that it has.
        name = type(self._text).__name__.removesuffix("Pipeline") + "Img2ImgPipeline"
        kind: Any = getattr(_diffusers, name, None)
        if kind is None:
            raise InputError(
                InputReason.UNSUPPORTED,
                "The model here makes pictures from words only: leave the input out.",
            )
        made = kind.from_pipe(self._text)
        made.set_progress_bar_config(disable=True)
        return made

    @property
    def side(self) -> int:
        """Of the square that it was made for, in pixels."""
        pipe = self._text
        main = getattr(pipe, "unet", None) or getattr(pipe, "transformer", None)
        size = getattr(main.config, "sample_size", None) if main is not None else None
        if isinstance(size, list | tuple):
            size = min(size)
        return int(size or 64) * int(getattr(pipe, "vae_scale_factor", 8))

    def cuts(self, prompt: str) -> bool:
        """Whether the prompt is longer than the model reads."""
        tokenizer = getattr(self._text, "tokenizer", None)
        if tokenizer is None:
            return False
        most = min(int(tokenizer.model_max_length), _TOKENS_MAX)
        return len(tokenizer(prompt).input_ids) > most

    def fingerprint(self, order: Order, scheduler: str) -> dict[str, str]:
        """On what a picture depends beside its order; on the same, it is the same bit for bit."""
        device = self._device
        own = {
            "model": self.identity,
            "device": device.kind,
            "card": device.card,
            "number": device.number,
            "threads": str(device.threads),
            "scheduler": scheduler,
            "batch": str(order.batch),
            "cuda": f"{torch.version.cuda}" if device.kind == "cuda" else "",
        }
        return own | {name: _version(name) for name in _VERSIONS}


def _load(folder: Path, device: Device) -> Any:  # noqa: ANN401 - a pipeline of the library
    if not (folder / "model_index.json").is_file():
        raise PipelineError(
            FailureClass.INTERNAL,
            f"{folder} is no folder of a diffusers pipeline: model_index.json is missing.",
        )
    try:
        return _diffusers.DiffusionPipeline.from_pretrained(
            os.fspath(folder),
            torch_dtype=number_of(device),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError, ImportError, AttributeError, KeyError) as error:
        raise PipelineError(
            FailureClass.INTERNAL, f"The model in {folder} can't be loaded: {error}"
        ) from error


def _identity(folder: Path) -> str:
    """Digest of a folder: small files whole, large ones by their size, both ends and a few parts.

    To read all of a large model takes longer than to load it; a weight file that was made anew
    differs in its header or in what it is sampled at.
    """
    digest = hashlib.sha256()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= _WHOLE_BYTES_MAX:
                digest.update(file.read())
                continue
            for part in range(9):
                file.seek(part * (size - _SAMPLED_BYTES) // 8)
                digest.update(file.read(_SAMPLED_BYTES))
    return f"{folder.name}-{digest.hexdigest()[:16]}"


@functools.cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
