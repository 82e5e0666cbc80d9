"""The engine on a real Kafka, one rule at a time."""

# Other processes, files and Kafka have no asyncio.Event: they are asked again and again.
# ruff: noqa: ASYNC110

import asyncio
import json
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.processors.engine import kafka
from tests.processors.engine.installation import PATIENCE_SECONDS, Installation
from tests.processors.engine.proof import violations
from tests.processors.engine.toy import Command

pytestmark = pytest.mark.integration


def adds(count: int, key: str = "k", start: int = 0) -> list[tuple[str, Command]]:
    return [(key, Command(id=number)) for number in range(start, start + count)]


async def test_commands_are_applied_once_over_a_clean_restart(toy: Installation) -> None:
    await toy.append(adds(300))
    first = await toy.started(follow=True)
    await toy.events(600)
    assert await first.stop() == 0
    await toy.append(adds(300, start=300))
    second = await toy.started(follow=True)
    await toy.events(1_200)
    assert await second.stop() == 0
    assert await violations(toy.broker, toy.prefix) == []


async def test_completion_goes_before_admission_and_no_lane_starves(toy: Installation) -> None:
    await toy.append(adds(3_000), topic=toy.topics.p2)
    await toy.append(adds(3_000), topic=toy.topics.p0)
    await toy.append(adds(3_000))
    await toy.started()
    await toy.events(9_000)
    work = 0
    for record in await toy.read(toy.topics.journal):
        parts = {p["topic"]: p["end"] - p["start"] for p in json.loads(record.value)["ranges"]}
        order = [s.topic for s in toy.topics.sources if s.topic in parts]
        assert list(parts) == order
        taken = parts.get(toy.topics.work, 0)
        if taken > 1:  # more than a tick
            work += taken
            assert sum(parts.values()) - taken <= 200
            if work < 3_000:
                assert parts.get(toy.topics.p2, 10) >= 10
    assert work >= 3_000


async def test_poison_waits_in_kafka_until_it_is_released(toy: Installation) -> None:
    commands = [("a", Command(0)), ("a", Command(1, "poison")), *adds(3, "a", 2), ("b", Command(5))]
    await toy.append(commands)
    worker = await toy.started()
    await toy.events(2)
    worker.kill()
    await toy.append([("a", Command(6)), ("ops", Command(7, "release", target="a"))])
    await toy.append([("a", Command(8))])
    await toy.started()
    events = await toy.events(8)
    assert [e.cmd for e in events if e.key == "a"] == [0, 2, 3, 4, 6, 8]
    assert [e.n for e in events if e.key == "a"] == [1, 2, 3, 4, 5, 6]
    (letter,) = await toy.wait_for(toy.topics.dead, 1)
    assert json.loads(letter.value) == {
        "offset": 1,
        "topic": toy.topics.work,
        "error": "ValueError",
    }
    assert not [e for e in events if e.n < 0]


async def test_timers_fire_by_ticks_and_an_outage_lets_none_pass(toy: Installation) -> None:
    worker = await toy.started()
    # a first tick is in the log before the timer is set
    await toy.wait_for(toy.topics.work, 2)
    await toy.append([("k", Command(1)), ("t", Command(2, "later", n=10_000))])
    (marker,) = await toy.events(1)
    worker.kill()
    await asyncio.sleep(6.5)  # the outage itself
    await toy.started()
    events = await toy.events(2)
    fired = next(event for event in events if event.kind == "fired")
    assert fired.now - marker.now >= 6_500 + 10_000  # the outage does not count


async def test_ticks_are_one_a_second_and_one_unread_at_most(toy: Installation) -> None:
    gate = toy.folder / "gate"
    await toy.started(gate=str(gate))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not all(await kafka.ends(toy.broker, toy.topics.work)):
            await asyncio.sleep(0.05)
    gate.with_suffix(".armed").touch()
    await toy.append(adds(1), partition=0)  # its transaction does not end: nothing more is read
    _, other = await kafka.ends(toy.broker, toy.topics.work)
    began = time.time() * 1000
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await kafka.ends(toy.broker, toy.topics.work))[1] < other + 6:
            await asyncio.sleep(0.05)
    records = await toy.read(toy.topics.work)
    held, served = ([r for r in records if r.partition == n] for n in (0, 1))
    place = next(n for n, record in enumerate(held) if record.key == b"k")
    assert len(held[place + 1 :]) <= 1
    # One may have been on its way. The others were sent a second apart, and may be appended late.
    times = [record.timestamp - began for record in served if record.timestamp > began]
    assert times[-1] > 900 * (len(times) - 2), times


