"""Stories of a task: what follows, what is ordered from others, and who is answered."""

from typing import Any

import msgspec
import pytest

from commands import tasks
from commands.tasks.losing import jittered
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import CommandId, MaterialId, TaskId, TenantId, UserId
from schema.policy import KeepPolicy, LanePolicy, Policy, Price, RetryPolicy
from schema.refusals import Refusal
from schema.replies import Accepted, DeadLetter, DispatchAttempt, Refused, StopAttempt
from schema.words import CancelCause, LossCause, Status
from tests.support import task_words as w
from tests.support.spec import Story, a

STRANGER = UserId("mallorymallorymallor000007")


def queued() -> Story:
    return w.world().given(w.create())


def running() -> Story:
    return w.world().given(w.create(), w.start())


def storing() -> Story:
    return running().after(20).given(w.store())


# --- created -> queued --------------------------------------------------------------------------


def test_a_task_without_material_goes_straight_to_its_pool() -> None:
    outcome = w.world().when(w.create())
    outcome.then(
        a(e.TaskCreated, seq=1, reservation_id="submit-1", reserved_micros=w.RESERVED),
        a(e.TaskQueued, seq=2, pool_id=w.POOL),
    ).orders(a(c.EnqueueTask, token=0, pool_id=w.POOL, account_id=w.ACCOUNT, lane="p0"))


def test_a_task_with_material_asks_each_of_them_once_and_waits() -> None:
    story = w.world()
    story.when(w.create(w.CLIP, w.LOGO, w.CLIP)).then(e.TaskCreated).orders(
        a(c.AttachMaterial, material_id=w.CLIP, user_id=w.USER, tenant_id=w.TENANT),
        a(c.AttachMaterial, material_id=w.LOGO, task_id=w.TASK),
    )
    story.when(w.confirm(w.LOGO)).then(a(e.TaskMaterialConfirmed, material_id=w.LOGO)).orders()
    story.when(w.confirm(w.LOGO)).nothing()
    story.when(w.confirm(w.CLIP)).then(e.TaskQueued).orders(a(c.EnqueueTask, token=0))
    story.when(w.confirm(w.CLIP)).nothing()


@pytest.mark.parametrize("materials", [(), (w.CLIP,)])
def test_a_result_hears_of_the_task_that_publishes_it_once_that_is_accepted(
    materials: tuple[MaterialId, ...],
) -> None:
    preview = TaskId("previewpreviewpreviewpreview000007")
    told = w.create(*materials)
    origin = msgspec.structs.replace(told.origin, publishes=preview)
    command = msgspec.structs.replace(told, origin=origin)
    story = w.world()
    story.when(command)
    (order,) = (one for one in story.ordered if isinstance(one, c.PublishResult))
    assert (order.task_id, order.by, order.user_id) == (preview, w.TASK, w.USER)
    assert (order.tenant_id, order.reply_to) == (w.TENANT, None)
    story.when(command).nothing()


def test_a_task_whose_material_is_refused_is_canceled_by_the_system_and_paid_back() -> None:
    story = w.world().given(w.create(w.CLIP, w.LOGO))
    story.when(w.reject()).then(
        a(
            e.TaskCanceled,
            cause=CancelCause.MATERIAL_REFUSED,
            reason="material_mismatch",
            charge_micros=0,
            token=0,
        )
    ).orders(a(c.ReleaseReservation, reservation_id="submit-1", ran=False))
    story.when(w.reject(w.LOGO)).nothing()
    story.when(w.confirm(w.LOGO)).nothing()
    story.when(w.extend(w.LOGO)).nothing()


LIMITS = c.InputLimits(seconds_max=60, bytes_max=1_000, pixels_max=500)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"seconds": 61.0}, "material_too_long"),
        ({"size": 1_001}, "material_too_large"),
        ({"pixels": 501}, "pixels_too_many"),
        ({"seconds": 61.0, "size": 1_001, "pixels": 501}, "material_too_long"),
    ],
)
def test_a_material_beyond_its_tier_cancels_the_task_and_pays_it_back(
    told: dict[str, Any], reason: str
) -> None:
    story = w.world().given(w.create(w.CLIP, w.LOGO, limits=LIMITS))
    story.when(w.confirm(**told)).then(
        a(e.TaskCanceled, cause=CancelCause.MATERIAL_REFUSED, reason=reason, charge_micros=0)
    ).orders(a(c.ReleaseReservation, reservation_id="submit-1", ran=False))
    story.when(w.confirm(**told)).nothing()
    last = w.world().given(w.create(w.CLIP, limits=LIMITS))
    last.when(w.confirm(**told)).then(a(e.TaskCanceled, reason=reason))


def test_a_material_at_the_limits_of_its_tier_is_taken() -> None:
    just = w.confirm(seconds=60.999, size=1_000, pixels=500)
    w.world().given(w.create(w.CLIP, limits=LIMITS)).when(just).then(e.TaskQueued)
    beyond = w.confirm(seconds=10_000, size=10**9, pixels=10**9)
    w.world().given(w.create(w.CLIP)).when(beyond).then(e.TaskQueued)


