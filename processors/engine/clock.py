"""The clocks of one partition number. Only the log's time counts.

`now` never goes back. A gap of more than 5 s between two ticks of a topic (nobody served it, or a
clock jumped) is added to that topic's stall; `served` = now - stall is the clock that deadlines are
stored in, so an outage lets no deadline pass. Between ticks the served clock runs at most those 5 s
past the last tick: what was appended during an outage is worked before the tick that tells of it.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

STALL_GAP_MS: Final = 5_000


class ClockRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of the clocks, with the positions."""

    now: int = 0
    stall: dict[str, int] = {}
    ticked: dict[str, int] = {}


class Clock:
    """`now` and, for each ticked topic, the last tick and the stall; all in milliseconds."""

    __slots__ = ("gap_ms", "last_tick", "now", "stall")

    def __init__(self, ticked: Iterable[str] = (), *, gap_ms: int = STALL_GAP_MS) -> None:
        self.gap_ms = gap_ms
        self.now = 0
        self.stall: dict[str, int] = dict.fromkeys(ticked, 0)
        self.last_tick: dict[str, int] = {}

    def advance(self, timestamp: int) -> int:
        """The time of a command: its own, or the last one if that was later."""
        if timestamp > self.now:  # noqa: PLR1730 - `max` would be a call for each command
            self.now = timestamp
        return self.now

    def tick(self, topic: str) -> None:
        """A tick of `topic` was read at `now`; counts the gap since the last one."""
        last = self.last_tick.get(topic)
        if last is not None and self.now - last > self.gap_ms:
            self.stall[topic] += self.now - last
        self.last_tick[topic] = self.now

    def served(self, topic: str) -> int:
        """The served clock of a ticked topic; raises KeyError for a topic without ticks."""
        last = self.last_tick.get(topic)
        now = self.now if last is None else min(self.now, last + self.gap_ms)
        return now - self.stall[topic]

    def store(self) -> ClockRow:
        return ClockRow(now=self.now, stall=dict(self.stall), ticked=dict(self.last_tick))

    def restore(self, row: ClockRow) -> None:
        self.now = row.now
        self.stall.update({topic: ms for topic, ms in row.stall.items() if topic in self.stall})
        self.last_tick = {topic: at for topic, at in row.ticked.items() if topic in self.stall}
