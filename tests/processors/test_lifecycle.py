"""A task from its submission to its end, through every shell."""

import pytest

from schema import commands as c
from schema import events as e
from schema import replies as r
from schema.failures import FailureClass
from schema.ids import NO_TENANT, CommandId
from schema.objects import content_key
from schema.refusals import Refusal
from schema.topics import Topic
from schema.words import LossCause
from tests.processors.play import ANN, BEN, POLICY, TIER, Play


@pytest.fixture(params=[1, 2, 3])
def play(request: pytest.FixtureRequest) -> Play:
    """The flow, whatever the number of partitions."""
    return Play(partitions=request.param)


def test_a_submission_becomes_a_result_and_is_paid_once(play: Play) -> None:
    runner = play.runner()
    task = play.submit("one")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    assert (dispatch.task_id, dispatch.token, play.free_slots()) == (task, 1, 0)
    runner.accept(dispatch)
    runner.finish(dispatch, card_seconds=2.0)
    assert play.story(task) == ["TaskCreated", "TaskQueued", "TaskStarted", "TaskSucceeded"]
    ledger = play.flow.messages(Topic.QUOTA_EVENTS)
    (committed,) = [event for event in ledger if isinstance(event, e.QuotaCommitted)]
    assert committed.amount_micros == 100_000 + 2 * 10_000
    assert committed.amount_micros + committed.released_micros == 1_000_000
    assert play.free_slots() == 1
    assert play.told(Topic.REFUSALS, r.CommandRefused) == []


def test_who_submits_is_answered_with_what_is_reserved_and_left(play: Play) -> None:
    command = play.submission("one", tier="free")
    play.ask(command)
    (reply,) = play.replies(command)
    assert isinstance(reply, r.Accepted)
    assert (reply.key, reply.seq, reply.status) == (command.task_id, 1, "CREATED")
    assert reply.reserved_micros == 1_000_000
    assert reply.remaining is not None
    assert (reply.remaining.day, reply.remaining.credits_micros) == (4, 4_000_000)


def test_over_quota_is_refused_as_a_fact_and_as_an_answer(play: Play) -> None:
    for number in range(5):
        play.submit(f"key-{number}", tier="free")
    command = play.submission("too many", tier="free")
    play.ask(command)
    (reply,) = play.replies(command)
    assert isinstance(reply, r.Refused)
    assert reply.reason is Refusal.DAY_EXHAUSTED
    (fact,) = play.told(Topic.REFUSALS, r.CommandRefused)
    assert (fact.command_id, fact.reason) == (command.command_id, Refusal.DAY_EXHAUSTED)
    assert play.story(command.task_id) == []


def test_a_task_waits_for_its_material_and_goes_when_it_is_ready(play: Play) -> None:
    runner = play.runner()
    clip = play.register()
    material = clip.material_id
    task = play.submit("with a clip", materials=(material,))
    play.flow.tick(10)
    play.complete(clip)
    assert play.story(task) == ["TaskCreated"]
    play.conclude(clip)
    assert play.story(task) == ["TaskCreated", "TaskQueued", "TaskStarted"]
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    assert dispatch.material_ids == (material,)
    assert dispatch.content_keys == {material: content_key(NO_TENANT, ANN, clip.sha256)}


def test_a_task_waits_as_long_as_its_upload_goes_on(play: Play) -> None:
    clip = play.register()
    task = play.submit("with a clip", materials=(clip.material_id,))
    for minute in range(1, 21):
        play.flow.tick(60)
        play.touch(clip, minute)
    assert play.story(task) == ["TaskCreated", *["TaskWaitExtended"] * 20]
    play.flow.tick(899)
    assert play.story(task)[-1] == "TaskWaitExtended"
    play.flow.tick(2)
    assert play.story(task)[-1] == "TaskExpired"
    assert play.ledger()[-1] == "QuotaReleased"


