"""Room for p0 in a full pool: who gives his slot up, for whom, and who gets it then.

Class alone decides, never how long somebody waited: a p0 task preempts an attempt of p1 or p2, so
no victim can ever turn it round. One victim for one waiting task. The victim is asked to yield; if
it does not answer it is lost, and either way its slot waits for its runner to free it. It is then
proposed to the task that it was emptied for, if that still waits and the hold is not over.

What stands here in memory is a function of the rows (and, as far as it is sorted by age, of the
time): a rebuilt contest finds the same victims.
"""

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import msgspec

from commands.decider import ImpossibleEventError, Now
from commands.pools import gates
from commands.pools.flows import Kind
from commands.pools.ranked import Ranked
from commands.pools.rows import (
    LANE_NUMBER,
    LeaseRow,
    PoolRow,
    QueuedRow,
    RunnerRow,
    Stage,
    attempt_in,
    lease_key,
    name_in,
    queued_key,
    runner_key,
)
from schema import events as e
from schema.commands import NOTICE_SECONDS_MAX, BeatRunner, DrainRunner, HeldAttempt
from schema.ids import AccountId, PoolId, RunnerId, TaskId
from schema.policy import PoolPolicy
from schema.words import Lane, LossCause, Scene

if TYPE_CHECKING:
    from commands.pools.draft import Draft
    from commands.pools.state import PoolState

PREEMPTED_MAX: Final = 100
"""Victims of one command or tick; whoever is left over seeks again with the next."""
_BLOCKED_MAX: Final = 32
"""Waiting tasks of one kind that are passed over in one look: their account has its slots."""
_NEWS_MS: Final = 2_000
"""A beat's word on unsaved work is noted when it is further than this from what is known."""
NOTICE_PERCENT: Final = 90
"""Of a notice, how long a pool waits for what runs there: its runner ends sooner by itself, and
nobody waits for a card that is gone."""
Price = tuple[bool, int, int, int]
"""No spot card, class, unsaved work and start: the lowest gives way first."""


