"""What follows from each command to a pool, told once and told twice."""

from typing import Any, get_args

import msgspec
import pytest

from commands.decider import Decision
from commands.pools import Stage, handle
from commands.pools.decide import NOT_HELD, RULES, SUPERSEDED, decide
from schema import commands as c
from schema import events as e
from schema.ids import CommandId, PoolId, TaskId
from schema.refusals import Refusal
from schema.replies import Accepted, BeatAnswered, Refused, RunnerDismissed, StopAttempt
from schema.words import Lane, LossCause
from tests.support.pools import (
    ACCEPT_MS,
    BEAT_MS,
    LEASE_MS,
    TTL_MS,
    A,
    Pools,
    enqueue,
    of_runner,
    policy,
)
from tests.support.spec import Wanted, a


def said(decision: Decision[Any], *wanted: type | Wanted) -> None:
    """Exactly these events and orders, events first."""
    found = (*decision.events, *decision.orders)
    assert [type(one) for one in found] == [
        one.kind if isinstance(one, Wanted) else one for one in wanted
    ], found
    for one, message in zip(wanted, found, strict=True):
        if isinstance(one, Wanted):
            one.check(message)


def quiet(decision: Decision[Any]) -> None:
    """Already so."""
    assert decision == Decision()


def running(slots: int = 1, task: str = "t") -> Pools:
    """A runner that has accepted a task."""
    pools = Pools()
    pools.register(slots=slots)
    pools.enqueue(task)
    pools.accepted(task)
    return pools


# --- waiting and starting -------------------------------------------------------------------------


def test_a_task_waits_until_a_slot_is_free() -> None:
    pools = Pools()
    said(pools.enqueue("t"), a(e.TaskEnqueued, seq=1, task_id="t", token=0, lane=Lane.P1))
    said(
        pools.register("r", "1"),
        e.RunnerRegistered,
        a(e.SlotProposed, seq=3, task_id="t", token=1, runner_id="r", incarnation_id="1"),
        a(BeatAnswered, beat=0, lease_seconds=120, beat_seconds=15, held=()),
        a(c.StartAttempt, task_id="t", token=1, runner_id="r", pool_id=A, lease_seconds=120),
    )
    assert pools.stage("t") is Stage.PROPOSED
    assert pools.waits("t") is None
    assert pools.free == 0
    pools.check()


def test_a_task_that_finds_a_free_slot_gets_it_in_the_same_step() -> None:
    pools = Pools()
    pools.register()
    said(pools.enqueue("t"), e.TaskEnqueued, e.SlotProposed, c.StartAttempt)


def test_enqueued_twice_is_enqueued_once_whether_it_waits_or_is_proposed() -> None:
    pools = Pools()
    pools.enqueue("t", 3)
    quiet(pools.enqueue("t", 3))
    quiet(pools.enqueue("t", 2))
    pools.register()
    quiet(pools.enqueue("t", 3))
    assert pools.stage("t", 4) is Stage.PROPOSED


def test_a_later_wait_takes_the_place_of_an_older_one() -> None:
    pools = Pools()
    pools.enqueue("t", 0)
    said(pools.enqueue("t", 2), a(e.TaskEnqueued, token=2))
    row = pools.waits("t")
    assert row is not None
    assert row.token == 2
    pools.check()


def test_a_task_is_queued_again_while_the_slot_of_its_last_attempt_is_still_taken() -> None:
    pools = running()
    said(pools.enqueue("t", 1), a(e.AttemptOver, token=1), a(e.TaskEnqueued, token=1))
    assert pools.stage("t", 1) is Stage.OVER
    assert pools.waits("t") is not None
    said(
        pools.runner_says(c.FreeSlot, "t", 1),
        a(e.SlotFreed, token=1),
        a(e.SlotProposed, task_id="t", token=2),
        a(c.StartAttempt, token=2),
    )
    pools.check()


def test_a_task_taken_out_of_the_queue_is_not_started() -> None:
    pools = Pools()
    pools.enqueue("t")
    said(pools.task_says(c.DequeueTask, "t", 0), a(e.TaskDequeued, token=0, expired=False))
    quiet(pools.task_says(c.DequeueTask, "t", 0))
    said(pools.register(), e.RunnerRegistered, BeatAnswered)