def test_a_clip_longer_than_the_tier_takes_cancels_its_task_with_the_reason(play: Play) -> None:
    clip = play.register()
    task = play.submit("with a clip", materials=(clip.material_id,))
    play.complete(clip)
    play.conclude(clip, seconds=POLICY.tiers[TIER].input_seconds_max + 1)
    canceled = play.told(Topic.TASK_EVENTS, e.TaskCanceled)[-1]
    assert (canceled.task_id, canceled.charge_micros) == (task, 0)
    assert (canceled.cause, canceled.reason) == ("material_refused", "material_too_long")
    assert play.ledger()[-1] == "QuotaReleased"


def test_a_task_whose_material_never_comes_expires_and_is_refunded(play: Play) -> None:
    material = play.register().material_id
    task = play.submit("with a clip", materials=(material,))
    play.flow.tick(899)
    assert play.story(task) == ["TaskCreated"]
    play.flow.tick(2)
    assert play.story(task) == ["TaskCreated", "TaskExpired"]
    assert play.ledger()[-1] == "QuotaReleased"


def test_a_material_that_is_not_what_was_declared_cancels_its_task(play: Play) -> None:
    clip = play.register()
    task = play.submit("with a clip", materials=(clip.material_id,))
    play.store(clip, size=8)
    canceled = play.told(Topic.TASK_EVENTS, e.TaskCanceled)[-1]
    assert (canceled.task_id, canceled.charge_micros) == (task, 0)
    assert canceled.reason == "size_mismatch"
    assert play.ledger()[-1] == "QuotaReleased"


def test_a_failure_is_tried_again_after_its_delay_and_no_sooner(play: Play) -> None:
    runner = play.runner()
    task = play.submit("one")
    (first,) = runner.inbox(r.DispatchAttempt)
    runner.fail(first, FailureClass.NETWORK)
    assert play.story(task)[-1] == "TaskRequeued"
    assert play.free_slots() == 1
    for _ in range(2):
        play.flow.tick()
        runner.beat()
    first, second = runner.inbox(r.DispatchAttempt)
    assert second.token == 2
    runner.finish(second)
    assert play.story(task)[-1] == "TaskSucceeded"


def test_spent_retries_fail_the_task_refund_it_and_leave_a_letter_that_names_its_place(
    play: Play,
) -> None:
    runner = play.runner(slots=2)
    task = play.submit("cursed")
    for attempt in range(3):
        runner.fail(runner.inbox(r.DispatchAttempt)[attempt], FailureClass.OUT_OF_MEMORY)
        play.flow.tick(5)
        runner.beat()
    assert play.story(task)[-1] == "TaskFailed"
    assert play.ledger()[-1] == "QuotaReleased"
    (letter,) = play.told(Topic.DEAD_LETTERS, r.DeadLetter)
    assert (letter.task_id, letter.cause) == (task, "retries_spent")
    record = play.flow.log[letter.topic, letter.partition][letter.offset]
    assert b"task.fail.v1" in (record.value or b"")
    assert record.key == task.encode()


@pytest.mark.parametrize("when", ["created", "queued", "running", "delayed"])
def test_a_task_is_canceled_wherever_it_is(play: Play, when: str) -> None:
    clip = play.register().material_id
    runner = None if when in {"created", "queued"} else play.runner()
    task = play.submit("one", materials=(clip,) if when == "created" else ())
    if when == "delayed":
        assert runner is not None
        runner.fail(runner.inbox(r.DispatchAttempt)[0], FailureClass.NETWORK)
    command = play.cancel(task)
    (reply,) = play.replies(command)
    assert isinstance(reply, r.Accepted)
    assert play.story(task)[-1] == "TaskCanceled"
    assert play.ledger()[-1] in {"QuotaReleased", "QuotaCommitted"}
    if when == "running":
        assert runner is not None
        (stop,) = runner.inbox(r.StopAttempt)
        assert (stop.task_id, stop.token) == (task, 1)
        assert play.free_slots() == 0  # until the process group is gone
        runner.free(runner.inbox(r.DispatchAttempt)[0])
        assert play.free_slots() == 1


def test_a_stranger_cancels_nothing(play: Play) -> None:
    task = play.submit("one")
    reply = play.replies(play.cancel(task, user=BEN))[0]
    assert isinstance(reply, r.Refused)
    assert reply.reason is Refusal.NOT_YOURS
    assert play.story(task)[-1] == "TaskQueued"


