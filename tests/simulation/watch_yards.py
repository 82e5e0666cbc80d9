"""Book of the pools: used + free = slots, one lease an attempt, none taken from one who lives."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from commands.pools.rows import LeaseRow, QueuedRow, RunnerRow
from schema.topics import Topic
from tests.simulation import policy
from tests.simulation.watch_tasks import log_ms

if TYPE_CHECKING:
    from tests.simulation.watch import Watch

Json = dict[str, Any]
Attempt = tuple[str, int]
_OF_NO_ATTEMPT = {
    "pool.lane_paused.v1",
    "pool.lane_resumed.v1",
    "pool.breaker_opened.v1",
    "pool.breaker_half_opened.v1",
    "pool.breaker_closed.v1",
    "pool.scaled.v1",
    "pool.preempted.v1",
}
_LIVE = {"proposed", "granted", "accepted", "storing"}


@dataclass(slots=True)
class Lease:
    runner: tuple[str, str]
    stage: str = "proposed"
    granted_at: int = 0


@dataclass(slots=True)
class Runner:
    incarnation: str
    slots: int
    since: int
    """Log time of its last sign of life."""
    draining: bool = False


@dataclass(slots=True)
class Yard:
    partition: int
    runners: dict[str, Runner] = field(default_factory=dict[str, Runner])
    leases: dict[Attempt, Lease] = field(default_factory=dict[Attempt, Lease])
    queued: dict[str, tuple[int, str, int]] = field(default_factory=dict[str, tuple[int, str, int]])

    @property
    def used(self) -> int:
        return sum(lease.stage != "storing" for lease in self.leases.values())


class Yards:
    def __init__(self, watch: "Watch", partitions: int) -> None:
        self._watch = watch
        self._partitions = partitions
        self.yards: dict[str, Yard] = {}
        self._proposed: set[tuple[str, Attempt]] = set()
        self._asked_to_move: set[Attempt] = set()
        self.at_work: Callable[[str, str, int], bool] = lambda _incarnation, _task, _token: False
        """Whether an incarnation works on an attempt at this very instant; the fleet says."""

    def follow(self, partition: int, event: Json) -> None:
        yard = self.yards.setdefault(event["pool_id"], Yard(partition))
        kind, at = event["type"], log_ms(event["at"])
        attempt = (event.get("task_id", ""), event.get("token", 0))
        if kind.startswith("pool.runner_") or kind == "pool.leases_extended.v1":
            self._runner(yard, event, at)
        elif kind == "pool.enqueued.v1":
            yard.queued[attempt[0]] = (attempt[1], event["lane"], at)
            # A task that asked again waits anew, where its pool has lost the runner it was given.
            self._proposed.discard((event["pool_id"], (attempt[0], attempt[1] + 1)))
        elif kind == "pool.dequeued.v1":
            self._dequeued(yard, event, at)
        elif kind == "pool.proposed.v1":
            self._propose(yard, attempt, event)
        elif kind == "pool.move_asked.v1":
            self._asked(yard, attempt, event)
        elif kind in _OF_NO_ATTEMPT:
            pass
        else:
            self._moved(yard, attempt, event, at)

    def _runner(self, yard: Yard, event: Json, at: int) -> None:
        demand = self._watch.demand
        match event["type"]:
            case "pool.runner_registered.v1":
                demand(event["runner_id"] not in yard.runners, f"{event}: registered over another")
                yard.runners[event["runner_id"]] = Runner(
                    event["incarnation_id"], event["slots"], at
                )
            case "pool.runner_draining.v1":
                yard.runners[event["runner_id"]].draining = True
            case "pool.leases_extended.v1":
                for one in event["runners"]:
                    yard.runners[one["runner_id"]].since = at
            case _:
                self._gone(yard, event, at)

    def _gone(self, yard: Yard, event: Json, at: int) -> None:
        runner = yard.runners.pop(event["runner_id"])
        who = (event["runner_id"], event["incarnation_id"])
        held = [attempt for attempt, lease in yard.leases.items() if lease.runner == who]
        if event["event_id"].startswith("tick-") and not (runner.draining and not held):
            self._not_before(yard, runner.since, at, policy.LEASE_SECONDS * 1000, f"lease of {who}")
            for task, token in held:
                self._watch.demand(
                    not self.at_work(who[1], task, token),
                    f"{who} works on {task} {token}, though its lease has ended",
                )
        for attempt in held:
            del yard.leases[attempt]

    def _dequeued(self, yard: Yard, event: Json, at: int) -> None:
        _, lane, since = yard.queued.pop(event["task_id"])
        if event.get("expired"):
            ttl_ms = policy.TTL_SECONDS[lane] * 1000  # type: ignore[index]
            self._not_before(yard, since, at, ttl_ms, f"wait of {event['task_id']}")

    def _asked(self, yard: Yard, attempt: Attempt, event: Json) -> None:
        demand = self._watch.demand
        token, _, _ = yard.queued.get(attempt[0], (-1, "", 0))
        demand(token == attempt[1], f"{attempt}: asked to move, waiting with token {token}")
        demand(attempt not in self._asked_to_move, f"{attempt}: asked to move twice")
        self._asked_to_move.add(attempt)
        demand(
            (event["to_pool_id"], event["to_lane"])
            != (event["pool_id"], yard.queued[attempt[0]][1])
            or event.get("to_lower_spec", False),
            f"{attempt}: asked to move to where it is",
        )

    def _propose(self, yard: Yard, attempt: Attempt, event: Json) -> None:
        demand = self._watch.demand
        who = (event["runner_id"], event["incarnation_id"])
        here = (event["pool_id"], attempt)  # a task that moves may be proposed by both pools
        demand(here not in self._proposed, f"{here}: proposed twice")
        self._proposed.add(here)
        token, _, _ = yard.queued.pop(attempt[0], (-1, "", 0))
        demand(token + 1 == attempt[1], f"{attempt}: proposed, waiting with token {token}")
        live = [
            one
            for one, lease in yard.leases.items()
            if one[0] == attempt[0] and lease.stage in _LIVE
        ]
        demand(not live, f"{attempt}: proposed while {live} is leased")
        yard.leases[attempt] = Lease(who)
        runner = yard.runners.get(event["runner_id"])
        used = sum(one.runner == who and one.stage != "storing" for one in yard.leases.values())
        demand(
            runner is not None
            and runner.incarnation == who[1]
            and not runner.draining
            and used <= runner.slots,
            f"{attempt}: {used} slots of {who}, known is {runner}",
        )

    def _moved(self, yard: Yard, attempt: Attempt, event: Json, at: int) -> None:
        lease, kind = yard.leases.get(attempt), event["type"]
        if lease is None:
            self._watch.demand(holds=False, words=f"{attempt}: {kind} without a lease")
            return
        match kind:
            case "pool.granted.v1":
                lease.stage, lease.granted_at = "granted", at
            case "pool.accepted.v1":
                lease.stage = "accepted"
            case "pool.refused.v1":
                del yard.leases[attempt]
            case "pool.freed.v1" if lease.stage in _LIVE:
                lease.stage = "storing"
            case "pool.over.v1" | "pool.lost.v1" if lease.stage != "storing":
                if kind == "pool.lost.v1":
                    self._lost(yard, attempt, lease, event, at)
                lease.stage = "over"
            case _:
                del yard.leases[attempt]

    def _lost(self, yard: Yard, attempt: Attempt, lease: Lease, event: Json, at: int) -> None:
        if event["cause"] == "not_accepted":
            wait_ms = policy.ACCEPT_SECONDS * 1000
            self._not_before(yard, lease.granted_at, at, wait_ms, f"acceptance of {attempt}")
        if event["cause"] == "lease_expired":
            self._watch.demand(
                not self.at_work(lease.runner[1], *attempt),
                f"{attempt} is taken from {lease.runner}, which works on it under its lease",
            )

    def _not_before(self, yard: Yard, since: int, at: int, wait_ms: int, what: str) -> None:
        most = self._watch.served[Topic.POOL_COMMANDS.value, yard.partition].between(since, at)
        self._watch.demand(most >= wait_ms, f"{what}: ended after {most} of {wait_ms} served ms")

    # --- memory and rows -------------------------------------------------------------------------

    def compare(self, number: int, state: Any) -> None:  # noqa: ANN401 - commands.pools.PoolState
        """Used + free = slots, in memory as in the events, after every transaction."""
        for pool_id, yard in self.yards.items():
            if yard.partition != number:
                continue
            depths = state.depths(pool_id)
            slots = sum(runner.slots for runner in yard.runners.values())
            found = (depths.slots, depths.used, depths.free, sum(depths.waiting.values()))
            told = (slots, yard.used, slots - yard.used, len(yard.queued))
            self._watch.demand(
                found == told and depths.free >= 0,
                f"pool {pool_id}: slots, used, free, waiting {found} in memory, {told} by events",
            )

    def audit(self, number: int, rows: dict[str, Any]) -> None:
        """Rows of one partition: exactly the runners, leases and waiting tasks of the events."""
        found: Counter[str] = Counter()
        for row in rows.values():
            if isinstance(row, RunnerRow | LeaseRow | QueuedRow):
                found[type(row).__name__] += 1
        told: Counter[str] = Counter()
        for yard in self.yards.values():
            if yard.partition == number:
                told["RunnerRow"] += len(yard.runners)
                told["LeaseRow"] += len(yard.leases)
                told["QueuedRow"] += len(yard.queued)
        self._watch.demand(+found == +told, f"partition {number}: rows {found}, by events {told}")

    def close(self) -> None:
        for pool_id, yard in self.yards.items():
            self._watch.demand(not yard.leases, f"pool {pool_id}: leases left: {yard.leases}")
            self._watch.demand(not yard.queued, f"pool {pool_id}: still waiting: {yard.queued}")

    @property
    def settled(self) -> bool:
        return not any(yard.leases or yard.queued for yard in self.yards.values())