def test_the_runner_hears_where_each_material_stands_also_in_a_later_attempt() -> None:
    story = w.world().given(w.create(w.CLIP, w.LOGO))
    story.when(w.confirm(w.LOGO, key="contents/t-acme/2")).then(
        a(e.TaskMaterialConfirmed, material_id=w.LOGO, content_key="contents/t-acme/2")
    )
    story.when(w.confirm(key="contents/t-acme/1")).then(
        a(e.TaskQueued, material_id=w.CLIP, content_key="contents/t-acme/1")
    )
    keys = {w.CLIP: "contents/t-acme/1", w.LOGO: "contents/t-acme/2"}
    dispatch = story.when(w.start()).order()
    assert (dispatch.material_ids, dispatch.content_keys) == ((w.CLIP, w.LOGO), keys)
    (queued_again,) = story.given(w.fail()).after(10).due().then(e.TaskQueued).events
    assert (queued_again.material_id, queued_again.content_key) == (None, "")
    assert story.when(w.start(2)).order().content_keys == keys


def test_a_material_of_an_older_release_has_no_key() -> None:
    story = w.world().given(w.create(w.CLIP), w.confirm())
    assert story.when(w.start()).order().content_keys == {}


def test_a_material_that_is_none_of_the_task_is_refused() -> None:
    story = w.world().given(w.create(w.CLIP))
    story.when(w.confirm(w.LOGO)).refused(Refusal.MATERIAL_UNKNOWN)
    story.when(w.reject(w.LOGO)).refused(Refusal.MATERIAL_UNKNOWN)


def test_a_task_whose_material_never_comes_expires_and_is_paid_back() -> None:
    story = w.world().given(w.create(w.CLIP)).after(899.999)
    assert story.tick() == []
    story.after(0.001).due().then(a(e.TaskExpired, token=0)).orders(
        a(c.ReleaseReservation, reservation_id="submit-1", ran=False)
    )


def test_each_material_that_comes_gives_the_others_their_time_again() -> None:
    story = w.world().given(w.create(w.CLIP, w.LOGO)).after(800).given(w.confirm())
    assert story.after(899).tick() == []
    story.after(1).due().then(e.TaskExpired)


def test_an_upload_that_goes_on_gives_the_task_its_time_again() -> None:
    story = w.world().given(w.create(w.CLIP, w.LOGO))
    story.when(w.extend()).nothing()
    story.after(800).when(w.extend()).then(a(e.TaskWaitExtended, material_id=w.CLIP)).orders()
    story.when(w.extend()).nothing()
    story.given(w.confirm())
    story.after(899).when(w.extend(number=2)).nothing()  # that one is there
    story.when(w.extend(w.LOGO)).then(e.TaskWaitExtended)
    assert story.after(899).tick() == []
    story.after(1).due().then(e.TaskExpired)
    story.when(w.extend(w.LOGO, 2)).nothing()


def test_signs_of_an_upload_that_follow_closely_are_one_event() -> None:
    story = w.world().given(w.create(w.CLIP))
    story.after(49).when(w.extend()).nothing()
    story.after(1).when(w.extend()).then(e.TaskWaitExtended)
    story.after(49).when(w.extend(number=2)).nothing()
    story.after(1).when(w.extend(number=2)).then(e.TaskWaitExtended)
    hasty = w.world().given(w.create(w.CLIP, wait=40)).after(10)
    hasty.when(w.extend()).then(e.TaskWaitExtended)


def test_no_task_waits_for_an_upload_that_goes_on_longer_than_a_day() -> None:
    story, minutes = w.world().given(w.create(w.CLIP)), 0
    while not story.after(60).tick():
        minutes += 1
        story.when(w.extend(number=minutes))
    assert minutes == 24 * 60 - 1
    assert isinstance(story.history[-1], e.TaskExpired)


def test_no_task_waits_for_material_longer_than_a_day() -> None:
    day = 24 * 3600
    story = w.world().given(w.create(w.CLIP, w.LOGO, wait=day)).after(day - 60).given(w.confirm())
    story.after(60).due().then(e.TaskExpired)


def test_an_outage_ends_no_wait_for_material() -> None:
    story = w.world().given(w.create(w.CLIP)).after(600).after_outage(3600)
    assert story.tick() == []
    story.after(300).due().then(e.TaskExpired)


# --- one start a token --------------------------------------------------------------------------


def test_a_start_is_dispatched_and_granted_in_one_decision() -> None:
    outcome = queued().when(w.start())
    outcome.then(a(e.TaskStarted, token=1, runner_id="gpu-1", incarnation_id="i1"))
    outcome.orders(
        a(
            DispatchAttempt,
            token=1,
            runner_id="gpu-1",
            parameters={"target_seconds": 12},
            lease_seconds=120,
            run_limit_seconds=w.RUN_LIMIT,
            percent=0,
        ),
        a(c.GrantAttempt, token=1, pool_id=w.POOL),
    )


@pytest.mark.parametrize(("runner", "incarnation"), [("gpu-2", "i1"), ("gpu-1", "i2")])
def test_a_second_start_of_the_same_token_on_another_runner_is_refused(
    runner: str, incarnation: str
) -> None:
    outcome = running().when(w.start(runner=runner, incarnation=incarnation))
    outcome.refused(Refusal.TASK_NOT_QUEUED).orders(
        a(c.RefuseAttempt, token=1, reason="task_not_queued")
    )


def test_a_start_of_a_token_that_was_lost_is_refused() -> None:
    story = running().given(w.give_back())
    story.when(w.start(1, "gpu-2")).refused(Refusal.TOKEN_STALE).orders(c.RefuseAttempt)
    story.when(w.start(2, "gpu-2")).then(a(e.TaskStarted, token=2))


