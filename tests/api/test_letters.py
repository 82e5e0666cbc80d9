"""Dead letters, against the whole product: looked at, done again, thrown away."""

import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from schema.codec import encode
from schema.commands import CancelTask, CreateTask, Origin, SubmitTask
from schema.ids import (
    NO_TENANT,
    CommandId,
    PoolId,
    ReservationId,
    TaskId,
    UserId,
    account_of,
    command_id_of,
    task_id_of,
)
from schema.objects import failure_key
from schema.policy import Price
from schema.replies import DeadLetter
from schema.routes import Route, route, route_submission
from schema.settings import Kafka, Postgres, load, need
from schema.topics import Topic
from schema.wires.log import LogWriter
from schema.wires.objects import ObjectMissingError, ObjectStore
from schema.words import Lane, Scene
from tests.api.system import PATIENCE_SECONDS, Caller, System

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
PATH = "/v1/operator/dead-letters"


def append(system: System, *records: tuple[Route, bytes]) -> None:
    """Bytes, past the door."""
    kafka: Kafka = need(load(system.installation.environ()), "kafka")

    async def write() -> None:
        async with LogWriter(kafka) as writer:
            for place, value in records:
                await writer.append(place, value)

    asyncio.run(write())


def letters(operator: Caller, of: str, state: str = "open") -> list[dict[str, Any]]:
    answer = operator.http.get(PATH, params={"of": of, "state": state})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["letters"]
    return found


