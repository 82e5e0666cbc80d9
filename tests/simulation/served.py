"""How long a partition was served, counted anew from its ticks: what a deadline may rest on.

A second opinion on the engine's stall: a long gap between two ticks counts nothing, whether the
broker's clock jumped or nobody was there. The engine sees a tick at the time of the commands around
it, so that one that waited through a gap splits it: up to 5 s on each side may count.
"""

from bisect import bisect_right

from processors.engine import Record
from processors.engine.records import TICK_KEY

_GAP_MS = 5_000


def _counted(gap: int) -> int:
    """At most so much of a gap between two ticks counts as served."""
    return gap if gap <= 2 * _GAP_MS else _GAP_MS


class Served:
    """Served time of one ticked topic on one partition, up to any instant of the log."""

    def __init__(self) -> None:
        self._at: list[int] = []
        self._total: list[int] = []

    def follow(self, record: Record) -> None:
        if record.key != TICK_KEY:
            return
        if not self._at:
            self._at.append(record.timestamp)
            self._total.append(0)
            return
        gap = record.timestamp - self._at[-1]
        self._at.append(record.timestamp)
        self._total.append(self._total[-1] + _counted(gap))

    def between(self, begin: int, end: int) -> int:
        """At most so much of the log time from `begin` to `end` was served."""
        return self._until(end) - self._until(begin) + _GAP_MS + 1_000

    def _until(self, at: int) -> int:
        place = bisect_right(self._at, at)
        return self._total[place - 1] if place else 0
