"""Virtual time and the one source of chance: a seed is played the same every time."""

import itertools
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

Do = Callable[[Any], object]


class World:
    """A clock that jumps from one thing to do to the next, and all the dice."""

    __slots__ = ("_numbers", "_waiting", "between", "dice", "now", "over", "start_ms")

    def __init__(self, seed: int, start_ms: int) -> None:
        random = Random(seed)  # noqa: S311 - a seed that repeats is the point
        self.dice = random.random
        self.between = _between(random)
        """A whole number, both ends included."""
        self.start_ms = start_ms
        self.now = 0
        """Milliseconds since the beginning: true time, which nobody in the flow can read."""
        self.over = False
        """Enough was seen: nothing more is done."""
        self._waiting: list[tuple[int, int, Do, Any]] = []
        self._numbers = itertools.count()

    def after(self, milliseconds: int, do: Do, what: Any = None) -> None:  # noqa: ANN401
        """Do it so much later."""
        heappush(self._waiting, (self.now + milliseconds, next(self._numbers), do, what))

    def run(self, until: int) -> None:
        """One thing after the other, until that time or until it is over."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= until:
            self.now, _, do, what = heappop(waiting)
            do(what)
            if self.over:
                return
        self.now = max(self.now, until)


def _between(random: Random) -> Callable[[int, int], int]:
    """`randint` draws bits until they fit; this is four times as fast, and as good here."""
    draw = random.random

    def between(low: int, high: int) -> int:
        return low + int(draw() * (high - low + 1))

    return between
