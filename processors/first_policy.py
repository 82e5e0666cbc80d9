"""The first policy: published from a file for every partition that has never adopted one.

Every process of the group does this before it works. What counts is what was *adopted*, not whether
commands stand in the log: a runner may have asked to be known before anybody published. Published
twice by two processes is harmless, since the same version is already so.
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

_ADOPTED = b'"type":"policy.adopted.'
_FIRST_RECORDS = 1_000
"""A partition without a policy refuses everything but to queue, so its first events are few."""
_TELL = {Topic.QUOTA_EVENTS: Topic.QUOTA_COMMANDS, Topic.POOL_EVENTS: Topic.POOL_COMMANDS}


async def publish_first_policy(kafka: Kafka, file: Path) -> int:
    """Append it where none was adopted; to how many partitions. Raises PolicyError."""
    policy = read_policy(file.read_bytes())  # noqa: ASYNC240 - once, before anything waits
    without = await _without_policy(kafka)
    if not without:
        return 0
    day = datetime.now(UTC).date().isoformat()
    async with LogWriter(kafka) as writer:
        for place in without:
            command = PublishPolicy(
                command_id=CommandId(f"first-policy-{policy.version}-{place.partition}"),
                policy=policy,
                who="first start",
                why=f"{file.name}, {day}",
            )
            route = Route(_TELL[Topic(place.topic)], place.partition, "policy")
            await writer.append(route, encode(command))
    return len(without)


async def _without_policy(kafka: Kafka) -> list[Place]:
    """Event partitions in which no policy was ever adopted."""
    places = [Place(topic, number) for topic in _TELL for number in range(kafka.partitions)]
    async with LogReader(kafka, places, records_max=_FIRST_RECORDS) as reader:
        starts, ends = await reader.starts(), await reader.ends()
        # What is trimmed was adopted long ago; what is empty was never told.
        without = [place for place in places if starts[place] == 0]
        adopted: set[Place] = set()
        reading = {place for place in without if ends[place] > 0}
        await reader.seek(dict.fromkeys(reading, 0))
        while reading:
            for batch in await reader.read():
                if any(_ADOPTED in (record.value or b"")[:64] for record in batch.records):
                    adopted.add(batch.place)  # maybe not for the first time
            reading = {
                place
                for place in reading - adopted
                if reader.positions[place] < min(ends[place], _FIRST_RECORDS)
            }
    return [place for place in without if place not in adopted]