def test_taking_out_an_older_wait_leaves_the_newer_one() -> None:
    pools = Pools()
    pools.enqueue("t", 2)
    quiet(pools.task_says(c.DequeueTask, "t", 1))
    assert pools.waits("t") is not None


def test_a_refused_start_frees_the_slot_for_the_next_task() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    pools.enqueue("next")
    said(
        pools.task_says(c.RefuseAttempt, "t", 1, reason="task_not_queued"),
        a(e.SlotRefused, task_id="t", reason="task_not_queued"),
        a(e.SlotProposed, task_id="next"),
        c.StartAttempt,
    )
    quiet(pools.task_says(c.RefuseAttempt, "t", 1, reason="task_not_queued"))
    pools.check()


def test_a_refusal_after_the_grant_frees_nothing() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    pools.task_says(c.GrantAttempt, "t")
    quiet(pools.task_says(c.RefuseAttempt, "t", 1, reason="token_stale"))
    assert pools.free == 0


def test_a_grant_for_a_slot_that_was_given_away_sends_the_task_back() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    said(pools.task_says(c.RefuseAttempt, "t", reason="quarantined"), e.SlotRefused)
    said(
        pools.task_says(c.GrantAttempt, "t"),
        a(c.LoseAttempt, task_id="t", token=1, cause=LossCause.NOT_ACCEPTED),
    )
    assert pools.free == 1
    pools.check()


def test_granted_and_accepted_twice_is_once() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    said(pools.task_says(c.GrantAttempt, "t"), e.SlotGranted)
    quiet(pools.task_says(c.GrantAttempt, "t"))
    said(pools.runner_says(c.AcceptAttempt, "t"), e.AttemptAccepted)
    quiet(pools.runner_says(c.AcceptAttempt, "t"))
    quiet(pools.task_says(c.GrantAttempt, "t"))


def test_an_acceptance_that_overtakes_the_grant_counts() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    said(pools.runner_says(c.AcceptAttempt, "t"), e.AttemptAccepted)
    quiet(pools.task_says(c.GrantAttempt, "t"))
    said(pools.tick(ACCEPT_MS).decision)


# --- over and free --------------------------------------------------------------------------------


def test_the_end_of_an_attempt_frees_no_slot_the_runner_does() -> None:
    pools = running()
    said(pools.task_says(c.EndAttempt, "t"), e.AttemptOver)
    quiet(pools.task_says(c.EndAttempt, "t"))
    assert pools.free == 0
    said(pools.runner_says(c.FreeSlot, "t"), a(e.SlotFreed, task_id="t", runner_id="r"))
    quiet(pools.runner_says(c.FreeSlot, "t"))
    assert pools.free == 1
    assert pools.stage("t") is None


def test_a_freed_slot_before_the_end_leaves_the_lease_to_the_storing_attempt() -> None:
    pools = running()
    said(pools.runner_says(c.FreeSlot, "t"), e.SlotFreed)
    quiet(pools.runner_says(c.FreeSlot, "t"))
    assert pools.stage("t") is Stage.STORING
    assert pools.free == 1
    assert pools.state.depths(A).running == 1
    said(pools.task_says(c.EndAttempt, "t"), e.AttemptOver)
    assert pools.stage("t") is None
    quiet(pools.task_says(c.EndAttempt, "t"))
    pools.check()


def test_a_storing_attempt_is_lost_with_its_runner() -> None:
    pools = running()
    pools.runner_says(c.FreeSlot, "t")
    said(
        pools.tick(LEASE_MS).decision,
        a(e.SlotLost, task_id="t", cause=LossCause.LEASE_EXPIRED),
        e.RunnerGone,
        c.LoseAttempt,
    )


