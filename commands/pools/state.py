"""All pools of one partition, in memory: rows as the table has them, and indexes made from them.

`load` takes rows back at recovery, in any order and any number of times. While a command is worked
on every change of a row is noted with what was there before, so that the shell can copy the changed
rows into its transaction (`take_changes`) or undo them all (`rollback`). Indexes are a function of
the rows; nothing else is remembered.
"""

from typing import NamedTuple

from commands.pools.order import FreeSlots, Ranked, Waiting
from commands.pools.rows import (
    HOLDS_SLOT,
    INITIAL,
    LANE_NUMBER,
    LANES,
    POLICY_KEY,
    LeaseRow,
    PolicyRow,
    PoolRow,
    QueuedRow,
    Row,
    RunnerRow,
    Stage,
    lease_key,
    pool_key,
    pool_of,
    queued_key,
    runner_key,
)
from schema.ids import PoolId, RunnerId, TaskId
from schema.policy import LanePolicy, Policy, PoolPolicy
from schema.words import Lane

_NO_LANE = LanePolicy()
_NO_POOL = PoolPolicy(lanes={})


class Depths(NamedTuple):
    """What a pool looks like from outside, for metrics and for the door."""

    waiting: dict[Lane, int]
    oldest_ms: dict[Lane, int]
    """When (served clock) the longest waiting task of a lane came; lanes without one are absent."""
    paused: frozenset[Lane]
    runners: int
    slots: int
    used: int
    stages: dict[Stage, int]

    @property
    def free(self) -> int:
        """Slots that nobody has; below 0 where a runner came back with fewer than it has in use."""
        return self.slots - self.used

    @property
    def running(self) -> int:
        """Attempts that a runner works on."""
        return self.stages[Stage.ACCEPTED] + self.stages[Stage.STORING]


class Yard:
    """The indexes of one pool."""

    __slots__ = (
        "drained",
        "expiry",
        "free",
        "leases",
        "pool_id",
        "runners",
        "slots",
        "stages",
        "used",
        "waiting",
    )

    def __init__(self, state: "PoolState", pool_id: PoolId) -> None:
        def expires(key: str) -> int | None:
            row = state.queued(key)
            return None if row is None or key in state.held else row.expires_ms

        self.pool_id = pool_id
        self.waiting = Waiting(state.queued)
        self.expiry = {lane: Ranked(expires) for lane in LANES}
        self.free = FreeSlots(state.runner, self.used_of)
        self.leases: dict[str, set[str]] = {}
        """Keys of the leases by the key of their runner."""
        self.used: dict[str, int] = {}
        self.drained: set[str] = set()
        """Draining runners that hold nothing any more."""
        self.runners = 0
        self.slots = 0
        self.stages: dict[Stage, int] = dict.fromkeys(Stage, 0)

    def used_of(self, key: str) -> int:
        """How many slots of a runner are taken."""
        return self.used.get(key, 0)

    def leases_of(self, key: str) -> list[str]:
        """The keys of a runner's leases, in a fixed order."""
        return sorted(self.leases.get(key, ()))


