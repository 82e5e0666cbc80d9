"""What the engine measures of itself; the shell chooses the registry and serves it."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """All series of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.transactions = Counter(
            "engine_transactions", "Committed transactions", registry=registry
        )
        self.commands = Counter(
            "engine_commands", "Records applied, ticks included", registry=registry
        )
        self.poison = Counter("engine_poison", "Commands that were poison", registry=registry)
        self.batch = Histogram(
            "engine_batch_records",
            "Records of one transaction",
            buckets=(1, 3, 10, 30, 100, 300, 1_000, 2_000),
            registry=registry,
        )
        self.seconds = Histogram(
            "engine_transaction_seconds",
            "From the first produce to the commit",
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
            registry=registry,
        )
        self.working = Counter(
            "engine_working_seconds", "Time spent in the rules", registry=registry
        )
        self.lag = Gauge(
            "engine_lag_records",
            "Records of a source partition not applied yet",
            ("topic", "partition"),
            registry=registry,
        )
        self.ready = Gauge("engine_ready", "1: every partition is open", registry=registry)
        self.down = Gauge("engine_down", "1: stays down, the code is wrong", registry=registry)
        self.quarantined = Gauge(
            "engine_quarantined_keys", "Keys with poison", ("partition",), registry=registry
        )
        self.parked = Gauge(
            "engine_parked_commands", "Commands behind poison", ("partition",), registry=registry
        )
        self.recovered = Counter(
            "engine_recovered_records", "Records of the changelog read", registry=registry
        )
        self.recovery_seconds = Gauge(
            "engine_recovery_seconds", "Length of the last recovery", registry=registry
        )
        self.pace = Gauge("engine_pace_seconds", "Wait between transactions", registry=registry)
