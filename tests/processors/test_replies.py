"""Who asks with `reply_to` is answered exactly once for every time that he asked."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from schema import commands as c
from schema import replies as r
from schema.codec import encode
from schema.failures import FailureClass
from schema.ids import NO_TENANT, CommandId, account_of
from schema.routes import Route
from schema.topics import Topic
from schema.words import Lane, Scene
from tests.processors.play import ANN, POLICY, POOL, Play

TIMES = 3
Ask = Callable[[Play], c.Command]


def granted(play: Play) -> c.Command:
    return play.submission("one")


def refused(play: Play) -> c.Command:
    for number in range(5):
        play.submit(f"key-{number}", tier="free")
    return play.submission("too many", tier="free")


def unknown_tier(play: Play) -> c.Command:
    return play.submission("one", tier="nobody")


def failed_task_retried(play: Play) -> c.Command:
    runner = play.runner()
    task = play.submit("one")
    runner.fail(runner.inbox(r.DispatchAttempt)[0], FailureClass.INPUT)
    return _retry(task)


def queued_task_retried(play: Play) -> c.Command:
    return _retry(play.submit("one"))


def unknown_task_retried(_: Play) -> c.Command:
    return _retry("0123456789abcdefghjkmnpqrs000007")


def _retry(task: str) -> c.RetryTask:
    return c.RetryTask(
        command_id=CommandId("retry"),
        task_id=task,  # type: ignore[arg-type]
        user_id=ANN,
        tenant_id=NO_TENANT,
        account_id=account_of(NO_TENANT, ANN),
        scene=Scene.REHEARSAL,
        tier="load",
        reply_to=0,
    )


def canceled(play: Play) -> c.Command:
    return _cancel(play.submit("one"))


def ended_task_canceled(play: Play) -> c.Command:
    runner = play.runner()
    task = play.submit("one")
    runner.finish(runner.inbox(r.DispatchAttempt)[0])
    return _cancel(task)


def unknown_task_canceled(_: Play) -> c.Command:
    return _cancel("0123456789abcdefghjkmnpqrs000007")


def _cancel(task: str) -> c.CancelTask:
    return c.CancelTask(
        command_id=CommandId("cancel"),
        task_id=task,  # type: ignore[arg-type]
        user_id=ANN,
        tenant_id=NO_TENANT,
        reply_to=0,
    )


def topped_up(_: Play) -> c.Command:
    return c.TopUpQuota(
        command_id=CommandId("top-up"),
        account_id=account_of(NO_TENANT, ANN),
        user_id=ANN,
        scene=Scene.REHEARSAL,
        amount_micros=1,
        who="anna",
        why="asked for",
        reply_to=0,
    )


def topped_up_without_a_contract(_: Play) -> c.Command:
    return c.TopUpQuota(
        command_id=CommandId("top-up"),
        account_id=account_of(NO_TENANT, ANN),
        scene=Scene.REHEARSAL,
        amount_micros=1,
        who="anna",
        why="asked for",
        reply_to=0,
    )


def lane_paused(_: Play) -> c.Command:
    return c.PauseLane(
        command_id=CommandId("pause"), pool_id=POOL, lane=Lane.P2, who="anna", why="", reply_to=0
    )


def lane_resumed(_: Play) -> c.Command:
    return c.ResumeLane(
        command_id=CommandId("resume"), pool_id=POOL, lane=Lane.P2, who="anna", why="", reply_to=0
    )


def lane_of_no_pool_paused(_: Play) -> c.Command:
    pool_id = "Z"
    return c.PauseLane(
        command_id=CommandId("pause"),
        pool_id=pool_id,  # type: ignore[arg-type]
        lane=Lane.P2,
        who="anna",
        why="",
        reply_to=0,
    )


def material_registered(play: Play) -> c.Command:
    return play.register()


def material_completed(play: Play) -> c.Command:
    return play.complete(play.register())


def material_stored(play: Play) -> c.Command:
    return play.store(play.register())


def material_mismatched(play: Play) -> c.Command:
    return play.store(play.register(), size=1)


def material_adopted(play: Play) -> c.Command:
    return play.adopt(play.register())


def material_adopted_by_mistake(play: Play) -> c.Command:
    return play.adopt(play.register(), size=1)


ASKED: list[Ask] = [
    granted,
    refused,
    unknown_tier,
    failed_task_retried,
    queued_task_retried,
    unknown_task_retried,
    canceled,
    ended_task_canceled,
    unknown_task_canceled,
    topped_up,
    topped_up_without_a_contract,
    lane_paused,
    lane_resumed,
    lane_of_no_pool_paused,
    material_registered,
    material_completed,
    material_stored,
    material_mismatched,
    material_adopted,
    material_adopted_by_mistake,
]


@pytest.mark.parametrize("ask", ASKED, ids=lambda ask: ask.__name__)
def test_each_time_that_it_is_asked_it_is_answered_once(ask: Ask) -> None:
    play = Play()
    command = ask(play)
    asked_already = 1 if ask.__name__.startswith("material") else 0
    if isinstance(command, c.PauseLane) and command.pool_id not in POLICY.pools:
        place = Route(Topic.POOL_COMMANDS, 0, "Z")
        for _ in range(TIMES):
            play.flow.put(place, encode(command))
        play.flow.settle()
    else:
        for _ in range(TIMES - asked_already):
            play.ask(command)
    assert len(play.replies(command)) == TIMES


@pytest.mark.parametrize("topic", [Topic.QUOTA_COMMANDS, Topic.POOL_COMMANDS])
@pytest.mark.parametrize("version", [1, 2])
def test_a_policy_is_answered_for_by_every_partition(topic: Topic, version: int) -> None:
    play = Play(partitions=2)
    policy = replace(POLICY, version=version)
    for number in range(2):
        command = c.PublishPolicy(
            command_id=CommandId(f"publish-{number}"), policy=policy, reply_to=number
        )
        for _ in range(TIMES):
            play.flow.put(Route(topic, number, "policy"), encode(command))
        play.flow.settle()
        replies = play.replies(command)
        assert len(replies) == TIMES
        assert all(isinstance(reply, r.Accepted) for reply in replies)


def test_two_who_ask_at_once_are_both_answered_in_one_transaction() -> None:
    play = Play()
    command = play.submission("one")
    for _ in range(TIMES):
        play.flow.append(command)
    play.flow.settle()
    assert len(play.replies(command)) == TIMES
    assert play.story(command.task_id) == ["TaskCreated", "TaskQueued"]
