"""What a runner counts."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpu_runners.attempts import End

_MILLISECONDS = 1_000


class Metrics:
    """The figures of one runner process, in a registry of its own."""

    def __init__(self, registry: CollectorRegistry, slots: int) -> None:
        self.attempts = Counter(
            "cutlog_runner_attempts", "Dispatches that were taken.", registry=registry
        )
        self._ends = Counter(
            "cutlog_runner_attempt_ends",
            "Attempts by how they ended: finished, failed, given_back, stopped.",
            ["end", "cause"],
            registry=registry,
        )
        self._card_seconds = Counter(
            "cutlog_runner_card_seconds", "Card time of ended attempts.", registry=registry
        )
        self._wasted_seconds = Counter(
            "cutlog_runner_wasted_card_seconds",
            "Card time that nobody has anything of, by how the attempt ended.",
            ["end", "cause"],
            registry=registry,
        )
        self.busy = Gauge("cutlog_runner_busy_slots", "Slots at work.", registry=registry)
        self.slots = Gauge("cutlog_runner_slots", "Slots there are.", registry=registry)
        self.slots.set(slots)
        self.storing = Gauge(
            "cutlog_runner_storing_results",
            "Results on their way to the store whose slot is free already.",
            registry=registry,
        )
        self.lost_leases = Counter(
            "cutlog_runner_lost_leases",
            "Leases that ended because no beat was answered: all work was stopped.",
            registry=registry,
        )
        self.spot_notices = Counter(
            "cutlog_runner_spot_notices",
            "Notices that the card is being taken away.",
            registry=registry,
        )
        self.lost_hints = Counter(
            "cutlog_runner_lost_hints",
            "Progress reports that the log did not take.",
            registry=registry,
        )

    def ended(self, end: End) -> None:
        """Count an attempt that has ended."""
        self._ends.labels(end.word, end.cause).inc()
        self._card_seconds.inc(end.card_ms / _MILLISECONDS)
        if end.wasted_ms:
            self._wasted_seconds.labels(end.word, end.cause).inc(end.wasted_ms / _MILLISECONDS)
