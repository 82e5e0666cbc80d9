"""The door: who is let in, by the same reckoning and with news as old as the product's.

It knows what the api knows: loads that a projection told a second ago, the mean time that slots
were held, how fast each lane came of late. Who would wait too long is told how long, and refused.
"""

from collections import defaultdict, deque
from math import isinf
from typing import Final, NamedTuple

from processors.simulation.figures import Figures, share_error
from processors.simulation.watch import LANE_AT, LANES, Watch
from processors.simulation.world import World
from schema.estimates import Load, ahead_of, seconds_until_room, wait_seconds
from schema.policy import Policy
from schema.words import Lane

ARRIVALS_SECONDS: Final = 1_800
"""So long is looked back for the rate at which a lane comes. The product looks back a minute, at a
hundred times as many tasks: by so few as come here, a minute's count would be mostly chance."""
NEWS_MS: Final = 1_000
"""How old the loads are by which the door judges."""
_MEMORY: Final = 0.02
"""What the last of the held slots counts in their mean."""


class _News(NamedTuple):
    at: int
    slots: int
    used: int
    waiting: tuple[int, int, int]
    large: tuple[dict[str, int], ...] | None = None
    """By lane, accounts of which many wait; None: there are none."""


class Answer(NamedTuple):
    estimate: float
    accepted: bool


class Door:
    def __init__(self, world: World, policy: Policy, watch: Watch, figures: Figures) -> None:
        self._world = world
        self._policy = policy
        self._watch = watch
        self._figures = figures
        self._news: dict[str, deque[_News]] = {
            name: deque([_News(0, 0, 0, (0, 0, 0))]) for name in policy.pools
        }
        self.held_seconds = {name: float(p.expected_seconds) for name, p in policy.pools.items()}
        self._floors = {
            name: {lane: rules.floor_picks for lane, rules in pool.lanes.items()}
            for name, pool in policy.pools.items()
        }
        self._came: dict[tuple[str, Lane], deque[int]] = defaultdict(deque)
        """By pool and lane, when the accepted of late came."""
        self._refused: dict[tuple[str, Lane], list[float]] = {}
        self._estimates: dict[str, tuple[float, list[float]]] = {}
        """By accepted task: its own estimate, and those of who was refused just before it."""
        watch.on_pool = self.changed
        watch.on_freed = self._freed

    # --- news ------------------------------------------------------------------------------------

    def changed(self, pool_id: str) -> None:
        """A batch is written that has to do with this pool."""
        yard, now = self._watch.yards[pool_id], self._world.now
        waiting = (yard.waiting[0], yard.waiting[1], yard.waiting[2])
        news = self._news[pool_id]
        last = news[-1]
        if last.used == yard.used and last.waiting == waiting and last.slots == yard.slots:
            return
        large = tuple(dict(one) for one in yard.large) if any(yard.large) else None
        news.append(_News(now, yard.slots, yard.used, waiting, large))
        self._figures.use(pool_id, now, yard.used, yard.slots)

    def _freed(self, pool_id: str, held_ms: int) -> None:
        if held_ms > NEWS_MS:
            mean = self.held_seconds[pool_id]  # type: ignore[index]
            self.held_seconds[pool_id] = mean + (held_ms / 1_000 - mean) * _MEMORY  # type: ignore[index]

    def _rate(self, pool_id: str, lane: Lane) -> float:
        came, now = self._came[pool_id, lane], self._world.now
        while came and came[0] <= now - ARRIVALS_SECONDS * 1_000:
            came.popleft()
        return len(came) / ARRIVALS_SECONDS

    def _seen(self, pool_id: str) -> _News:
        """A pool as it was a second ago."""
        news = self._news[pool_id]
        until = self._world.now - NEWS_MS
        while len(news) > 1 and news[1].at <= until:
            news.popleft()
        return news[0]

    def _load(self, pool_id: str, seen: _News) -> Load:
        return Load(
            slots=seen.slots,
            used=seen.used,
            held_seconds=self.held_seconds[pool_id],  # type: ignore[index]
            waiting=dict(zip(LANES, seen.waiting, strict=True)),
            floors=self._floors[pool_id],  # type: ignore[index]
            arrivals_per_second={lane: self._rate(pool_id, lane) for lane in LANES},
        )

    # --- judging ---------------------------------------------------------------------------------

    def judge(self, pool_id: str, lane: Lane, account_id: str) -> Answer:
        """Whether a task may come in, and how long it would wait."""
        pool = self._policy.pools[pool_id]  # type: ignore[index]
        rules, seen = pool.lanes[lane], self._seen(pool_id)
        load, ahead = self._load(pool_id, seen), None
        if seen.large is not None or account_id in pool.tenant_weights:
            number = LANE_AT[lane]
            large = {} if seen.large is None else seen.large[number]
            ahead = ahead_of(seen.waiting[number], large, account_id, pool.tenant_weights)
        estimate = wait_seconds(load, lane, ahead)
        too_long = rules.wait_max_seconds is not None and estimate > rules.wait_max_seconds
        if load.slots == 0 and self._world.now < 60_000:  # noqa: PLR2004 - nobody is there yet
            too_long, estimate = False, 0.0
        full = seconds_until_room(load, lane, rules.queue_limit) > 0
        return Answer(estimate, not (too_long or full))

    def refuse(self, pool_id: str, lane: Lane, estimate: float) -> None:
        self._figures.refused[pool_id, lane].append((self._world.now, estimate))
        if not isinf(estimate):
            self._refused.setdefault((pool_id, lane), []).append(estimate)

    def accept(self, task_id: str, pool_id: str, lane: Lane, estimate: float) -> None:
        self._came[pool_id, lane].append(self._world.now)
        self._estimates[task_id] = (estimate, self._refused.pop((pool_id, lane), []))

    def started(self, task_id: str, lane: Lane, waited: float) -> None:
        """What really happened, to it and so to whoever was refused just before it."""
        estimate, refused = self._estimates.pop(task_id)
        if not isinf(estimate):
            self._figures.accepted_errors[lane].append(share_error(estimate, waited))
        errors = self._figures.refused_errors[lane]
        errors.extend(share_error(each, waited) for each in refused)
