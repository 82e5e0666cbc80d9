"""What a run is measured by: waits, refusals, estimates, use of the cards, money. Counts only."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from processors.simulation.policies import CARDS
from schema.words import Lane

BUCKET_MS: Final = 10 * 60_000
_HOUR_MS: Final = 3_600_000
ERROR_FLOOR_SECONDS: Final = 10.0
"""An estimate of a wait that is shorter than this is not judged by its share of it."""
Place = tuple[str, Lane]


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which this share of them lies; 0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def share_error(estimated: float, waited: float) -> float:
    """How far an estimate was from what happened, as a share of what happened."""
    return abs(estimated - waited) / max(waited, ERROR_FLOOR_SECONDS)


class Figures:
    """Of one run."""

    def __init__(self, horizon_ms: int) -> None:
        self.horizon_ms = horizon_ms
        self.waits: dict[Place, list[tuple[int, float]]] = defaultdict(list)
        """By pool and lane of the submission: when it came (ms), how long it waited (s)."""
        self.asked: dict[Place, int] = defaultdict(int)
        self.refused: dict[Place, list[tuple[int, float]]] = defaultdict(list)
        """When, and the estimate that it was refused with (s)."""
        self.accepted_errors: dict[Lane, list[float]] = defaultdict(list)
        self.refused_errors: dict[Lane, list[float]] = defaultdict(list)
        self.greedy_waits: list[float] = []
        self._used: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._since: dict[str, int] = {}
        self.busy: dict[str, list[float]] = defaultdict(list)
        """Slot milliseconds in use, by pool and bucket."""
        self.there: dict[str, list[float]] = defaultdict(list)

    def use(self, pool_id: str, now: int, used: int, slots: int) -> None:
        """From now on so many of so many slots are used."""
        since = self._since.get(pool_id, 0)
        if now > since:
            busy, there = self.busy[pool_id], self.there[pool_id]
            was, had = self._used.get(pool_id, 0), self._slots.get(pool_id, 0)
            while since < now:
                bucket = since // BUCKET_MS
                until = min(now, (bucket + 1) * BUCKET_MS)
                while len(busy) <= bucket:
                    busy.append(0.0)
                    there.append(0.0)
                busy[bucket] += was * (until - since)
                there[bucket] += had * (until - since)
                since = until
            self._since[pool_id] = now
        self._used[pool_id], self._slots[pool_id] = used, slots

    # --- reading ---------------------------------------------------------------------------------

    def lane_waits(self, lane: Lane, pool_id: str = "") -> list[float]:
        return [
            wait
            for (pool, each), waits in self.waits.items()
            if each == lane and pool_id in ("", pool)
            for _, wait in waits
        ]

    def p95(self, lane: Lane, pool_id: str = "") -> float:
        return percentile(self.lane_waits(lane, pool_id), 0.95)

    def refused_of(self, lane: Lane) -> int:
        return sum(len(some) for (_, each), some in self.refused.items() if each == lane)

    def asked_of(self, lane: Lane) -> int:
        return sum(count for (_, each), count in self.asked.items() if each == lane)

    def utilisation(self, from_ms: int = 0, to_ms: int | None = None, pool_id: str = "") -> float:
        """The share of the cards' time that was used; a card counts by its count, not its slots."""
        first = from_ms // BUCKET_MS
        last = (self.horizon_ms if to_ms is None else to_ms) // BUCKET_MS
        busy = there = 0.0
        for pool, cards in CARDS.items():
            if pool_id in ("", pool):
                busy += sum(self.busy[pool][first:last]) / cards.slots_per_card
                there += sum(self.there[pool][first:last]) / cards.slots_per_card
        return busy / there if there else 0.0

    def cost(self) -> float:
        """What the cards that were there cost, in money of the platform."""
        return sum(
            sum(self.there[pool]) / cards.slots_per_card / _HOUR_MS * cards.dollar_hour
            for pool, cards in CARDS.items()
        )

    def card_hours(self) -> float:
        """Card hours in use."""
        return sum(
            sum(self.busy[pool]) / cards.slots_per_card / _HOUR_MS for pool, cards in CARDS.items()
        )

    def over_time(self, lane: Lane, share: float = 0.95) -> list[float]:
        """P95 of the waits of a lane, by the bucket in which they came."""
        buckets: dict[int, list[float]] = defaultdict(list)
        for (_, each), waits in self.waits.items():
            if each == lane:
                for at, wait in waits:
                    buckets[at // BUCKET_MS].append(wait)
        count = self.horizon_ms // BUCKET_MS
        return [percentile(buckets[number], share) for number in range(count)]

    def refused_over_time(self, lane: Lane) -> list[float]:
        """The share of a lane that was refused, by bucket."""
        came = [0] * (self.horizon_ms // BUCKET_MS + 1)
        gone = list(came)
        for (_, each), waits in self.waits.items():
            if each == lane:
                _tally(came, (at for at, _ in waits))
        for (_, each), refusals in self.refused.items():
            if each == lane:
                _tally(came, (at for at, _ in refusals))
                _tally(gone, (at for at, _ in refusals))
        return [some / all_ if all_ else 0.0 for some, all_ in zip(gone, came, strict=True)][:-1]

    def used_over_time(self) -> list[float]:
        step = BUCKET_MS
        return [
            self.utilisation(at, at + step) for at in range(0, self.horizon_ms - step + 1, step)
        ]


def _tally(counts: list[int], times: Iterable[int]) -> None:
    for at in times:
        counts[min(at // BUCKET_MS, len(counts) - 1)] += 1


def within(times: Sequence[tuple[int, float]], from_ms: int, to_ms: int) -> list[float]:
    """The values of a span, of pairs in the order of their times."""
    low = bisect_left(times, (from_ms, 0.0))
    high = bisect_left(times, (to_ms, 0.0))
    return [value for _, value in times[low:high]]
