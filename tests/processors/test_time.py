"""Only the log's time counts, and of that only what was served."""

import pytest

from schema import events as e
from schema import replies as r
from schema.topics import Topic
from schema.words import LossCause
from tests.processors.play import Play

MINUTE = 60


def away(play: Play, seconds: int) -> None:
    """Nobody serves: the broker's clock goes on, no tick is appended."""
    play.flow.now_ms += seconds * 1_000


@pytest.fixture
def play() -> Play:
    return Play()


@pytest.mark.parametrize("seconds", [30 * MINUTE, 10 * MINUTE, 12 * 60 * MINUTE])
def test_an_outage_ends_no_task_and_burns_no_retry(play: Play, seconds: int) -> None:
    """The same if the broker's clock jumps ahead: nobody can tell one from the other."""
    runner = play.runner()
    clip = play.register()
    created = play.submit("waits for its clip", materials=(clip.material_id,))
    running = play.submit("runs")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.accept(dispatch)
    queued = play.submit("waits for a slot")
    play.flow.tick(3)
    away(play, seconds)
    play.flow.tick(2)
    assert play.story(created) == ["TaskCreated"]
    assert play.story(queued) == ["TaskCreated", "TaskQueued"]
    assert play.story(running)[-1] == "TaskStarted"
    runner.beat(dispatch)
    play.flow.tick(10)
    runner.finish(dispatch)
    assert play.story(running)[-1] == "TaskSucceeded"
    assert play.story(queued)[-1] == "TaskStarted"  # the slot is the next one's
    assert play.told(Topic.TASK_EVENTS, e.TaskRequeued) == []


def test_a_task_waits_on_while_nobody_looks_at_its_clip_and_the_prober_is_asked_again(
    play: Play,
) -> None:
    clip = play.register()
    task = play.submit("waits for its clip", materials=(clip.material_id,))
    play.complete(clip)
    play.flow.tick(31 * MINUTE)
    assert play.story(task)[0] == "TaskCreated"
    assert set(play.story(task)[1:]) == {"TaskWaitExtended"}
    tries = play.told(Topic.MATERIAL_EVENTS, e.MaterialAssembling)
    assert [one.number for one in tries] == [1, 2, 3, 4, 5]  # at 0, 2, 6, 14, 24 minutes
    play.conclude(clip)
    assert "TaskQueued" in play.story(task)


def test_after_an_outage_a_lease_has_as_long_as_it_had_before(play: Play) -> None:
    runner = play.runner()
    task = play.submit("one")
    runner.accept(runner.inbox(r.DispatchAttempt)[0])
    play.flow.tick(20)
    away(play, 10 * MINUTE)
    play.flow.tick(8)
    assert play.story(task)[-1] == "TaskStarted"
    play.flow.tick(6)
    lost = play.told(Topic.TASK_EVENTS, e.TaskRequeued)
    assert [(one.task_id, one.loss, one.counted) for one in lost] == [
        (task, LossCause.LEASE_EXPIRED, False)
    ]


def test_a_dispatch_that_nobody_accepts_goes_back_and_is_no_retry(play: Play) -> None:
    deaf = play.runner("deaf")
    task = play.submit("one")
    play.flow.tick(9)
    assert play.story(task)[-1] == "TaskStarted"
    play.flow.tick(2)
    (requeued,) = play.told(Topic.TASK_EVENTS, e.TaskRequeued)
    assert (requeued.loss, requeued.counted) == (LossCause.NOT_ACCEPTED, False)
    assert deaf.inbox(r.StopAttempt)
    assert play.free_slots() == 0  # its slot waits for its word


def test_a_hung_attempt_ends_at_the_backstop_whatever_its_runner_says(play: Play) -> None:
    runner = play.runner()
    task = play.submit("hangs")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.accept(dispatch)
    for _ in range((120 + 600) // 5):
        play.flow.tick(5)
        runner.beat(dispatch)
    (requeued,) = play.told(Topic.TASK_EVENTS, e.TaskRequeued)
    assert (requeued.task_id, requeued.loss, requeued.counted) == (task, LossCause.BACKSTOP, True)
    (stop,) = runner.inbox(r.StopAttempt)
    assert (stop.task_id, stop.token) == (task, 1)


def test_who_waits_too_long_expires_and_is_refunded(play: Play) -> None:
    task = play.submit("one")
    for _ in range(6 * 60):
        play.flow.tick(MINUTE)
        if play.story(task)[-1] == "TaskExpired":
            break
    assert play.story(task) == ["TaskCreated", "TaskQueued", "TaskExpired"]
    assert play.ledger() == ["QuotaReserved", "QuotaReleased"]