def test_a_storing_attempt_is_held_by_beats_while_its_slot_has_other_work() -> None:
    pools = running()
    pools.enqueue("next")
    freed = pools.runner_says(c.FreeSlot, "t")
    said(freed, e.SlotFreed, a(e.SlotProposed, task_id="next"), a(c.StartAttempt, task_id="next"))
    pools.accepted("next")
    for number in range(1, 4):
        pools.tick(BEAT_MS)
        (answer,) = pools.beat(number, ("t", 1), ("next", 1)).orders
        assert isinstance(answer, BeatAnswered)
        assert {held.task_id for held in answer.held} == {"t", "next"}
    assert (pools.stage("t"), pools.stage("next")) == (Stage.STORING, Stage.ACCEPTED)
    assert pools.free == 0
    pools.check()


def test_a_storing_attempt_that_its_runner_forgot_is_lost_and_frees_nothing() -> None:
    pools = running()
    pools.runner_says(c.FreeSlot, "t")
    pools.beat(1)
    pools.tick(BEAT_MS)
    said(pools.beat(2), e.LeasesExtended, a(e.SlotLost, task_id="t"), c.LoseAttempt, BeatAnswered)
    assert pools.stage("t") is None
    assert pools.free == 1
    pools.check()


def test_a_runner_that_drains_stays_until_what_it_stores_is_over() -> None:
    pools = running()
    pools.runner_says(c.FreeSlot, "t")
    said(pools.drain(), e.RunnerDraining)
    quiet(pools.tick(1_000).decision)
    said(pools.task_says(c.EndAttempt, "t"), e.AttemptOver, e.RunnerGone)
    pools.check()


def test_no_loss_is_told_of_an_attempt_that_is_over() -> None:
    pools = running()
    pools.task_says(c.EndAttempt, "t")
    said(pools.tick(LEASE_MS).decision, e.RunnerGone)
    assert pools.stage("t") is None
    pools.check()


# --- accepting in time ----------------------------------------------------------------------------


def test_a_dispatch_not_accepted_in_time_goes_back_and_its_slot_stays_taken() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    pools.task_says(c.GrantAttempt, "t")
    said(pools.tick(ACCEPT_MS - 1).decision)
    said(
        pools.tick(1).decision,
        a(e.SlotLost, task_id="t", token=1, runner_id="r", cause=LossCause.NOT_ACCEPTED),
        a(c.LoseAttempt, task_id="t", token=1, cause=LossCause.NOT_ACCEPTED),
    )
    assert pools.free == 0
    assert pools.stage("t") is Stage.LOST
    said(pools.enqueue("t", 1), e.TaskEnqueued)
    pools.check()


def test_a_late_acceptance_is_told_to_stop_and_its_slot_comes_back() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    pools.task_says(c.GrantAttempt, "t")
    pools.tick(ACCEPT_MS)
    late = pools.runner_says(c.AcceptAttempt, "t")
    said(late, a(StopAttempt, runner_id="r", task_id="t", token=1, reason=SUPERSEDED))
    assert late.refusal is not None
    assert late.refusal.reason is Refusal.ATTEMPT_UNKNOWN
    said(pools.beat(1, ("t", 1)), e.LeasesExtended, a(BeatAnswered, held=()))
    said(pools.runner_says(c.FreeSlot, "t"), e.SlotFreed)
    assert pools.free == 1


def test_a_proposal_waits_for_its_task_without_a_timer() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    pools.tick(BEAT_MS)
    pools.beat(1)
    said(pools.tick(LEASE_MS - 1).decision)
    assert pools.stage("t") is Stage.PROPOSED


# --- runners --------------------------------------------------------------------------------------


def test_a_runner_registered_twice_is_registered_once_and_may_change_its_slots() -> None:
    pools = running()
    said(pools.register(), a(BeatAnswered, beat=0))
    said(pools.register(slots=3), a(e.RunnerRegistered, slots=3), a(BeatAnswered, beat=0))
    assert pools.free == 2
    pools.enqueue("u")
    said(pools.register(slots=1), a(e.RunnerRegistered, slots=1), BeatAnswered)
    assert pools.free == -1
    pools.enqueue("v")
    assert pools.waits("v") is not None
    pools.check()


