"""A runner: one process on one card that takes dispatches from its inbox and tells their ends.

Each start, and each new beginning after a lost lease, is an *incarnation*: read the inbox from its
end, register, beat, work. A beat that is answered renews the lease and names the attempts that stay
held; everything else is stopped. A runner that is not answered in time stops all by itself.

SIGTERM drains: nothing new, a grace for what is nearly done, the rest saved and given back. A spot
notice (the card is being taken away) does the same without the grace.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from gpu_runners.attempts import Attempt, End, Store, fail, finish, free_slot
from gpu_runners.lease import Lease, Notice, clock
from gpu_runners.metrics import Metrics
from gpu_runners.pipelines import rehearsal
from gpu_runners.pipelines.pipeline import PipelineError, Work
from gpu_runners.slots import WorkerProcess
from gpu_runners.storing import StoringRoom, Uploads
from gpu_runners.worker_messages import WorkerOptions
from schema.codec import RUNNER_INBOX, UnreadableMessageError, encode
from schema.commands import (
    AttemptYielded,
    BeatRunner,
    Command,
    DrainRunner,
    FreeSlot,
    HeldAttempt,
    RegisterRunner,
)
from schema.ids import (
    CommandId,
    IncarnationId,
    PoolId,
    RunnerId,
    runner_partition,
    user_partition,
)
from schema.progress import ProgressReported
from schema.replies import (
    BeatAnswered,
    DispatchAttempt,
    RunnerDismissed,
    RunnerMessage,
    StopAttempt,
    YieldAttempt,
)
from schema.routes import Route, Routed, route
from schema.settings import Kafka, SettingsError
from schema.settings import Runner as RunnerSettings
from schema.topics import Topic
from schema.wires.keys import KeyStore
from schema.wires.log import LogReader, LogUnavailableError, LogWriter, Place
from schema.wires.telemetry import end_tasks, facts
from schema.words import LossCause, Scene

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
_PAUSES_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Before a new incarnation, longer while they end young."""
_GROWN_UP_SECONDS = 30.0
_FIRST_ANSWER_SECONDS = 10.0
"""How long a registration may stay unanswered before it is made anew."""
_BEAT_SECONDS = 1.0
"""Until the first answer says how often this pool wants to be told."""
_LOOK_SECONDS = 1.0
"""How often it looks where nobody tells: at its lease after a sleep, at the notice file."""
_FAREWELL_SECONDS = 5.0
_FAREWELL_BEAT_SECONDS = 0.25
_YIELD_SHARE = 0.9
"""Of the time that a pool gives for a yield: then its runner tells of the end, and not the pool."""


MEGABYTE = 1_000_000


class LeaseGoneError(Exception):
    """Nothing may be told of this incarnation's attempts any more."""


class Who(NamedTuple):
    """This incarnation of this runner in its pool."""

    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId


