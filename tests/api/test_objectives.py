"""Objectives: figures against their bounds, from rows; estimates against what became of them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.measures import Measures
from api.objectives import Objective, figures
from api.pools import Estimate
from api.promises import MATERIAL_SECONDS, Promises, error_of
from api.reads import FirstStart, Recent
from cutlog.installation import LOCAL_POLICY
from schema.ids import PoolId, TaskId
from schema.policy import LanePolicy, PoolPolicy, read_policy
from schema.words import Lane

A = PoolId("A")
_POOL = PoolPolicy(
    lanes={
        Lane.P0: LanePolicy(wait_p95_seconds=30),
        Lane.P1: LanePolicy(wait_p95_seconds=180),
        Lane.P2: LanePolicy(),
    },
    expected_seconds=20,
)
POLICY = msgspec.structs.replace(read_policy(LOCAL_POLICY.read_bytes()), pools={A: _POOL})


def _recent(**rows: list[dict[str, Any]]) -> Recent:
    empty: dict[str, list[Any]] = {name: [] for name in Recent._fields}
    return Recent(**{**empty, **rows})


def _of(found: list[Objective], name: str, lane: str | None = None) -> Objective:
    (one,) = [one for one in found if (one.name, one.lane) == (name, lane)]
    return one


def test_waits_are_held_against_the_objective_of_their_lane() -> None:
    waits = [
        {"pool_id": "A", "lane": "p0", "started": 40, "p50": 3.0, "p95": 31.0},
        {"pool_id": "A", "lane": "p1", "started": 9, "p50": 60.0, "p95": 180.0},
    ]
    found = figures(POLICY, _recent(waits=waits), {}).objectives
    p0 = _of(found, "wait_p95_seconds", "p0")
    assert (p0.value, p0.high, p0.kept, p0.cases) == (31.0, 30, False, 40)
    assert _of(found, "wait_p95_seconds", "p1").kept is True
    assert [one.lane for one in found if one.name == "wait_p95_seconds"] == ["p0", "p1"]


def test_use_is_slots_taken_of_the_slots_there_were() -> None:
    for used, kept in ((649, False), (650, True), (800, True), (801, False)):
        use = [{"pool_id": "A", "used_ms": used, "slots_ms": 1_000}]
        assert _of(figures(POLICY, _recent(use=use), {}).objectives, "utilisation").kept is kept
    idle = [{"pool_id": "A", "used_ms": 0, "slots_ms": 0}]
    assert _of(figures(POLICY, _recent(use=idle), {}).objectives, "utilisation").kept is None


def test_where_nothing_ran_and_nothing_waits_the_use_is_not_known_and_not_told() -> None:
    stood = [{"pool_id": "A", "used_ms": 0, "slots_ms": 600_000}]
    idle = figures(POLICY, _recent(use=stood), {})
    one = _of(idle.objectives, "utilisation")
    assert (one.value, one.kept) == (None, None)
    waits = [{"pool_id": "A", "lane": "p1", "seconds": 9.0}]
    stuck = figures(POLICY, _recent(use=stood, oldest=waits), {})
    one = _of(stuck.objectives, "utilisation")
    assert (one.value, one.kept) == (0.0, False), "slots stand empty and somebody waits"
    elsewhere = [{"pool_id": "B", "lane": "p1", "seconds": 9.0}]
    other = figures(POLICY, _recent(use=stood, oldest=elsewhere), {})
    assert _of(other.objectives, "utilisation").kept is None


def test_only_ends_that_are_ours_are_failures() -> None:
    ends: list[dict[str, Any]] = [
        {"pool_id": "A", "outcome": "succeeded", "cause": None, "ended": 980, "card_ms": 1},
        {"pool_id": "A", "outcome": "failed", "cause": "crashed", "ended": 15, "card_ms": 1},
        {"pool_id": "A", "outcome": "lost", "cause": "lease_expired", "ended": 5, "card_ms": 1},
        {"pool_id": "A", "outcome": "failed", "cause": "input", "ended": 500, "card_ms": 1},
        {"pool_id": "A", "outcome": "lost", "cause": "preempted", "ended": 500, "card_ms": 1},
        {"pool_id": "A", "outcome": "canceled", "cause": "canceled", "ended": 9, "card_ms": 1},
        {"pool_id": "B", "outcome": "failed", "cause": "crashed", "ended": 9, "card_ms": 1},
    ]
    one = _of(figures(POLICY, _recent(ends=ends), {}).objectives, "failure_share")
    assert (one.value, one.cases, one.kept) == (0.02, 1_000, False)


def test_card_time_is_held_against_the_baseline_of_the_pool() -> None:
    for mean_ms, kept in ((17_999, False), (18_000, True), (22_000, True), (22_001, False)):
        row = {"pool_id": "A", "outcome": "succeeded", "cause": None, "ended": 3}
        ends = [{**row, "card_ms": 3 * mean_ms}]
        one = _of(figures(POLICY, _recent(ends=ends), {}).objectives, "card_seconds")
        assert one.kept is kept, one


def test_an_error_is_a_share_of_the_wait_but_of_no_less_than_five_seconds() -> None:
    assert error_of(120, 100) == pytest.approx(0.2)
    assert error_of(0, 1) == pytest.approx(0.2)


async def test_what_was_told_is_held_against_the_wait_once_the_task_has_started() -> None:
    starts: dict[TaskId, FirstStart] = {}
    now = 0.0
    registry = CollectorRegistry()

    async def first_starts(task_ids: Sequence[TaskId]) -> dict[TaskId, FirstStart]:
        return {task_id: starts[task_id] for task_id in task_ids if task_id in starts}

    promises = Promises(first_starts, Measures(registry), clock=lambda: now)
    for number in range(4):
        promises.tell(TaskId(f"t{number}"), Estimate(A, Lane.P1, 100.0, 20.0))
    await promises.check()
    assert promises.errors() == {}
    starts = {
        TaskId("t0"): FirstStart(100, 0),
        TaskId("t1"): FirstStart(80, 0),
        TaskId("t2"): FirstStart(200, 0),
        TaskId("t3"): FirstStart(1, MATERIAL_SECONDS + 1),  # waited for its material first
    }
    await promises.check()
    assert promises.errors() == {("A", "p1"): (0.25, 3)}
    text = generate_latest(registry).decode()
    assert 'cutlog_estimate_error_ratio_count{lane="p1",pool="A"} 3.0' in text
    now = 601.0
    await promises.check()
    assert promises.errors() == {}
