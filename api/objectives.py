"""What the product promises of itself, and whether it keeps it: waits, use of cards, failures.

Told from the last ten minutes of log time, a few times a minute; `GET /v1/pools`, `/metrics` and
`cutlog status` show the same figures.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from api.pools import Pools
from api.problems import Problem
from api.promises import Promises
from api.reads import PoolLoad, ReadModel, Recent, Row
from api.standing import Standing
from schema.failures import CARD_FAILURES
from schema.policy import Policy, PoolPolicy
from schema.wires.telemetry import facts
from schema.words import LossCause

REFRESH_SECONDS = 10.0
WINDOW = timedelta(minutes=10)
UTILISATION = (0.65, 0.80)
FAILURE_SHARE_MAX = 0.01
ESTIMATE_ERROR_MAX = 0.25
FAILURES = CARD_FAILURES | {
    LossCause.LEASE_EXPIRED,
    LossCause.RUNNER_REPLACED,
    LossCause.NOT_ACCEPTED,
    LossCause.BACKSTOP,
}
"""Ends of attempts that are ours; the input's faults, cancels, preemptions and drains are not."""
_BREAKER_STATES = {"closed": 0.0, "half_open": 0.5, "open": 1.0}
_log = logging.getLogger(__name__)


class Objective(NamedTuple):
    """One figure against its bounds."""

    name: str
    pool_id: str
    lane: str | None
    value: float | None
    """None: nothing happened that could be measured."""
    low: float | None
    high: float | None
    cases: int
    """What it is drawn from; 0 where nothing is counted."""

    @property
    def kept(self) -> bool | None:
        """Whether it lies within; None: nothing is known."""
        if self.value is None:
            return None
        return (self.low is None or self.value >= self.low) and (
            self.high is None or self.value <= self.high
        )


class Figures(NamedTuple):
    """All that is known of late."""

    objectives: list[Objective]
    waits: Mapping[tuple[str, str], tuple[float, float]]
    """P50 and P95 in seconds, by pool and lane."""
    oldest: Mapping[tuple[str, str], float]
    burnt: Mapping[tuple[str, str], float]
    """Card seconds of attempts that made nothing, less what checkpoints kept; pool and cause."""


def figures(
    policy: Policy, recent: Recent, errors: Mapping[tuple[str, str], tuple[float, int]]
) -> Figures:
    """The figures of a window."""
    waits = {(row["pool_id"], row["lane"]): row for row in recent.waits}
    use = {row["pool_id"]: row for row in recent.use}
    objectives: list[Objective] = []
    for pool_id, pool in policy.pools.items():
        for lane, rules in pool.lanes.items():
            row = waits.get((pool_id, lane))
            if rules.wait_p95_seconds is not None:
                objectives.append(_wait(pool_id, lane, row, rules.wait_p95_seconds))
            error = errors.get((pool_id, lane))
            if error is not None:
                value, cases = error
                high = ESTIMATE_ERROR_MAX
                objectives.append(
                    Objective("estimate_error", pool_id, lane, value, None, high, cases)
                )
        waiting = any(row["pool_id"] == pool_id for row in recent.oldest)
        objectives.append(_utilisation(pool_id, use.get(pool_id), waiting=waiting))
        ends = [row for row in recent.ends if row["pool_id"] == pool_id]
        objectives.append(_failures(pool_id, ends))
        objectives.append(_card_seconds(pool_id, pool, ends))
    return Figures(
        objectives,
        {place: (row["p50"], row["p95"]) for place, row in waits.items()},
        {(row["pool_id"], row["lane"]): row["seconds"] for row in recent.oldest},
        {(row["pool_id"], row["cause"]): row["burnt_ms"] / 1000 for row in recent.waste},
    )


def _wait(pool_id: str, lane: str, row: Row | None, high: int) -> Objective:
    value, cases = (row["p95"], row["started"]) if row is not None else (None, 0)
    return Objective("wait_p95_seconds", pool_id, lane, value, None, high, cases)


def _utilisation(pool_id: str, row: Row | None, *, waiting: bool) -> Objective:
    """Slots taken of the slots there were, over the window; not known where there was no work.

    Slots that stand empty while something waits are a miss.
    """
    known = row is not None and row["slots_ms"] and (row["used_ms"] or waiting)
    value = row["used_ms"] / row["slots_ms"] if row is not None and known else None
    return Objective("utilisation", pool_id, None, value, *UTILISATION, 0)


def _failures(pool_id: str, ends: Iterable[Row]) -> Objective:
    failed = counted = 0
    for row in ends:
        bad = row["cause"] in FAILURES
        if bad or row["outcome"] == "succeeded":
            counted += row["ended"]
            failed += bad * row["ended"]
    value = failed / counted if counted else None
    return Objective("failure_share", pool_id, None, value, None, FAILURE_SHARE_MAX, counted)


