"""The proof itself: green on what the rules wrote, red on every kind of damage."""

import json
from collections.abc import Callable

import msgspec
import pytest

from commands.tasks import Running, TaskState, attempts
from commands.tasks.follow_ups import Asked
from cutlog.installation import LOCAL_POLICY
from processors.engine.records import TICK_KEY
from schema.commands import (
    BeatRunner,
    FinishAttempt,
    FreeSlot,
    LoseAttempt,
    Origin,
    RegisterRunner,
    ResultFile,
    SubmitTask,
)
from schema.events import TaskStarted
from schema.ids import (
    CommandId,
    IncarnationId,
    PoolId,
    RunnerId,
    TaskId,
    TenantId,
    account_of,
    pseudonym,
    task_id_of,
)
from schema.objects import result_key
from schema.policy import read_policy
from schema.topics import Topic
from schema.words import LossCause, Scene
from tests.faults.proof import EVENT_TOPICS, RawRecord, StoredBytes, prove, result_keys
from tests.support.flow import Flow

EVENTS = Topic.TASK_EVENTS
TENANT = TenantId("acme")
USER = pseudonym(b"secret", TENANT, "bob")
RUNNER, INCARNATION, POOL = RunnerId("runner-1"), IncarnationId("i1"), PoolId("R")
TASKS = [task_id_of(TENANT, USER, f"key-{number}") for number in range(4)]


def finish(task_id: TaskId, token: int) -> FinishAttempt:
    key = result_key(task_id, token, "out.json")
    file = ResultFile(
        name="out.json", object_key=key, content_type="application/json", size=2, sha256="00"
    )
    return FinishAttempt(
        command_id=CommandId(f"finish-{task_id}-{token}"),
        task_id=task_id,
        token=token,
        files=(file,),
        card_ms=10,
    )


def free(task_id: TaskId, token: int) -> FreeSlot:
    return FreeSlot(
        command_id=CommandId(f"free-{task_id}-{token}"),
        pool_id=POOL,
        runner_id=RUNNER,
        incarnation_id=INCARNATION,
        task_id=task_id,
        token=token,
    )


def story() -> Flow:
    """Four tasks; the first loses its runner once, and the lost runner reports after all."""
    flow = Flow()
    flow.publish(read_policy(LOCAL_POLICY.read_bytes()))
    flow.tick()
    flow.append(
        RegisterRunner(
            command_id=CommandId("register"),
            pool_id=POOL,
            runner_id=RUNNER,
            incarnation_id=INCARNATION,
            slots=64,
        )
    )
    for task_id in TASKS:
        origin = Origin(
            user_id=USER,
            tenant_id=TENANT,
            account_id=account_of(TENANT, USER),
            scene=Scene.REHEARSAL,
            tier="load",
            fingerprint="f",
        )
        flow.append(
            SubmitTask(command_id=CommandId(f"submit-{task_id}"), task_id=task_id, origin=origin)
        )
    flow.settle()
    for task_id in TASKS[1:]:
        flow.append(finish(task_id, 1))
        flow.append(free(task_id, 1))
    flow.settle()
    lost = TASKS[0]
    flow.append(
        LoseAttempt(
            command_id=CommandId("lose"), task_id=lost, token=1, cause=LossCause.LEASE_EXPIRED
        )
    )
    while not any(isinstance(e, TaskStarted) and e.token == 2 for e in flow.messages(EVENTS)):
        flow.tick()
        flow.append(beat(flow))
        flow.settle()
    flow.append(finish(lost, 1))
    flow.append(finish(lost, 2))
    flow.append(free(lost, 2))
    flow.settle()
    return flow


def beat(flow: Flow) -> BeatRunner:
    return BeatRunner(
        command_id=CommandId(f"beat-{flow.now_ms}"),
        pool_id=POOL,
        runner_id=RUNNER,
        incarnation_id=INCARNATION,
        beat=flow.now_ms,
    )


def raw(flow: Flow) -> dict[str, list[RawRecord]]:
    found: dict[str, list[RawRecord]] = {}
    for topic in (*EVENT_TOPICS, "dead-letters", "refusals"):
        found[topic] = [
            RawRecord(topic, number, r.offset, (r.key or b"").decode(), r.value or b"")
            for number in range(flow.partitions)
            for r in flow.log[topic, number]
            if r.key != TICK_KEY
        ]
    return found