class Incarnation:
    """From one registration to its end: lost lease, dismissal, or a drain that is done."""

    def __init__(self, runner: "Runner", beginning: float) -> None:
        self._runner = runner
        self._settings = runner.settings
        self.who = Who(
            PoolId(self._settings.pool_id),
            RunnerId(self._settings.runner_id),
            IncarnationId(uuid4().hex),
        )
        self.lease = Lease()
        self.over = asyncio.Event()
        self._beginning = beginning
        self._beat_seconds = _BEAT_SECONDS
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._told: dict[int, tuple[HeldAttempt, ...]] = {}
        self._inline: set[asyncio.Task[None]] = set()
        self._renewed = asyncio.Event()
        self._draining: LossCause | None = None
        """Why nothing new is taken: the cause of what is given back."""
        self._why = "lease_lost"

    @property
    def busy(self) -> int:
        """Attempts at work in a slot."""
        return sum(not attempt.left_slot for attempt in self._attempts.values())

    # --- telling ---------------------------------------------------------------------------------

    async def tell(self, command: Command) -> None:
        """Append a command, for as long as the lease holds; raises LeaseGoneError after that."""
        while True:
            held = self.lease.holds(clock())
            # Also a runner that slept, or was stopped, and wakes up with an end to tell.
            if self.over.is_set() or (self.lease.until is not None and not held):
                raise LeaseGoneError
            try:
                await self._append(command)
            except LogUnavailableError:
                if not held:
                    raise LeaseGoneError from None
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _append(self, command: Command) -> None:
        routed: Routed = command  # type: ignore[assignment]
        where = route(routed, self._runner.kafka.partitions)
        await self._runner.writer.append(where, encode(command))

    async def register(self) -> None:
        """Ask to be known; the answer is beat 0."""
        self.lease.next_beat(clock())
        await self._append(
            RegisterRunner(
                command_id=CommandId(f"register-{self.who.incarnation_id}"),
                pool_id=self.who.pool_id,
                runner_id=self.who.runner_id,
                incarnation_id=self.who.incarnation_id,
                slots=self._settings.slots,
                spot=self._settings.spot,
            )
        )

    async def beat(self) -> None:
        """Tell that we live and what we hold, until this incarnation is over."""
        while True:
            await asyncio.sleep(self._beat_seconds)
            await self._beat_once()

    async def _beat_once(self) -> None:
        attempts = tuple(self._attempts.values())
        held = tuple(
            HeldAttempt(task_id=attempt.dispatch.task_id, token=attempt.dispatch.token)
            for attempt in attempts
        )
        number = self.lease.next_beat(clock())
        self._told[number] = held
        self._told.pop(number - 64, None)
        try:
            await self._append(
                BeatRunner(
                    command_id=CommandId(f"beat-{self.who.incarnation_id}-{number}"),
                    pool_id=self.who.pool_id,
                    runner_id=self.who.runner_id,
                    incarnation_id=self.who.incarnation_id,
                    beat=number,
                    held=held,
                    unsaved_ms=tuple(attempt.unsaved_ms for attempt in attempts),
                )
            )
        except LogUnavailableError as error:
            log.warning("a beat was not taken", extra=facts(error=str(error)))

    async def watch(self) -> None:
        """End this incarnation when its lease does."""
        while True:
            until = self.lease.until
            if until is None:
                until = self._beginning + _FIRST_ANSWER_SECONDS
            rest = until - clock()
            if rest <= 0 and self.lease.until is None:
                log.warning("not answered", extra=facts(**self._facts()))
                self._end("not_answered")
                return
            if rest <= 0:
                self._runner.metrics.lost_leases.inc()
                stopped = len(self._attempts)
                log.warning("the lease is lost", extra=facts(**self._facts(), stopped=stopped))
                self._end("lease_lost")
                return
            self._renewed.clear()
            try:
                async with asyncio.timeout(min(rest, _LOOK_SECONDS)):
                    await self._renewed.wait()
            except TimeoutError:
                continue

    # --- being told ------------------------------------------------------------------------------

    def receive(self, messages: Iterable[RunnerMessage]) -> None:
        """What the inbox says to this incarnation, in order."""
        at_once: list[DispatchAttempt] = []
        for message in messages:
            match message:
                case DispatchAttempt():
                    if rehearsal.runs_inline(_work(message)) and not self._draining:
                        at_once.append(message)
                    else:
                        self._dispatch(message)
                case StopAttempt():
                    if not self._stop(message.task_id, message.token):
                        self._keep(asyncio.create_task(self._free(message)))
                case YieldAttempt():
                    attempt = self._attempts.get((message.task_id, message.token))
                    if attempt is not None:
                        seconds = message.seconds * _YIELD_SHARE
                        attempt.give_back(_loss_cause(message.reason), seconds)
                case BeatAnswered():
                    self._answered(message)
                case RunnerDismissed():
                    if not self._draining:
                        reason = message.reason
                        log.warning("dismissed", extra=facts(**self._facts(), reason=reason))
                    self._end("dismissed")
        if at_once:
            self._keep(asyncio.create_task(self._do_at_once(at_once)))

    def _answered(self, message: BeatAnswered) -> None:
        if not self.lease.answered(message.beat, message.lease_seconds):
            return
        if self._beat_seconds != message.beat_seconds:
            self._beat_seconds = message.beat_seconds
        self._renewed.set()
        stay = {(held.task_id, held.token) for held in message.held}
        for held in self._told.pop(message.beat, ()):
            if (held.task_id, held.token) not in stay:
                self._stop(held.task_id, held.token)

    def _stop(self, task_id: str, token: int) -> bool:
        """Exactly this attempt; whether there is such a one."""
        attempt = self._attempts.get((task_id, token))
        if attempt is not None:
            attempt.stop()
        return attempt is not None

    async def _free(self, message: StopAttempt) -> None:
        """Nothing of this attempt is here (any more): its slot is free."""
        await self.tell(
            FreeSlot(
                command_id=CommandId(f"free-{message.task_id}-{message.token}-{self.who[2]}"),
                pool_id=self.who.pool_id,
                runner_id=self.who.runner_id,
                incarnation_id=self.who.incarnation_id,
                task_id=message.task_id,
                token=message.token,
            )
        )

    def _dispatch(self, message: DispatchAttempt) -> None:
        place = (message.task_id, message.token)
        if place in self._attempts:
            return
        worker = None if self._draining else self._runner.take_worker()
        if worker is None:
            self._keep(asyncio.create_task(self._hand_back(message)))
            return
        attempt = Attempt(
            message,
            self.who,
            worker,
            store=self._runner.store,
            directory=self._runner.scratch(),
            tell=self.tell,
            hint=self._runner.hint,
            uploads=self._runner.uploads,
            room=self._runner.room,
            leave_slot=partial(self._runner.return_worker, worker),
            keys=self._runner.keys,
        )
        self._attempts[place] = attempt
        self._runner.metrics.attempts.inc()
        attempt.done.add_done_callback(partial(self._ended, place, attempt, worker))

    def _ended(
        self,
        place: tuple[str, int],
        attempt: Attempt,
        worker: WorkerProcess,
        done: asyncio.Task[None],
    ) -> None:
        self._attempts.pop(place, None)
        if not attempt.left_slot:
            self._runner.return_worker(worker)
        self._runner.metrics.storing.set(self._runner.room.results)
        error = None if done.cancelled() else done.exception()
        if isinstance(error, LeaseGoneError):
            attempt.break_off(self._why)
        elif error is not None:
            log.error("an attempt broke", extra=facts(**self._facts()), exc_info=error)
            attempt.break_off("defect")
            self._end("defect")
        self._runner.metrics.ended(attempt.end)

    async def _hand_back(self, message: DispatchAttempt) -> None:
        """It can't be taken: the task is queued again, the slot is as free as it was."""
        cause = self._draining or LossCause.NOT_ACCEPTED
        await self.tell(
            AttemptYielded(
                command_id=CommandId(f"yield-{message.task_id}-{message.token}"),
                task_id=message.task_id,
                token=message.token,
                cause=cause,
            )
        )
        await self.tell(free_slot(message, self.who))

    async def _do_at_once(self, dispatches: Sequence[DispatchAttempt]) -> None:
        """Work that takes no time and stores nothing: its end is its acceptance."""
        metrics = self._runner.metrics
        metrics.attempts.inc(len(dispatches))
        ends: list[Command] = []
        for dispatch in dispatches:
            try:
                ends.append(finish(dispatch, rehearsal.run_inline(_work(dispatch)), ()))
                metrics.ended(End("finished"))
            except PipelineError as error:
                ends.append(fail(dispatch, error, 0))
                metrics.ended(End("failed", error.error_class.value))
        await asyncio.gather(*(self.tell(end) for end in ends))
        await asyncio.gather(*(self.tell(free_slot(one, self.who)) for one in dispatches))

    # --- ending ----------------------------------------------------------------------------------

    async def drain(self, notice: asyncio.Event) -> None:
        """Take nothing new, let finish what ends in time, save and give back the rest.

        Once `notice` is set the card is being taken away: nothing has time to finish any more.
        """
        spot = notice.is_set()
        if not spot:
            await self._tell_draining(LossCause.DRAINED)
            spot = await self._grace(notice, self._settings.drain_seconds)
        if spot:
            await self._tell_draining(LossCause.SPOT)
        for attempt in list(self._attempts.values()):
            attempt.give_back(
                LossCause.SPOT if spot else LossCause.DRAINED,
                self._last_seconds(attempt, spot=spot),
            )
        if not spot and await self._grace(notice, None):
            await self._tell_draining(LossCause.SPOT)
        await self._await_attempts(None)
        await self._farewell()

    def _last_seconds(self, attempt: Attempt, *, spot: bool) -> float:
        """How long it may still take: what is made already is waited for longer."""
        settings = self._settings
        if spot:
            return self._runner.notice.save_seconds(clock())
        return settings.drain_storing_seconds if attempt.is_storing else settings.save_seconds

    async def _tell_draining(self, cause: LossCause) -> None:
        self._draining = cause
        log.info("draining", extra=facts(**self._facts(), cause=cause, attempts=self.busy))
        notice_seconds = 0
        if cause is LossCause.SPOT:
            notice_seconds = self._runner.notice.told_seconds(clock())
        await self.tell(
            DrainRunner(
                command_id=CommandId(f"drain-{cause}-{self.who.incarnation_id}"),
                pool_id=self.who.pool_id,
                runner_id=self.who.runner_id,
                incarnation_id=self.who.incarnation_id,
                spot=cause is LossCause.SPOT,
                notice_seconds=notice_seconds,
            )
        )

    async def _grace(self, notice: asyncio.Event, seconds: float | None) -> bool:
        """Let end what ends in time (None: all); whether the card is being taken away meanwhile."""
        noticed = asyncio.create_task(notice.wait())
        waited = asyncio.create_task(self._await_attempts(seconds))
        try:
            await asyncio.wait([noticed, waited], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(noticed, waited)
        return notice.is_set()

    async def _farewell(self) -> None:
        """Stay until the pool has let us go: what it gave before it knew is still to be given back.

        A beat tells: a runner that drained to its end is unknown, and dismissed.
        """
        until = time.monotonic() + _FAREWELL_SECONDS
        while not self.over.is_set() and time.monotonic() < until:
            await self._beat_once()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL_BEAT_SECONDS):
                    await self.over.wait()

    async def abandon(self) -> None:
        """Stop everything; returns when every process group is gone."""
        self._end(self._why)
        for attempt in list(self._attempts.values()):
            attempt.stop(self._why)
        await self._await_attempts(None)

    def _end(self, why: str) -> None:
        """Nothing more is told of this incarnation; `why` is for the figures."""
        if not self.over.is_set():
            self._why = why
            self.over.set()

    async def _await_attempts(self, seconds: float | None) -> None:
        waiting = [attempt.done for attempt in self._attempts.values()]
        waiting += self._inline
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._inline.add(task)

        def ended(done: asyncio.Task[None]) -> None:
            self._inline.discard(done)
            error = None if done.cancelled() else done.exception()
            if error is not None and not isinstance(error, LeaseGoneError):
                log.error("a dispatch broke", extra=facts(**self._facts()), exc_info=error)
                self._end("defect")

        task.add_done_callback(ended)

    def _facts(self) -> dict[str, str]:
        return dict(self.who._asdict())