def test_a_task_that_waits_for_its_retry_delay_does_not_start() -> None:
    story = running().given(w.fail())
    story.when(w.start(2)).refused(Refusal.TASK_NOT_QUEUED).orders(c.RefuseAttempt)


def test_a_cancel_before_the_start_wins() -> None:
    story = queued().given(w.cancel())
    story.when(w.start()).refused(Refusal.TASK_ENDED).orders(c.RefuseAttempt)


# --- milestones ---------------------------------------------------------------------------------


def test_milestones_only_rise_and_there_are_five_of_them() -> None:
    story = running()
    story.when(w.milestone(30)).then(a(e.TaskProgressed, percent=30)).orders()
    for percent in (10, 30, 31, 59, 0, -5, 101):
        story.when(w.milestone(percent)).nothing()
    story.when(w.milestone(60)).then(a(e.TaskProgressed, percent=60))
    story.given(w.store())
    story.when(w.milestone(90)).then(a(e.TaskProgressed, percent=90))


def test_the_next_attempt_is_told_how_far_the_last_one_was_seen() -> None:
    story = running().given(w.milestone(30), w.milestone(60), w.give_back())
    outcome = story.when(w.start(2))
    assert outcome.order().percent == 60
    story.when(w.milestone(30, token=2)).nothing()
    story.when(w.milestone(60, token=2)).nothing()
    story.when(w.milestone(90, token=2)).then(a(e.TaskProgressed, percent=90, token=2))


# --- succeeded ----------------------------------------------------------------------------------


def test_a_result_is_charged_at_its_frozen_price_and_the_rest_released() -> None:
    outcome = running().when(w.finish(card_ms=20_000))
    outcome.then(a(e.TaskSucceeded, charge_micros=3_000_000, card_ms=20_000)).orders(
        a(c.CommitReservation, reservation_id="submit-1", amount_micros=3_000_000),
        a(c.EndAttempt, token=1),
    )


def test_a_charge_never_exceeds_what_is_reserved() -> None:
    running().when(w.finish(card_ms=10**9)).then(
        a(e.TaskSucceeded, charge_micros=w.RESERVED)
    ).orders(a(c.CommitReservation, amount_micros=w.RESERVED), c.EndAttempt)


def test_storing_takes_the_run_limit_off_and_ends_with_the_result() -> None:
    story = storing()
    assert story.after(w.BACKSTOP).tick() == []
    story.when(w.finish()).then(e.TaskSucceeded)


def test_final_is_final() -> None:
    story = running().given(w.finish())
    for late in (w.fail(), w.lose(), w.give_back(), w.milestone(90), w.store(), w.expire()):
        story.when(late).refused(Refusal.TASK_ENDED).orders()
    story.when(w.cancel()).refused(Refusal.TASK_ENDED, detail="SUCCEEDED").replied(
        Refused, reason=Refusal.TASK_ENDED
    )
    story.when(w.requeue()).refused(Refusal.TASK_NOT_FAILED)


# --- failed -------------------------------------------------------------------------------------


def test_retryable_failures_wait_longer_each_time_and_then_are_spent() -> None:
    story = running()
    story.when(w.fail(1)).then(
        a(
            e.TaskRequeued,
            failure=FailureClass.OUT_OF_MEMORY,
            loss=None,
            counted=True,
            delay_ms=10_000,
            card_ms=5_000,
        )
    ).orders(a(c.EndAttempt, token=1))
    assert story.after(9.999).tick() == []
    story.after(0.001).due().then(e.TaskQueued).orders(a(c.EnqueueTask, token=1))
    story.given(w.start(2))
    story.when(w.fail(2, FailureClass.NETWORK)).then(
        a(e.TaskRequeued, delay_ms=30_000, counted=True)
    )
    story.after(30).due().then(e.TaskQueued).orders(a(c.EnqueueTask, token=2))
    story.given(w.start(3))
    story.when(w.fail(3, FailureClass.HUNG)).then(
        a(
            e.TaskFailed,
            failure=FailureClass.RETRIES_SPENT,
            last_failure=FailureClass.HUNG,
            message="as told",
        )
    ).orders(
        a(c.ReleaseReservation, reservation_id="submit-1", ran=True),
        a(DeadLetter, task_id=w.TASK, failure=FailureClass.HUNG, cause="retries_spent"),
        a(c.EndAttempt, token=3),
    )
    story.when(w.fail(3, FailureClass.HUNG)).nothing()


@pytest.mark.parametrize(
    "failure", [one for one in FailureClass if not one.retryable], ids=lambda one: one.value
)
def test_a_failure_that_would_only_repeat_itself_ends_the_task(failure: FailureClass) -> None:
    running().when(w.fail(failure=failure)).then(
        a(e.TaskFailed, failure=failure, last_failure=None)
    ).orders(a(c.ReleaseReservation, ran=True), a(c.EndAttempt, token=1))


def test_a_store_that_fails_at_the_end_of_storing_is_final_but_not_before() -> None:
    running().when(w.fail(failure=FailureClass.STORE)).then(e.TaskRequeued)
    storing().when(w.fail(failure=FailureClass.STORE)).then(
        a(e.TaskFailed, failure=FailureClass.STORE)
    )
    storing().when(w.fail(failure=FailureClass.CRASHED)).then(e.TaskRequeued)


