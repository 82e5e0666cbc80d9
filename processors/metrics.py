"""What the processors tell of their pools: read from the state when asked, stored nowhere."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from processors.pools import Pools


class PoolMetrics(Collector):
    """Depths and slots of the pools whose partition this process owns."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def collect(self) -> Iterator[GaugeMetricFamily]:
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
                depths = state.depths(pool_id)
                for lane, count in depths.waiting.items():
                    waiting.add_metric((pool_id, lane), count)
                    paused.add_metric((pool_id, lane), int(lane in depths.paused))
                slots.add_metric((pool_id,), depths.slots)
                used.add_metric((pool_id,), depths.used)
                runners.add_metric((pool_id,), depths.runners)
        yield from (waiting, paused, slots, used, runners)