class Contest:
    """Who could give a slot up in one pool, and which p0 tasks have none promised."""

    __slots__ = (
        "_aside",
        "_holds",
        "_pool_id",
        "_promised",
        "_ripe",
        "_seekers",
        "_state",
        "_young",
        "emptying",
    )

    def __init__(self, state: "PoolState", pool_id: PoolId) -> None:
        self._state = state
        self._pool_id = pool_id
        self._young: Ranked[int, str] = Ranked(self._started)
        """Victims by their start: which of them have run long enough is a matter of time."""
        self._ripe: Ranked[Price, str] = Ranked(self._price)
        self._aside: dict[str, set[str]] = {}
        """By runner, victims that are passed over until it is heard of again."""
        self._seekers: dict[Kind, Ranked[int, str]] = {}
        self._promised: dict[str, set[str]] = {}
        """By the key of a waiting task, leases whose slot is to be its own."""
        self._holds: list[tuple[int, str]] = []
        self.emptying = 0
        """Slots that are promised to somebody, whether he waits still or not."""

    # --- what is known of a key ------------------------------------------------------------------

    def _victim(self, key: str) -> tuple[LeaseRow, RunnerRow] | None:
        """The attempt that is asked for, if it could ever be preempted."""
        lease = self._state.lease(key)
        if (
            lease is None
            or lease.stage is not Stage.ACCEPTED
            or lease.yield_until_ms
            or lease.lane is None
            or lease.lane is Lane.P0
        ):
            return None
        runner = self._state.runner(runner_key(self._pool_id, lease.runner_id))
        return None if runner is None or runner.draining else (lease, runner)

    def _started(self, key: str) -> int | None:
        found = self._victim(key)
        return None if found is None else found[0].accepted_ms

    def _price(self, key: str) -> Price | None:
        """Spot first, then the lowest class, then least unsaved work, then the latest start."""
        found = self._victim(key)
        if found is None:
            return None
        lease, runner = found
        lane = LANE_NUMBER[lease.lane or Lane.P0]
        return (not runner.spot, -lane, -lease.unsaved_since_ms, -lease.accepted_ms)

    def _arrival(self, key: str) -> int | None:
        row = self._state.queued(key)
        return None if row is None or row.lane is not Lane.P0 else row.arrival

    # --- rows changed ----------------------------------------------------------------------------

    def queued_changed(self, key: str, row: QueuedRow | None) -> None:
        """A task waits, or waits no longer."""
        if row is None or row.lane is not Lane.P0:
            return
        kind = self._state.yard(self._pool_id).waiting.kind_of(row)
        seekers = self._seekers.get(kind)
        if seekers is None:
            seekers = self._seekers[kind] = Ranked(self._arrival)
        seekers.push(row.arrival, key, self._waiting())

    def lease_changed(self, key: str, old: LeaseRow | None, row: LeaseRow | None) -> None:
        """An attempt went a step on."""
        before = None if old is None else promised_to(old)
        after = None if row is None else promised_to(row)
        if before is not None and before != after:
            self._break_promise(key, before)
        if row is not None and after is not None and before != after:
            waiting = queued_key(self._pool_id, after)
            self._promised.setdefault(waiting, set()).add(key)
            self.emptying += 1
            heappush(self._holds, (row.hold_until_ms, key))
        if row is not None:
            self._consider(key)

    def _break_promise(self, key: str, task_id: TaskId) -> None:
        """That slot is free or gone, or its hold is over: who waits for it seeks again."""
        waiting = queued_key(self._pool_id, task_id)
        leases = self._promised.get(waiting)
        if leases is None or key not in leases:
            return
        leases.discard(key)
        self.emptying -= 1
        if not leases:
            del self._promised[waiting]
            self.queued_changed(waiting, self._state.queued(waiting))

    def seek_anew(self, waiting: Iterable[str]) -> None:
        """Other models are capped: who seeks stands with others now."""
        self._seekers = {}
        for key in waiting:
            self.queued_changed(key, self._state.queued(key))

    def _consider(self, key: str) -> None:
        started_ms = self._started(key)
        if started_ms is not None:
            self._young.push(started_ms, key, self._accepted())

    def runner_changed(self, key: str, *, new: bool) -> None:
        """A runner was heard of, is gone, or (`new`) is another one to whoever chooses a victim."""
        if new:
            for lease in self._state.yard(self._pool_id).leases_of(key):
                self._consider(lease)
        elif self._aside:
            for lease in sorted(self._aside.pop(key, ())):
                self._consider(lease)

    def look_again(self, leases: Iterable[str]) -> None:
        """Another policy: who was too young or preempted too often may not be so any more."""
        self._young = Ranked(self._started)
        self._ripe = Ranked(self._price)
        self._aside.clear()
        for key in leases:
            self._consider(key)

    def _accepted(self) -> int:
        return self._state.yard(self._pool_id).stages[Stage.ACCEPTED]

    def _waiting(self) -> int:
        return self._state.yard(self._pool_id).waiting.counts[LANE_NUMBER[Lane.P0]]

    # --- looking ---------------------------------------------------------------------------------

    def victim(self, policy: PoolPolicy, served_ms: int) -> str | None:
        """The key of the attempt that is preempted next, or None."""
        young, ripe = self._young, self._ripe
        oldest_ms = served_ms - policy.min_run_seconds * 1000
        while (first := young.first()) is not None and first[0] <= oldest_ms:
            young.skip()
            price = self._price(first[1])
            if price is not None:
                ripe.push(price, first[1], self._accepted())
        while (best := ripe.first()) is not None:
            key = best[1]
            found = self._victim(key)
            if found is not None and found[0].preemptions < policy.preemptions_max:
                if served_ms < found[1].fresh_until_ms:
                    return key
                runner = runner_key(self._pool_id, found[0].runner_id)
                self._aside.setdefault(runner, set()).add(key)
            ripe.skip()
        return None

    def seeker(
        self, is_open: Callable[[Scene, str], bool], is_over: Callable[[AccountId], bool]
    ) -> str | None:
        """The p0 task that came first of those that could start and have no slot promised."""
        best: tuple[int, str] | None = None
        for kind, seekers in self._seekers.items():
            first = self._first_of(seekers, is_over) if is_open(*kind) else None
            if first is not None and (best is None or first < best):
                best = first
        return None if best is None else best[1]

    def _first_of(
        self, seekers: Ranked[int, str], is_over: Callable[[AccountId], bool]
    ) -> tuple[int, str] | None:
        blocked: list[tuple[int, str]] = []
        found: tuple[int, str] | None = None
        while len(blocked) < _BLOCKED_MAX and (first := seekers.first()) is not None:
            row = self._state.queued(first[1])
            if first[1] not in self._promised and row is not None:
                if not is_over(row.account_id):
                    found = first
                    break
                blocked.append(first)
            seekers.skip()
        for arrival, key in blocked:
            seekers.push(arrival, key, self._waiting())
        return found

    def is_promised(self, key: str) -> bool:
        """Whether a slot is being emptied for this waiting task."""
        return key in self._promised

    def end_holds(self, served_ms: int) -> None:
        """Promises whose time is over bind nobody any more."""
        while self._holds and self._holds[0][0] <= served_ms:
            _, key = heappop(self._holds)
            lease = self._state.lease(key)
            if lease is not None and lease.for_task and lease.hold_until_ms <= served_ms:
                self._break_promise(key, lease.for_task)


def promised_to(lease: LeaseRow) -> TaskId | None:
    """For whom this slot is being emptied; None: it is not, or is free already."""
    return None if lease.stage is Stage.STORING else lease.for_task


