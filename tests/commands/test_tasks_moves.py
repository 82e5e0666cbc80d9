"""Stories of where a task waits and how richly it is made, and what its pool hears of it."""

import msgspec
import pytest

from commands import tasks
from commands.tasks.follow_ups import MODEL_CHARACTERS_MAX
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import PoolId
from schema.policy import LanePolicy, Policy, PoolPolicy, RetryPolicy
from schema.refusals import Refusal
from schema.replies import DispatchAttempt, StopAttempt
from schema.words import Lane, LossCause, MoveReason
from tests.support import task_words as w
from tests.support.spec import Story, a


def queued(*, lower: bool = False) -> Story:
    return w.world().given(w.create(lower=lower))


def with_spare(lanes: dict[Lane, LanePolicy], lower_lane: Lane | None = None) -> Story:
    pools = {
        w.POOL: PoolPolicy(
            lanes={Lane.P0: LanePolicy()}, spare_pool=w.SPARE, lower_lane=lower_lane
        ),
        w.SPARE: PoolPolicy(lanes=lanes),
    }
    return w.world(Policy(version=1, scenes={}, tiers={}, pools=pools, retries=w.RETRIES))


# --- moved ----------------------------------------------------------------------------------------


def test_a_waiting_task_leaves_one_pool_for_another_in_one_decision() -> None:
    story = queued()
    story.when(w.move()).then(
        a(
            e.TaskMoved,
            token=0,
            pool_id=w.SPARE,
            lane=Lane.P1,
            lower_spec=False,
            reason=MoveReason.POOL_FULL,
        )
    ).orders(
        a(c.DequeueTask, pool_id=w.POOL, token=0),
        a(c.EnqueueTask, pool_id=w.SPARE, lane=Lane.P1, token=0, moved=True),
    )
    story.when(w.move()).nothing()


def test_within_one_pool_it_leaves_before_it_comes_back() -> None:
    queued().when(w.move(pool=w.POOL, lane=Lane.P2)).orders(
        a(c.DequeueTask, pool_id=w.POOL), a(c.EnqueueTask, pool_id=w.POOL, lane=Lane.P2)
    )


def test_a_task_is_moved_once_in_its_life() -> None:
    story = queued().given(w.move())
    story.when(w.move(pool=PoolId("C"))).refused(Refusal.TASK_NOT_MOVABLE).orders()
    story.given(w.start(), w.give_back())
    story.when(w.move(1, w.POOL, Lane.P0)).refused(Refusal.TASK_NOT_MOVABLE)
    assert story.row_of(w.TASK).spec.pool_id == w.SPARE


def test_a_start_and_a_move_that_cross_make_one_start() -> None:
    story = queued().given(w.move())
    story.when(w.start()).then(a(e.TaskStarted, pool_id=w.POOL)).orders(
        DispatchAttempt, a(c.GrantAttempt, pool_id=w.POOL), a(c.DequeueTask, pool_id=w.SPARE)
    )
    other = queued().given(w.start())
    other.when(w.move()).refused(Refusal.TASK_NOT_QUEUED).orders()


def test_after_a_failure_a_moved_task_waits_where_it_was_moved_to() -> None:
    story = queued().given(w.move(), w.start(), w.fail()).after(10)
    story.due().then(a(e.TaskQueued, pool_id=w.SPARE, lane=Lane.P1)).orders(
        a(c.EnqueueTask, pool_id=w.SPARE, lane=Lane.P1, moved=True)
    )


def test_a_cancel_reaches_the_pool_where_the_task_waits() -> None:
    queued().given(w.move()).when(w.cancel()).orders(
        c.ReleaseReservation, a(c.DequeueTask, pool_id=w.SPARE, token=0, moved=True)
    )


def test_a_wait_at_the_other_pool_ends_like_any_other() -> None:
    queued().given(w.move()).when(w.expire()).then(a(e.TaskExpired, token=0))


def test_a_wait_that_ends_at_the_old_pool_while_the_task_moves_leaves_the_new_one_too() -> None:
    queued().given(w.move()).when(w.expire()).orders(
        c.ReleaseReservation, a(c.DequeueTask, pool_id=w.SPARE, token=0)
    )
    queued().when(w.expire()).orders(c.ReleaseReservation)


def test_a_retry_by_hand_goes_where_the_task_was_moved_to() -> None:
    story = queued().given(w.move(), w.start(), w.fail(failure=FailureClass.INPUT))
    story.when(w.requeue()).orders(a(c.EnqueueTask, pool_id=w.SPARE, moved=True))


# --- made with less -------------------------------------------------------------------------------


def test_a_task_may_be_moved_to_its_lower_spec_and_its_runner_hears_of_it() -> None:
    story = queued(lower=True)
    story.when(w.move(pool=w.POOL, lane=Lane.P0, lower=True)).then(
        a(e.TaskMoved, lower_spec=True)
    ).orders(c.DequeueTask, a(c.EnqueueTask, lower_spec=False, moved=True))
    assert story.when(w.start()).order().lower_spec is True


