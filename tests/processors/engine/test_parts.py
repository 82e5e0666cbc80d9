"""Small parts: overlay, rows and listeners, routes, pace, positions, no plain sends."""

from collections import defaultdict

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from processors.engine import Record, Routes, Step, Table, UndeclaredTopicError, murmur2
from processors.engine.clock import Clock
from processors.engine.engine import check_positions
from processors.engine.errors import PlainSendForbiddenError, RecordTooLargeError, RecoveryError
from processors.engine.journal import Range, Ranges
from processors.engine.pace import Pace
from processors.engine.records import Sent
from processors.engine.rows import Rows
from processors.engine.transport import Producer, Results

NOTES = Table("note", decode=bytes.decode, encode=str.encode)
RECORD = Record("t", 0, 7, 5, b"k", b"v")


def new_step(rows: Rows) -> Step:
    return Step(rows, Clock(), Routes({"out": 4}), RECORD)


def test_a_step_sees_its_own_changes_and_the_state_only_after_acceptance() -> None:
    rows = Rows(0, (NOTES,))
    rows.load(b"note\x00a", b"old")
    step = new_step(rows)
    step.put(NOTES, b"a", "new")
    step.delete(NOTES, b"b")
    assert (step.get(NOTES, b"a"), step.get(NOTES, b"b")) == ("new", None)
    assert new_step(rows).get(NOTES, b"a") == "old"
    step.seal()
    changes: dict[bytes, bytes | None] = {}
    sends: defaultdict[tuple[str, int], list[Sent]] = defaultdict(list)
    step.accept(changes, sends)
    assert new_step(rows).get(NOTES, b"a") == "new"
    assert changes == {b"note\x00a": b"new"}  # deleting what is not there is nothing


def test_a_record_that_is_too_large_fails_where_it_is_sent() -> None:
    step = new_step(Rows(0, (NOTES,)))
    with pytest.raises(RecordTooLargeError):
        step.send("out", b"k", b"x" * 1_000_000)
    step.put(NOTES, b"a", "x" * 1_000_000)
    with pytest.raises(RecordTooLargeError):
        step.seal()


def test_only_declared_outputs_can_be_written() -> None:
    step = new_step(Rows(0, (NOTES,)))
    for topic, key, partition in (("in", b"k", 0), ("out", b"k", 4), ("out", None, None)):
        with pytest.raises(UndeclaredTopicError):
            step.send(topic, key, b"", partition)


def test_listeners_hear_of_rows_at_acceptance_and_at_recovery() -> None:
    heard: list[tuple[object, ...]] = []

    class Ears:
        def on_put(self, partition: int, key: bytes, old: str | None, new: str) -> None:
            heard.append(("put", partition, key, old, new))

        def on_delete(self, partition: int, key: bytes, old: str) -> None:
            heard.append(("delete", partition, key, old))

        def reset(self, partition: int) -> None:
            heard.append(("reset", partition))

    table = Table("note", decode=bytes.decode, encode=str.encode)
    table.listen(Ears())
    rows = Rows(3, (table,))
    rows.load(b"note\x00a", b"1")
    rows.load(b"other\x00a", b"1")
    rows.loaded()
    rows.put(table, b"note\x00a", "2")
    rows.delete(table, b"note\x00a")
    rows.delete(table, b"note\x00a")
    rows.drop()
    assert heard == [
        ("reset", 3),
        ("put", 3, b"a", None, "1"),
        ("put", 3, b"a", "1", "2"),
        ("delete", 3, b"a", "2"),
        ("reset", 3),
    ]


def test_neighbours_of_one_topic_are_one_range_and_those_of_two_are_not() -> None:
    ranges = Ranges()
    for topic, start, end in (("a", 0, 2), ("a", 2, 4), ("a", 4, 4), ("b", 4, 6), ("a", 4, 5)):
        ranges.read(topic, start, end)
    ranges.released(b"k", 0)
    assert ranges.take() == (
        Range(topic="a", start=0, end=4),
        Range(topic="b", start=4, end=6),
        Range(topic="a", start=4, end=5),
    )
    assert len(ranges) == 0


@given(st.binary(max_size=40))
def test_the_hash_is_the_one_of_kafka(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0x7FFFFFFF


def test_there_is_no_pace_when_idle_and_the_longest_under_load() -> None:
    now = [0.0]
    pace = Pace(seconds_max=0.05, rate_min=300, rate_max=3_000, clock=lambda: now[0])
    assert pace.seconds == 0
    for _ in range(300):  # 100 a second
        now[0] += 0.01
        pace.count(1)
    assert pace.seconds == 0
    for _ in range(300):  # 5,000 a second
        now[0] += 0.01
        pace.count(50)
    assert pace.seconds == 0.05
    now[0] += 5
    assert pace.seconds == 0


def test_a_source_that_was_trimmed_or_cut_is_refused() -> None:
    place = ("t", 0)
    assert check_positions({place: 5}, {place: 5}, {place: 5}) == {place: 5}
    assert check_positions({place: None}, {place: 0}, {place: 9}) == {place: 0}
    with pytest.raises(RecoveryError, match="was trimmed"):
        check_positions({place: 5}, {place: 6}, {place: 9})
    with pytest.raises(RecoveryError, match="never read"):
        check_positions({place: None}, {place: 1}, {place: 9})
    with pytest.raises(RecoveryError, match="ends at 4"):
        check_positions({place: 5}, {place: 0}, {place: 4})


async def test_a_plain_send_is_refused() -> None:
    producer = object.__new__(Producer)
    with pytest.raises(PlainSendForbiddenError):
        await producer.send("topic", b"k", b"v", None, None, None)
    with pytest.raises(PlainSendForbiddenError):
        await producer.send_and_wait("topic", b"k", b"v", None, None, None)


def test_what_aiokafka_has_fetched_is_unpacked_as_our_records() -> None:
    batch = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 10_000)
    batch.append(0, 5, b"a", b"1", [("h", b"x")])
    batch.append(1, 7, None, b"2", [])
    place, fetched = TopicPartition("t", 3), MemoryRecords(bytes(batch.build()))
    unpacked = PartitionRecords(
        place,
        fetched,
        aborted_transactions=[],
        fetch_offset=0,
        key_deserializer=None,
        value_deserializer=None,
        check_crcs=True,
        isolation_level=READ_COMMITTED,
    )
    results = Results()
    results[place] = FetchResult(place, assignment=None, partition_records=unpacked, backoff=0)
    assert list(unpacked) == [
        Record("t", 3, 0, 5, b"a", b"1", (("h", b"x"),)),
        Record("t", 3, 1, 7, None, b"2"),
    ]
    assert unpacked.next_fetch_offset == 2
