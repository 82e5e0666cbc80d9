"""The rival: the same submissions on the same cards, first come first served, nobody refused.

No lane, no share, no preemption, no fault: what a plain queue for each kind of card would have made
of the same day. It is let off easily: its spot cards are never taken away and serve all of genai.
"""

from collections import defaultdict
from collections.abc import Iterable
from heapq import heapify, heapreplace
from typing import NamedTuple

from processors.simulation.crowd import Ask
from processors.simulation.figures import percentile
from processors.simulation.policies import CARDS
from schema.words import Lane


class Rival(NamedTuple):
    """What became of it."""

    waits: dict[Lane, list[tuple[int, float]]]
    """When they came (ms) and how long they waited (s)."""
    busy_ms: float
    """Card milliseconds used until the horizon."""
    utilisation: float

    def p95(self, lane: Lane) -> float:
        return percentile((wait for _, wait in self.waits[lane]), 0.95)


def play(asks: Iterable[Ask], horizon_ms: int) -> Rival:
    """Each takes the slot that is free first; the asks are in the order in which they came."""
    free: dict[str, list[int]] = defaultdict(list)
    for pool_id, cards in CARDS.items():
        home = "C" if pool_id == "C-spot" else pool_id
        free[home] += [0] * (cards.number * cards.slots_per_card)
    for slots in free.values():
        heapify(slots)
    waits: dict[Lane, list[tuple[int, float]]] = defaultdict(list)
    busy = 0.0
    for ask in asks:
        slots = free[ask.pool_id]
        begins = max(ask.at, slots[0])
        ends = begins + ask.work_ms
        heapreplace(slots, ends)
        waits[ask.lane].append((ask.at, (begins - ask.at) / 1_000))
        worked = max(min(ends, horizon_ms) - min(begins, horizon_ms), 0)
        busy += worked / CARDS[ask.pool_id].slots_per_card
    there = sum(cards.number for cards in CARDS.values()) * horizon_ms
    return Rival(waits, busy, busy / there)
