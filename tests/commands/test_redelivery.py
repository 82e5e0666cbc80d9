"""Quotas and tasks together, when anything that was ever asked is told again at any later time.

The whole flow runs, with a policy that remembers what has ended for seconds instead of days (a
FAILED task seven times as long as any other, as in truth). Whatever is told again: a reservation
that is open is held by a task that has not ended.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import quotas, tasks
from cutlog.installation import LOCAL_POLICY
from processors.engine.records import TICK_KEY, Record
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import (
    NO_TENANT,
    CommandId,
    IncarnationId,
    PoolId,
    RunnerId,
    TaskId,
    UserId,
    account_of,
    task_id_of,
)
from schema.policy import KeepPolicy, Policy, read_policy
from schema.refusals import Refusal
from schema.replies import DispatchAttempt
from schema.topics import SUBMISSIONS, Topic
from schema.words import LossCause, Scene
from tests.support.flow import Flow

ENDED, FAILED = 10, 70
TICK_MS = 5_000
"""The longest gap between two ticks that is no outage."""
ANN = UserId("annannannannannannan000007")
ACCOUNT = account_of(NO_TENANT, ANN)
POOL, RUNNER, INCARNATION = PoolId("R"), RunnerId("runner-1"), IncarnationId("i1")
ASKED = (*SUBMISSIONS.values(), Topic.QUOTA_COMMANDS, Topic.TASK_COMMANDS)


def _policy() -> Policy:
    """The runner needs no beat to live, and what has ended is soon forgotten."""
    policy = read_policy(LOCAL_POLICY.read_bytes())
    pool = msgspec.structs.replace(
        policy.pools[POOL], lease_seconds=10**6, beat_seconds=10**5, accept_seconds=10**5
    )
    return msgspec.structs.replace(
        policy,
        pools={**policy.pools, POOL: pool},
        keep=KeepPolicy(ended_seconds=ENDED, failed_seconds=FAILED),
    )


POLICY = _policy()


class Life:
    """A flow with one user, a runner with many slots, and somebody who repeats old commands."""

    def __init__(self) -> None:
        self.flow = Flow()
        self.flow.publish(POLICY)
        self.numbers = 0
        self.wait(TICK_MS // 1000)
        self.ask(
            c.RegisterRunner(
                command_id=CommandId("register"),
                pool_id=POOL,
                runner_id=RUNNER,
                incarnation_id=INCARNATION,
                slots=64,
            )
        )

    def ask(self, command: c.Command) -> None:
        self.flow.append(command)
        self.flow.settle()

    def named(self, what: str) -> CommandId:
        self.numbers += 1
        return CommandId(f"{what}-{self.numbers}")

    def wait(self, seconds: int) -> None:
        """Somebody serves all the while."""
        for _ in range(seconds * 1000 // TICK_MS):
            self.flow.now_ms += TICK_MS - 1000
            self.flow.tick()

    def submit(self, key: int) -> TaskId:
        task_id = task_id_of(NO_TENANT, ANN, f"key-{key}")
        origin = c.Origin(
            user_id=ANN,
            tenant_id=NO_TENANT,
            account_id=ACCOUNT,
            scene=Scene.REHEARSAL,
            tier="load",
            fingerprint="f",
        )
        self.ask(
            c.SubmitTask(command_id=CommandId(f"submit-{key}"), task_id=task_id, origin=origin)
        )
        return task_id

    def retry(self, task_id: TaskId, name: str = "") -> None:
        self.ask(
            c.RetryTask(
                command_id=CommandId(name or self.named("retry")),
                task_id=task_id,
                user_id=ANN,
                tenant_id=NO_TENANT,
                account_id=ACCOUNT,
                scene=Scene.REHEARSAL,
                tier="load",
                reply_to=0,
            )
        )

    def cancel(self, task_id: TaskId) -> None:
        self.ask(
            c.CancelTask(
                command_id=self.named("cancel"), task_id=task_id, user_id=ANN, tenant_id=NO_TENANT
            )
        )

    def end(self, how: str, which: int = 0) -> None:
        """An attempt ends so, if it is current; 0 is the one that was dispatched last."""
        told = [m for m in self.flow.messages(Topic.RUNNER_INBOX) if isinstance(m, DispatchAttempt)]
        if not told:
            return
        told.sort(key=lambda one: (one.at, one.token, one.task_id), reverse=True)
        one = told[which % len(told)]
        attempt: dict[str, Any] = {"task_id": one.task_id, "token": one.token}
        match how:
            case "finish":
                self.ask(c.FinishAttempt(command_id=self.named(how), card_ms=2_000, **attempt))
            case "fail":
                failure = FailureClass.INPUT
                self.ask(c.FailAttempt(command_id=self.named(how), failure=failure, **attempt))
            case _:
                cause = LossCause.LEASE_EXPIRED
                self.ask(c.LoseAttempt(command_id=self.named(how), cause=cause, **attempt))
        self.ask(
            c.FreeSlot(
                command_id=self.named("free"),
                pool_id=POOL,
                runner_id=RUNNER,
                incarnation_id=INCARNATION,
                **attempt,
            )
        )

    def asked(self) -> list[Record]:
        """Every command of accounts and tasks that was ever on the log, orders too."""
        return [
            record
            for topic in ASKED
            for number in range(self.flow.partitions)
            for record in self.flow.log[topic, number]
            if record.key not in (TICK_KEY, b"policy")
        ]

    def tell_again(self, record: Record) -> None:
        key, value = record.key or b"", record.value or b""
        self.flow.append_bytes(record.topic, record.partition, key, value)
        self.flow.settle()

    def told(self, kind: type[c.Command]) -> Record:
        """The last command of this kind."""
        tag = f'"type":"{kind.__struct_config__.tag}"'.encode()
        return [record for record in self.asked() if tag in (record.value or b"")][-1]

    def open(self) -> dict[str, str]:
        """Reservations that are not resolved, and their tasks."""
        rows = self.flow.rows(self.flow.tables.quotas)
        return {
            key.split("/")[1]: row.task_id
            for key, row in rows.items()
            if isinstance(row, quotas.Open)
        }

    def check(self) -> None:
        """What is open is held by a task that has not ended."""
        rows = self.flow.rows(self.flow.tables.tasks)
        for reservation_id, task_id in self.open().items():
            row = rows.get(task_id)
            assert row is not None, f"{reservation_id} is open for a task that is not there"
            assert not tasks.STATUSES[type(row)].ended, f"{reservation_id} is open, {task_id} ended"
            assert row.taken[-1] == reservation_id
        assert not self.flow.messages(Topic.DEAD_LETTERS)


# --- stories --------------------------------------------------------------------------------------


def test_a_retry_told_again_reserves_nothing_while_its_task_stays_failed() -> None:
    life = Life()
    task_id = life.submit(1)
    life.end("fail")
    life.retry(task_id, "retry-1")
    life.end("fail")
    life.check()
    life.wait(ENDED + 5)  # in truth: 25 hours
    life.tell_again(life.told(c.RetryTask))
    assert not life.open()
    reserved = [m for m in life.flow.messages(Topic.QUOTA_EVENTS) if isinstance(m, e.QuotaReserved)]
    assert len(reserved) == 2
    answer = life.flow.messages(Topic.REPLIES)[-1]
    assert (answer.command_id, answer.reason) == ("retry-1", Refusal.RESERVATION_RESOLVED)


def test_a_retry_told_again_when_everything_is_forgotten_gives_back_what_it_reserves() -> None:
    life = Life()
    task_id = life.submit(1)
    life.end("fail")
    life.retry(task_id, "retry-1")
    life.end("fail")
    life.wait(FAILED + 10)  # in truth: 8 days
    life.tell_again(life.told(c.RetryTask))
    life.check()
    assert not life.open()
    answer = life.flow.messages(Topic.REPLIES)[-1]
    assert (answer.command_id, answer.reason) == ("retry-1", Refusal.TASK_UNKNOWN)


def test_an_order_to_requeue_told_again_at_once_leaves_the_reservation_where_it_is() -> None:
    life = Life()
    task_id = life.submit(1)
    life.end("fail")
    life.retry(task_id, "retry-1")
    life.tell_again(life.told(c.RequeueTask))
    assert life.open() == {"retry-1": task_id}
    life.end("finish")
    assert not life.open()


# --- the law --------------------------------------------------------------------------------------

keys = st.integers(0, 1)
which = st.integers(0, 10**6)
STEPS = st.one_of(
    st.tuples(st.just("submit"), keys),
    st.tuples(st.sampled_from(("finish", "fail", "lose")), st.integers(0, 2)),
    st.tuples(st.just("retry"), keys),
    st.tuples(st.just("retry and fail"), keys),
    st.tuples(st.just("cancel"), keys),
    st.tuples(st.just("wait"), st.sampled_from((5, 15, 80))),
    st.tuples(st.just("again"), which),
    st.tuples(st.just("ask again"), which),
    st.tuples(st.just("wait and ask again"), which),
)


@settings(max_examples=100)
@given(st.lists(STEPS, min_size=8, max_size=25))
def test_no_reservation_stays_open_for_a_task_that_has_ended(steps: list[tuple[str, int]]) -> None:
    life = Life()
    life.submit(0)
    life.end("fail")
    for what, number in steps:
        _step(life, what, number)
        life.check()


def _step(life: Life, what: str, number: int) -> None:
    match what:
        case "submit":
            life.submit(number)
        case "retry" | "retry and fail":
            life.retry(task_id_of(NO_TENANT, ANN, f"key-{number}"))
            if what != "retry":
                life.end("fail")
        case "cancel":
            life.cancel(task_id_of(NO_TENANT, ANN, f"key-{number}"))
        case "wait":
            life.wait(number)
        case "again":
            asked = life.asked()
            life.tell_again(asked[number % len(asked)])
        case "ask again" | "wait and ask again":
            if what != "ask again":
                life.wait(ENDED + 5)
            asked = [one for one in life.asked() if _is_asked_by_a_user(one)]
            life.tell_again(asked[number % len(asked)])
        case _:
            life.end(what, number)


def _is_asked_by_a_user(record: Record) -> bool:
    value = record.value or b""
    return record.topic in SUBMISSIONS.values() or b'"type":"task.retry.v1"' in value
