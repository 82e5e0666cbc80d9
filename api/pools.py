"""Pools as the door knows them: which lanes take work, how long one waits, and `GET /v1/pools`.

Everything here is as of the last second and in memory: a submission costs a look into a dict.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from api.problems import Door, Problem, at_the_door
from api.reads import Breaker, LaneLoad, PoolLoad
from schema.estimates import Load, ahead_of, seconds_until_room, wait_seconds
from schema.ids import AccountId, PoolId
from schema.policy import LanePolicy, Policy, PoolPolicy
from schema.words import Lane, Scene

_RETRY_SECONDS_MAX = 900.0
_PAUSED_RETRY_SECONDS = 60.0
_NOTHING = LaneLoad()


class Estimate(NamedTuple):
    """What a task that comes now is told."""

    pool_id: PoolId
    lane: Lane
    wait_seconds: float
    """Infinite: nobody can say, because nobody serves or better lanes take everything."""
    run_seconds: float

    @property
    def told(self) -> int | None:
        """The wait in whole seconds, for callers; None: nobody can say."""
        return _told(self.wait_seconds)


class Pools:
    """The load of every pool, as of the last second."""

    def __init__(self) -> None:
        self._loads: dict[PoolId, PoolLoad] = {}
        self._estimates: dict[tuple[int, PoolId, Lane, str], Estimate] = {}

    def take(self, loads: Iterable[PoolLoad]) -> None:
        """What the read model says now."""
        self._loads = {load.pool_id: load for load in loads}
        self._estimates = {}

    def admit(
        self,
        policy: Policy,
        scene: Scene,
        lane: Lane,
        account_id: AccountId,
        deadline_seconds: int | None = None,
    ) -> Estimate:
        """What to tell a task of this scene; raises Problem (429, 409) when it is not taken now.

        Without a load nothing is refused for it: a pool that scales from nothing must be asked.
        """
        pool_id = policy.scenes[scene].pool_id
        estimate = self.estimate(policy, pool_id, lane, account_id)
        load = self._loads.get(pool_id)
        rules = policy.pools[pool_id].lanes.get(lane)
        if load is not None and rules is not None:
            _check_lane(policy, load, rules, estimate)
        if (
            deadline_seconds is not None
            and estimate.wait_seconds + estimate.run_seconds > deadline_seconds
        ):
            raise _too_late(estimate, deadline_seconds)
        return estimate

    def estimate(self, policy: Policy, pool_id: PoolId, lane: Lane, account_id: str) -> Estimate:
        """How long a task of this account that came now would wait and run."""
        rules, load = policy.pools[pool_id], self._loads.get(pool_id)
        at = load.lanes.get(lane, _NOTHING) if load else _NOTHING
        special = account_id in at.large or account_id in rules.tenant_weights
        key = (policy.version, pool_id, lane, account_id if special else "")
        found = self._estimates.get(key)
        if found is None:
            held = load.held_seconds if load else None
            wait = math.inf
            if load is not None:
                wait = wait_seconds(load_of(rules, load), lane, _ahead(rules, at, account_id))
            run = rules.expected_seconds if held is None else held
            found = self._estimates[key] = Estimate(pool_id, lane, wait, run)
        return found

    def loads(self) -> list[PoolLoad]:
        """Of every pool that was ever used."""
        return list(self._loads.values())

    def views(self, policy: Policy, *, operates: bool = False) -> list[dict[str, Any]]:
        """Every pool of the policy, with the wait that a new task would see in each lane.

        Who did something is told only to whoever operates.
        """
        return [
            self._view(policy, pool_id, self._loads.get(pool_id), operates=operates)
            for pool_id in policy.pools
        ]

    def _view(
        self, policy: Policy, pool_id: PoolId, load: PoolLoad | None, *, operates: bool
    ) -> dict[str, Any]:
        lanes = []
        for lane, rules in policy.pools[pool_id].lanes.items():
            at = load.lanes.get(lane, _NOTHING) if load else _NOTHING
            lanes.append(
                {
                    "lane": lane,
                    "waiting": at.waiting,
                    "paused": at.paused,
                    "paused_why": at.why or None,
                    "queue_limit": rules.queue_limit,
                    "wait_max_seconds": rules.wait_max_seconds,
                    "arrivals_per_second": round(at.arrivals_per_second, 3),
                    "estimated_wait_seconds": self.estimate(policy, pool_id, lane, "").told,
                }
            )
        held = load.held_seconds if load else None
        return {
            "pool_id": pool_id,
            "scenes": [scene for scene, rules in policy.scenes.items() if rules.pool_id == pool_id],
            "slots": load.slots if load else 0,
            "used": load.used if load else 0,
            "cards_wanted": load.cards_wanted if load else None,
            "held_seconds": None if held is None else round(held, 3),
            "lanes": lanes,
            "breakers": [
                _breaker_view(breaker if operates else breaker._replace(who=""))
                for breaker in (load.breakers if load else ())
            ],
        }


def load_of(rules: PoolPolicy, load: PoolLoad) -> Load:
    """A load in the words of the estimates."""
    return Load(
        slots=load.slots,
        used=load.used,
        held_seconds=rules.expected_seconds if load.held_seconds is None else load.held_seconds,
        waiting={lane: at.waiting for lane, at in load.lanes.items()},
        paused=frozenset(lane for lane, at in load.lanes.items() if at.paused),
        floors={lane: lane_rules.floor_picks for lane, lane_rules in rules.lanes.items()},
        arrivals_per_second={lane: at.arrivals_per_second for lane, at in load.lanes.items()},
    )


def _ahead(rules: PoolPolicy, at: LaneLoad, account_id: str) -> int:
    """Tasks of its lane that go before one of this account."""
    return ahead_of(at.waiting, at.large, account_id, rules.tenant_weights)


def _check_lane(policy: Policy, load: PoolLoad, rules: LanePolicy, estimate: Estimate) -> None:
    """Raises Problem (429) when the lane is paused, full, or would keep the task too long."""
    lane = estimate.lane
    at = load.lanes.get(lane, _NOTHING)
    if at.paused:
        raise at_the_door(
            Door.LANE_PAUSED,
            members={"pool": load.pool_id, "lane": lane},
            retry_after=_PAUSED_RETRY_SECONDS,
        )
    if at.waiting >= rules.queue_limit:
        found = load_of(policy.pools[load.pool_id], load)
        raise _full(
            estimate,
            at.waiting,
            f"{at.waiting} tasks wait.",
            seconds_until_room(found, lane, rules.queue_limit),
        )
    longest = rules.wait_max_seconds
    if longest is not None and load.slots and estimate.wait_seconds > longest:
        raise _full(
            estimate,
            at.waiting,
            f"A task that came now would wait longer than {longest} s.",
            # Who joins later joins behind the same last task, which waits ever shorter.
            estimate.wait_seconds - longest,
        )


def _full(estimate: Estimate, waiting: int, detail: str, back_in: float) -> Problem:
    return at_the_door(
        Door.LANE_FULL,
        detail,
        members={
            "pool": estimate.pool_id,
            "lane": estimate.lane,
            "waiting": waiting,
            "estimated_wait_seconds": estimate.told,
        },
        retry_after=min(back_in, _RETRY_SECONDS_MAX),
    )


def _too_late(estimate: Estimate, deadline_seconds: int) -> Problem:
    done = estimate.wait_seconds + estimate.run_seconds
    return at_the_door(
        Door.DEADLINE_TOO_SOON,
        "Nobody serves it now, so nothing can be promised."
        if math.isinf(done)
        else f"It would be done in about {math.ceil(done)} s.",
        members={
            "pool": estimate.pool_id,
            "lane": estimate.lane,
            "deadline_seconds": deadline_seconds,
            "estimated_wait_seconds": estimate.told,
            "estimated_done_seconds": _told(done),
        },
    )


def _told(seconds: float) -> int | None:
    return None if math.isinf(seconds) else math.ceil(seconds)


def _breaker_view(breaker: Breaker) -> dict[str, Any]:
    return {
        "scene": breaker.scene,
        "state": breaker.state,
        "failed": breaker.failed,
        "counted": breaker.counted,
        "who": breaker.who or None,
        "why": breaker.why or None,
        "since": breaker.since,
    }
