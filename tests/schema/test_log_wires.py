"""The log's wires on the real broker: nothing silent, nothing twice, positions exact."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, cast
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.conn import AIOKafkaConnection
from aiokafka.structs import TopicPartition

from cutlog.stack import LocalStack
from schema.codec import MESSAGE_BYTES_MAX
from schema.routes import Route
from schema.settings import Kafka, load, need
from schema.topics import SPECS, Topic
from schema.wires.log import (
    LogReader,
    LogUnavailableError,
    LogWriter,
    MessageTooLongError,
    OffsetTrimmedError,
    Place,
    TopologyError,
    check_topics,
    cluster_id,
    create_topics,
)
from tests.support.lines import HOST, Line, running_line

pytestmark = pytest.mark.integration

PATIENCE_SECONDS = 30
"""Many times any timeout that the tests set: a machine with other work to do is slow."""


@pytest.fixture
def kafka(stack: LocalStack) -> Kafka:
    found: Kafka = need(load(stack.environ()), "kafka")
    return found


@pytest.fixture
async def topic(kafka: Kafka) -> AsyncIterator[str]:
    """A topic of two partitions for one test."""
    name = f"t-{uuid4().hex}"
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=kafka.brokers)
    await admin.start()
    await admin.create_topics([NewTopic(name=name, num_partitions=2, replication_factor=1)])
    yield name
    await admin.delete_topics([name])
    await admin.close()


def route(topic: str, partition: int, key: str) -> Route:
    """To a topic that only this test knows."""
    return Route(cast("Topic", topic), partition, key)


async def read_all(kafka: Kafka, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    places = [Place(topic, 0), Place(topic, 1)]
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {0: [], 1: []}
    async with LogReader(kafka, places) as reader:
        await reader.seek_to_beginning()
        ends = await reader.ends()
        while any(reader.positions[place] < end for place, end in ends.items()):
            for batch in await reader.read():
                found[batch.place.partition] += [(one.key, one.value) for one in batch.records]
    return found


async def test_topics_are_made_once_and_another_number_of_partitions_is_an_error(
    kafka: Kafka,
) -> None:
    changelog = f"changelog-{uuid4().hex}"
    for _ in range(2):
        await create_topics(kafka, changelogs=[changelog])
    await check_topics(kafka, [changelog, *(topic.value for topic in SPECS)])
    other = Kafka(brokers=kafka.brokers, partitions=3)
    with pytest.raises(TopologyError, match="3 partitions"):
        await create_topics(other)
    with pytest.raises(LogUnavailableError, match="no-such-topic"):
        await check_topics(
            Kafka(brokers=kafka.brokers, request_timeout_seconds=1), ["no-such-topic"]
        )
    assert len(await cluster_id(kafka)) == 22


async def test_appends_stand_in_their_order_where_they_say_in_few_batches(
    kafka: Kafka, topic: str
) -> None:
    async with LogWriter(kafka) as writer:
        done = await asyncio.gather(
            *(
                writer.append(route(topic, number % 2, f"k{number}"), b"%d" % number, [("h", b"1")])
                for number in range(2_000)
            )
        )
        assert writer.unanswered == 0
    found = await read_all(kafka, topic)
    for number, appended in enumerate(done):
        assert appended[:2] == (topic, number % 2)
        assert found[number % 2][appended.offset] == (b"k%d" % number, b"%d" % number)
    assert [len(records) for records in found.values()] == [1_000, 1_000]


async def test_a_message_that_is_too_long_is_refused_before_anything_is_written(
    kafka: Kafka, topic: str
) -> None:
    async with LogWriter(kafka) as writer:
        with pytest.raises(MessageTooLongError):
            await writer.append(route(topic, 0, "k"), bytes(MESSAGE_BYTES_MAX + 1))
        assert (await writer.append(route(topic, 0, "k"), bytes(MESSAGE_BYTES_MAX))).offset == 0


async def test_a_full_buffer_refuses_and_writes_nothing(kafka: Kafka, topic: str) -> None:
    async with LogWriter(kafka, buffer_max=10) as writer:
        done = await asyncio.gather(
            *(writer.append(route(topic, 0, "k"), b"%d" % number) for number in range(20)),
            return_exceptions=True,
        )
    refused = [one for one in done if isinstance(one, LogUnavailableError)]
    assert len(refused) == 10
    assert not any(one.in_doubt for one in refused)
    assert len((await read_all(kafka, topic))[0]) == 10


async def test_no_broker_is_an_error_within_the_timeout() -> None:
    nowhere = Kafka(brokers="127.0.0.1:9", request_timeout_seconds=0.5)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(LogUnavailableError):
            await LogWriter(nowhere).start()
        with pytest.raises(LogUnavailableError):
            await LogReader(nowhere, [Place("t", 0)]).start()
        with pytest.raises(LogUnavailableError):
            await cluster_id(nowhere)
    with pytest.raises(LogUnavailableError, match="not open"):
        await LogWriter(nowhere).append(route("t", 0, "k"), b"1")


async def start_reader(kafka: Kafka) -> None:
    await LogReader(kafka, [Place("t", 0)]).start()


async def start_writer(kafka: Kafka) -> None:
    await LogWriter(kafka).start()


@pytest.fixture
def line(kafka: Kafka) -> Iterator[Line]:
    """Between us and the broker."""
    host, _, port = kafka.brokers.partition(":")
    with running_line(lambda: (host, int(port))) as found:
        yield found


@pytest.mark.parametrize("seconds", [0.5, PATIENCE_SECONDS], ids=["late", "canceled"])
@pytest.mark.parametrize("begin", [start_reader, start_writer, cluster_id])
async def test_a_start_that_is_given_up_leaves_no_connection_open(
    line: Line, begin: Callable[[Kafka], Coroutine[Any, Any, Any]], seconds: float
) -> None:
    """It has a connection, and waits to be told which brokers there are."""
    line.hold_at(30)  # bytes: the question which versions there are goes through
    held = Kafka(brokers=f"{HOST}:{line.port}", request_timeout_seconds=seconds)
    beginning = asyncio.create_task(begin(held))
    if seconds == PATIENCE_SECONDS:
        assert await asyncio.to_thread(line.held.wait, PATIENCE_SECONDS)
        beginning.cancel()
    with pytest.raises((LogUnavailableError, asyncio.CancelledError)):
        await beginning
    open_ones = [
        one
        for one in gc.get_objects()
        # By its type alone: `isinstance` asks the object, and some warn whoever asks.
        if type(one) is AIOKafkaConnection and one.port == line.port and one.connected()
    ]
    assert open_ones == []


async def test_a_broker_that_hangs_fails_appends_in_time_and_what_was_in_doubt_stands_once(
    kafka: Kafka, topic: str, stack: LocalStack
) -> None:
    hasty = Kafka(brokers=kafka.brokers, request_timeout_seconds=1)
    async with LogWriter(hasty) as writer:
        await writer.append(route(topic, 0, "before"), b"0")
        stack.pause("kafka")
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):  # the broker hangs for longer
                doubted = await asyncio.gather(
                    *(writer.append(route(topic, 0, f"k{number}"), b"1") for number in range(5)),
                    return_exceptions=True,
                )
            assert all(isinstance(one, LogUnavailableError) for one in doubted)
            assert all(getattr(one, "in_doubt", False) for one in doubted)
            refused = asyncio.create_task(writer.append(route(topic, 0, "refused"), b"2"))
            await asyncio.sleep(0)
            assert refused.done(), "it waits for nothing"
            with pytest.raises(LogUnavailableError) as told:
                await refused
            assert not told.value.in_doubt
        finally:
            stack.resume("kafka")
        await _appended(writer, topic)
    keys = [key for key, _ in (await read_all(kafka, topic))[0]]
    assert keys.count(b"refused") == 0
    assert [keys.count(b"k%d" % number) for number in range(5)] == [1] * 5


async def _appended(writer: LogWriter, topic: str) -> None:
    """Append until it works again, as a caller with the same id would."""
    async with asyncio.timeout(60):
        while True:
            try:
                await writer.append(route(topic, 0, "after"), b"3")
            except LogUnavailableError:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_broker_that_dies_and_comes_back_is_written_and_read_again(
    kafka: Kafka, topic: str, stack: LocalStack
) -> None:
    hasty = Kafka(brokers=kafka.brokers, request_timeout_seconds=2)
    places = [Place(topic, 0), Place(topic, 1)]
    closed = LogReader(hasty, places)
    await closed.start()
    await closed.seek_to_end()
    async with LogWriter(hasty) as writer, LogReader(hasty, places) as reader:
        await reader.seek_to_end()
        await writer.append(route(topic, 0, "k"), b"before")
        await asyncio.to_thread(stack.kill, "kafka")
        with pytest.raises(LogUnavailableError):
            await writer.append(route(topic, 0, "k"), b"lost or not")
        with pytest.raises(LogUnavailableError):
            await closed.ends()
        await closed.stop()  # which cancels the fetches that it tries, and nobody else
        await asyncio.to_thread(stack.start)
        await _appended(writer, topic)
        seen: list[bytes | None] = []
        async with asyncio.timeout(60):
            while b"3" not in seen:
                for batch in await reader.read():
                    seen += [record.value for record in batch.records]
        assert seen[0] == b"before"


async def test_positions_step_over_markers_and_aborted_records_without_a_gap(
    kafka: Kafka, topic: str
) -> None:
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=kafka.brokers, transactional_id=f"x-{uuid4().hex}"
    )
    await producer.start()
    for number in range(6):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"%d" % number, partition=0)
        await (producer.abort_transaction() if number % 3 == 2 else producer.commit_transaction())
    place = Place(topic, 0)
    async with LogReader(kafka, [place], records_max=1) as reader:
        await reader.seek({})
        ends, seen, position = await reader.ends(), list[tuple[int, bytes | None]](), 0
        while reader.positions[place] < ends[place]:
            for batch in await reader.read():
                assert batch.start == position
                position = batch.end
                seen += [(record.offset, record.value) for record in batch.records]
        assert seen == [(0, b"0"), (2, b"1"), (6, b"3"), (8, b"4")]
        assert position == ends[place] == 12
        assert reader.lag() == {place: 0}
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
        assert await reader.read(0.3) == []
        await producer.commit_transaction()
        [batch] = await reader.read(5)
        assert (batch.start, batch.records[0].value) == (12, b"open")
    await producer.stop()


async def test_a_position_that_the_log_no_longer_has_is_an_error(kafka: Kafka, topic: str) -> None:
    async with LogWriter(kafka) as writer:
        for _ in range(3):
            await writer.append(route(topic, 0, "k"), b"1")
    place = Place(topic, 0)
    async with LogReader(kafka, [place]) as reader:
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=kafka.brokers)
        await admin.start()
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)})
        await admin.close()
        # As a reader that stood there before, and had fetched nothing yet.
        reader._seek({place: 0})  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(OffsetTrimmedError) as trimmed:
            async for _ in reader.follow():
                pass
        assert (trimmed.value.place, trimmed.value.position) == (place, 0)
    async with LogReader(kafka, [place]) as reader:
        with pytest.raises(OffsetTrimmedError):
            await reader.seek({place: 1})
        await reader.seek({place: 2})
        [batch] = await reader.read(5)
        assert (batch.start, batch.end) == (2, 3)