def until(operator: Caller, of: str, *states: str) -> list[dict[str, Any]]:
    """Its letters, once they stand so, oldest first."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        found = letters(operator, of, "all")[::-1]
        if [one["state"] for one in found] == list(states):
            return found
        time.sleep(0.05)  # the read model has no other way to tell
    raise AssertionError(f"{of}: {letters(operator, of, 'all')}")


def ask(operator: Caller, how: str, of: str, why: str = "the code is mended") -> httpx.Response:
    return operator.http.post(f"{PATH}/{how}", json={"of": of, "why": why})


def parked(operator: Caller) -> set[str]:
    return {one["key"] for one in operator.http.get(PATH).json()["parked_keys"]}


def cli(system: System, *words: str) -> subprocess.CompletedProcess[str]:
    home = {**os.environ, "CUTLOG_HOME": str(system.installation.directory)}
    return subprocess.run(
        [sys.executable, "-m", "cutlog", "dlq", *words],
        env=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def poison(caller: Caller) -> tuple[TaskId, list[tuple[Route, bytes]]]:
    """A task for a pool that has no place in the map, and a cancel that comes behind it."""
    user = UserId(caller.user_id)
    task = task_id_of(NO_TENANT, user, "poison")
    account = account_of(NO_TENANT, user)
    create = CreateTask(
        command_id=CommandId("create-poison"),
        task_id=task,
        origin=Origin(
            user_id=user,
            tenant_id=NO_TENANT,
            account_id=account,
            scene=Scene.REHEARSAL,
            tier="load",
            fingerprint="f",
            private=b"sealed",
        ),
        pool_id=PoolId("nowhere"),
        lane=Lane.P1,
        price=Price(base_micros=1, card_second_micros=1, card_seconds_max=1),
        policy_version=1,
        reservation_id=ReservationId("none"),
        reserved_micros=1,
        run_limit_seconds=10,
        created_wait_seconds=10,
    )
    cancel = CancelTask(
        command_id=command_id_of("cancel", task), task_id=task, user_id=user, tenant_id=NO_TENANT
    )
    partitions = caller.system.partitions
    return task, [(route(one, partitions), encode(one)) for one in (create, cancel)]


def test_a_spent_task_is_found_by_its_trace_and_tried_again_for_its_user(
    operator: Caller, ann: Caller, system: System
) -> None:
    trace = uuid4().hex
    parameters = {"fail": "internal", "fail_on_attempts": [1, 2, 3], "no_op": True}
    submitted = ann.http.post(
        "/v1/tasks",
        json={"scene": "rehearsal", "parameters": parameters},
        headers={"Idempotency-Key": trace, "traceparent": f"00-{trace}-00f067aa0ba902b7-01"},
    )
    task = submitted.json()["task_id"]
    failed = ann.until(task, "FAILED")
    (letter,) = until(operator, task, "open")
    assert (letter["kind"], letter["failure"]) == ("spent", "internal")
    assert letter["task_status"] == "FAILED"
    assert letter["trace_id"] == trace
    assert [one["letter_id"] for one in letters(operator, trace)] == [letter["letter_id"]]
    answer = ask(operator, "redrive", trace)
    assert answer.status_code == 202, answer.text
    assert [one["task_id"] for one in answer.json()["letters"]] == [task]
    assert ann.until(task, "SUCCEEDED", seq=failed["seq"] + 1)["token"] == 4
    (closed,) = until(operator, task, "redriven")
    assert (closed["who"], closed["why"]) == (operator.user_id, "the code is mended")
    again = ask(operator, "redrive", task)
    assert (again.status_code, again.json()["code"]) == (404, "letter_unknown")
    stored = _object(system, failure_key(failed["ended_at"][:10], TaskId(task), 3))
    assert (stored["failure"], stored["last_failure"]) == ("retries_spent", "internal")
    assert stored["letter_id"] == letter["letter_id"]
    assert stored["complete"] is True


def test_a_spent_task_that_the_read_model_does_not_hold_keeps_its_letter_open(
    operator: Caller, ann: Caller, system: System
) -> None:
    """It is being folded anew: closed now, the letter would say of a retry that never was."""
    task = ann.submit(fail="internal", fail_on_attempts=[1, 2, 3], no_op=True)
    ann.until(task, "FAILED")
    until(operator, task, "open")
    postgres: Postgres = need(load(system.installation.environ()), "postgres")

    async def forget() -> None:
        db = await asyncpg.connect(postgres.dsn)
        await db.execute("DELETE FROM tasks WHERE task_id = $1", task)
        await db.close()

    asyncio.run(forget())
    answer = ask(operator, "redrive", task)
    assert (answer.status_code, answer.json()["code"]) == (503, "read_model_away")
    (letter,) = letters(operator, task)
    assert letter["state"] == "open"
    assert ask(operator, "discard", task).status_code == 202
    until(operator, task, "discarded")


def _object(system: System, key: str) -> dict[str, Any]:
    settings = load(system.installation.environ()).objects
    assert settings is not None

    async def fetch() -> bytes:
        async with ObjectStore(settings) as store, asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    return await store.get(key)
                except ObjectMissingError:
                    await asyncio.sleep(0.1)  # the archive looks every few seconds

    found: dict[str, Any] = json.loads(asyncio.run(fetch()))
    return found


def test_poison_is_redriven_before_what_waits_and_is_a_letter_again_if_nothing_is_mended(
    operator: Caller, ann: Caller, system: System
) -> None:
    task, records = poison(ann)
    append(system, *records)
    (letter,) = until(operator, task, "open")
    assert (letter["kind"], letter["holds_key"]) == ("command", True)
    assert f"task/{task}" in parked(operator)
    (whole,) = operator.http.get(f"{PATH}/show", params={"of": task}).json()["letters"]
    assert whole["record"]["type"] == "task.create.v1"
    assert "private" not in whole["record"]["origin"]
    assert ask(operator, "redrive", letter["letter_id"]).status_code == 202
    _, second = until(operator, task, "replaced", "open")
    assert second["holds_key"] is True
    assert f"task/{task}" in parked(operator)
    answer = ask(operator, "discard", task, "there is no such pool")
    assert [one["letter_id"] for one in answer.json()["letters"]] == [second["letter_id"]]
    _, closed = until(operator, task, "replaced", "discarded")
    assert (closed["who"], closed["why"]) == (operator.user_id, "there is no such pool")
    assert f"task/{task}" not in parked(operator)
    assert ann.until(task, "CANCELED")  # its user believes in it: he sees that it is over


def submission(caller: Caller, task_id: TaskId) -> tuple[Route, bytes, str]:
    """The letter of a submission that was poison long ago, as its processor wrote it; its id."""
    user = UserId(caller.user_id)
    command = SubmitTask(
        command_id=command_id_of("submit", task_id),
        task_id=task_id,
        origin=Origin(
            user_id=user,
            tenant_id=NO_TENANT,
            account_id=account_of(NO_TENANT, user),
            scene=Scene.REHEARSAL,
            tier="load",
            fingerprint="f",
            parameters={"no_op": True},
        ),
    )
    partitions = caller.system.partitions
    place = route_submission(command, Lane.P1, partitions)
    letter = DeadLetter(
        letter_id=f"{place.topic}/{place.partition}/{uuid4().int % 10**9 + 10**9}",
        at=datetime.now(UTC) - timedelta(days=3),
        topic=place.topic,
        partition=place.partition,
        offset=0,
        key=task_id.encode(),
        value=encode(command),
        cause="ValueError: a defect of three days ago",
        quarantined_key="",
        task_id=task_id,
    )
    return Route(Topic.DEAD_LETTERS, place.partition, task_id), encode(letter), letter.letter_id


def test_a_submission_whose_task_was_made_since_is_closed_and_not_done_twice(
    operator: Caller, ann: Caller, system: System
) -> None:
    """Its user was answered that it went wrong, and sent the same key again."""
    task = TaskId(ann.submit(no_op=True))
    seq = ann.until(task, "SUCCEEDED")["seq"]
    place, letter, letter_id = submission(ann, task)
    append(system, (place, letter))
    until(operator, letter_id, "open")
    (told,) = ask(operator, "redrive", letter_id).json()["letters"]
    assert told == {"letter_id": letter_id, "task_id": task, "status": "known", "behind": None}
    (closed,) = until(operator, letter_id, "discarded")
    assert closed["why"] == "not redriven, its task is there: SUCCEEDED; the code is mended"
    assert ann.get(task)["seq"] == seq


def test_a_submission_that_nobody_sent_again_is_redriven_however_old(
    operator: Caller, ann: Caller, system: System
) -> None:
    task = task_id_of(NO_TENANT, UserId(ann.user_id), uuid4().hex)
    place, letter, letter_id = submission(ann, task)
    append(system, (place, letter))
    until(operator, letter_id, "open")
    (told,) = ask(operator, "redrive", letter_id).json()["letters"]
    assert told["status"] == "pending"
    until(operator, letter_id, "redriven")
    assert ann.until(task, "SUCCEEDED")


def test_what_nobody_can_read_is_shown_as_such_and_discarded_by_hand(
    operator: Caller, system: System
) -> None:
    before = {one["letter_id"] for one in _open(operator)}
    append(system, (Route(Topic.TASK_COMMANDS, 0, "rubbish"), b"\xff secret"))
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := [one for one in _open(operator) if one["letter_id"] not in before]):
        assert time.monotonic() < end
        time.sleep(0.05)  # the read model has no other way to tell
    letter = found[0]["letter_id"]
    listed = cli(system, "list")
    assert listed.returncode == 0, listed.stderr
    shown = cli(system, "show", letter)
    assert json.loads(shown.stdout)["letters"][0]["record"] is None
    assert "secret" not in shown.stdout
    done = cli(system, "discard", letter, "--why", "rubbish")
    assert (done.returncode, "is on its way" in done.stdout) == (0, True), done.stderr
    (closed,) = until(operator, letter, "discarded")
    assert closed["why"] == "rubbish"
    unknown = cli(system, "redrive", letter, "--why", "a typing error")
    assert unknown.returncode == 1
    assert "letter_unknown" in unknown.stderr


def test_a_record_of_any_form_is_shown_and_one_that_is_too_long_is_not_redriven(
    operator: Caller, system: System
) -> None:
    """Within its release it would be longer than a command may be."""
    deep = b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"
    long = b'{"a":"' + b"x" * 60_000 + b'"}'
    before = {one["letter_id"] for one in _open(operator)}
    append(system, *((Route(Topic.TASK_COMMANDS, 0, "odd"), value) for value in (deep, long)))
    end = time.monotonic() + PATIENCE_SECONDS
    while len(found := [one for one in _open(operator) if one["letter_id"] not in before]) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)  # the read model has no other way to tell
    shown: dict[int, dict[str, Any]] = {}
    for one in found:
        answer = operator.http.get(f"{PATH}/show", params={"of": one["letter_id"]})
        assert answer.status_code == 200, answer.text
        (whole,) = answer.json()["letters"]
        shown[whole["record_bytes"]] = whole
    assert "(nested too deep)" in json.dumps(shown[len(deep)]["record"])
    refused = ask(operator, "redrive", shown[len(long)]["letter_id"])
    assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
    for one in shown.values():
        assert ask(operator, "discard", one["letter_id"]).status_code == 202
        until(operator, one["letter_id"], "discarded")


def _open(operator: Caller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = operator.http.get(PATH).json()["letters"]
    return found


def test_without_the_scope_nobody_sees_or_does_anything(ann: Caller) -> None:
    for answer in (
        ann.http.get(PATH),
        ann.http.get(f"{PATH}/show", params={"of": "x"}),
        ask(ann, "redrive", "x"),
        ask(ann, "discard", "x"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")


def test_an_id_that_is_none_is_told(operator: Caller) -> None:
    for answer in (
        operator.http.get(f"{PATH}/show", params={"of": "nothing/0/1"}),
        ask(operator, "redrive", "nothing/0/1"),
        ask(operator, "discard", "nothing"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "letter_unknown")
    assert letters(operator, "nothing") == []
    assert operator.http.get(PATH, params={"state": "gone"}).status_code == 422
    assert ask(operator, "redrive", "x", why=" ").status_code == 422
