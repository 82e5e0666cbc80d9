"""Poison: what cannot be worked on is set aside whole, its key waits, and nothing else does."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from commands.tasks import attempts
from processors.engine import UnknownVersionError
from processors.engine.errors import StayDownError
from schema import commands as c
from schema import events as e
from schema import replies as r
from schema.codec import encode
from schema.failures import FailureClass
from schema.ids import TaskId, user_partition
from schema.refusals import Refusal
from schema.topics import Topic, pool_partition
from tests.processors.play import BEN, POOL, Play
from tests.schema.samples import sample

_pool_evolve = sys.modules["commands.pools.evolve"]
_quota_reserve = sys.modules["commands.quotas.reserve"]
_task_retrying = sys.modules["commands.tasks.retrying"]


class BrokenError(Exception):
    """What the code raises when it is wrong."""


@pytest.fixture
def mended() -> Iterator[pytest.MonkeyPatch]:
    """Breaks a rule; `undo` is the release that mends it."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def breaks(rule: Any, only: str = "") -> Any:  # noqa: ANN401 - any rule
    """The rule, which raises (for the task `only`, if one is named)."""

    def broken(state: Any, command: Any, asked: Any) -> Any:  # noqa: ANN401
        if only in ("", command.task_id):
            raise BrokenError(command.task_id)
        return rule(state, command, asked)

    return broken


def letters(play: Play) -> list[r.DeadLetter]:
    return play.told(Topic.DEAD_LETTERS, r.DeadLetter)


def tables(play: Play) -> list[dict[str, Any]]:
    found = play.flow.rules
    return [play.flow.rows(found.pools._table), play.flow.rows(found.tasks._table)]  # pyright: ignore[reportPrivateUsage]


# --- what cannot be read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [b"", b"\xff\xfe", b"null", b"{}", b'{"type":"nonsense"}', b"[" * 70_000]
)
@pytest.mark.parametrize("topic", [Topic.TASK_COMMANDS, Topic.POOL_COMMANDS, Topic.QUOTA_COMMANDS])
def test_what_cannot_be_read_is_a_letter_and_stops_nobody(topic: Topic, value: bytes) -> None:
    play = Play()
    runner = play.runner()
    play.flow.append_bytes(topic, 1, b"the key", value)
    task = play.submit("one")
    play.flow.settle()
    (letter,) = letters(play)
    assert (letter.topic, letter.partition, letter.key) == (topic, 1, b"the key")
    assert letter.value == value
    assert letter.quarantined_key == ""
    runner.finish(runner.inbox(r.DispatchAttempt)[0])
    assert play.story(task)[-1] == "TaskSucceeded"


def test_a_known_name_with_fields_that_are_wrong_is_a_letter_too() -> None:
    play = Play()
    value = b'{"type":"task.start.v1","command_id":"x","task_id":7}'
    play.flow.append_bytes(Topic.TASK_COMMANDS, 0, b"k", value)
    play.flow.settle()
    assert [letter.value for letter in letters(play)] == [value]


def test_what_cannot_be_read_does_not_undo_the_pool_command_before_it() -> None:
    """Regression: the pool's memory and its rows were two different things after that."""
    play = Play(partitions=1)
    play.runner()
    play.submit("waits behind the first")
    waiting = play.submission("one")
    play.flow.append(waiting)
    play.flow.settle()
    before = play.flow.rules.pools.states()[0].rows.copy()
    assert any(key.startswith("queued/") for key in before)
    play.flow.append_bytes(Topic.POOL_COMMANDS, 0, b"", b"nonsense")
    play.flow.settle()
    assert play.flow.rules.pools.states()[0].rows == before


def test_a_version_that_is_not_known_ends_the_process_and_is_no_poison() -> None:
    play = Play()
    play.flow.append_bytes(Topic.TASK_COMMANDS, 0, b"k", b'{"type":"task.finish.v9"}')
    with pytest.raises(UnknownVersionError):
        play.flow.settle()
    assert letters(play) == []


# --- what cannot be worked on ---------------------------------------------------------------------


