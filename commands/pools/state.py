"""All pools of one partition, in memory: rows as the table has them, and indexes made from them.

`load` takes rows back at recovery, in any order and any number of times. While a command is worked
on every change of a row is noted with what was there before, so that the shell can copy the changed
rows into its transaction (`take_changes`) or undo them all (`rollback`). Indexes are a function of
the rows; nothing else is remembered.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from commands.pools import gates, moves
from commands.pools.order import FreeSlots, Terms, Waiting
from commands.pools.preempting import Contest
from commands.pools.ranked import Ranked
from commands.pools.rows import (
    HOLDS_SLOT,
    INITIAL,
    LANE_NUMBER,
    LANES,
    LIVE,
    BreakerRow,
    BreakerState,
    LeaseRow,
    PolicyRow,
    PoolRow,
    QueuedRow,
    Row,
    RunnerRow,
    ScaleRow,
    ShareRow,
    Stage,
    WaitsRow,
    breaker_key,
    lease_key,
    pool_key,
    pool_of,
    queued_key,
    runner_key,
    scale_key,
    share_key,
    waits_key,
)
from commands.pools.shares import Share, floor
from schema.ids import AccountId, PoolId, RunnerId, TaskId
from schema.policy import LanePolicy, Policy, PoolPolicy
from schema.words import Lane, Scene

Counted = TypeVar("Counted", bound=str)

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
        "accounts",
        "contest",
        "drained",
        "expiry",
        "free",
        "fresh",
        "leases",
        "little",
        "models",
        "over",
        "pool_id",
        "probes",
        "runners",
        "shares",
        "slots",
        "stages",
        "touched",
        "used",
        "waiting",
    )

    def __init__(self, state: "PoolState", pool_id: PoolId) -> None:
        def expires_in(lane: Lane) -> Callable[[str], int | None]:
            def expires(key: str) -> int | None:
                row = state.queued(key)
                if row is None or row.lane is not lane or key in state.held:
                    return None
                return row.expires_ms

            return expires

        def share_of(lane: Lane, account_id: AccountId) -> tuple[int, int]:
            row = state.share(share_key(pool_id, lane, account_id))
            return (0, 0) if row is None else Share(row.epoch, row.value).place

        def touched_ms(key: str) -> int | None:
            row = state.share(key)
            return None if row is None else row.touched_ms

        self.pool_id = pool_id
        self.accounts: dict[AccountId, int] = {}
        """How many slots an account has."""
        self.over: set[AccountId] = set()
        """Accounts that have all that they may have while others wait."""
        self.models: dict[str, int] = {}
        """How many slots attempts of a model have."""
        self.touched: Ranked[int, str] = Ranked(touched_ms)
        """Rows of shares, by their last change."""
        self.shares = 0
        self.little = _what_is_little(state, pool_id)
        """Expected time of a task and half-life: what an account that had little has had."""

        def floor_of(at_ms: int) -> tuple[int, int]:
            expected_ms, half_life_ms = self.little
            return floor(expected_ms, at_ms, half_life_ms)

        self.waiting = Waiting(state.queued, share_of, self.over.__contains__, floor_of)
        if state.policy() is not None:
            self.waiting.cap(state.pool_policy(pool_id).model_caps)
        self.expiry: dict[Lane, Ranked[int, str]] = {
            lane: Ranked(expires_in(lane)) for lane in LANES
        }
        self.free = FreeSlots(state.runner, self.used_of)
        self.leases: dict[str, set[str]] = {}
        """Keys of the leases by the key of their runner."""
        self.used: dict[str, int] = {}
        self.drained: set[str] = set()
        """Draining runners that hold nothing any more."""
        self.runners = 0
        self.fresh: dict[str, int] = {}
        """Runners that do not drain, and until when each counts as alive without a beat."""
        self.slots = 0
        self.stages: dict[Stage, int] = dict.fromkeys(Stage, 0)
        self.contest = Contest(state, pool_id)
        self.probes: dict[tuple[Scene, int], int] = {}
        """Live attempts that a half-open breaker let through, by scene and its opening."""

    def used_of(self, key: str) -> int:
        """How many slots of a runner are taken."""
        return self.used.get(key, 0)

    def leases_of(self, key: str) -> list[str]:
        """The keys of a runner's leases, in a fixed order."""
        return sorted(self.leases.get(key, ()))


