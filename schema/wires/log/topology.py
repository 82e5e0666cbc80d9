"""Topics: made once, with what the design says of each, and checked at every start."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from schema.settings import Kafka
from schema.topics import SPECS
from schema.wires.log.places import LogUnavailableError, TopologyError, Untyped, milliseconds
from schema.wires.log.starting import start

_ALREADY_EXISTS: Final = 36


async def create_topics(kafka: Kafka, *, changelogs: Iterable[str] = ()) -> None:
    """Make the topics that are missing (`changelogs` compacted) and check all.

    Raises TopologyError when a topic has another number of partitions than the settings say, and
    LogUnavailableError when no broker answers.
    """
    compacted = tuple(changelogs)
    wanted = [*(topic.value for topic in SPECS), *compacted]
    async with _admin(kafka) as admin:
        present = await admin.list_topics()
        missing = [name for name in wanted if name not in present]
        if missing:
            new = [_new_topic(kafka, name, compact=name in compacted) for name in missing]
            answer = await admin.create_topics(new)
            _check_created(answer.topic_errors)
        await _check_partitions(admin, kafka, wanted)


async def check_topics(kafka: Kafka, names: Iterable[str] = ()) -> None:
    """Check without making any: raises TopologyError, or LogUnavailableError for missing ones."""
    wanted = list(names) or [topic.value for topic in SPECS]
    async with _admin(kafka) as admin:
        await _check_partitions(admin, kafka, wanted)


async def cluster_id(kafka: Kafka) -> str:
    """The id of this incarnation of the log: another one means other offsets."""
    async with _admin(kafka) as admin:
        described = await admin.describe_cluster()
        return str(described["cluster_id"])


@asynccontextmanager
async def _admin(kafka: Kafka) -> AsyncGenerator[Untyped, None]:
    """A connection for questions about topics; what fails in it is LogUnavailableError."""
    admin: Untyped = AIOKafkaAdminClient(
        bootstrap_servers=kafka.brokers, request_timeout_ms=milliseconds(kafka)
    )
    await start(admin, kafka.request_timeout_seconds, admin.close)
    try:
        yield admin
    except (KafkaError, TimeoutError, OSError) as error:
        raise LogUnavailableError(f"no broker answers: {error!r}") from error
    finally:
        await admin.close()


def _new_topic(kafka: Kafka, name: str, *, compact: bool) -> NewTopic:
    configs = {
        "min.insync.replicas": str(kafka.min_insync),
        "unclean.leader.election.enable": "false",
    }
    if compact:
        configs["cleanup.policy"] = "compact"
        configs["min.cleanable.dirty.ratio"] = "0.3"
        configs["segment.bytes"] = str(64 << 20)
    else:
        spec = next(spec for topic, spec in SPECS.items() if topic.value == name)
        configs["retention.ms"] = str(spec.retention_ms)
        configs["message.timestamp.type"] = "LogAppendTime" if spec.append_time else "CreateTime"
    return NewTopic(
        name=name,
        num_partitions=kafka.partitions,
        replication_factor=kafka.replication,
        topic_configs=configs,
    )


def _check_created(topic_errors: Sequence[Sequence[Any]]) -> None:
    for name, code, *rest in topic_errors:
        if code not in (0, _ALREADY_EXISTS):
            raise TopologyError(f"topic {name} could not be made: error {code} {rest}")


async def _check_partitions(admin: Untyped, kafka: Kafka, wanted: Sequence[str]) -> None:
    """Every wanted topic is there with the right number; a new one may take a moment to show."""
    deadline = time.monotonic() + kafka.request_timeout_seconds
    while True:
        described = {
            topic["topic"]: topic
            for topic in await admin.describe_topics(list(wanted))
            if topic["error_code"] == 0
        }
        if all(_led(described.get(name)) for name in wanted):
            break
        if time.monotonic() > deadline:
            missing = [name for name in wanted if not _led(described.get(name))]
            raise LogUnavailableError(f"topics without leaders: {', '.join(missing)}")
        await asyncio.sleep(0.05)
    wrong = {
        name: len(described[name]["partitions"])
        for name in wanted
        if len(described[name]["partitions"]) != kafka.partitions
    }
    if wrong:
        raise TopologyError(f"settings say {kafka.partitions} partitions, but: {wrong}")


def _led(topic: Mapping[str, Any] | None) -> bool:
    return topic is not None and all(part["leader"] >= 0 for part in topic["partitions"])
