"""Turns fractions of a phase into percent of the work, in steps worth telling."""

import time
from typing import Final

from gpu_runners.pipelines.pipeline import Progress, Report

_STEP_PERCENT: Final = 1.0


class Meter:
    """Percent never falls; the rest is estimated by how long the work took so far."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._percent = -_STEP_PERCENT
        self._phase = ""
        self._started = time.monotonic()

    def tell(self, phase: str, percent: float) -> None:
        """So far is the work, in this phase; told if it is a step on, or another phase."""
        percent = max(percent, self._percent)
        if phase == self._phase and percent < self._percent + _STEP_PERCENT:
            return
        self._phase, self._percent = phase, percent
        elapsed = time.monotonic() - self._started
        eta = elapsed * (100 - percent) / percent if percent >= _STEP_PERCENT else None
        self._report(
            Progress(
                percent=round(percent, 2),
                phase=phase,
                eta_seconds=round(eta, 2) if eta is not None else None,
            )
        )
