"""How long to wait between two transactions: not at all when idle, up to 50 ms under load.

The cost is for each transaction, not each command. So under load fewer, larger ones: the pace
grows with the rate of records of the process (a decaying mean over about a second). It is a
function of the rate alone, so it cannot swing.
"""

import math
import time
from collections.abc import Callable


class Pace:
    """Least time between the starts of two transactions of one partition."""

    def __init__(
        self,
        *,
        seconds_max: float,
        rate_min: float,
        rate_max: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds_max = seconds_max
        self.rate_min = rate_min
        self.rate_max = rate_max
        self._clock = clock
        self._rate = 0.0
        self._at = clock()

    def count(self, records: int) -> None:
        """So many records were worked now."""
        self._decay()
        self._rate += records

    @property
    def rate(self) -> float:
        """Records a second, lately."""
        self._decay()
        return self._rate

    @property
    def seconds(self) -> float:
        share = (self.rate - self.rate_min) / (self.rate_max - self.rate_min)
        return self.seconds_max * min(1.0, max(0.0, share))

    def _decay(self) -> None:
        now = self._clock()
        self._rate *= math.exp(self._at - now)
        self._at = now
