"""The processors: real rules, real writers, transactions that are all or nothing.

A process owns some partitions. It crashes at any step: what its transaction had not written never
was, and whoever comes back has the changelog and nothing else.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from processors.engine import Batch, Effects, Record, Routes, Step, Writer
from processors.engine.records import TICK_KEY
from processors.rules import OUTPUTS, SOURCES, CutlogRules
from processors.tables import Tables
from schema.topics import Topic
from tests.simulation.world import Log, World

TICKED = (Topic.TASK_COMMANDS, Topic.POOL_COMMANDS)
_TICK_MS = 1_000


@dataclass
class Chaos:
    """How often what goes wrong, a share of the times that it could; `calm` ends it all."""

    crash: float = 0.002
    """Of a processor, at a transaction: half of them before it is written, half after."""
    lost_ticks: float = 0.004
    """At a tick: no more of them on that partition for a while."""
    rebalance: float = 0.001
    doubled: float = 0.04
    """Of what anybody appends: it stands in the log twice."""
    late: float = 0.03
    garbage: float = 0.05
    """At a submission: something that no release of ours ever wrote."""

    poison: float = 0.0012
    """At a command: the code raises, once; somebody releases its key and asks again."""

    def calm(self) -> None:
        self.crash = self.lost_ticks = self.rebalance = self.garbage = self.poison = 0.0


class PoisonError(Exception):
    """The code was wrong for a moment."""


class Process:
    """What dies together: one set of rules and tables, and the writers of some partitions."""

    def __init__(self, cluster: "Cluster", numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.up = False
        self._cluster = cluster
        self.tables = Tables()
        self.rules = CutlogRules(self.tables, cluster.partitions)
        self.writers: dict[int, Writer] = {}

    def start(self) -> None:
        """Recover every partition from its changelog."""
        self.tables = Tables()
        self.rules = self._cluster.rules(self.tables)
        self.up = True
        for number in self.numbers:
            self.recover(number)

    def recover(self, number: int) -> None:
        """One partition, as if it came from another process."""
        cluster = self._cluster
        writer = Writer(
            number,
            partitions=cluster.partitions,
            sources=SOURCES,
            tables=self.tables.all(),
            rules=self.rules,
            routes=cluster.routes,
        )
        rows = list(cluster.changelogs[number].items())
        cluster.world.random.shuffle(rows)  # compaction keeps no order between two keys
        for key, value in rows:
            writer.load(key, value)
        writer.loaded()
        if not writer.positions:
            writer.positions = {source.topic: 0 for source in SOURCES}
        self.writers[number] = writer


class Cluster:
    """All partitions, by process."""

    def __init__(
        self, world: World, log: Log, chaos: Chaos, groups: Iterable[Sequence[int]]
    ) -> None:
        self.world = world
        self.log = log
        self.chaos = chaos
        self.partitions = log.partitions
        outputs: dict[str, int] = {str(topic): log.partitions for topic in OUTPUTS}
        self.routes = Routes(outputs)
        self.changelogs: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        self.committed: Callable[[int, list[Record]], None] = lambda _number, _records: None
        self.recovered: Callable[[int], None] = lambda _number: None
        self.poisoned: set[tuple[str, int, int]] = set()
        """Commands for which the code has raised."""
        self.transactions = 0
        self.crashes = 0
        self.processes = [Process(self, group) for group in groups]
        self._by_number = {n: process for process in self.processes for n in process.numbers}
        self._due: set[int] = set()
        self._ticks_again: dict[int, int] = defaultdict(int)
        for source in SOURCES:
            log.follow(source.topic, self._appended)

    def start(self) -> None:
        for process in self.processes:
            process.start()
        for number in range(self.partitions):
            self.world.after(number * 7, partial(self._tick, number))

    def writer(self, number: int) -> Writer | None:
        """The writer of a partition; None while its process is down."""
        process = self._by_number[number]
        return process.writers.get(number) if process.up else None

    def rules(self, tables: Tables) -> CutlogRules:
        """The real ones, which raise now and then; half of the time when all is done already."""
        rules = CutlogRules(tables, self.partitions)
        handle = rules.handle

        def handled(step: Step, record: Record) -> None:
            poison = self.world.chance(self.chaos.poison)
            place = (record.topic, record.partition, record.offset)
            if poison and self.world.chance(0.5):
                self.poisoned.add(place)
                raise PoisonError
            handle(step, record)
            if poison:
                self.poisoned.add(place)
                raise PoisonError

        rules.handle = handled  # type: ignore[method-assign]
        return rules

    def process_of(self, number: int) -> Process:
        return self._by_number[number]

    def pools(self, number: int) -> Any:  # noqa: ANN401 - commands.pools.PoolState
        """The pools of a partition, as its process has them in memory."""
        return self._by_number[number].rules.pools._recovered.states[number]  # pyright: ignore[reportPrivateUsage]

    # --- faults ----------------------------------------------------------------------------------

    def crash(self, process: Process, down_ms: int) -> None:
        """Its memory is gone; it is back after so long."""
        if not process.up:
            return
        self.crashes += 1
        process.up = False
        process.writers = {}
        self.world.after(down_ms, lambda: self._restart(process))

    def outage(self, down_ms: int) -> None:
        """All of them, for so long."""
        for process in self.processes:
            self.crash(process, down_ms)

    def _restart(self, process: Process) -> None:
        if process.up:
            return
        process.start()
        for number in process.numbers:
            self.recovered(number)
            self._schedule(number)

    # --- ticks -----------------------------------------------------------------------------------

    def _tick(self, number: int) -> None:
        self.world.after(_TICK_MS, lambda: self._tick(number))
        if self.writer(number) is None or self.world.now < self._ticks_again[number]:
            return
        if self.world.chance(self.chaos.lost_ticks):
            self._ticks_again[number] = self.world.now + self.world.between(2_000, 25_000)
            return
        for topic in TICKED:
            self._append_tick(topic, number)

    def _append_tick(self, topic: str, number: int) -> None:
        """At most one is unread."""
        writer = self.writer(number)
        records = self.log.records[str(topic), number]
        if writer is None:
            return
        if any(record.key == TICK_KEY for record in records[writer.positions[topic] :]):
            return
        self.log.append(topic, number, TICK_KEY, b"{}")

    # --- transactions ----------------------------------------------------------------------------

    def _appended(self, record: Record) -> None:
        self._schedule(record.partition)

    def _schedule(self, number: int) -> None:
        if number not in self._due:
            self._due.add(number)
            self.world.after(self.world.between(2, 60), lambda: self._work(number))

    def _work(self, number: int) -> None:
        self._due.discard(number)
        writer = self.writer(number)
        if writer is None:
            return  # whoever recovers it looks again
        writer.release()
        left = self._apply(writer)
        effects = writer.take()
        process = self._by_number[number]
        crashes = self.world.chance(self.chaos.crash)
        if crashes and self.world.chance(0.5):
            self.crash(process, self.world.between(100, 9_000))
            return
        self.transactions += 1
        if effects is not None:
            self._commit(number, effects)
        if crashes:
            self.crash(process, self.world.between(100, 9_000))
            return
        for topic in sorted(writer.more_due):
            self._append_tick(topic, number)
        writer.more_due.clear()
        if self.world.chance(self.chaos.rebalance):
            process.recover(number)
            self.recovered(number)
            left = True
        if left or writer.quarantine.releasing:
            self._schedule(number)

    def _apply(self, writer: Writer) -> bool:
        """Some of what waits, in the order of the engine; whether something is left."""
        left = False
        for source in SOURCES:
            records = self.log.records[str(source.topic), writer.number]
            start = writer.positions[source.topic]
            waiting = len(records) - start
            if not waiting:
                continue
            count = waiting if self.world.chance(0.7) else self.world.between(0, waiting)
            left = left or count < waiting
            if count:
                batch: list[Any] = records[start : start + count]
                writer.apply(Batch(source.topic, writer.number, batch, start, start + count))
        return left

    def _commit(self, number: int, effects: Effects) -> None:
        """One transaction: rows and records together."""
        changelog = self.changelogs[number]
        for row, value in effects.changes.items():
            if value is None:
                changelog.pop(row, None)
            else:
                changelog[row] = value
        written = [
            self.log.append(topic, partition, one.key or b"", one.value)
            for (topic, partition), sent in effects.sends.items()
            for one in sent
        ]
        self.committed(number, written)
