"""A runner whose object store is away: its slots work on, and what it made is stored later."""

import asyncio
import hashlib
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
import pytest

from cutlog.installation import LOCAL_POLICY
from cutlog.stack import LocalStack
from gpu_runners.objects import AttemptStore
from gpu_runners.storing import StoreError
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import TaskId
from schema.settings import Objects, load, need
from schema.topics import Topic
from schema.wires.objects import ObjectStore
from schema.words import LossCause
from tests.gpu_runners.test_runner import LEASE_SECONDS, held_beat, submit
from tests.support.bad_stores import BadStore, Manner
from tests.support.ground import Ground, ground_on

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SHORT: dict[str, Any] = {"seconds": 0.2, "steps": 2, "reports": 2}
NOBODY = "http://127.0.0.1:9"


class Gate:
    """A way to the store that can be shut: then it takes nobody, and cuts those there are."""

    def __init__(self, endpoint: str) -> None:
        place = urlsplit(endpoint)
        self._to = (place.hostname or "", place.port or 0)
        self._lines: set[asyncio.StreamWriter] = set()
        self.is_open = True
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.shut()

    def shut(self) -> None:
        self.is_open = False
        for line in self._lines:
            line.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._to)
        self._lines |= {writer, far_writer}
        try:
            await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))
        finally:
            self._lines -= {writer, far_writer}


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def gate(stack: LocalStack) -> AsyncIterator[Gate]:
    async with Gate(stack.environ()["CUTLOG_OBJECTS_ENDPOINT"]) as found:
        yield found