def test_a_failed_task_begins_anew_and_not_from_a_checkpoint() -> None:
    story = running().given(w.give_back(checkpoint="step-7"))
    outcome = story.when(w.start(2))
    assert outcome.order().checkpoint == "step-7"
    story.given(w.fail(2)).after(10).tick()
    outcome = story.when(w.start(3))
    assert outcome.order().checkpoint == ""


def test_a_checkpoint_outlives_a_loss_of_the_attempt_that_began_from_it() -> None:
    story = running().given(w.give_back(checkpoint="step-7"), w.start(2), w.lose(2)).after(120)
    story.tick()
    assert story.when(w.start(3)).order().checkpoint == "step-7"


def test_the_same_failure_of_an_older_token_is_not_the_one_told_twice() -> None:
    story = running().given(w.fail(1)).after(10)
    story.tick()
    story.given(w.start(2), w.fail(2))
    story.when(w.fail(2)).nothing()
    story.when(w.fail(1)).refused(Refusal.TOKEN_STALE)


def test_jitter_spreads_delays_the_same_way_whoever_draws_it() -> None:
    drawn = [jittered(10_000, 0.2, TaskId(f"t{n}"), token) for n in range(200) for token in (1, 2)]
    assert drawn == [
        jittered(10_000, 0.2, TaskId(f"t{n}"), token) for n in range(200) for token in (1, 2)
    ]
    assert all(8_000 <= one <= 12_000 for one in drawn)
    assert min(drawn) < 8_400
    assert max(drawn) > 11_600
    assert jittered(10_000, 0.0, w.TASK, 1) == 10_000


# --- lost ---------------------------------------------------------------------------------------


def test_a_loss_burns_no_retry_waits_for_repair_and_stops_whoever_still_works() -> None:
    story = running()
    story.when(w.lose()).then(
        a(
            e.TaskRequeued,
            loss=LossCause.LEASE_EXPIRED,
            failure=None,
            counted=False,
            delay_ms=120_000,
            card_ms=0,
            card_measured=False,
        )
    ).orders(a(StopAttempt, runner_id="gpu-1", token=1))
    story.when(w.lose()).nothing()
    story.after(120).due().then(e.TaskQueued).orders(a(c.EnqueueTask, token=1))
    assert story.row_of(w.TASK).course.retries == 0


def test_an_attempt_that_was_given_back_waits_for_nothing() -> None:
    story = running()
    story.when(w.give_back(cause=LossCause.DRAINED, checkpoint="step-7")).then(
        a(e.TaskRequeued, counted=False, delay_ms=0, checkpoint="step-7", card_ms=3_000),
        e.TaskQueued,
    ).orders(a(c.EndAttempt, token=1, card_ms=3_000), a(c.EnqueueTask, token=1))


def test_who_could_not_go_on_from_a_checkpoint_and_leaves_his_own_gives_up_what_that_kept() -> None:
    """Without one of his own the older one stays: another card may go on from it."""
    for own, next_begins_from in (("step-2", "step-2"), ("", "step-7")):
        story = running().given(w.give_back(checkpoint="step-7"), w.start(2))
        told = msgspec.structs.replace(w.give_back(2), started_anew=True, checkpoint=own)
        requeued, _ = story.when(told).events
        a(e.TaskRequeued, token=2, started_anew=bool(own), checkpoint=next_begins_from).check(
            requeued
        )


def test_a_lost_runner_cannot_finish_the_next_attempt() -> None:
    story = running().given(w.lose()).after(120)
    story.tick()
    reports = (w.finish(1), w.fail(1), w.milestone(90), w.store(1), w.give_back())
    for late in reports:
        story.when(late).refused(Refusal.TOKEN_STALE).orders()
    story.given(w.start(2, "gpu-2"))
    for older in (*reports, w.lose(1)):
        story.when(older).refused(Refusal.TOKEN_STALE).orders()
    story.when(w.finish(2)).then(a(e.TaskSucceeded, token=2))


def test_the_first_end_of_a_token_wins() -> None:
    running().given(w.fail()).when(w.lose()).refused(Refusal.TOKEN_STALE)
    running().given(w.lose()).when(w.finish()).refused(Refusal.TOKEN_STALE)
    running().given(w.give_back()).when(w.lose()).refused(Refusal.TOKEN_STALE)
    running().given(w.finish()).when(w.lose()).refused(Refusal.TASK_ENDED)


def test_a_report_of_a_token_that_was_never_granted_is_refused() -> None:
    running().when(w.finish(2)).refused(Refusal.TOKEN_NOT_NEXT)
    queued().when(w.finish(1)).refused(Refusal.TASK_NOT_RUNNING)


def test_five_losses_are_forgiven_and_the_sixth_is_not() -> None:
    story = queued()
    for token in range(1, 6):
        story.given(w.start(token)).when(w.lose(token)).then(e.TaskRequeued)
        story.after(120).due().then(e.TaskQueued)
    story.given(w.start(6))
    story.when(w.lose(6)).then(
        a(
            e.TaskFailed,
            failure=FailureClass.RETRIES_SPENT,
            last_failure=None,
            loss=LossCause.LEASE_EXPIRED,
        )
    ).orders(
        a(c.ReleaseReservation, ran=True),
        a(DeadLetter, failure=None, cause="retries_spent: lease_expired"),
        a(StopAttempt, token=6),
    )
    story.when(w.lose(6)).nothing()


