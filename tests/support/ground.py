"""Empty topics on the shared broker, and processes of ours on them, for one test.

A process dies with the test: it is started with a pipe to us and killed by its own pid at the end.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx
from aiokafka.admin import AIOKafkaAdminClient

from cutlog.stack import LocalStack
from schema.codec import CODECS, encode
from schema.commands import Command, PublishPolicy, SubmitTask
from schema.policy import Policy
from schema.routes import Route, Routed, route, route_submission
from schema.settings import Kafka, load, need
from schema.topics import SPECS, Topic
from schema.wires.log import LogReader, LogWriter, Place, create_topics
from schema.words import Lane

_ROOT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 60
"""A machine with other work to do is slow; what hangs is caught all the same."""
MessageT = TypeVar("MessageT")


class Process:
    """One process of ours, its log in a file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, ready_file: Path) -> None:
        self.process = process
        self.log = log
        self._ready_file = ready_file

    @property
    def pid(self) -> int:
        return self.process.pid

    async def url(self) -> str:
        """Its address, as soon as it listens: it takes any free port, and writes down which."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not self._ready_file.exists():
                assert self.process.returncode is None, self.log.read_text()[-3_000:]
                await asyncio.sleep(0.02)
        return f"http://127.0.0.1:{json.loads(self._ready_file.read_bytes())['metrics_port']}"

    def send(self, number: int) -> None:
        """A signal, if it still runs."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def ready(self) -> None:
        """Until /readyz says so."""
        url = await self.url()
        async with asyncio.timeout(_PATIENCE_SECONDS), httpx.AsyncClient() as client:
            while True:
                assert self.process.returncode is None, self.log.read_text()[-3_000:]
                with suppress(httpx.HTTPError):
                    if (await client.get(f"{url}/readyz")).is_success:
                        return
                await asyncio.sleep(0.05)

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait; its exit code."""
        self.send(number)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await self.process.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self.process.wait()
            raise


class Ground:
    """A log of its own for one test, and whoever works on it."""

    def __init__(self, environ: dict[str, str], directory: Path) -> None:
        self.directory = directory
        self.environ = environ | {"CUTLOG_KAFKA_PARTITIONS": "2"}
        self.kafka: Kafka = need(load(self.environ), "kafka")
        self.app_id = f"cutlog-{uuid4().hex[:12]}"
        self._processes: list[Process] = []
        self._writer = LogWriter(self.kafka)

    async def open(self) -> None:
        await _fresh_topics(self.kafka, f"{self.app_id}-state-changelog")
        await self._writer.start()

    async def close(self) -> None:
        for process in self._processes:
            if process.process.returncode is None:
                process.send(signal.SIGKILL)
                await process.process.wait()
        await self._writer.stop()
        await _delete(self.kafka, {f"{self.app_id}-state-changelog"})

    # --- processes -------------------------------------------------------------------------------

    async def start(self, module: str, name: str, **environ: str) -> Process:
        """`python -m module`."""
        log, ready = self.directory / f"{name}.log", self.directory / f"{name}.ready"
        ready.unlink(missing_ok=True)  # of the one that had this name before
        settings = self.environ | {"CUTLOG_PROCESS_READY_FILE": str(ready)} | environ
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module),
                cwd=_ROOT,
                env={**os.environ, **settings},
                stdout=output,
                stderr=output,
            )
        started = Process(process, log, ready)
        self._processes.append(started)
        return started

    async def processor(self, policy_file: Path | None = None, name: str = "processor") -> Process:
        """A processor; alone, it owns all partitions."""
        more = {} if policy_file is None else {"CUTLOG_PROCESSORS_POLICY_FILE": str(policy_file)}
        return await self.start(
            "processors",
            name,
            CUTLOG_PROCESSORS_APP_ID=self.app_id,
            CUTLOG_PROCESSORS_INSTANCE_ID=f"{self.app_id}-{name}",
            CUTLOG_PROCESSORS_DATA_DIRECTORY=str(self.directory / name),
            **more,
        )

    async def runner(self, name: str, *, slots: int = 1, drain_seconds: float = 5) -> Process:
        """A runner of the rehearsal pool."""
        return await self.start(
            "gpu_runners",
            name,
            CUTLOG_RUNNER_RUNNER_ID=name,
            CUTLOG_RUNNER_POOL_ID="R",
            CUTLOG_RUNNER_SLOTS=str(slots),
            CUTLOG_RUNNER_DRAIN_SECONDS=str(drain_seconds),
            CUTLOG_RUNNER_WORK_DIRECTORY=str(self.directory / f"scratch-{name}"),
        )

    # --- the log ---------------------------------------------------------------------------------

    async def ask(self, command: Command, lane: Lane = Lane.P1) -> None:
        if isinstance(command, SubmitTask):
            place = route_submission(command, lane, self.kafka.partitions)
        else:
            routed: Routed = command  # type: ignore[assignment]
            place = route(routed, self.kafka.partitions)
        await self.put(place, encode(command))

    async def put(self, place: Route, value: bytes) -> None:
        await self._writer.append(place, value)

    async def publish(self, policy: Policy) -> None:
        """To every partition that wants it."""
        for topic in (Topic.QUOTA_COMMANDS, Topic.POOL_COMMANDS):
            for number in range(self.kafka.partitions):
                command = PublishPolicy(command_id=f"publish-{number}", policy=policy)  # type: ignore[arg-type]
                await self.put(Route(topic, number, "policy"), encode(command))

    async def all(self, topic: Topic) -> list[Any]:
        """Every committed message that stands in a topic now."""
        places = [Place(topic.value, number) for number in range(self.kafka.partitions)]
        found: list[Any] = []
        async with LogReader(self.kafka, places, wait_ms=50) as reader:
            ends = await reader.ends()
            await reader.seek_to_beginning()
            while any(reader.positions[place] < end for place, end in ends.items()):
                for batch in await reader.read(0.2):
                    found += [
                        CODECS[topic].decode(record.value or b"")
                        for record in batch.records
                        if record.key != b"\x00tick"
                    ]
        return found

    async def wait(
        self,
        topic: Topic,
        kind: type[MessageT],
        wanted: Callable[[MessageT], bool] = lambda _: True,
        seconds: float = _PATIENCE_SECONDS,
    ) -> MessageT:
        """The first committed message of this kind that is wanted, as soon as it is there."""
        places = [Place(topic.value, number) for number in range(self.kafka.partitions)]
        async with LogReader(self.kafka, places, wait_ms=50) as reader, asyncio.timeout(seconds):
            await reader.seek_to_beginning()
            while True:
                for batch in await reader.read():
                    for record in batch.records:
                        if record.key == b"\x00tick":
                            continue
                        message = CODECS[topic].decode(record.value or b"")
                        if isinstance(message, kind) and wanted(message):
                            return message


@asynccontextmanager
async def ground_on(stack: LocalStack, directory: Path) -> AsyncGenerator[Ground]:
    """Empty topics; whatever was started on them is ended."""
    ground = Ground(stack.environ(), directory)
    await ground.open()
    try:
        yield ground
    finally:
        await ground.close()


async def _fresh_topics(kafka: Kafka, changelog: str) -> None:
    """Delete every topic of the contract and make it anew, so that it begins at 0."""
    await _delete(kafka, {topic.value for topic in SPECS})
    await create_topics(kafka, changelogs=[changelog])


async def _delete(kafka: Kafka, names: set[str]) -> None:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=kafka.brokers)
    await admin.start()
    try:
        there = names.intersection(await admin.list_topics())
        if there:
            await admin.delete_topics(list(there))
            while names.intersection(await admin.list_topics()):  # noqa: ASYNC110 - Kafka's
                await asyncio.sleep(0.02)
    finally:
        await admin.close()