async def test_batches_without_effect_cost_no_transaction(toy: Installation) -> None:
    await toy.append([("k", Command(n, "nothing")) for n in range(500)])
    worker = await toy.started()
    await toy.append([("k", Command(500))])
    await toy.events(1)
    (record,) = await toy.read(toy.topics.journal)
    (part,) = json.loads(record.value)["ranges"]
    assert part["start"] == 0
    assert part["end"] >= 501
    assert await worker.stop() == 0


async def test_positions_without_effect_are_written_after_a_while(toy: Installation) -> None:
    await toy.append([("k", Command(n, "nothing")) for n in range(50)])
    await toy.started(extra={"flush_seconds_max": 1.0})
    record, *_ = await toy.wait_for(toy.topics.journal, 1)
    assert json.loads(record.value)["ranges"][0]["end"] >= 50


async def test_a_trimmed_source_ends_the_process_with_a_clear_word(toy: Installation) -> None:
    await toy.append(adds(10))
    worker = await toy.started()
    await toy.events(10)
    worker.kill()
    await toy.append(adds(50))
    await kafka.trim(toy.broker, toy.topics.work, 0, 40)
    late = toy.start()
    assert await late.ended() == 70
    assert "it was trimmed" in late.tail()


async def test_a_source_trimmed_before_it_was_ever_read_is_no_beginning(toy: Installation) -> None:
    await toy.append(adds(10))
    await kafka.trim(toy.broker, toy.topics.work, 0, 5)
    worker = toy.start()
    assert await worker.ended() == 70
    assert "was never read, but begins at 5" in worker.tail()


async def test_a_lost_batch_ends_the_process(toy: Installation) -> None:
    worker = await toy.started(lose=toy.topics.p0)
    await toy.append(adds(5), topic=toy.topics.p0)
    await toy.append(adds(5))
    await toy.events(5)
    await toy.append(adds(5), topic=toy.topics.p0)
    assert await worker.ended() == 70
    assert "goes on at 5, expected was 0" in worker.tail()
    await toy.started()
    assert len(await toy.events(15)) == 15


async def test_an_unknown_version_ends_the_process_and_is_no_poison(toy: Installation) -> None:
    await toy.append([("k", Command(0)), ("k", Command(1, "unknown")), ("k", Command(2))])
    worker = toy.start()
    assert await worker.ended() == 71
    assert await toy.read(toy.topics.dead) == []


async def test_many_quarantines_stay_down_alive_and_write_no_more(
    toy: Installation, tmp_path: Path
) -> None:
    await toy.append([(f"k{n}", Command(n, "poison")) for n in range(30)])
    await toy.append([("k", Command(30))])
    worker = toy.start()
    await worker.said("stays down")
    await toy.append(adds(3), partition=1)
    healthy = Installation(toy.broker, tmp_path / "healthy")
    healthy.folder.mkdir()
    await healthy.create()
    try:  # as long as another takes from its start to its answer
        await healthy.append(adds(3), partition=1)
        await healthy.started()
        await healthy.events(3)
    finally:
        healthy.close()
    assert worker.alive
    assert await toy.read(toy.topics.events) == []
    assert await toy.read(toy.topics.dead) == []
    assert await worker.stop() == 0


async def test_missing_or_unequal_topics_are_told_and_end_the_start(toy: Installation) -> None:
    worker = toy.start(partitions=3)
    assert await worker.ended() == 78
    worker = toy.start(prefix=f"{toy.prefix}x")
    assert await worker.ended() == 78


async def test_a_handler_that_hangs_ends_the_process(toy: Installation) -> None:
    await toy.append([("k", Command(0, "hang"))])
    worker = toy.start(extra={"stuck_seconds_max": 1.5})
    assert await worker.ended() == 70
    assert "the event loop has not run" in worker.tail()


async def test_group_offsets_follow_for_lag_tools(toy: Installation) -> None:
    await toy.append(adds(10))
    await toy.started(extra={"commit_seconds": 0.5})
    consumer = AIOKafkaConsumer(bootstrap_servers=toy.broker, group_id=toy.prefix)
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await consumer.committed(TopicPartition(toy.topics.work, 0)) or 0) < 10:
                await asyncio.sleep(0.1)
    finally:
        await consumer.stop()
