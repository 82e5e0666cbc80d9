"""What a runner and the worker process of a slot say to each other: one JSON object a line."""

from pathlib import Path
from typing import Any

import msgspec

from gpu_runners.pipelines.pipeline import Product, Progress, Saved, Work
from gpu_runners.pipelines.probe_limits import ProbeLimits
from schema.failures import FailureClass
from schema.words import Scene

LINE_BYTES_MAX = 32 * 1024 * 1024


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker process is to be; given to it when it starts."""

    scenes: tuple[Scene, ...] = ()
    """What it gets ready for before it says that it is; any other when it is first asked for."""
    memory_bytes_max: int | None = None
    """Address space of each process of the group (RLIMIT_AS)."""
    limits: ProbeLimits = ProbeLimits()
    models_directory: str = ".cutlog/models"
    """Small models (cut-out, faces, speech), as `python -m cutlog.model_files` puts them there."""
    diffusion_model: str = ""
    """Folder of a diffusers pipeline; empty: a tiny one with random weights, made on the spot."""


class Do(msgspec.Struct, frozen=True, kw_only=True, tag="do"):
    """One work; the next one only after its end."""

    work: Work


class Save(msgspec.Struct, frozen=True, kw_only=True, tag="save"):
    """Stop the open work and keep how far it came. Without an open work it says nothing."""


Request = Do | Save


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    pid: int


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag="reported"):
    progress: Progress


class Made(msgspec.Struct, frozen=True, kw_only=True, tag="made"):
    product: Product


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    error_class: FailureClass
    message: str
    reason: str | None
    clean: bool
    """Whether the pipeline ended as it should: only then the process is used again."""


class Kept(msgspec.Struct, frozen=True, kw_only=True, tag="kept"):
    """The open work has ended, because it was asked to."""

    saved: Saved


class CannotSave(msgspec.Struct, frozen=True, kw_only=True, tag="cannot_save"):
    """The open work knows no way to keep anything; it goes on."""


Answer = Ready | Reported | Made | Failed | Kept | CannotSave


def _from_path(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _to_path(kind: type, value: Any) -> object:  # noqa: ANN401 - msgspec's own signature
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)


_encoder = msgspec.json.Encoder(enc_hook=_from_path)
_requests = msgspec.json.Decoder(Request, dec_hook=_to_path)
_answers = msgspec.json.Decoder(Answer, dec_hook=_to_path)


def encode_line(message: Request | Answer) -> bytes:
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    return _requests.decode(line)


def decode_answer(line: bytes) -> Answer:
    return _answers.decode(line)