class PoolState:
    """The pools of a partition. One writer; `now` of a later step is never earlier."""

    __slots__ = (
        "_adopted",
        "_before",
        "_yards",
        "accepting",
        "held",
        "rows",
        "runners",
        "timers",
        "waking",
        "yielding",
    )

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._before: dict[str, Row | None] = {}
        self._adopted: PolicyRow | None = None
        """The row of the policy: nothing is asked for as often."""
        self._yards: dict[PoolId, Yard] = {}
        self.runners = 0
        self.timers: Ranked[int, str] = Ranked(self._deadline)
        """Ends of leases, of accept and yield times and of open breakers; those of waiting stand
        in the yards."""
        self.accepting = 0
        self.yielding = 0
        """Attempts that are asked to give their slot up."""
        self.waking = 0
        """Breakers that are open."""
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

    def breaker(self, pool_id: PoolId, scene: Scene) -> BreakerRow | None:
        row = self.rows.get(breaker_key(pool_id, scene))
        return row if type(row) is BreakerRow else None

    def share(self, key: str) -> ShareRow | None:
        row = self.rows.get(key)
        return row if type(row) is ShareRow else None

    def waits(self, pool_id: PoolId) -> WaitsRow | None:
        row = self.rows.get(waits_key(pool_id))
        return row if type(row) is WaitsRow else None

    def scale(self, pool_id: PoolId) -> ScaleRow | None:
        row = self.rows.get(scale_key(pool_id))
        return row if type(row) is ScaleRow else None

    def cards(self, pool_id: PoolId, served_ms: int) -> int:
        """Runners that get new work: they do not drain and were heard of lately."""
        return sum(served_ms < until_ms for until_ms in self.yard(pool_id).fresh.values())

    def queued_task(self, pool_id: PoolId, task_id: TaskId) -> QueuedRow | None:
        return self.queued(queued_key(pool_id, task_id))

    def lease_of(self, pool_id: PoolId, task_id: TaskId, token: int) -> LeaseRow | None:
        return self.lease(lease_key(pool_id, task_id, token))

    def runner_of(self, pool_id: PoolId, runner_id: RunnerId) -> RunnerRow | None:
        return self.runner(runner_key(pool_id, runner_id))

    def policy_row(self) -> PolicyRow | None:
        return self._adopted

    def policy(self) -> Policy | None:
        row = self._adopted
        return None if row is None else row.policy

    def pool_policy(self, pool_id: PoolId) -> PoolPolicy:
        """The numbers of a pool; defaults for one that the policy does not (or no longer) name."""
        row = self._adopted
        return _NO_POOL if row is None else row.policy.pools.get(pool_id, _NO_POOL)

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
        """The key of the row (runner, lease, breaker, queued task) whose deadline passed first."""
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
        if not any(yard.waiting.counts):
            return None
        runner = yard.free.first(served_ms)
        if runner is None:
            return None
        task = self.next_task(pool_id, served_ms)
        return None if task is None else (task, runner)

    def next_task(self, pool_id: PoolId, served_ms: int) -> str | None:
        """The key of the waiting task that gets the next slot, if any may start."""
        waiting = self.yard(pool_id).waiting
        return waiting.first(self.pool(pool_id), self._terms(pool_id, served_ms))

    def _terms(self, pool_id: PoolId, served_ms: int) -> Terms:
        policy = self.pool_policy(pool_id)
        p0, p1, p2 = (policy.lanes.get(lane, _NO_LANE).floor_picks for lane in LANES)
        return Terms(
            is_open=gates.gate(self, pool_id, policy),
            any_over=bool(self.yard(pool_id).over),
            floors=(p0, p1, p2),
            served_ms=served_ms,
            near_ms=policy.expected_seconds * 1000,
        )

    def has_more(self, served_ms: int) -> bool:
        """Whether work is left that a further command or tick goes on with at once."""
        return self.due(served_ms) is not None or any(
            self.assignable(pool_id, served_ms) is not None or moves.pending(self, pool_id)
            for pool_id in self._yards
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

    def _set(self, key: str, row: Row | None) -> None:  # noqa: PLR0912 - a branch for each kind
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
        if kind is PoolRow and old is not None:
            pass  # nothing is sorted by it, and each event changes one
        elif kind is QueuedRow:
            self._index_queued(key, old, row)
        elif kind is LeaseRow:
            self._index_lease(key, old, row)
        elif kind is RunnerRow:
            self._index_runner(key, old, row)
        elif kind is ShareRow:
            self._index_share(key, old, row)
        elif kind is BreakerRow:
            self._index_breaker(key, old, row)
        elif kind is PolicyRow:
            self._adopted = row if type(row) is PolicyRow else None
            for yard in self._yards.values():
                self._look_again(yard)
        else:  # nothing is sorted by it, but the pool is known from here on
            self.yard(pool_of(key))

    def _look_again(self, yard: Yard) -> None:
        """The policy is another one."""
        self._look_over(yard)
        little = _what_is_little(self, yard.pool_id)
        if little != yard.little:
            yard.little = little
            yard.waiting.rank_all_again()
        if yard.waiting.cap(self.pool_policy(yard.pool_id).model_caps):
            yard.contest.seek_anew(yard.waiting.keys(Lane.P0))
        yard.contest.look_again(key for held in yard.leases.values() for key in held)

    def _index_queued(self, key: str, old: Row | None, row: Row | None) -> None:
        yard = self.yard(pool_of(key))
        if type(old) is QueuedRow and type(row) is QueuedRow and old.arrival == row.arrival:
            yard.waiting.marked(key, row)  # asked to move: it waits where it waited
            return
        if type(old) is QueuedRow:
            yard.waiting.remove(old)
        if type(row) is QueuedRow:
            yard.waiting.add(key, row)
            live = yard.waiting.counts[LANE_NUMBER[row.lane]]
            yard.expiry[row.lane].push(row.expires_ms, key, live)
            yard.contest.queued_changed(key, row)

    def _index_lease(self, key: str, old: Row | None, row: Row | None) -> None:
        yard = self.yard(pool_of(key))
        if type(old) is LeaseRow and type(row) is LeaseRow and _stands_as(old, row):
            yard.contest.lease_changed(key, old, row)
            return
        runner: str | None = None
        used = 0
        if type(old) is LeaseRow:
            runner = runner_key(yard.pool_id, old.runner_id)
            yard.stages[old.stage] -= 1
            self.accepting -= old.stage is Stage.GRANTED
            self.yielding -= old.yields
            used -= old.stage in HOLDS_SLOT
        if type(row) is LeaseRow:
            runner = runner_key(yard.pool_id, row.runner_id)
            yard.stages[row.stage] += 1
            used += row.stage in HOLDS_SLOT
            if row.stage is Stage.GRANTED:
                self.accepting += 1
                self.timers.push(row.accept_until_ms, key, self._timed())
            elif row.yields:
                self.yielding += 1
                self.timers.push(row.yield_until_ms, key, self._timed())
        if runner is None:
            return
        self._index_probe(yard, old, row)
        if used:
            self._hold(yard, row if type(row) is LeaseRow else old, used)
        if row is None:
            held = yard.leases[runner]
            held.discard(key)
            if not held:
                del yard.leases[runner]
        elif old is None:
            yard.leases.setdefault(runner, set()).add(key)
        if used or row is None or old is None:
            self._recount(yard, runner, used)
        yard.contest.lease_changed(
            key, old if type(old) is LeaseRow else None, row if type(row) is LeaseRow else None
        )

    def _index_probe(self, yard: Yard, old: Row | None, row: Row | None) -> None:
        for one, change in ((old, -1), (row, 1)):
            if type(one) is LeaseRow and one.probe and one.scene and one.stage in LIVE:
                probe = (one.scene, one.probe)
                count = yard.probes.get(probe, 0) + change
                if count:
                    yard.probes[probe] = count
                else:
                    yard.probes.pop(probe, None)

    def _index_breaker(self, key: str, old: Row | None, row: Row | None) -> None:
        self.yard(pool_of(key))
        self.waking -= type(old) is BreakerRow and old.state is BreakerState.OPEN
        if type(row) is BreakerRow and row.state is BreakerState.OPEN:
            self.waking += 1
            self.timers.push(row.until_ms, key, self._timed())

    def _hold(self, yard: Yard, row: Row | None, slots: int) -> None:
        """An attempt has, or gave back, a slot: so has its model, and its account."""
        if type(row) is not LeaseRow:
            return
        if row.model:
            _add(yard.models, row.model, slots)
        if row.account_id is not None:
            _add(yard.accounts, row.account_id, slots)
            self._look_over(yard, row.account_id)

    def _look_over(self, yard: Yard, account_id: AccountId | None = None) -> None:
        """Who has all that he may have, now that slots of his (or of the pool) changed."""
        most = gates.slots_of_one(self.pool_policy(yard.pool_id), yard.slots)
        if account_id is None:
            if most is None and not yard.over:
                return
            accounts = sorted({*yard.accounts, *yard.over})
        else:
            accounts = [account_id]
        for one in accounts:
            over = most is not None and yard.accounts.get(one, 0) >= most
            if over != (one in yard.over):
                (yard.over.add if over else yard.over.discard)(one)
                yard.waiting.changed(one)

    def _index_share(self, key: str, old: Row | None, row: Row | None) -> None:
        _, pool_id, lane, account_id = key.split("/", 3)
        yard = self.yard(PoolId(pool_id))
        yard.shares += (row is not None) - (old is not None)
        if type(row) is ShareRow:
            yard.touched.push(row.touched_ms, key, yard.shares)
        yard.waiting.changed(AccountId(account_id), (Lane(lane),))

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
            self.runners -= 1
            yard.runners -= 1
            yard.slots -= old.slots
        if type(row) is RunnerRow:
            self.runners += 1
            yard.runners += 1
            yard.slots += row.slots
            self.timers.push(row.lease_until_ms, key, self._timed())
        if type(row) is RunnerRow and not row.draining:
            yard.fresh[key] = row.fresh_until_ms
        else:
            yard.fresh.pop(key, None)
        yard.contest.runner_changed(key, new=_as_card(old) != _as_card(row))
        yard.free.changed(key, yard.runners)
        self._look_drained(yard, key)
        if type(old) is not RunnerRow or type(row) is not RunnerRow or old.slots != row.slots:
            self._look_over(yard)

    def _look_drained(self, yard: Yard, key: str) -> None:
        row = self.runner(key)
        if row is not None and row.draining and key not in yard.leases:
            yard.drained.add(key)
        else:
            yard.drained.discard(key)

    def _timed(self) -> int:
        """How many rows have a deadline in `timers`."""
        return self.accepting + self.yielding + self.waking + self.runners

    def _deadline(self, key: str) -> int | None:
        if key in self.held:
            return None
        row = self.rows.get(key)
        if type(row) is RunnerRow:
            return row.lease_until_ms
        if type(row) is LeaseRow and row.stage is Stage.GRANTED:
            return row.accept_until_ms
        if type(row) is LeaseRow and row.yields:
            return row.yield_until_ms
        if type(row) is BreakerRow and row.state is BreakerState.OPEN:
            return row.until_ms
        return None


def _as_card(row: Row | None) -> tuple[bool, bool] | None:
    """What of a runner says who gives way on it; None: it is not there."""
    return (row.spot, row.draining) if type(row) is RunnerRow else None


def _stands_as(old: LeaseRow, row: LeaseRow) -> bool:
    """Whether only what victims are chosen by is another: a beat told of unsaved work."""
    return (
        old.stage is row.stage
        and old.runner_id == row.runner_id
        and old.accept_until_ms == row.accept_until_ms
        and old.yield_until_ms == row.yield_until_ms
        and (old.scene, old.probe, old.model) == (row.scene, row.probe, row.model)
        and old.account_id == row.account_id
    )


def _what_is_little(state: PoolState, pool_id: PoolId) -> tuple[int, int]:
    policy = state.pool_policy(pool_id)
    return policy.expected_seconds * 1000, policy.half_life_seconds * 1000


def _add(counts: dict[Counted, int], name: Counted, more: int) -> None:
    count = counts.get(name, 0) + more
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)