def test_no_runner_registers_at_an_unknown_pool() -> None:
    pools = Pools(adopted=False)
    for reason in (Refusal.POLICY_MISSING, Refusal.POOL_UNKNOWN):
        decision = pools.register()
        said(decision, a(RunnerDismissed, runner_id="r", incarnation_id="1", reason=reason.value))
        assert decision.refusal is not None
        assert decision.refusal.reason is reason
        pools.publish(policy(pools=("B",)))
    assert pools.state.depths(A).slots == 0


def test_a_task_of_an_unknown_pool_is_kept_and_starts_once_the_pool_is_there() -> None:
    pools = Pools(adopted=False)
    said(pools.enqueue("t"), e.TaskEnqueued)
    pools.publish(policy())
    said(pools.register(), e.RunnerRegistered, e.SlotProposed, BeatAnswered, c.StartAttempt)


def test_a_new_incarnation_loses_all_of_the_old_and_has_new_slots() -> None:
    pools = running(slots=4)
    for task in ("over", "storing", "proposed"):
        pools.enqueue(task)
    pools.accepted("over")
    pools.task_says(c.EndAttempt, "over")
    pools.accepted("storing")
    pools.runner_says(c.FreeSlot, "storing")
    said(
        pools.register("r", "2", slots=1),
        a(e.SlotLost, task_id="proposed", cause=LossCause.RUNNER_REPLACED),
        a(e.SlotLost, task_id="storing"),
        a(e.SlotLost, task_id="t"),
        a(e.RunnerGone, incarnation_id="1"),
        a(e.RunnerRegistered, incarnation_id="2", slots=1),
        a(c.LoseAttempt, task_id="proposed"),
        a(c.LoseAttempt, task_id="storing"),
        a(c.LoseAttempt, task_id="t"),
        a(BeatAnswered, incarnation_id="2", beat=0, held=()),
    )
    assert pools.free == 1
    said(pools.register("r", "2", slots=1), a(BeatAnswered, incarnation_id="2", beat=0))
    pools.check()


@pytest.mark.parametrize("kind", [c.AcceptAttempt, c.FreeSlot])
def test_what_an_old_incarnation_says_is_refused_and_it_is_dismissed(kind: type) -> None:
    pools = running()
    pools.register("r", "2")
    decision = pools.runner_says(kind, "t", 1, "r", "1")
    said(decision, a(RunnerDismissed, incarnation_id="1"))
    assert decision.refusal is not None
    assert decision.refusal.reason is Refusal.INCARNATION_STALE
    assert pools.free == 1


def test_a_runner_neither_takes_nor_frees_what_another_one_holds() -> None:
    pools = Pools()
    pools.register("r")
    pools.enqueue("t")
    pools.register("other")
    taken = pools.runner_says(c.AcceptAttempt, "t", runner="other")
    said(taken, a(StopAttempt, runner_id="other", task_id="t"))
    assert taken.refusal is not None
    quiet(pools.runner_says(c.FreeSlot, "t", runner="other"))
    assert pools.stage("t") is Stage.PROPOSED


def test_a_beat_of_an_unknown_or_old_incarnation_dismisses_it() -> None:
    pools = Pools()
    decision = pools.beat(1)
    said(decision, a(RunnerDismissed, runner_id="r", reason="runner_unknown"))
    assert decision.refusal is not None
    pools.register("r", "2")
    said(pools.beat(1), a(RunnerDismissed, incarnation_id="1", reason="incarnation_stale"))
    said(pools.beat(1, incarnation="2"), e.LeasesExtended, BeatAnswered)


def test_a_beat_renews_the_lease_and_is_answered_with_what_stays_held() -> None:
    pools = running()
    pools.served_ms += LEASE_MS - 1
    said(
        pools.beat(1, ("t", 1), ("other", 7)),
        e.LeasesExtended,
        a(
            BeatAnswered,
            beat=1,
            lease_seconds=120,
            held=(c.HeldAttempt(task_id=TaskId("t"), token=1),),
        ),
    )
    said(pools.tick(LEASE_MS - 1).decision)
    said(pools.tick(1).decision, e.SlotLost, e.RunnerGone, c.LoseAttempt)


