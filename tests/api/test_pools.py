"""Lanes at the door: paused or full ones take nothing and say when to come back."""

import json

import pytest

from api.pools import Pools, wait_seconds
from api.problems import Problem
from api.reads import LaneLoad, PoolLoad
from cutlog.installation import LOCAL_POLICY
from schema.ids import PoolId
from schema.policy import read_policy
from schema.words import Lane, Scene

POLICY = read_policy(LOCAL_POLICY.read_bytes())
POOL = POLICY.scenes[Scene.AUTOCUT].pool_id
LIMIT = POLICY.pools[POOL].lanes[Lane.P1].queue_limit


def _pools(**lanes: LaneLoad) -> Pools:
    found = Pools()
    found.take([PoolLoad(POOL, 10, 10, {Lane(name): load for name, load in lanes.items()})])
    return found


def test_a_lane_below_its_limit_takes_tasks() -> None:
    _pools(p1=LaneLoad(waiting=LIMIT - 1)).check(POLICY, Scene.AUTOCUT, Lane.P1)


def test_a_full_lane_answers_429_with_an_estimate() -> None:
    pools = _pools(p0=LaneLoad(waiting=20), p1=LaneLoad(waiting=LIMIT))
    with pytest.raises(Problem) as refused:
        pools.check(POLICY, Scene.AUTOCUT, Lane.P1)
    problem = refused.value
    assert (problem.status, problem.code) == (429, "lane_full")
    each = POLICY.pools[POOL].expected_seconds
    assert problem.members["estimated_wait_seconds"] == (LIMIT + 20) * each // 10
    assert 1 <= int(problem.all_headers()["retry-after"]) <= 900
    pools.check(POLICY, Scene.AUTOCUT, Lane.P0)


def test_a_paused_lane_answers_429_and_the_others_go_on() -> None:
    pools = _pools(p2=LaneLoad(paused=True))
    with pytest.raises(Problem) as refused:
        pools.check(POLICY, Scene.AUTOCUT, Lane.P2)
    assert (refused.value.status, refused.value.code) == (429, "lane_paused")
    pools.check(POLICY, Scene.AUTOCUT, Lane.P1)


def test_a_jam_in_one_pool_leaves_the_others_alone() -> None:
    pools = _pools(p1=LaneLoad(waiting=LIMIT))
    pools.check(POLICY, Scene.GENAI, Lane.P1)


def test_what_waits_in_later_or_paused_lanes_is_not_ahead() -> None:
    load = PoolLoad(
        PoolId(POOL),
        2,
        0,
        {
            Lane.P0: LaneLoad(waiting=100, paused=True),
            Lane.P1: LaneLoad(waiting=4),
            Lane.P2: LaneLoad(waiting=50),
        },
    )
    assert wait_seconds(POLICY, load, Lane.P1) == 4 * POLICY.pools[POOL].expected_seconds / 2


def test_every_pool_of_the_policy_is_shown_as_json() -> None:
    views = Pools().views(POLICY)
    assert {view["pool_id"] for view in views} == set(POLICY.pools)
    json.dumps(views)
