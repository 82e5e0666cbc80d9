"""One attempt of a task in the hands of a runner: accept, fetch, work, store, tell, free the slot.

Whatever happens, the slot is freed last, when the process group of the work is gone or clean
again; and its end is told before that, so a runner that dies in between leaves a lease that ends.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from gpu_runners.pipelines.pipeline import PipelineError, Product, Progress, Work
from gpu_runners.reports import Reports
from gpu_runners.slots import WorkerProcess
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
from schema.objects import material_key, result_key
from schema.progress import ProgressReported
from schema.replies import DispatchAttempt
from schema.wires.log import MessageTooLongError
from schema.words import LossCause

MESSAGE_CHARACTERS_MAX = 2_000
_MILLISECONDS = 1_000


class StoreError(Exception):
    """The object store did not do what it was asked, for now."""


class MissingObjectError(Exception):
    """An object that the task names is not there: no other attempt will find it either."""


class Stored(Protocol):
    """What a store says of an object that it took."""

    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...


class Store(Protocol):
    """The object store, as an attempt needs it. Raises StoreError and MissingObjectError."""

    async def fetch(self, key: str, path: Path) -> None:
        """Download an object to a local file."""
        ...

    async def keep(self, key: str, path: Path, content_type: str) -> Stored:
        """Upload a local file under a name that nobody else writes."""
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
        storing_seconds: float,
    ) -> None:
        self.dispatch = dispatch
        self._place = place
        self._worker = worker
        self._store = store
        self._directory = directory
        self._tell = tell
        self._hint = hint
        self._storing_seconds = storing_seconds
        self._reports = Reports(dispatch.percent)
        self._milestones: asyncio.Queue[int | None] = asyncio.Queue()
        self._yield_cause: LossCause | None = None
        self._began = time.monotonic()
        self._stopped = False
        self._over = False
        self.done: asyncio.Task[None] = asyncio.create_task(self._run())

    def stop(self) -> None:
        """End it and say nothing: the task knows, or the token is not ours any more."""
        if not self._stopped:
            self._stopped = True
            # Not before its first step: a task that never began tells nothing, not even its slot.
            asyncio.get_running_loop().call_soon(self._interrupt)

    def give_back(self, cause: LossCause) -> None:
        """End it and tell the task that it may be queued again."""
        if not self._stopped:
            self._yield_cause = cause
            self.stop()

    def _interrupt(self) -> None:
        if not self._over:
            self.done.cancel()

    async def _run(self) -> None:
        try:
            await self._work()
            self._over = True  # told; what is left, nobody may interrupt
        except asyncio.CancelledError:
            if self._yield_cause is not None:
                await self._tell(
                    AttemptYielded(
                        command_id=self._command_id("yield"),
                        task_id=self.dispatch.task_id,
                        token=self.dispatch.token,
                        cause=self._yield_cause,
                        card_ms=self._elapsed_ms(),
                    )
                )
        finally:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        await self._tell(free_slot(self.dispatch, self._place))

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
            product = await self._make()
            self._milestones.put_nowait(None)
            await telling
            card_ms = round(product.card_seconds * _MILLISECONDS)
            files = await self._keep(product, card_ms) if product.files else ()
            await self._tell(finish(dispatch, product, files))
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
        await self._tell(fail(self.dispatch, error, self._elapsed_ms()))

    async def _make(self) -> Product:
        dispatch = self.dispatch
        inputs_directory = self._directory / "inputs"
        work_directory = self._directory / "work"
        inputs_directory.mkdir(parents=True, exist_ok=True)
        work_directory.mkdir(exist_ok=True)
        inputs: dict[str, Path] = {}
        for material_id in dispatch.material_ids:
            path = inputs[material_id] = inputs_directory / material_id
            await self._store.fetch(material_key(dispatch.user_id, material_id), path)
        work = Work(
            task_id=dispatch.task_id,
            token=dispatch.token,
            scene=dispatch.scene,
            parameters=dispatch.parameters,
            inputs=inputs,
            directory=work_directory,
        )
        self._began = time.monotonic()
        return await self._worker.run(
            work, self._progressed, run_seconds_max=dispatch.run_limit_seconds
        )

    async def _keep(self, product: Product, card_ms: int) -> tuple[ResultFile, ...]:
        """Store what was made; made but not stored is not made."""
        dispatch = self.dispatch
        await self._tell(
            StoreAttempt(
                command_id=self._command_id("store"),
                task_id=dispatch.task_id,
                token=dispatch.token,
                card_ms=card_ms,
            )
        )
        files: list[ResultFile] = []
        for file in product.files:
            key = result_key(dispatch.task_id, dispatch.token, file.name)
            stored = await self._keep_one(key, file.path, file.content_type)
            files.append(
                ResultFile(
                    name=file.name,
                    object_key=key,
                    content_type=file.content_type,
                    size=stored.size,
                    sha256=stored.sha256,
                )
            )
        return tuple(files)

    async def _keep_one(self, key: str, path: Path, content_type: str) -> Stored:
        """Offer a file to the store until it takes it or the time for storing is over."""
        until = time.monotonic() + self._storing_seconds
        pause = 0.5
        while True:
            try:
                return await self._store.keep(key, path, content_type)
            except StoreError:
                if time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, 15.0)

    def _progressed(self, progress: Progress) -> None:
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
        return round((time.monotonic() - self._began) * _MILLISECONDS)

    def _command_id(self, kind: str) -> CommandId:
        return attempt_command_id(kind, self.dispatch)


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