def test_a_failed_task_is_retried_by_hand_on_a_new_reservation(play: Play) -> None:
    runner = play.runner()
    task = play.submit("one")
    runner.fail(runner.inbox(r.DispatchAttempt)[0], FailureClass.INPUT)
    assert play.story(task)[-1] == "TaskFailed"
    (reply,) = play.replies(play.retry(task))
    assert isinstance(reply, r.Accepted)
    dispatch = runner.inbox(r.DispatchAttempt)[-1]
    assert dispatch.token == 2
    runner.finish(dispatch)
    assert play.story(task)[-3:] == ["TaskRetried", "TaskStarted", "TaskSucceeded"]
    reserved = [name for name in play.ledger() if name == "QuotaReserved"]
    resolved = [name for name in play.ledger() if name in {"QuotaCommitted", "QuotaReleased"}]
    assert len(reserved) == len(resolved) == 2


def test_a_retry_that_the_task_does_not_take_gives_its_reservation_back(play: Play) -> None:
    task = play.submit("one")
    (reply,) = play.replies(play.retry(task))
    assert isinstance(reply, r.Refused)
    assert reply.reason is Refusal.TASK_NOT_FAILED
    assert play.ledger() == ["QuotaReserved", "QuotaReserved", "QuotaReleased"]


def test_a_lost_runner_cannot_finish_the_next_attempt(play: Play) -> None:
    lost = play.runner("lost")
    task = play.submit("one")
    (first,) = lost.inbox(r.DispatchAttempt)
    lost.accept(first)
    play.flow.tick(32)  # its lease ends: it beats no more
    other = play.runner("other")
    play.flow.tick(4)
    (second,) = other.inbox(r.DispatchAttempt)
    assert (second.task_id, second.token) == (task, 2)
    lost.finish(first)
    stale = play.told(Topic.REFUSALS, r.CommandRefused)[0]
    assert (stale.command, stale.reason) == ("task.finish.v1", Refusal.TOKEN_STALE)
    assert play.story(task)[-1] == "TaskStarted"
    other.finish(second)
    assert play.story(task).count("TaskSucceeded") == 1


def test_what_an_old_incarnation_held_is_queued_again_at_once(play: Play) -> None:
    old = play.runner("gpu", incarnation="first")
    task = play.submit("one")
    old.accept(old.inbox(r.DispatchAttempt)[0])
    new = play.runner("gpu", incarnation="second")
    requeued = play.told(Topic.TASK_EVENTS, e.TaskRequeued)[-1]
    assert (requeued.task_id, requeued.loss) == (task, LossCause.RUNNER_REPLACED)
    assert not requeued.counted
    for _ in range(3):
        play.flow.tick()
        new.beat()
    assert new.inbox(r.DispatchAttempt)[-1].token == 2
    old.beat()
    assert old.inbox(r.RunnerDismissed)


def test_beats_keep_a_lease_for_hours_and_nothing_is_dispatched_twice(play: Play) -> None:
    runner = play.runner()
    play.submit("long")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.accept(dispatch)
    for _ in range(140):  # the run limit of 120 s and the backstop behind it are the task's
        play.flow.tick(5)
        runner.beat(dispatch)
    assert runner.inbox(r.DispatchAttempt) == [dispatch]
    assert all(len(one.held) == 1 for one in runner.inbox(r.BeatAnswered)[2:])


def test_a_drained_runner_gives_its_task_back_and_is_let_go(play: Play) -> None:
    runner, other = play.runner("a"), play.runner("b")
    task = play.submit("one")
    holder, idle = (runner, other) if runner.inbox(r.DispatchAttempt) else (other, runner)
    (dispatch,) = holder.inbox(r.DispatchAttempt)
    holder.accept(dispatch)
    play.ask(c.DrainRunner(command_id=CommandId("drain"), **holder.place))
    holder.give_back(dispatch)
    (again,) = idle.inbox(r.DispatchAttempt)
    assert (again.task_id, again.token) == (task, 2)
    assert play.told(Topic.POOL_EVENTS, e.RunnerGone)[-1].runner_id == holder.runner_id
    holder.beat()
    assert holder.inbox(r.RunnerDismissed)  # so it knows that nothing more will come
