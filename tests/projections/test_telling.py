"""What watchers are told: stored events each once and in order, progress once a second."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from projections.notices import CHANNEL
from projections.progress import KEY, PUSH_SECONDS, Pending
from schema.codec import PROGRESS, encode
from schema.ids import TaskId, UserId
from schema.progress import ProgressReported, merge
from schema.routes import Route
from schema.topics import Topic
from schema.wires.log import LogWriter
from tests.projections.checking import projecting
from tests.projections.conftest import Ground
from tests.projections.histories import NOON, History

Untyped = Any
"""A client that types its answers loosely."""
USER = UserId("0123456789abcdefghjk000004")


def report(task: str, percent: float, **fields: Any) -> ProgressReported:  # noqa: ANN401
    at = NOON + timedelta(seconds=percent)
    known: dict[str, Any] = {
        "task_id": TaskId(task),
        "user_id": USER,
        "token": 1,
        "at": at,
        "percent": percent,
    }
    return ProgressReported(**{**known, **fields})


def test_a_user_is_pushed_to_once_a_second_with_what_came_since() -> None:
    now = [100.0]
    pending = Pending(lambda: now[0])
    chance, pushes = random.Random(1), list[tuple[float, list[float]]]()
    for step in range(100):
        now[0] += 0.05
        pending.add(report("t1", chance.uniform(0, step)))
        for reports in pending.due().values():
            pushes.append((now[0], [one.percent for one in reports]))
    assert len(pushes) == 5
    assert all(b[0] - a[0] >= PUSH_SECONDS for a, b in pairwise(pushes))


def test_reports_of_several_tasks_go_in_one_push_and_the_later_one_wins() -> None:
    now = [100.0]
    pending = Pending(lambda: now[0])
    pending.add(report("t1", 10))
    assert [one.percent for one in pending.due()[USER]] == [10]
    for one in (report("t1", 40), report("t1", 20), report("t2", 5), report("t2", 1, ended=True)):
        pending.add(one)
    assert pending.due() == {}
    now[0] += PUSH_SECONDS
    assert pending.due() == {
        USER: [merge(report("t1", 20), report("t1", 40)), report("t2", 1, ended=True)]
    }
    now[0] += PUSH_SECONDS
    assert pending.due() == {}


@pytest.fixture
async def redis(ground: Ground) -> AsyncIterator[Any]:
    client = Redis.from_url(ground.environ["CUTLOG_REDIS_URL"])
    yield client
    await client.aclose()


async def _next(listening: Untyped, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            message = await listening.get_message(ignore_subscribe_messages=True, timeout=1)
            if message is not None:
                told: dict[str, Any] = json.loads(message["data"])
                if told["kind"] == kind:
                    return told


@pytest.mark.integration
async def test_stored_events_are_told_in_order_with_ids_and_nobody_else_hears_them(
    ground: Ground, redis: Untyped
) -> None:
    history = History(21, users=3)
    user = history.users[0]
    async with projecting(ground):
        listening = redis.pubsub()
        await listening.subscribe(CHANNEL + user)
        await ground.write(history.take(30), batch=7)
        await ground.applied()
        stored = await ground.rows(
            "SELECT log_partition, log_offset, body::text AS body FROM task_events "
            "WHERE user_id = $1 ORDER BY log_offset",
            user,
        )
        log = await ground.rows("SELECT epoch FROM projection_log")
        told: list[dict[str, Any]] = []
        while len(told) < len(stored):
            told += (await _next(listening, "events"))["events"]
        await listening.aclose()
    epoch = log[0]["epoch"]
    assert [one["id"] for one in told] == [
        f"{epoch}:{row['log_partition']}:{row['log_offset']}" for row in stored
    ]
    assert [one["event"] for one in told] == [json.loads(row["body"]) for row in stored]


@pytest.mark.integration
async def test_a_new_projector_tells_watchers_to_read_again(ground: Ground, redis: Untyped) -> None:
    listening = redis.pubsub()
    await listening.subscribe(f"{CHANNEL}{USER}")
    async with projecting(ground):
        assert await _next(listening, "again") == {"kind": "again"}
    await listening.aclose()


@pytest.mark.integration
async def test_progress_is_kept_for_ten_seconds_and_pushed_merged(
    ground: Ground, redis: Untyped
) -> None:
    task = f"t-{uuid4().hex}"
    listening = redis.pubsub()
    await listening.subscribe(f"{CHANNEL}{USER}")
    async with projecting(ground), LogWriter(ground.kafka) as writer:
        await _next(listening, "again")
        route = Route(Topic.PROGRESS, 0, task)
        await ground.applied()
        seen: list[float] = []
        percent = 0.0
        while not seen or seen[-1] < 5:
            percent += 1
            reports = [report(task, percent), report(task, percent - 1)]
            await asyncio.gather(*(writer.append(route, encode(one)) for one in reports))
            told = await _next(listening, "progress")
            seen += [one["percent"] for one in told["reports"]]
        kept = PROGRESS.decode(await redis.get(KEY + task))
        assert kept.percent == seen[-1]
        assert 0 < await redis.ttl(KEY + task) <= 10
    assert seen == sorted(seen)
    await listening.aclose()