def test_an_outage_burns_no_retry_and_ends_no_delay() -> None:
    story = running().given(w.fail()).after_outage(7200)
    assert story.tick() == []
    story.after(10).due().then(e.TaskQueued)


# --- the backstop -------------------------------------------------------------------------------


def test_running_ends_by_itself_like_a_time_limit() -> None:
    story = running().after(w.BACKSTOP - 0.001)
    assert story.tick() == []
    story.after(0.001).due().then(
        a(
            e.TaskRequeued,
            loss=LossCause.BACKSTOP,
            failure=None,
            counted=True,
            delay_ms=10_000,
        )
    ).orders(a(StopAttempt, token=1, reason="backstop"), a(c.EndAttempt, token=1))
    assert story.row_of(w.TASK).course.retries == 1


def test_a_backstop_with_no_retry_left_ends_the_task() -> None:
    policy = Policy(
        version=1, scenes={}, tiers={}, pools={}, retries=RetryPolicy(delays_ms=(), jitter=0)
    )
    story = w.world(policy).given(w.create(), w.start()).after(w.BACKSTOP)
    story.due().then(
        a(
            e.TaskFailed,
            failure=FailureClass.RETRIES_SPENT,
            last_failure=FailureClass.TIME_LIMIT,
            loss=LossCause.BACKSTOP,
        )
    ).orders(
        c.ReleaseReservation,
        a(DeadLetter, cause="retries_spent: backstop", failure=FailureClass.TIME_LIMIT),
        StopAttempt,
        c.EndAttempt,
    )


def test_storing_has_a_backstop_of_its_own() -> None:
    story = storing().after(4199)
    assert story.tick() == []
    story.after(1).due().then(
        a(e.TaskFailed, token=1, failure=FailureClass.STORE, loss=LossCause.BACKSTOP)
    ).orders(
        a(c.ReleaseReservation, reservation_id="submit-1", ran=True),
        a(StopAttempt, token=1, reason="backstop"),
        a(c.EndAttempt, token=1),
    )
    assert story.after(600).tick() == []


def test_what_is_made_and_not_stored_in_its_time_is_not_made_again_by_whoever_tells_it() -> None:
    story = storing()
    story.when(w.lose(cause=LossCause.BACKSTOP)).then(
        a(e.TaskFailed, failure=FailureClass.STORE, loss=LossCause.BACKSTOP)
    ).orders(a(c.ReleaseReservation, ran=True), StopAttempt)
    story.when(w.lose(cause=LossCause.BACKSTOP)).nothing()
    story.when(w.fail(failure=FailureClass.STORE)).refused(Refusal.TASK_ENDED)


def test_the_pool_may_tell_the_backstop_too() -> None:
    running().when(w.lose(cause=LossCause.BACKSTOP)).then(a(e.TaskRequeued, counted=True))


def test_an_outage_does_not_bring_the_backstop_nearer() -> None:
    story = running().after_outage(10 * w.BACKSTOP)
    assert story.tick() == []
    story.when(w.finish()).then(e.TaskSucceeded)


# --- every card second --------------------------------------------------------------------------


def test_a_lost_attempt_is_accounted_the_log_time_since_its_start() -> None:
    story = running().after(7).after_outage(3)
    story.when(w.lose()).then(a(e.TaskRequeued, card_ms=10_000, card_measured=False))


def test_of_an_outage_no_more_than_a_lease_is_accounted() -> None:
    """Its runner heard nothing all the while, and stops when its lease ends."""
    lease = w.start().lease_seconds
    told = a(e.TaskRequeued, card_ms=(60 + lease) * 1_000, card_measured=False)
    running().after(60).after_outage(1_800).when(w.lose()).then(told)
    canceled = a(e.TaskCanceled, card_ms=(60 + lease) * 1_000, card_measured=False)
    running().after(60).after_outage(1_800).when(w.cancel()).then(canceled)


def test_neither_an_outage_nor_a_jump_of_the_clock_is_charged() -> None:
    """Ten seconds were served, whatever the log says; a clock that goes back charges no more."""
    same = a(e.TaskCanceled, charge_micros=1_500_000)
    running().after(4).after_outage(1_800).after(6).when(w.cancel()).then(same)
    story = running().after(4).after_outage(1_800).after(6).given(w.store(card_ms=9_000))
    story.when(w.cancel()).then(same)
    running().after(20).after_outage(-10).when(w.cancel()).then(same)


def test_a_row_of_an_older_release_is_charged_by_the_log() -> None:
    story = running()
    old = msgspec.structs.replace(story.row_of(w.TASK), started_served_ms=None, lease_seconds=0)
    story.rows.put(w.TASK, old)
    story.after(4).after_outage(6).when(w.cancel()).then(
        a(e.TaskCanceled, charge_micros=1_500_000, card_ms=10_000, card_measured=False)
    )


def test_the_sixth_loss_is_accounted_like_the_first() -> None:
    story = queued()
    for token in range(1, 6):
        story.given(w.start(token), w.lose(token)).after(120).tick()
    story.given(w.start(6)).after(4)
    story.when(w.lose(6)).then(a(e.TaskFailed, card_ms=4_000, card_measured=False))


def test_the_backstop_is_accounted_the_whole_time() -> None:
    running().after(w.BACKSTOP).due().then(
        a(e.TaskRequeued, card_ms=w.BACKSTOP * 1000, card_measured=False)
    )


