"""Cases from the field, as far as a pool answers for them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from commands.decider import Decision
from commands.pools import Stage
from schema import commands as c
from schema import events as e
from schema.ids import TaskId
from schema.replies import BeatAnswered, RunnerDismissed
from schema.words import LossCause
from tests.support.pools import ACCEPT_MS, BEAT_MS, LEASE_MS, A, Pools


def starts(decision: Decision[Any]) -> list[tuple[str, int, str]]:
    """Task, token and runner of what is started."""
    return [
        (order.task_id, order.token, order.runner_id)
        for order in decision.orders
        if isinstance(order, c.StartAttempt)
    ]


def losses(decision: Decision[Any]) -> list[tuple[str, int, LossCause]]:
    return [
        (order.task_id, order.token, order.cause)
        for order in decision.orders
        if isinstance(order, c.LoseAttempt)
    ]


def working() -> Pools:
    """`t` is accepted by `r`, which has one slot; `u` waits."""
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    pools.accepted("t")
    pools.enqueue("u")
    return pools


def test_a_waiting_task_holds_no_lease_and_is_started_once_for_a_token() -> None:
    pools = Pools()
    pools.enqueue("t")
    for _ in range(30):
        assert not pools.tick(LEASE_MS // 2).decision.events
        assert not pools.enqueue("t").events
    assert pools.stage("t") is None
    assert starts(pools.register()) == [("t", 1, "r")]
    for _ in range(5):
        assert not starts(pools.enqueue("t"))
        assert not starts(pools.tick().decision)


def test_beating_keeps_a_lease_for_hours_without_a_second_dispatch() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    pools.accepted("t")
    for number in range(1, 4 * 240):  # four hours
        assert not pools.tick(BEAT_MS).decision.orders
        answer = pools.beat(number, ("t", 1)).orders
        assert answer[-1].held == (c.HeldAttempt(task_id=TaskId("t"), token=1),)  # type: ignore[attr-defined]
        assert len(answer) == 1
    assert pools.stage("t") is Stage.ACCEPTED


def test_the_slot_of_an_attempt_called_dead_is_not_given_on_while_its_runner_lives() -> None:
    pools = Pools()
    pools.register()
    pools.enqueue("t")
    pools.task_says(c.GrantAttempt, "t")
    assert losses(pools.tick(ACCEPT_MS).decision) == [("t", 1, LossCause.NOT_ACCEPTED)]
    assert not starts(pools.enqueue("t", 1))
    for number in range(1, 9):
        assert not starts(pools.tick(BEAT_MS).decision)
        assert not starts(pools.beat(number))
    assert starts(pools.register("other")) == [("t", 2, "other")]
    assert pools.stage("t", 1) is Stage.LOST


def test_a_slot_called_dead_is_free_with_the_end_of_the_runner() -> None:
    pools = working()
    assert losses(pools.tick(LEASE_MS).decision) == [("t", 1, LossCause.LEASE_EXPIRED)]
    pools.enqueue("t", 1)
    dismissed = pools.runner_says(c.FreeSlot, "t")
    assert [type(order) for order in dismissed.orders] == [RunnerDismissed]
    assert starts(pools.register("r", "2", slots=2)) == [("u", 1, "r"), ("t", 2, "r")]


def test_what_a_runner_held_is_lost_when_it_comes_back_under_its_name() -> None:
    pools = working()
    decision = pools.register("r", "2")
    assert losses(decision) == [("t", 1, LossCause.RUNNER_REPLACED)]
    assert starts(decision) == [("u", 1, "r")]


def test_what_a_vanished_runner_held_is_lost_within_one_lease() -> None:
    pools = working()
    for _ in range(LEASE_MS // 1000 - 1):
        assert not losses(pools.tick(1000).decision)
    assert losses(pools.tick(1000).decision) == [("t", 1, LossCause.LEASE_EXPIRED)]


def test_two_ticks_over_one_list_lose_an_attempt_once_and_start_it_once() -> None:
    pools = working()
    assert len(losses(pools.tick(LEASE_MS).decision)) == 1
    assert not pools.tick().decision.orders
    assert starts(pools.register("other")) == [("u", 1, "other")]
    assert not starts(pools.enqueue("t", 1))
    assert not pools.enqueue("t", 1).events
    assert starts(pools.register("third", slots=2)) == [("t", 2, "third")]
    assert not pools.enqueue("t", 1).events


Step = Callable[[Pools], Any]
WAYS: dict[str, list[Step]] = {
    "finished": [
        lambda p: p.accepted("t"),
        lambda p: p.task_says(c.EndAttempt, "t"),
        lambda p: p.runner_says(c.FreeSlot, "t"),
    ],
    "freed first": [
        lambda p: p.accepted("t"),
        lambda p: p.runner_says(c.FreeSlot, "t"),
        lambda p: p.task_says(c.EndAttempt, "t"),
    ],
    "refused": [lambda p: p.task_says(c.RefuseAttempt, "t", reason="x")],
    "canceled before it was accepted": [
        lambda p: p.task_says(c.GrantAttempt, "t"),
        lambda p: p.task_says(c.EndAttempt, "t"),
        lambda p: p.runner_says(c.AcceptAttempt, "t"),
        lambda p: p.runner_says(c.FreeSlot, "t"),
    ],
    "not accepted, then freed": [
        lambda p: p.task_says(c.GrantAttempt, "t"),
        lambda p: p.tick(ACCEPT_MS),
        lambda p: p.runner_says(c.FreeSlot, "t"),
    ],
    "forgotten, then freed": [
        lambda p: p.accepted("t"),
        lambda p: (p.beat(1), p.tick(BEAT_MS), p.beat(2)),
        lambda p: p.runner_says(c.FreeSlot, "t"),
    ],
    "queued again": [
        lambda p: p.accepted("t"),
        lambda p: p.enqueue("t", 1),
        lambda p: p.runner_says(c.FreeSlot, "t"),
        lambda p: p.task_says(c.RefuseAttempt, "t", 2, reason="x"),
    ],
    "declined": [
        lambda p: p.task_says(c.GrantAttempt, "t"),
        lambda p: p.runner_says(c.FreeSlot, "t"),
        lambda p: (p.beat(1), p.tick(BEAT_MS), p.beat(2)),
    ],
    "runner replaced": [lambda p: p.register("r", "2", slots=2)],
    "runner gone": [lambda p: p.tick(LEASE_MS), lambda p: p.register("r", "2", slots=2)],
    "slots taken away and given back": [
        lambda p: p.register(slots=0),
        lambda p: p.register(slots=2),
        lambda p: p.task_says(c.RefuseAttempt, "t", reason="x"),
    ],
}


@pytest.mark.parametrize("way", list(WAYS))
def test_a_slot_comes_back_on_every_way_an_attempt_can_go(way: str) -> None:
    pools = Pools()
    pools.register(slots=2)
    pools.enqueue("t")
    for step in WAYS[way]:
        step(pools)
        pools.check()
        depths = pools.state.depths(A)
        assert depths.used + depths.free == depths.slots
    assert pools.free == 2
    assert pools.stage("t") is None


def told(skew: timedelta) -> list[tuple[str, ...]]:
    """What follows in four beats and a lease, if the log's clock is that far off."""
    pools = working()
    pools.log_ahead = skew
    facts: list[Decision[Any]] = []
    for number in range(1, 5):
        facts += [pools.tick(BEAT_MS).decision, pools.beat(number, ("t", 1))]
    facts += [pools.tick(LEASE_MS - 1).decision, pools.tick(1).decision]
    return [tuple(type(one).__name__ for one in (*fact.events, *fact.orders)) for fact in facts]


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_skewed_clock_of_any_node_changes_no_lease(minutes: int) -> None:
    """No message of a runner holds a time, and rules count in the served clock of the log alone."""
    straight = told(timedelta())
    assert straight[-1][0] == "SlotLost"
    assert straight[-2] == ()
    assert told(timedelta(minutes=minutes)) == straight


