"""The cards: runners that accept, work, fail, yield, die, pause and come back as zombies.

The protocol is the product's (`gpu_runners`), told in virtual time and only as far as the rules see
it: one event at the end of a work, a beat each 15 s, no progress between.
"""

from collections.abc import Callable
from typing import Any, Final

from processors.simulation.flow import Flow
from processors.simulation.world import Do, World
from schema import commands as c
from schema.failures import FailureClass
from schema.ids import CommandId, IncarnationId, PoolId, RunnerId
from schema.replies import (
    BeatAnswered,
    DispatchAttempt,
    InboxMessage,
    RunnerDismissed,
    StopAttempt,
    YieldAttempt,
)
from schema.words import LossCause, Scene

BEAT_MS: Final = 15_000
_SPOT_NOTICE_MS: Final = 120_000
_RESTARTABLE: Final = (Scene.GENAI, Scene.AUTOCUT, Scene.REHEARSAL)
_RETRYABLE: Final = (FailureClass.NETWORK, FailureClass.OUT_OF_MEMORY, FailureClass.CRASHED)
_FINAL: Final = (FailureClass.INPUT, FailureClass.TOO_LONG)
_CAUSES: Final = {cause.value: cause for cause in LossCause}
_LOWER_SPEC_SHARE: Final = 0.5
"""What a work with less size and steps takes of its card time."""
STORING_MS: Final = 1_500
"""How long a result goes to the store, after its slot was told free."""
STEP_MS: Final = 60_000
"""How often a restartable work notes where it is: what a preemption burns is less than this."""


class Mishaps:
    """How the cards fail: shares of attempts, and how often a minute something happens to one."""

    def __init__(self, scale: float = 1.0) -> None:
        self.retryable = 0.002 * scale
        self.final = 0.001 * scale
        self.hangs = 0.0003 * scale
        self.bad_card = 0.05
        """Of the work of a card that is not well."""
        self.hurt_minutes = 30.0 / scale if scale else 0.0
        """Between two things that happen to some runner; 0: nothing does."""

    def calm(self) -> None:
        self.retryable = self.final = self.hangs = self.hurt_minutes = self.bad_card = 0.0


class Attempt:
    """One dispatch at work."""

    __slots__ = ("aside", "dispatch", "held", "live", "restartable", "saved_ms", "started")

    def __init__(self, dispatch: DispatchAttempt, started: int, saved_ms: int) -> None:
        self.dispatch = dispatch
        self.held = c.HeldAttempt(task_id=dispatch.task_id, token=dispatch.token)
        self.started = started
        self.saved_ms = saved_ms
        """Work that earlier attempts kept."""
        self.restartable = dispatch.scene in _RESTARTABLE
        self.live = True
        """False: its process group is gone, or its end is on its way."""
        self.aside = False
        """Its work is done and its slot free: it stores its result."""