@pytest.fixture
async def ground(stack: LocalStack, gate: Gate, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground_on(stack, tmp_path) as found:
        found.environ["CUTLOG_OBJECTS_ENDPOINT"] = gate.url
        yield found


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The local one, with a short lease."""
    document = json.loads(LOCAL_POLICY.read_bytes())
    document["pools"]["R"] |= {"lease_seconds": LEASE_SECONDS, "beat_seconds": 1}
    document["retries"] |= {"loss_delay_ms": 200}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))
    return path


def _of(task_id: TaskId) -> Callable[[Any], bool]:
    return lambda one: bool(one.task_id == task_id)


async def order(ground: Ground, task_id: str) -> list[str]:
    """What happened to a task and to its slot: each in its own order."""
    found = await ground.all(Topic.TASK_EVENTS) + await ground.all(Topic.POOL_EVENTS)
    return [type(one).__name__ for one in found if getattr(one, "task_id", None) == task_id]


async def test_its_slot_has_other_work_while_a_result_waits_for_the_store(
    ground: Ground, gate: Gate, policy: Path
) -> None:
    await (await ground.processor(policy)).ready()
    runner = await ground.runner("gpu-1")
    await runner.ready()
    gate.shut()
    first = await submit(ground, "first", SHORT)
    await ground.wait(Topic.POOL_EVENTS, e.SlotFreed, _of(first))
    second = await submit(ground, "second", SHORT | {"no_op": False, "seconds": 0.3})
    await ground.wait(Topic.TASK_EVENTS, e.TaskStoring, _of(second))
    beat = await ground.wait(
        Topic.POOL_COMMANDS,
        c.BeatRunner,
        lambda one: {held.task_id for held in one.held} == {first, second},
    )
    assert beat.runner_id == "gpu-1"
    assert "TaskSucceeded" not in await order(ground, first)
    gate.is_open = True
    for task in (first, second):
        done = await ground.wait(Topic.TASK_EVENTS, e.TaskSucceeded, _of(task))
        assert done.token == 1
        await ground.wait(Topic.POOL_EVENTS, e.AttemptOver, _of(task))
        told = await order(ground, task)
        assert told.index("SlotFreed") < told.index("AttemptOver")
        assert "SlotLost" not in told
    assert await runner.end() == 0


async def test_a_runner_that_drains_waits_for_what_it_stores(
    ground: Ground, gate: Gate, policy: Path
) -> None:
    await (await ground.processor(policy)).ready()
    runner = await ground.runner("gpu-1", drain_seconds=0.1)
    await runner.ready()
    gate.shut()
    task = await submit(ground, "one", SHORT)
    await ground.wait(Topic.POOL_EVENTS, e.SlotFreed)
    runner.send(signal.SIGTERM)
    await ground.wait(Topic.POOL_EVENTS, e.RunnerDraining)
    await held_beat(ground, task)
    gate.is_open = True
    done = await ground.wait(Topic.TASK_EVENTS, e.TaskSucceeded)
    assert (done.task_id, done.token) == (task, 1)
    await ground.wait(Topic.POOL_EVENTS, e.RunnerGone)
    pool = [type(one).__name__ for one in await ground.all(Topic.POOL_EVENTS)]
    assert pool.index("AttemptOver") < pool.index("RunnerGone")
    async with asyncio.timeout(60):
        assert await runner.process.wait() == 0


async def test_a_runner_that_dies_while_it_stores_has_its_work_done_again(
    ground: Ground, gate: Gate, policy: Path
) -> None:
    await (await ground.processor(policy)).ready()
    runner = await ground.runner("gpu-1")
    await runner.ready()
    gate.shut()
    task = await submit(ground, "one", SHORT)
    await ground.wait(Topic.POOL_EVENTS, e.SlotFreed)
    await runner.end(signal.SIGKILL)
    requeued = await ground.wait(Topic.TASK_EVENTS, e.TaskRequeued)
    assert (requeued.task_id, requeued.loss) == (task, LossCause.LEASE_EXPIRED)
    assert requeued.counted is False
    gate.is_open = True
    await (await ground.runner("gpu-2")).ready()
    done = await ground.wait(Topic.TASK_EVENTS, e.TaskSucceeded)
    (file,) = done.files
    assert (done.token, file.object_key.split("/")[2]) == (2, "2")


async def test_what_one_endpoint_does_not_take_goes_over_the_other(
    ground: Ground, gate: Gate, policy: Path
) -> None:
    ground.environ["CUTLOG_OBJECTS_ENDPOINT"] = NOBODY
    ground.environ["CUTLOG_OBJECTS_FALLBACK_ENDPOINT"] = gate.url
    await (await ground.processor(policy)).ready()
    runner = await ground.runner("gpu-1")
    await runner.ready()
    await submit(ground, "one", SHORT)
    done = await ground.wait(Topic.TASK_EVENTS, e.TaskSucceeded)
    (file,) = done.files
    objects: Objects = need(load(ground.environ), "objects")
    async with ObjectStore(msgspec.structs.replace(objects, endpoint=gate.url)) as store:
        kept = await store.head(file.object_key)
    assert kept is not None
    assert (kept.size, kept.sha256) == (file.size, file.sha256)
    await runner.end(signal.SIGKILL)


async def test_what_a_silent_endpoint_never_takes_goes_over_the_other(
    ground: Ground, gate: Gate, policy: Path
) -> None:
    async with BadStore(Manner.NEVER_ACCEPTS) as silent:
        ground.environ["CUTLOG_OBJECTS_ENDPOINT"] = silent.url
        ground.environ["CUTLOG_OBJECTS_FALLBACK_ENDPOINT"] = gate.url
        await (await ground.processor(policy)).ready()
        runner = await ground.runner("gpu-1")
        await runner.ready()
        await submit(ground, "one", SHORT)
        done = await ground.wait(Topic.TASK_EVENTS, e.TaskSucceeded)
        assert (done.token, len(done.files)) == (1, 1)
        await runner.end(signal.SIGKILL)


async def test_what_no_endpoint_takes_fails_in_its_time_with_a_refund_and_is_not_made_again(
    ground: Ground, policy: Path
) -> None:
    async with BadStore(Manner.CONTINUES) as silent:
        ground.environ["CUTLOG_OBJECTS_ENDPOINT"] = silent.url
        ground.environ["CUTLOG_RUNNER_STORING_SECONDS"] = "2"
        await (await ground.processor(policy)).ready()
        runner = await ground.runner("gpu-1")
        await runner.ready()
        task = await submit(ground, "one", SHORT)
        failed = await ground.wait(Topic.TASK_EVENTS, e.TaskFailed, _of(task))
        assert (failed.token, failed.failure, failed.loss) == (1, FailureClass.STORE, None)
        refund = await ground.wait(Topic.QUOTA_EVENTS, e.QuotaReleased)
        assert refund.task_id == task
        assert "TaskRequeued" not in await order(ground, task)
        assert await runner.end() == 0


class Forgetful(ObjectStore):
    """A store that shows something else than was written."""

    asked = 0

    async def put_file(self, key: str, path: Path, *, content_type: str) -> Any:  # noqa: ANN401
        self.asked += 1
        written = await super().put_file(key, path, content_type=content_type)
        await self.put(key, b"another film", content_type=content_type)
        return written


async def test_what_the_store_shows_otherwise_than_it_was_written_is_not_stored(
    stack: LocalStack, tmp_path: Path
) -> None:
    objects: Objects = need(load(stack.environ()), "objects")
    path = tmp_path / "film"
    path.write_bytes(b"of one size.")
    async with Forgetful(objects) as forgetful, ObjectStore(objects) as good:
        await good.ensure_bucket()
        with pytest.raises(StoreError, match="does not show it whole"):
            await AttemptStore(forgetful).keep("results/t/1/a", path, "video/mp4")
        store = AttemptStore(forgetful, good)
        kept = await store.keep("results/t/1/a", path, "video/mp4")
        assert kept.sha256 == hashlib.sha256(b"of one size.").hexdigest()
        assert await good.get("results/t/1/a") == b"of one size."
        await store.keep("results/t/1/b", path, "video/mp4")
        assert forgetful.asked == 2  # who failed is asked last from then on
