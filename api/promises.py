"""How far off the estimates are that callers were told: told at the door, checked at the start.

A sample of the accepted tasks is remembered until the read model says when they were first started.
Memory of this process only: an instance that starts anew begins to measure anew.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from api.measures import Measures
from api.pools import Estimate
from api.problems import Problem
from api.reads import FirstStart
from schema.ids import TaskId
from schema.wires.telemetry import facts

CHECK_SECONDS = 5.0
OPEN_MAX = 2_000
"""Promises remembered at once; what is told beyond is not measured."""
FORGOTTEN_SECONDS = 7_200.0
MATERIAL_SECONDS = 5.0
"""A task that came to its queue later than this waited for its material first: another time."""
FLOOR_SECONDS = 5.0
"""An error is a share of the wait, but of no less than this: nobody minds a second."""
RECENT_SECONDS = 600.0
_RECENT_MAX = 5_000
_log = logging.getLogger(__name__)


class _Promise(NamedTuple):
    estimate: Estimate
    told_at: float


class _Checked(NamedTuple):
    estimate: Estimate
    checked_at: float
    error: float


class Promises:
    """What was told, and how it turned out."""

    def __init__(
        self,
        first_starts: Callable[[Sequence[TaskId]], Awaitable[Mapping[TaskId, FirstStart]]],
        measures: Measures,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_starts = first_starts
        self._measures = measures
        self._clock = clock
        self._open: dict[TaskId, _Promise] = {}
        self._checked: deque[_Checked] = deque(maxlen=_RECENT_MAX)

    def tell(self, task_id: TaskId, estimate: Estimate) -> None:
        """A task was accepted and told this."""
        if len(self._open) < OPEN_MAX and estimate.wait_seconds < FORGOTTEN_SECONDS:
            self._open[task_id] = _Promise(estimate, self._clock())

    async def check(self) -> None:
        """See which have started; raises Problem when the read model is away."""
        now = self._clock()
        started = await self._first_starts(list(self._open)) if self._open else {}
        for task_id, start in started.items():
            promise = self._open.pop(task_id)
            if start.created_seconds > MATERIAL_SECONDS:
                continue
            error = error_of(promise.estimate.wait_seconds, start.waited_seconds)
            labels = (promise.estimate.pool_id, promise.estimate.lane.value)
            self._measures.estimate_error.labels(*labels).observe(error)
            self._checked.append(_Checked(promise.estimate, now, error))
        for task_id, promise in list(self._open.items()):
            if now - promise.told_at > FORGOTTEN_SECONDS:
                del self._open[task_id]
        while self._checked and now - self._checked[0].checked_at > RECENT_SECONDS:
            self._checked.popleft()

    def errors(self) -> dict[tuple[str, str], tuple[float, int]]:
        """By pool and lane: the median error of late, and of how many."""
        found: dict[tuple[str, str], list[float]] = {}
        for checked in self._checked:
            place = (checked.estimate.pool_id, checked.estimate.lane.value)
            found.setdefault(place, []).append(checked.error)
        return {place: (median(errors), len(errors)) for place, errors in found.items()}

    async def run(self) -> None:
        """Check for ever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except Problem as problem:
                _log.warning("promises not checked", extra=facts(error=str(problem)))


def error_of(told_seconds: float, waited_seconds: float) -> float:
    """How far off an estimate was, as a share of the wait."""
    return abs(told_seconds - waited_seconds) / max(waited_seconds, FLOOR_SECONDS)