# --- rules ----------------------------------------------------------------------------------------


def seek(draft: "Draft", pool_id: PoolId) -> None:
    """Preempt for the p0 tasks that found no slot. Called when all free slots are given away."""
    state, served_ms = draft.state, draft.now.served_ms
    policy, yard = state.pool_policy(pool_id), state.yard(pool_id)
    number = LANE_NUMBER[Lane.P0]
    waiting = yard.waiting.counts[number]
    if not policy.preemptible or not waiting or state.pool(pool_id).since_ms[number] is not None:
        return
    if yard.free.first(served_ms) is not None:  # it is something else that keeps them
        return

    contest, is_open = yard.contest, partial(gates.is_open, state, pool_id)
    contest.end_holds(served_ms)
    # A slot that is being emptied for a task that got another one is the next one's.
    for _ in range(min(PREEMPTED_MAX, waiting - contest.emptying)):
        victim = contest.victim(policy, served_ms)
        task = None if victim is None else contest.seeker(is_open, yard.over.__contains__)
        if victim is None or task is None:
            return
        _preempt(draft, pool_id, victim, TaskId(name_in(task)))
        draft.apply()


def _preempt(draft: "Draft", pool_id: PoolId, key: str, for_task_id: TaskId) -> None:
    lease = draft.state.lease(key)
    if lease is None:
        return
    attempt = attempt_in(key)
    draft.say(
        e.SlotPreempted,
        pool_id,
        task_id=attempt.task_id,
        token=attempt.token,
        runner_id=lease.runner_id,
        for_task_id=for_task_id,
    )
    seconds = draft.state.pool_policy(pool_id).yield_seconds
    _ask_to_yield(draft, attempt, lease, LossCause.PREEMPTED, seconds)


def _ask_to_yield(
    draft: "Draft", attempt: HeldAttempt, lease: LeaseRow, cause: LossCause, seconds: int
) -> None:
    """Tell the runner to checkpoint an attempt and give it up within so long."""
    draft.yield_attempt(lease.runner_id, lease.incarnation_id, attempt, cause, seconds)


def on_notice(draft: "Draft", command: DrainRunner) -> None:
    """The card is being taken away: everything that runs on it is asked to checkpoint."""
    state, pool_id = draft.state, command.pool_id
    until_ms = notice_until_ms(command.notice_seconds, draft.now)
    seconds = _seconds_left(state, pool_id, until_ms, draft.now)
    for key in state.yard(pool_id).leases_of(runner_key(pool_id, command.runner_id)):
        lease = state.lease(key)
        if lease is not None and lease.stage is Stage.ACCEPTED and not lease.yield_until_ms:
            _ask_to_yield(draft, attempt_in(key), lease, LossCause.SPOT, seconds)


def on_late_start(
    draft: "Draft", pool_id: PoolId, attempt: HeldAttempt, lease: LeaseRow, runner: RunnerRow
) -> None:
    """It was accepted on a card that is being taken away already: it has what is left."""
    seconds = _seconds_left(draft.state, pool_id, runner.taken_until_ms, draft.now)
    _ask_to_yield(draft, attempt, lease, LossCause.SPOT, seconds)


def notice_until_ms(notice_seconds: int, now: Now) -> int:
    """Until when a pool waits for what runs on a card that is gone in so long; 0: not told."""
    if notice_seconds <= 0:
        return 0
    return now.served_ms + min(notice_seconds, NOTICE_SECONDS_MAX) * 10 * NOTICE_PERCENT


def _until_ms(state: "PoolState", pool_id: PoolId, taken_until_ms: int, now: Now) -> int:
    """Until when what is asked to yield now may take: what a notice left, else the policy's."""
    return taken_until_ms or now.served_ms + state.pool_policy(pool_id).yield_seconds * 1000


