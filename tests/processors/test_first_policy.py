"""The first policy is published once, whoever came before and whoever comes again."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cutlog.installation import LOCAL_POLICY
from cutlog.stack import LocalStack
from processors.first_policy import publish_first_policy
from schema.codec import encode
from schema.commands import PublishPolicy, RegisterRunner
from schema.events import PolicyAdopted
from schema.ids import CommandId, IncarnationId, PoolId, RunnerId
from schema.policy import PolicyError
from schema.replies import RunnerDismissed
from schema.routes import Route
from schema.topics import Topic
from tests.processors.play import POLICY
from tests.support.ground import Ground, ground_on

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
async def ground(stack: LocalStack, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground_on(stack, tmp_path) as found:
        yield found


async def published(ground: Ground) -> int:
    """How many times, over all partitions."""
    topics = (Topic.QUOTA_COMMANDS, Topic.POOL_COMMANDS)
    found = [message for topic in topics for message in await ground.all(topic)]
    return sum(isinstance(message, PublishPolicy) for message in found)


async def adopted(ground: Ground) -> list[int]:
    """Versions, over all partitions of both topics."""
    topics = (Topic.QUOTA_EVENTS, Topic.POOL_EVENTS)
    found = [message for topic in topics for message in await ground.all(topic)]
    return [one.policy.version for one in found if isinstance(one, PolicyAdopted)]


async def adoption(ground: Ground, topic: Topic, event_id: str) -> None:
    await ground.wait(topic, PolicyAdopted, lambda one: one.event_id == event_id)


async def test_an_empty_log_gets_one_for_every_partition(ground: Ground) -> None:
    assert await publish_first_policy(ground.kafka, LOCAL_POLICY) == 4
    assert await published(ground) == 4


async def test_a_document_that_is_no_policy_is_published_nowhere(
    ground: Ground, tmp_path: Path
) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"version": 1}))
    with pytest.raises(PolicyError):
        await publish_first_policy(ground.kafka, file)
    assert await published(ground) == 0


async def test_a_runner_that_came_first_does_not_keep_it_away(ground: Ground) -> None:
    """Nobody knows it without a policy; it asks again under another incarnation."""
    register = RegisterRunner(
        command_id=CommandId("early"),
        pool_id=PoolId("R"),
        runner_id=RunnerId("early"),
        incarnation_id=IncarnationId("first"),
        slots=1,
    )
    await ground.ask(register)
    first = await ground.processor()
    await first.ready()
    dismissed = await ground.wait(Topic.RUNNER_INBOX, RunnerDismissed)
    assert dismissed.reason == "policy_missing"
    assert await first.end() == 0
    second = await ground.processor(LOCAL_POLICY)
    await second.ready()
    for topic in (Topic.QUOTA_EVENTS, Topic.POOL_EVENTS):
        await ground.wait(topic, PolicyAdopted)
    await second.end(signal.SIGKILL)


async def test_published_twice_it_is_adopted_once_and_then_never_published_again(
    ground: Ground,
) -> None:
    assert await publish_first_policy(ground.kafka, LOCAL_POLICY) == 4
    assert await publish_first_policy(ground.kafka, LOCAL_POLICY) == 4  # nobody adopted it yet
    processor = await ground.processor(LOCAL_POLICY)
    await processor.ready()
    newer = replace(POLICY, version=2)
    await ground.publish(newer)
    for topic in (Topic.QUOTA_EVENTS, Topic.POOL_EVENTS):
        for number in range(2):
            await adoption(ground, topic, f"publish-{number}.0")
    assert await publish_first_policy(ground.kafka, LOCAL_POLICY) == 0
    await processor.end(signal.SIGKILL)
    assert sorted(await adopted(ground)) == [1] * 4 + [2] * 4
    assert encode(newer) != encode(POLICY)


async def test_a_partition_that_adopted_many_policies_is_not_taken_for_two(ground: Ground) -> None:
    """Other adoptions of it come with later fetches, while other partitions are still read."""
    adoption, other = b'{"type":"policy.adopted.v1"}', b'{"type":"other.v1"}'
    places = [
        Route(topic, number, "policy")
        for topic in (Topic.QUOTA_EVENTS, Topic.POOL_EVENTS)
        for number in range(2)
    ]
    for place in places:
        late = place == places[-1]
        told = [
            ground.put(place, other if late else adoption) for _ in range(900 if late else 3_000)
        ]
        await asyncio.gather(*told)
    assert await publish_first_policy(ground.kafka, LOCAL_POLICY) == 1
