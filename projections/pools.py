"""Pools: who waits, which slots are taken by what, runners and paused lanes, from `pool-events`.

Slots and runners of all pools are few and stay in memory; what waits may be many and does not.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from projections.folding import Db, Fact, Seqs, copy
from schema import events as e
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "pools.sql").read_text().split("\n-- ;;\n")
(
    _STAGE,
    _LAST_SEQS,
    _DELETE_WAITING,
    _MERGE_WAITING,
    _DELETE_SLOTS,
    _MERGE_SLOTS,
    _MERGE_RUNNERS,
    _MERGE_LANES,
    _MERGE_POOLS,
    _MERGE_SEQS,
) = _SQL


class _Waiting(NamedTuple):
    pool_id: str
    task_id: str
    token: int
    lane: str
    account_id: str
    scene: str
    enqueued_at: datetime


class _Slot(NamedTuple):
    pool_id: str
    task_id: str
    token: int
    runner_id: str
    incarnation_id: str
    state: str
    since: datetime


class _Runner(NamedTuple):
    pool_id: str
    runner_id: str
    incarnation_id: str
    slots: int
    state: str
    beat: int
    registered_at: datetime
    beat_at: datetime


class _Lane(NamedTuple):
    pool_id: str
    lane: str
    paused: bool
    who: str
    why: str
    since: datetime


_Place = tuple[str, str]
_Attempt = tuple[str, str, int]


class _Changes:
    """What a batch does. None: the row is gone."""

    def __init__(self) -> None:
        self.waiting: dict[_Place, _Waiting | None] = {}
        self.slots: dict[_Attempt, _Slot | None] = {}
        self.runners: dict[_Place, _Runner] = {}
        self.lanes: dict[_Place, _Lane] = {}
        self.pools: dict[str, tuple[str, int, datetime]] = {}


class Pools:
    """The fold of `pool-events`."""

    name: ClassVar[str] = "pools"
    topic: ClassVar[Topic] = Topic.POOL_EVENTS
    tables: ClassVar[tuple[str, ...]] = (
        "pools",
        "pool_lanes",
        "pool_waiting",
        "pool_slots",
        "runners",
    )

    def __init__(self) -> None:
        self._seqs = Seqs()
        self._slots: dict[_Attempt, _Slot] = {}
        self._runners: dict[_Place, _Runner] = {}
        self._loaded = False

    async def prepare(self, db: Db) -> None:
        await db.execute(_STAGE)

    def forget(self) -> None:
        self._seqs.forget()
        self._loaded = False

    async def _load(self, db: Db) -> None:
        columns = ", ".join(_Slot._fields)
        slots = [_Slot(*row) for row in await db.fetch(f"SELECT {columns} FROM pool_slots")]  # noqa: S608 - our own names
        self._slots = {(slot.pool_id, slot.task_id, slot.token): slot for slot in slots}
        columns = ", ".join(_Runner._fields)
        runners = [_Runner(*row) for row in await db.fetch(f"SELECT {columns} FROM runners")]  # noqa: S608
        self._runners = {(runner.pool_id, runner.runner_id): runner for runner in runners}
        self._loaded = True

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """What these events leave behind; what came and went within the batch is not written."""
        if not self._loaded:
            await self._load(db)
        unknown = self._seqs.unknown(_key(fact) for fact in facts)
        if unknown:
            found = await db.fetch(_LAST_SEQS, unknown, self.topic.value)
            self._seqs.learn(unknown, {row["key"]: row["seq"] for row in found})
        changes = _Changes()
        for fact in facts:
            event = fact.message
            if not self._seqs.is_next(fact, _key(fact), event.seq):
                continue
            if isinstance(event, e.PolicyAdopted):
                await db.execute(_MERGE_SEQS, fact.topic, _key(fact), event.seq)
                continue
            changes.pools[event.pool_id] = (event.pool_id, event.seq, event.at)
            _FOLDS[type(event)](self, changes, event)
        await _write(db, changes)

    # --- what each event changes -----------------------------------------------------------------

    def enqueued(self, changes: _Changes, event: e.TaskEnqueued) -> None:
        changes.waiting[event.pool_id, event.task_id] = _Waiting(
            event.pool_id,
            event.task_id,
            event.token,
            event.lane,
            event.account_id,
            event.scene,
            event.at,
        )

    def dequeued(self, changes: _Changes, event: e.TaskDequeued) -> None:
        changes.waiting[event.pool_id, event.task_id] = None

    def proposed(self, changes: _Changes, event: e.SlotProposed) -> None:
        changes.waiting[event.pool_id, event.task_id] = None
        slot = _Slot(
            event.pool_id,
            event.task_id,
            event.token,
            event.runner_id,
            event.incarnation_id,
            "proposed",
            event.at,
        )
        self._put(changes, slot)

    def _put(self, changes: _Changes, slot: _Slot) -> None:
        attempt = (slot.pool_id, slot.task_id, slot.token)
        self._slots[attempt] = changes.slots[attempt] = slot

    def moved(self, changes: _Changes, event: "_OfAttempt") -> None:
        """An attempt goes to another stage, or its slot is over."""
        attempt = (event.pool_id, event.task_id, event.token)
        slot = self._slots.get(attempt)
        if slot is None:
            return
        state = _after(slot.state, event)
        if state is None:
            del self._slots[attempt]
            changes.slots[attempt] = None
        else:
            self._put(changes, slot._replace(state=state, since=event.at))

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
        )
        self._runners[place] = changes.runners[place] = runner

    def draining(self, changes: _Changes, event: e.RunnerDraining) -> None:
        self._change_runner(changes, event.pool_id, event.runner_id, state="draining")

    def gone(self, changes: _Changes, event: e.RunnerGone) -> None:
        """Its slots go with it."""
        self._change_runner(changes, event.pool_id, event.runner_id, state="gone")
        for attempt, slot in list(self._slots.items()):
            if (slot.pool_id, slot.runner_id) == (event.pool_id, event.runner_id):
                del self._slots[attempt]
                changes.slots[attempt] = None

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
        place = (pool_id, runner_id)
        runner = self._runners[place]._replace(**fields)
        self._runners[place] = changes.runners[place] = runner

    def lane_paused(self, changes: _Changes, event: e.LanePaused) -> None:
        lane = _Lane(event.pool_id, event.lane, True, event.who, event.why, event.at)  # noqa: FBT003
        changes.lanes[event.pool_id, event.lane] = lane

    def lane_resumed(self, changes: _Changes, event: e.LaneResumed) -> None:
        lane = _Lane(event.pool_id, event.lane, False, event.who, event.why, event.at)  # noqa: FBT003
        changes.lanes[event.pool_id, event.lane] = lane


_OfAttempt = (
    e.SlotGranted | e.SlotRefused | e.AttemptAccepted | e.AttemptOver | e.SlotFreed | e.SlotLost
)
_Event = Any
_FOLDS: Final[dict[type, Callable[[Pools, _Changes, _Event], None]]] = {
    e.TaskEnqueued: Pools.enqueued,
    e.TaskDequeued: Pools.dequeued,
    e.SlotProposed: Pools.proposed,
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
}


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
        if gone:
            pools, tasks = zip(*gone, strict=True)
            await db.execute(_DELETE_WAITING, list(pools), list(tasks))
        rows = [row for row in changes.waiting.values() if row is not None]
        if rows:
            await copy(db, "fold_pool_waiting", _Waiting._fields, rows)
            await db.execute(_MERGE_WAITING)
    if changes.slots:
        over = [attempt for attempt, row in changes.slots.items() if row is None]
        if over:
            pools, tasks, tokens = zip(*over, strict=True)
            await db.execute(_DELETE_SLOTS, list(pools), list(tasks), list(tokens))
        slots = [row for row in changes.slots.values() if row is not None]
        if slots:
            await copy(db, "fold_pool_slots", _Slot._fields, slots)
            await db.execute(_MERGE_SLOTS)
    if changes.runners:
        await copy(db, "fold_runners", _Runner._fields, list(changes.runners.values()))
        await db.execute(_MERGE_RUNNERS)
    for lane in changes.lanes.values():
        await db.execute(_MERGE_LANES, *lane)
    for pool in changes.pools.values():
        await db.execute(_MERGE_POOLS, *pool)
