"""Lanes at the door: paused, full and slow ones take nothing and say when to come back."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from api.pools import Pools
from api.problems import Problem
from api.reads import Breaker, LaneLoad, PoolLoad
from cutlog.installation import LOCAL_POLICY
from schema.ids import AccountId
from schema.policy import LanePolicy, Policy, PoolPolicy, read_policy
from schema.words import Lane, Scene

LOCAL = read_policy(LOCAL_POLICY.read_bytes())
POOL = LOCAL.scenes[Scene.AUTOCUT].pool_id
LIMIT = 500
HELD = 20
ANN = AccountId("u-ann")
GREEDY = AccountId("t-greedy")


def _policy(**lanes: LanePolicy) -> Policy:
    """The local policy with a pool of our own for autocut."""
    rules = {lane: LanePolicy(queue_limit=LIMIT, floor_picks=0) for lane in Lane}
    rules |= {Lane(name): lane for name, lane in lanes.items()}
    pool = PoolPolicy(lanes=rules, expected_seconds=HELD)
    return msgspec.structs.replace(LOCAL, pools={**LOCAL.pools, POOL: pool})


POLICY = _policy()


def _pools(slots: int = 10, **lanes: LaneLoad) -> Pools:
    found = Pools()
    found.take([PoolLoad(POOL, slots, slots, {Lane(name): load for name, load in lanes.items()})])
    return found


def _refused(
    pools: Pools,
    policy: Policy,
    lane: Lane,
    deadline: int | None = None,
    account: AccountId = ANN,
) -> Problem:
    with pytest.raises(Problem) as refused:
        pools.admit(policy, Scene.AUTOCUT, lane, account, deadline)
    return refused.value


def test_a_lane_below_its_limit_takes_tasks_and_tells_their_wait() -> None:
    estimate = _pools(p1=LaneLoad(LIMIT - 1)).admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN)
    assert estimate.told == LIMIT * HELD // 10


def test_a_full_lane_answers_429_with_an_estimate() -> None:
    pools = _pools(p0=LaneLoad(20), p1=LaneLoad(LIMIT))
    problem = _refused(pools, POLICY, Lane.P1)
    assert (problem.status, problem.code) == (429, "lane_full")
    assert problem.members == {
        "pool": POOL,
        "lane": "p1",
        "waiting": LIMIT,
        "estimated_wait_seconds": (LIMIT + 21) * HELD // 10,
    }
    # Room for one comes with the next pick of the lane, after the 20 before it.
    assert problem.all_headers()["retry-after"] == str(21 * HELD // 10)
    pools.admit(POLICY, Scene.AUTOCUT, Lane.P0, ANN)


def test_a_lane_that_would_keep_a_task_too_long_answers_429_with_the_estimate() -> None:
    policy = _policy(p1=LanePolicy(wait_max_seconds=180, floor_picks=0))
    _pools(p1=LaneLoad(89)).admit(policy, Scene.AUTOCUT, Lane.P1, ANN)
    problem = _refused(_pools(p1=LaneLoad(99)), policy, Lane.P1)
    assert (problem.status, problem.code) == (429, "lane_full")
    assert problem.members["estimated_wait_seconds"] == 200
    assert problem.all_headers()["retry-after"] == "20"


def test_what_arrives_in_better_lanes_counts_for_the_wait() -> None:
    policy = _policy(p1=LanePolicy(wait_max_seconds=180, floor_picks=0))
    pools = _pools(p0=LaneLoad(arrivals_per_second=0.3), p1=LaneLoad(50))
    assert _refused(pools, policy, Lane.P1).members["estimated_wait_seconds"] == 51 * 5


def test_who_has_many_waiting_is_told_so_and_is_in_nobody_elses_way() -> None:
    policy = _policy(p1=LanePolicy(wait_max_seconds=180, floor_picks=0))
    pools = _pools(p1=LaneLoad(420, large={GREEDY: 400}))
    problem = _refused(pools, policy, Lane.P1, account=GREEDY)
    assert problem.members["estimated_wait_seconds"] == 421 * HELD // 10
    assert problem.all_headers()["retry-after"] == str(842 - 180)
    # Before a task of somebody small go those of the small, and ten of the greedy one.
    assert pools.admit(policy, Scene.AUTOCUT, Lane.P1, ANN).told == (20 + 10 + 1) * HELD // 10
    (lane,) = (
        lane
        for view in pools.views(policy)
        for lane in view["lanes"]
        if (view["pool_id"], lane["lane"]) == (POOL, "p1")
    )
    assert lane["estimated_wait_seconds"] == 62


def test_who_closed_a_breaker_is_told_to_operators_alone() -> None:
    breaker = Breaker("autocut", "closed", 0, 0, "operator-7", "new driver", datetime.now(UTC))
    pools = Pools()
    pools.take([PoolLoad(POOL, 1, 0, {}, breakers=(breaker,))])
    for operates, who in ((False, None), (True, "operator-7")):
        (told,) = (
            one for view in pools.views(POLICY, operates=operates) for one in view["breakers"]
        )
        assert (told["who"], told["why"]) == (who, "new driver")


def test_twice_the_weight_is_half_the_tasks_of_others_ahead() -> None:
    base = _policy()
    heavy = msgspec.structs.replace(base.pools[POOL], tenant_weights={ANN: 2})
    policy = msgspec.structs.replace(base, pools={**base.pools, POOL: heavy})
    pools = _pools(p1=LaneLoad(400, large={GREEDY: 400}))
    assert pools.admit(policy, Scene.AUTOCUT, Lane.P1, ANN).told == (5 + 1) * HELD // 10


def test_a_wait_without_end_is_told_as_unknown_and_retry_after_is_bounded() -> None:
    policy = _policy(p1=LanePolicy(wait_max_seconds=180, floor_picks=0))
    pools = _pools(p0=LaneLoad(100, arrivals_per_second=3), p1=LaneLoad(1))
    problem = _refused(pools, policy, Lane.P1)
    assert problem.members["estimated_wait_seconds"] is None
    assert problem.all_headers()["retry-after"] == "900"
    problem.body()


def test_a_pool_that_nobody_serves_yet_takes_tasks_so_that_it_can_scale() -> None:
    policy = _policy(p1=LanePolicy(wait_max_seconds=1))
    for pools in (Pools(), _pools(slots=0, p1=LaneLoad(5))):
        assert pools.admit(policy, Scene.AUTOCUT, Lane.P1, ANN).told is None


def test_a_deadline_that_can_be_kept_is_taken() -> None:
    _pools(p1=LaneLoad(9)).admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN, deadline_seconds=20 + HELD)


def test_a_deadline_that_cannot_be_kept_is_refused_with_the_estimate() -> None:
    problem = _refused(_pools(p1=LaneLoad(9)), POLICY, Lane.P1, deadline=20 + HELD - 1)
    assert (problem.status, problem.code) == (409, "deadline_too_soon")
    assert problem.members == {
        "pool": POOL,
        "lane": "p1",
        "deadline_seconds": 39,
        "estimated_wait_seconds": 20,
        "estimated_done_seconds": 40,
    }


def test_nothing_can_be_promised_where_nobody_serves() -> None:
    problem = _refused(Pools(), POLICY, Lane.P1, deadline=86_400)
    assert problem.code == "deadline_too_soon"
    assert problem.members["estimated_done_seconds"] is None


def test_what_tasks_took_of_late_counts_more_than_what_was_expected() -> None:
    pools = Pools()
    load = PoolLoad(POOL, 10, 10, {Lane.P1: LaneLoad(99)}, held_seconds=5.0)
    pools.take([load])
    estimate = pools.admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN)
    assert (estimate.told, estimate.run_seconds) == (50, 5.0)


def test_a_paused_lane_answers_429_and_the_others_go_on() -> None:
    pools = _pools(p2=LaneLoad(paused=True, why="festival"))
    problem = _refused(pools, POLICY, Lane.P2)
    assert (problem.status, problem.code) == (429, "lane_paused")
    pools.admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN)


def test_what_waits_in_later_or_paused_lanes_is_not_ahead() -> None:
    pools = _pools(p0=LaneLoad(100, paused=True), p1=LaneLoad(4), p2=LaneLoad(50))
    assert pools.admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN).told == 5 * HELD // 10


def test_a_jam_in_one_pool_leaves_the_others_alone() -> None:
    pools = _pools(p1=LaneLoad(LIMIT))
    pools.admit(POLICY, Scene.GENAI, Lane.P1, ANN)


def test_a_new_policy_and_a_new_load_are_told_at_once() -> None:
    pools = _pools(p1=LaneLoad(99))
    assert pools.admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN).told == 200
    newer = msgspec.structs.replace(_policy(), version=POLICY.version + 1)
    slower = msgspec.structs.replace(newer.pools[POOL], expected_seconds=2 * HELD)
    newer = msgspec.structs.replace(newer, pools={**newer.pools, POOL: slower})
    assert pools.admit(newer, Scene.AUTOCUT, Lane.P1, ANN).told == 400
    pools.take([])
    assert math.isinf(pools.admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN).wait_seconds)


def test_every_pool_of_the_policy_is_shown_as_json() -> None:
    views: list[dict[str, Any]] = Pools().views(POLICY)
    assert {view["pool_id"] for view in views} == set(POLICY.pools)
    json.dumps(views)


def test_a_look_at_the_door_costs_a_look_into_a_dict() -> None:
    """The estimate is made once a load, not once a submission."""
    pools = _pools(p1=LaneLoad(10))
    first = pools.admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN)
    assert pools.admit(POLICY, Scene.AUTOCUT, Lane.P1, ANN) is first
    assert timedelta(seconds=first.wait_seconds) == timedelta(seconds=22)
