"""What the door knows without asking: the newest policy, and how far the read model is behind.

Read from the read model once a second, beside the requests. Without a policy nothing can be
admitted; with a read model that is too far behind, nobody could tell a new key from one of
yesterday.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from api.measures import Measures
from api.pools import Pools
from api.problems import Door, Problem, at_the_door, refusal
from api.reads import ReadModel
from schema.policy import Policy
from schema.refusals import Refusal
from schema.wires.telemetry import facts

REFRESH_SECONDS = 1.0
BEHIND_SECONDS_MAX = 12 * 3600
STALE_SECONDS = 30.0
"""Older words about the lag count for nothing."""
_log = logging.getLogger(__name__)


class Standing:
    """The policy in use and the state of the read model."""

    def __init__(
        self,
        reads: ReadModel,
        pools: Pools,
        measures: Measures,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reads = reads
        self._pools = pools
        self._measures = measures
        self._clock = clock
        self._policy: Policy | None = None
        self._behind_seconds = 0.0
        self._read_at = float("-inf")
        self._well = False
        self.epoch: str | None = None
        """Which incarnation of the log the read model tells of: the first part of an event's id."""

    def policy(self) -> Policy:
        """The newest policy; raises Problem (503) before there is one."""
        if self._policy is None:
            raise refusal(Refusal.POLICY_MISSING)
        return self._policy

    def check_fresh(self) -> None:
        """Raises Problem (503) when the read model cannot tell what was asked for before."""
        if self._clock() - self._read_at > STALE_SECONDS:
            raise at_the_door(Door.READ_MODEL_AWAY)
        if self._behind_seconds > BEHIND_SECONDS_MAX:
            raise at_the_door(Door.READ_MODEL_AWAY, "It is too far behind.", retry_after=60)

    def problem(self) -> str | None:
        """Why nothing could be admitted now; None: all is well."""
        try:
            self.policy()
            self.check_fresh()
        except Problem as problem:
            return problem.detail or problem.title
        return None if self._well else Door.READ_MODEL_AWAY.headline

    async def refresh(self) -> None:
        """Read it all; raises Problem when the read model is away."""
        policy = await self._reads.newer_policy(self._policy.version if self._policy else 0)
        if policy is not None:
            self._policy = policy
            self._measures.policy_version.set(policy.version)
        log = await self._reads.log()
        self.epoch = log.epoch if log else None
        self._behind_seconds = log.behind_seconds if log else float("inf")
        self._measures.read_model_behind_seconds.set(self._behind_seconds)
        self._pools.take(await self._reads.pools())
        self._read_at = self._clock()
        self._well = True

    async def run(self) -> None:
        """Refresh for ever."""
        told = False
        while True:
            try:
                await self.refresh()
                told = False
            except Problem as problem:
                if not told:
                    _log.warning("read model away", extra=facts(error=str(problem.__cause__)))
                told = True
                self._well = False
            await asyncio.sleep(REFRESH_SECONDS)
