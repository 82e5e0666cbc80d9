"""Pools as the door knows them: which lanes take work, how long one waits, and `GET /v1/pools`."""

from collections.abc import Iterable
from typing import Any

from api.problems import Door, at_the_door
from api.reads import LaneLoad, PoolLoad
from schema.ids import PoolId
from schema.policy import Policy
from schema.words import Lane, Scene

_RETRY_SECONDS_MAX = 900.0
_PAUSED_RETRY_SECONDS = 60.0


class Pools:
    """The load of every pool, as of the last second."""

    def __init__(self) -> None:
        self._loads: dict[PoolId, PoolLoad] = {}

    def take(self, loads: Iterable[PoolLoad]) -> None:
        """What the read model says now."""
        self._loads = {load.pool_id: load for load in loads}

    def check(self, policy: Policy, scene: Scene, lane: Lane) -> None:
        """Raises Problem (429) when the lane of this scene's pool is paused or full."""
        pool_id = policy.scenes[scene].pool_id
        load = self._loads.get(pool_id)
        if load is None:
            return
        at = load.lanes.get(lane)
        if at is None:
            return
        if at.paused:
            raise at_the_door(
                Door.LANE_PAUSED,
                members={"pool": pool_id, "lane": lane},
                retry_after=_PAUSED_RETRY_SECONDS,
            )
        rules = policy.pools[pool_id].lanes.get(lane)
        if rules is not None and at.waiting >= rules.queue_limit:
            estimate = wait_seconds(policy, load, lane)
            raise at_the_door(
                Door.LANE_FULL,
                f"{at.waiting} tasks wait.",
                members={
                    "pool": pool_id,
                    "lane": lane,
                    "waiting": at.waiting,
                    "estimated_wait_seconds": round(estimate),
                },
                retry_after=min(estimate, _RETRY_SECONDS_MAX),
            )

    def views(self, policy: Policy) -> list[dict[str, Any]]:
        """Every pool of the policy, with the wait that a new task would see in each lane."""
        return [self._view(policy, pool_id, self._loads.get(pool_id)) for pool_id in policy.pools]

    def _view(self, policy: Policy, pool_id: PoolId, load: PoolLoad | None) -> dict[str, Any]:
        lanes = []
        for lane, rules in policy.pools[pool_id].lanes.items():
            at = load.lanes.get(lane, LaneLoad()) if load else LaneLoad()
            lanes.append(
                {
                    "lane": lane,
                    "waiting": at.waiting,
                    "paused": at.paused,
                    "queue_limit": rules.queue_limit,
                    "estimated_wait_seconds": round(wait_seconds(policy, load, lane))
                    if load and load.slots
                    else None,
                }
            )
        return {
            "pool_id": pool_id,
            "scenes": [scene for scene, rules in policy.scenes.items() if rules.pool_id == pool_id],
            "slots": load.slots if load else 0,
            "used": load.used if load else 0,
            "lanes": lanes,
        }


def wait_seconds(policy: Policy, load: PoolLoad, lane: Lane) -> float:
    """How long a task that came now would wait: what is before it, over what is worked at once."""
    ahead = sum(at.waiting for other, at in load.lanes.items() if other <= lane and not at.paused)
    each = policy.pools[load.pool_id].expected_seconds
    return ahead * each / max(1, load.slots)