def test_a_right_history_is_green() -> None:
    proof = prove(raw(story()), TASKS)
    assert proof.violations == []
    assert proof.sums["succeeded"] == len(TASKS)
    assert proof.sums["refusals"] >= 1, "the lost runner's report is a fact"


def test_it_turns_red_with_the_token_check_off(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = attempts.finish

    def unchecked(state: TaskState, command: FinishAttempt, asked: Asked) -> object:
        if isinstance(state, Running):
            course = msgspec.structs.replace(state.course, token=command.token)
            state = msgspec.structs.replace(state, course=course)
        return checked(state, command, asked)

    monkeypatch.setattr(attempts, "finish", unchecked)
    flow = story()
    assert prove(raw(flow), TASKS).violations != []


def drop(records: list[RawRecord], kind: str) -> list[RawRecord]:
    index = next(i for i, r in enumerate(records) if kind.encode() in r.value)
    return records[:index] + records[index + 1 :]


def double(records: list[RawRecord], kind: str) -> list[RawRecord]:
    index = next(i for i, r in enumerate(records) if kind.encode() in r.value)
    return records[: index + 1] + records[index:]


@pytest.mark.parametrize("damage", [drop, double], ids=["lost", "doubled"])
@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("task-events", "task.started.v1"),
        ("task-events", "task.succeeded.v1"),
        ("quota-events", "quota.reserved.v1"),
        ("quota-events", "quota.committed.v1"),
        ("pool-events", "pool.proposed.v1"),
        ("pool-events", "pool.freed.v1"),
    ],
)
def test_one_event_lost_or_doubled_turns_it_red(
    damage: Callable[[list[RawRecord], str], list[RawRecord]], topic: str, kind: str
) -> None:
    log = raw(story())
    log[topic] = damage(log[topic], kind)
    assert prove(log, TASKS).violations != []


def test_a_task_that_was_accepted_and_never_ended_turns_it_red() -> None:
    never = task_id_of(TENANT, USER, "never")
    assert prove(raw(story()), [*TASKS, never]).violations != []


def test_a_reservation_beyond_the_limit_turns_it_red() -> None:
    log = raw(story())
    log["quota-events"] = [
        record._replace(value=record.value.replace(b'"limit_micros":', b'"limit_micros":1,"was":'))
        for record in log["quota-events"]
    ]
    assert any("of 1 at" in words for words in prove(log, TASKS).violations)


def test_a_table_that_says_otherwise_turns_it_red() -> None:
    log = raw(story())
    rows = {
        "tasks": [{"task_id": task_id, "status": "SUCCEEDED"} for task_id in TASKS],
        "task_events": [],
        "quota_windows": [],
    }
    words = prove(log, TASKS, rows).violations
    assert any("task_events" in word for word in words)
    assert any("quota of" in word for word in words)


def test_every_object_of_a_result_must_be_there_as_it_was_promised() -> None:
    log = raw(story())
    keys = result_keys(log)
    whole = dict.fromkeys(keys, StoredBytes(2, "00"))
    proof = prove(log, TASKS, objects=whole)
    assert proof.violations == []
    assert proof.sums["objects"] == len(keys) == len(TASKS)
    for damaged in (
        dict.fromkeys(keys[1:], StoredBytes(2, "00")),
        whole | {keys[0]: StoredBytes(1, "00")},
        whole | {keys[0]: StoredBytes(2, "01")},
    ):
        words = prove(log, TASKS, objects=damaged).violations
        assert [keys[0] in word for word in words] == [True]


def test_a_task_that_ends_by_losses_is_counted() -> None:
    log = raw(story())
    assert prove(log, TASKS).sums["failed_by_losses"] == 0
    log["task-events"] = [
        record._replace(
            value=json.dumps(
                json.loads(record.value)
                | {"type": "task.failed.v1", "failure": "retries_spent", "loss": "lease_expired"}
            ).encode()
        )
        if b"task.succeeded.v1" in record.value
        else record
        for record in log["task-events"]
    ]
    assert prove(log, TASKS).sums["failed_by_losses"] == len(TASKS)
