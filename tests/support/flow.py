"""The whole flow in one process: real rules, an in-memory log, a hand-moved clock, no Kafka.

One `Writer` a partition, exactly as the engine runs it. `append` puts a command on the log,
`settle` works until nothing is left, `tick` moves the clock. All that is written is kept, in order.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from processors.engine import Batch, Record, Routes, Writer
from processors.engine.records import TICK_KEY
from processors.rules import OUTPUTS, SOURCES, CutlogRules
from processors.tables import Tables
from schema.codec import CODECS, encode
from schema.commands import Command, PublishPolicy, SubmitTask
from schema.ids import CommandId
from schema.policy import Policy
from schema.routes import Route, Routed, route, route_submission
from schema.topics import Topic
from schema.words import Lane

START_MS = 1_800_000_000_000


class Flow:
    """A log of `partitions` partitions and the processors of all of them."""

    def __init__(self, partitions: int = 2) -> None:
        self.partitions = partitions
        self.now_ms = START_MS
        self.log: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.tables = Tables()
        self.rules = CutlogRules(self.tables, partitions)
        outputs = dict.fromkeys((*OUTPUTS, Topic.JOURNAL), partitions)
        self.writers = [
            Writer(
                number,
                partitions=partitions,
                sources=SOURCES,
                tables=self.tables.all(),
                rules=self.rules,
                routes=Routes({str(topic): count for topic, count in outputs.items()}),
            )
            for number in range(partitions)
        ]
        for writer in self.writers:
            writer.loaded()
            writer.positions = {source.topic: 0 for source in SOURCES}

    # --- in --------------------------------------------------------------------------------------

    def append_bytes(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """One record, with the log's time."""
        records = self.log[topic, partition]
        records.append(Record(topic, partition, len(records), self.now_ms, key, value))

    def append(self, command: Command, lane: Lane = Lane.P1) -> None:
        """A command, where it belongs."""
        if isinstance(command, SubmitTask):
            place = route_submission(command, lane, self.partitions)
        else:
            routed: Routed = command  # type: ignore[assignment]
            place = route(routed, self.partitions)
        self.put(place, encode(command))

    def put(self, place: Route, value: bytes) -> None:
        """Bytes, to a place."""
        self.append_bytes(place.topic, place.partition, place.key.encode(), value)

    def publish(self, policy: Policy) -> None:
        """The policy, to every partition that wants it."""
        for topic in (Topic.QUOTA_COMMANDS, Topic.POOL_COMMANDS):
            for number in range(self.partitions):
                command = PublishPolicy(
                    command_id=CommandId(f"policy-{policy.version}-{number}"), policy=policy
                )
                self.put(Route(topic, number, "policy"), encode(command))

    # --- time ------------------------------------------------------------------------------------

    def tick(self, seconds: int = 1, each: Callable[[], None] = lambda: None) -> None:
        """So many seconds, one tick of every partition each; `each` is called in between."""
        for _ in range(seconds):
            self.now_ms += 1_000
            for number in range(self.partitions):
                for topic in (Topic.TASK_COMMANDS, Topic.POOL_COMMANDS):
                    self.append_bytes(topic, number, TICK_KEY, b"{}")
            self.settle()
            each()

    def settle(self) -> None:
        """Work until every command on the log is done."""
        while sum(self._work(writer) for writer in self.writers):
            pass

    def _work(self, writer: Writer) -> bool:
        """One transaction of one partition; whether there was anything to do."""
        worked = False
        for source in SOURCES:
            records = self.log[source.topic, writer.number]
            start = writer.positions[source.topic]
            if start < len(records):
                worked = True
                waiting: list[Any] = records[start:]
                writer.apply(Batch(source.topic, writer.number, waiting, start, len(records)))
        effects = writer.take() if worked else None
        if effects is not None:
            for (topic, partition), sent in effects.sends.items():
                for one in sent:
                    self.append_bytes(topic, partition, one.key or b"", one.value)
        return worked

    # --- out -------------------------------------------------------------------------------------

    def messages(self, topic: Topic) -> list[Any]:
        """Everything that stands in a topic, decoded, partition by partition."""
        codec = CODECS[topic]
        found: list[msgspec.Struct] = []
        for number in range(self.partitions):
            found += [
                codec.decode(record.value or b"")
                for record in self.log[topic, number]
                if record.key != TICK_KEY
            ]
        return found

    def rows(self, table: Any) -> dict[str, Any]:  # noqa: ANN401 - any table
        """The rows of a table over all partitions."""
        return {
            key.decode(): row for writer in self.writers for key, row in writer.rows.items(table)
        }
