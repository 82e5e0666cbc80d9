"""The scene `genai` from an attempt to its product: judge, load, make batch by batch, store.

Without an input the prompt becomes pictures, with a picture it becomes others like it, with a clip
a film, frame by frame. After every step it can be stopped, and another attempt on the same
fingerprint goes on there with the same bits.
"""

import functools
import hashlib
import importlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpu_runners.device import CardClock, choose_device, free_memory, is_out_of_memory
from gpu_runners.pipelines.genai import checkpoints
from gpu_runners.pipelines.genai.jobs import ClipJob, Job, PicturesJob
from gpu_runners.pipelines.genai.parameters import (
    Order,
    check,
    fitted,
    settle,
)
from gpu_runners.pipelines.genai.pictures import is_picture, open_picture
from gpu_runners.pipelines.genai.safety import Safety, refuse, safety_of
from gpu_runners.pipelines.pipeline import (
    InputError,
    InputReason,
    PipelineError,
    Product,
    Progress,
    Report,
    Resumable,
    Saved,
    Work,
    parameters_of,
)
from gpu_runners.pipelines.probe import probe
from gpu_runners.pipelines.probe_limits import ProbeLimits
from schema.failures import FailureClass
from schema.scenes.genai import GenaiParameters, Kind
from schema.words import Scene

if TYPE_CHECKING:
    from gpu_runners.pipelines.genai.denoising import Snapshot, Step
    from gpu_runners.pipelines.genai.diffusion import Diffusion

CHECKPOINT = "checkpoint.safetensors"
"""Written every few seconds into the directory of the work, and when it is asked for."""

_KEEP_SECONDS = 5.0
_KEEP_SHARE_MAX = 0.05
"""Keeping takes at most this part of the time."""
_LOADED_PERCENT = 3.0
_MADE_PERCENT = 96.0
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")


