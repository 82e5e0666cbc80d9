"""The toy on a real Kafka: its topics, its worker processes, and everything that is committed."""

# Other processes, files and Kafka have no asyncio.Event: they are asked again and again.
# ruff: noqa: ANN401, ASYNC110

import asyncio
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.processors.engine import kafka
from tests.processors.engine.toy import Command, Event, Topics, decode_event, encode

PARTITIONS = 2
PATIENCE_SECONDS = 90
"""A machine with other work to do is slow; what hangs is caught all the same."""
ROOT = Path(__file__).parents[3]


class Process:
    """One worker process; its log stands in a file."""

    def __init__(self, log: Path, options: dict[str, Any]) -> None:
        self.log = log
        with log.open("ab") as stream:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tests.processors.engine.worker", json.dumps(options)],
                stdout=stream,
                stderr=stream,
                cwd=ROOT,
            )

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def count(self, words: str) -> int:
        """How often it has said this."""
        return self.log.read_text(errors="replace").count(words)

    async def said(self, words: str, seconds: float = PATIENCE_SECONDS) -> None:
        async with asyncio.timeout(seconds):
            while not self.count(words):
                if not self.alive:
                    raise AssertionError(f"{words!r} was never said:\n{self.tail()}")
                await asyncio.sleep(0.02)

    async def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code."""
        async with asyncio.timeout(seconds):
            while (code := self._popen.poll()) is None:
                await asyncio.sleep(0.02)
        return code

    async def stop(self) -> int:
        if self.alive:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
        return await self.ended()

    def kill(self) -> None:
        if self.alive:
            self._popen.kill()
        self._popen.wait()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:]


class Installation:
    """Topics of its own on the shared broker; every process that it started ends with it."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.prefix = f"toy-{uuid.uuid4().hex[:10]}"
        self.topics = Topics(self.prefix)
        self.processes: list[Process] = []

    async def create(self) -> None:
        await kafka.create_toy_topics(self.broker, self.topics, PARTITIONS)

    def start(self, **options: Any) -> Process:
        given = {
            "prefix": self.prefix,
            "broker": self.broker,
            "data": str(self.folder / "data"),
            **options,
        }
        process = Process(self.folder / f"worker-{len(self.processes)}.log", given)
        self.processes.append(process)
        return process

    async def started(self, **options: Any) -> Process:
        process = self.start(**options)
        await process.said("tables:ready")
        return process

    def close(self) -> None:
        for process in self.processes:
            process.kill()

    async def append(
        self, commands: Iterable[tuple[str, Command]], *, topic: str = "", partition: int | None = 0
    ) -> None:
        await kafka.append(
            self.broker,
            topic or self.topics.work,
            [(key.encode(), encode(command), partition) for key, command in commands],
        )

    async def read(self, topic: str) -> list[Any]:
        """Every committed record, partition after partition."""
        by_partition = await kafka.read(self.broker, topic, PARTITIONS)
        return [record for number in sorted(by_partition) for record in by_partition[number]]

    async def events(self, at_least: int, seconds: float = PATIENCE_SECONDS) -> list[Event]:
        """All events, as soon as there are so many."""
        return [
            decode_event(r.value)
            for r in await self.wait_for(self.topics.events, at_least, seconds)
        ]

    async def progress(self, by: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Until every partition of the events holds so much more than now."""
        before = await kafka.ends(self.broker, self.topics.events, PARTITIONS)
        async with asyncio.timeout(seconds):
            while True:
                now = await kafka.ends(self.broker, self.topics.events, PARTITIONS)
                if all(b >= a + by for a, b in zip(before, now, strict=True)):
                    return
                await asyncio.sleep(0.05)

    async def wait_for(
        self, topic: str, at_least: int, seconds: float = PATIENCE_SECONDS
    ) -> list[Any]:
        async with asyncio.timeout(seconds):
            while True:
                found = await self.read(topic)
                if len(found) >= at_least:
                    return found
                dead = [p for p in self.processes if not p.alive]
                if self.processes and len(dead) == len(self.processes):
                    raise AssertionError(f"no worker left:\n{dead[-1].tail()}")
                await asyncio.sleep(0.05)
