"""A small application for the engine's tests: counters with a chain over all commands of a key.

The chain tells of any command that was lost, doubled or reordered. The other operations provoke
what an engine must stand: poison of each kind, timers, follow-ups to other partitions, no effect.
"""

import hashlib
import heapq
import time
from collections.abc import Callable

import msgspec

from processors.engine import Listener, Record, Source, Step, Table, UnknownVersionError


class Command(msgspec.Struct):
    id: int
    op: str = "add"
    n: int = 1
    target: str = ""


class Counter(msgspec.Struct, frozen=True):
    n: int = 0
    total: int = 0
    chain: str = ""
    odd: object = None


class Timer(msgspec.Struct, frozen=True):
    due: int


class Event(msgspec.Struct, frozen=True):
    cmd: int
    kind: str
    key: str
    n: int = 0
    total: int = 0
    chain: str = ""
    topic: str = ""
    offset: int = -1
    now: int = 0


decode_command = msgspec.json.Decoder(Command).decode
decode_event = msgspec.json.Decoder(Event).decode
encode = msgspec.json.Encoder().encode


def chain(before: str, command_id: int) -> str:
    return hashlib.blake2b(f"{before}|{command_id}".encode(), digest_size=6).hexdigest()


class Topics:
    """Names of one installation of the toy."""

    def __init__(self, prefix: str) -> None:
        self.work = f"{prefix}-work"
        self.notes = f"{prefix}-notes"
        self.p0 = f"{prefix}-p0"
        self.p2 = f"{prefix}-p2"
        self.events = f"{prefix}-events"
        self.dead = f"{prefix}-dead"
        self.state = f"{prefix}-state"
        self.journal = f"{prefix}-journal"
        self.sources = (
            Source(self.work, 0, ticked=True),
            Source(self.notes, 1),
            Source(self.p0, 2, "submission"),
            Source(self.p2, 3, "submission"),
        )
        self.outputs = {self.events, self.dead, self.work, self.notes}


class DueTimers(Listener[Timer]):
    """Heap of due timers by partition; rebuilt at recovery, moved when an overlay is accepted."""

    def __init__(self) -> None:
        self.heaps: dict[int, list[tuple[int, bytes]]] = {}
        self.rows: dict[tuple[int, bytes], int] = {}

    def on_put(self, partition: int, key: bytes, old: Timer | None, new: Timer) -> None:
        del old
        self.rows[partition, key] = new.due
        heapq.heappush(self.heaps[partition], (new.due, key))

    def on_delete(self, partition: int, key: bytes, old: Timer) -> None:
        del old
        self.rows.pop((partition, key))

    def reset(self, partition: int) -> None:
        self.heaps[partition] = []
        self.rows = {place: due for place, due in self.rows.items() if place[0] != partition}

    def due(
        self, partition: int, served: int, limit: int, waits: Callable[[bytes], bool]
    ) -> tuple[list[bytes], bool]:
        """Keys that are due, at most `limit`, and whether there are more. Changes no row."""
        heap, found = self.heaps[partition], list[tuple[int, bytes]]()
        passed = list[tuple[int, bytes]]()
        while heap and heap[0][0] <= served and len(found) <= limit:
            due, key = heapq.heappop(heap)
            if self.rows.get((partition, key)) == due:
                (passed if waits(key) else found).append((due, key))
        for item in (*found, *passed):  # the listener forgets them when the overlay is accepted
            heapq.heappush(heap, item)
        return [key for _, key in found[:limit]], len(found) > limit


class ToyRules:
    """add | nothing | poison | bad-row | huge | undeclared | later | release | unknown | hang."""

    version = 1
    timers_max = 5

    def __init__(self, topics: Topics, *, follow: bool = False) -> None:
        self.topics = topics
        self.follow = follow
        self.counters = Table("counter", decode=msgspec.json.Decoder(Counter).decode, encode=encode)
        self.timers = Table("timer", decode=msgspec.json.Decoder(Timer).decode, encode=encode)
        self.due = DueTimers()
        self.timers.listen(self.due)
        self.tables = (self.counters, self.timers)

    def handle(self, step: Step, record: Record) -> None:
        command = decode_command(record.value or b"")
        key = record.key or b"?"
        match command.op:
            case "nothing":
                return
            case "unknown":
                raise UnknownVersionError("a command of the next release")
            case "later":
                due = step.served(self.topics.work) + command.n
                step.put(self.timers, key, Timer(due))
                return
            case "poison":
                step.put(self.counters, key, Counter(n=-1))
                step.send(self.topics.events, key, b"never seen", step.partition)
                raise ValueError("poison")
            case "bad-row":
                step.put(self.counters, key, Counter(odd={1j}))
            case "huge":
                step.send(self.topics.events, key, b"x" * 2_000_000, step.partition)
            case "hang":
                time.sleep(3600)
            case "undeclared":
                step.send("nowhere", key, b"")
            case _:
                self._add(step, record, command, key)

    def _add(self, step: Step, record: Record, command: Command, key: bytes) -> None:
        before = step.get(self.counters, key) or Counter()
        after = Counter(before.n + 1, before.total + command.n, chain(before.chain, command.id))
        step.put(self.counters, key, after)
        event = Event(
            cmd=command.id,
            kind=command.op,
            key=key.decode(),
            n=after.n,
            total=after.total,
            chain=after.chain,
            topic=record.topic,
            offset=record.offset,
            now=step.now,
        )
        step.send(self.topics.events, key, encode(event), step.partition)
        if self.follow and record.topic == self.topics.work:
            note = Command(id=command.id, op="note")
            step.send(self.topics.notes, b"note-%02d" % (command.id % 37), encode(note))

    def tick(self, step: Step, topic: str) -> bool:
        served = step.served(topic)
        keys, more = self.due.due(step.partition, served, self.timers_max, step.waits)
        for key in keys:
            try:
                self.fire(step, key)
                step.seal()
            except Exception as error:  # noqa: BLE001 - one timer, whatever it raises
                step.undo()
                step.fail(key, error)
                self.poisoned(step, step.cause, error)
                step.seal()
        return more

    def fire(self, step: Step, key: bytes) -> None:
        step.delete(self.timers, key)
        event = Event(cmd=-1, kind="fired", key=key.decode(), now=step.now)
        step.send(self.topics.events, key, encode(event), step.partition)

    def key_of(self, record: Record) -> bytes | None:
        if record.topic in (self.topics.p0, self.topics.p2):
            return None
        try:
            released = decode_command(record.value or b"").op == "release"
        except msgspec.MsgspecError:
            released = False
        return None if released else record.key

    def poisoned(self, step: Step, record: Record, error: BaseException) -> None:
        letter = msgspec.json.encode(
            {"offset": record.offset, "topic": record.topic, "error": type(error).__name__}
        )
        step.send(self.topics.dead, record.key, letter, step.partition)

    def parked(self, step: Step, record: Record) -> None:
        """Nobody waits for what the toy's commands ask."""

    def released(self, record: Record) -> bytes | None:
        command = decode_command(record.value or b"")
        return command.target.encode() if command.op == "release" else None
