"""What the processors tell of their pools: read from the state when asked, stored nowhere.

A scrape comes in a thread of its own while the writer works, so only plain counts are read: the
orders in memory (`PoolState.depths` looks into them) shed stale entries as they are read.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from commands.pools import PoolState
from commands.pools.rows import HOLDS_SLOT, LANES, BreakerState
from processors.pools import Pools
from schema.ids import PoolId
from schema.words import Scene

_BREAKER = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class PoolMetrics(Collector):
    """Depths and slots of the pools whose partition this process owns."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        """One family a figure, labelled by pool (and lane)."""
        waiting = GaugeMetricFamily(
            "cutlog_pool_waiting_tasks", "Tasks that wait.", labels=("pool", "lane")
        )
        paused = GaugeMetricFamily(
            "cutlog_pool_lane_paused", "1: the lane is paused.", labels=("pool", "lane")
        )
        slots = GaugeMetricFamily("cutlog_pool_slots", "Slots there are.", labels=("pool",))
        used = GaugeMetricFamily("cutlog_pool_used_slots", "Slots taken.", labels=("pool",))
        runners = GaugeMetricFamily("cutlog_pool_runners", "Runners known.", labels=("pool",))
        for state in self._pools.states():
            for pool_id in state.pools:
                yard, since_ms = state.yard(pool_id), state.pool(pool_id).since_ms
                for number, lane in enumerate(LANES):
                    waiting.add_metric((pool_id, lane), yard.waiting.counts[number])
                    paused.add_metric((pool_id, lane), int(since_ms[number] is not None))
                slots.add_metric((pool_id,), yard.slots)
                used.add_metric((pool_id,), _used(state, pool_id))
                runners.add_metric((pool_id,), yard.runners)
        yield from (waiting, paused, slots, used, runners)
        yield from self._cards()

    def _cards(self) -> Iterator[Metric]:
        """How many cards are wanted and there, which scenes they fail, who had to make room."""
        wanted = GaugeMetricFamily(
            "cutlog_pool_wanted_cards", "Cards that the pool wants.", labels=("pool",)
        )
        cards = GaugeMetricFamily(
            "cutlog_pool_cards", "Cards there are, without those that drain.", labels=("pool",)
        )
        breaker = GaugeMetricFamily(
            "cutlog_pool_breaker", "0: closed, 1: half open, 2: open.", labels=("pool", "scene")
        )
        preempted = CounterMetricFamily(
            "cutlog_pool_preemptions", "Attempts that p0 took the slot of.", labels=("pool",)
        )
        for state in self._pools.states():
            for pool_id in state.pools:
                scale = state.scale(pool_id)
                if scale is not None:
                    wanted.add_metric((pool_id,), scale.cards)
                cards.add_metric((pool_id,), len(state.yard(pool_id).fresh))
                for scene in Scene:
                    row = state.breaker(pool_id, scene)
                    if row is not None:
                        breaker.add_metric((pool_id, scene), _BREAKER[row.state])
        for pool_id, count in self._pools.preemptions.items():
            preempted.add_metric((pool_id,), count)
        yield from (wanted, cards, breaker, preempted)


def _used(state: PoolState, pool_id: PoolId) -> int:
    stages = state.yard(pool_id).stages
    return sum(stages[stage] for stage in HOLDS_SLOT)
