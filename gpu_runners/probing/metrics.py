"""What a prober counts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3_600)


class Metrics:
    """The figures of one prober, in a registry of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.verdicts = Counter(
            "cutlog_probing_verdicts",
            "Uploads by what became of them: ready, part_missing, or the reason of a refusal.",
            ["verdict"],
            registry=registry,
        )
        self.seconds = Histogram(
            "cutlog_probing_seconds",
            "From the event to the verdict.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.bytes = Counter("cutlog_probing_bytes", "Bytes that were read.", registry=registry)
        self.known = Counter(
            "cutlog_probing_known_contents",
            "Uploads whose content was stored already.",
            registry=registry,
        )
        self.busy = Gauge("cutlog_probing_busy", "Materials at work.", registry=registry)
        self.retries = Counter(
            "cutlog_probing_retries",
            "What had to be tried again, by the part that was away: store, log, probe.",
            ["part"],
            registry=registry,
        )
