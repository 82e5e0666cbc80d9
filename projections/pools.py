"""Pools: who waits, which slots are taken by what, runners and paused lanes, from `pool-events`.

Slots and runners of all pools are few and stay in memory; what waits may be many and does not.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from projections.flow import Additions, Flow
from projections.folding import Db, Fact, Seqs, put
from schema import events as e
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "pools.sql").read_text().split("\n-- ;;\n")
(
    _LAST_SEQS,
    _FIND_WAITING,
    _DELETE_WAITING,
    _MERGE_WAITING,
    _DELETE_SLOTS,
    _MERGE_SLOTS,
    _MERGE_RUNNERS,
    _MERGE_LANES,
    _MERGE_BREAKERS,
    _MERGE_POOLS,
    _MERGE_SEQS,
    *_ADDITIONS,
) = _SQL


class _Waiting(NamedTuple):
    pool_id: str
    task_id: str
    token: int
    lane: str
    account_id: str
    scene: str
    enqueued_at: datetime
    move_pool_id: str | None = None
    move_lane: str | None = None
    move_reason: str | None = None


class _Slot(NamedTuple):
    pool_id: str
    task_id: str
    token: int
    runner_id: str
    incarnation_id: str
    state: str
    since: datetime
    lane: str
    scene: str
    proposed_at: datetime
    preempted_for: str | None = None

    @property
    def taken(self) -> bool:
        """Whether nobody else can have the slot: its runner has not freed it."""
        return self.state != "storing"


class _Runner(NamedTuple):
    pool_id: str
    runner_id: str
    incarnation_id: str
    slots: int
    state: str
    beat: int
    registered_at: datetime
    beat_at: datetime
    spot: bool

    @property
    def ready_slots(self) -> int:
        return self.slots if self.state == "ready" else 0


class _Lane(NamedTuple):
    pool_id: str
    lane: str
    paused: bool
    who: str
    why: str
    since: datetime


class _Breaker(NamedTuple):
    pool_id: str
    scene: str
    state: str
    failed: int
    counted: int
    who: str
    why: str
    since: datetime


class _Pool(NamedTuple):
    pool_id: str
    seq: int
    updated_at: datetime
    cards_wanted: int | None = None
    scale_reason: str | None = None
    scaled_at: datetime | None = None
    demand_card_seconds: int | None = None
    wait_p95_ms: int | None = None
    oldest_wait_ms: int | None = None


_Place = tuple[str, str]
_Attempt = tuple[str, str, int]


class _Changes:
    """What a batch does. None: the row is gone."""

    def __init__(self, found: dict[_Place, _Waiting]) -> None:
        """`found`: what the table holds of the tasks that the batch names."""
        self._found = found
        self.flow = Flow()
        self.waiting: dict[_Place, _Waiting | None] = {}
        self.slots: dict[_Attempt, _Slot | None] = {}
        self.runners: dict[_Place, _Runner] = {}
        self.lanes: dict[_Place, _Lane] = {}
        self.breakers: dict[_Place, _Breaker] = {}
        self.pools: dict[str, _Pool] = {}

    def waits(self, place: _Place) -> _Waiting | None:
        """The row of a task that waits."""
        return self.waiting[place] if place in self.waiting else self._found.get(place)

    def stood(self, place: _Place) -> bool:
        """Whether the table has a row of the task."""
        return place in self._found

    def wait(self, place: _Place, row: _Waiting | None) -> None:
        """It waits like this from here on."""
        before = self.waits(place)
        if before is not None:
            self.flow.waits(before.pool_id, before.lane, before.account_id, -1)
        if row is not None:
            self.flow.waits(row.pool_id, row.lane, row.account_id, 1)
        self.waiting[place] = row


class Pools:
    """The fold of `pool-events`."""

    name: ClassVar[str] = "pools"
    topic: ClassVar[Topic] = Topic.POOL_EVENTS
    tables: ClassVar[tuple[str, ...]] = (
        "pools",
        "pool_lanes",
        "pool_waiting",
        "pool_slots",
        "pool_queues",
        "pool_accounts",
        "pool_flow",
        "pool_use",
        "pool_breakers",
        "runners",
    )

    def __init__(self) -> None:
        self._seqs = Seqs()
        self._slots: dict[_Attempt, _Slot] = {}
        self._runners: dict[_Place, _Runner] = {}
        self._pools: dict[str, _Pool] = {}
        self._used: dict[str, int] = {}
        """Slots that are taken, by pool."""
        self._ready: dict[str, int] = {}
        """Slots of ready runners, by pool."""
        self._loaded = False

    def forget(self) -> None:
        self._seqs.forget()
        self._loaded = False

    async def _load(self, db: Db) -> None:
        slots = [_Slot(*row) for row in await db.fetch(_select(_Slot, "pool_slots"))]
        self._slots = {(slot.pool_id, slot.task_id, slot.token): slot for slot in slots}
        runners = [_Runner(*row) for row in await db.fetch(_select(_Runner, "runners"))]
        self._runners = {(runner.pool_id, runner.runner_id): runner for runner in runners}
        pools = [_Pool(*row) for row in await db.fetch(_select(_Pool, "pools"))]
        self._pools = {pool.pool_id: pool for pool in pools}
        self._used, self._ready = {}, {}
        for slot in slots:
            _add(self._used, slot.pool_id, slot.taken)
        for runner in runners:
            _add(self._ready, runner.pool_id, runner.ready_slots)
        self._loaded = True

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """What these events leave behind; what came and went within the batch is not written."""
        if not self._loaded:
            await self._load(db)
        unknown = self._seqs.unknown(_key(fact) for fact in facts)
        if unknown:
            found = await db.fetch(_LAST_SEQS, unknown, self.topic.value)
            self._seqs.learn(unknown, {row["key"]: row["seq"] for row in found})
        changes = _Changes(await _find_waiting(db, facts))
        for fact in facts:
            event = fact.message
            if not self._seqs.is_next(fact, _key(fact), event.seq):
                continue
            if isinstance(event, e.PolicyAdopted):
                await db.execute(_MERGE_SEQS, fact.topic, _key(fact), event.seq)
                continue
            self._pass(changes, event)
            _FOLDS[type(event)](self, changes, event)
        await _write(db, changes)

    def _pass(self, changes: _Changes, event: e.PoolEvent) -> None:
        """Time went by since the pool's last event."""
        if isinstance(event, e.PolicyAdopted):
            return
        pool = self._pools.get(event.pool_id)
        changes.flow.passed(
            event.pool_id,
            pool.updated_at if pool else None,
            event.at,
            used=self._used.get(event.pool_id, 0),
            slots=self._ready.get(event.pool_id, 0),
        )
        if pool is None:
            pool = _Pool(event.pool_id, event.seq, event.at)
        else:
            pool = pool._replace(seq=event.seq, updated_at=event.at)
        self._pools[event.pool_id] = changes.pools[event.pool_id] = pool

    # --- what each event changes -----------------------------------------------------------------

    def enqueued(self, changes: _Changes, event: e.TaskEnqueued) -> None:
        row = _Waiting(
            event.pool_id,
            event.task_id,
            event.token,
            event.lane,
            event.account_id,
            event.scene,
            event.at,
        )
        changes.wait((event.pool_id, event.task_id), row)
        changes.flow.arrived(event.pool_id, event.lane, event.at)

    def move_asked(self, changes: _Changes, event: e.TaskMoveAsked) -> None:
        """It still waits here."""
        place = (event.pool_id, event.task_id)
        row = changes.waits(place)
        if row is not None:
            changes.waiting[place] = row._replace(
                move_pool_id=event.to_pool_id, move_lane=event.to_lane, move_reason=event.reason
            )

    def dequeued(self, changes: _Changes, event: e.TaskDequeued) -> None:
        changes.wait((event.pool_id, event.task_id), None)

    def proposed(self, changes: _Changes, event: e.SlotProposed) -> None:
        place = (event.pool_id, event.task_id)
        row = changes.waits(place)
        changes.wait(place, None)
        slot = _Slot(
            event.pool_id,
            event.task_id,
            event.token,
            event.runner_id,
            event.incarnation_id,
            "proposed",
            event.at,
            row.lane if row else "",
            row.scene if row else "",
            event.at,
        )
        changes.flow.started(slot.pool_id, slot.lane, event.at)
        self._put(changes, slot)

    def _put(self, changes: _Changes, slot: _Slot) -> None:
        attempt = (slot.pool_id, slot.task_id, slot.token)
        before = self._slots.get(attempt)
        was_taken = before is not None and before.taken
        _add(self._used, slot.pool_id, slot.taken - was_taken)
        self._slots[attempt] = changes.slots[attempt] = slot

    def _drop(self, changes: _Changes, slot: _Slot) -> None:
        attempt = (slot.pool_id, slot.task_id, slot.token)
        _add(self._used, slot.pool_id, -slot.taken)
        del self._slots[attempt]
        changes.slots[attempt] = None

    def moved(self, changes: _Changes, event: "_OfAttempt") -> None:
        """An attempt goes to another stage, or its slot is over."""
        slot = self._slots.get((event.pool_id, event.task_id, event.token))
        if slot is None:
            return
        state = _after(slot.state, event)
        after = None if state is None else slot._replace(state=state, since=event.at)
        if slot.taken and (after is None or not after.taken) and type(event) is not e.SlotRefused:
            changes.flow.freed(slot.pool_id, slot.lane, slot.proposed_at, event.at)
        if after is None:
            self._drop(changes, slot)
        else:
            self._put(changes, after)

    def preempted(self, changes: _Changes, event: e.SlotPreempted) -> None:
        slot = self._slots.get((event.pool_id, event.task_id, event.token))
        if slot is not None:
            self._put(changes, slot._replace(preempted_for=event.for_task_id))

    def registered(self, changes: _Changes, event: e.RunnerRegistered) -> None:
        place = (event.pool_id, event.runner_id)
        before = self._runners.get(place)
        same = before is not None and before.incarnation_id == event.incarnation_id
        runner = _Runner(
            event.pool_id,
            event.runner_id,
            event.incarnation_id,
            event.slots,
            before.state if before is not None and same and before.state != "gone" else "ready",
            before.beat if before is not None and same else 0,
            event.at,
            event.at,
            event.spot,
        )
        self._put_runner(changes, runner)

    def draining(self, changes: _Changes, event: e.RunnerDraining) -> None:
        self._change_runner(changes, event.pool_id, event.runner_id, state="draining")

    def gone(self, changes: _Changes, event: e.RunnerGone) -> None:
        """Its slots go with it."""
        self._change_runner(changes, event.pool_id, event.runner_id, state="gone")
        for slot in list(self._slots.values()):
            if (slot.pool_id, slot.runner_id) == (event.pool_id, event.runner_id):
                self._drop(changes, slot)

    def extended(self, changes: _Changes, event: e.LeasesExtended) -> None:
        for extended in event.runners:
            self._change_runner(
                changes, event.pool_id, extended.runner_id, beat=extended.beat, beat_at=event.at
            )

    def _change_runner(
        self,
        changes: _Changes,
        pool_id: str,
        runner_id: str,
        **fields: Any,  # noqa: ANN401 - its fields
    ) -> None:
        self._put_runner(changes, self._runners[pool_id, runner_id]._replace(**fields))

    def _put_runner(self, changes: _Changes, runner: _Runner) -> None:
        place = (runner.pool_id, runner.runner_id)
        before = self._runners.get(place)
        more = runner.ready_slots - (before.ready_slots if before else 0)
        _add(self._ready, runner.pool_id, more)
        self._runners[place] = changes.runners[place] = runner

    def lane_paused(self, changes: _Changes, event: e.LanePaused) -> None:
        lane = _Lane(event.pool_id, event.lane, True, event.who, event.why, event.at)  # noqa: FBT003
        changes.lanes[event.pool_id, event.lane] = lane

    def lane_resumed(self, changes: _Changes, event: e.LaneResumed) -> None:
        lane = _Lane(event.pool_id, event.lane, False, event.who, event.why, event.at)  # noqa: FBT003
        changes.lanes[event.pool_id, event.lane] = lane

    def breaker_opened(self, changes: _Changes, event: e.BreakerOpened) -> None:
        _breaker(changes, event, "open", failed=event.failed, counted=event.counted)

    def breaker_half_opened(self, changes: _Changes, event: e.BreakerHalfOpened) -> None:
        _breaker(changes, event, "half_open")

    def breaker_closed(self, changes: _Changes, event: e.BreakerClosed) -> None:
        _breaker(changes, event, "closed", who=event.who, why=event.why)

    def scaled(self, changes: _Changes, event: e.PoolScaled) -> None:
        pool = self._pools[event.pool_id]._replace(
            cards_wanted=event.cards,
            scale_reason=event.reason,
            scaled_at=event.at,
            demand_card_seconds=event.demand_card_seconds,
            wait_p95_ms=event.wait_p95_ms,
            oldest_wait_ms=event.oldest_wait_ms,
        )
        self._pools[event.pool_id] = changes.pools[event.pool_id] = pool