def test_a_canceled_attempt_is_accounted_the_log_time_since_its_start() -> None:
    running().after(10).when(w.cancel()).then(
        a(e.TaskCanceled, card_ms=10_000, card_measured=False)
    )


def test_what_its_runner_told_when_it_began_to_store_is_the_card_time_of_what_ends_then() -> None:
    told = {"card_ms": 18_000, "card_measured": True}
    ends = (
        (w.cancel(), a(e.TaskCanceled, **told)),
        (w.lose(), a(e.TaskRequeued, loss=LossCause.LEASE_EXPIRED, **told)),
    )
    for command, event in ends:
        story = running().after(20).given(w.store(card_ms=18_000), w.milestone(90)).after(500)
        story.when(command).then(event)
    story = running().after(20).given(w.store(card_ms=18_000)).after(4200)
    story.due().then(a(e.TaskFailed, loss=LossCause.BACKSTOP, **told))


def test_a_runner_that_stored_never_tells_less_afterwards() -> None:
    story = storing().after(5)
    story.when(w.fail(failure=FailureClass.STORE)).then(
        a(e.TaskFailed, card_ms=20_000, card_measured=True)
    )
    running().given(w.store(card_ms=2_000)).when(w.fail()).then(a(e.TaskRequeued, card_ms=5_000))


def test_card_time_is_told_once_and_a_wait_has_none() -> None:
    for story in (queued(), running().given(w.fail()).after(5), running().given(w.give_back())):
        story.when(w.cancel()).then(a(e.TaskCanceled, card_ms=0, card_measured=True))


# --- canceled -----------------------------------------------------------------------------------


def test_cancel_before_it_ran_costs_nothing_and_leaves_the_pool() -> None:
    story = queued()
    story.when(w.cancel()).then(
        a(e.TaskCanceled, cause=CancelCause.USER, token=0, charge_micros=0)
    ).orders(
        a(c.ReleaseReservation, reservation_id="submit-1", ran=False), a(c.DequeueTask, token=0)
    ).replied(Accepted, seq=3, status=Status.CANCELED, command_id="cancel-" + w.USER)
    story.when(w.cancel()).nothing().replied(Accepted, seq=3, status=Status.CANCELED)


def test_cancel_of_what_waits_for_material_or_a_delay_tells_no_pool() -> None:
    w.world().given(w.create(w.CLIP)).when(w.cancel()).then(e.TaskCanceled).orders(
        a(c.ReleaseReservation, ran=False)
    )
    running().given(w.fail()).when(w.cancel()).then(a(e.TaskCanceled, token=1)).orders(
        a(c.ReleaseReservation, ran=True)
    )


def test_cancel_of_a_running_task_stops_it_and_charges_the_log_time_it_ran() -> None:
    story = running().after(10)
    story.when(w.cancel()).then(a(e.TaskCanceled, token=1, charge_micros=1_500_000)).orders(
        a(c.CommitReservation, reservation_id="submit-1", amount_micros=1_500_000),
        a(StopAttempt, token=1, runner_id="gpu-1", incarnation_id="i1"),
        a(c.EndAttempt, token=1),
    )


def test_cancel_charges_at_most_what_is_reserved() -> None:
    running().after(1000).when(w.cancel()).then(a(e.TaskCanceled, charge_micros=w.RESERVED))


def test_cancel_while_storing_charges_the_work_and_not_the_storing() -> None:
    storing().after(500).when(w.cancel()).then(a(e.TaskCanceled, charge_micros=2_500_000))


def test_cancel_that_costs_nothing_releases() -> None:
    free = Price(base_micros=0, card_second_micros=0, card_seconds_max=1)
    story = w.world().given(msgspec.structs.replace(w.create(), price=free), w.start())
    story.when(w.cancel()).then(a(e.TaskCanceled, charge_micros=0)).orders(
        a(c.ReleaseReservation, ran=True), StopAttempt, c.EndAttempt
    )


def test_canceled_stays_and_what_comes_late_is_recorded() -> None:
    story = running().given(w.cancel())
    for late in (w.fail(), w.finish(), w.lose(), w.give_back(), w.milestone(90), w.store()):
        story.when(late).refused(Refusal.TASK_ENDED).orders()
    assert len(story.refusals) == 6
    assert all(refusal.user_id == w.USER for refusal in story.refusals)


def test_nobody_cancels_what_is_not_his_nor_learns_of_it() -> None:
    story = running()
    for asked in (w.cancel(user=STRANGER), w.cancel(tenant=TenantId("other"))):
        story.when(asked).refused(Refusal.NOT_YOURS, detail="").orders().replied(
            Refused, reason=Refusal.NOT_YOURS, detail=""
        )
    assert story.refusals[0].user_id == STRANGER


def test_cancel_of_what_does_not_exist_is_refused() -> None:
    w.world().when(w.cancel()).refused(Refusal.TASK_UNKNOWN).replied(Refused)
    w.world().when(w.cancel(reply_to=None)).refused(Refusal.TASK_UNKNOWN)


# --- expired ------------------------------------------------------------------------------------


def test_a_wait_at_the_pool_that_was_too_long_is_paid_back() -> None:
    queued().when(w.expire()).then(a(e.TaskExpired, token=0)).orders(
        a(c.ReleaseReservation, ran=False)
    )
    running().given(w.give_back()).when(w.expire(1)).then(a(e.TaskExpired, token=1)).orders(
        a(c.ReleaseReservation, ran=True)
    )