def test_a_beat_told_twice_is_answered_twice_and_renews_once() -> None:
    pools = running()
    first = pools.beat(1, ("t", 1))
    pools.served_ms += 1000
    again = pools.beat(1, ("t", 1))
    said(again, a(BeatAnswered, held=first.orders[-1].held))  # type: ignore[attr-defined]
    said(pools.tick(LEASE_MS - 1000).decision, e.SlotLost, e.RunnerGone, c.LoseAttempt)


def test_a_dispatch_on_its_way_is_held_though_no_beat_lists_it() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    for number in (1, 2):
        said(pools.beat(number), e.LeasesExtended, a(BeatAnswered, held=(held("t"),)))
    pools.task_says(c.GrantAttempt, "t")
    for number in (3, 4):
        said(pools.beat(number), e.LeasesExtended, a(BeatAnswered, held=(held("t"),)))


def held(task: str, token: int = 1) -> c.HeldAttempt:
    return c.HeldAttempt(task_id=TaskId(task), token=token)


def test_an_attempt_that_two_beats_do_not_list_is_lost() -> None:
    pools = running()
    said(pools.beat(1), e.LeasesExtended, a(BeatAnswered, held=(held("t"),)))
    pools.served_ms += BEAT_MS
    said(
        pools.beat(2),
        e.LeasesExtended,
        a(e.SlotLost, task_id="t", cause=LossCause.LEASE_EXPIRED),
        c.LoseAttempt,
        a(BeatAnswered, held=()),
    )
    assert pools.free == 0
    pools.check()


def test_beats_that_were_kept_back_and_are_worked_at_once_lose_nothing() -> None:
    """They may all be from before the runner had it, and wait behind a poison beat meanwhile."""
    pools = running()
    for number in (1, 2, 3):
        said(pools.beat(number), e.LeasesExtended, a(BeatAnswered, held=(held("t"),)))
    pools.served_ms += BEAT_MS
    said(pools.beat(4, ("t", 1)), e.LeasesExtended, a(BeatAnswered, held=(held("t"),)))
    assert pools.stage("t") is Stage.ACCEPTED


def test_an_attempt_that_a_beat_lists_again_is_not_lost() -> None:
    pools = running()
    pools.beat(1)
    pools.served_ms += BEAT_MS
    pools.beat(2, ("t", 1))
    pools.served_ms += BEAT_MS
    said(pools.beat(3), e.LeasesExtended, a(BeatAnswered, held=(held("t"),)))
    assert pools.stage("t") is Stage.ACCEPTED


def test_a_beat_told_twice_does_not_count_as_two_beats() -> None:
    pools = running()
    pools.beat(1)
    pools.served_ms += BEAT_MS
    said(pools.beat(1), a(BeatAnswered, held=(held("t"),)))
    assert pools.stage("t") is Stage.ACCEPTED


def test_a_runner_that_forgot_a_slot_is_asked_for_it() -> None:
    pools = running()
    pools.task_says(c.EndAttempt, "t")
    said(pools.beat(1), e.LeasesExtended, BeatAnswered)
    pools.served_ms += BEAT_MS
    said(
        pools.beat(2),
        e.LeasesExtended,
        a(StopAttempt, task_id="t", token=1, reason=NOT_HELD),
        BeatAnswered,
    )
    assert pools.free == 0


def test_at_the_end_of_its_lease_a_runner_is_gone_with_its_slots() -> None:
    pools = running(slots=2)
    pools.enqueue("u")
    said(
        pools.tick(LEASE_MS).decision,
        a(e.SlotLost, task_id="t", cause=LossCause.LEASE_EXPIRED),
        a(e.SlotLost, task_id="u", cause=LossCause.LEASE_EXPIRED),
        e.RunnerGone,
        c.LoseAttempt,
        c.LoseAttempt,
    )
    assert pools.state.depths(A).slots == 0
    said(pools.beat(9), RunnerDismissed)


def test_a_runner_gone_quiet_gets_nothing_new_until_it_beats() -> None:
    pools = Pools()
    pools.register()
    pools.served_ms += 3 * BEAT_MS
    said(pools.enqueue("t"), e.TaskEnqueued)
    said(pools.tick().decision)
    said(pools.beat(1), e.LeasesExtended, e.SlotProposed, BeatAnswered, c.StartAttempt)


