"""Which waiting records go into the next transaction, and in which order.

Internal commands first, by rank. Submissions come after them: at most so many while internal
commands wait, and each lane that waits keeps a small floor, so that neither a flood of completions
nor a higher lane starves it for good.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from processors.engine.records import Fetched, Source


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one transaction."""

    batch_max: int = 2_000
    submissions_max: int = 200
    floor: int = 10


def plan(
    sources: Sequence[Source], waiting: Mapping[str, int], limits: Limits
) -> list[tuple[str, int]]:
    """(topic, number of records) in the order of work; `sources` are ordered by rank."""
    internal = [s.topic for s in sources if s.kind == "internal" and waiting.get(s.topic)]
    lanes = [s.topic for s in sources if s.kind == "submission" and waiting.get(s.topic)]
    floors = {lane: min(limits.floor, waiting[lane]) for lane in lanes}
    reserved = sum(floors.values())
    taken: list[tuple[str, int]] = []
    room = limits.batch_max - reserved
    for topic in internal:
        count = min(waiting[topic], room)
        if count > 0:
            taken.append((topic, count))
            room -= count
    if internal:
        room = min(room, limits.submissions_max - reserved)
    for lane in lanes:
        extra = max(0, min(waiting[lane] - floors[lane], room))
        room -= extra
        taken.append((lane, floors[lane] + extra))
    return taken


class Batch:
    """Consecutive records of one source partition: positions `start` <= offset < `end`.

    It grows while it waits at its owner (`growing`), so that many small fetches cost one message.
    One that is still on its way must not: lost there, it would take what grew along with it.
    """

    __slots__ = ("end", "growing", "partition", "records", "start", "topic")

    def __init__(
        self, topic: str, partition: int, records: list[Fetched], start: int, end: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.start = start
        self.end = end
        self.growing = False

    def split(self, count: int) -> "Batch":
        """Cut the first `count` records off as a batch of their own."""
        cut = self.records[count - 1].offset + 1
        head = Batch(self.topic, self.partition, self.records[:count], self.start, cut)
        self.records = self.records[count:]
        self.start = cut
        return head


class Waiting:
    """What was fetched for one partition number and is not worked yet, topic by topic."""

    __slots__ = ("_batches", "_sources", "limits")

    def __init__(self, sources: Iterable[Source], limits: Limits) -> None:
        self._sources = sorted(sources, key=lambda source: source.rank)
        self._batches: dict[str, deque[Batch]] = {s.topic: deque() for s in self._sources}
        self.limits = limits

    def add(self, batch: Batch) -> None:
        batch.growing = True
        self._batches[batch.topic].append(batch)

    def count(self, topic: str) -> int:
        return sum(len(batch.records) for batch in self._batches[topic])

    def __bool__(self) -> bool:
        return any(self._batches.values())

    def full(self) -> bool:
        """Whether one transaction would not take everything."""
        return sum(self.count(topic) for topic in self._batches) >= self.limits.batch_max

    def take(self) -> list[Batch]:
        """The batches of the next transaction, in order; they grow no more."""
        counts = {topic: self.count(topic) for topic in self._batches}
        taken: list[Batch] = []
        for topic, count in plan(self._sources, counts, self.limits):
            taken.extend(self._take(topic, count))
        return taken

    def clear(self) -> None:
        for batches in self._batches.values():
            for batch in batches:
                batch.growing = False
            batches.clear()

    def _take(self, topic: str, count: int) -> Iterable[Batch]:
        batches = self._batches[topic]
        while count > 0:
            batch = batches[0]
            batch.growing = False
            if len(batch.records) <= count:
                count -= len(batch.records)
                yield batches.popleft()
            else:
                yield batch.split(count)
                return
