"""A pool at work in a test: one runner with so many slots, and attempts that take a known time."""

from heapq import heappop, heappush
from typing import Any

from commands.decider import Decision
from schema import commands as c
from schema import events as e
from schema.ids import AccountId
from schema.words import Lane
from tests.support.pools import Pools, policy

RUN_MS = 20_000
FOREVER = 10**6


class Shop:
    """Tasks come, wait, run and end; who was picked, and when, is written down."""

    def __init__(self, slots: int = 1, pools: tuple[str, ...] = ("A",), **numbers: Any) -> None:  # noqa: ANN401
        numbers = {"lease_seconds": FOREVER, "beat_seconds": FOREVER - 1, **numbers}
        self.pools = Pools(adopted=False)
        self.pools.publish(policy(pools=pools, **numbers))
        self.pools.register(slots=slots)
        self.picked: list[str] = []
        self.waited_ms: dict[str, int] = {}
        self.came_ms: dict[str, int] = {}
        self.running: list[tuple[int, str, int]] = []
        self.account_of: dict[str, str] = {}
        self.lane_of: dict[str, Lane] = {}
        self.had_ms: dict[str, int] = {}

    def come(
        self,
        task: str,
        account: str = "u-1",
        lane: Lane = Lane.P1,
        **more: Any,  # noqa: ANN401
    ) -> Decision[e.PoolEvent]:
        self.account_of[task] = account
        self.lane_of[task] = lane
        self.came_ms.setdefault(task, self.pools.served_ms)
        decision = self.pools.enqueue(task, lane=lane, account_id=AccountId(account), **more)
        return self.note(decision)

    def note(self, decision: Decision[e.PoolEvent], run_ms: int = RUN_MS) -> Decision[e.PoolEvent]:
        """Who got a slot by this step."""
        now_ms = self.pools.served_ms
        for event in decision.events:
            if isinstance(event, e.SlotProposed):
                self.picked.append(event.task_id)
                self.waited_ms[event.task_id] = now_ms - self.came_ms[event.task_id]
                heappush(self.running, (now_ms + run_ms, event.task_id, event.token))
                account = self.account_of[event.task_id]
                self.had_ms[account] = self.had_ms.get(account, 0) + run_ms
        return decision

    def finish(self, run_ms: int = RUN_MS) -> None:
        """The attempt that is due first ends, and its slot is free."""
        end_ms, task, token = heappop(self.running)
        self.pools.served_ms = max(self.pools.served_ms, end_ms)
        self.pools.task_says(c.EndAttempt, task, token)
        self.note(self.pools.runner_says(c.FreeSlot, task, token), run_ms)

    def work(self, ends: int = 10**9) -> list[str]:
        """So many attempts end (or all); who was picked meanwhile."""
        before = len(self.picked)
        while self.running and ends > 0:
            self.finish()
            ends -= 1
        return self.picked[before:]

    def hold(self) -> None:
        """All slots are taken by somebody who counts for nobody."""
        slots = self.pools.state.depths(self.pools.state.pools[0]).slots
        for number in range(slots):
            self.come(f"holder{number}", f"u-holder{number}", Lane.P0)
        self.picked.clear()