def test_what_cannot_be_made_with_less_is_not() -> None:
    story = queued()
    asked = w.move(pool=w.POOL, lane=Lane.P0, lower=True)
    story.when(asked).refused(Refusal.TASK_NOT_MOVABLE)
    assert story.when(w.start()).order().lower_spec is False


def test_out_of_memory_it_is_made_with_less_once() -> None:
    story = queued(lower=True).given(w.start())
    story.when(w.fail()).then(a(e.TaskRequeued, lower_spec=True, counted=True, delay_ms=10_000))
    story.after(10).due().orders(a(c.EnqueueTask, lower_spec=False, moved=True))
    assert story.when(w.start(2)).order().lower_spec is True
    story.when(w.fail(2)).then(a(e.TaskRequeued, lower_spec=False, counted=True))


# --- a pool that is full --------------------------------------------------------------------------


def test_from_a_full_pool_it_goes_to_the_spare_one_at_once() -> None:
    story = with_spare({Lane.P0: LanePolicy()}).given(w.create(), w.start())
    story.when(w.fail(failure=FailureClass.POOL_FULL)).then(
        a(e.TaskRequeued, counted=True, delay_ms=0),
        a(e.TaskQueued, pool_id=w.POOL),
        a(e.TaskMoved, token=1, pool_id=w.SPARE, lane=Lane.P0),
    ).orders(
        a(c.EnqueueTask, pool_id=w.SPARE, lane=Lane.P0, token=1, moved=True),
        a(c.EndAttempt, failure=FailureClass.POOL_FULL),
    )
    story.when(w.fail(failure=FailureClass.POOL_FULL)).nothing()
    story.given(w.start(2))
    story.when(w.fail(2, FailureClass.POOL_FULL)).then(
        a(e.TaskRequeued, delay_ms=30_000, lower_spec=False)
    )


@pytest.mark.parametrize(
    ("lower_lane", "moves"), [(Lane.P2, True), (Lane.P1, False), (None, False)]
)
def test_a_spare_pool_without_its_lane_takes_it_in_the_lower_one(
    lower_lane: Lane | None, *, moves: bool
) -> None:
    story = with_spare({Lane.P2: LanePolicy()}, lower_lane).given(w.create(lower=True), w.start())
    outcome = story.when(w.fail(failure=FailureClass.POOL_FULL))
    if moves:
        outcome.orders(a(c.EnqueueTask, pool_id=w.SPARE, lane=Lane.P2), c.EndAttempt)
    else:
        outcome.then(a(e.TaskRequeued, lower_spec=True, delay_ms=10_000))


# --- what the pool hears --------------------------------------------------------------------------


def test_a_wait_carries_weight_model_and_spec() -> None:
    created = w.create(weight=3, lower=True, parameters={"model": "sdxl", "steps": 30})
    w.world().when(created).orders(
        a(
            c.EnqueueTask,
            weight=3,
            model="sdxl",
            deadline_ms=None,
            moved=False,
            preemptions=0,
            lower_spec=True,
        )
    )


@pytest.mark.parametrize("model", [None, 7, ["sdxl"], {"a": 1}, "x" * (MODEL_CHARACTERS_MAX + 1)])
def test_what_is_no_name_of_a_model_is_none(model: object) -> None:
    created = w.create(parameters={"model": model})
    w.world().when(created).orders(a(c.EnqueueTask, model=""))


def test_a_deadline_travels_as_what_is_left_of_it_and_stands_still_in_an_outage() -> None:
    story = w.world().given(w.create(deadline=60), w.start()).after(5)
    story.when(w.give_back()).orders(c.EndAttempt, a(c.EnqueueTask, deadline_ms=55_000))
    story.after_outage(7200).given(w.start(2)).after(65)
    story.when(w.give_back(2)).orders(c.EndAttempt, a(c.EnqueueTask, deadline_ms=-10_000))


def test_a_deadline_counts_from_the_request_and_not_from_its_material() -> None:
    story = w.world().given(w.create(w.CLIP, deadline=60)).after(20)
    story.when(w.confirm()).orders(a(c.EnqueueTask, deadline_ms=40_000))


def test_a_retry_by_hand_has_no_deadline() -> None:
    story = w.world().given(w.create(deadline=60), w.start(), w.fail(failure=FailureClass.INPUT))
    story.when(w.requeue()).orders(a(c.EnqueueTask, deadline_ms=None))


def test_preemptions_are_counted_apart_and_told_also_after_a_retry_by_hand() -> None:
    story = queued()
    for token in range(1, 8):
        story.given(w.start(token))
        story.when(w.give_back(token, LossCause.PREEMPTED)).then(
            a(e.TaskRequeued, counted=False, delay_ms=0), e.TaskQueued
        ).orders(c.EndAttempt, a(c.EnqueueTask, preemptions=token))
    story.given(w.start(8), w.fail(8, FailureClass.INPUT))
    story.when(w.requeue()).orders(a(c.EnqueueTask, preemptions=7))
    assert story.row_of(w.TASK).course.losses == 0


