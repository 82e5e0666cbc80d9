"""The other executor: tells the wanted number, and whoever owns the machines acts on it.

A gauge for Prometheus and a document for an external metric of Kubernetes; both say nothing before
everything that the log keeps was read, so that a start never looks like a wish for less.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from gpu_runners.scaling.wanted import Want
from schema.ids import PoolId

PATH: Final = "/external-metrics"


class Figure:
    """The numbers as others read them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._cards = Gauge(
            "cutlog_pool_cards_wanted",
            "Cards that the pool wants: its replicas of runners.",
            ["pool"],
            registry=registry,
        )
        self._wanted: dict[PoolId, Want] | None = None

    def set(self, wanted: Mapping[PoolId, Want]) -> None:
        """From here on these are the numbers."""
        for gone in set(self._wanted or ()) - set(wanted):
            self._cards.remove(gone)
        self._wanted = dict(wanted)
        for pool_id, want in wanted.items():
            self._cards.labels(pool_id).set(want.cards)

    def document(self, path: str) -> bytes | None:
        """`/external-metrics` is all pools, `/external-metrics/C` one; None: there is no such."""
        if self._wanted is None or not path.startswith(PATH):
            return None
        rest = path.removeprefix(PATH).strip("/")
        if not rest:
            pools = {pool_id: _told(want) for pool_id, want in self._wanted.items()}
            return msgspec.json.encode({"pools": pools})
        want = self._wanted.get(PoolId(rest))
        return None if want is None else msgspec.json.encode(_told(want))


def _told(want: Want) -> dict[str, int | bool]:
    return {"cards": want.cards, "slots_per_card": want.slots, "spot": want.spot}
