"""The runners: they accept, report, finish, fail, hang, crash, pause, come back as zombies, drain.

The protocol is the product's (`gpu_runners.runner`), told again in virtual time; the lease itself
and the messages are the product's own code.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from gpu_runners.attempts import attempt_command_id, fail, finish, free_slot
from gpu_runners.lease import Lease
from gpu_runners.pipelines.pipeline import PipelineError, Product
from processors.engine import Record
from schema import commands as c
from schema.codec import RUNNER_INBOX
from schema.failures import FailureClass
from schema.ids import CommandId, IncarnationId, PoolId, RunnerId, runner_partition
from schema.objects import result_key
from schema.replies import (
    BeatAnswered,
    DispatchAttempt,
    RunnerDismissed,
    RunnerMessage,
    StopAttempt,
    YieldAttempt,
)
from schema.topics import Topic
from schema.words import LossCause
from tests.simulation.cluster import Chaos
from tests.simulation.world import Do, Log, World

_FIRST_ANSWER_MS = 10_000
_RETRYABLE = (FailureClass.NETWORK, FailureClass.OUT_OF_MEMORY, FailureClass.STORE)
_FINAL = (FailureClass.INPUT, FailureClass.MODERATION)


class Place(NamedTuple):
    pool_id: PoolId
    runner_id: RunnerId
    incarnation_id: IncarnationId


@dataclass(slots=True, eq=False)
class Attempt:
    """One dispatch at work; what it tells goes out in order, each after the one before."""

    dispatch: DispatchAttempt
    begun: int
    live: bool = True
    """False: its process group is gone, or its end is on its way."""
    aside: bool = False
    """Its work is done: it stores its result, and its slot has other work."""
    freed: bool = False
    """Its slot was told free while it stores."""
    outbox: deque[tuple[c.Command, Do | None]] = field(
        default_factory=deque[tuple[c.Command, Do | None]]
    )
    telling: bool = False


class SimRunner:
    """One process under one name, one incarnation after the other."""

    def __init__(
        self, fleet: "Fleet", runner_id: str, pool_id: PoolId, slots: int, *, spot: bool
    ) -> None:
        self._fleet = fleet
        self._world = fleet.world
        self._log = fleet.log
        self.name = RunnerId(runner_id)
        self.pool_id = pool_id
        self.slots = slots
        self.spot = spot
        self.alive = True
        self.paused = False
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self.over = True
        self.draining = False
        self.zombie = False
        """Another process has its name; this one ends with its incarnation."""
        self._held: list[Do] = []
        self._rushing = False
        """Just woken: it tells what it has to tell before it looks at the time."""
        self._incarnations = 0
        self._begin()

    # --- time as this process sees it ------------------------------------------------------------

    def later(self, milliseconds: int, do: Do) -> None:
        """Do it so much later, unless the process or its incarnation is gone by then."""
        incarnation = self._incarnations

        def run() -> None:
            if not self.alive or incarnation != self._incarnations:
                return
            if self.paused:
                self._held.append(run)
            else:
                do()

        self._world.after(milliseconds, run)

    def pause(self, milliseconds: int) -> None:
        """SIGSTOP; then SIGCONT, and all that has waited comes in some order."""
        if self.paused or not self.alive:
            return
        self.paused = True

        def resume() -> None:
            self.paused = False
            held, self._held = self._held, []
            self._world.random.shuffle(held)
            self._rushing = True
            for do in held:
                do()
            self._rushing = False

        self._world.after(milliseconds, resume)

    def die(self) -> None:
        """Kill -9: it tells nothing any more."""
        self.alive = False
        self.attempts.clear()

    # --- an incarnation --------------------------------------------------------------------------

    def _begin(self) -> None:
        self._incarnations += 1
        self.over = False
        self.draining = False
        self.lease = Lease()
        self.attempts = {}
        self.place = Place(
            self.pool_id, self.name, IncarnationId(f"{self.name}-{self._fleet.next_number()}")
        )
        self._beat_ms = 1_000
        self._told: dict[int, tuple[c.HeldAttempt, ...]] = {}
        self._partition = runner_partition(self.name, self._log.partitions)
        self._position = len(self._inbox)
        self._reading = False
        self._fleet.incarnations[self.place.incarnation_id] = self
        self.lease.next_beat(self._world.now / 1000)
        register = c.RegisterRunner(
            command_id=CommandId(f"register-{self.place.incarnation_id}"),
            slots=self.slots,
            spot=self.spot,
            **self.place._asdict(),
        )
        self._send(register, lambda: self.later(self._beat_ms, self._beat))
        self.later(_FIRST_ANSWER_MS, self._first_answer)

    @property
    def _inbox(self) -> list[Record]:
        return self._log.records[str(Topic.RUNNER_INBOX), self._partition]

    def _first_answer(self) -> None:
        if self.lease.until is None:
            self._end()

    def _end(self) -> None:
        """The lease is gone, or it was dismissed: all groups are killed, nothing more is told."""
        if self.over:
            return
        self.over = True
        self.attempts.clear()
        self._incarnations += 1
        if self.zombie:
            self.die()
            return
        pause = self._world.between(100, 3_000)
        self.later(pause, self._begin)

    def _watch_lease(self) -> None:
        until = self.lease.until
        if until is not None and not self.over:
            if until <= self._world.now / 1000:
                self._end()
            else:
                rest = max(round(until * 1000) - self._world.now, 1)
                self.later(rest, self._watch_lease)

    # --- telling ---------------------------------------------------------------------------------

    def _send(self, command: c.Command, then: Do | None = None) -> None:
        """Append it; acknowledged, go on. It may take a while."""
        if self._rushing:
            self._sent(command, then)
            return
        late = self._world.chance(self._fleet.chaos.late)
        self.later(self._world.between(1, 6_000 if late else 25), lambda: self._sent(command, then))

    def _sent(self, command: c.Command, then: Do | None) -> None:
        self._log.put(command)
        # Told again until it stands, so it may stand twice; a beat or a registration is not.
        told_again = not isinstance(command, c.BeatRunner | c.RegisterRunner)
        if told_again and self._world.chance(self._fleet.chaos.doubled):
            self._world.after(self._world.between(1, 15_000), partial(self._log.put, command))
        if then is not None:
            then()

    def _tell(self, attempt: Attempt, command: c.Command, then: Do | None = None) -> None:
        attempt.outbox.append((command, then))
        self._tell_next(attempt)

    def _tell_next(self, attempt: Attempt) -> None:
        if attempt.telling or not attempt.outbox or self.over:
            return
        attempt.telling = True
        command, then = attempt.outbox.popleft()

        def told() -> None:
            attempt.telling = False
            if then is not None:
                then()
            self._tell_next(attempt)

        self._send(command, told)

    def _beat(self) -> None:
        self.later(self._beat_ms, self._beat)
        held = tuple(c.HeldAttempt(task_id=task, token=token) for task, token in self.attempts)  # type: ignore[arg-type]
        number = self.lease.next_beat(self._world.now / 1000)
        self._told[number] = held
        beat = c.BeatRunner(
            command_id=CommandId(f"beat-{self.place.incarnation_id}-{number}"),
            beat=number,
            held=held,
            **self.place._asdict(),
        )
        self._send(beat)

    # --- being told ------------------------------------------------------------------------------

    def look(self) -> None:
        """Something may have come into the inbox."""
        if not self._reading:
            self._reading = True
            late = self._world.chance(self._fleet.chaos.late)
            self.later(self._world.between(2, 7_000 if late else 60), self._read)

    def _read(self) -> None:
        self._reading = False
        records = self._inbox[self._position :]
        self._position += len(records)
        for record in records:
            if record.key != self.name.encode():
                continue
            message: RunnerMessage = RUNNER_INBOX.decode(record.value or b"")
            if message.incarnation_id == self.place.incarnation_id and not self.over:
                self._receive(message)

    def _receive(self, message: RunnerMessage) -> None:
        match message:
            case DispatchAttempt():
                self._dispatch(message)
            case StopAttempt():
                attempt = self.attempts.get((message.task_id, message.token))
                if attempt is None:
                    self._free(message.task_id, message.token)
                else:
                    self._stop(attempt)
            case YieldAttempt():
                self._asked_to_yield(message)
            case BeatAnswered():
                self._answered(message)
            case RunnerDismissed():
                self._end()

    def _asked_to_yield(self, message: YieldAttempt) -> None:
        """It notes where it is and gives the attempt back; now and then that takes too long."""
        attempt = self.attempts.get((message.task_id, message.token))
        if attempt is None:
            return
        slow = self._world.chance(0.2)
        pause = self._world.between(50, message.seconds * (3_000 if slow else 800))
        cause = LossCause(message.reason)
        self._at(attempt, pause, lambda: self._give_back(attempt, cause, f"at-{attempt.begun}"))

    def _answered(self, message: BeatAnswered) -> None:
        if not self.lease.answered(message.beat, message.lease_seconds):
            return
        self._beat_ms = message.beat_seconds * 1_000
        self._watch_lease()
        stay = {(held.task_id, held.token) for held in message.held}
        for held in self._told.pop(message.beat, ()):
            attempt = self.attempts.get((held.task_id, held.token))
            if (held.task_id, held.token) not in stay and attempt is not None:
                self._stop(attempt)

    # --- attempts --------------------------------------------------------------------------------

    def at_work(self, task: str, token: int) -> bool:
        """Whether its process group works on this attempt now, and somebody looks after it."""
        attempt = self.attempts.get((task, token))
        return self.alive and not self.paused and attempt is not None and attempt.live

    def _dispatch(self, dispatch: DispatchAttempt) -> None:
        place = (dispatch.task_id, dispatch.token)
        if place in self.attempts:
            return
        attempt = Attempt(dispatch, self._world.now)
        if dispatch.parameters.get("no_op"):
            attempt.live = False
            self._tell(attempt, finish(dispatch, Product(files=(), facts={}, card_seconds=0), ()))
            self._tell(attempt, free_slot(dispatch, self.place))
            return
        if self.draining or sum(not one.aside for one in self.attempts.values()) >= self.slots:
            cause = LossCause.DRAINED if self.draining else LossCause.NOT_ACCEPTED
            self._give_back(attempt, cause)
            return
        self.attempts[place] = attempt
        accept = c.AcceptAttempt(
            command_id=attempt_command_id("accept", dispatch),
            task_id=dispatch.task_id,
            token=dispatch.token,
            **self.place._asdict(),
        )
        self._tell(attempt, accept)
        self._plan(attempt)

    def _plan(self, attempt: Attempt) -> None:
        """What will become of it."""
        world = self._world
        work_ms = world.between(100, 3_000) if world.chance(0.55) else world.between(3_000, 14_000)
        for percent, share in ((10, 0.1), (30, 0.3), (60, 0.6), (90, 0.9)):
            if world.chance(0.5):
                self._at(
                    attempt,
                    int(work_ms * share),
                    partial(self._milestone, attempt, percent),
                )
        fate = world.random.random() if not self._fleet.calm else 0.5
        parameters = attempt.dispatch.parameters
        if parameters.get("kills"):
            self._at(attempt, work_ms, self._fleet_crash)
        elif parameters.get("cursed"):
            self._at(attempt, work_ms, lambda: self._failed(attempt, FailureClass.CRASHED))
        elif fate < 0.70:
            self._at(attempt, work_ms, lambda: self._made(attempt, work_ms))
        elif fate < 0.82:
            self._at(
                attempt, work_ms, lambda: self._failed(attempt, world.random.choice(_RETRYABLE))
            )
        elif fate < 0.87:
            self._at(attempt, work_ms, lambda: self._failed(attempt, world.random.choice(_FINAL)))
        elif fate < 0.92:  # it hangs, and the runner ends it at its limit
            limit_ms = attempt.dispatch.run_limit_seconds * 1_000
            self._at(attempt, limit_ms, lambda: self._failed(attempt, FailureClass.TIME_LIMIT))
        elif fate < 0.94:  # it hangs, and so does its runner's watch: the backstop ends it
            pass
        elif fate < 0.96:  # it was made, and storing it never ends
            self._at(attempt, work_ms, lambda: self._store(attempt, work_ms))
        elif fate < 0.98:
            self._at(attempt, work_ms, self._fleet_crash)
        else:
            self._at(attempt, work_ms, lambda: self._forget(attempt))

    def _at(self, attempt: Attempt, milliseconds: int, do: Do) -> None:
        self.later(milliseconds, lambda: do() if attempt.live else None)

    def _fleet_crash(self) -> None:
        self._fleet.crash(self)

    def _forget(self, attempt: Attempt) -> None:
        """A bug of a runner: it knows nothing of an attempt any more, and frees nothing."""
        attempt.live = False
        self.attempts.pop((attempt.dispatch.task_id, attempt.dispatch.token), None)

    def _milestone(self, attempt: Attempt, percent: int) -> None:
        dispatch = attempt.dispatch
        report = c.ReportMilestone(
            command_id=attempt_command_id(f"milestone{percent}", dispatch),
            task_id=dispatch.task_id,
            token=dispatch.token,
            percent=percent,
        )
        self._tell(attempt, report)

    def _store(self, attempt: Attempt, work_ms: int, then: Do | None = None) -> None:
        dispatch = attempt.dispatch
        store = c.StoreAttempt(
            command_id=attempt_command_id("store", dispatch),
            task_id=dispatch.task_id,
            token=dispatch.token,
            card_ms=work_ms,
        )

        def stored() -> None:
            if self._world.chance(0.8):  # there is room beside the slots
                self._go_aside(attempt)
            if then is not None:
                then()

        self._tell(attempt, store, stored)

    def _go_aside(self, attempt: Attempt) -> None:
        """The slot is free while the result is stored; the lease goes on."""

        def freed() -> None:
            attempt.freed = True

        if attempt.live:
            attempt.aside = True
            self._tell(attempt, free_slot(attempt.dispatch, self.place), freed)

    def _made(self, attempt: Attempt, work_ms: int) -> None:
        dispatch = attempt.dispatch
        product = Product(files=(), facts={}, card_seconds=work_ms / 1_000)
        if self._world.chance(0.5):
            self._over(attempt, finish(dispatch, product, ()))
            return
        key = result_key(dispatch.task_id, dispatch.token, "film.mp4")
        file = c.ResultFile(
            name="film.mp4", object_key=key, content_type="video/mp4", size=1, sha256="0" * 64
        )
        storing_ms = self._world.between(1, 20_000 if self._world.chance(0.1) else 500)

        def stored() -> None:
            self._at(
                attempt, storing_ms, lambda: self._over(attempt, finish(dispatch, product, (file,)))
            )

        self._store(attempt, work_ms, stored)

    def _failed(self, attempt: Attempt, failure: FailureClass) -> None:
        self._over(attempt, fail(attempt.dispatch, PipelineError(failure, "as planned"), 1_000))

    def _over(self, attempt: Attempt, end: c.Command) -> None:
        """Tell the end; when it stands, free the slot."""
        attempt.live = False
        self._tell(attempt, end, lambda: self._leave(attempt))

    def _leave(self, attempt: Attempt) -> None:
        dispatch = attempt.dispatch
        place = (dispatch.task_id, dispatch.token)
        if attempt.freed:
            self._gone(place)
        else:
            self._tell(attempt, free_slot(dispatch, self.place), lambda: self._gone(place))

    def _gone(self, place: tuple[Any, int]) -> None:
        self.attempts.pop(place, None)

    def _stop(self, attempt: Attempt) -> None:
        """The group is killed, maybe only after a grace; then the slot is free."""
        if attempt.live:
            attempt.live = False
            attempt.outbox.clear()
            grace = self._world.between(5, 1_200)
            self.later(grace, lambda: self._leave(attempt))

    def _give_back(self, attempt: Attempt, cause: LossCause, checkpoint: str = "") -> None:
        dispatch = attempt.dispatch
        attempt.live = False
        ran_ms = self._world.now - attempt.begun
        back = c.AttemptYielded(
            command_id=attempt_command_id("yield", dispatch),
            task_id=dispatch.task_id,
            token=dispatch.token,
            cause=cause,
            checkpoint=checkpoint,
            card_ms=ran_ms,
            saved_ms=ran_ms // 2 if checkpoint else 0,
        )
        self._tell(attempt, back, lambda: self._leave(attempt))

    def _free(self, task_id: Any, token: int) -> None:  # noqa: ANN401 - TaskId
        self._send(
            c.FreeSlot(
                command_id=CommandId(f"free-{task_id}-{token}-{self.place.incarnation_id}"),
                task_id=task_id,
                token=token,
                **self.place._asdict(),
            )
        )

    def drain(self) -> None:
        """SIGTERM: nothing new, give back what does not end in time, go."""
        if self.over or self.draining or self.paused or not self.alive:
            return
        self.draining = True
        drain = c.DrainRunner(
            command_id=CommandId(f"drain-{self.place.incarnation_id}"),
            spot=self.spot,
            **self.place._asdict(),
        )
        self._send(drain, lambda: self.later(self._world.between(0, 3_000), self._give_all_back))

    def _give_all_back(self) -> None:
        for attempt in list(self.attempts.values()):
            if attempt.live:
                attempt.outbox.clear()
                self._give_back(attempt, LossCause.SPOT if self.spot else LossCause.DRAINED)
        self.later(self._world.between(500, 6_000), lambda: self._fleet.replace(self))


class Fleet:
    """All runners, and what happens to them."""

    def __init__(self, world: World, log: Log, chaos: Chaos) -> None:
        self.world = world
        self.log = log
        self.chaos = chaos
        self.calm = False
        self.runners: list[SimRunner] = []
        self.incarnations: dict[str, SimRunner] = {}
        self._numbers = 0
        log.follow(Topic.RUNNER_INBOX, self._told)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def add(self, runner_id: str, pool_id: PoolId, slots: int, *, spot: bool = False) -> None:
        self.runners.append(SimRunner(self, runner_id, pool_id, slots, spot=spot))

    def at_work(self, incarnation: str, task: str, token: int) -> bool:
        runner = self.incarnations.get(incarnation)
        return (
            runner is not None
            and runner.place.incarnation_id == incarnation
            and runner.at_work(task, token)
        )

    def _told(self, record: Record) -> None:
        for runner in self.runners:
            if runner.alive and record.key == runner.name.encode():
                runner.look()

    # --- faults ----------------------------------------------------------------------------------

    def hurt(self) -> None:
        """Something happens to one of them; then, a while later, to another."""
        if self.calm:
            return
        self.world.after(self.world.between(300, 6_000), self.hurt)
        runner = self.world.random.choice(self.runners)
        if not runner.alive:
            return
        dice = self.world.random.random()
        if dice < 0.35 or runner.zombie:
            self.crash(runner)
        elif dice < 0.75:
            if self.world.chance(0.4):
                runner.pause(self.world.between(1_500, 9_000))
                self._twin(runner)
            else:
                runner.pause(self.world.between(200, 25_000))
        else:
            runner.drain()

    def crash(self, runner: SimRunner) -> None:
        """Kill -9; somebody starts it again."""
        runner.die()
        if not runner.zombie:
            self.world.after(self.world.between(200, 12_000), lambda: self.replace(runner))

    def replace(self, runner: SimRunner) -> None:
        """A new process under the old name."""
        if runner not in self.runners:
            return
        runner.die()
        self.runners.remove(runner)
        self.add(runner.name, runner.pool_id, runner.slots, spot=runner.spot)

    def _twin(self, runner: SimRunner) -> None:
        """It was taken for dead: another process has its name, and it comes back as a zombie."""
        runner.zombie = True
        self.add(runner.name, runner.pool_id, runner.slots, spot=runner.spot)

    def settle(self) -> None:
        """Nothing goes wrong any more, and every name has a process that works."""
        self.calm = True
        for runner in list(self.runners):
            if runner.zombie:
                runner.die()
            if not runner.alive:
                self.runners.remove(runner)
        for known in {one.name: one for one in self._known}.values():
            if not any(runner.name == known.name for runner in self.runners):
                self.add(known.name, known.pool_id, known.slots, spot=known.spot)

    @property
    def _known(self) -> list[SimRunner]:
        return list(self.incarnations.values())
