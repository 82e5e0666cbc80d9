"""What the projector says of itself: lag, transactions, and whether it keeps up."""

import time
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schema.wires.log import Place

BEHIND_SECONDS_MAX: Final = 30.0


class Watching:
    """Metrics and readiness. Not ready before all was applied once, or when long behind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Gauge(
            "cutlog_projection_lag_records",
            "Committed records not applied yet",
            ["topic", "partition"],
            registry=registry,
        )
        self._records = Counter(
            "cutlog_projection_records", "Records applied", ["topic"], registry=registry
        )
        self._seconds = Histogram(
            "cutlog_projection_transaction_seconds",
            "From the first statement to the commit, tries included",
            registry=registry,
            buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30),
        )
        self._lags: dict[Place, int] = {}
        self._kept_up = 0.0
        self._ready = False
        self._trouble: str | None = "starting"

    def lag(self, lags: Mapping[Place, int]) -> None:
        """How many offsets of each partition are read by nobody yet."""
        for place, lag in lags.items():
            if self._lags.get(place) != lag:
                self._lags[place] = lag
                self._lag.labels(place.topic, str(place.partition)).set(lag)
        if self._ready and not any(lags.values()):
            self._kept_up = time.monotonic()

    def applied(self, records: Mapping[str, int], seconds: float) -> None:
        """A transaction is committed."""
        self._trouble = None
        self._seconds.observe(seconds)
        for topic, count in records.items():
            self._records.labels(topic).inc(count)

    def caught_up(self) -> None:
        """Everything that is committed in the log is applied."""
        self._trouble = None
        self._ready = True
        self._kept_up = time.monotonic()

    def trouble(self, what: str) -> None:
        """Something is away; it is tried again."""
        self._trouble = what

    def problem(self) -> str | None:
        """Why the read models are not ready, or None."""
        if self._trouble is not None:
            return self._trouble
        if not self._ready:
            return "the log is not applied to its end yet"
        behind = time.monotonic() - self._kept_up
        if behind > BEHIND_SECONDS_MAX:
            return f"behind for {behind:.0f} s"
        return None