def test_a_time_in_which_nobody_served_ends_no_lease_and_no_wait() -> None:
    """The log's clock goes on for three days; the served clock stood."""
    pools = working()
    pools.log_ahead = timedelta(days=3)
    assert not pools.tick(1000).decision.events
    assert isinstance(pools.beat(1, ("t", 1)).orders[-1], BeatAnswered)
    assert pools.stage("t") is Stage.ACCEPTED
    assert pools.waits("u") is not None


def test_the_end_of_one_attempt_touches_no_other_on_that_slot() -> None:
    pools = working()
    pools.task_says(c.EndAttempt, "t")
    assert starts(pools.runner_says(c.FreeSlot, "t")) == [("u", 1, "r")]
    pools.accepted("u")
    for kind in (c.EndAttempt, c.DequeueTask):
        assert not pools.task_says(kind, "t").events
    assert not pools.runner_says(c.FreeSlot, "t").events
    assert pools.stage("u") is Stage.ACCEPTED
    assert pools.free == 0


def test_an_older_token_of_the_same_task_frees_and_ends_nothing_of_the_newer() -> None:
    pools = Pools()
    pools.register(slots=2)
    pools.enqueue("t")
    pools.accepted("t")
    pools.enqueue("t", 1)
    pools.accepted("t", 2)
    pools.runner_says(c.FreeSlot, "t", 1)
    for step in (
        pools.task_says(c.EndAttempt, "t", 1),
        pools.runner_says(c.FreeSlot, "t", 1),
        pools.task_says(c.DequeueTask, "t", 1),
        pools.task_says(c.RefuseAttempt, "t", 1, reason="x"),
    ):
        assert not step.events
    assert pools.stage("t", 2) is Stage.ACCEPTED
    assert [type(event) for event in pools.task_says(c.EndAttempt, "t", 2).events] == [
        e.AttemptOver
    ]
