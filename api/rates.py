"""The rate hint: refuses at the door what the quota decider would refuse in this minute anyway.

Only what was granted counts, as the decider counts. Counts live here and are merged with the
other instances through Redis a few times a second, never within a request; a count that is far
from its limit is not merged at all. Without Redis each instance knows its own counts. The
decider is right in any case.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from schema.ids import TaskId, UserId
from schema.refusals import Refusal
from schema.replies import Accepted, Refused, ReplyMessage
from schema.wires.telemetry import facts
from schema.words import Scene

MERGE_SECONDS = 0.5
_MINUTE = 60
_MERGED_SHARE = 0.25
"""From this share of a limit on a count is worth telling the others."""
_GRANTED_MAX = 50_000
_log = logging.getLogger(__name__)
Key = tuple[UserId, Scene]


class Shared(Protocol):
    """Counters that all instances add to."""

    async def add(self, counts: Mapping[str, int], seconds: int) -> dict[str, int]:
        """Add to counters that end after so long; their totals."""
        ...


class _Count:
    """Grants of one user in one scene and minute."""

    __slots__ = ("base", "granted", "told", "total")

    def __init__(self) -> None:
        self.granted = 0
        """Through this instance."""
        self.told = 0
        """Of those, how many the others were told of."""
        self.total = 0
        """Of all instances, as of the best word that we have."""
        self.base = 0
        """How many of `granted` that word knew."""

    @property
    def known(self) -> int:
        return self.total + self.granted - self.base

    def hear(self, total: int, base: int) -> None:
        """A word on all instances' grants that knew `base` of ours: counts only rise."""
        if total - base >= self.total - self.base:
            self.total, self.base = total, base


class RateHint:
    """Grants of the current minute by user and scene."""

    def __init__(self, shared: Shared, clock: Callable[[], float] = time.time) -> None:
        self._shared = shared
        self._clock = clock
        self._minute = 0
        self._counts: dict[Key, _Count] = {}
        self._granted: dict[TaskId, None] = {}
        """Tasks granted here of late: asking for one again is no new submission."""
        self._worth: dict[Key, None] = {}

    def resets_at(self, key: Key, task_id: TaskId, limit: int) -> datetime | None:
        """When this user may submit again in this scene; None: now."""
        minute = int(self._clock()) // _MINUTE
        if minute != self._minute:
            self._begin(minute)
        count = self._counts.get(key)
        if count is None or count.known < limit or task_id in self._granted:
            return None
        return datetime.fromtimestamp((minute + 1) * _MINUTE, UTC)

    def learn(self, key: Key, task_id: TaskId, reply: ReplyMessage, limit: int) -> None:
        """What the decider said of a submission."""
        match reply:
            case Accepted(remaining=remaining) if remaining is not None:
                if task_id in self._granted:
                    return
                self._grant(task_id)
                count = self._count(key, remaining.minute_window.start)
                if count is None:
                    return
                count.granted += 1
                # The decider's own figure knows of every instance.
                count.hear(limit - remaining.minute, count.granted)
                if count.known >= limit * _MERGED_SHARE:
                    self._worth[key] = None
            case Refused(reason=Refusal.RATE_EXCEEDED, remaining=remaining) if remaining:
                count = self._count(key, remaining.minute_window.start)
                if count is not None:
                    count.hear(limit, count.granted)
            case _:
                return

    def _count(self, key: Key, window_start: datetime) -> _Count | None:
        """The count of that minute, unless it is over."""
        minute = int(window_start.timestamp()) // _MINUTE
        if minute > self._minute:
            self._begin(minute)
        if minute < self._minute:
            return None
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count()
        return count

    def _begin(self, minute: int) -> None:
        self._minute = minute
        self._counts.clear()
        self._worth.clear()

    def _grant(self, task_id: TaskId) -> None:
        if len(self._granted) >= _GRANTED_MAX:
            del self._granted[next(iter(self._granted))]
        self._granted[task_id] = None

    async def merge(self) -> None:
        """Tell the others what is new, in one round trip, and hear of theirs."""
        if not self._worth:
            return
        minute, keys = self._minute, list(self._worth)
        self._worth.clear()
        told = {key: self._counts[key].granted - self._counts[key].told for key in keys}
        names = {key: f"rate:{minute}:{key[1]}:{key[0]}" for key in keys}
        totals = await self._shared.add(
            {names[key]: count for key, count in told.items()}, 2 * _MINUTE
        )
        if minute != self._minute:
            return
        for key in keys:
            count = self._counts[key]
            count.told += told[key]
            count.hear(totals[names[key]], count.told)

    async def run(self) -> None:
        """Merge for ever; Redis away costs the others' counts, nothing else."""
        while True:
            await asyncio.sleep(MERGE_SECONDS)
            try:
                await self.merge()
            except OSError as error:
                _log.warning("rates are not merged", extra=facts(error=repr(error)))