class Runner:
    """One process on one card under one name, one incarnation after the other."""

    def __init__(self, fleet: "Fleet", name: str, pool_id: str, slots: int, spot: bool) -> None:  # noqa: FBT001 - what it is
        self.fleet = fleet
        self.name = RunnerId(name)
        self.pool_id = PoolId(pool_id)
        self.slots = slots
        self.spot = spot
        self.tells_unsaved = pool_id.startswith("C")
        """Others may not be preempted, so nobody asks them."""
        self.alive = True
        self.paused = False
        self.draining = False
        self.unwell = False
        self.zombie = False
        """Another process has its name; this one ends with its incarnation."""
        self.number = 0
        self.incarnation = IncarnationId("")
        self.until = -1
        self.beat = 0
        self.beat_waits = False
        """It would have beaten, and is stopped."""
        self.sent: dict[int, tuple[int, tuple[c.HeldAttempt, ...]]] = {}
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self.held: list[tuple[Do, Any]] = []
        self.begin()

    # --- an incarnation --------------------------------------------------------------------------

    def begin(self, _: Any = None) -> None:  # noqa: ANN401
        """Register; the first answer is the first lease."""
        if not self.alive:
            return
        fleet = self.fleet
        self.number = fleet.next_number()
        self.incarnation = IncarnationId(f"{self.name}.{self.number}")
        fleet.by_incarnation[self.incarnation] = self
        self.until = -1
        self.beat = 0
        self.beat_waits = False
        self.sent = {0: (fleet.world.now, ())}
        self.attempts = {}
        self.draining = False
        register = c.RegisterRunner(
            command_id=CommandId(f"register-{self.incarnation}"),
            pool_id=self.pool_id,
            runner_id=self.name,
            incarnation_id=self.incarnation,
            slots=self.slots,
            spot=self.spot,
        )
        fleet.flow.put(register)

    def end(self) -> None:
        """Its lease is gone or it was dismissed: all groups are killed, and it begins anew."""
        if self.zombie:
            self.die()
        elif self.alive and self.number:
            self.attempts = {}
            self.fleet.by_incarnation.pop(self.incarnation, None)
            self.number = 0
            self.fleet.world.after(self.fleet.world.between(100, 3_000), self.begin)

    def die(self) -> None:
        """Kill -9: it tells nothing any more."""
        self.alive = False
        self.attempts = {}
        self.fleet.by_incarnation.pop(self.incarnation, None)

    def waits(self, do: Do, what: Any) -> bool:  # noqa: ANN401
        """Whether it is stopped: then this waits until it goes on."""
        if self.paused:
            self.held.append((do, what))
        return self.paused

    def go_on(self, _: Any) -> None:  # noqa: ANN401
        """SIGCONT: all that has waited comes in some order, before it looks at the time."""
        self.paused = False
        held, self.held = self.held, []
        while held:
            do, what = held.pop(self.fleet.world.between(0, len(held) - 1))
            do(what)

    def works(self, task_id: str, token: int) -> bool:
        """Whether its process group works on this attempt, under its lease."""
        attempt = self.attempts.get((task_id, token))
        return (
            self.alive
            and not self.paused
            and attempt is not None
            and attempt.live
            and self.fleet.world.now < self.until
        )

    def beat_now(self, number: int) -> None:
        """Tell what it holds, unless its lease has ended."""
        if number != self.number or not self.alive:
            return
        if self.paused:
            if not self.beat_waits:
                self.beat_waits = self.waits(self.beat_now, number)
            return
        self.beat_waits = False
        world = self.fleet.world
        now = world.now
        if self.until >= 0 and now >= self.until:
            self.end()
            return
        if self.until < 0 and 0 in self.sent and now - self.sent[0][0] > 2 * BEAT_MS:
            self.end()  # nobody has answered: perhaps nobody was there
            return
        attempts = self.attempts.values()
        held = tuple([one.held for one in attempts])
        unsaved: tuple[int, ...] = ()
        if self.tells_unsaved:
            unsaved = tuple([unsaved_ms(one, now) for one in attempts])
        self.beat += 1
        self.sent[self.beat] = (now, held)
        if len(self.sent) > 32:  # noqa: PLR2004 - unanswered ones, in an outage
            self.sent.pop(next(iter(self.sent)))
        beat = c.BeatRunner(
            command_id=CommandId(f"beat-{self.incarnation}-{self.beat}"),
            pool_id=self.pool_id,
            runner_id=self.name,
            incarnation_id=self.incarnation,
            beat=self.beat,
            held=held,
            unsaved_ms=unsaved,
        )
        self.fleet.flow.put(beat)

    # --- being told ------------------------------------------------------------------------------

    def receive(self, message: InboxMessage) -> None:
        """A message of its inbox for this very incarnation."""
        if message.incarnation_id != self.incarnation or not self.number:
            return
        if self.waits(self.receive, message):
            return
        kind = type(message)
        if kind is BeatAnswered:
            self._answered(message)  # type: ignore[arg-type]
        elif kind is DispatchAttempt:
            self._dispatch(message)  # type: ignore[arg-type]
        elif kind is StopAttempt:
            self._stop(message)  # type: ignore[arg-type]
        elif kind is YieldAttempt:
            self._asked_to_yield(message)  # type: ignore[arg-type]
        elif kind is RunnerDismissed:
            self.end()

    def _answered(self, message: BeatAnswered) -> None:
        known = self.sent.pop(message.beat, None)
        if known is None:
            return
        sent_at, told = known
        self.until = max(self.until, sent_at + message.lease_seconds * 1_000)
        if not told or told == message.held:
            return
        stay = {(held.task_id, held.token) for held in message.held}
        for held in told:
            place = (held.task_id, held.token)
            if place not in stay and place in self.attempts:
                self._kill(place)

    # --- attempts --------------------------------------------------------------------------------

    def _dispatch(self, dispatch: DispatchAttempt) -> None:
        place = (dispatch.task_id, dispatch.token)
        if place in self.attempts:
            return
        fleet, world = self.fleet, self.fleet.world
        saved_ms = int(dispatch.checkpoint or 0)
        attempt = Attempt(dispatch, world.now, saved_ms)
        if self.draining or sum(not one.aside for one in self.attempts.values()) >= self.slots:
            cause = LossCause.DRAINED if self.draining else LossCause.NOT_ACCEPTED
            fleet.flow.tell((self._yielded(attempt, cause, 0, 0), self._free(*place)))
            return
        self.attempts[place] = attempt
        accept = c.AcceptAttempt(
            command_id=CommandId(f"accept-{dispatch.task_id}-{dispatch.token}"),
            pool_id=self.pool_id,
            runner_id=self.name,
            incarnation_id=self.incarnation,
            task_id=dispatch.task_id,
            token=dispatch.token,
        )
        fleet.flow.tell((accept,))
        work_ms = fleet.work_ms(dispatch.task_id)
        if dispatch.lower_spec:
            work_ms = int(work_ms * _LOWER_SPEC_SHARE)
        left_ms = max(work_ms - saved_ms, 500)
        dice, mishaps = world.dice(), fleet.mishaps
        unwell = mishaps.bad_card if self.unwell else 0.0
        if dice < mishaps.final:
            world.after(left_ms // 3, self._fails, (attempt, _FINAL[int(dice * 1e6) % 2]))
        elif dice < mishaps.final + mishaps.retryable + unwell:
            failure = _RETRYABLE[int(dice * 1e6) % 3]
            world.after(int(left_ms * world.dice()), self._fails, (attempt, failure))
        elif dice < mishaps.final + mishaps.retryable + unwell + mishaps.hangs:
            limit_ms = dispatch.run_limit_seconds * 1_000
            world.after(limit_ms, self._fails, (attempt, FailureClass.TIME_LIMIT))
        else:
            world.after(left_ms, self._done, attempt)

    def _over(self, attempt: Attempt, do: Do, what: Any) -> bool:  # noqa: ANN401
        """Whether nothing more is to be told of it; if not, its end is told now."""
        if self._silent(attempt, do, what):
            return True
        attempt.live = False
        del self.attempts[attempt.dispatch.task_id, attempt.dispatch.token]
        return False

    def _silent(self, attempt: Attempt, do: Do, what: Any) -> bool:  # noqa: ANN401
        """Whether nothing is to be told of it (now); a lease that has ended ends all."""
        place = (attempt.dispatch.task_id, attempt.dispatch.token)
        if not self.alive or not attempt.live or self.attempts.get(place) is not attempt:
            return True
        if self.waits(do, what):
            return True
        if self.fleet.world.now >= self.until >= 0 and not self.fleet.rushes():
            self.end()
            return True
        return False

    def _done(self, attempt: Attempt) -> None:
        """The work is done: its slot is free while what it made is stored."""
        if self._silent(attempt, self._done, attempt):
            return
        attempt.aside = True
        card_ms = self.fleet.world.now - attempt.started
        dispatch = attempt.dispatch
        self.fleet.flow.tell((self._free(dispatch.task_id, dispatch.token),))
        self.fleet.world.after(STORING_MS, self._stored, (attempt, card_ms))

    def _stored(self, what: tuple[Attempt, int]) -> None:
        attempt, card_ms = what
        if self._over(attempt, self._stored, what):
            return
        dispatch = attempt.dispatch
        finish = c.FinishAttempt(
            command_id=CommandId(f"finish-{dispatch.task_id}-{dispatch.token}"),
            task_id=dispatch.task_id,
            token=dispatch.token,
            card_ms=card_ms,
        )
        self.fleet.flow.tell((finish,))

    def _fails(self, what: tuple[Attempt, FailureClass]) -> None:
        attempt, failure = what
        if self._over(attempt, self._fails, what):
            return
        dispatch = attempt.dispatch
        fail = c.FailAttempt(
            command_id=CommandId(f"fail-{dispatch.task_id}-{dispatch.token}"),
            task_id=dispatch.task_id,
            token=dispatch.token,
            failure=failure,
            card_ms=self.fleet.world.now - attempt.started,
        )
        self.fleet.flow.tell((fail, self._free(dispatch.task_id, dispatch.token)))

    def _asked_to_yield(self, message: YieldAttempt) -> None:
        """It takes some seconds to note where the work is; now and then it takes too long."""
        attempt = self.attempts.get((message.task_id, message.token))
        if attempt is None or not attempt.live or attempt.aside:
            return
        cause = _CAUSES.get(message.reason, LossCause.PREEMPTED)
        self._yield_soon(attempt, cause, message.seconds)

    def _yield_soon(self, attempt: Attempt, cause: LossCause, seconds: int) -> None:
        world = self.fleet.world
        slow = world.dice() < 0.01  # noqa: PLR2004 - one in a hundred
        pause = seconds * 2_000 if slow else world.between(1_000, min(8_000, seconds * 900))
        world.after(pause, self._yields, (attempt, cause))

    def _yields(self, what: tuple[Attempt, LossCause]) -> None:
        attempt, cause = what
        started = attempt.started
        if attempt.aside or self._over(attempt, self._yields, what):
            return
        ran_ms = self.fleet.world.now - started
        kept_ms = ran_ms - unsaved_ms(attempt, self.fleet.world.now)
        dispatch = attempt.dispatch
        self.fleet.flow.tell(
            (
                self._yielded(attempt, cause, ran_ms, kept_ms),
                self._free(dispatch.task_id, dispatch.token),
            )
        )

    def _yielded(
        self, attempt: Attempt, cause: LossCause, card_ms: int, kept_ms: int
    ) -> c.AttemptYielded:
        """What was saved goes down to the last whole step: the rest is burnt."""
        dispatch, saved_ms = attempt.dispatch, attempt.saved_ms + kept_ms
        return c.AttemptYielded(
            command_id=CommandId(f"yield-{dispatch.task_id}-{dispatch.token}"),
            task_id=dispatch.task_id,
            token=dispatch.token,
            cause=cause,
            checkpoint=str(saved_ms) if saved_ms else "",
            card_ms=card_ms,
            saved_ms=kept_ms,
        )

    def _stop(self, message: StopAttempt) -> None:
        place = (message.task_id, message.token)
        if place in self.attempts:
            self._kill(place)
        else:
            self.fleet.flow.tell((self._free(*place),))

    def _kill(self, place: tuple[Any, int]) -> None:
        """The group is killed after a grace; then the slot is free."""
        attempt = self.attempts[place]
        if attempt.live:
            attempt.live = False
            grace = self.fleet.world.between(5, 1_200)
            self.fleet.world.after(grace, self._killed, (self.number, place))

    def _killed(self, what: tuple[int, tuple[Any, int]]) -> None:
        number, place = what
        if number != self.number or not self.alive or self.waits(self._killed, what):
            return
        attempt = self.attempts.pop(place, None)
        if attempt is not None and not attempt.aside:
            self.fleet.flow.tell((self._free(*place),))

    def _free(self, task_id: Any, token: int) -> c.FreeSlot:  # noqa: ANN401 - TaskId
        return c.FreeSlot(
            command_id=CommandId(f"free-{task_id}-{token}-{self.number}"),
            pool_id=self.pool_id,
            runner_id=self.name,
            incarnation_id=self.incarnation,
            task_id=task_id,
            token=token,
        )

    # --- ending ----------------------------------------------------------------------------------

    def drain(self, *, spot: bool = False) -> None:
        """SIGTERM, or its card is being taken away: nothing new, what is held is given back."""
        if self.draining or self.paused or not self.alive or not self.number:
            return
        self.draining = True
        drain = c.DrainRunner(
            command_id=CommandId(f"drain-{self.incarnation}"),
            pool_id=self.pool_id,
            runner_id=self.name,
            incarnation_id=self.incarnation,
            spot=spot,
        )
        self.fleet.flow.tell((drain,))
        if spot:
            self.fleet.world.after(_SPOT_NOTICE_MS, self._taken_away)
        for attempt in list(self.attempts.values()):
            if not attempt.aside:
                self._yield_soon(attempt, LossCause.SPOT if spot else LossCause.DRAINED, 30)
        if not spot:
            self.fleet.world.after(35_000, self.fleet.replace, self)

    def _taken_away(self, _: Any) -> None:  # noqa: ANN401
        self.die()
        world = self.fleet.world
        world.after(world.between(5 * 60_000, 25 * 60_000), self.fleet.replace, self)


def unsaved_ms(attempt: Attempt, now: int) -> int:
    """Work since it last noted where it is."""
    ran_ms = now - attempt.started
    return ran_ms % STEP_MS if attempt.restartable else ran_ms


class Fleet:
    """All runners, and what happens to them."""

    def __init__(
        self, world: World, flow: Flow, mishaps: Mishaps, work_ms: Callable[[str], int]
    ) -> None:
        self.world = world
        self.flow = flow
        self.mishaps = mishaps
        self.work_ms = work_ms
        """How long a task holds its slot, if nothing goes wrong."""
        self.runners: dict[str, Runner] = {}
        self.by_incarnation: dict[str, Runner] = {}
        self.counts = {"killed": 0, "paused": 0, "drained": 0, "spot": 0, "incarnations": 0}
        flow.inbox = self._told
        world.after(BEAT_MS, self._beats)

    def _beats(self, _: object) -> None:
        """All beat together: a batch of the log then holds many, as it does when it is busy."""
        self.world.after(BEAT_MS, self._beats)
        for runner in list(self.by_incarnation.values()):
            runner.beat_now(runner.number)

    def next_number(self) -> int:
        self.counts["incarnations"] += 1
        return self.counts["incarnations"]

    def rushes(self) -> bool:
        """Whether a process that was stopped tells its end before it looks at the time."""
        return self.world.dice() < 0.5  # noqa: PLR2004 - a coin

    def add(self, pool_id: str, number: int, slots: int, *, spot: bool) -> None:
        name = f"{pool_id}-{number:03d}"
        self.runners[name] = Runner(self, name, pool_id, slots, spot)

    def works(self, incarnation: str, task_id: str, token: int) -> bool:
        """Whether an incarnation works on an attempt at this instant, under its lease."""
        runner = self.by_incarnation.get(incarnation)
        return runner is not None and runner.works(task_id, token)

    def _told(self, message: InboxMessage) -> None:
        runner = self.by_incarnation.get(message.incarnation_id)
        if runner is None:
            return
        if type(message) is BeatAnswered:
            runner.receive(message)
        else:
            self.world.after(self.world.between(5, 60), runner.receive, message)

    # --- faults ----------------------------------------------------------------------------------

    def start_mishaps(self) -> None:
        if self.mishaps.hurt_minutes:
            self._next_mishap()

    def _next_mishap(self) -> None:
        span = int(self.mishaps.hurt_minutes * 60_000)
        self.world.after(self.world.between(span // 4, span * 7 // 4), self._hurt)

    def _hurt(self, _: Any) -> None:  # noqa: ANN401
        """Something happens to one of them; then, a while later, to another."""
        if not self.mishaps.hurt_minutes:
            return
        self._next_mishap()
        names = list(self.runners)
        runner = self.runners[names[self.world.between(0, len(names) - 1)]]
        if not runner.alive or runner.paused:
            return
        dice = self.world.dice()
        if dice < 0.4:  # noqa: PLR2004 - of what happens
            self.counts["killed"] += 1
            runner.die()
            self.world.after(self.world.between(5_000, 60_000), self.replace, runner)
        elif dice < 0.8:  # noqa: PLR2004
            self.pause(runner)
        else:
            self.counts["drained"] += 1
            runner.drain()

    def pause(self, runner: Runner) -> None:
        """SIGSTOP. Half of them are taken for dead: another process has the name when it wakes."""
        self.counts["paused"] += 1
        runner.paused = True
        span = self.world.between(2_000, 260_000)
        self.world.after(span, runner.go_on)
        if self.world.dice() < 0.5:  # noqa: PLR2004
            self.world.after(span // 2, self._twin, runner)

    def _twin(self, runner: Runner) -> None:
        if self.runners.get(runner.name) is runner and runner.paused:
            runner.zombie = True
            self.runners[runner.name] = Runner(
                self, runner.name, runner.pool_id, runner.slots, runner.spot
            )

    def replace(self, runner: Runner) -> None:
        """A new process under the old name."""
        if self.runners.get(runner.name) is not runner:
            return
        runner.die()
        twin = Runner(self, runner.name, runner.pool_id, runner.slots, runner.spot)
        twin.unwell = runner.unwell
        self.runners[runner.name] = twin

    def spot_wave(self, share: float) -> None:
        """So many of the spot cards get their notice at once."""
        for runner in list(self.runners.values()):
            if runner.spot and self.world.dice() < share:
                self.counts["spot"] += 1
                runner.drain(spot=True)

    def settle(self) -> None:
        """Nothing goes wrong any more, and every name has a process that works."""
        self.mishaps.calm()
        for runner in list(self.runners.values()):
            if not runner.alive or runner.paused or runner.draining:
                self.replace(runner)


__all__ = ["Fleet", "Mishaps", "Runner"]
