"""The single measurements; every figure is taken from outside, from what is committed in Kafka."""

# Other processes, files and Kafka have no asyncio.Event: they are asked again and again.
# ruff: noqa: ANN401, ASYNC110

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from schema.topics import SPECS, Topic
from tests.benchmarks.engine import job, task_job
from tests.processors.engine.kafka import APPEND_TIME, create_topics

PARTITIONS = 2
MODULES = {
    "engine": "tests.benchmarks.engine.engine_worker",
    "stock": "tests.benchmarks.engine.stock_worker",
    "tasks": "tests.benchmarks.engine.task_worker",
}


class Drained(NamedTuple):
    prefix: str
    per_second: float
    cpu_us: float


class Worker:
    """A worker process and its log."""

    def __init__(self, kind: str, prefix: str, broker: str, folder: Path, **more: Any) -> None:
        self.log = folder / f"{prefix}-{random.randrange(1 << 30)}.log"
        options = json.dumps({"prefix": prefix, "broker": broker, "data": str(folder), **more})
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", MODULES[kind], options], stdout=log, stderr=log
            )

    def cpu(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def lines(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    async def said(self, message: str, seconds: float = 60) -> dict[str, Any]:
        """The first log line with this message."""
        async with asyncio.timeout(seconds):
            while True:
                for line in self.lines():
                    if line.get("message") == message:
                        return line
                if self.process.poll() is not None:
                    raise RuntimeError(self.tail())
                await asyncio.sleep(0.05)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:]

    async def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, 15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def make_topics(broker: str, prefix: str) -> None:
    compact = {"cleanup.policy": "compact"}
    names: dict[str, dict[str, str]] = {
        f"{prefix}-commands": dict(APPEND_TIME),
        f"{prefix}-events": {},
        f"{prefix}-journal": {},
        f"{prefix}-state": compact,
        f"{prefix}-state-changelog": compact,
    }
    await create_topics(broker, names, PARTITIONS)


def increments(count: int, keys: int) -> Iterator[task_job.Raw]:
    """Commands of the small job."""
    for number in range(count):
        name = job.key(number, keys)
        yield name, job.command(number), int(name[-6:]) % PARTITIONS


async def load(broker: str, topic: str, records: Iterable[task_job.Raw]) -> None:
    """Append records, in batches made by hand."""
    producer = AIOKafkaProducer(
        bootstrap_servers=broker, enable_idempotence=True, max_batch_size=900_000
    )
    await producer.start()
    try:
        rest = iter(records)
        while some := list(islice(rest, 1_000)):
            batches = {number: producer.create_batch() for _, _, number in some}
            for key, value, number in some:
                batches[number].append(key=key, value=value, timestamp=None)
            sent = [
                await producer.send_batch(batch, topic, partition=number)
                for number, batch in batches.items()
            ]
            await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def drain(broker: str, kind: str, count: int, keys: int) -> Drained:
    """Commands a second of one process from a full topic, and its CPU for each."""
    prefix = f"bench-{kind}-{random.randrange(1 << 30)}"
    await make_topics(broker, prefix)
    await load(broker, f"{prefix}-commands", increments(count, keys))
    extra: dict[str, Any] = {"ticked": False} if kind == "engine" else {}
    return await _drained(broker, kind, prefix, f"{prefix}-events", count, **extra)


async def drain_tasks(broker: str, tasks: int) -> Drained:
    """The same of the real task decider; it works on the topics of an installation.

    Raises RuntimeError on a broker that has one.
    """
    prefix = f"bench-tasks-{random.randrange(1 << 30)}"
    names: dict[str, dict[str, str]] = {
        topic: dict(APPEND_TIME) if spec.append_time else {} for topic, spec in SPECS.items()
    }
    names |= {f"{prefix}-journal": {}, f"{prefix}-state": {"cleanup.policy": "compact"}}
    await create_topics(broker, names, PARTITIONS)
    async with _committed(broker, Topic.TASK_COMMANDS) as committed:
        if await committed.count():
            raise RuntimeError("an installation uses this broker; its topics are left alone")
    for number in range(PARTITIONS):
        rows = task_job.adopted(number, PARTITIONS).items()
        await load(broker, f"{prefix}-state", ((key, row or b"", number) for key, row in rows))
    await load(broker, Topic.TASK_COMMANDS, task_job.commands(tasks, PARTITIONS))
    events = task_job.events_of_a_life(PARTITIONS)
    found = await _drained(broker, "tasks", prefix, Topic.TASK_EVENTS, tasks * events)
    share = task_job.COMMANDS_A_LIFE / events
    return Drained(prefix, found.per_second * share, found.cpu_us / share)


async def _drained(
    broker: str, kind: str, prefix: str, topic: str, count: int, **extra: Any
) -> Drained:
    """Records a second that come to `topic`, from the first to the last of `count`."""
    async with _committed(broker, topic) as committed:
        with tempfile.TemporaryDirectory() as folder:
            worker = Worker(kind, prefix, broker, Path(folder), **extra)
            try:
                first = await _until(committed, worker, 1)
                began, cpu = time.perf_counter(), worker.cpu()
                last = await _until(committed, worker, count)
                seconds, spent = time.perf_counter() - began, worker.cpu() - cpu
            finally:
                await worker.end()
    done = last - first
    return Drained(prefix, done / seconds, spent / done * 1e6)


async def recovery(broker: str, prefix: str) -> tuple[int, float]:
    """Records and seconds of reading the changelog that a drain has left."""
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker("engine", prefix, broker, Path(folder), ticked=False)
        try:
            line = await worker.said("assigned", 60)
        finally:
            await worker.end()
    return int(line["records"]), float(line["recovery_seconds"])


async def hop(broker: str, rate: float, seconds: float) -> tuple[float, float]:
    """P50 and P99 in ms from the send of a command to its committed event, at a steady rate."""
    prefix = f"bench-hop-{random.randrange(1 << 30)}"
    await make_topics(broker, prefix)
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker("engine", prefix, broker, Path(folder))
        try:
            await worker.said("ready")
            async with probe(broker, prefix, rate) as latencies:
                await asyncio.sleep(seconds)
        finally:
            await worker.end()
    warm = sorted(ms for at, ms in latencies if at > 3)
    return warm[len(warm) // 2], warm[int(len(warm) * 0.99)]


async def outages(broker: str) -> dict[str, float]:
    """Longest time a command waited when one of two workers is killed, or rolled by SIGTERM."""
    prefix = f"bench-out-{random.randrange(1 << 30)}"
    await make_topics(broker, prefix)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:

        def start(name: str, **more: Any) -> Worker:
            return Worker("engine", prefix, broker, Path(folder), instance=name, **more)

        workers = [start("a"), start("b")]
        try:
            for worker in workers:
                await worker.said("ready")
            async with probe(broker, prefix, 104) as latencies:
                await asyncio.sleep(4)
                latencies.clear()
                for place in (0, 1):  # rolling: each in turn leaves and comes again at once
                    await workers[place].end()
                    workers[place] = start("ab"[place])
                    await workers[place].said("ready")
                    await asyncio.sleep(3)
                found["rolling_sigterm_s"] = round(max(ms for _, ms in latencies) / 1000, 2)
                latencies.clear()
                workers[0].process.kill()  # nobody starts it again
                await asyncio.sleep(11)
                found["failover_kill_s"] = round(max(ms for _, ms in latencies) / 1000, 2)
                workers[0] = start("a")
                await workers[0].said("ready")
                await asyncio.sleep(3)
                latencies.clear()
                workers[1].process.kill()  # a supervisor starts it again under its name
                workers[1] = start("b")
                await workers[1].said("ready")
                await asyncio.sleep(3)
                found["restart_kill_s"] = round(max(ms for _, ms in latencies) / 1000, 2)
        finally:
            for worker in workers:
                await worker.end()
    return found


@asynccontextmanager
async def probe(broker: str, prefix: str, rate: float) -> AsyncGenerator[list[tuple[float, float]]]:
    """Sends commands at a rate and fills a list of (second, latency in ms) as events come back."""
    sent: dict[int, float] = {}
    latencies: list[tuple[float, float]] = []
    producer = AIOKafkaProducer(bootstrap_servers=broker, enable_idempotence=True)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker, isolation_level="read_committed", fetch_max_wait_ms=100
    )
    await producer.start()
    await consumer.start()
    places = [TopicPartition(f"{prefix}-events", n) for n in range(PARTITIONS)]
    consumer.assign(places)
    await consumer.seek_to_end(*places)
    began = time.perf_counter()

    async def receive() -> None:
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                now = time.perf_counter()
                for record in records:
                    at = sent.pop(job.decode_event(record.value or b"").cmd, None)
                    if at is not None:
                        latencies.append((at - began, (now - at) * 1000))

    async def send() -> None:
        number = 0
        while True:
            rest = began + number / rate - time.perf_counter()
            if rest > 0:
                await asyncio.sleep(rest)
            sent[number] = time.perf_counter()
            key = job.key(random.randrange(1 << 20), 500)
            await producer.send(f"{prefix}-commands", job.command(number), key=key)
            number += 1

    sender, receiver = asyncio.create_task(send()), asyncio.create_task(receive())
    try:
        yield latencies
        sender.cancel()
        async with asyncio.timeout(30):
            while sent:
                await asyncio.sleep(0.05)
    finally:
        for task in (sender, receiver):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await producer.stop()
        await consumer.stop()


class _Committed:
    """How many records a topic holds that are committed; control markers are not told apart."""

    def __init__(self, consumer: Any, places: list[Any]) -> None:
        self._consumer, self._places = consumer, places

    async def count(self) -> int:
        return sum((await self._consumer.end_offsets(self._places)).values())


@asynccontextmanager
async def _committed(broker: str, topic: str) -> AsyncGenerator[_Committed]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, isolation_level="read_committed")
    await consumer.start()
    try:
        places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        consumer.assign(places)
        yield _Committed(consumer, places)
    finally:
        await consumer.stop()


async def _until(committed: _Committed, worker: Worker, wanted: int) -> int:
    async with asyncio.timeout(120):
        while True:
            found = await committed.count()
            if found >= wanted:
                return found
            if worker.process.poll() is not None:
                raise RuntimeError(worker.tail())
            await asyncio.sleep(0.02)