def _card_seconds(pool_id: str, pool: PoolPolicy, ends: Iterable[Row]) -> Objective:
    """Card time of an attempt that made its result, against the pool's baseline."""
    row = next((row for row in ends if row["outcome"] == "succeeded"), None)
    value = row["card_ms"] / row["ended"] / 1000 if row is not None else None
    low = pool.expected_seconds * (1 - pool.baseline_share)
    high = pool.expected_seconds * (1 + pool.baseline_share)
    cases = row["ended"] if row is not None else 0
    return Objective("card_seconds", pool_id, None, value, low, high, cases)


class _Gauges:
    """The figures as Prometheus reads them, set anew as a whole."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._all: list[Gauge] = []

        def gauge(name: str, help_: str, labels: list[str]) -> Gauge:
            made = Gauge(name, help_, labels, registry=registry)
            self._all.append(made)
            return made

        self.wait = gauge(
            "cutlog_queue_wait_seconds",
            "Wait of the tasks started in the last ten minutes.",
            ["pool", "lane", "quantile"],
        )
        self.oldest = gauge(
            "cutlog_queue_oldest_seconds",
            "How long the first in line has waited.",
            ["pool", "lane"],
        )
        self.objective = gauge(
            "cutlog_objective",
            "Figures of the last ten minutes that have bounds.",
            ["objective", "pool", "lane"],
        )
        self.kept = gauge(
            "cutlog_objective_kept",
            "1: within its bounds; 0: missed.",
            ["objective", "pool", "lane"],
        )
        self.burnt = gauge(
            "cutlog_burnt_card_seconds",
            "Card time of attempts that made nothing, less what checkpoints kept, since ever.",
            ["pool", "cause"],
        )
        self.cards = gauge("cutlog_pool_cards_wanted", "Cards that the pool wants.", ["pool"])
        self.breaker = gauge(
            "cutlog_breaker_open", "0: closed; 0.5: half open; 1: open.", ["pool", "scene"]
        )

    def tell(self, found: Figures, loads: Iterable[PoolLoad]) -> None:
        """What is not known any more is not told any more."""
        for made in self._all:
            made.clear()
        for (pool_id, lane), (p50, p95) in found.waits.items():
            self.wait.labels(pool_id, lane, "0.5").set(p50)
            self.wait.labels(pool_id, lane, "0.95").set(p95)
        for (pool_id, lane), seconds in found.oldest.items():
            self.oldest.labels(pool_id, lane).set(seconds)
        for (pool_id, cause), seconds in found.burnt.items():
            self.burnt.labels(pool_id, cause).set(seconds)
        for one in found.objectives:
            if one.value is not None:
                labels = (one.name, one.pool_id, one.lane or "")
                self.objective.labels(*labels).set(one.value)
                self.kept.labels(*labels).set(bool(one.kept))
        for load in loads:
            if load.cards_wanted is not None:
                self.cards.labels(load.pool_id).set(load.cards_wanted)
            for breaker in load.breakers:
                state = _BREAKER_STATES.get(breaker.state, 1.0)
                self.breaker.labels(load.pool_id, breaker.scene).set(state)


class Objectives:
    """The figures of late, refreshed beside the requests."""

    def __init__(
        self,
        reads: ReadModel,
        standing: Standing,
        pools: Pools,
        promises: Promises,
        registry: CollectorRegistry,
    ) -> None:
        self._reads = reads
        self._standing = standing
        self._pools = pools
        self._promises = promises
        self._gauges = _Gauges(registry)
        self._figures = Figures([], {}, {}, {})

    async def refresh(self) -> None:
        """Read it all; raises Problem when the read model is away or no policy is there."""
        policy = self._standing.policy()
        recent = await self._reads.recent(WINDOW)
        self._figures = figures(policy, recent, self._promises.errors())
        self._gauges.tell(self._figures, self._pools.loads())

    def views(self, policy: Policy, *, operates: bool) -> list[dict[str, Any]]:
        """`GET /v1/pools`: the pools, with their waits of late and their objectives."""
        found = self._figures
        views = self._pools.views(policy, operates=operates)
        for view in views:
            pool_id = view["pool_id"]
            for lane in view["lanes"]:
                p50, p95 = found.waits.get((pool_id, lane["lane"]), (None, None))
                lane["wait_p50_seconds"] = _rounded(p50)
                lane["wait_p95_seconds"] = _rounded(p95)
                lane["oldest_wait_seconds"] = _rounded(found.oldest.get((pool_id, lane["lane"])))
            view["objectives"] = [
                {
                    "name": one.name,
                    "lane": one.lane,
                    "value": _rounded(one.value, 4),
                    "low": _rounded(one.low, 4),
                    "high": _rounded(one.high, 4),
                    "kept": one.kept,
                    "cases": one.cases,
                }
                for one in found.objectives
                if one.pool_id == pool_id
            ]
            view["burnt_card_seconds"] = {
                cause: _rounded(seconds)
                for (pool, cause), seconds in sorted(found.burnt.items())
                if pool == pool_id
            }
        return views

    async def run(self) -> None:
        """Refresh for ever."""
        while True:
            try:
                await self.refresh()
            except Problem as problem:
                _log.debug("objectives not read", extra=facts(error=str(problem)))
                await asyncio.sleep(1)
            else:
                await asyncio.sleep(REFRESH_SECONDS)


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