class PoolState:
    """The pools of a partition. One writer; `now` of a later step is never earlier."""

    __slots__ = ("_before", "_yards", "accepting", "held", "rows", "timers")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._before: dict[str, Row | None] = {}
        self._yards: dict[PoolId, Yard] = {}
        self.timers = Ranked(self._deadline)
        """Ends of runners' leases and of accept times; ends of waiting stand in the yards."""
        self.accepting = 0
        self.held: frozenset[str] = frozenset()
        """Keys of rows whose deadline is left out: it raised, and waits until it is released."""

    # --- reading ---------------------------------------------------------------------------------

    def pool(self, pool_id: PoolId) -> PoolRow:
        row = self.rows.get(pool_key(pool_id))
        return row if type(row) is PoolRow else INITIAL

    def queued(self, key: str) -> QueuedRow | None:
        row = self.rows.get(key)
        return row if type(row) is QueuedRow else None

    def runner(self, key: str) -> RunnerRow | None:
        row = self.rows.get(key)
        return row if type(row) is RunnerRow else None

    def lease(self, key: str) -> LeaseRow | None:
        row = self.rows.get(key)
        return row if type(row) is LeaseRow else None

    def queued_task(self, pool_id: PoolId, task_id: TaskId) -> QueuedRow | None:
        return self.queued(queued_key(pool_id, task_id))

    def lease_of(self, pool_id: PoolId, task_id: TaskId, token: int) -> LeaseRow | None:
        return self.lease(lease_key(pool_id, task_id, token))

    def runner_of(self, pool_id: PoolId, runner_id: RunnerId) -> RunnerRow | None:
        return self.runner(runner_key(pool_id, runner_id))

    def policy_row(self) -> PolicyRow | None:
        row = self.rows.get(POLICY_KEY)
        return row if type(row) is PolicyRow else None

    def policy(self) -> Policy | None:
        row = self.policy_row()
        return None if row is None else row.policy

    def pool_policy(self, pool_id: PoolId) -> PoolPolicy:
        """The numbers of a pool; defaults for one that the policy does not (or no longer) name."""
        policy = self.policy()
        return _NO_POOL if policy is None else policy.pools.get(pool_id, _NO_POOL)

    def lane_policy(self, pool_id: PoolId, lane: Lane) -> LanePolicy:
        return self.pool_policy(pool_id).lanes.get(lane, _NO_LANE)

    def yard(self, pool_id: PoolId) -> Yard:
        yard = self._yards.get(pool_id)
        if yard is None:
            yard = self._yards[pool_id] = Yard(self, pool_id)
        return yard

    @property
    def pools(self) -> list[PoolId]:
        """The pools that anything is known of, in a fixed order."""
        return sorted(self._yards)

    def due(self, served_ms: int) -> str | None:
        """The key of the row whose deadline passed first (runner, granted lease or queued task)."""
        first = self.timers.first()
        best = first if first is not None and first[0] <= served_ms else None
        for pool_id, yard in self._yards.items():
            pool = self.pool(pool_id)
            for number, lane in enumerate(LANES):
                if not yard.waiting.counts[number] or pool.since_ms[number] is not None:
                    continue
                oldest = yard.expiry[lane].first()
                if oldest is not None:
                    candidate = (oldest[0] + pool.stood_ms[number], oldest[1])
                    if candidate[0] <= served_ms and (best is None or candidate < best):
                        best = candidate
        return None if best is None else best[1]

    def assignable(self, pool_id: PoolId, served_ms: int) -> tuple[str, str] | None:
        """The keys of the waiting task and of the runner that come together next, if any."""
        yard = self.yard(pool_id)
        task = yard.waiting.first(self.pool(pool_id))
        if task is None:
            return None
        runner = yard.free.first(served_ms)
        return None if runner is None else (task, runner)

    def has_more(self, served_ms: int) -> bool:
        """Whether work is left that a further command or tick goes on with at once."""
        return self.due(served_ms) is not None or any(
            self.assignable(pool_id, served_ms) is not None for pool_id in self._yards
        )

    def depths(self, pool_id: PoolId) -> Depths:
        """O(1): how many wait, since when, and how the slots are used."""
        yard = self.yard(pool_id)
        pool = self.pool(pool_id)
        oldest_ms: dict[Lane, int] = {}
        for lane in LANES:
            key = yard.waiting.oldest(lane)
            row = None if key is None else self.queued(key)
            if row is not None:
                oldest_ms[lane] = row.entered_ms
        return Depths(
            waiting=dict(zip(LANES, yard.waiting.counts, strict=True)),
            oldest_ms=oldest_ms,
            paused=frozenset(
                lane
                for lane, since_ms in zip(LANES, pool.since_ms, strict=True)
                if since_ms is not None
            ),
            runners=yard.runners,
            slots=yard.slots,
            used=sum(count for stage, count in yard.stages.items() if stage in HOLDS_SLOT),
            stages=dict(yard.stages),
        )

    # --- recovery and the shell ------------------------------------------------------------------

    def load(self, key: str, row: Row) -> None:
        """A row of the table; the same row again changes nothing."""
        self._set(key, row)

    def forget(self, key: str) -> None:
        """The table has no such row (any more)."""
        self._set(key, None)

    @property
    def changed(self) -> dict[str, Row | None]:
        """What this step changed so far: the new row, or None where it is gone."""
        return {
            key: row
            for key, before in self._before.items()
            if (row := self.rows.get(key)) is not before
        }

    def take_changes(self) -> dict[str, Row | None]:
        """The step is good: its changed rows, for the transaction. A new step begins."""
        changed = self.changed
        self._before.clear()
        return changed

    def rollback(self) -> None:
        """The step is poison: everything is as it was before it. A new step begins."""
        for key, row in self._before.items():
            self._set(key, row)
        self._before.clear()

    def hold(self, held: frozenset[str]) -> None:
        """The deadlines of these rows, and of no others, are left out from now on."""
        freed, self.held = self.held - held, held
        for key in sorted(freed):
            row = self.rows.get(key)
            if type(row) is QueuedRow:
                yard = self.yard(pool_of(key))
                live = yard.waiting.counts[LANE_NUMBER[row.lane]]
                yard.expiry[row.lane].push(row.expires_ms, key, live)
            elif (deadline := self._deadline(key)) is not None:
                self.timers.push(deadline, key, self._timed())

    # --- writing, by `evolve` only ---------------------------------------------------------------

    def put(self, key: str, row: Row) -> None:
        self._before.setdefault(key, self.rows.get(key))
        self._set(key, row)

    def delete(self, key: str) -> None:
        self._before.setdefault(key, self.rows.get(key))
        self._set(key, None)

    # --- indexes ---------------------------------------------------------------------------------

    def _set(self, key: str, row: Row | None) -> None:
        old = self.rows.get(key)
        if row is None:
            if old is None:
                return
            del self.rows[key]
        else:
            if row == old:
                return
            self.rows[key] = row
        kind = type(old if row is None else row)
        if kind is QueuedRow:
            self._index_queued(key, old, row)
        elif kind is LeaseRow:
            self._index_lease(key, old, row)
        elif kind is RunnerRow:
            self._index_runner(key, old, row)
        elif kind is PoolRow:
            self.yard(pool_of(key))

    def _index_queued(self, key: str, old: Row | None, row: Row | None) -> None:
        yard = self.yard(pool_of(key))
        if type(old) is QueuedRow:
            yard.waiting.remove(old)
        if type(row) is QueuedRow:
            yard.waiting.add(key, row)
            live = yard.waiting.counts[LANE_NUMBER[row.lane]]
            yard.expiry[row.lane].push(row.expires_ms, key, live)

    def _index_lease(self, key: str, old: Row | None, row: Row | None) -> None:
        yard = self.yard(pool_of(key))
        runner: str | None = None
        used = 0
        if type(old) is LeaseRow:
            runner = runner_key(yard.pool_id, old.runner_id)
            yard.stages[old.stage] -= 1
            self.accepting -= old.stage is Stage.GRANTED
            used -= old.stage in HOLDS_SLOT
        if type(row) is LeaseRow:
            runner = runner_key(yard.pool_id, row.runner_id)
            yard.stages[row.stage] += 1
            used += row.stage in HOLDS_SLOT
            if row.stage is Stage.GRANTED:
                self.accepting += 1
                self.timers.push(row.accept_until_ms, key, self._timed())
        if runner is None:
            return
        if row is None:
            held = yard.leases[runner]
            held.discard(key)
            if not held:
                del yard.leases[runner]
        elif old is None:
            yard.leases.setdefault(runner, set()).add(key)
        if used or row is None or old is None:
            self._recount(yard, runner, used)

    def _recount(self, yard: Yard, runner: str, used: int) -> None:
        """A runner's use of its slots changed by `used`, or it holds a lease more or less."""
        count = yard.used.get(runner, 0) + used
        if count:
            yard.used[runner] = count
        else:
            yard.used.pop(runner, None)
        yard.free.changed(runner, yard.runners)
        self._look_drained(yard, runner)

    def _index_runner(self, key: str, old: Row | None, row: Row | None) -> None:
        yard = self.yard(pool_of(key))
        if type(old) is RunnerRow:
            yard.runners -= 1
            yard.slots -= old.slots
        if type(row) is RunnerRow:
            yard.runners += 1
            yard.slots += row.slots
            self.timers.push(row.lease_until_ms, key, self._timed())
        yard.free.changed(key, yard.runners)
        self._look_drained(yard, key)

    def _look_drained(self, yard: Yard, key: str) -> None:
        row = self.runner(key)
        if row is not None and row.draining and key not in yard.leases:
            yard.drained.add(key)
        else:
            yard.drained.discard(key)

    def _timed(self) -> int:
        """How many rows have a deadline in `timers`."""
        return self.accepting + sum(yard.runners for yard in self._yards.values())

    def _deadline(self, key: str) -> int | None:
        if key in self.held:
            return None
        row = self.rows.get(key)
        if type(row) is RunnerRow:
            return row.lease_until_ms
        if type(row) is LeaseRow and row.stage is Stage.GRANTED:
            return row.accept_until_ms
        return None
