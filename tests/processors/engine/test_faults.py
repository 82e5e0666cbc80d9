"""Workers are killed, stopped and rolled under load; the proof reads what is committed, raw."""

# Other processes, files and Kafka have no asyncio.Event: they are asked again and again.
# ruff: noqa: ASYNC110

import asyncio
import random
import signal
import time
from typing import Self

import pytest
from aiokafka import AIOKafkaProducer

from cutlog.stack import LocalStack
from tests.processors.engine.installation import PATIENCE_SECONDS, Installation, Process
from tests.processors.engine.proof import violations
from tests.processors.engine.toy import Command, encode

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


class Supervised:
    """Two workers with static names, started again as soon as one is gone."""

    def __init__(self, toy: Installation) -> None:
        self.toy = toy
        self.workers = [self._start(0), self._start(1)]
        self.exits: list[int] = []
        self._task = asyncio.create_task(self._watch())

    def _start(self, place: int) -> Process:
        return self.toy.start(follow=True, instance=f"worker-{place}")

    async def _watch(self) -> None:
        while True:
            for place, worker in enumerate(self.workers):
                if not worker.alive:
                    self.exits.append(await worker.ended())
                    self.workers[place] = self._start(place)
            await asyncio.sleep(0.1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Nobody is started again; returns when all have ended."""
        self._task.cancel()
        for worker in self.workers:
            await worker.stop()


async def load(toy: Installation, rate: float, stop: asyncio.Event) -> int:
    producer = AIOKafkaProducer(bootstrap_servers=toy.broker, enable_idempotence=True)
    await producer.start()
    number, began, random_ = 0, time.monotonic(), random.Random(7)
    try:
        while not stop.is_set():
            while number < (time.monotonic() - began) * rate:
                key = b"k-%03d" % random_.randrange(200)
                await producer.send(toy.topics.work, encode(Command(id=number)), key=key)
                number += 1
            await asyncio.sleep(0.005)
        await producer.flush()
    finally:
        await producer.stop()
    return number


async def inflict(toy: Installation, worker: Process, fault: str) -> None:
    match fault:
        case "kill":
            worker.send(signal.SIGKILL)
        case "term":
            worker.send(signal.SIGTERM)
        case _:
            worker.send(signal.SIGSTOP)
            await toy.progress(50)  # of both partitions: somebody has taken its own over
            worker.send(signal.SIGCONT)


@pytest.mark.faults
async def test_commands_are_folded_exactly_under_kills_stops_and_rolls(toy: Installation) -> None:
    async with Supervised(toy) as supervised:
        for worker in tuple(supervised.workers):
            await worker.said("tables:ready")
        stop, random_ = asyncio.Event(), random.Random(3)
        sending = asyncio.create_task(load(toy, 250, stop))
        for number, fault in enumerate(
            ["kill", "stop", "term", "stop", "kill", "term", "kill", "stop"]
        ):
            await toy.progress(random_.randrange(10, 400))
            await inflict(toy, supervised.workers[number % 2], fault)
        stop.set()
        sent = await sending
        await toy.wait_for(toy.topics.events, 2 * sent, 90)
    assert await violations(toy.broker, toy.prefix) == []
    assert supervised.exits.count(-signal.SIGKILL) == 3
    assert set(supervised.exits) <= {0, 70, -signal.SIGKILL}
    print(f"{sent} commands, {sent} follow-ups, exits {supervised.exits}")


@pytest.mark.faults
async def test_nothing_is_lost_or_doubled_when_kafka_dies_and_comes_back(
    toy: Installation, stack: LocalStack
) -> None:
    async with Supervised(toy) as supervised:
        for worker in tuple(supervised.workers):
            await worker.said("tables:ready")
        stop = asyncio.Event()
        sending = asyncio.create_task(load(toy, 100, stop))
        await toy.events(400)
        await asyncio.to_thread(stack.kill, "kafka")
        await asyncio.to_thread(stack.restart, "kafka")
        at_least = len(await toy.wait_for(toy.topics.events, 401, 90)) + 400
        await toy.events(at_least, 90)
        stop.set()
        sent = await sending
        await toy.wait_for(toy.topics.events, 2 * sent, 90)
    assert await violations(toy.broker, toy.prefix) == []
    assert set(supervised.exits) <= {70}


async def zombie(toy: Installation, *, fence: bool) -> Process:
    """A worker that slept through the takeover while its commit was still to come."""
    gate = toy.folder / "gate"
    sleeper = await toy.started(gate=str(gate), fence=fence)
    gate.with_suffix(".armed").touch()
    await toy.append([("k", Command(n)) for n in range(20)])
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not gate.with_suffix(".held").exists():
            await asyncio.sleep(0.02)
    sleeper.send(signal.SIGSTOP)
    await toy.started(fence=fence)  # takes over when the session is over
    await toy.events(20)
    gate.with_suffix(".armed").unlink()
    sleeper.send(signal.SIGCONT)
    return sleeper


async def test_a_former_owner_that_wakes_up_cannot_write(toy: Installation) -> None:
    sleeper = await zombie(toy, fence=True)
    assert await sleeper.ended() == 70
    await toy.append([("k", Command(n)) for n in range(20, 40)])
    await toy.events(40)
    assert await violations(toy.broker, toy.prefix) == []


async def test_the_proof_turns_red_without_the_fence(toy: Installation) -> None:
    await zombie(toy, fence=False)
    found = await _seen_red(toy)
    assert any("doubled" in line for line in found), found


async def _seen_red(toy: Installation) -> list[str]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await violations(toy.broker, toy.prefix)):
            await asyncio.sleep(0.2)
    return found
