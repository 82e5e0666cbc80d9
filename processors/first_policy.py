"""The first policy: published from a file while a partition has never been told of any.

Every process of the group does this before it works; the same version told twice is already so.
"""

from datetime import UTC, datetime
from pathlib import Path

from schema.codec import encode
from schema.commands import PublishPolicy
from schema.ids import CommandId
from schema.policy import read_policy
from schema.routes import Route
from schema.settings import Kafka
from schema.topics import Topic
from schema.wires.log import LogReader, LogWriter, Place

_TOLD = (Topic.QUOTA_COMMANDS, Topic.POOL_COMMANDS)


async def publish_first_policy(kafka: Kafka, file: Path) -> int:
    """Append it to every partition that is still empty; how many were. Raises PolicyError."""
    policy = read_policy(file.read_bytes())  # noqa: ASYNC240 - once, before anything waits
    places = [Place(topic, number) for topic in _TOLD for number in range(kafka.partitions)]
    async with LogReader(kafka, places) as reader:
        empty = [place for place, end in (await reader.ends()).items() if end == 0]
    if not empty:
        return 0
    day = datetime.now(UTC).date().isoformat()
    async with LogWriter(kafka) as writer:
        for place in empty:
            command = PublishPolicy(
                command_id=CommandId(f"first-policy-{policy.version}-{place.partition}"),
                policy=policy,
                who="first start",
                why=f"{file.name}, {day}",
            )
            route = Route(Topic(place.topic), place.partition, "policy")
            await writer.append(route, encode(command))
    return len(empty)
