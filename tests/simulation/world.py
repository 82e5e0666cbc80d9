"""Virtual time, the one source of chance, and the log."""

import itertools
from collections import defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from processors.engine import Record
from schema.codec import encode
from schema.commands import Command, SubmitTask
from schema.routes import Route, Routed, route, route_submission
from schema.words import Lane

Do = Callable[[], object]


class World:
    """A clock that jumps from one thing to do to the next, and all the dice."""

    def __init__(self, seed: int, start_ms: int) -> None:
        self.random = Random(seed)
        self.start_ms = start_ms
        self.now = 0
        """Milliseconds since the beginning: true time, which nobody in the flow can read."""
        self.ahead_ms = 0
        """How far the broker's clock has jumped ahead."""
        self._waiting: list[tuple[int, int, Do]] = []
        self._numbers = itertools.count()

    @property
    def broker_ms(self) -> int:
        """What the broker stamps on a record."""
        return self.start_ms + self.now + self.ahead_ms

    def after(self, milliseconds: int, do: Do) -> None:
        """Do it so much later."""
        heappush(self._waiting, (self.now + milliseconds, next(self._numbers), do))

    def run(self, until: int, over: Callable[[], bool]) -> None:
        """One thing after the other, until that time or until it is over."""
        while self._waiting and self._waiting[0][0] <= until and not over():
            self.now, _, do = heappop(self._waiting)
            do()
        if not over():
            self.now = max(self.now, until)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self.random.randint(low, high)


class Log:
    """Records by topic and partition, in order; whoever follows a topic is told of each."""

    def __init__(self, world: World, partitions: int) -> None:
        self.partitions = partitions
        self.records: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self._world = world
        self._followers: dict[str, list[Callable[[Record], None]]] = defaultdict(list)

    def follow(self, topic: str, follower: Callable[[Record], None]) -> None:
        self._followers[topic].append(follower)

    def append(self, topic: str, partition: int, key: bytes, value: bytes) -> Record:
        """The broker takes a record; its time is the broker's."""
        topic = str(topic)
        records = self.records[topic, partition]
        record = Record(topic, partition, len(records), self._world.broker_ms, key, value)
        records.append(record)
        for follower in self._followers.get(topic, ()):
            follower(record)
        return record

    def put(self, command: Command, lane: Lane = Lane.P1) -> Record:
        """A command, where it belongs."""
        if isinstance(command, SubmitTask):
            place = route_submission(command, lane, self.partitions)
        else:
            routed: Routed = command  # type: ignore[assignment]
            place = route(routed, self.partitions)
        return self.put_at(place, command)

    def put_at(self, place: Route, command: Command) -> Record:
        return self.append(place.topic, place.partition, place.key.encode(), encode(command))
