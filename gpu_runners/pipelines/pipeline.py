"""The contract between a runner and the pipeline of a scene: work in, progress, product or error.

A pipeline knows files and parameters, never topics, leases or stores: the runner downloads before
and uploads after. It works inside its private scratch directory. Its child processes stay in the
process group, so that ending the group ends everything.

A pipeline that can keep what it has done is `Resumable`: asked to, it stops early with a file that
another attempt goes on from.
"""

import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from schema.failures import FailureClass
from schema.scenes.judging import BadParametersError, struct_of

Json = dict[str, Any]
"""A JSON object, as it came over the wire: each pipeline turns it into a struct of its own."""

_Parameters = TypeVar("_Parameters", bound=msgspec.Struct)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, as far as a pipeline needs to know it."""

    task_id: str
    token: int
    """The number of the attempt, from 1."""
    scene: str
    parameters: Json
    inputs: dict[str, Path]
    """Name of a material -> local file, downloaded already."""
    directory: Path
    """Private and empty; everything that is written goes here."""
    checkpoint: Path | None = None
    """What an earlier attempt saved, to go on from; None: from the beginning."""
    lower_spec: bool = False
    """Make it with less (size, steps): room or memory is short."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the work itself is, never how much time has passed."""

    percent: float
    """0 to 100, never falling within one attempt."""
    phase: str
    eta_seconds: float | None = None
    """Estimate of what remains; None while there is nothing to judge by."""
    saved_seconds: float = 0.0
    """Card time of this attempt that a save would keep, if it were asked for now."""


class ProductFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    path: Path
    content_type: str


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt made. Without files it has nothing to store."""

    files: tuple[ProductFile, ...]
    facts: Json
    card_seconds: float
    """Time of the card: here, without a GPU, CPU seconds of the worker and its children."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """Instead of a product: the work was stopped on request, and can be gone on with."""

    path: Path | None = None
    """Enough to go on from; None: there was nothing worth keeping."""
    saved_seconds: float = 0.0
    """Card time of this attempt that it keeps."""
    started_anew: bool = False
    """It did not go on from the checkpoint that it was given."""


Report = Callable[[Progress], None]


class Pipeline(Protocol):
    """One scene. `run` blocks; it is called in a worker process, one work at a time."""

    @property
    def scene(self) -> str: ...

    def run(self, work: Work, report: Report) -> Product:
        """Do the work. Errors: PipelineError; its class says whether to try again."""
        ...


@runtime_checkable
class Resumable(Pipeline, Protocol):
    """A scene whose attempts can stop early and be gone on with by others."""

    def run_or_save(self, work: Work, report: Report, asked: threading.Event) -> Product | Saved:
        """As `run`; soon after `asked` is set it stops and saves how far it came.

        A `work.checkpoint` that it can't use is no error: it begins from the beginning.
        """
        ...


class PipelineError(Exception):
    """The work could not be done, for a reason of the closed set."""

    def __init__(self, error_class: FailureClass, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.message = message
        self.reason = reason
        """A finer word within the class (for INPUT one of InputReason), for programs."""


class InputReason(StrEnum):
    """Why an input is refused: closed, told to the caller beside the sentence for people."""

    PARAMETERS = "parameters"
    INPUTS = "inputs"
    EMPTY = "empty"
    NOT_MEDIA = "not_media"
    NO_VIDEO = "no_video"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    TOO_SMALL = "too_small"
    TOO_LARGE = "too_large"
    NO_SUBJECT = "no_subject"
    UNSUPPORTED = "unsupported"


class InputError(PipelineError):
    """The input or the parameters are refused; the same again would be refused again."""

    def __init__(self, reason: InputReason, message: str) -> None:
        error_class = (
            FailureClass.TOO_LONG if reason is InputReason.TOO_LONG else FailureClass.INPUT
        )
        super().__init__(error_class, message, reason.value)


def parameters_of(work: Work, kind: type[_Parameters]) -> _Parameters:
    """Parameters of a work as a struct. Errors: InputError naming the field that is wrong."""
    try:
        return struct_of(work.parameters, kind)
    except BadParametersError as error:
        raise InputError(InputReason.PARAMETERS, f"The parameters are wrong: {error}") from error