class ResumedFrom(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attempt went on."""

    unit: int
    """Batches or frames that were done."""
    step: int
    """Steps that were done of the next one."""
    card_seconds: float
    """What the attempts before had worked for it."""


class GenaiFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How it was made: enough to make it again; never the prompt, which is the caller's."""

    kind: Kind
    seeds: tuple[int, ...]
    width: int
    height: int
    steps: int
    steps_each: int
    guidance: float
    strength: float
    scheduler: str
    pictures: int
    batch: int
    lower_spec: bool
    prompt_cut: bool
    """The prompt was longer than the model reads."""
    fingerprint: dict[str, str]
    order: str
    resumed_from: ResumedFrom | None
    started_anew: str | None
    """Why a checkpoint was not gone on from."""
    kept_within: str
    """What it could be stopped within: a `step`, or only a whole `unit`."""
    made: dict[str, Any]
    """Of a film: frames, rate, seconds, sound."""


class _AskedError(Exception):
    """The attempt is to stop here."""


class Genai:
    """The pipeline; its model is loaded with the first work and stays for the next ones."""

    scene = Scene.GENAI.value

    def __init__(
        self,
        limits: ProbeLimits | None = None,
        diffusion_model: str = "",
        safety: Safety | None = None,
    ) -> None:
        self._limits = limits or ProbeLimits()
        self._folder = diffusion_model
        self._safety = safety

    def run(self, work: Work, report: Report) -> Product:
        end = self.run_or_save(work, report, threading.Event())
        if isinstance(end, Saved):
            raise PipelineError(FailureClass.INTERNAL, "It was saved, and nobody had asked.")
        return end

    def run_or_save(self, work: Work, report: Report, asked: threading.Event) -> Product | Saved:
        wish = parameters_of(work, GenaiParameters)
        safety = self._safety if self._safety is not None else safety_of(os.environ)
        kind, source = _kind_of(work)
        check(wish, kind)
        refuse(safety.judge_prompt(wish.prompt))
        picture = None
        header = None
        if source is not None:  # a bad file is refused before seconds go into loading
            if kind is Kind.PICTURE:
                picture = open_picture(source)
            else:
                header = probe(source, self._limits)
        report(Progress(percent=0.0, phase="loading"))
        try:
            model = self._model
            if asked.is_set():  # nothing new, and what earlier attempts saved is as good as it was
                return Saved(path=work.checkpoint)
            clock = CardClock(choose_device())
            if source is None or kind is Kind.PICTURE:
                own = model.side, model.side
                shape = fitted(*picture.size, own[0] * own[1]) if picture is not None else own
                order = settle(wish, kind, work.task_id, shape, lower_spec=work.lower_spec)
                job: Job = PicturesJob(order, work.directory, safety, picture)
            else:
                assert header is not None  # noqa: S101 - probed above
                job = ClipJob.begin(
                    wish, work, source, header, limits=self._limits, safety=safety, own=model.side
                )
            return _Attempt(work, job, model, source, report, asked, clock).go()
        except PipelineError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                free_memory(choose_device())
                raise PipelineError(
                    FailureClass.OUT_OF_MEMORY, f"Memory ran out: {error}"
                ) from error
            raise

    def warm(self) -> None:
        """Load libraries and model before the first work."""
        _ = self._model

    @functools.cached_property
    def _model(self) -> "Diffusion":
        """Import and load, once: some twenty seconds, and more for a large model."""
        for name in _OFFLINE:
            os.environ.setdefault(name, "1")
        device = choose_device()
        # By its name: it brings torch and diffusers, which a worker of other scenes never needs.
        diffusion = importlib.import_module("gpu_runners.pipelines.genai.diffusion")
        model: Diffusion = diffusion.Diffusion(self._folder, device)
        return model


class _Attempt:
    """One attempt, once everything is loaded."""

    def __init__(
        self,
        work: Work,
        job: Job,
        model: "Diffusion",
        source: Path | None,
        report: Report,
        asked: threading.Event,
        clock: CardClock,
    ) -> None:
        self._work = work
        self._job = job
        self._order = job.order
        self._model = model
        self._report = report
        self._asked = asked
        self._pipe = model.pipe(self._order.kind)
        self._denoising = importlib.import_module("gpu_runners.pipelines.genai.denoising")
        self._clock = clock
        self._begun_at = time.monotonic()
        schedulers = importlib.import_module("gpu_runners.pipelines.genai.schedulers")
        self._cannot_keep: type[Exception] = schedulers.CannotKeepError
        self._scheduler = type(model.scheduler(self._order.scheduler)).__name__
        self._fingerprint = model.fingerprint(self._order, self._scheduler)
        self._order_digest = _digest(self._order, source)
        self._resumed: ResumedFrom | None = None
        self._anew: str | None = None
        self._kept_within = "step"
        self._before = 0.0
        self._unit = 0
        self._steps = self._order.steps_each
        self._first = 0.0
        self._told = 0.0
        self._kept_at = self._begun_at
        self._keep_pause = _KEEP_SECONDS

    def go(self) -> Product | Saved:
        begun = self._resume()
        self._first = self._fraction(begun.step if begun is not None else 0)
        self._tell(self._first)
        try:
            while self._unit < self._job.units:
                self._make(begun)
                begun = None
        except _AskedError:
            path = self._work.directory / CHECKPOINT
            return Saved(
                path=path,
                saved_seconds=round(self._clock.seconds(), 3),
                started_anew=self._anew is not None,
            )
        self._report(Progress(percent=_MADE_PERCENT, phase="storing"))
        files, made = self._job.store()
        facts = self._facts(made)
        seconds = round(self._clock.seconds(), 3)
        self._report(Progress(percent=100.0, phase="done", eta_seconds=0.0, saved_seconds=seconds))
        return Product(
            files=files,
            facts=msgspec.json.decode(msgspec.json.encode(facts)),
            card_seconds=seconds,
        )

    def _make(self, begun: "Snapshot | None") -> None:
        batch = self._job.batch(self._unit)
        try:
            made = self._denoising.denoise(
                self._pipe,
                self._model.scheduler(self._order.scheduler),
                self._order,
                batch,
                begun=begun,
                on_step=self._stepped,
            )
        except checkpoints.UnusableError as error:  # it is whole, and of no use all the same
            if begun is None:
                raise
            self._begin_anew(str(error))
            return
        self._job.take(self._unit, made)
        self._unit += 1
        if self._unit < self._job.units:
            self._pause(None)

    def _stepped(self, step: "Step") -> None:
        """After each step: stop if that is asked, keep if it is time, tell."""
        self._steps = step.of
        if step.done >= step.of:  # what is left is short: it is rather ended than kept
            self._tell(self._fraction(step.of))
            return
        self._pause(step)
        self._tell(self._fraction(step.done))

    def _pause(self, step: "Step | None") -> None:
        """Stop if that is asked, keep if it is time; without a step, between two units."""
        now = time.monotonic()
        if self._asked.is_set():
            self._keep(step)
            raise _AskedError
        if now - self._kept_at >= self._keep_pause:
            self._keep(step)
            self._kept_at = time.monotonic()
            self._keep_pause = max(_KEEP_SECONDS, (self._kept_at - now) / _KEEP_SHARE_MAX)

    def _keep(self, step: "Step | None") -> None:
        tensors = self._job.tensors()
        done, scheduler = 0, {}
        if step is not None:
            try:
                snapshot = step.snapshot()
            except self._cannot_keep:
                self._kept_within = "unit"
            else:
                done, scheduler = snapshot.step, snapshot.scheduler
                tensors |= snapshot.tensors
        state = checkpoints.State(
            task_id=self._work.task_id,
            order=self._order_digest,
            fingerprint=self._fingerprint,
            card_seconds=self._before + self._clock.seconds(),
            unit=self._unit,
            step=done,
            steps=self._steps,
            scheduler=scheduler,
        )
        kept = checkpoints.Checkpoint(state=state, tensors=tensors)
        checkpoints.write(self._work.directory / CHECKPOINT, kept)

    def _resume(self) -> "Snapshot | None":
        """What to go on from; None: the beginning of a unit."""
        if self._work.checkpoint is None:
            return None
        try:
            kept = checkpoints.read(self._work.checkpoint)
            state = kept.state
            checkpoints.fits(state, self._work.task_id, self._order_digest, self._fingerprint)
            tensors = self._job.resume(state.unit, kept.tensors)
        except checkpoints.UnusableError as error:
            self._begin_anew(str(error))
            return None
        self._unit, self._steps = state.unit, state.steps
        self._before = state.card_seconds
        self._resumed = ResumedFrom(
            unit=state.unit, step=state.step, card_seconds=round(state.card_seconds, 3)
        )
        if not state.step:
            return None
        snapshot: Snapshot = self._denoising.Snapshot(
            step=state.step, scheduler=state.scheduler, tensors=tensors
        )
        return snapshot

    def _begin_anew(self, why: str) -> None:
        self._anew, self._resumed = why, None
        self._unit, self._before, self._first = 0, 0.0, 0.0
        self._job.restart()

    def _fraction(self, step: int) -> float:
        return (self._unit + min(1.0, step / self._steps)) / self._job.units

    def _tell(self, fraction: float) -> None:
        elapsed = time.monotonic() - self._begun_at
        made = fraction - self._first
        self._told = max(self._told, fraction)  # one that begins anew never goes back
        self._report(
            Progress(
                percent=round(_LOADED_PERCENT + self._told * (_MADE_PERCENT - _LOADED_PERCENT), 2),
                phase="making",
                eta_seconds=round(elapsed * (1 - fraction) / made, 2) if made > 0 else None,
                saved_seconds=round(self._clock.seconds(), 3),
            )
        )

    def _facts(self, made: dict[str, Any]) -> GenaiFacts:
        order = self._order
        return GenaiFacts(
            kind=order.kind,
            seeds=self._job.seeds,
            width=order.width,
            height=order.height,
            steps=order.steps,
            steps_each=order.steps_each,
            guidance=order.guidance,
            strength=order.strength,
            scheduler=self._scheduler,
            pictures=order.pictures,
            batch=order.batch,
            lower_spec=self._work.lower_spec,
            prompt_cut=self._model.cuts(order.prompt),
            fingerprint=self._fingerprint,
            order=self._order_digest[:16],
            resumed_from=self._resumed,
            started_anew=self._anew,
            kept_within=self._kept_within,
            made=made,
        )


def _kind_of(work: Work) -> tuple[Kind, Path | None]:
    if not work.inputs:
        return Kind.TEXT, None
    if len(work.inputs) > 1:
        raise InputError(
            InputReason.INPUTS,
            f"Genai takes no input, one picture or one clip; {len(work.inputs)} were given.",
        )
    source = next(iter(work.inputs.values()))
    if source.stat().st_size == 0:
        raise InputError(InputReason.EMPTY, "The file is empty (0 bytes).")
    return (Kind.PICTURE if is_picture(source) else Kind.CLIP), source


def _digest(order: Order, source: Path | None) -> str:
    digest = hashlib.sha256(msgspec.json.encode(order))
    if source is not None:
        with source.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


_: Resumable = Genai()
