"""The group of probers over a rebalance: nothing counts as done that is not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from cutlog.stack import LocalStack
from gpu_runners.probing.consuming import Consumer
from schema import events as e
from schema.codec import encode
from schema.ids import EventId, MaterialId, UserId
from schema.routes import Route
from schema.topics import Topic
from tests.support.ground import Ground, ground_on

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

COUNT = 6
PLACE = TopicPartition(Topic.MATERIAL_EVENTS.value, 1)


@pytest.fixture
async def ground(stack: LocalStack, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground_on(stack, tmp_path) as found:
        yield found


async def committed(admin: Any, group: str) -> int:  # noqa: ANN401 - aiokafka has no types
    found = await admin.list_consumer_group_offsets(group, partitions=[PLACE])
    return int(found[PLACE].offset)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 - the broker's, not ours
            await asyncio.sleep(0.02)


async def put(ground: Ground, number: int, seq: int = 1) -> None:
    event = e.UploadTouched(
        event_id=EventId(f"touch-{number}-{seq}"),
        seq=seq,
        at=datetime(2026, 3, 2, tzinfo=UTC),
        material_id=MaterialId(f"m{number}"),
        user_id=UserId("annannannannannannan000001"),
    )
    place = Route(Topic.MATERIAL_EVENTS, PLACE.partition, event.material_id)
    await ground.put(place, encode(event))


def wanted(told: Any) -> Any:  # noqa: ANN401 - all are
    return told


async def test_a_partition_that_goes_and_comes_while_a_slot_is_waited_for_begins_anew(
    ground: Ground,
) -> None:
    group = f"{ground.app_id}-consuming"
    gates = [asyncio.Event() for _ in range(COUNT)]
    again = asyncio.Event()
    begun: list[int] = []
    done: set[int] = set()

    async def work(event: e.MaterialEvent) -> None:
        number = int(event.material_id[-1])
        begun.append(number)
        await (again if begun.count(number) > 1 else gates[number]).wait()
        done.add(number)

    for number in range(COUNT):
        await put(ground, number)
    consumer = Consumer(ground.kafka, group=group, slots=3, wanted=wanted, work=work)
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=ground.kafka.brokers)
    other: Any = AIOKafkaConsumer(
        PLACE.topic,
        bootstrap_servers=ground.kafka.brokers,
        group_id=group,
        enable_auto_commit=False,
    )
    stopping = asyncio.Event()
    running = asyncio.create_task(consumer.run(stopping, 0))
    await admin.start()
    try:
        # 0, 1 and 2 are at work; a slot for 3 is waited for, the rest is in hand.
        await until(lambda: _holds(begun == [0, 1, 2]))
        await other.start()
        await until(lambda: _holds(bool(other.assignment())))
        await other.stop()
        await until(lambda: _is_alone(admin, group))
        for gate in gates[1:]:
            gate.set()
        await until(lambda: _holds(begun.count(1) == 2))
        # Whoever came next would begin here, and 0 is not done.
        assert await committed(admin, group) <= 0
        again.set()
        gates[0].set()
        await until(lambda: _has_committed(admin, group, COUNT))
    finally:
        stopping.set()
        await running
        with suppress(Exception):
            await other.stop()
        await admin.close()
    assert done == set(range(COUNT))


async def _holds(what: bool) -> bool:  # noqa: FBT001
    return what


async def _is_alone(admin: Any, group: str) -> bool:  # noqa: ANN401
    (found,) = await admin.describe_consumer_groups([group])
    (told,) = found.groups
    return told[2] == "Stable" and len(told[5]) == 1


async def _has_committed(admin: Any, group: str, position: int) -> bool:  # noqa: ANN401
    return await committed(admin, group) == position


async def test_what_is_asked_again_of_a_slow_file_holds_no_slot(ground: Ground) -> None:
    gate, done = asyncio.Event(), list[tuple[str, int]]()

    async def work(event: e.MaterialEvent) -> None:
        if event.material_id == "m0":
            await gate.wait()
        done.append((event.material_id, event.seq))

    for number, seq in ((0, 1), (0, 2), (0, 3), (1, 1), (2, 1)):
        await put(ground, number, seq)
    group = f"{ground.app_id}-slow"
    consumer = Consumer(ground.kafka, group=group, slots=2, wanted=wanted, work=work)
    stopping = asyncio.Event()
    running = asyncio.create_task(consumer.run(stopping, 0))
    try:
        await until(lambda: _holds(len(done) == 2))
        assert done == [("m1", 1), ("m2", 1)]
        gate.set()
        await until(lambda: _holds(len(done) == 5))
        assert done[2:] == [("m0", 1), ("m0", 2), ("m0", 3)]
    finally:
        stopping.set()
        await running