_OfAttempt = (
    e.SlotGranted | e.SlotRefused | e.AttemptAccepted | e.AttemptOver | e.SlotFreed | e.SlotLost
)
_Event = Any
_FOLDS: Final[dict[type, Callable[[Pools, _Changes, _Event], None]]] = {
    e.TaskEnqueued: Pools.enqueued,
    e.TaskMoveAsked: Pools.move_asked,
    e.TaskDequeued: Pools.dequeued,
    e.SlotProposed: Pools.proposed,
    e.SlotPreempted: Pools.preempted,
    e.SlotGranted: Pools.moved,
    e.SlotRefused: Pools.moved,
    e.AttemptAccepted: Pools.moved,
    e.AttemptOver: Pools.moved,
    e.SlotFreed: Pools.moved,
    e.SlotLost: Pools.moved,
    e.RunnerRegistered: Pools.registered,
    e.RunnerDraining: Pools.draining,
    e.RunnerGone: Pools.gone,
    e.LeasesExtended: Pools.extended,
    e.LanePaused: Pools.lane_paused,
    e.LaneResumed: Pools.lane_resumed,
    e.BreakerOpened: Pools.breaker_opened,
    e.BreakerHalfOpened: Pools.breaker_half_opened,
    e.BreakerClosed: Pools.breaker_closed,
    e.PoolScaled: Pools.scaled,
}
_OF_WAITING: Final = (e.TaskEnqueued, e.TaskMoveAsked, e.TaskDequeued, e.SlotProposed)


