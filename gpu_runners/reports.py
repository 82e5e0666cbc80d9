"""What a runner tells of progress: each milestone once, the rest once a second and task at most."""

from schema.progress import ProgressReported, merge
from schema.words import MILESTONES

REPORT_SECONDS = 1.0
_TOLD_BY_RUNNER = tuple(milestone for milestone in MILESTONES if milestone < max(MILESTONES))
"""100 is the end itself: `FinishAttempt` tells it."""


class Reports:
    """The reports of one attempt. `percent` is the highest milestone that stands already."""

    def __init__(self, percent: int = 0) -> None:
        self._milestone = percent
        self._waiting: ProgressReported | None = None
        self._told_at: float | None = None

    def milestones(self, percent: float) -> int | None:
        """The milestone to tell now, if one was passed: only the highest, each at most once."""
        passed = [m for m in _TOLD_BY_RUNNER if self._milestone < m <= percent]
        if not passed:
            return None
        self._milestone = passed[-1]
        return passed[-1]

    def take(self, report: ProgressReported, at: float) -> ProgressReported | None:
        """The report to send now, or None: it waits, merged, for the next second."""
        self._waiting = report if self._waiting is None else merge(self._waiting, report)
        if self._told_at is not None and at - self._told_at < REPORT_SECONDS:
            return None
        self._told_at = at
        waiting, self._waiting = self._waiting, None
        return waiting
