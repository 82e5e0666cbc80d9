"""What must always hold, kept event by event: a violation is said where it happens.

It asks the deciders for nothing but the depths that they report; all else it counts for itself:
used + free = slots, reserved + spent <= limit, one end a task, one granted result, one lease, no
wait without need, no end by an outage or a jumped clock, a ledger that adds up. And card time: all
that is told of it is granted, burnt or kept, and of nobody more than his slot was held.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from commands.pools import PoolState
from commands.pools.shares import FREE_TASKS
from processors.simulation.world import World
from schema import events as e
from schema.estimates import SMALL_MAX
from schema.policy import Policy
from schema.replies import Accepted, CommandRefused, DeadLetter
from schema.words import Lane, LossCause

VIOLATIONS_MAX: Final = 20
LANES: Final = (Lane.P0, Lane.P1, Lane.P2)
LANE_AT: Final = {lane: number for number, lane in enumerate(LANES)}
QUEUED, RUNNING, ENDED, CREATED = "queued", "running", "ended", "created"
UNFAIR_MAX: Final = 4
PROBE_MAX_MS: Final = 3_600_000
IDLE_MAX_MS: Final = 30_000
"""A free slot of a runner that beats, and somebody who waits, do not stay apart so long."""
GIVEN_UP: Final = "given_up:"
_SLACK_MS: Final = 12_000
"""Ticks are a second apart, and a gap of up to 5 s on either side of one may count."""


class Task:
    """What is known of one task."""

    __slots__ = (
        "accepted", "kept_ms", "lane", "pool", "queued_at", "reservation", "state", "token",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state = CREATED
        self.token = 0
        self.accepted = False
        self.reservation = ""
        self.queued_at = 0
        self.pool = ""
        self.lane = 0
        self.kept_ms = 0
        """Card time of earlier attempts that a checkpoint keeps."""


class CardTime:
    """All card time that is told: each millisecond is granted, burnt by a cause, or kept."""

    __slots__ = ("burnt", "granted", "kept", "told")

    def __init__(self) -> None:
        self.told = 0
        self.granted = 0
        self.kept = 0
        self.burnt: dict[str, int] = {}

    def burn(self, cause: str, ms: int) -> None:
        if ms:
            self.burnt[cause] = self.burnt.get(cause, 0) + ms

    @property
    def rest(self) -> int:
        """What became of nothing; less than none: of which more became than was told."""
        return self.told - self.granted - self.kept - sum(self.burnt.values())


class Lease:
    __slots__ = (
        "asked_at", "begun", "for_task", "holds", "incarnation", "live", "runner", "task", "waited",
    )  # fmt: skip

    def __init__(
        self, runner: str, incarnation: str, begun: int, waited: "Waits", task: str
    ) -> None:
        self.runner = runner
        self.incarnation = incarnation
        self.begun = begun
        self.waited = waited
        """As what it waited."""
        self.task = task
        self.holds = True
        """A slot."""
        self.live = True
        """It may still end well."""
        self.for_task = ""
        """For whom it is to yield."""
        self.asked_at = 0


class Waits(NamedTuple):
    """One that waits in a pool."""

    token: int
    lane: int
    scene: str
    model: str
    account: str
    since: int


class Yard:
    """One pool, counted from its events."""

    __slots__ = (
        "broken", "by_account", "draining", "emptied", "fresh", "good", "had", "half_since",
        "idle_since", "large", "leases", "live", "models", "open_since", "paused", "picks",
        "queued", "runners", "seq", "slots", "unfair", "used", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seq = 0
        self.slots = 0
        self.used = 0
        self.waiting = [0, 0, 0]
        self.by_account: tuple[dict[str, int], ...] = ({}, {}, {})
        """By lane, how many tasks of an account wait."""
        self.large: tuple[dict[str, int], ...] = ({}, {}, {})
        """Of those, the accounts of which many wait."""
        self.paused = [False, False, False]
        self.queued: dict[str, Waits] = {}
        self.emptied: dict[str, tuple[str, int]] = {}
        """By runner: for whom a slot of it was emptied, and until when it is his."""
        self.had: dict[tuple[int, str], tuple[int, float]] = {}
        """By lane and account: when it was last charged, and what it had had then, in ms."""
        self.unfair = [0, 0, 0]
        """By lane, picks in a row for who had had far more than another that waits."""
        self.open_since: dict[str, int] = {}
        self.half_since: dict[str, int] = {}
        self.good: dict[str, int] = {}
        """Probes that ended well since a breaker is half open."""
        self.broken: set[str] = set()
        """Scenes whose breaker is not closed."""
        self.models: dict[str, int] = {}
        """Slots that the attempts of a model have."""
        self.runners: dict[str, tuple[str, int]] = {}
        self.draining: set[str] = set()
        self.fresh: dict[str, int] = {}
        self.leases: dict[tuple[str, int], Lease] = {}
        self.live: dict[str, int] = {}
        self.picks = [0, 0, 0]
        """For each lane, how many picks went by while it waited."""
        self.idle_since = -1

    def wait(self, waits: Waits, more: int) -> None:
        """One more, or one less, waits."""
        lane, account = waits.lane, waits.account
        self.waiting[lane] += more
        by_account, large = self.by_account[lane], self.large[lane]
        count = by_account.get(account, 0) + more
        if count:
            by_account[account] = count
        else:
            by_account.pop(account, None)
        if count > SMALL_MAX:
            large[account] = count
        elif large:
            large.pop(account, None)


class Watch:
    """All that must hold; `violations` must stay empty."""

    def __init__(self, world: World, policy: Policy, state_of: Callable[[str], PoolState]) -> None:
        self.world = world
        self.policy = policy
        self.state_of = state_of
        self.works: Callable[[str, str, int], bool] = lambda _incarnation, _task, _token: False
        self.served_ms: Callable[[int, int], int] = lambda since, until: until - since
        """How much of the true time between two instants somebody was there to serve."""
        self.violations: list[str] = []
        self.tasks: dict[str, Task] = {}
        self.yards: dict[str, Yard] = {}
        self.money: dict[tuple[str, ...], int] = {}
        self.open: dict[tuple[str, str], int] = {}
        self.card = CardTime()
        self.holds_to_account = False
        """Clocks agree and no outage comes: an attempt's card time is held against its slot's."""
        self._had_card: dict[tuple[str, int], int] = {}
        """Of attempts whose slot is not free yet, the card time that was told."""
        self._held_slot: dict[tuple[str, int], int] = {}
        """Of attempts whose card time is not told yet, how long their slot was held."""
        self.sums = dict.fromkeys(("reserved", "spent", "given_back"), 0)
        self.evictions: dict[str, int] = {}
        self.promised: dict[str, tuple[str, int]] = {}
        """By waiting task, the attempt that was last preempted for it."""
        self.seqs: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.ended = 0
        self.touched: set[str] = set()
        self.changed: set[str] = set()
        self.strict = False
        """Memory is held against the events after every batch, not only at each look."""
        self.on_first_start: Callable[[str, str], None] = lambda _task, _pool: None
        self.on_pool: Callable[[str], None] = lambda _pool: None
        self.on_freed: Callable[[str, int], None] = lambda _pool, _held_ms: None
        self._follow: dict[type, Callable[[Any], None]] = {
            e.QuotaReserved: self._reserved,
            e.QuotaCommitted: self._committed,
            e.QuotaReleased: self._released,
            e.TaskCreated: self._created,
            e.TaskQueued: self._queued,
            e.TaskMoved: self._moved,
            e.TaskStarted: self._started,
            e.TaskRequeued: self._requeued,
            e.TaskSucceeded: self._succeeded,
            e.TaskFailed: self._ends,
            e.TaskCanceled: self._ends,
            e.TaskExpired: self._expired,
            e.TaskEnqueued: self._enqueued,
            e.TaskDequeued: self._dequeued,
            e.SlotProposed: self._proposed,
            e.SlotRefused: self._slot_refused,
            e.SlotFreed: self._freed,
            e.AttemptOver: self._over,
            e.SlotLost: self._lost,
            e.RunnerRegistered: self._registered,
            e.RunnerGone: self._gone,
            e.RunnerDraining: self._draining,
            e.LeasesExtended: self._extended,
            e.SlotPreempted: self._preempted,
            e.LanePaused: self._paused,
            e.LaneResumed: self._resumed,
            e.BreakerOpened: self._opened,
            e.BreakerHalfOpened: self._half_opened,
            e.BreakerClosed: self._closed,
        }

    def demand(self, holds: bool, words: str) -> None:  # noqa: FBT001 - reads as: demand that …
        if not holds and len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"at {self.world.now / 1000:.3f} s: {words}")
            self.world.over = len(self.violations) >= VIOLATIONS_MAX

    def over(self) -> bool:
        """Whether it has seen enough."""
        return self.world.over

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # --- the reader's side -----------------------------------------------------------------------

    def event(self, event: Any) -> None:  # noqa: ANN401 - any event
        follow = self._follow.get(type(event))
        if isinstance(event, e.OfPool):
            yard = self.yards.get(event.pool_id)
            if yard is None:
                yard = self.yards[event.pool_id] = Yard()
            yard.seq += 1
            if event.seq != yard.seq:
                self.demand(holds=False, words=f"pool {event.pool_id}: seq {event.seq}")
            self.touched.add(event.pool_id)
        if follow is not None:
            follow(event)
        else:
            self.count(str(type(event).__name__))

    def refused(self, refusal: CommandRefused) -> None:
        self.count(f"refused:{refusal.reason.value}")
        if refusal.command in {"quota.commit.v1", "quota.release.v1"}:
            self.demand(holds=False, words=f"the ledger refused {refusal.command} {refusal.key}")

    def replied(self, reply: Any) -> None:  # noqa: ANN401
        if type(reply) is Accepted:
            task = self.tasks.get(reply.key)
            if task is None:
                task = self.tasks[reply.key] = Task()
            task.accepted = True

    def letter(self, letter: DeadLetter) -> None:
        self.count(f"letter:{letter.cause}")

    def written(self) -> None:
        """After a batch: others may look at the pools that it changed."""
        for pool_id in self.touched:
            self.on_pool(pool_id)
        self.changed |= self.touched
        self.touched.clear()
        if self.strict:
            self.compare()

    def compare(self) -> None:
        """What the pools that have changed say of themselves, against what their events say."""
        for pool_id in self.changed:
            yard = self.yards[pool_id]
            depths = self.state_of(pool_id).depths(pool_id)  # type: ignore[arg-type]
            said = (depths.slots, depths.used, depths.slots - depths.free)
            waiting = [depths.waiting[lane] for lane in LANES]
            if said != (yard.slots, yard.used, yard.used) or waiting != yard.waiting:
                self.demand(
                    holds=False,
                    words=f"pool {pool_id}: slots, used, waiting {said} {waiting} in memory, "
                    f"{(yard.slots, yard.used)} {yard.waiting} by events",
                )
        self.changed.clear()

    # --- money -----------------------------------------------------------------------------------

    def _reserved(self, event: e.QuotaReserved) -> None:
        self._seq(event.account_id, event.seq)
        amount, month = event.amount_micros, str(event.month.start.month)
        key = (event.account_id, event.user_id, event.scene, month)
        held = self.money[key] = self.money.get(key, 0) + amount
        self.demand(held <= event.limit_micros, f"{key}: {held} of {event.limit_micros} held")
        if event.contract_micros is not None:
            shared = (event.account_id, event.scene, month)
            all_held = self.money[shared] = self.money.get(shared, 0) + amount
            self.demand(all_held <= event.contract_micros, f"{shared}: {all_held} held")
        place = (event.account_id, event.reservation_id)
        self.demand(place not in self.open, f"{place}: reserved twice")
        self.open[place] = amount
        self.sums["reserved"] += amount

    def _committed(self, event: e.QuotaCommitted) -> None:
        self._resolve(event, event.amount_micros + event.released_micros, event.released_micros)
        self.sums["spent"] += event.amount_micros

    def _released(self, event: e.QuotaReleased) -> None:
        self._resolve(event, event.amount_micros, event.amount_micros)

    def _resolve(self, event: e.QuotaCommitted | e.QuotaReleased, amount: int, back: int) -> None:
        self._seq(event.account_id, event.seq)
        place = (event.account_id, event.reservation_id)
        held = self.open.pop(place, None)
        self.demand(held == amount, f"{place}: {amount} resolved, {held} held")
        month = str(event.month_start.month)
        self.money[event.account_id, event.user_id, event.scene, month] -= back
        shared = (event.account_id, event.scene, month)
        if shared in self.money:
            self.money[shared] -= back
        self.sums["given_back"] += back

    def _seq(self, key: str, seq: int) -> None:
        expected = self.seqs.get(key, 0) + 1
        self.seqs[key] = seq
        if seq != expected:
            self.demand(holds=False, words=f"{key}: seq {seq} where {expected} must follow")

    # --- tasks -----------------------------------------------------------------------------------

    def _task(self, event: e.OfTask) -> Task:
        task = self.tasks.get(event.task_id)
        if task is None:
            task = self.tasks[event.task_id] = Task()
        self._seq(event.task_id, event.seq)
        if task.state == ENDED:
            self.demand(holds=False, words=f"{event.task_id}: {type(event).__name__} after its end")
        return task

    def _created(self, event: e.TaskCreated) -> None:
        self._task(event)

    def _queued(self, event: e.TaskQueued) -> None:
        task = self._task(event)
        task.state = QUEUED
        task.pool, task.lane = event.pool_id, LANE_AT[event.lane]

    def _moved(self, event: e.TaskMoved) -> None:
        task = self._task(event)
        self.demand(task.state == QUEUED, f"{event.task_id}: moved while {task.state}")
        self.count("moved")

    def _started(self, event: e.TaskStarted) -> None:
        task = self._task(event)
        if task.state != QUEUED or event.token != task.token + 1:
            self.demand(
                holds=False,
                words=f"{event.task_id}: started with {event.token}, {task.state} at {task.token}",
            )
        task.state = RUNNING
        task.token = event.token
        if event.token == 1:
            self.on_first_start(event.task_id, event.pool_id)

    def _requeued(self, event: e.TaskRequeued) -> None:
        task = self._task(event)
        self._current(task, event)
        task.state = QUEUED if event.delay_ms == 0 else CREATED
        cause = event.loss.value if event.loss is not None else str(event.failure)
        self.count(f"requeued:{cause}")
        self._card_of(task, event, cause)
        if event.loss is LossCause.PREEMPTED:
            times = self.evictions[event.task_id] = self.evictions.get(event.task_id, 0) + 1
            most = self.policy.pools[task.pool].preemptions_max  # type: ignore[index]
            self.demand(times <= most, f"{event.task_id}: preempted {times} times")
        if event.loss is not None and event.loss is not LossCause.BACKSTOP:
            self.demand(not event.counted, f"{event.task_id}: a loss ({cause}) burnt a retry")

    def _card_of(self, task: Task, event: e.TaskRequeued, cause: str) -> None:
        """What its checkpoint keeps may be given up later, and is burnt then."""
        saved_ms = event.saved_ms
        self.demand(saved_ms <= event.card_ms, f"{event.task_id}: {saved_ms} of {event.card_ms}")
        if event.started_anew:
            self._give_up_kept(task, GIVEN_UP + "started_anew")
        self._tell_card(event.task_id, event.token, event.card_ms, measured=event.card_measured)
        self.card.burn(cause, event.card_ms - saved_ms)
        self.card.kept += saved_ms
        task.kept_ms += saved_ms
        if event.counted or not event.checkpoint:
            self._give_up_kept(task, GIVEN_UP + cause)

    def _give_up_kept(self, task: Task, cause: str) -> None:
        self.card.burn(cause, task.kept_ms)
        self.card.kept -= task.kept_ms
        task.kept_ms = 0

    def _tell_card(self, task_id: str, token: int, card_ms: int, *, measured: bool = True) -> None:
        self.card.told += card_ms
        if not self.holds_to_account or not measured:
            return  # what is estimated may have been stored meanwhile, its slot long free
        held_ms = self._held_slot.pop((task_id, token), None)
        if held_ms is None:
            self._had_card[task_id, token] = card_ms
        else:
            self._compare_card(task_id, card_ms, held_ms)

    def _slot_held(self, attempt: tuple[str, int], held_ms: int) -> None:
        if not self.holds_to_account:
            return
        card_ms = self._had_card.pop(attempt, None)
        if card_ms is None:
            self._held_slot[attempt] = held_ms
        else:
            self._compare_card(attempt[0], card_ms, held_ms)

    def _compare_card(self, task_id: str, card_ms: int, held_ms: int) -> None:
        """What a runner tells is of the time between its slot's beginning and its end."""
        if card_ms > held_ms + 2 * _SLACK_MS:
            self.demand(
                holds=False, words=f"{task_id}: {card_ms} ms of card time, slot held {held_ms}"
            )

    def _current(self, task: Task, event: Any) -> None:  # noqa: ANN401
        if task.state != RUNNING or event.token != task.token:
            self.demand(
                holds=False,
                words=f"{event.task_id}: {type(event).__name__} of {event.token}, "
                f"{task.state} at {task.token}",
            )

    def _succeeded(self, event: e.TaskSucceeded) -> None:
        task = self._task(event)
        self._current(task, event)
        if event.facts.get("started_anew"):
            self._give_up_kept(task, GIVEN_UP + "started_anew")
        self._tell_card(event.task_id, event.token, event.card_ms)
        self.card.granted += event.card_ms + task.kept_ms
        self.card.kept -= task.kept_ms
        task.kept_ms = 0
        self._end(task, "succeeded")

    def _ends(self, event: e.TaskFailed | e.TaskCanceled) -> None:
        task = self._task(event)
        how = type(event).__name__.removeprefix("Task").lower()
        if task.state == RUNNING:
            self._tell_card(event.task_id, event.token, event.card_ms, measured=event.card_measured)
            self.card.burn(how, event.card_ms)
        elif event.card_ms:
            self.demand(holds=False, words=f"{event.task_id}: card time, and no attempt runs")
        self._give_up_kept(task, GIVEN_UP + how)
        self._end(task, how)

    def _expired(self, event: e.TaskExpired) -> None:
        task = self._task(event)
        ttl = self.policy.pools[task.pool].lanes[LANES[task.lane]].ttl_seconds * 1_000  # type: ignore[index]
        served = self.served_ms(task.queued_at, self.world.now)
        self.demand(
            served + _SLACK_MS >= ttl, f"{event.task_id}: expired after {served} of {ttl} served ms"
        )
        self._give_up_kept(task, GIVEN_UP + "expired")
        self._end(task, "expired")

    def _end(self, task: Task, how: str) -> None:
        task.state = ENDED
        self.ended += 1
        self.count(how)

    # --- pools -----------------------------------------------------------------------------------

    def _enqueued(self, event: e.TaskEnqueued) -> None:
        yard = self.yards[event.pool_id]
        before = yard.queued.get(event.task_id)
        lane = LANE_AT[event.lane]
        if before is not None:
            yard.wait(before, -1)
        waits = Waits(event.token, lane, event.scene, event.model, event.account_id, self.world.now)
        yard.queued[event.task_id] = waits
        yard.wait(waits, 1)
        task = self.tasks.get(event.task_id)
        if task is not None:
            task.queued_at = self.world.now
            task.pool, task.lane = event.pool_id, lane

    def _dequeued(self, event: e.TaskDequeued) -> None:
        yard = self.yards[event.pool_id]
        yard.wait(yard.queued.pop(event.task_id), -1)

    def _proposed(self, event: e.SlotProposed) -> None:
        yard = self.yards[event.pool_id]
        attempt = (event.task_id, event.token)
        waits = yard.queued.get(event.task_id)
        if waits is None or waits.token + 1 != event.token:
            self.demand(holds=False, words=f"{attempt}: proposed, it waits as {waits}")
            return
        lane = waits.lane
        self.demand(not yard.paused[lane], f"{attempt}: proposed, and p{lane} is paused")
        if self.strict:
            self._judge(event, yard, waits)
        del yard.queued[event.task_id]
        yard.wait(waits, -1)
        live = yard.live.get(event.task_id, 0)
        self.demand(not live, f"{attempt}: proposed while {live} of it are leased")
        yard.live[event.task_id] = live + 1
        self.demand(attempt not in yard.leases, f"{attempt}: leased twice")
        yard.leases[attempt] = Lease(
            event.runner_id, event.incarnation_id, self.world.now, waits, event.task_id
        )
        yard.used += 1
        if waits.model:
            self._model(event.pool_id, yard, waits.model)
        runner = yard.runners.get(event.runner_id)
        self.demand(
            runner is not None
            and runner[0] == event.incarnation_id
            and event.runner_id not in yard.draining
            and yard.used <= yard.slots,
            f"{attempt}: proposed to {event.incarnation_id}, known is {runner}",
        )
        self._passed(event.pool_id, yard, lane)

    # --- whose turn it was -----------------------------------------------------------------------

    def _judge(self, event: e.SlotProposed, yard: Yard, waits: Waits) -> None:
        """Room that was emptied for somebody is his; a share is a share; nobody gets too many."""
        name = f"{event.task_id} in pool {event.pool_id}"
        emptied = yard.emptied.pop(event.runner_id, None)
        for_him = emptied is not None and emptied[0] == event.task_id
        if emptied is not None and not for_him and self.world.now < emptied[1]:
            other = yard.queued.get(emptied[0])
            free = other is not None and other.lane == 0 and self._may_start(event.pool_id, other)
            self.demand(not free, f"{name}: got the room that was emptied for {emptied[0]}")
        others = [
            one
            for one in yard.queued.values()
            if one.account != waits.account and self._may_start(event.pool_id, one)
        ]
        if for_him or not others:
            return
        most = self._slots_of_one(event.pool_id, yard)
        used: dict[str, int] = {}
        for lease in yard.leases.values():
            if lease.holds:
                used[lease.waited.account] = used.get(lease.waited.account, 0) + 1
        left_out = [one for one in others if used.get(one.account, 0) < most]
        if used.get(waits.account, 0) >= most:
            self.demand(not left_out, f"{name}: {waits.account} has {most} slots, others none")
            return
        self._fair(event.pool_id, yard, waits, left_out)

    def _fair(self, pool_id: str, yard: Yard, waits: Waits, others: "list[Waits]") -> None:
        """One pick in eight goes by age; three in a row against the shares are a bug.

        What is everybody's of late (`FREE_TASKS`) counts as had when the task came.
        """
        expected = self.policy.pools[pool_id].expected_seconds * 1_000  # type: ignore[index]
        free = FREE_TASKS * expected

        def counts(one: Waits) -> float:
            had = self._had(pool_id, yard, one.lane, one.account)
            return max(had, free * self._left(pool_id, one.since))

        mine = counts(waits)
        least = min((counts(one) for one in others if one.lane == waits.lane), default=mine)
        lane = waits.lane
        yard.unfair[lane] = yard.unfair[lane] + 1 if mine > least + 3 * expected else 0
        self.demand(
            yard.unfair[lane] < UNFAIR_MAX,
            f"pool {pool_id}: {waits.account} had {mine:.0f} ms, another that waits {least:.0f}",
        )
        had = self._had(pool_id, yard, lane, waits.account)
        yard.had[lane, waits.account] = (self.world.now, had + expected)

    def _charge(self, pool_id: str, yard: Yard, lease: Lease) -> None:
        """What it really took instead of what was expected."""
        lane, account = lease.waited.lane, lease.waited.account
        expected = self.policy.pools[pool_id].expected_seconds * 1_000  # type: ignore[index]
        took = self.served_ms(lease.begun, self.world.now)
        took -= round(expected * self._left(pool_id, lease.begun))
        yard.had[lane, account] = (
            self.world.now,
            max(self._had(pool_id, yard, lane, account) + took, 0.0),
        )

    def _had(self, pool_id: str, yard: Yard, lane: int, account: str) -> float:
        at, had = yard.had.get((lane, account), (0, 0.0))
        return had * self._left(pool_id, at)

    def _left(self, pool_id: str, since: int) -> float:
        """What is left by now of something that was had then."""
        half = self.policy.pools[pool_id].half_life_seconds * 1_000  # type: ignore[index]
        return float(0.5 ** (self.served_ms(since, self.world.now) / half))

    def _slots_of_one(self, pool_id: str, yard: Yard) -> int:
        share = self.policy.pools[pool_id].tenant_share  # type: ignore[index]
        return yard.slots if share >= 1 else max(int(yard.slots * share), 1)

    def _may_start(self, pool_id: str, waits: Waits) -> bool:
        yard = self.yards[pool_id]
        cap = self.policy.pools[pool_id].model_caps.get(waits.model)  # type: ignore[index]
        return (
            not yard.paused[waits.lane]
            and waits.scene not in yard.broken
            and (cap is None or yard.models.get(waits.model, 0) < cap)
        )

    def _passed(self, pool_id: str, yard: Yard, picked: int) -> None:
        """A lane with a floor is not passed over for ever."""
        yard.picks[picked] = 0
        for lane in range(3):
            if lane == picked or not yard.waiting[lane] or yard.paused[lane]:
                continue
            yard.picks[lane] += lane > picked
            rules = self.policy.pools[pool_id].lanes.get(LANES[lane])  # type: ignore[index]
            floor = 0 if rules is None else rules.floor_picks
            if floor and yard.picks[lane] > 2 * floor + yard.slots:
                self.demand(
                    not self._eligible(pool_id, yard, lane),
                    f"pool {pool_id}: lane p{lane} passed over {yard.picks[lane]} times",
                )
                yard.picks[lane] = 0

    def _model(self, pool_id: str, yard: Yard, model: str) -> None:
        """One more attempt of a model has a slot."""
        count = yard.models[model] = yard.models.get(model, 0) + 1
        cap = self.policy.pools[pool_id].model_caps.get(model)  # type: ignore[index]
        self.demand(cap is None or count <= cap, f"pool {pool_id}: {count} of {model}, cap {cap}")

    def _eligible(self, pool_id: str, yard: Yard, lane: int | None = None) -> bool:
        """Whether anybody waits (in that lane) whom neither cap, breaker nor pause keeps."""
        caps = self.policy.pools[pool_id].model_caps  # type: ignore[index]
        full = {model for model, cap in caps.items() if yard.models.get(model, 0) >= cap}
        return any(
            lane in (None, one.lane)
            and not yard.paused[one.lane]
            and one.scene not in yard.broken
            and one.model not in full
            for one in yard.queued.values()
        )

    def _leave(self, yard: Yard, attempt: tuple[str, int], lease: Lease) -> None:
        """It can no longer end well."""
        if lease.live:
            lease.live = False
            left = yard.live.get(attempt[0], 0) - 1
            if left > 0:
                yard.live[attempt[0]] = left
            else:
                yard.live.pop(attempt[0], None)

    def _give_up(self, pool_id: str, yard: Yard, lease: Lease, token: int) -> None:
        """Its slot is free."""
        if lease.holds:
            lease.holds = False
            self._slot_held((lease.task, token), self.world.now - lease.begun)
            yard.used -= 1
            if self.strict:
                self._charge(pool_id, yard, lease)
            if lease.waited.model:
                yard.models[lease.waited.model] -= 1
            self.on_freed(pool_id, self.world.now - lease.begun)

    def _known(self, event: Any) -> tuple[Yard, tuple[str, int], Lease] | None:  # noqa: ANN401
        yard = self.yards[event.pool_id]
        attempt = (event.task_id, event.token)
        lease = yard.leases.get(attempt)
        if lease is None:
            self.demand(holds=False, words=f"{attempt}: {type(event).__name__} without a lease")
            return None
        return yard, attempt, lease

    def _slot_refused(self, event: e.SlotRefused) -> None:
        known = self._known(event)
        if known is not None:
            yard, attempt, lease = known
            self._leave(yard, attempt, lease)
            self._give_up(event.pool_id, yard, lease, attempt[1])
            del yard.leases[attempt]

    def _freed(self, event: e.SlotFreed) -> None:
        known = self._known(event)
        if known is not None:
            yard, attempt, lease = known
            self._give_up(event.pool_id, yard, lease, attempt[1])
            if self.strict and lease.for_task:
                yields = self.policy.pools[event.pool_id].yield_seconds * 2_000
                until = lease.asked_at + yields - _SLACK_MS
                yard.emptied[lease.runner] = (lease.for_task, until)
            if not lease.live:
                del yard.leases[attempt]

    def _over(self, event: e.AttemptOver) -> None:
        known = self._known(event)
        if known is None:
            return
        yard, attempt, lease = known
        self._leave(yard, attempt, lease)
        if not lease.holds:
            del yard.leases[attempt]
        scene = lease.waited.scene
        if event.ended_well and lease.begun >= yard.half_since.get(scene, lease.begun + 1):
            yard.good[scene] += 1
            rules = self.policy.pools[event.pool_id].breaker
            self.demand(
                rules is not None and yard.good[scene] <= rules.probes,
                f"pool {event.pool_id}: {yard.good[scene]} probes of {scene} were good in a row",
            )

    def _lost(self, event: e.SlotLost) -> None:
        known = self._known(event)
        if known is None:
            return
        yard, attempt, lease = known
        self.count(f"lost:{event.cause.value}")
        if event.cause is LossCause.LEASE_EXPIRED:
            self.demand(
                not self.works(lease.incarnation, *attempt),
                f"{attempt} is taken from {lease.incarnation}, which works on it under its lease",
            )
        self._leave(yard, attempt, lease)
        if not lease.holds:
            del yard.leases[attempt]

    def _preempted(self, event: e.SlotPreempted) -> None:
        """Only p0 takes, only from a lower lane, once from one, and not for ever from a task."""
        self.count("preempted")
        known = self._known(event)
        if known is None:
            return
        yard, attempt, lease = known
        pool = self.policy.pools[event.pool_id]
        waiting = yard.queued.get(event.for_task_id)
        who = f"{attempt} for {event.for_task_id}"
        self.demand(pool.preemptible, f"{who}: preempted in pool {event.pool_id}")
        self.demand(lease.live and not lease.for_task, f"{who}: preempted, and is over or asked")
        self.demand(waiting is not None and waiting.lane == 0, f"{who}: preempted for {waiting}")
        self.demand(lease.waited.lane > 0, f"{who}: a p0 task is preempted")
        ran = self.world.now - lease.begun
        self.demand(
            ran + _SLACK_MS >= pool.min_run_seconds * 1_000, f"{who}: preempted after {ran} ms"
        )
        lease.for_task = event.for_task_id
        before = self.promised.get(event.for_task_id)
        if before is not None and before in yard.leases and yard.leases[before].holds:
            held = self.world.now - yard.leases[before].asked_at
            self.demand(
                held >= pool.yield_seconds * 1_000, f"{who}: {before} was preempted for it too"
            )
        lease.asked_at = self.world.now
        self.promised[event.for_task_id] = attempt

    def _opened(self, event: e.BreakerOpened) -> None:
        self.count("breaker opened")
        yard = self.yards[event.pool_id]
        yard.broken.add(event.scene)
        yard.open_since[event.scene] = self.world.now
        yard.half_since.pop(event.scene, None)

    def _half_opened(self, event: e.BreakerHalfOpened) -> None:
        self.count("breaker half open")
        yard = self.yards[event.pool_id]
        yard.open_since.pop(event.scene, None)
        yard.half_since[event.scene] = self.world.now
        yard.good[event.scene] = 0

    def _closed(self, event: e.BreakerClosed) -> None:
        self.count("breaker closed")
        yard = self.yards[event.pool_id]
        yard.broken.discard(event.scene)
        yard.open_since.pop(event.scene, None)
        yard.half_since.pop(event.scene, None)

    def _registered(self, event: e.RunnerRegistered) -> None:
        yard = self.yards[event.pool_id]
        before = yard.runners.get(event.runner_id)
        self.demand(
            before is None or before[0] == event.incarnation_id, f"{event.runner_id}: over another"
        )
        yard.slots += event.slots - (0 if before is None else before[1])
        yard.runners[event.runner_id] = (event.incarnation_id, event.slots)
        yard.fresh[event.runner_id] = self.world.now

    def _extended(self, event: e.LeasesExtended) -> None:
        fresh = self.yards[event.pool_id].fresh
        for one in event.runners:
            fresh[one.runner_id] = self.world.now

    def _draining(self, event: e.RunnerDraining) -> None:
        self.yards[event.pool_id].draining.add(event.runner_id)

    def _gone(self, event: e.RunnerGone) -> None:
        yard = self.yards[event.pool_id]
        known = yard.runners.pop(event.runner_id, None)
        self.demand(known is not None, f"{event.runner_id}: gone, and was not there")
        yard.slots -= 0 if known is None else known[1]
        yard.draining.discard(event.runner_id)
        yard.fresh.pop(event.runner_id, None)
        held = [
            (attempt, lease)
            for attempt, lease in yard.leases.items()
            if lease.runner == event.runner_id and lease.incarnation == event.incarnation_id
        ]
        by_itself = event.event_id.startswith("tick-")
        for attempt, lease in held:
            if by_itself:
                self.demand(
                    not self.works(lease.incarnation, *attempt),
                    f"{attempt}: {lease.incarnation} works on it, and its lease has ended",
                )
            self._leave(yard, attempt, lease)
            self._give_up(event.pool_id, yard, lease, attempt[1])
            del yard.leases[attempt]

    def _paused(self, event: e.LanePaused) -> None:
        self.yards[event.pool_id].paused[LANE_AT[event.lane]] = True

    def _resumed(self, event: e.LaneResumed) -> None:
        self.yards[event.pool_id].paused[LANE_AT[event.lane]] = False

    # --- idle slots, and the end -----------------------------------------------------------------

    def look(self, *, served: bool) -> None:
        """Every few seconds: nobody waits beside a card that is free, and memory is right."""
        self.compare()
        rest = self.card.rest
        self.demand(rest == 0, f"card time: {rest} ms are neither granted nor burnt nor kept")
        for pool_id, yard in self.yards.items():
            if yard.broken:
                self._look_at_breakers(pool_id, yard)
            waits = sum(
                count for count, paused in zip(yard.waiting, yard.paused, strict=True) if not paused
            )
            if not served or not waits or not self._has_room(yard):
                yard.idle_since = -1
            elif yard.idle_since < 0:
                yard.idle_since = self.world.now
            elif self.world.now - yard.idle_since > IDLE_MAX_MS:
                self.demand(
                    not self._eligible(pool_id, yard),
                    f"pool {pool_id}: {waits} wait beside a free slot",
                )
                yard.idle_since = self.world.now

    def _look_at_breakers(self, pool_id: str, yard: Yard) -> None:
        """An open one is half open in time, and a half-open one comes to a verdict."""
        rules, now = self.policy.pools[pool_id].breaker, self.world.now  # type: ignore[index]
        for scene, since in yard.open_since.items():
            served = self.served_ms(since, now)
            most = (0 if rules is None else rules.open_seconds * 1_000) + 6 * _SLACK_MS
            self.demand(served < most, f"pool {pool_id}: {scene} is kept off for {served} ms")
        for scene, since in yard.half_since.items():
            if self.served_ms(since, now) > PROBE_MAX_MS and any(
                one.scene == scene and not yard.paused[one.lane] for one in yard.queued.values()
            ):
                self.demand(holds=False, words=f"pool {pool_id}: no verdict on {scene}")

    def _has_room(self, yard: Yard) -> bool:
        now, used = self.world.now, dict[str, int]()
        for lease in yard.leases.values():
            if lease.holds:
                used[lease.runner] = used.get(lease.runner, 0) + 1
        return any(
            name not in yard.draining
            and slots > used.get(name, 0)
            and now - yard.fresh.get(name, 0) < IDLE_MAX_MS
            for name, (_, slots) in yard.runners.items()
        )

    @property
    def settled(self) -> bool:
        """Whether every task has ended and nothing is leased, queued or reserved."""
        return (
            self.ended == len(self.tasks)
            and not self.open
            and not any(yard.leases or yard.queued for yard in self.yards.values())
        )

    def close(self) -> None:
        """Everything is over: what must hold at the end."""
        left = [name for name, task in self.tasks.items() if task.state != ENDED]
        self.demand(not left, f"{len(left)} tasks have not ended: {left[:3]}")
        for name, task in self.tasks.items():
            if not task.accepted:
                self.demand(holds=False, words=f"{name}: exists, and nobody was told so")
        self.demand(not self.open, f"reserved for ever: {list(self.open)[:3]}")
        for pool_id, yard in self.yards.items():
            self.demand(not yard.leases, f"pool {pool_id}: leases left: {list(yard.leases)[:3]}")
            self.demand(not yard.queued, f"pool {pool_id}: still waiting: {list(yard.queued)[:3]}")
        rest = self.sums["reserved"] - self.sums["spent"] - self.sums["given_back"]
        self.demand(rest == 0, f"the ledger sums to {rest}")
        rest = self.card.rest
        self.demand(rest == 0, f"card time: {rest} ms are neither granted nor burnt nor kept")
        self.demand(self.card.kept == 0, f"card time: {self.card.kept} ms are kept for nobody")