def test_a_draining_runner_gets_nothing_new_and_goes_when_it_holds_nothing() -> None:
    pools = running(slots=2)
    said(pools.drain(), e.RunnerDraining)
    quiet(pools.drain())
    said(pools.enqueue("u"), e.TaskEnqueued)
    pools.task_says(c.EndAttempt, "t")
    said(pools.runner_says(c.FreeSlot, "t"), e.SlotFreed, e.RunnerGone)
    pools.check()


def test_an_idle_runner_is_drained_at_once() -> None:
    pools = Pools()
    pools.register()
    said(pools.drain(), e.RunnerDraining, e.RunnerGone)
    assert pools.drain().refusal is not None


# --- order of service -----------------------------------------------------------------------------


def served_order(pools: Pools, count: int) -> list[str]:
    """The order in which one slot serves."""
    order: list[str] = []
    decision = pools.register()
    for _ in range(count):
        start = next(one for one in decision.orders if isinstance(one, c.StartAttempt))
        order.append(start.task_id)
        decision = pools.task_says(c.RefuseAttempt, start.task_id, 1, reason="x")
    return order


def test_lanes_are_served_in_order_and_each_first_come_first_served() -> None:
    pools = Pools()
    for task, lane in (("a", "p2"), ("b", "p1"), ("c", "p0"), ("d", "p1"), ("e", "p0")):
        pools.enqueue(task, lane=Lane(lane))
    assert served_order(pools, 5) == ["c", "e", "b", "d", "a"]


def test_a_lane_that_waits_behind_an_endless_one_is_served_once_in_twenty() -> None:
    pools = Pools()
    for number in range(60):
        pools.enqueue(f"p0-{number}", lane=Lane.P0)
    for number in range(4):
        pools.enqueue(f"p2-{number}", lane=Lane.P2)
    served = served_order(pools, 60)
    assert [place for place, task in enumerate(served) if task.startswith("p2")] == [19, 39, 59]
    assert [task for task in served if task.startswith("p2")] == ["p2-0", "p2-1", "p2-2"]


def test_the_runner_with_the_most_free_slots_is_taken() -> None:
    pools = Pools()
    pools.register("small", slots=1)
    pools.register("large", slots=3)
    starts = [pools.enqueue(task).orders[0] for task in "abcd"]
    assert [start.runner_id for start in starts] == ["large", "large", "large", "small"]  # type: ignore[attr-defined]


def test_a_step_gives_away_at_most_its_share_and_says_that_there_is_more() -> None:
    pools = Pools()
    for number in range(450):
        pools.enqueue(f"t{number}")
    decision = pools.register(slots=1000)
    starts = [order for order in decision.orders if isinstance(order, c.StartAttempt)]
    assert len(starts) == 200
    assert pools.state.has_more(pools.served_ms)
    ticks = [pools.tick() for _ in range(2)]
    assert [(len(tick.decision.orders), tick.more) for tick in ticks] == [(200, True), (50, False)]
    assert pools.state.depths(A).waiting[Lane.P1] == 0
    pools.check()


def test_memory_is_flat_in_what_has_been_served() -> None:
    """Orders forget what is over, long before its deadlines come."""
    pools = Pools()
    pools.register(slots=4)
    for number in range(600):
        pools.enqueue(f"t{number}", lane=Lane.P0)
        pools.accepted(f"t{number}")
        pools.runner_says(c.FreeSlot, f"t{number}")
        pools.task_says(c.EndAttempt, f"t{number}")
    yard = pools.state.yard(A)
    assert len(pools.state.rows) == 3
    assert len(yard.expiry[Lane.P0]) < 100
    assert len(pools.state.timers) < 100
    assert len(yard.free) < 100
    pools.check()


# --- lanes and time -------------------------------------------------------------------------------


