"""Poison: what cannot be worked on is set aside whole, its key waits, and nothing else does."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from commands import pools, quotas, tasks
from commands.tasks import attempts, ending
from processors.engine import UnknownVersionError
from processors.engine.errors import StayDownError
from schema import commands as c
from schema import events as e
from schema import replies as r
from schema.codec import encode
from schema.failures import FailureClass
from schema.ids import CommandId, TaskId, UserId, user_partition
from schema.refusals import Refusal
from schema.topics import Topic, pool_partition
from tests.processors.play import BEN, POOL, Play, Runner
from tests.schema.samples import sample

_pool_decide = sys.modules["commands.pools.decide"]
_pool_steps = sys.modules["commands.pools.steps"]
_rules = sys.modules["processors.rules"]
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


# --- timers ---------------------------------------------------------------------------------------


def more_due(play: Play) -> set[str]:
    return {topic for writer in play.flow.writers for topic in writer.more_due}


def pass_hours(play: Play, hours: int) -> None:
    """The served clocks go on by hours at once, without the ticks in between."""
    for writer in play.flow.writers:
        stall = writer.clock.stall
        writer.clock.stall = {topic: ms - hours * 3_600_000 for topic, ms in stall.items()}


def fails_for(rule: Any, sick: str) -> Any:  # noqa: ANN401 - any rule of a timer
    """The rule of a deadline, which raises where `sick` is named, after it has done its work."""

    def broken(rows: Any, timer: Any, *rest: Any) -> Any:  # noqa: ANN401
        done = rule(rows, timer, *rest)
        if sick in (timer if isinstance(timer, str) else timer.key):
            raise BrokenError(sick)
        return done

    return broken


def test_one_bad_task_timer_is_a_letter_and_waits_alone(mended: pytest.MonkeyPatch) -> None:
    play = Play(partitions=1)
    runner = play.runner(slots=2)
    sick, well = play.submit("sick"), play.submit("well", user=BEN)
    for dispatch in runner.inbox(r.DispatchAttempt):
        runner.fail(dispatch, FailureClass.NETWORK)
    mended.setattr(tasks, "on_due", fails_for(tasks.on_due, sick))
    play.flow.tick(60, each=runner.beat)  # one letter, not one a second until it stays down
    (letter,) = letters(play)
    key = f"task/{sick}"
    assert (letter.topic, letter.partition, letter.quarantined_key) == (
        Topic.TASK_COMMANDS,
        0,
        key,
    )
    assert letter.cause == f"BrokenError: {sick}"
    assert play.story(sick)[-1] == "TaskRequeued"
    assert play.story(well).count("TaskStarted") > 1
    assert more_due(play) == set()
    canceled = play.cancel(sick)
    assert play.replies(canceled) == []  # it waits behind the timer
    mended.undo()
    play.flow.tick(3, each=runner.beat)
    assert play.story(sick)[-1] == "TaskRequeued"  # nothing fires before the release
    play.release(Topic.TASK_COMMANDS, 0, key)
    assert play.story(sick)[-1] == "TaskCanceled"


def test_a_timer_fires_again_after_its_release_and_is_set_aside_again_if_nothing_is_mended(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play(partitions=1)
    runner = play.runner()
    task = play.submit("one")
    runner.fail(runner.inbox(r.DispatchAttempt)[0], FailureClass.NETWORK)
    mended.setattr(tasks, "on_due", fails_for(tasks.on_due, task))
    play.flow.tick(3)
    play.release(Topic.TASK_COMMANDS, 0, f"task/{task}")
    play.flow.tick(3, each=runner.beat)
    assert len({letter.letter_id for letter in letters(play)}) == 2
    mended.undo()
    play.release(Topic.TASK_COMMANDS, 0, f"task/{task}")
    play.flow.tick()
    assert play.story(task)[-3:] == ["TaskRequeued", "TaskQueued", "TaskStarted"]


def test_the_timers_of_a_task_do_not_overtake_its_parked_commands(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play(partitions=1)
    runner = play.runner()
    task = play.submit("one")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    mended.setattr(attempts, "milestone", breaks(attempts.milestone))
    play.ask(
        c.ReportMilestone(command_id=CommandId("m"), task_id=task, token=1, percent=10),
    )
    runner.finish(dispatch)  # parked
    play.flow.tick(3, each=runner.beat)
    pass_hours(play, 24)
    play.flow.tick()
    assert play.story(task)[-1] == "TaskStarted"
    mended.undo()
    play.release(Topic.TASK_COMMANDS, 0, f"task/{task}")
    assert play.story(task)[-1] == "TaskSucceeded"


def test_timers_that_wait_starve_no_other(mended: pytest.MonkeyPatch) -> None:
    mended.setattr(_rules, "TICK_TIMERS_MAX", 2)
    play = Play(partitions=1)
    runner = play.runner(slots=4)
    sick = [play.submit(f"sick {number}") for number in range(2)]
    well = play.submit("well", user=BEN)
    for dispatch in sorted(runner.inbox(r.DispatchAttempt), key=lambda one: one.task_id == well):
        runner.fail(dispatch, FailureClass.NETWORK)

    on_due = tasks.on_due

    def broken(rows: Any, timer: Any, *rest: Any) -> Any:  # noqa: ANN401
        if timer.key in sick:
            raise BrokenError(timer.key)
        return on_due(rows, timer, *rest)

    mended.setattr(tasks, "on_due", broken)
    play.flow.tick(5, each=runner.beat)
    assert len(letters(play)) == 2
    assert play.story(well)[-1] == "TaskStarted"
    for writer in play.flow.writers:
        writer.more_due.clear()
    play.flow.tick(each=runner.beat)
    assert more_due(play) == set()


def test_a_timer_whose_row_cannot_be_written_waits_alone_too(mended: pytest.MonkeyPatch) -> None:
    play = Play(partitions=1)
    runner = play.runner(slots=2)
    sick, well = play.submit("sick"), play.submit("well", user=BEN)
    for dispatch in runner.inbox(r.DispatchAttempt):
        runner.fail(dispatch, FailureClass.NETWORK)
    on_due = tasks.on_due

    def unwritable(rows: Any, timer: Any, *rest: Any) -> Any:  # noqa: ANN401
        done = on_due(rows, timer, *rest)
        if timer.key == sick:
            rows.put(timer.key, {1j})
        return done

    mended.setattr(tasks, "on_due", unwritable)
    play.flow.tick(4, each=runner.beat)
    assert [letter.quarantined_key for letter in letters(play)] == [f"task/{sick}"]
    assert play.story(sick)[-1] == "TaskRequeued"
    assert play.story(well)[-1] == "TaskStarted"


def test_a_quota_row_that_cannot_be_forgotten_stops_nobody(mended: pytest.MonkeyPatch) -> None:
    play = Play(partitions=1)
    runner = play.runner()
    task = play.submit("one")
    runner.finish(runner.inbox(r.DispatchAttempt)[0])
    rows = play.flow.rows(play.flow.rules.quotas._table)  # pyright: ignore[reportPrivateUsage]
    mortal = [key for key, row in rows.items() if quotas.due_ms(row) is not None]
    assert len(mortal) > 1
    mended.setattr(quotas, "on_due", fails_for(quotas.on_due, mortal[0]))
    play.flow.tick()
    pass_hours(play, 400 * 24)
    play.flow.tick(25)
    assert [letter.quarantined_key for letter in letters(play)] == [f"quota-row/{mortal[0]}"]
    left = play.flow.rows(play.flow.rules.quotas._table)  # pyright: ignore[reportPrivateUsage]
    assert set(mortal) & set(left) == {mortal[0]}
    assert more_due(play) == set()
    mended.undo()
    play.release(Topic.TASK_COMMANDS, 0, f"quota-row/{mortal[0]}")
    play.flow.tick()
    assert mortal[0] not in play.flow.rows(play.flow.rules.quotas._table)  # pyright: ignore[reportPrivateUsage]
    assert play.story(task)[-1] == "TaskSucceeded"


def pool_rows(play: Play) -> dict[str, Any]:
    """The rows of all pools: what is in memory is what is in the table."""
    table = play.flow.rows(play.flow.rules.pools._table)  # pyright: ignore[reportPrivateUsage]
    assert play.flow.rules.pools.states()[0].rows == table
    return table


def is_over(rows: dict[str, Any], key: str) -> bool:
    return key not in rows or getattr(rows[key], "stage", None) is pools.Stage.LOST


@pytest.mark.parametrize(
    ("kind", "hours", "seconds"), [("runner/", 0, 40), ("lease/", 0, 20), ("queued/", 7, 40)]
)
def test_one_bad_deadline_of_a_pool_waits_alone(
    mended: pytest.MonkeyPatch, kind: str, hours: int, seconds: int
) -> None:
    play = Play(partitions=1)
    play.runner("quiet")
    play.runner("other")
    for number in range(4):
        play.submit(f"n{number}")
    peers = sorted(key for key in pool_rows(play) if key.startswith(kind))
    assert len(peers) == 2
    sick, well = peers
    decide_due = _pool_steps.decide_due

    def broken(draft: Any, key: str) -> None:  # noqa: ANN401
        decide_due(draft, key)
        draft.apply()  # rows and indexes have changed already
        if key == sick:
            raise BrokenError(key)

    mended.setattr(_pool_steps, "decide_due", broken)
    play.flow.tick()
    pass_hours(play, hours)
    play.flow.tick(seconds)
    (letter,) = letters(play)
    held = pools.waits_behind(sick)
    assert (letter.topic, letter.quarantined_key) == (Topic.POOL_COMMANDS, held)
    assert "pool" not in held
    assert not is_over(pool_rows(play), sick)
    assert is_over(pool_rows(play), well)
    assert more_due(play) == set()
    mended.undo()
    play.release(Topic.POOL_COMMANDS, 0, held)
    play.flow.tick()
    assert is_over(pool_rows(play), sick)


def test_a_runner_whose_beats_are_poison_still_loses_what_it_holds(
    mended: pytest.MonkeyPatch,
) -> None:
    """Only a deadline that raised itself waits: those of a pool are what saves the tasks."""
    play = Play(partitions=1)
    runner = play.runner()
    task = play.submit("one")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.accept(dispatch)

    def broken(*_: object) -> None:
        raise BrokenError

    mended.setitem(_pool_decide.RULES, c.BeatRunner, broken)
    runner.beat(dispatch)
    assert [letter.quarantined_key for letter in letters(play)] == ["runner/runner-1"]
    play.flow.tick(40)
    assert "TaskRequeued" in play.story(task)


def test_more_than_twenty_bad_timers_mean_that_the_code_is_wrong(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play(partitions=1)
    runner = play.runner(slots=21)
    for number in range(21):
        play.submit(f"n{number}", user=UserId(f"user{number:020d}000000"))
    for dispatch in runner.inbox(r.DispatchAttempt):
        runner.fail(dispatch, FailureClass.NETWORK)
    mended.setattr(tasks, "on_due", fails_for(tasks.on_due, ""))
    with pytest.raises(StayDownError):
        play.flow.tick(5)


# --- the slot of a task that waits ----------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_quarantined_task_keeps_no_slot_and_ends_well_after_its_release(
    mended: pytest.MonkeyPatch, partitions: int
) -> None:
    play = Play(partitions=partitions)
    sick = play.submit("sick")
    key, place = f"task/{sick}", user_partition(sick, partitions)
    mended.setattr(ending, "cancel", breaks(ending.cancel, only=sick))
    play.cancel(sick)
    assert [letter.quarantined_key for letter in letters(play)] == [key]
    runner = play.runner()  # the slot is proposed to the task that cannot answer
    assert play.story(sick)[-1] == "TaskQueued"
    assert play.free_slots() == 1
    well = play.submit("well", user=BEN)
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    assert dispatch.task_id == well
    mended.undo()
    play.release(Topic.TASK_COMMANDS, place, key)  # while the other has the slot
    assert play.free_slots() == 0
    runner.accept(dispatch)
    runner.finish(dispatch)
    assert play.story(well)[-1] == "TaskSucceeded"
    play.flow.tick(10, each=lambda: runner.beat(*_working(runner, play)))
    again = runner.inbox(r.DispatchAttempt)[-1]
    assert (again.task_id, again.token) == (sick, 2)
    runner.accept(again)
    runner.finish(again)
    assert play.story(sick)[-1] == "TaskSucceeded"
    assert play.free_slots() == 1
    assert play.ledger().count("QuotaCommitted") == 2


def _working(runner: Runner, play: Play) -> list[r.DispatchAttempt]:
    """What the runner would list: its last dispatch, unless its task has ended."""
    return [
        dispatch
        for dispatch in runner.inbox(r.DispatchAttempt)[-1:]
        if play.story(dispatch.task_id)[-1] == "TaskStarted"
    ]


def test_a_poison_proposal_keeps_no_slot(mended: pytest.MonkeyPatch) -> None:
    play = Play()
    mended.setattr(attempts, "start", breaks(attempts.start))
    runner = play.runner()
    sick = play.submit("sick")
    assert [letter.quarantined_key for letter in letters(play)] == [f"task/{sick}"]
    assert play.free_slots() == 1
    assert runner.inbox(r.DispatchAttempt) == []


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
            message = sample(kind)
            if isinstance(message, c.ReleaseKey):  # with a record it has the key of that
                message = msgspec.structs.replace(message, redrive=None)
            play.flow.append_bytes(topic, 0, b"k", encode(message))
            key = rules.key_of(play.flow.log[topic, 0].pop())
            found[kind.__name__] = (key or b"").decode().partition("/")[0]
    assert {name for name, kind in found.items() if not kind} == {
        "SubmitTask",
        "PublishPolicy",
        "ReleaseKey",
        "PauseLane",
        "ResumeLane",
        "ResetBreaker",
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