def test_an_expiry_of_an_earlier_wait_is_refused() -> None:
    running().given(w.give_back()).when(w.expire(0)).refused(Refusal.TOKEN_STALE)
    queued().when(w.expire(1)).refused(Refusal.TOKEN_NOT_NEXT)
    running().when(w.expire(0)).refused(Refusal.TASK_NOT_QUEUED)


# --- the wait that was lost ----------------------------------------------------------------------

_ASKS = LanePolicy().ttl_seconds + w.RETRIES.backstop_seconds


def test_a_task_that_nobody_starts_or_ends_asks_its_pool_again_and_never_ends_by_that() -> None:
    """Its pool may have lost it; one that has it does nothing. Later each time, up to a limit."""
    story = queued()
    for times in (1, 2, 4, 8, 8):
        story.after(_ASKS * times - 1)
        assert story.tick() == []
        (asked,) = story.after(1).tick()
        asked.then().orders(a(c.EnqueueTask, token=0, pool_id=w.POOL, moved=False))
    story.when(w.start()).then(a(e.TaskStarted, token=1))


def test_no_outage_makes_a_task_ask_its_pool_again() -> None:
    story = queued().after(_ASKS - 1).after_outage(10 * _ASKS)
    assert story.tick() == []


def test_every_wait_has_its_own_time_to_ask_again() -> None:
    story = queued().after(_ASKS).given(w.start(), w.give_back())
    assert story.tick() == []
    (asked,) = story.after(_ASKS).tick()
    asked.then().orders(a(c.EnqueueTask, token=1))


def test_a_pool_that_was_asked_again_hears_that_the_task_waits_no_more() -> None:
    """What ended the wait may have been on its way: the task waits there anew since."""
    story = queued().after(_ASKS)
    story.tick()
    story.when(w.expire()).then(e.TaskExpired).orders(c.ReleaseReservation, c.DequeueTask)
    story = queued().after(_ASKS)
    story.tick()
    story.when(w.start()).then(e.TaskStarted).orders(
        DispatchAttempt, c.GrantAttempt, a(c.DequeueTask, token=0)
    )


def test_a_row_of_an_older_release_never_asks() -> None:
    story = queued()
    old = msgspec.structs.replace(story.row_of(w.TASK), until_ms=None)
    story.rows.put(w.TASK, old)
    assert story.after(100 * _ASKS).tick() == []


def test_a_creation_that_is_thrown_away_is_a_task_that_is_canceled_and_refunded() -> None:
    story = w.world()
    decision = tasks.discard(story.rows, w.create(w.CLIP), CommandId("away"), story.now, w.POLICY)
    created, canceled = decision.events
    assert isinstance(created, e.TaskCreated)
    a(e.TaskCanceled, seq=2, cause=CancelCause.OPERATOR, charge_micros=0).check(canceled)
    (back,) = decision.orders
    a(c.ReleaseReservation, reservation_id="submit-1", ran=False).check(back)
    # One that waited behind it is too late.
    story.when(w.create(w.CLIP)).refused(Refusal.RESERVATION_RESOLVED).orders(c.ReleaseReservation)


def test_what_is_thrown_away_gives_back_what_no_task_holds_and_nothing_else() -> None:
    def away(story: Story, command: c.TaskCommand) -> tuple[Any, ...]:
        decision = tasks.discard(story.rows, command, CommandId("away"), story.now, w.POLICY)
        assert decision.events == ()
        return decision.orders

    assert away(queued(), w.create()) == ()
    (back,) = away(queued(), w.create(reservation="submit-2"))
    a(c.ReleaseReservation, reservation_id="submit-2").check(back)
    (back,) = away(failed(), w.requeue())
    a(c.ReleaseReservation, reservation_id=w.requeue().reservation_id, ran=False).check(back)
    assert away(failed().given(w.requeue()), w.requeue()) == ()
    assert away(running(), w.finish()) == ()


# --- retried by hand ----------------------------------------------------------------------------


def failed() -> Story:
    return running().given(w.milestone(30), w.fail(failure=FailureClass.INPUT))


def test_a_retry_by_hand_takes_the_new_reservation_and_tokens_go_on() -> None:
    story = failed()
    story.when(w.requeue()).then(
        a(e.TaskRetried, reservation_id="retry-1", policy_version=2)
    ).orders(a(c.EnqueueTask, token=1)).replied(
        Accepted,
        command_id="retry-1",
        status=Status.QUEUED,
        reserved_micros=w.RESERVED,
        seq=6,
    )
    story.when(w.requeue()).nothing().replied(Accepted, command_id="retry-1", seq=6)
    story.when(w.start(1)).refused(Refusal.TOKEN_STALE)
    story.when(w.start(2)).then(a(e.TaskStarted, token=2))
    story.when(w.finish(2)).orders(a(c.CommitReservation, reservation_id="retry-1"), c.EndAttempt)


def test_a_retry_by_hand_has_all_its_retries_and_losses_again() -> None:
    story = queued()
    for token in (1, 2):
        story.given(w.start(token), w.fail(token)).after(30).tick()
    story.given(w.start(3), w.fail(3), w.requeue(), w.start(4))
    story.when(w.fail(4)).then(a(e.TaskRequeued, delay_ms=10_000, counted=True))