def _seconds_left(state: "PoolState", pool_id: PoolId, taken_until_ms: int, now: Now) -> int:
    left_ms = _until_ms(state, pool_id, taken_until_ms, now) - now.served_ms
    return max(left_ms // 1000, 0)


def overdue(draft: "Draft", pool_id: PoolId, key: str, lease: LeaseRow) -> None:
    """It was asked to yield and did not: it is lost, and its slot waits for its runner."""
    attempt = attempt_in(key)
    runner = draft.state.runner_of(pool_id, lease.runner_id)
    cause = LossCause.SPOT if runner is not None and runner.taken else LossCause.PREEMPTED
    draft.lose(pool_id, attempt, lease.runner_id, cause)
    draft.stop(lease.runner_id, lease.incarnation_id, attempt, cause.value)


def hand_over(draft: "Draft", pool_id: PoolId, lease: LeaseRow) -> None:
    """A slot has just been said to be free: whom it was emptied for gets it before anybody else."""
    state, served_ms, task_id = draft.state, draft.now.served_ms, promised_to(lease)
    if task_id is None or served_ms >= lease.hold_until_ms:
        return
    queued = state.queued_task(pool_id, task_id)
    key = runner_key(pool_id, lease.runner_id)
    runner = state.runner(key)
    if (
        queued is None
        or queued.lane is not Lane.P0
        or state.pool(pool_id).since_ms[LANE_NUMBER[Lane.P0]] is not None
        or not gates.is_open(state, pool_id, queued.scene, queued.model)
        or runner is None
        or runner.draining
        or served_ms >= runner.fresh_until_ms
        or state.yard(pool_id).used_of(key) > runner.slots
    ):
        return
    attempt = HeldAttempt(task_id=task_id, token=queued.token + 1)
    draft.propose(pool_id, attempt, lease.runner_id, runner.incarnation_id)


# --- rows -----------------------------------------------------------------------------------------


def preempted(state: "PoolState", pool: PoolRow, event: e.SlotPreempted, now: Now) -> PoolRow:
    """Mark the attempt: until when it may yield, and for whom its slot is held how long."""
    key = lease_key(event.pool_id, event.task_id, event.token)
    lease = state.lease(key)
    queued = state.queued_task(event.pool_id, event.for_task_id)
    if (
        lease is None
        or lease.stage is not Stage.ACCEPTED
        or lease.yield_until_ms
        or queued is None
        or LANE_NUMBER[queued.lane] >= LANE_NUMBER[lease.lane or Lane.P0]
    ):
        raise ImpossibleEventError(lease, event)
    yield_ms = state.pool_policy(event.pool_id).yield_seconds * 1000
    marked = msgspec.structs.replace(
        lease,
        yield_until_ms=now.served_ms + yield_ms,
        for_task=event.for_task_id,
        hold_until_ms=now.served_ms + 2 * yield_ms,
    )
    state.put(key, marked)
    return pool


def taken(state: "PoolState", pool_id: PoolId, runner_id: RunnerId, now: Now) -> None:
    """A notice came: mark what runs there as asked to yield, by the end of the notice at latest."""
    runner = state.runner_of(pool_id, runner_id)
    told_ms = 0 if runner is None else runner.taken_until_ms
    until_ms = _until_ms(state, pool_id, told_ms, now)
    for key in state.yard(pool_id).leases_of(runner_key(pool_id, runner_id)):
        lease = state.lease(key)
        if lease is None or lease.stage is not Stage.ACCEPTED:
            continue
        if not lease.yield_until_ms or 0 < told_ms < lease.yield_until_ms:
            state.put(key, msgspec.structs.replace(lease, yield_until_ms=until_ms))


def accepted(state: "PoolState", pool_id: PoolId, lease: LeaseRow, now: Now) -> LeaseRow:
    """The row of an attempt that its runner works on from now on.

    If the card is being taken away already, it is asked to yield at once.
    """
    runner = state.runner_of(pool_id, lease.runner_id)
    until_ms = 0
    if runner is not None and runner.taken:
        until_ms = _until_ms(state, pool_id, runner.taken_until_ms, now)
    return msgspec.structs.replace(
        lease,
        stage=Stage.ACCEPTED,
        accept_until_ms=0,
        accepted_ms=now.served_ms,
        unsaved_since_ms=now.served_ms,
        yield_until_ms=until_ms,
    )


def unsaved_of(state: "PoolState", command: BeatRunner, served_ms: int) -> tuple[e.Unsaved, ...]:
    """What a beat tells of unsaved work, as far as it is news to the pool."""
    policy = state.pool_policy(command.pool_id)
    if not policy.preemptible:
        return ()
    news: list[e.Unsaved] = []
    for attempt, unsaved_ms in zip(command.held, command.unsaved_ms, strict=False):
        lease = state.lease_of(command.pool_id, attempt.task_id, attempt.token)
        if (
            lease is not None
            and lease.stage is Stage.ACCEPTED
            and lease.runner_id == command.runner_id
            and abs(served_ms - unsaved_ms - lease.unsaved_since_ms) > _NEWS_MS
        ):
            news.append(e.Unsaved(task_id=attempt.task_id, token=attempt.token, ms=unsaved_ms))
    return tuple(news)


def saved(state: "PoolState", pool_id: PoolId, extended: e.LeaseExtended, now: Now) -> None:
    """A beat told what a preemption would burn."""
    for one in extended.unsaved:
        key = lease_key(pool_id, one.task_id, one.token)
        lease = state.lease(key)
        if lease is None or lease.runner_id != extended.runner_id:
            raise ImpossibleEventError(lease, extended)
        state.put(key, msgspec.structs.replace(lease, unsaved_since_ms=now.served_ms - one.ms))
