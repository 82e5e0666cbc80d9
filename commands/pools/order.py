"""Which task next, and on which slot: the only place that knows. Picks are O(log n).

Lanes are served p0, p1, p2, each first come first served; a lane that has waited while others were
picked `PASSED_MAX` times is picked next, so that p2 moves a little even when p0 never ends. Of the
runners the one with the most free slots is taken. Everything here is memory, a function of the rows
alone, so a rebuilt order picks the same.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from commands.pools.rows import LANE_NUMBER, LANES, PoolRow, QueuedRow, RunnerRow
from schema.words import Lane

PASSED_MAX: Final = 19
"""A waiting lane gets at least one pick in twenty."""
_STALE_ALLOWED: Final = 64


class Ranked:
    """Keys by a rank that their rows have; entries that hold no more are passed over, then shed."""

    __slots__ = ("_entries", "_rank_of")

    def __init__(self, rank_of: Callable[[str], int | None]) -> None:
        """`rank_of` says the present rank of a key, None: it has none."""
        self._rank_of = rank_of
        self._entries: list[tuple[int, str]] = []

    def push(self, rank: int, key: str, live: int) -> None:
        """A key has this rank now; `live` is how many keys have one, this one included."""
        heappush(self._entries, (rank, key))
        if len(self._entries) > 2 * live + _STALE_ALLOWED:
            rank_of = self._rank_of
            self._entries = [entry for entry in set(self._entries) if rank_of(entry[1]) == entry[0]]
            heapify(self._entries)

    def first(self) -> tuple[int, str] | None:
        """The lowest rank and its key; equal ranks by key."""
        entries = self._entries
        while entries:
            rank, key = entries[0]
            if self._rank_of(key) == rank:
                return entries[0]
            heappop(entries)
        return None

    def skip(self) -> None:
        """Forget the first entry until its key is pushed again."""
        heappop(self._entries)

    def __len__(self) -> int:
        """Entries kept, stale ones included."""
        return len(self._entries)


class Waiting:
    """The waiting tasks of a pool, in the order in which they are served."""

    __slots__ = ("_lanes", "counts")

    def __init__(self, queued: Callable[[str], QueuedRow | None]) -> None:
        def arrival(key: str) -> int | None:
            row = queued(key)
            return None if row is None else row.arrival

        self._lanes = {lane: Ranked(arrival) for lane in LANES}
        self.counts = [0, 0, 0]

    def add(self, key: str, row: QueuedRow) -> None:
        number = LANE_NUMBER[row.lane]
        self.counts[number] += 1
        self._lanes[row.lane].push(row.arrival, key, self.counts[number])

    def remove(self, row: QueuedRow) -> None:
        self.counts[LANE_NUMBER[row.lane]] -= 1

    def oldest(self, lane: Lane) -> str | None:
        """The task of this lane that came first."""
        first = self._lanes[lane].first()
        return None if first is None else first[1]

    def first(self, pool: PoolRow) -> str | None:
        """The task to be served next, or None: nobody waits in a lane that is served."""
        best: int | None = None
        for number, count in enumerate(self.counts):
            if count and pool.since_ms[number] is None:
                passed = pool.passed[number]
                if best is None or (passed >= PASSED_MAX and passed > pool.passed[best]):
                    best = number
        return None if best is None else self.oldest(LANES[best])

    def passed_after(self, pool: PoolRow, picked: Lane) -> tuple[int, int, int]:
        """`passed` of the pool's row once a task of lane `picked` has been taken out."""
        chosen = LANE_NUMBER[picked]
        passed = [
            pool.passed[number] + 1
            if number > chosen and self.counts[number] and pool.since_ms[number] is None
            else pool.passed[number]
            for number in range(3)
        ]
        passed[chosen] = 0
        return (passed[0], passed[1], passed[2])


class FreeSlots:
    """The runners of a pool that have room."""

    __slots__ = ("_free_of", "_ranked", "_runner")

    def __init__(
        self, runner: Callable[[str], RunnerRow | None], used: Callable[[str], int]
    ) -> None:
        """`used` says how many slots of a runner (by its row's key) are taken."""

        def rank(key: str) -> int | None:
            row = runner(key)
            if row is None or row.draining:
                return None
            free = row.slots - used(key)
            return -free if free > 0 else None

        self._free_of = rank
        self._runner = runner
        self._ranked = Ranked(rank)

    def changed(self, key: str, runners: int) -> None:
        """A runner, its slots or their use changed; `runners` is how many the pool has."""
        rank = self._free_of(key)
        if rank is not None:
            self._ranked.push(rank, key, runners)

    def first(self, served_ms: int) -> str | None:
        """The key of the runner whose slot is taken next, or None: no room.

        A runner that has gone quiet is passed over until it beats again.
        """
        while (first := self._ranked.first()) is not None:
            row = self._runner(first[1])
            if row is not None and served_ms < row.fresh_until_ms:
                return first[1]
            self._ranked.skip()
        return None

    def __len__(self) -> int:
        """Entries kept, stale ones included."""
        return len(self._ranked)
