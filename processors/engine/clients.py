"""The Kafka clients of the engine, beside the consumer that Faust owns."""

# aiokafka ships no types; what it hands out is unknown, and stays so.
# ruff: noqa: ANN401
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

import aiokafka.producer.sender
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaError

from processors.engine.errors import TopologyError
from processors.engine.settings import Settings

# After a commit the coordinator answers CONCURRENT_TRANSACTIONS until the markers are written;
# aiokafka asks again after 20 ms, which would be the latency of every transaction under load.
aiokafka.producer.sender.BACKOFF_OVERRIDE = 0.002

_BROKEN: Final = (CloseReason.CONNECTION_BROKEN, CloseReason.CONNECTION_TIMEOUT)
BATCH_BYTES_MAX: Final = 800_000
"""Of one produced batch; the broker's default limit is 1 MiB."""


def transactional_id(settings: Settings, number: int) -> str:
    """The fence: one name for each partition number, whoever owns it."""
    return f"{settings.app_id}-{number}"


def producer(
    settings: Settings,
    name: str,
    transactional: str | None,
    broken: Callable[[], None] | None = None,
) -> Any:
    """A producer that is idempotent, or transactional if a transactional id is given.

    `broken` is called whenever a connection of it breaks, idle or not.
    """
    made: Any = AIOKafkaProducer(
        bootstrap_servers=settings.broker,
        client_id=name,
        acks="all",
        enable_idempotence=True,
        transactional_id=transactional,
        transaction_timeout_ms=int(settings.transaction_seconds_max * 1000),
        max_batch_size=BATCH_BYTES_MAX,
        max_request_size=BATCH_BYTES_MAX + 100_000,
        linger_ms=0,
        retry_backoff_ms=5,
        request_timeout_ms=int(settings.request_seconds_max * 1000),
        compression_type="zstd" if settings.zstd else None,
    )
    if broken is not None:
        known = made.client._on_connection_closed  # noqa: SLF001

        def closed(connection: Any, reason: Any) -> None:
            known(connection, reason)
            if reason in _BROKEN:
                broken()

        made.client._on_connection_closed = closed  # noqa: SLF001
    return made


def reader(settings: Settings) -> Any:
    """A consumer of its own, without group, of committed records only."""
    return AIOKafkaConsumer(
        bootstrap_servers=settings.broker,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        max_partition_fetch_bytes=4 << 20,
        request_timeout_ms=int(settings.request_seconds_max * 1000),
    )


async def check_topics(
    settings: Settings, co_partitioned: Collection[str], outputs: Collection[str]
) -> dict[str, int]:
    """Number of partitions of every topic; raises TopologyError for what is missing or unequal."""
    wanted = sorted({*co_partitioned, *outputs})
    counts = await _partition_counts(settings, wanted)
    missing = [topic for topic in wanted if topic not in counts]
    if missing:
        raise TopologyError(f"topics are missing: {', '.join(missing)}")
    unequal = {t: counts[t] for t in sorted(co_partitioned) if counts[t] != settings.partitions}
    if unequal:
        raise TopologyError(f"not {settings.partitions} partitions: {unequal}")
    return counts


async def _partition_counts(settings: Settings, topics: list[str]) -> dict[str, int]:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.broker,
        request_timeout_ms=int(settings.request_seconds_max * 1000),
    )
    try:
        await admin.start()
        described: list[dict[str, Any]] = await admin.describe_topics(topics)
    finally:
        await admin.close()
    return {
        entry["topic"]: len(entry["partitions"])
        for entry in described
        if entry["error_code"] == 0 and entry["partitions"]
    }


async def close_quietly(client: Any) -> None:
    """Stop a client whose work is over; what it says about it does not matter."""
    try:
        await asyncio.wait_for(client.stop(), 5)
    except (KafkaError, TimeoutError, RuntimeError):
        return