def worker_options(settings: RunnerSettings) -> WorkerOptions:
    """How the workers of such a runner are to be. Raises SettingsError for an unknown scene."""
    names = [name.strip() for name in settings.warm_scenes.split(",") if name.strip()]
    unknown = sorted(set(names) - {scene.value for scene in Scene})
    if unknown:
        raise SettingsError(
            f"CUTLOG_RUNNER_WARM_SCENES: no such scene: {', '.join(unknown)}; there are "
            f"{', '.join(Scene)}"
        )
    most = settings.memory_megabytes_max
    return WorkerOptions(
        scenes=tuple(map(Scene, names)),
        memory_bytes_max=most * MEGABYTE if most else None,
        models_directory=settings.models_directory,
        diffusion_model=settings.diffusion_model,
    )


class Runner:
    """The process: its connections, its workers, one incarnation after the other."""

    def __init__(
        self,
        settings: RunnerSettings,
        kafka: Kafka,
        *,
        writer: LogWriter,
        store: Store,
        metrics: Metrics,
        keys: KeyStore | None = None,
    ) -> None:
        self.settings = settings
        self.keys = keys
        self.kafka = kafka
        self.writer = writer
        self.store = store
        self.metrics = metrics
        options = worker_options(settings)
        self._free = [WorkerProcess(options) for _ in range(settings.slots)]
        self._workers = tuple(self._free)
        self.uploads = Uploads(
            store, seconds=settings.storing_seconds, parallel_max=settings.storing_uploads_max
        )
        self.room = StoringRoom(
            settings.storing_results_max, settings.storing_megabytes_max * MEGABYTE
        )
        self._scratch = Path(settings.work_directory).resolve()
        self._numbers = itertools.count(1)
        self._stopping = asyncio.Event()
        self._noticed = asyncio.Event()
        self.notice = Notice(settings.spot_notice_seconds, clock())
        """The one that came, once `_noticed` is set."""
        self._leaving = asyncio.Event()
        self._hints: set[asyncio.Task[None]] = set()
        self._incarnation: Incarnation | None = None

    def stop(self) -> None:
        """Drain and end: `run` returns when everything is done or given back."""
        self._stopping.set()
        self._leaving.set()

    def take_away(self) -> None:
        """The card is being taken away: save and give back everything, then end."""
        if not self._noticed.is_set():
            log.warning("the card is being taken away", extra=facts(pool=self.settings.pool_id))
            self.metrics.spot_notices.inc()
            self.notice = Notice(self.settings.spot_notice_seconds, clock())
            self._noticed.set()
            self._leaving.set()

    @property
    def ready(self) -> bool:
        """Whether this runner is known to its pool and may work."""
        incarnation = self._incarnation
        return incarnation is not None and incarnation.lease.holds(clock())

    async def run(self) -> None:
        """Incarnation after incarnation, until `stop` or `take_away`."""
        young = 0
        await self._await_no_notice()
        watching = asyncio.create_task(self._watch_notice())
        try:
            while not self._leaving.is_set():
                began = time.monotonic()
                try:
                    await self._live()
                except LogUnavailableError as error:
                    log.warning("the log is away", extra=facts(error=str(error)))
                young = 0 if time.monotonic() - began > _GROWN_UP_SECONDS else young + 1
                await self._pause(_PAUSES_SECONDS[min(young, len(_PAUSES_SECONDS) - 1)])
        finally:
            await end_tasks(watching)
            self._incarnation = None
            for hint in self._hints:
                hint.cancel()
            await asyncio.gather(*(worker.kill() for worker in self._workers))

    async def _live(self) -> None:
        """One incarnation: it seeks its inbox to the end, then registers."""
        partition = runner_partition(self.settings.runner_id, self.kafka.partitions)
        inbox = LogReader(self.kafka, [Place(Topic.RUNNER_INBOX, partition)])
        await inbox.start()
        incarnation = self._incarnation = Incarnation(self, clock())
        background: list[asyncio.Task[None]] = []
        try:
            await inbox.seek_to_end()
            await incarnation.register()
            background = [
                asyncio.create_task(self._listen(inbox, incarnation)),
                asyncio.create_task(incarnation.beat()),
                asyncio.create_task(incarnation.watch()),
            ]
            leaving = asyncio.create_task(self._leaving.wait())
            over = asyncio.create_task(incarnation.over.wait())
            background += [leaving, over]  # type: ignore[list-item]
            await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
            if self._leaving.is_set() and not incarnation.over.is_set():
                draining = asyncio.create_task(incarnation.drain(self._noticed))
                background.append(draining)
                await asyncio.wait([draining, over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await incarnation.abandon()
            ends = await end_tasks(*background)
            await inbox.stop()
            for end in ends:
                if isinstance(end, LeaseGoneError):
                    log.warning("the lease went while draining")
                elif isinstance(end, Exception):
                    log.error("an incarnation broke", exc_info=end)

    async def _listen(self, inbox: LogReader, incarnation: Incarnation) -> None:
        mine = incarnation.who
        async for batch in inbox.follow():
            messages: list[RunnerMessage] = []
            key = mine.runner_id.encode()
            for record in batch.records:
                if record.key != key or record.value is None:
                    continue
                try:
                    message = RUNNER_INBOX.decode(record.value)
                except UnreadableMessageError as error:
                    log.exception("an inbox message can't be read", extra=facts(error=str(error)))
                    continue
                if message.incarnation_id == mine.incarnation_id:
                    messages.append(message)
            incarnation.receive(messages)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        except TimeoutError:
            return

    def _notice_stands(self) -> bool:
        path = self.settings.spot_notice_file
        return bool(path) and Path(path).exists()

    async def _watch_notice(self) -> None:
        """Whoever takes the card away makes a file; nothing tells of it but a look."""
        while self.settings.spot_notice_file:
            if await asyncio.to_thread(self._notice_stands):
                self.take_away()
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _await_no_notice(self) -> None:
        """A runner that is started on a card that is being taken away asks for no work."""
        while await asyncio.to_thread(self._notice_stands) and not self._leaving.is_set():
            await self._pause(_LOOK_SECONDS)

    # --- what incarnations share -----------------------------------------------------------------

    def take_worker(self) -> WorkerProcess | None:
        """A slot's worker, warm if one is; None when every slot is taken."""
        if not self._free:
            return None
        warm = next((worker for worker in self._free if worker.pid is not None), self._free[0])
        self._free.remove(warm)
        self.metrics.busy.set(len(self._workers) - len(self._free))
        return warm

    def return_worker(self, worker: WorkerProcess) -> None:
        """The slot is free again."""
        self._free.append(worker)
        self.metrics.busy.set(len(self._workers) - len(self._free))
        self.metrics.storing.set(self.room.results)

    def scratch(self) -> Path:
        """A directory of its own for one attempt."""
        return self._scratch / f"attempt-{next(self._numbers)}"

    def hint(self, report: ProgressReported) -> None:
        """Send progress if the log takes it now; it is never the truth."""
        partition = user_partition(report.task_id, self.kafka.partitions)
        where = Route(Topic.PROGRESS, partition, report.task_id)
        task = asyncio.create_task(self._send_hint(where, encode(report)))
        self._hints.add(task)
        task.add_done_callback(self._hints.discard)

    async def _send_hint(self, where: Route, value: bytes) -> None:
        try:
            await self.writer.append(where, value)
        except LogUnavailableError:
            self.metrics.lost_hints.inc()


def _loss_cause(reason: str) -> LossCause:
    """Why a pool wants an attempt back; a word that this release does not know is the usual one."""
    try:
        return LossCause(reason)
    except ValueError:
        return LossCause.PREEMPTED


def _work(dispatch: DispatchAttempt) -> Work:
    """The work of a dispatch that needs neither inputs nor a place on disk."""
    return Work(
        task_id=dispatch.task_id,
        token=dispatch.token,
        scene=dispatch.scene,
        parameters=dispatch.parameters,
        inputs={},
        directory=Path(),
    )
