"""A transaction ends in every partition, also if the broker died before it had told them all."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from cutlog.stack import LocalStack
from processors.engine import Settings
from processors.engine.clients import close_quietly
from processors.engine.hanging import ends
from tests.processors.engine.kafka import create_topics

pytestmark = pytest.mark.integration

PARTITIONS = 300
"""So many that their markers are not written yet when the commit is answered."""


async def commit_everywhere(broker: str, topic: str, writer: str) -> Any:  # noqa: ANN401
    """One record in each partition, in one transaction; gives the producer, still connected."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=broker, transactional_id=writer)
    await producer.start()
    async with producer.transaction():
        sent = [await producer.send(topic, b"%d" % n, partition=n) for n in range(PARTITIONS)]
        await asyncio.gather(*sent)
    return producer


async def readable(broker: str, topic: str) -> int:
    """How many partitions show their record to a reader of committed ones."""
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=broker, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    try:
        places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        consumer.assign(places)
        stable = await consumer.end_offsets(places)
        return sum(end > 0 for end in stable.values())
    finally:
        await consumer.stop()


async def fence(broker: str, writer: str) -> None:
    producer: Any = AIOKafkaProducer(bootstrap_servers=broker, transactional_id=writer)
    await producer.start()
    await producer.stop()


async def test_what_was_committed_is_readable_though_the_broker_died_over_it(
    stack: LocalStack, tmp_path: Path
) -> None:
    broker = stack.environ()["CUTLOG_KAFKA_BROKERS"]
    topic = f"ended-{uuid.uuid4().hex}"
    settings = Settings(
        broker=broker,
        app_id=topic,
        partitions=PARTITIONS,
        changelog=topic,
        journal=topic,
        data_directory=str(tmp_path),
    )
    await create_topics(broker, {topic: {}}, PARTITIONS)

    producer = await commit_everywhere(broker, topic, f"{topic}-0")
    stack.kill("kafka")
    await close_quietly(producer)
    stack.restart("kafka")

    async with ends(settings, [topic]) as ending:
        outcomes = await ending.outcomes([f"{topic}-0", f"{topic}-never"])
        assert [outcome.committed for outcome in outcomes] == [True]
        await fence(broker, f"{topic}-0")
        before = await readable(broker, topic)
        assert await ending.finish(outcomes, {topic: PARTITIONS}) == PARTITIONS - before
        assert await readable(broker, topic) == PARTITIONS
        assert await ending.finish(outcomes, {topic: PARTITIONS}) == 0
