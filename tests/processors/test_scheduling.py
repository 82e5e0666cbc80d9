"""Preemption, spot, breaker and scaling through the whole flow, and what is told of them."""

from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from processors.metrics import PoolMetrics
from schema import commands as c
from schema import events as e
from schema import replies as r
from schema.failures import FailureClass
from schema.ids import CommandId, PoolId
from schema.policy import BreakerPolicy, Policy, ScalingPolicy
from schema.topics import Topic, pool_partition
from schema.words import Lane, LossCause, Scene
from tests.processors.play import BEN, POLICY, POOL, Play

PREEMPTIBLE: dict[str, Any] = {
    "preemptible": True,
    "min_run_seconds": 5,
    "yield_seconds": 10,
    "preemptions_max": 2,
}


def ruled(**numbers: Any) -> Policy:  # noqa: ANN401 - fields of the pool of rehearsals
    pool = replace(POLICY.pools[POOL], **numbers)
    return replace(POLICY, pools={**POLICY.pools, POOL: pool})


def metrics(play: Play) -> str:
    registry = CollectorRegistry()
    registry.register(PoolMetrics(play.flow.rules.pools))
    return generate_latest(registry).decode()


def vip(play: Play, key: str = "vip") -> c.SubmitTask:
    command = play.submission(key, user=BEN, tier="team")
    play.ask(command, Lane.P0)
    return command


def test_a_member_takes_the_slot_of_a_lower_class_whose_task_goes_on_later() -> None:
    play = Play(policy=ruled(**PREEMPTIBLE))
    runner = play.runner()
    low = play.submit("low")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.accept(dispatch)
    play.flow.tick(5)
    member = vip(play)
    (asked,) = runner.inbox(r.YieldAttempt)
    assert (asked.task_id, asked.token, asked.seconds) == (low, 1, 10)
    play.ask(
        c.AttemptYielded(
            command_id=CommandId("yielded"),
            task_id=low,
            token=1,
            cause=LossCause.PREEMPTED,
            checkpoint="half",
            card_ms=5_000,
            saved_ms=4_000,
        )
    )
    runner.free(dispatch)
    second = runner.inbox(r.DispatchAttempt)[-1]
    assert second.task_id == member.task_id
    requeued = [one for one in play.told(Topic.TASK_EVENTS, e.TaskRequeued) if one.task_id == low]
    assert [(one.loss, one.counted, one.saved_ms) for one in requeued] == [
        (LossCause.PREEMPTED, False, 4_000)
    ]
    waits = [one for one in play.told(Topic.POOL_EVENTS, e.TaskEnqueued) if one.task_id == low]
    assert [one.preemptions for one in waits] == [0, 1]
    runner.accept(second)
    runner.finish(second)
    last = runner.inbox(r.DispatchAttempt)[-1]
    assert (last.task_id, last.token, last.checkpoint) == (low, 2, "half")
    assert 'cutlog_pool_preemptions_total{pool="R"} 1.0' in metrics(play)


def test_a_runner_that_does_not_yield_is_stopped_and_its_task_waits_again() -> None:
    play = Play(policy=ruled(**PREEMPTIBLE))
    runner = play.runner()
    low = play.submit("low")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.accept(dispatch)
    play.flow.tick(5)
    member = vip(play)
    play.flow.tick(10, lambda: runner.beat(dispatch))
    stops = runner.inbox(r.StopAttempt)
    assert {(stop.task_id, stop.token) for stop in stops} == {(low, 1)}
    assert play.free_slots() == 0
    runner.free(dispatch)
    assert runner.inbox(r.DispatchAttempt)[-1].task_id == member.task_id
    lost = play.told(Topic.POOL_EVENTS, e.SlotLost)
    assert [one.cause for one in lost] == [LossCause.PREEMPTED]


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_pool_that_nobody_knows_yet_wants_its_floor_once(partitions: int) -> None:
    scaling = ScalingPolicy(cards_min=2, cards_max=4)
    play = Play(partitions, ruled(scaling=scaling))
    play.flow.tick(5)
    told = [one for one in play.told(Topic.POOL_EVENTS, e.PoolScaled) if one.pool_id == POOL]
    assert [(one.cards, one.cards_before) for one in told] == [(2, 0)]
    assert 'cutlog_pool_wanted_cards{pool="R"} 2.0' in metrics(play)
    place = pool_partition(POOL, partitions)
    assert POOL in play.flow.rules.pools.states()[place].pools


def test_a_poisoned_pool_opens_its_breaker_and_an_operator_closes_it() -> None:
    breaker = BreakerPolicy(failure_share_max=0.5, attempts_min=3, open_seconds=20)
    play = Play(policy=ruled(breaker=breaker))
    runner = play.runner()
    for number in range(3):
        play.submit(f"key-{number}")
        dispatch = runner.inbox(r.DispatchAttempt)[-1]
        runner.accept(dispatch)
        runner.fail(dispatch, FailureClass.HUNG)
    (opened,) = play.told(Topic.POOL_EVENTS, e.BreakerOpened)
    assert (opened.scene, opened.failed, opened.counted) == (Scene.REHEARSAL, 3, 3)
    assert 'cutlog_pool_breaker{pool="R",scene="rehearsal"} 2.0' in metrics(play)
    told = len(runner.inbox(r.DispatchAttempt))
    play.submit("kept")
    play.flow.tick(5)
    assert len(runner.inbox(r.DispatchAttempt)) == told
    reset = c.ResetBreaker(
        command_id=CommandId("reset"),
        pool_id=PoolId("R"),
        scene=Scene.REHEARSAL,
        who="anna",
        why="the driver is mended",
        reply_to=0,
    )
    play.ask(reset)
    assert [type(reply) for reply in play.replies(reset)] == [r.Accepted]
    assert len(runner.inbox(r.DispatchAttempt)) == told + 1
    assert 'cutlog_pool_breaker{pool="R",scene="rehearsal"} 0.0' in metrics(play)


def test_a_notice_empties_a_spot_card_without_a_retry() -> None:
    play = Play(policy=ruled(yield_seconds=10))
    runner = play.runner()
    task = play.submit("t")
    (dispatch,) = runner.inbox(r.DispatchAttempt)
    runner.accept(dispatch)
    drain = c.DrainRunner(command_id=CommandId("notice"), spot=True, **runner.place)
    play.ask(drain)
    (asked,) = runner.inbox(r.YieldAttempt)
    assert asked.reason == LossCause.SPOT
    play.flow.tick(10)
    requeued = play.told(Topic.TASK_EVENTS, e.TaskRequeued)
    assert [(one.task_id, one.loss, one.counted) for one in requeued] == [
        (task, LossCause.SPOT, False)
    ]