def test_a_poison_command_is_a_letter_and_its_task_waits_behind_it_in_order(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play()
    runner = play.runner(slots=2)
    sick, well = play.submit("sick"), play.submit("well", user=BEN)
    first, second = sorted(runner.inbox(r.DispatchAttempt), key=lambda one: one.task_id != sick)
    mended.setattr(attempts, "finish", breaks(attempts.finish, only=sick))
    runner.finish(first)
    (letter,) = letters(play)
    key = f"task/{sick}"
    assert (letter.cause, letter.quarantined_key) == (f"BrokenError: {sick}", key)
    assert b"task.finish.v1" in (letter.value or b"")
    canceled = play.cancel(sick)
    again = play.cancel(sick, name="cancel again")
    assert play.replies(canceled) == play.replies(again) == []  # parked, not forgotten
    assert play.story(sick)[-1] == "TaskStarted"
    runner.finish(second)
    assert play.story(well)[-1] == "TaskSucceeded"  # nobody else waits
    mended.undo()
    play.release(Topic.TASK_COMMANDS, user_partition(sick, 2), key)
    assert play.story(sick)[-1] == "TaskCanceled"
    first_reply, second_reply = play.replies(canceled)[0], play.replies(again)[0]
    assert isinstance(first_reply, r.Accepted)
    assert isinstance(second_reply, r.Accepted)
    assert first_reply.seq == second_reply.seq
    assert play.replies(play.cancel(sick, name="a third time"))  # the key is free again


def test_a_poison_submission_is_answered_internal_and_makes_nobody_wait(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play()
    exceeded = _quota_reserve._exceeded

    def broken(*_: object) -> None:
        raise BrokenError

    mended.setattr(_quota_reserve, "_exceeded", broken)
    command = play.submission("one")
    play.ask(command)
    (reply,) = play.replies(command)
    assert isinstance(reply, r.Refused)
    assert (reply.reason, reply.key) == (Refusal.INTERNAL, command.task_id)
    assert letters(play)[0].quarantined_key == ""
    mended.setattr(_quota_reserve, "_exceeded", exceeded)
    play.ask(command)  # the same key again, once the code is right
    assert isinstance(play.replies(command)[1], r.Accepted)
    assert play.story(command.task_id) == ["TaskCreated", "TaskQueued"]


def test_a_poison_pool_command_leaves_the_pool_as_if_it_had_never_been(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play(partitions=1)
    runner = play.runner(slots=2)
    sick, other = play.submit("one"), play.submit("two")
    first, second = sorted(runner.inbox(r.DispatchAttempt), key=lambda one: one.task_id != sick)
    attempt_of = _pool_evolve.EVOLVE[e.SlotFreed]

    def breaks_late(state: Any, pool: Any, event: Any, now: Any) -> Any:  # noqa: ANN401
        after = attempt_of(state, pool, event, now)  # rows and indexes have changed already
        if event.task_id == sick:
            raise BrokenError(event.task_id)
        return after

    mended.setitem(_pool_evolve.EVOLVE, e.SlotFreed, breaks_late)
    state = play.flow.rules.pools.states()[0]
    free = c.FreeSlot(
        command_id="free",  # type: ignore[arg-type]
        task_id=sick,
        token=1,
        **runner.place,
    )
    before = state.rows.copy()
    play.ask(free)
    assert state.rows == before == play.flow.rows(play.flow.rules.pools._table)  # pyright: ignore[reportPrivateUsage]
    assert play.free_slots() == 0
    (letter,) = letters(play)
    assert letter.quarantined_key == f"slot/{sick}/1"
    runner.finish(second)
    assert play.story(other)[-1] == "TaskSucceeded"
    assert play.free_slots() == 1
    play.ask(free)  # parked behind the first
    mended.undo()
    play.release(Topic.POOL_COMMANDS, pool_partition(POOL, 1), f"slot/{sick}/1")
    assert play.free_slots() == 2
    assert first.token == 1


def test_who_asked_for_a_retry_is_told_when_the_task_could_not_judge_it(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play()
    runner = play.runner()
    task = play.submit("one")
    runner.fail(runner.inbox(r.DispatchAttempt)[0], FailureClass.INPUT)
    mended.setattr(_task_retrying, "requeue", breaks(_task_retrying.requeue))
    (reply,) = play.replies(play.retry(task))
    assert isinstance(reply, r.Refused)
    assert (reply.reason, reply.key) == (Refusal.INTERNAL, task)


def test_a_poison_tick_is_a_letter_and_the_next_one_goes_on(mended: pytest.MonkeyPatch) -> None:
    play = Play()
    runner = play.runner()
    task = play.submit("one")
    runner.fail(runner.inbox(r.DispatchAttempt)[0], FailureClass.NETWORK)

    def broken(*_: object) -> None:
        raise BrokenError

    timers = sys.modules["commands.tasks.timers"]
    mended.setattr(timers, "queue", broken)
    play.flow.tick(3)
    assert {letter.topic for letter in letters(play)} == {Topic.TASK_COMMANDS}
    assert play.story(task)[-1] == "TaskRequeued"
    mended.undo()
    play.flow.tick()
    assert play.story(task)[-3:] == ["TaskRequeued", "TaskQueued", "TaskStarted"]


def test_many_poison_commands_mean_that_the_code_is_wrong(mended: pytest.MonkeyPatch) -> None:
    play = Play(partitions=1)
    mended.setattr(attempts, "milestone", breaks(attempts.milestone))
    for number in range(21):
        task = TaskId(f"{number:026d}000000")
        play.flow.append(
            c.ReportMilestone(command_id=f"m{number}", task_id=task, token=1, percent=10)  # type: ignore[arg-type]
        )
    with pytest.raises(StayDownError):
        play.flow.settle()


def test_every_command_has_the_smallest_key_that_must_wait() -> None:
    """Never an account, never a pool, and nothing for what an operator says to all."""
    play = Play()
    rules = play.flow.rules
    found: dict[str, str] = {}
    for topic, union in (
        (Topic.TASK_COMMANDS, c.TaskCommand),
        (Topic.POOL_COMMANDS, c.PoolCommand),
        (Topic.QUOTA_COMMANDS, c.QuotaCommand),
        (Topic.MATERIAL_COMMANDS, c.MaterialCommand),
    ):
        for kind in union.__args__:
            play.flow.append_bytes(topic, 0, b"k", encode(sample(kind)))
            key = rules.key_of(play.flow.log[topic, 0].pop())
            found[kind.__name__] = (key or b"").decode().partition("/")[0]
    assert {name for name, kind in found.items() if not kind} == {
        "SubmitTask",
        "PublishPolicy",
        "ReleaseKey",
        "PauseLane",
        "ResumeLane",
    }
    assert set(found.values()) - {""} == {
        "task",
        "slot",
        "runner",
        "reservation",
        "charge",
        "user",
        "material",
    }
