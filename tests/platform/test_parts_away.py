"""A part of the stack is away: what is refused, what goes on, and that nothing is half done."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

import httpx
import pytest

from cutlog.stack.stack import PartName
from schema import events as e
from schema.codec import TASK_EVENTS
from schema.settings import load, need
from schema.topics import Topic
from schema.wires.log import LogReader, Place
from tests.platform.installed import Platform
from tests.platform.people import Person, Watcher, eventually, refused, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PATIENCE_SECONDS = 90


@contextmanager
def away(platform: Platform, part: PartName) -> Generator[None]:
    """The part is killed inside the block and back after it, with everything ready again."""
    platform.kill(part)
    try:
        yield
    finally:
        platform.restore()


def unavailable(answer: httpx.Response) -> str:
    """The code of a 503 that says when to come back, and came while the part is still away.

    The client waits for many times what the api may.
    """
    assert answer.status_code == 503, f"{answer.status_code} {answer.text}"
    code: str = answer.json()["code"]
    refused(answer, 503, code)
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    return code


async def await_success(platform: Platform, task_id: str) -> None:
    """Until the log says so."""
    kafka = need(load(platform.installation.environ()), "kafka")
    places = [Place(Topic.TASK_EVENTS.value, number) for number in range(kafka.partitions)]
    async with LogReader(kafka, places) as reader, asyncio.timeout(PATIENCE_SECONDS):
        await reader.seek_to_beginning()
        while True:
            for batch in await reader.read():
                for record in batch.records:
                    event = TASK_EVENTS.decode(record.value or b"")
                    if isinstance(event, e.TaskSucceeded) and event.task_id == task_id:
                        return


def await_not_ready(platform: Platform) -> None:
    """Until the api says that it would take nothing, so that nobody is sent to it."""
    answer = eventually(
        lambda: httpx.get(f"{platform.url}/readyz", timeout=10),
        lambda answer: answer.status_code == 503,
    )
    assert answer.json()["reason"]


def test_without_kafka_nothing_is_half_done_and_work_goes_on_afterwards(
    platform: Platform,
) -> None:
    with platform.person() as ann:
        before = ann.await_end(ann.submitted({"seconds": 0.1})["task_id"])
        running = ann.submitted({"seconds": 3, "steps": 30})["task_id"]
        ann.await_event(running, "task.started.v1")
        watcher = Watcher(ann, f"/v1/tasks/{running}/events")
        keys = [uuid4().hex for _ in range(3)]
        with away(platform, "kafka"):
            for key in keys:
                assert unavailable(ann.submit(key=key)) in {"log_away", "backlog"}
            unavailable(ann.cancel(running))
            await_not_ready(platform)
            # What is known is still told.
            assert ann.task(before["task_id"])["status"] == "SUCCEEDED"
            told(ann.http.get("/v1/quotas"), 200)
            told(ann.http.get(f"/v1/tasks/{before['task_id']}/result"), 200)
        # The same keys again: each is one task, whatever became of the first time.
        for key in keys:
            answer = eventually(
                partial(ann.submit, key=key), lambda found: found.status_code == 202
            )
            task_id = answer.json()["task_id"]
            assert ann.await_end(task_id)["status"] == "SUCCEEDED"
            assert ann.submitted(key=key)["task_id"] == task_id
            events = [event["event"] for event in ann.events(task_id)]
            assert events.count("task.created.v1") == 1
        # What ran was not canceled by a request that was refused (unless its append got through),
        # and burnt no retry by the outage.
        task = ann.await_end(running)
        assert task["status"] in {"SUCCEEDED", "CANCELED"}
        assert task["retries"] == 0
        heard = [event.data["seq"] for event in watcher.result()]
        assert heard == list(range(1, len(heard) + 1))
        assert ann.await_resolved()["day"]["used"] == len(keys) + 2


def test_without_postgres_work_goes_on_and_the_read_model_catches_up(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 3})["task_id"]
        ann.await_event(task_id, "task.started.v1")
        watcher = Watcher(ann, f"/v1/tasks/{task_id}/events")
        key = uuid4().hex
        with away(platform, "postgres"):
            assert unavailable(ann.submit(key=key)) == "read_model_away"
            assert unavailable(ann.http.get(f"/v1/tasks/{task_id}")) == "read_model_away"
            await_not_ready(platform)
            asyncio.run(await_success(platform, task_id))  # in the log, while it is still away
        assert ann.await_end(task_id)["status"] == "SUCCEEDED"
        heard = [event.data["seq"] for event in watcher.result()]
        assert heard == list(range(1, len(heard) + 1))
        again = eventually(partial(ann.submit, key=key), lambda found: found.status_code == 202)
        ann.await_end(again.json()["task_id"])
        assert ann.await_resolved()["day"]["used"] == 2


def test_without_valkey_quota_is_right_and_streams_go_on(platform: Platform) -> None:
    with platform.person(tier="few") as ann:
        with away(platform, "valkey"):
            task_id = ann.submitted({"seconds": 1.5})["task_id"]
            heard = [event for event in ann.heard(f"/v1/tasks/{task_id}/events") if event.id]
            assert [event.data["seq"] for event in heard] == list(range(1, len(heard) + 1))
            assert heard[-1].name == "task.succeeded.v1"
            ann.submitted()
            refused(ann.submit(), 429, "day_exhausted")
            assert ann.wait(task_id)["ended"]
        assert ann.await_resolved()["day"]["used"] == 2
    with platform.person() as bob:  # and what is live is live again

        def names() -> set[str]:
            task_id = bob.submitted({"seconds": 2, "steps": 20})["task_id"]
            return {event.name for event in bob.heard(f"/v1/tasks/{task_id}/events")}

        eventually(names, lambda found: {"progress", "task.succeeded.v1"} <= found)


def stored_at(person: Person, task_id: str) -> list[str]:
    return [event["event"] for event in person.events(task_id)]


def test_without_the_object_store_a_result_is_stored_later(platform: Platform) -> None:
    with platform.person() as ann:
        task_id = ann.submitted({"seconds": 8})["task_id"]
        ann.await_event(task_id, "task.started.v1")
        with away(platform, "s3"):
            # The work is done, and the result has nowhere to go.
            ann.await_event(task_id, "task.storing.v1")
            shown = ann.task(task_id)
            assert (shown["status"], shown["storing"]) == ("RUNNING", True)
            answer = told(ann.http.get(f"/v1/tasks/{task_id}/wait"), 200)
            assert not answer["ended"]
        task = ann.await_end(task_id)
        assert (task["status"], task["token"], task["retries"]) == ("SUCCEEDED", 1, 0)
        assert stored_at(ann, task_id).count("task.succeeded.v1") == 1
        (file,) = told(ann.http.get(f"/v1/tasks/{task_id}/result"), 200)["files"]
        assert httpx.get(file["url"]).json()["task_id"] == task_id
