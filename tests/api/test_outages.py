"""Parts go away and come back: what the door says meanwhile, and that nothing is half-done."""

import asyncio
import signal
import time
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from schema.settings import load, need
from schema.topics import Topic
from schema.wires.log import LogReader, Place
from tests.api.system import PATIENCE_SECONDS, REHEARSAL, Caller, System

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def everything_is_back(system: System) -> Iterator[None]:
    """Whatever a test stopped runs again when it is over."""
    yield
    for part in ("kafka", "postgres", "valkey", "s3"):
        if system.installation.stack.pid(part) is None:
            system.installation.stack.restart(part)
        system.installation.stack.resume(part)
    system.up.send("processor-1", signal.SIGCONT)
    system.up.await_ready(PATIENCE_SECONDS)


def _taken(caller: Caller, key: str) -> str:
    """Ask with one key until it is taken, as the 503 says."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        answer = caller.post(REHEARSAL, key)
        if answer.status_code == 202:
            task_id: str = answer.json()["task_id"]
            return task_id
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) > 0
        time.sleep(0.2)  # what a client does with a Retry-After
    raise AssertionError("it is never taken")


def _created(system: System, task_id: str) -> int:
    """How many times a task was created."""

    async def count() -> int:
        kafka = need(load(system.installation.environ()), "kafka")
        places = [Place(Topic.TASK_EVENTS.value, n) for n in range(kafka.partitions)]
        found = 0
        async with LogReader(kafka, places) as reader:
            await reader.seek_to_beginning()
            ends = await reader.ends()
            while any(reader.positions[place] < ends[place] for place in places):
                for batch in await reader.read(1):
                    values = [record.value or b"" for record in batch.records]
                    found += sum(
                        b'"task.created.v1"' in value and task_id.encode() in value
                        for value in values
                    )
        return found

    return asyncio.run(count())


def test_kafka_stopped_is_a_503_in_time_and_the_same_key_is_one_task(
    ann: Caller, system: System
) -> None:
    ann.submit(no_op=True)
    system.installation.stack.pause("kafka")
    keys = [uuid4().hex for _ in range(3)]
    for key in keys:
        answer = ann.post(REHEARSAL, key)  # whose client waits for many times what the api may
        assert (answer.status_code, answer.json()["code"]) == (503, "log_away"), answer.text
        assert int(answer.headers["retry-after"]) > 0
    system.installation.stack.resume("kafka")
    for key in keys:
        task_id = _taken(ann, key)
        assert task_id == ann.task_id(key)
        ann.until(task_id, "SUCCEEDED")
        assert _created(system, task_id) == 1


def test_kafka_killed_and_back_loses_nothing(ann: Caller, system: System) -> None:
    task_id = ann.submit(seconds=1)
    system.installation.stack.kill("kafka")
    key = uuid4().hex
    answer = ann.post(REHEARSAL, key)
    assert answer.status_code == 503, answer.text
    system.installation.stack.restart("kafka")
    other = _taken(ann, key)
    ann.until(task_id, "SUCCEEDED")
    ann.until(other, "SUCCEEDED")
    assert _created(system, other) == 1


def test_postgres_away_is_a_503_and_what_was_running_is_done(ann: Caller, system: System) -> None:
    task_id = ann.submit(seconds=1)
    system.installation.stack.kill("postgres")
    key = uuid4().hex
    for answer in (ann.post(REHEARSAL, key), ann.http.get("/v1/tasks")):
        assert (answer.status_code, answer.json()["code"]) == (503, "read_model_away")
        assert int(answer.headers["retry-after"]) > 0
    system.installation.stack.restart("postgres")
    other = _taken(ann, key)
    assert ann.until(task_id, "SUCCEEDED")
    assert ann.until(other, "SUCCEEDED")


def test_redis_away_costs_a_hint_and_nothing_else(ann: Caller, system: System) -> None:
    system.installation.stack.kill("valkey")
    task_id = ann.submit(no_op=True)
    assert ann.until(task_id, "SUCCEEDED")["status"] == "SUCCEEDED"
    assert ann.http.get("/v1/tasks").status_code == 200
    assert httpx.get(f"{system.up.api_url}/readyz").status_code == 200
    caller = system.caller(tier="slow")
    statuses = {caller.post(REHEARSAL).status_code for _ in range(12)}
    assert 429 in statuses, "the decider counts"


def test_deciders_that_stand_still_are_pending_first_and_then_refused_before_appending(
    ann: Caller, system: System
) -> None:
    system.up.send("processor-1", signal.SIGSTOP)
    keys = [uuid4().hex]
    answer = ann.post(REHEARSAL, keys[0])
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")
    token = answer.json()["consistency_token"]
    shown = ann.http.get(
        f"/v1/tasks/{answer.json()['task_id']}", headers={"Cutlog-Consistency": token}
    )
    assert (shown.status_code, shown.json()["status"]) == (202, "pending")
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        keys.append(uuid4().hex)
        answer = ann.post(REHEARSAL, keys[-1])
        if answer.status_code == 503:
            break
        assert answer.json()["status"] == "pending"
    assert answer.json()["code"] == "backlog"
    assert int(answer.headers["retry-after"]) > 0
    system.up.send("processor-1", signal.SIGCONT)
    for key in keys:
        task_id = _taken(ann, key)
        ann.until(task_id, "SUCCEEDED")
        assert _created(system, task_id) == 1
    assert ann.post(REHEARSAL).status_code == 202


def test_a_refused_submission_that_is_asked_again_is_pending_until_it_is_decided_again(
    system: System,
) -> None:
    caller = system.caller(tier="free")
    for _ in range(5):
        assert caller.post(REHEARSAL).status_code == 202
    key = uuid4().hex
    assert caller.post(REHEARSAL, key).json()["code"] == "day_exhausted"
    task_id = caller.task_id(key)
    end = time.monotonic() + PATIENCE_SECONDS
    while caller.get(task_id, seq=0)["status"] != "refused":  # it waits a second itself
        assert time.monotonic() < end
    system.up.send("processor-1", signal.SIGSTOP)
    asked = caller.post(REHEARSAL, key)
    while asked.status_code == 429:  # its heart beats on for a moment
        asked = caller.post(REHEARSAL, key)
    assert (asked.status_code, asked.json()["status"]) == (202, "pending")
    headers = {"Cutlog-Consistency": asked.json()["consistency_token"]}
    shown = caller.http.get(f"/v1/tasks/{task_id}", headers=headers)
    assert (shown.status_code, shown.json()["status"]) == (202, "pending")
    system.up.send("processor-1", signal.SIGCONT)
    while caller.get(task_id, seq=0)["status"] != "refused":
        assert time.monotonic() < end


def test_the_api_killed_in_the_middle_of_submissions_makes_each_task_once(
    ann: Caller, system: System
) -> None:
    keys = [uuid4().hex for _ in range(12)]
    for number, key in enumerate(keys):
        if number == 4:
            system.up.send("api", signal.SIGKILL)
        try:
            ann.post(REHEARSAL, key)
        except httpx.TransportError:
            system.up.await_ready(PATIENCE_SECONDS)
    system.up.await_ready(PATIENCE_SECONDS)
    for key in keys:
        task_id = _taken(ann, key)
        ann.until(task_id, "SUCCEEDED")
        assert _created(system, task_id) == 1
