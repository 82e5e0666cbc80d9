"""The scene `rehearsal`: no media, deterministic, fails on request; for tests, load and drills."""

import hashlib
import os
import signal
import threading
import time
from typing import Annotated

import msgspec

from gpu_runners.pipelines.pipeline import (
    Pipeline,
    PipelineError,
    Product,
    ProductFile,
    Progress,
    Report,
    Work,
    parameters_of,
)
from schema.failures import FailureClass
from schema.words import Scene

_WAIT_SECONDS_MAX = 0.05
"""A step waits in pieces of this size, so that a stop is noticed at once."""

_CRASH_EXIT = 70


class RehearsalParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """How long the work takes in all; it is waited, not computed."""
    steps: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 10
    reports: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 10
    fail: FailureClass | None = None
    """End with this class, half way through."""
    fail_on_attempts: tuple[int, ...] = ()
    """The tokens that fail, crash or hang; empty: every one."""
    crash: bool = False
    """The process ends half way, without a word."""
    hang: bool = False
    """Half way the process stops to answer, to a request to end as well."""
    no_op: bool = False
    """Nothing is stored: the product has no files."""

    def misbehaves(self, token: int) -> bool:
        asked = self.crash or self.hang or self.fail is not None
        return asked and (not self.fail_on_attempts or token in self.fail_on_attempts)


class Rehearsal:
    """Waits instead of working; setting `stop` ends a wait early, with the class INTERNAL."""

    scene = Scene.REHEARSAL.value

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def run(self, work: Work, report: Report) -> Product:
        parameters = parameters_of(work, RehearsalParameters)
        started = time.monotonic()
        steps = parameters.steps
        turn = (steps + 1) // 2 if parameters.misbehaves(work.token) else None
        told = 0
        for step in range(1, steps + 1):
            self._wait_until(started + parameters.seconds * step / steps)
            if step == turn:
                _misbehave(parameters)
            due = step * parameters.reports // steps
            if due > told:
                told = due
                elapsed = time.monotonic() - started
                report(
                    Progress(
                        percent=100.0 * step / steps,
                        phase="rehearsing",
                        eta_seconds=round(elapsed * (steps - step) / step, 3),
                    )
                )
        return _product(work, parameters, card_seconds=parameters.seconds)

    def _wait_until(self, end: float) -> None:
        while (rest := end - time.monotonic()) > 0:
            if self._stop.wait(min(rest, _WAIT_SECONDS_MAX)):
                raise PipelineError(FailureClass.INTERNAL, "The rehearsal was stopped.")


def runs_inline(work: Work) -> bool:
    """Whether `run_inline` may do it: it stores nothing, takes no time and ends by itself."""
    parameters = work.parameters
    return (
        work.scene == Scene.REHEARSAL
        and parameters.get("no_op") is True
        and not parameters.get("seconds")
        and not parameters.get("crash")
        and not parameters.get("hang")
    )


def run_inline(work: Work) -> Product:
    """Do a work for which `runs_inline` holds, in the caller's own process, in microseconds.

    Nothing is reported on the way: there is no way. Errors: PipelineError.
    """
    parameters = parameters_of(work, RehearsalParameters)
    if parameters.misbehaves(work.token):
        _misbehave(parameters)
    return _NOTHING


def _misbehave(parameters: RehearsalParameters) -> None:
    if parameters.crash:
        os._exit(_CRASH_EXIT)
    if parameters.hang:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Event().wait()
    if parameters.fail is not None:
        raise PipelineError(parameters.fail, f"The rehearsal failed as asked: {parameters.fail}.")


def _product(work: Work, parameters: RehearsalParameters, card_seconds: float) -> Product:
    if parameters.no_op:
        return Product(files=(), facts=_NOTHING.facts, card_seconds=card_seconds)
    path = work.directory / "rehearsal.json"
    content = {
        "digest": hashlib.sha256(f"{work.task_id}/{work.token}".encode()).hexdigest(),
        "steps": parameters.steps,
        "task_id": work.task_id,
        "token": work.token,
    }
    path.write_bytes(msgspec.json.encode(content))
    stored = ProductFile(name=path.name, path=path, content_type="application/json")
    return Product(
        files=(stored,),
        facts={"steps": parameters.steps, "stores_nothing": False},
        card_seconds=card_seconds,
    )


_NOTHING = Product(files=(), facts={"stores_nothing": True}, card_seconds=0.0)

_: Pipeline = Rehearsal()