@pytest.mark.parametrize("cause", [LossCause.SPOT, LossCause.DRAINED, LossCause.PREEMPTED])
def test_what_was_taken_for_others_waits_again_at_once_and_burns_no_retry(
    cause: LossCause,
) -> None:
    for end in (w.give_back(cause=cause), w.lose(cause=cause)):
        story = queued().given(w.start())
        outcome = story.when(end)
        assert [type(event) for event in outcome.events] == [e.TaskRequeued, e.TaskQueued]
        assert outcome.events[0].counted is False
        assert story.row_of(w.TASK).course.retries == 0


def test_a_card_that_is_taken_back_again_and_again_ends_the_task_at_last() -> None:
    story = queued()
    for token in range(1, 6):
        story.given(w.start(token)).when(w.lose(token, LossCause.SPOT)).then(
            e.TaskRequeued, e.TaskQueued
        )
    story.given(w.start(6))
    story.when(w.lose(6, LossCause.SPOT)).then(
        a(e.TaskFailed, failure=FailureClass.RETRIES_SPENT, loss=LossCause.SPOT)
    )


def test_what_a_checkpoint_keeps_is_not_burnt() -> None:
    story = queued().given(w.start())
    kept = w.give_back(checkpoint="step-7", saved_ms=2_000)
    story.when(kept).then(a(e.TaskRequeued, card_ms=3_000, saved_ms=2_000), e.TaskQueued)
    story.given(w.start(2))
    story.when(w.give_back(2, saved_ms=2_000)).then(a(e.TaskRequeued, saved_ms=0), e.TaskQueued)
    story.given(w.start(3))
    more = w.give_back(3, checkpoint="step-9", saved_ms=9_000)
    story.when(more).then(a(e.TaskRequeued, card_ms=3_000, saved_ms=3_000), e.TaskQueued)


def test_nothing_is_kept_of_what_begins_anew() -> None:
    story = queued().given(w.start())
    over = w.give_back(cause=LossCause.BACKSTOP, checkpoint="step-7", saved_ms=2_000)
    story.when(over).then(a(e.TaskRequeued, counted=True, checkpoint="", saved_ms=0))


def test_each_end_tells_the_pool_what_it_says_of_the_card() -> None:
    def over(story: Story, command: object) -> c.EndAttempt:
        orders = story.when(command).decision.orders
        (told,) = [one for one in orders if isinstance(one, c.EndAttempt)]
        return told

    well = over(queued().given(w.start()), w.finish())
    assert (well.ended_well, well.failure, well.card_ms) == (True, None, 20_000)
    badly = over(queued().given(w.start()), w.fail())
    assert (badly.ended_well, badly.failure) == (False, FailureClass.OUT_OF_MEMORY)
    assert badly.card_ms == 5_000
    for command in (w.give_back(), w.cancel()):
        other = over(queued().given(w.start()).after(3), command)
        assert (other.ended_well, other.failure, other.card_ms) == (False, None, 3_000)
    story = queued().given(w.start()).after(w.BACKSTOP)
    late = story.due()
    late.orders(StopAttempt, a(c.EndAttempt, failure=FailureClass.TIME_LIMIT, ended_well=False))
    story = queued().given(w.start(), w.store()).after(4200)
    told = a(c.EndAttempt, failure=FailureClass.STORE, ended_well=False)
    story.due().orders(c.ReleaseReservation, StopAttempt, told)


def test_a_pool_hears_how_an_attempt_ended_before_it_hears_that_the_task_waits_again() -> None:
    """A wait ends the attempt before it without a word on the card, which is heard once."""
    at_once = RetryPolicy(delays_ms=(0, 0))
    story = w.world(Policy(version=1, scenes={}, tiers={}, pools={}, retries=at_once))
    story.given(w.create(), w.start()).when(w.fail()).orders(
        a(c.EndAttempt, token=1, failure=FailureClass.OUT_OF_MEMORY, card_ms=5_000),
        a(c.EnqueueTask, token=1),
    )


def test_rows_of_an_earlier_release_are_read() -> None:
    decoder: msgspec.json.Decoder[tasks.TaskRow] = msgspec.json.Decoder(tasks.ROW)
    row = decoder.decode(
        b'["queued",2,["alice000007","acme","t-acme","autocut","p0","A",600,{},[],""],'
        b'[["submit-1"],7,{"base_micros":1,"card_second_micros":1,"card_seconds_max":6},0],'
        b'[3,1,2,30,"step-7","preempted"]]'
    )
    assert isinstance(row, tasks.Queued)
    assert (row.spec.moved, row.spec.deadline_ms, row.course.preemptions) == (False, None, 0)