def _add(counts: dict[str, int], pool_id: str, more: int) -> None:
    counts[pool_id] = counts.get(pool_id, 0) + more


def _breaker(
    changes: _Changes,
    event: e.BreakerOpened | e.BreakerHalfOpened | e.BreakerClosed,
    state: str,
    *,
    failed: int = 0,
    counted: int = 0,
    who: str = "",
    why: str = "",
) -> None:
    row = _Breaker(event.pool_id, event.scene, state, failed, counted, who, why, event.at)
    changes.breakers[event.pool_id, event.scene] = row


def _select(row: type[NamedTuple], table: str) -> str:
    return f"SELECT {', '.join(row._fields)} FROM {table}"  # noqa: S608 - our own names


async def _find_waiting(db: Db, facts: Sequence[Fact]) -> dict[_Place, _Waiting]:
    """What the table holds of the tasks that a batch names."""
    places = {
        (fact.message.pool_id, fact.message.task_id)
        for fact in facts
        if isinstance(fact.message, _OF_WAITING)
    }
    if not places:
        return {}
    rows = await db.fetch(_FIND_WAITING, *map(list, zip(*places, strict=True)))
    return {(row["pool_id"], row["task_id"]): _Waiting(*row) for row in rows}


def _after(state: str, event: _OfAttempt) -> str | None:
    """The stage after the event; None: the slot is over (as the pool's own table of steps says)."""
    match event:
        case e.SlotGranted():
            return "granted"
        case e.SlotRefused():
            return None
        case e.AttemptAccepted():
            return "accepted"
        case e.SlotFreed():
            return None if state in ("over", "lost") else "storing"
        case e.AttemptOver():
            return None if state == "storing" else "over"
        case e.SlotLost():
            return None if state == "storing" else "lost"


def _key(fact: Fact) -> str:
    if isinstance(fact.message, e.PolicyAdopted):
        return f"policy/{fact.partition}"
    pool_id: str = fact.message.pool_id
    return pool_id


async def _write(db: Db, changes: _Changes) -> None:
    if changes.waiting:
        gone = [place for place, row in changes.waiting.items() if row is None]
        await put(db, _DELETE_WAITING, [place for place in gone if changes.stood(place)])
        rows = [row for row in changes.waiting.values() if row is not None]
        await put(db, _MERGE_WAITING, rows)
    if changes.slots:
        over = [attempt for attempt, row in changes.slots.items() if row is None]
        await put(db, _DELETE_SLOTS, over)
        slots = [row for row in changes.slots.values() if row is not None]
        await put(db, _MERGE_SLOTS, slots)
    await put(db, _MERGE_RUNNERS, list(changes.runners.values()))
    for lane in changes.lanes.values():
        await db.execute(_MERGE_LANES, *lane)
    for breaker in changes.breakers.values():
        await db.execute(_MERGE_BREAKERS, *breaker)
    for pool in changes.pools.values():
        await db.execute(_MERGE_POOLS, *pool)
    await changes.flow.write(db, Additions(*_ADDITIONS))
