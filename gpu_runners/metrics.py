"""What a runner counts."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """The figures of one runner process, in a registry of its own."""

    def __init__(self, registry: CollectorRegistry, slots: int) -> None:
        self.attempts = Counter(
            "cutlog_runner_attempts", "Dispatches that were taken.", registry=registry
        )
        self.busy = Gauge("cutlog_runner_busy_slots", "Slots at work.", registry=registry)
        self.slots = Gauge("cutlog_runner_slots", "Slots there are.", registry=registry)
        self.slots.set(slots)
        self.lost_leases = Counter(
            "cutlog_runner_lost_leases",
            "Leases that ended because no beat was answered.",
            registry=registry,
        )
        self.lost_hints = Counter(
            "cutlog_runner_lost_hints",
            "Progress reports that the log did not take.",
            registry=registry,
        )
