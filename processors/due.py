"""Which rows have a deadline, earliest first: an index in memory, rebuilt at recovery."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Row = TypeVar("Row")

_SLACK = 1_000


class DueIndex(Generic[Row]):
    """Listens to a table and keeps, for each partition, the deadlines of its rows.

    `due_ms` gives a row's next deadline in the served clock, or None. A heap with lazy deletion:
    the dict says what counts, stale entries are skipped, and swept when they outnumber it.
    """

    def __init__(self, due_ms: Callable[[Row], int | None]) -> None:
        self._due_ms = due_ms
        self._deadlines: dict[int, dict[bytes, int]] = {}
        self._heaps: dict[int, list[tuple[int, bytes]]] = {}

    def on_put(self, partition: int, key: bytes, old: Row | None, new: Row) -> None:
        """Engine: a row was accepted or recovered."""
        del old
        deadlines = self._deadlines[partition]
        due = self._due_ms(new)
        if due is None:
            deadlines.pop(key, None)
        elif deadlines.get(key) != due:
            deadlines[key] = due
            heap = self._heaps[partition]
            heappush(heap, (due, key))
            if len(heap) > 2 * len(deadlines) + _SLACK:
                self._sweep(partition)

    def on_delete(self, partition: int, key: bytes, old: Row) -> None:
        """Engine: a row was deleted."""
        del old
        self._deadlines[partition].pop(key, None)

    def reset(self, partition: int) -> None:
        """Engine: the partition is lost or about to be recovered."""
        self._deadlines[partition] = {}
        self._heaps[partition] = []

    def due(
        self,
        partition: int,
        served_ms: int,
        limit: int,
        waits: Callable[[bytes], bool] = lambda _: False,
    ) -> Iterator[bytes]:
        """At most `limit` keys whose deadline has come, earliest first. Moves nothing.

        What a tick does with a row moves its deadline, through the table, once it is accepted.
        Keys that wait (they are quarantined) are left out and keep nobody from being found.
        """
        heap, deadlines = self._heaps[partition], self._deadlines[partition]
        while heap and deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        found: list[tuple[int, bytes]] = []
        passed: list[tuple[int, bytes]] = []
        while heap and heap[0][0] <= served_ms and len(found) < limit:
            due, key = heappop(heap)
            if deadlines.get(key) == due:
                (passed if waits(key) else found).append((due, key))
        for entry in (*found, *passed):
            heappush(heap, entry)
        return iter(dict.fromkeys(key for _, key in found))

    def __len__(self) -> int:
        return sum(len(deadlines) for deadlines in self._deadlines.values())

    def _sweep(self, partition: int) -> None:
        heap = [(due, key) for key, due in self._deadlines[partition].items()]
        heapify(heap)
        self._heaps[partition] = heap