def test_a_task_that_waits_too_long_expires() -> None:
    pools = Pools()
    pools.enqueue("t", 2)
    said(pools.tick(TTL_MS - 1).decision)
    said(
        pools.tick(1).decision,
        a(e.TaskDequeued, task_id="t", token=2, expired=True),
        a(c.ExpireTask, task_id="t", token=2),
    )
    said(pools.tick(1).decision)
    pools.check()


def test_a_paused_lane_grants_nothing_and_its_time_stands_still() -> None:
    pools = Pools()
    pools.enqueue("t")
    pools.served_ms += 1000
    said(pools.pause(Lane.P1), a(e.LanePaused, lane=Lane.P1, who="op", why="jam"))
    quiet(pools.pause(Lane.P1))
    said(pools.enqueue("later"), e.TaskEnqueued)
    said(pools.register("r"), e.RunnerRegistered, BeatAnswered)
    pools.drain("r")
    said(pools.tick(5 * TTL_MS).decision)
    said(pools.resume(Lane.P1), a(e.LaneResumed, lane=Lane.P1, stood_ms=5 * TTL_MS))
    quiet(pools.resume(Lane.P1))
    said(pools.tick(TTL_MS - 1001).decision)
    said(pools.tick(1).decision, a(e.TaskDequeued, task_id="t"), c.ExpireTask)
    said(pools.tick(1000).decision, a(e.TaskDequeued, task_id="later"), c.ExpireTask)
    pools.check()


def test_pauses_add_up_and_a_task_that_comes_during_one_waits_its_whole_time() -> None:
    pools = Pools()
    for _ in range(2):
        pools.pause(Lane.P1)
        pools.served_ms += TTL_MS
        pools.resume(Lane.P1)
    pools.pause(Lane.P1)
    pools.served_ms += 3000
    pools.enqueue("t")
    pools.served_ms += TTL_MS
    pools.resume(Lane.P1)
    assert pools.state.pool(A).stood_ms == (0, 3 * TTL_MS + 3000, 0)
    said(pools.tick(TTL_MS - 1).decision)
    said(pools.tick(1).decision, e.TaskDequeued, c.ExpireTask)


def test_a_resumed_lane_is_served_in_the_same_step() -> None:
    pools = Pools()
    pools.pause(Lane.P1)
    pools.register(slots=2)
    pools.enqueue("t")
    pools.enqueue("u", lane=Lane.P2)
    assert pools.stage("u") is Stage.PROPOSED
    said(pools.resume(Lane.P1), e.LaneResumed, e.SlotProposed, c.StartAttempt)


def test_operators_are_answered_the_second_time_too() -> None:
    pools = Pools()
    for step, seq in ((pools.pause, 1), (pools.pause, 1), (pools.resume, 2), (pools.resume, 2)):
        reply = step(Lane.P0, 3).reply
        assert isinstance(reply, Accepted)
        assert (reply.key, reply.seq) == ("A", seq)


def test_lanes_of_an_unknown_pool_cannot_be_paused() -> None:
    pools = Pools(adopted=False)
    decision = pools.pause(Lane.P0, 1)
    assert isinstance(decision.reply, Refused)
    assert decision.reply.reason is Refusal.POLICY_MISSING
    assert not decision.events


def test_a_tick_works_on_so_many_deadlines_in_their_order_and_says_that_there_is_more() -> None:
    pools = Pools()
    for number in range(7):
        pools.enqueue(f"t{number}", lane=(Lane.P0, Lane.P1, Lane.P2)[number % 3])
        pools.served_ms += 1
    first = pools.tick(TTL_MS, limit=5)
    assert [event.task_id for event in first.decision.events] == [  # type: ignore[union-attr]
        f"t{number}" for number in range(5)
    ]
    assert first.more
    second = pools.tick(limit=5)
    assert len(second.decision.events) == 2
    assert not second.more


def test_one_deadline_alone_is_worked_on_when_it_is_the_first_and_only_then() -> None:
    pools = Pools()
    pools.enqueue("t")
    quiet(pools.due("queued/A/t"))
    pools.served_ms += TTL_MS
    quiet(pools.due("queued/A/other"))
    said(pools.due("queued/A/t"), e.TaskDequeued, c.ExpireTask)
    quiet(pools.due("queued/A/t"))


