"""Redrive and discard: what was poison is applied once, before what waits behind it, or never."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from commands.tasks import attempts
from processors.poison import VOUCHED_MS_MAX
from schema import commands as c
from schema import events as e
from schema import replies as r
from schema.codec import encode
from schema.failures import FailureClass
from schema.ids import CommandId, TaskId
from schema.policy import LanePolicy
from schema.refusals import Refusal
from schema.topics import Topic
from tests.processors.play import POLICY, Play, Runner
from tests.processors.test_poison import BrokenError, breaks, letters

_quota_reserve = sys.modules["commands.quotas.reserve"]


@pytest.fixture
def mended() -> Iterator[pytest.MonkeyPatch]:
    """Breaks a rule; `undo` is the release that mends it."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def close(
    play: Play, letter: r.DeadLetter, *, discard: bool = False, unknown_at: datetime | None = None
) -> c.ReleaseKey:
    """What an operator asks for a letter."""
    command = c.ReleaseKey(
        command_id=CommandId(f"close-{letter.letter_id}"),
        key=letter.quarantined_key,
        who="anna",
        why="the code is mended",
        letter_id=letter.letter_id,
        redrive=None if discard else letter.value,
        discard=discard,
        discarded=letter.value if discard else None,
        unknown_at=unknown_at,
    )
    tell(play, letter, command)
    return command


def broken_creation(play: Play, mended: pytest.MonkeyPatch) -> tuple[TaskId, r.DeadLetter]:
    """A submission whose `CreateTask` is a letter, and whose key is quarantined."""
    creating = sys.modules["commands.tasks.creating"]
    task = play.submission("one").task_id
    mended.setattr(creating, "create", breaks(creating.create, only=task))
    play.submit("one")
    (letter,) = letters(play)
    return task, letter


def tell(play: Play, letter: r.DeadLetter, command: c.ReleaseKey) -> None:
    key = letter.quarantined_key.encode()
    play.flow.append_bytes(letter.topic, letter.partition, key, encode(command))
    play.flow.settle()


def facts(play: Play) -> list[r.KeyReleased]:
    return play.told(Topic.DEAD_LETTERS, r.KeyReleased)


def sick(play: Play, mended: pytest.MonkeyPatch) -> tuple[TaskId, Runner, list[c.CancelTask]]:
    """A task whose result is poison, and two who want to cancel it behind that."""
    runner = play.runner()
    task = play.submit("sick")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    mended.setattr(attempts, "finish", breaks(attempts.finish, only=task))
    runner.finish(dispatch)
    return task, runner, [play.cancel(task), play.cancel(task, name="cancel again")]


def test_what_is_redriven_is_applied_before_what_waited_and_each_once_in_order(
    mended: pytest.MonkeyPatch,
) -> None:
    """The cancels came after the result: they find a task that has ended, as without the poison."""
    play = Play()
    task, _, cancels = sick(play, mended)
    (letter,) = letters(play)
    assert (letter.task_id, letter.quarantined_key) == (task, f"task/{task}")
    mended.undo()
    close(play, letter)
    assert play.story(task) == ["TaskCreated", "TaskQueued", "TaskStarted", "TaskSucceeded"]
    for cancel in cancels:
        (reply,) = play.replies(cancel)
        assert isinstance(reply, r.Refused)
        assert reply.reason is Refusal.TASK_ENDED
    assert play.ledger() == ["QuotaReserved", "QuotaCommitted"]
    assert play.replies(play.cancel(task, name="nothing waits any more"))
    (fact,) = facts(play)
    assert (fact.letter_id, fact.key) == (letter.letter_id, letter.quarantined_key)
    assert (fact.redriven, fact.discarded) == (True, False)
    assert (fact.who, fact.why) == ("anna", "the code is mended")


def test_a_redrive_told_twice_is_applied_once(mended: pytest.MonkeyPatch) -> None:
    play = Play()
    task, _, _ = sick(play, mended)
    (letter,) = letters(play)
    mended.undo()
    command = close(play, letter)
    before = (play.story(task), play.ledger(), play.free_slots())
    tell(play, letter, command)
    assert (play.story(task), play.ledger(), play.free_slots()) == before
    assert letters(play) == [letter]


def test_what_is_poison_again_stays_before_what_waits(mended: pytest.MonkeyPatch) -> None:
    play = Play()
    task, _, cancels = sick(play, mended)
    (letter,) = letters(play)
    close(play, letter)  # nothing is mended
    second = next(one for one in letters(play) if one.replaces)
    assert second.replaces == letter.letter_id
    assert (second.key, second.value) == (letter.quarantined_key.encode(), letter.value)
    assert second.quarantined_key == letter.quarantined_key
    assert facts(play) == []  # it is not done
    assert play.replies(cancels[0]) == []
    assert play.story(task)[-1] == "TaskStarted"
    mended.undo()
    close(play, second)
    assert play.story(task)[-1] == "TaskSucceeded"
    for cancel in cancels:
        assert isinstance(play.replies(cancel)[0], r.Refused)


