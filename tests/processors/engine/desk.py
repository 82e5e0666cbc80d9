"""A writer on a table: records in by hand, effects out, no Kafka."""

from collections.abc import Iterable

import msgspec

from processors.engine import TICK_KEY, Batch, Effects, Record, Routes, Writer
from processors.engine.journal import JournalRecord
from processors.engine.journal import decode as decode_journal
from tests.processors.engine.toy import Command, Event, Topics, ToyRules, decode_event, encode


class Desk:
    """One partition number of the toy; the clock is moved by hand."""

    def __init__(self, *, rules: ToyRules | None = None, per_minute_max: int = 20) -> None:
        self.topics = Topics("toy")
        self.rules = rules or ToyRules(self.topics)
        self.per_minute_max = per_minute_max
        self.now = 1_000_000
        self.ends = {source.topic: 0 for source in self.topics.sources}
        self.changelog: dict[bytes, bytes] = {}
        self.journal: list[JournalRecord] = []
        self.writer = self._new_writer()
        self.writer.positions = dict(self.ends)

    def _new_writer(self) -> Writer:
        writer = Writer(
            0,
            partitions=2,
            sources=self.topics.sources,
            tables=self.rules.tables,
            rules=self.rules,
            routes=Routes(dict.fromkeys(self.topics.outputs, 2)),
            per_minute_max=self.per_minute_max,
        )
        for key, value in self.changelog.items():
            writer.load(key, value)
        writer.loaded()
        return writer

    def restart(self) -> None:
        """Another process takes over: only what was written is left."""
        self.writer = self._new_writer()

    def record(self, key: str, op: str = "add", *, topic: str = "", **more: object) -> Record:
        number = self.ends[topic or self.topics.work]
        command = Command(id=number, op=op)
        for name, value in more.items():
            setattr(command, name, value)
        return self.raw(key.encode(), encode(command), topic=topic)

    def raw(self, key: bytes | None, value: bytes, *, topic: str = "") -> Record:
        topic = topic or self.topics.work
        record = Record(topic, 0, self.ends[topic], self.now, key, value)
        self.ends[topic] += 1
        return record

    def tick(self) -> Record:
        return self.raw(TICK_KEY, b"{}")

    def apply(self, *records: Record, force: bool = False) -> Effects | None:
        """One transaction of these records; what it writes is as good as committed."""
        self.writer.release()
        for topic in dict.fromkeys(record.topic for record in records):
            of_topic = [record for record in records if record.topic == topic]
            start, end = of_topic[0].offset, of_topic[-1].offset + 1
            self.writer.apply(Batch(topic, 0, list(of_topic), start, end))
        effects = self.writer.take(force=force)
        if effects is not None:
            for key, value in effects.changes.items():
                if value is None:
                    self.changelog.pop(key, None)
                else:
                    self.changelog[key] = value
            self.journal.append(decode_journal(effects.journal))
        return effects

    def events(self, effects: Effects | None) -> list[Event]:
        sends = effects.sends if effects is not None else {}
        return [decode_event(sent.value) for sent in sends.get((self.topics.events, 0), ())]

    def letters(self, effects: Effects | None) -> list[dict[str, object]]:
        sends = effects.sends if effects is not None else {}
        return [msgspec.json.decode(sent.value) for sent in sends.get((self.topics.dead, 0), ())]


def kinds(events: Iterable[Event]) -> list[tuple[str, int]]:
    return [(event.key, event.cmd) for event in events]
