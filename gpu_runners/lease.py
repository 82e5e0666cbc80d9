"""When a runner must stop by itself: at the end of its lease, or when its card is taken away.

A lease counts from the sending of the answered beat.

The runner's own clock measures only durations; which beat was answered comes from the log.
Counting from the sending, the runner stops no later than the pool gives its attempts away.
"""

import math
import time
from collections import OrderedDict

from schema.commands import NOTICE_SECONDS_MAX

_BEATS_REMEMBERED = 64
_SAVE_SHARE = 0.75
"""Of a notice, what saving may take: the pool gives up later, and the card is gone last."""


def clock() -> float:
    """Seconds of a clock that never steps, and goes on while the machine sleeps or is moved."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease of one incarnation. Times are seconds of `clock`, or of a clock of the caller's."""

    def __init__(self) -> None:
        self._sent: OrderedDict[int, float] = OrderedDict()
        self._until: float | None = None
        self._beat = 0

    @property
    def until(self) -> float | None:
        """When it ends; None before the first answer."""
        return self._until

    def next_beat(self, sent_at: float) -> int:
        """Number of the beat that is sent now."""
        number = self._beat
        self._beat += 1
        self._sent[number] = sent_at
        while len(self._sent) > _BEATS_REMEMBERED:
            self._sent.popitem(last=False)
        return number

    def answered(self, beat: int, lease_seconds: float) -> bool:
        """A beat was answered; whether it was one of ours. An answer never shortens the lease."""
        sent_at = self._sent.pop(beat, None)
        if sent_at is None:
            return False
        until = sent_at + lease_seconds
        if self._until is None or until > self._until:
            self._until = until
        return True

    def holds(self, at: float) -> bool:
        """Whether work may go on at `at`."""
        return self._until is not None and at < self._until


class Notice:
    """A notice that the card is gone in so long. Times are seconds of `clock`."""

    def __init__(self, seconds: float, came_at: float) -> None:
        self._seconds = min(seconds, NOTICE_SECONDS_MAX)
        self._came_at = came_at

    def _left(self, share: float, at: float) -> float:
        return self._seconds * share - (at - self._came_at)

    def save_seconds(self, at: float) -> float:
        """How long saving may take from `at` on; below 0: there is no time for it."""
        return self._left(_SAVE_SHARE, at)

    def told_seconds(self, at: float) -> int:
        """What the pool is told at `at`: in so long the card is gone."""
        return max(math.ceil(self._left(1, at)), 1)