# --- policy ---------------------------------------------------------------------------------------


def test_a_policy_is_adopted_once_and_never_an_older_one() -> None:
    pools = Pools(adopted=False)
    adopted = pools.publish(policy(2), who="op", why="start", reply_to=1)
    said(adopted, a(e.PolicyAdopted, seq=1, who="op", why="start"))
    assert adopted.reply == Accepted(
        command_id=CommandId("p1"), key="policy", at=pools.now.at, seq=1
    )
    again = pools.publish(policy(2), reply_to=1)
    assert not again.events
    assert isinstance(again.reply, Accepted)
    older = pools.publish(policy(1), reply_to=1)
    assert isinstance(older.reply, Refused)
    assert older.refusal is not None
    assert older.refusal.reason is Refusal.POLICY_OUTDATED
    said(pools.publish(policy(3)), a(e.PolicyAdopted, seq=2))
    pools.check()


def test_a_policy_that_no_partition_may_adopt_is_adopted_by_no_pool_either() -> None:
    pools = Pools(adopted=False)
    pools.publish(policy(2))
    tokyo = msgspec.structs.replace(policy(3), timezone="Asia/Tokyo")
    for document, reason, detail in (
        (policy(2, lease_seconds=60), Refusal.IDEMPOTENCY_CONFLICT, ""),
        (
            policy(3, beat_seconds=120),
            Refusal.POLICY_INVALID,
            "pools.A: a lease must outlast a beat",
        ),
        (tokyo, Refusal.POLICY_INVALID, "timezone: UTC is fixed"),
    ):
        refused = pools.publish(document, reply_to=1)
        said(refused)
        assert refused.refusal is not None
        assert (refused.refusal.reason, refused.refusal.detail) == (reason, detail)
        assert isinstance(refused.reply, Refused)
    said(pools.publish(policy(3)), a(e.PolicyAdopted, seq=2))
    pools.check()


def test_the_numbers_of_a_new_policy_count_from_the_next_step() -> None:
    pools = running()
    pools.publish(policy(2, lease_seconds=3, beat_seconds=1, accept_seconds=1))
    said(pools.tick(4000).decision)
    answered = a(BeatAnswered, lease_seconds=3, beat_seconds=1)
    said(pools.beat(1, ("t", 1)), e.LeasesExtended, answered)
    said(pools.tick(3000).decision, e.SlotLost, e.RunnerGone, c.LoseAttempt)


def test_the_pools_of_a_partition_do_not_touch_each_other() -> None:
    pools = Pools()
    pools.publish(policy(2, pools=("A", "B")))
    pools.register()
    said(pools.enqueue("t", pool="B"), a(e.TaskEnqueued, seq=1))
    assert pools.waits("t", "B") is not None
    assert pools.state.depths(PoolId("B")).waiting[Lane.P1] == 1
    assert pools.state.depths(A).waiting[Lane.P1] == 0
    pools.check()


# --- poison ---------------------------------------------------------------------------------------


def test_a_step_that_is_rolled_back_never_was() -> None:
    pools = running(slots=3)
    pools.enqueue("u")
    before = dict(pools.state.rows)
    newer = c.RegisterRunner(command_id=pools.named("x"), slots=2, **of_runner("r", "2"))
    handle(pools.state, newer, pools.now)
    assert pools.state.changed
    pools.state.rollback()
    assert pools.state.rows == before
    pools.check()


def test_a_decision_alone_changes_nothing() -> None:
    pools = Pools()
    pools.register()
    before = dict(pools.state.rows)
    decision = decide(pools.state, enqueue("x", "t"), pools.now)
    assert [type(event) for event in decision.events] == [e.TaskEnqueued]
    assert pools.state.rows == before
    assert not pools.state.changed


def test_every_command_of_the_topic_has_its_rule() -> None:
    assert set(RULES) == set(get_args(c.PoolCommand)) - {c.ReleaseKey}
    quiet(Pools().do(c.ReleaseKey(command_id=CommandId("k"), key="A", who="op", why="x")))
