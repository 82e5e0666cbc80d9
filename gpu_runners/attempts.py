"""One attempt of a task in the hands of a runner: accept, fetch, work, store, tell, free the slot.

The slot is freed when the process group of the work is gone or clean again. That is when the work
is done and its files go to the store, if there is room for them beside the slots (see `storing`);
the attempt goes on without a slot then, and its lease with it. Otherwise it is the last that is
told, after the end, so a runner that dies in between leaves a lease that ends. An attempt that must
give its slot up early saves how far it came, where its pipeline can.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from gpu_runners.pipelines.pipeline import PipelineError, Product, Progress, Saved, Work
from gpu_runners.reports import Reports
from gpu_runners.slots import WorkerProcess
from gpu_runners.storing import Keeper, Parcel, StoreError, StoringRoom, Uploads
from schema.commands import (
    AcceptAttempt,
    AttemptYielded,
    Command,
    FailAttempt,
    FinishAttempt,
    FreeSlot,
    ReportMilestone,
    ResultFile,
    StoreAttempt,
)
from schema.failures import FailureClass
from schema.ids import CommandId, IncarnationId, PoolId, RunnerId
from schema.objects import checkpoint_key, material_key, result_key
from schema.progress import ProgressReported
from schema.replies import DispatchAttempt
from schema.wires.keys import KeyStore, SealBrokenError
from schema.wires.log import MessageTooLongError
from schema.wires.telemetry import end_tasks, facts
from schema.words import LossCause, Scene

log = logging.getLogger(__name__)

MESSAGE_CHARACTERS_MAX = 2_000
_MILLISECONDS = 1_000
PROMPTED = frozenset({Scene.GENAI})
"""Scenes that are told what to make in words."""
PROMPTS = ("prompt", "negative_prompt")


class MissingObjectError(Exception):
    """An object that the task names is not there: no other attempt will find it either."""


class Store(Keeper, Protocol):
    """The object store, as an attempt needs it. Raises StoreError and MissingObjectError."""

    async def fetch(self, key: str, path: Path) -> None:
        """Download an object to a local file."""
        ...


class Place(Protocol):
    """Whose slot it is."""

    @property
    def pool_id(self) -> PoolId: ...
    @property
    def runner_id(self) -> RunnerId: ...
    @property
    def incarnation_id(self) -> IncarnationId: ...


Tell = Callable[[Command], Awaitable[None]]
"""Appends a command, however long it takes; raises when the lease is gone."""
Hint = Callable[[ProgressReported], None]
"""Sends progress, if it can; loses it otherwise."""


class End(NamedTuple):
    """How an attempt ended, for the figures of its runner."""

    word: str
    """finished, failed, given_back or stopped."""
    cause: str = ""
    """The class of a failure, the cause of a loss, or why it was stopped."""
    card_ms: int = 0
    wasted_ms: int = 0
    """Of `card_ms`, what nobody has anything of."""


class Attempt:
    """One dispatch at work. `stop` and `give_back` end it early; `done` is its asyncio task."""

    def __init__(  # noqa: PLR0913 - composed by hand, once
        self,
        dispatch: DispatchAttempt,
        place: Place,
        worker: WorkerProcess,
        *,
        store: Store,
        directory: Path,
        tell: Tell,
        hint: Hint,
        uploads: Uploads,
        room: StoringRoom,
        leave_slot: Callable[[], None],
        keys: KeyStore | None = None,
    ) -> None:
        """`leave_slot` is called once at most: its worker may have other work from then on."""
        self.dispatch = dispatch
        self._place = place
        self._worker = worker
        self._store = store
        self._directory = directory
        self._tell = tell
        self._hint = hint
        self._uploads = uploads
        self._room = room
        self._leave_slot = leave_slot
        self._keys = keys
        self._reports = Reports(dispatch.percent)
        self._milestones: asyncio.Queue[int | None] = asyncio.Queue()
        self.end = End("stopped")
        self._yield_cause: LossCause | None = None
        self._save = asyncio.Event()
        self._last_call: asyncio.TimerHandle | None = None
        self._began: float | None = None
        self._worked_ms: int | None = None
        self._working = False
        self._saved_ms = 0
        self._stopped = False
        self._interrupted = False
        self._over = False
        self.is_storing = False
        """Its work is done; what it made goes to the store."""
        self.left_slot = False
        """It stores beside the slots."""
        self._slot_told = False
        self._taken_bytes: int | None = None
        """Of the room beside the slots; None: it is in its slot."""
        self.done: asyncio.Task[None] = asyncio.create_task(self._run())

    @property
    def unsaved_ms(self) -> int:
        """The work that would be lost if it had to give its slot up now."""
        return max(0, self._elapsed_ms() - (self._saved_ms if self._working else 0))

    def stop(self, why: str = "told to") -> None:
        """End it and say nothing: the task knows, or the token is not ours any more."""
        if not self._stopped:
            self._stopped = True
            self._yield_cause = None
            self.end = End("stopped", why)
            # Not before its first step: a task that never began tells nothing, not even its slot.
            asyncio.get_running_loop().call_soon(self._interrupt)

    def give_back(self, cause: LossCause, seconds: float = 0.0) -> None:
        """End it within so long, saved if it can be, and tell the task that it may queue again.

        What is being stored already may use the time to be stored.
        """
        if self._stopped or self._yield_cause is not None:
            return
        if cause is LossCause.PREEMPTED and self.left_slot:
            return  # the slot is free already
        self._yield_cause = cause
        loop = asyncio.get_running_loop()
        if seconds <= 0 or self._began is None:
            loop.call_soon(self._interrupt)
            return
        self._last_call = loop.call_later(seconds, self._interrupt)
        self._save.set()

    def _interrupt(self) -> None:
        if not self._over and not self._interrupted:
            self._interrupted = True  # once: a second one would break off the end of the group
            self.done.cancel()

    async def _run(self) -> None:
        try:
            await self._work()
            self._over = True  # told; what is left, nobody may interrupt
        except asyncio.CancelledError:
            self._over = True
            self._count_stop()
            if self._yield_cause is not None:
                await self._tell_yielded(self._yield_cause, self._elapsed_ms())
        finally:
            self._over = True  # also when the lease was gone: the rest is not to be broken off
            if self._last_call is not None:
                self._last_call.cancel()
            try:
                await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
            finally:
                if self._taken_bytes is not None:
                    self._room.leave(self._taken_bytes)
        if not self._slot_told:
            await self._tell(free_slot(self.dispatch, self._place))

    def break_off(self, why: str) -> None:
        """It ended without a word: nobody would have heard it, or a defect was in the way."""
        self.end = End("stopped", why)
        self._count_stop()

    def _count_stop(self) -> None:
        card_ms = self._elapsed_ms()
        self.end = self.end._replace(card_ms=card_ms, wasted_ms=card_ms)

    async def _tell_yielded(
        self,
        cause: LossCause,
        card_ms: int,
        checkpoint: str = "",
        saved_ms: int = 0,
        *,
        started_anew: bool = False,
    ) -> None:
        self.end = End("given_back", cause.value, card_ms, card_ms - saved_ms)
        await self._tell(
            AttemptYielded(
                command_id=self._command_id("yield"),
                task_id=self.dispatch.task_id,
                token=self.dispatch.token,
                cause=cause,
                checkpoint=checkpoint,
                card_ms=card_ms,
                saved_ms=saved_ms,
                started_anew=started_anew,
            )
        )

    async def _work(self) -> None:
        dispatch = self.dispatch
        await self._tell(
            AcceptAttempt(
                command_id=self._command_id("accept"),
                pool_id=self._place.pool_id,
                runner_id=self._place.runner_id,
                incarnation_id=self._place.incarnation_id,
                task_id=dispatch.task_id,
                token=dispatch.token,
            )
        )
        telling = asyncio.create_task(self._tell_milestones())
        try:
            made = await self._make()
            self._milestones.put_nowait(None)
            await telling
            if isinstance(made, Saved):
                await self._hand_over(made)
            else:
                await self._keep_and_finish(made)
        except PipelineError as error:
            await self._failed(error)
        except StoreError as error:
            await self._failed(PipelineError(FailureClass.STORE, str(error)))
        except MissingObjectError as error:
            await self._failed(PipelineError(FailureClass.INPUT, str(error)))
        except (OSError, MessageTooLongError) as error:
            # Of this attempt alone: a full disk, facts that no message holds. The others go on.
            message = f"{type(error).__name__}: {error}"
            await self._failed(PipelineError(FailureClass.INTERNAL, message))
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _failed(self, error: PipelineError) -> None:
        card_ms = self._elapsed_ms()
        self.end = End("failed", error.error_class.value, card_ms, card_ms)
        await self._tell(fail(self.dispatch, error, card_ms))

    async def _keep_and_finish(self, product: Product) -> None:
        card_ms = round(product.card_seconds * _MILLISECONDS)
        files = await self._keep(product, card_ms) if product.files else ()
        await self._tell(finish(self.dispatch, product, files))
        self.end = End("finished", "", card_ms)

    async def _hand_over(self, saved: Saved) -> None:
        """Store what was saved, then give the task back. Unstored, it is worth nothing."""
        cause = self._yield_cause
        if cause is None:  # told to stop meanwhile: that comes next
            await asyncio.get_running_loop().create_future()
            return
        key, saved_ms, card_ms = "", 0, self._elapsed_ms()
        if saved.path is not None:
            key = checkpoint_key(self.dispatch.task_id, self.dispatch.token)
            try:
                await self._uploads.keep_one(Parcel(key, saved.path, "application/octet-stream"))
                saved_ms = min(card_ms, round(saved.saved_seconds * _MILLISECONDS))
            except (StoreError, OSError) as error:
                log.warning("a checkpoint was not stored", extra=facts(key=key, error=str(error)))
                key = ""
        self._over = True
        await self._tell_yielded(cause, card_ms, key, saved_ms, started_anew=saved.started_anew)

    async def _make(self) -> Product | Saved:
        dispatch = self.dispatch
        inputs_directory = self._directory / "inputs"
        work_directory = self._directory / "work"
        inputs_directory.mkdir(parents=True, exist_ok=True)
        work_directory.mkdir(exist_ok=True)
        inputs: dict[str, Path] = {}
        for material_id in dispatch.material_ids:
            path = inputs[material_id] = inputs_directory / material_id
            key = dispatch.content_keys.get(material_id)
            await self._store.fetch(key or material_key(dispatch.user_id, material_id), path)
        work = Work(
            task_id=dispatch.task_id,
            token=dispatch.token,
            scene=dispatch.scene,
            parameters=dispatch.parameters | self._words(),
            inputs=inputs,
            directory=work_directory,
            checkpoint=await self._fetch_checkpoint(),
            lower_spec=dispatch.lower_spec,
        )
        self._began = time.monotonic()
        self._working = True
        try:
            return await self._worker.run_or_save(
                work, self._progressed, self._save, run_seconds_max=dispatch.run_limit_seconds
            )
        finally:
            self._worked_ms = self._elapsed_ms()
            self._working = False

    def _words(self) -> dict[str, str]:
        """The prompts, if the scene has any: only here they are read, and only the work hears."""
        dispatch = self.dispatch
        if dispatch.private is None or dispatch.scene not in PROMPTED:
            return {}
        if self._keys is None:
            raise PipelineError(FailureClass.INTERNAL, "This runner has no keys to read a prompt.")
        try:
            words = self._keys.open(dispatch.user_id, dispatch.private)
        except SealBrokenError as error:
            raise PipelineError(FailureClass.INPUT, f"The prompt can't be read: {error}") from error
        if words is None:
            raise PipelineError(FailureClass.INPUT, "The prompt was erased.")
        return {name: words[name] for name in PROMPTS if words.get(name)}

    async def _fetch_checkpoint(self) -> Path | None:
        """What an earlier attempt saved. One that is not there any more is a start from nothing."""
        key = self.dispatch.checkpoint
        if not key:
            return None
        path = self._directory / "checkpoint"
        try:
            await self._store.fetch(key, path)
        except MissingObjectError:
            log.warning("a checkpoint is not in the store", extra=facts(key=key))
            return None
        return path

    async def _keep(self, product: Product, card_ms: int) -> tuple[ResultFile, ...]:
        """Store what was made; made but not stored is not made."""
        dispatch = self.dispatch
        self.is_storing = True
        await self._tell(
            StoreAttempt(
                command_id=self._command_id("store"),
                task_id=dispatch.task_id,
                token=dispatch.token,
                card_ms=card_ms,
            )
        )
        parcels = [
            Parcel(
                result_key(dispatch.task_id, dispatch.token, file.name),
                file.path,
                file.content_type,
            )
            for file in product.files
        ]
        leaving = asyncio.create_task(self._go_aside(parcels))
        try:
            stored = await self._uploads.keep_all(parcels)
            if self.left_slot:
                await leaving  # it is being told
        finally:
            await end_tasks(leaving)
        return tuple(
            ResultFile(
                name=file.name,
                object_key=parcel.key,
                content_type=file.content_type,
                size=one.size,
                sha256=one.sha256,
            )
            for file, parcel, one in zip(product.files, parcels, stored, strict=True)
        )

    async def _go_aside(self, parcels: Sequence[Parcel]) -> None:
        """Leave the slot to other work, once there is room for the result beside the slots."""
        inputs = self._directory / "inputs"
        await asyncio.to_thread(shutil.rmtree, inputs, ignore_errors=True)  # nobody reads them now
        size = await asyncio.to_thread(_bytes_of, parcels)
        await self._room.enter(size)
        self._taken_bytes = size
        self.left_slot = True
        self._leave_slot()
        await self._tell(free_slot(self.dispatch, self._place))
        self._slot_told = True
        if self._yield_cause is LossCause.PREEMPTED:  # what it was for, it has given: its slot
            if self._last_call is not None:
                self._last_call.cancel()
            self._yield_cause = None

    def _progressed(self, progress: Progress) -> None:
        self._saved_ms = round(progress.saved_seconds * _MILLISECONDS)
        milestone = self._reports.milestones(progress.percent)
        if milestone is not None:
            self._milestones.put_nowait(milestone)
        report = ProgressReported(
            task_id=self.dispatch.task_id,
            user_id=self.dispatch.user_id,
            token=self.dispatch.token,
            percent=round(min(progress.percent, 100.0), 2),
            phase=progress.phase,
            eta_seconds=progress.eta_seconds,
            at=datetime.now(UTC),
        )
        due = self._reports.take(report, time.monotonic())
        if due is not None:
            self._hint(due)

    async def _tell_milestones(self) -> None:
        """In order, each when the one before stands; ends with the work."""
        while (percent := await self._milestones.get()) is not None:
            await self._tell(
                ReportMilestone(
                    command_id=self._command_id(f"milestone{percent}"),
                    task_id=self.dispatch.task_id,
                    token=self.dispatch.token,
                    percent=percent,
                )
            )

    def _elapsed_ms(self) -> int:
        """Card time so far; none before the work began."""
        if self._worked_ms is not None:
            return self._worked_ms
        began = self._began
        return 0 if began is None else round((time.monotonic() - began) * _MILLISECONDS)

    def _command_id(self, kind: str) -> CommandId:
        return attempt_command_id(kind, self.dispatch)


def _bytes_of(parcels: Sequence[Parcel]) -> int:
    return sum(parcel.path.stat().st_size for parcel in parcels)


def attempt_command_id(kind: str, dispatch: DispatchAttempt) -> CommandId:
    """The id of what is told of an attempt: told twice, it is the same command."""
    return CommandId(f"{kind}-{dispatch.task_id}-{dispatch.token}-{dispatch.incarnation_id}")


def finish(
    dispatch: DispatchAttempt, product: Product, files: tuple[ResultFile, ...]
) -> FinishAttempt:
    """The end that everybody hopes for."""
    return FinishAttempt(
        command_id=attempt_command_id("finish", dispatch),
        task_id=dispatch.task_id,
        token=dispatch.token,
        files=files,
        facts=product.facts,
        card_ms=round(product.card_seconds * _MILLISECONDS),
    )


def fail(dispatch: DispatchAttempt, error: PipelineError, card_ms: int) -> FailAttempt:
    """The other end, with its class and one message for people."""
    return FailAttempt(
        command_id=attempt_command_id("fail", dispatch),
        task_id=dispatch.task_id,
        token=dispatch.token,
        failure=error.error_class,
        message=error.message[:MESSAGE_CHARACTERS_MAX],
        card_ms=card_ms,
    )


def free_slot(dispatch: DispatchAttempt, place: Place) -> FreeSlot:
    """The slot can take another attempt now."""
    return FreeSlot(
        command_id=attempt_command_id("free", dispatch),
        pool_id=place.pool_id,
        runner_id=place.runner_id,
        incarnation_id=place.incarnation_id,
        task_id=dispatch.task_id,
        token=dispatch.token,
    )