def test_what_is_discarded_is_never_applied_and_what_waited_goes_on(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play()
    task, _, cancels = sick(play, mended)
    (letter,) = letters(play)
    mended.undo()
    close(play, letter, discard=True)
    assert play.story(task)[-1] == "TaskCanceled"
    assert all(isinstance(play.replies(cancel)[0], r.Accepted) for cancel in cancels)
    (fact,) = facts(play)
    assert (fact.redriven, fact.discarded) == (False, True)


@pytest.mark.parametrize("discard", [True, False], ids=["discarded", "released by hand"])
def test_a_start_that_is_never_applied_loses_no_task(
    mended: pytest.MonkeyPatch,
    discard: bool,  # noqa: FBT001
) -> None:
    """Its pool has dropped it: it asks again, and the next start is good."""
    play = Play()
    task = play.submission("one").task_id
    mended.setattr(attempts, "start", breaks(attempts.start, only=task))
    runner = play.runner()
    play.submit("one")
    (letter,) = letters(play)
    assert play.story(task) == ["TaskCreated", "TaskQueued"]
    mended.undo()
    if discard:
        close(play, letter, discard=True)
    else:
        play.release(Topic(letter.topic), letter.partition, letter.quarantined_key)
    play.flow.tick(5)
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.finish(dispatch)
    assert play.story(task)[-1] == "TaskSucceeded"
    assert play.ledger() == ["QuotaReserved", "QuotaCommitted"]


def test_a_wait_that_its_pool_never_heard_of_is_asked_for_again(
    mended: pytest.MonkeyPatch,
) -> None:
    """It asks again once it should have been started, or have expired, long ago."""
    pools = {
        name: replace(pool, lanes={lane: LanePolicy(ttl_seconds=60) for lane in pool.lanes})
        for name, pool in POLICY.pools.items()
    }
    retries = replace(POLICY.retries, backstop_seconds=10)
    play = Play(policy=replace(POLICY, pools=pools, retries=retries))
    rule = sys.modules["commands.pools.decide"].RULES
    task = play.submission("one").task_id

    def broken(*_: Any) -> None:  # noqa: ANN401
        raise BrokenError

    mended.setitem(rule, c.EnqueueTask, broken)
    play.submit("one")
    (letter,) = letters(play)
    mended.undo()
    close(play, letter, discard=True)
    runner = play.runner()
    assert runner.inbox(r.DispatchAttempt) == []
    play.flow.tick(75, each=runner.beat)
    assert [one.task_id for one in runner.inbox(r.DispatchAttempt)] == [task]


def test_a_creation_that_is_discarded_is_refunded_and_its_user_sees_it_canceled(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play()
    task, letter = broken_creation(play, mended)
    assert play.ledger() == ["QuotaReserved"]
    close(play, letter, discard=True)
    assert play.story(task) == ["TaskCreated", "TaskCanceled"]
    assert play.ledger() == ["QuotaReserved", "QuotaReleased"]


def test_a_submission_that_was_poison_is_redriven_though_nothing_waits(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play()

    def broken(*_: object) -> None:
        raise BrokenError

    mended.setattr(_quota_reserve, "_exceeded", broken)
    command = play.submission("one")
    play.ask(command)
    (letter,) = letters(play)
    assert (letter.quarantined_key, letter.task_id) == ("", command.task_id)
    mended.undo()
    close(play, letter, unknown_at=letter.at)
    assert play.story(command.task_id) == ["TaskCreated", "TaskQueued"]
    assert [fact.redriven for fact in facts(play)] == [True]


@pytest.mark.parametrize("vouched", [False, True], ids=["nobody looked", "looked long ago"])
def test_a_submission_that_was_done_since_is_a_letter_again_and_not_done_twice(
    mended: pytest.MonkeyPatch,
    vouched: bool,  # noqa: FBT001
) -> None:
    """Its user sent the same key again; what is done is forgotten by the deciders in the end."""
    keep = replace(POLICY.keep, ended_seconds=60, failed_seconds=60)
    play = Play(policy=replace(POLICY, keep=keep))
    runner = play.runner()

    def broken(*_: object) -> None:
        raise BrokenError

    mended.setattr(_quota_reserve, "_exceeded", broken)
    command = play.submission("one")
    play.ask(command)
    (letter,) = letters(play)
    mended.undo()
    play.ask(command)
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.finish(dispatch)
    play.flow.tick(200)
    before = (play.story(command.task_id), play.ledger())
    assert before[1] == ["QuotaReserved", "QuotaCommitted"]
    long_ago = letter.at - timedelta(milliseconds=VOUCHED_MS_MAX)
    close(play, letter, unknown_at=long_ago if vouched else None)
    assert (play.story(command.task_id), play.ledger()) == before
    _, second = letters(play)
    assert (second.replaces, second.value) == (letter.letter_id, letter.value)
    assert second.cause.startswith("RedriveRefusedError: ")
    assert "send the same key again" in second.cause
    assert facts(play) == []


def test_a_creation_that_holds_its_key_is_redriven_however_late(
    mended: pytest.MonkeyPatch,
) -> None:
    """Nobody can have begun its task: all that is asked of it waits."""
    play = Play()
    task, letter = broken_creation(play, mended)
    mended.undo()
    close(play, letter)
    assert play.story(task) == ["TaskCreated", "TaskQueued"]
    assert play.ledger() == ["QuotaReserved"]


def test_a_creation_whose_key_was_released_by_hand_is_a_letter_again(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play()
    task, letter = broken_creation(play, mended)
    mended.undo()
    play.release(Topic(letter.topic), letter.partition, letter.quarantined_key)
    close(play, replace(letter, quarantined_key=""))
    assert play.story(task) == []
    _, second = letters(play)
    assert (second.replaces, second.quarantined_key) == (letter.letter_id, "")
    close(play, second, unknown_at=letter.at)
    assert play.story(task) == ["TaskCreated", "TaskQueued"]


def test_bytes_that_nobody_can_read_are_a_letter_again() -> None:
    play = Play(partitions=1)
    play.flow.append_bytes(Topic.TASK_COMMANDS, 0, b"k", b"nonsense")
    play.flow.settle()
    (letter,) = letters(play)
    close(play, letter)
    second = letters(play)[1]
    assert (second.replaces, second.value) == (letter.letter_id, b"nonsense")
    assert facts(play) == []


def test_a_pool_command_is_redriven_into_the_pool_as_it_stands(
    mended: pytest.MonkeyPatch,
) -> None:
    play = Play(partitions=1)
    runner = play.runner(slots=2)
    task = play.submit("one")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    rule = sys.modules["commands.pools.evolve"].EVOLVE
    right = rule[e.SlotFreed]

    def wrong(*args: Any) -> Any:  # noqa: ANN401
        right(*args)
        raise BrokenError

    mended.setitem(rule, e.SlotFreed, wrong)
    runner.finish(dispatch)
    (letter,) = letters(play)
    assert letter.task_id == task
    assert play.free_slots() == 1
    mended.undo()
    close(play, letter)
    assert play.free_slots() == 2
    state = play.flow.rules.pools.states()[0]
    assert state.rows == play.flow.rows(play.flow.rules.pools._table)  # pyright: ignore[reportPrivateUsage]


def test_a_key_that_is_released_by_hand_is_a_fact_too() -> None:
    play = Play(partitions=1)
    play.release(Topic.TASK_COMMANDS, 0, "task/nothing")
    (fact,) = facts(play)
    assert (fact.key, fact.letter_id, fact.redriven, fact.discarded) == (
        "task/nothing",
        "",
        False,
        False,
    )


def test_a_task_that_always_kills_its_worker_ends_as_a_letter_with_the_cause() -> None:
    """Tries are counted in the task's events, whichever runner dies of it and however often."""
    play = Play(partitions=1)
    task = play.submit("deadly")
    for number in range(1, 4):
        runner = play.runner(f"victim-{number}")
        (dispatch,) = runner.inbox(r.DispatchAttempt)
        assert dispatch.token == number
        runner.fail(dispatch, FailureClass.CRASHED)
        play.ask(
            c.DrainRunner(command_id=CommandId(f"gone-{number}"), **runner.place)
        )  # it never comes back
        play.flow.tick(5)
    assert play.story(task)[-1] == "TaskFailed"
    (letter,) = letters(play)
    assert (letter.task_id, letter.failure) == (task, FailureClass.CRASHED)
    assert play.ledger() == ["QuotaReserved", "QuotaReleased"]
    survivor = play.runner("survivor")
    play.flow.tick(60, each=survivor.beat)
    assert survivor.inbox(r.DispatchAttempt) == []


def test_a_task_that_takes_its_whole_runner_with_it_ends_too() -> None:
    """The runner says nothing any more: what counts are the losses, told by its next start."""
    play = Play(partitions=1)
    task = play.submit("deadlier")

    def works(runner: Runner) -> None:
        held = runner.inbox(r.DispatchAttempt)
        for dispatch in held:
            runner.accept(dispatch)
        runner.beat(*held)

    for number in range(1, 7):
        runner = play.runner("victim", incarnation=f"victim.{number}")
        play.flow.tick(150, each=lambda: works(runner))  # noqa: B023 - it is done by then
        assert [one.token for one in runner.inbox(r.DispatchAttempt)] == [number]
    play.runner("victim", incarnation="victim.7")
    assert play.story(task)[-1] == "TaskFailed"
    (letter,) = letters(play)
    assert letter.cause == "retries_spent: runner_replaced"
    assert play.ledger() == ["QuotaReserved", "QuotaReleased"]
