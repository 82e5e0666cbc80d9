"""The scene `rehearsal`: no media, deterministic, fails on request; for tests, load and drills.

It can be saved after any step and gone on with there, and with its lower spec takes half the time.
"""

import hashlib
import os
import signal
import threading
import time

import msgspec

from gpu_runners.pipelines.pipeline import (
    PipelineError,
    Product,
    ProductFile,
    Progress,
    Report,
    Resumable,
    Saved,
    Work,
    parameters_of,
)
from schema.failures import FailureClass
from schema.scenes.rehearsal import RehearsalParameters
from schema.words import Scene

_WAIT_SECONDS_MAX = 0.05
"""A step waits in pieces of this size, so that a stop is noticed at once."""

_CRASH_EXIT = 70


class _Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far an attempt came: `step` of `steps` are done."""

    task_id: str
    step: int
    steps: int


class _Course:
    """One attempt from its first step, which is not the task's first when it goes on from a file.

    Step `n` is done `n - first` equal pieces of time after the start; with its lower spec the work
    takes half of the time.
    """

    def __init__(self, work: Work, parameters: RehearsalParameters) -> None:
        self.steps = parameters.steps
        self.first = _steps_done(work, parameters)
        self._seconds = parameters.seconds / (2 if work.lower_spec else 1)
        self._save_steps = parameters.save_steps
        self._started = time.monotonic()

    def seconds(self, step: int) -> float:
        """Time that this attempt has worked once `step` is done."""
        return self._seconds * (step - self.first) / self.steps

    def due(self, step: int) -> float:
        return self._started + self.seconds(step)

    def kept(self, done: int) -> int:
        """The step from which another attempt would go on, if this one were saved now."""
        if not self._save_steps:
            return self.first
        return max(self.first, done - done % self._save_steps)

    def progress(self, step: int) -> Progress:
        elapsed = time.monotonic() - self._started
        left = elapsed * (self.steps - step) / (step - self.first)
        return Progress(
            percent=100.0 * step / self.steps,
            phase="rehearsing",
            eta_seconds=round(left, 3),
            saved_seconds=round(self.seconds(self.kept(step)), 3),
        )


class Rehearsal:
    """Waits instead of working; setting `stop` ends a wait early, with the class INTERNAL."""

    scene = Scene.REHEARSAL.value

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def run(self, work: Work, report: Report) -> Product:
        end = self.run_or_save(work, report, threading.Event())
        if isinstance(end, Saved):
            raise PipelineError(FailureClass.INTERNAL, "It was saved, and nobody had asked.")
        return end

    def run_or_save(self, work: Work, report: Report, asked: threading.Event) -> Product | Saved:
        parameters = parameters_of(work, RehearsalParameters)
        course = _Course(work, parameters)
        turn = (course.steps + 1) // 2 if parameters.misbehaves(work.token) else None
        told = course.first * parameters.reports // course.steps
        for step in range(course.first + 1, course.steps + 1):
            if not self._wait_until(course.due(step), asked):
                return self._save(work, parameters, course, step - 1)
            if step == turn:
                _misbehave(parameters)
            reports = step * parameters.reports // course.steps
            if reports > told:
                told = reports
                report(course.progress(step))
        return _product(work, parameters, course)

    def _wait_until(self, end: float, asked: threading.Event) -> bool:
        """Whether the time has come; False: it is to be saved first."""
        while not asked.is_set():
            rest = end - time.monotonic()
            if rest <= 0:
                return True
            if self._stop.wait(min(rest, _WAIT_SECONDS_MAX)):
                raise PipelineError(FailureClass.INTERNAL, "The rehearsal was stopped.")
        return False

    def _save(
        self, work: Work, parameters: RehearsalParameters, course: _Course, done: int
    ) -> Saved:
        self._wait_until(time.monotonic() + parameters.saving_seconds, threading.Event())
        step = course.kept(done)
        if step == 0:
            return Saved()
        path = work.directory / "checkpoint.json"
        kept = _Checkpoint(task_id=work.task_id, step=step, steps=course.steps)
        path.write_bytes(msgspec.json.encode(kept))
        return Saved(path=path, saved_seconds=course.seconds(step))


def _steps_done(work: Work, parameters: RehearsalParameters) -> int:
    """What an earlier attempt of the same task has done; 0 if its file is of no use."""
    if work.checkpoint is None or not parameters.save_steps:
        return 0
    try:
        kept = msgspec.json.decode(work.checkpoint.read_bytes(), type=_Checkpoint)
    except (OSError, msgspec.DecodeError):
        return 0
    fits = kept.task_id == work.task_id and kept.steps == parameters.steps
    return kept.step if fits and 0 < kept.step <= kept.steps else 0


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


def _product(work: Work, parameters: RehearsalParameters, course: _Course) -> Product:
    card_seconds = course.seconds(course.steps)
    more = {"resumed_after": course.first} if course.first else {}
    if work.lower_spec:
        more["lower_spec"] = True
    if parameters.no_op:
        return Product(files=(), facts=_NOTHING.facts | more, card_seconds=card_seconds)
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
        facts={"steps": parameters.steps, "stores_nothing": False} | more,
        card_seconds=card_seconds,
    )


_NOTHING = Product(files=(), facts={"stores_nothing": True}, card_seconds=0.0)

_: Resumable = Rehearsal()