def test_a_retry_that_never_ran_gives_its_day_back() -> None:
    failed().given(w.requeue()).when(w.cancel()).then(e.TaskCanceled).orders(
        a(c.ReleaseReservation, reservation_id="retry-1", ran=False), a(c.DequeueTask, token=1)
    )


@pytest.mark.parametrize("reply_to", [None, 0])
def test_a_reservation_that_is_not_taken_goes_back_in_the_same_decision(
    reply_to: int | None,
) -> None:
    cases = (
        (w.world(), Refusal.TASK_UNKNOWN),
        (queued(), Refusal.TASK_NOT_FAILED),
        (running().given(w.cancel()), Refusal.TASK_NOT_FAILED),
    )
    for story, reason in cases:
        outcome = story.when(w.requeue(reply_to=reply_to)).refused(reason)
        outcome.orders(
            a(
                c.ReleaseReservation,
                account_id=w.ACCOUNT,
                reservation_id="retry-1",
                ran=False,
            )
        )
        if reply_to is not None:
            outcome.replied(Refused, reason=reason, command_id="retry-1")


def test_nobody_retries_what_is_not_his() -> None:
    failed().when(w.requeue(user=STRANGER)).refused(Refusal.NOT_YOURS).orders(
        a(c.ReleaseReservation, reservation_id="retry-1")
    )


def test_a_reservation_that_was_taken_before_is_never_taken_again_and_goes_back() -> None:
    """The account has forgotten it by then, and has reserved anew."""
    story = failed().given(w.requeue(), w.start(2), w.fail(2, FailureClass.INPUT))
    story.given(w.requeue("retry-2"), w.start(3))
    story.when(w.requeue("retry-2")).nothing().replied(Accepted, status=Status.RUNNING)
    story.when(w.requeue("retry-1")).refused(Refusal.RESERVATION_RESOLVED).orders(
        a(c.ReleaseReservation, reservation_id="retry-1")
    )
    story.given(w.fail(3, FailureClass.INPUT))
    for told in ("submit-1", "retry-1", "retry-2"):
        story.when(w.requeue(told)).refused(Refusal.RESERVATION_RESOLVED).orders(
            a(c.ReleaseReservation, reservation_id=told, account_id=w.ACCOUNT, ran=False)
        ).replied(Refused, reason=Refusal.RESERVATION_RESOLVED, command_id=told)
    story.when(w.requeue("retry-3")).then(e.TaskRetried)


@pytest.mark.parametrize("last", [w.finish(2), w.cancel()])
def test_a_retry_told_again_after_the_end_is_refused_and_its_reservation_goes_back(
    last: c.FinishAttempt | c.CancelTask,
) -> None:
    story = failed().given(w.requeue(), w.start(2), last)
    story.when(w.requeue()).refused(Refusal.RESERVATION_RESOLVED).orders(
        a(c.ReleaseReservation, reservation_id="retry-1")
    ).replied(Refused)


# --- created twice, forgotten -------------------------------------------------------------------


def test_a_task_holds_one_reservation_and_gives_another_one_back() -> None:
    story = queued()
    story.when(w.create(reservation="submit-2")).refused(Refusal.IDEMPOTENCY_CONFLICT).orders(
        a(c.ReleaseReservation, reservation_id="submit-2", ran=False, account_id=w.ACCOUNT)
    )


def test_an_ended_task_counts_as_absent_after_a_day_tick_or_not() -> None:
    story = running().given(w.finish()).after(86_399)
    story.when(w.cancel()).refused(Refusal.TASK_ENDED)
    story.after(1).when(w.cancel()).refused(Refusal.TASK_UNKNOWN)
    assert w.TASK in story.rows.rows
    story.due().nothing()
    assert w.TASK not in story.rows.rows
    story.when(w.cancel()).refused(Refusal.TASK_UNKNOWN)


def test_a_failed_task_can_be_retried_for_a_week() -> None:
    week = KeepPolicy().failed_seconds
    failed().after(week - 1).when(w.requeue()).then(e.TaskRetried)
    failed().after(week).when(w.requeue()).refused(Refusal.TASK_UNKNOWN).orders(
        c.ReleaseReservation
    )


def test_a_history_never_begins_twice_as_long_as_its_row_stands() -> None:
    story = running().given(w.finish()).after(10 * 86_400)
    story.when(w.create()).refused(Refusal.RESERVATION_RESOLVED).orders(
        a(c.ReleaseReservation, reservation_id="submit-1")
    )
    story.when(w.create(reservation="submit-2")).refused(Refusal.IDEMPOTENCY_CONFLICT).orders(
        a(c.ReleaseReservation, reservation_id="submit-2")
    )


def test_a_timer_that_is_not_due_any_more_does_nothing() -> None:
    story = w.world().given(w.create(w.CLIP))
    assert story.on_due is not None
    timer = w.timer()
    assert story.on_due(story.rows, timer, story.now) == ((), (), None, None)
    story.given(w.confirm()).after(600)
    assert story.on_due(story.rows, timer, story.now) == ((), (), None, None)
    assert story.on_due(w.world().rows, timer, story.now) == ((), (), None, None)


def test_without_a_published_policy_the_defaults_hold() -> None:
    story = w.world()
    story.handle = tasks.handle
    story.given(w.create(), w.start()).when(w.lose()).then(a(e.TaskRequeued, counted=False))
