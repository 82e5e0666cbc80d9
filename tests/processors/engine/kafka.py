"""What the tests themselves do with Kafka: make topics, append, read everything committed."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from tests.processors.engine.toy import Topics

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


async def create_topics(
    broker: str, names: Mapping[str, Mapping[str, str]], partitions: int = 2
) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        await admin.create_topics(
            [
                NewTopic(name, partitions, 1, topic_configs=dict(configs))
                for name, configs in names.items()
            ]
        )
    finally:
        await admin.close()


async def create_toy_topics(broker: str, topics: Topics, partitions: int = 2) -> None:
    names: dict[str, Mapping[str, str]] = {s.topic: APPEND_TIME for s in topics.sources}
    names |= {topics.events: {}, topics.dead: {}, topics.journal: {}}
    names[topics.state] = {"cleanup.policy": "compact"}
    await create_topics(broker, names, partitions)


async def trim(broker: str, topic: str, partition: int, before: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        await admin.delete_records(
            {TopicPartition(topic, partition): RecordsToDelete(before_offset=before)}
        )
    finally:
        await admin.close()


async def append(
    broker: str, topic: str, records: Iterable[tuple[bytes | None, bytes, int | None]]
) -> None:
    """(key, value, partition) each; acked when this returns."""
    producer = AIOKafkaProducer(bootstrap_servers=broker, enable_idempotence=True, linger_ms=5)
    await producer.start()
    try:
        sent = [
            await producer.send(topic, value, key=key, partition=partition)
            for key, value, partition in records
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def ends(broker: str, topic: str, partitions: int = 2) -> list[int]:
    """Where each partition ends for who reads committed records; control markers count."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker, group_id=None, isolation_level="read_committed"
    )
    await consumer.start()
    try:
        tps = [TopicPartition(topic, n) for n in range(partitions)]
        found: dict[Any, int] = await consumer.end_offsets(tps)
        return [found[tp] for tp in tps]
    finally:
        await consumer.stop()


async def read(
    broker: str, topic: str, partitions: int = 2, isolation: str = "read_committed"
) -> dict[int, list[Any]]:
    """Every record that is there now, by partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker,
        group_id=None,
        isolation_level=isolation,
        max_partition_fetch_bytes=4 << 20,
    )
    await consumer.start()
    try:
        tps = [TopicPartition(topic, n) for n in range(partitions)]
        consumer.assign(tps)
        begin, end = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        for tp in tps:
            consumer.seek(tp, begin[tp])
        found: dict[int, list[Any]] = {n: [] for n in range(partitions)}
        todo = {tp for tp in tps if begin[tp] < end[tp]}
        async with asyncio.timeout(30):
            while todo:
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    found[tp.partition].extend(records)
                todo = {tp for tp in todo if await consumer.position(tp) < end[tp]}
        return found
    finally:
        await consumer.stop()
