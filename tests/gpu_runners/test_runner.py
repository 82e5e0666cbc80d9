"""A runner as a process, on the real log: it works while it is known, and stops by itself."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from cutlog.installation import LOCAL_POLICY
from cutlog.stack import LocalStack
from schema import commands as c
from schema import events as e
from schema import replies as r
from schema.codec import encode
from schema.ids import (
    NO_TENANT,
    IncarnationId,
    RunnerId,
    TaskId,
    UserId,
    account_of,
    command_id_of,
    task_id_of,
)
from schema.policy import read_policy
from schema.routes import route_inbox
from schema.settings import load, need
from schema.topics import Topic
from schema.wires.objects import ObjectStore
from schema.words import LossCause, Scene
from tests.support.ground import Ground, Process, ground_on

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ANN = UserId("annannannannannannan000007")
LEASE_SECONDS = 8
PATIENCE_SECONDS = 60
LONG: dict[str, Any] = {"seconds": 600, "steps": 6_000, "reports": 600}


@pytest.fixture
async def ground(stack: LocalStack, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground_on(stack, tmp_path) as found:
        yield found


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The local one, with a short lease."""
    document = json.loads(LOCAL_POLICY.read_bytes())
    document["pools"]["R"] |= {"lease_seconds": LEASE_SECONDS, "beat_seconds": 1}
    document["pools"]["R"]["accept_seconds"] = 10
    document["retries"] |= {"loss_delay_ms": 200}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))
    return path


async def submit(ground: Ground, key: str, parameters: dict[str, Any]) -> TaskId:
    task_id = task_id_of(NO_TENANT, ANN, key)
    await ground.ask(
        c.SubmitTask(
            command_id=command_id_of("submit", task_id),
            task_id=task_id,
            origin=c.Origin(
                user_id=ANN,
                tenant_id=NO_TENANT,
                account_id=account_of(NO_TENANT, ANN),
                scene=Scene.REHEARSAL,
                tier="load",
                fingerprint="f",
                parameters=parameters,
            ),
        )
    )
    return task_id


def workers(runner: Process) -> list[psutil.Process]:
    """The worker processes of a runner, and all that they started."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(runner.pid).children(recursive=True)
        return [one for one in found if runs(one)]
    return []


async def gone(processes: list[psutil.Process]) -> None:
    """Until none of them runs any more; their work would take longer than our patience."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(map(runs, processes)):  # noqa: ASYNC110 - the kernel tells of nobody's end
            await asyncio.sleep(0.05)


def runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


async def held_beat(ground: Ground, task_id: TaskId) -> c.BeatRunner:
    """A beat that lists the task: it is at work."""
    return await ground.wait(
        Topic.POOL_COMMANDS,
        c.BeatRunner,
        lambda beat: any(one.task_id == task_id for one in beat.held),
    )


async def freed(ground: Ground, task_id: TaskId, token: int) -> None:
    """The runner has told the slot of this attempt free."""
    place = (task_id, token)
    await ground.wait(
        Topic.POOL_COMMANDS, c.FreeSlot, lambda free: (free.task_id, free.token) == place
    )


class FakePool:
    """Says to a runner what its pool would, without a pool."""

    def __init__(self, ground: Ground, runner_id: str, incarnation_id: IncarnationId) -> None:
        self._ground = ground
        self._who: dict[str, Any] = {
            "runner_id": RunnerId(runner_id),
            "incarnation_id": incarnation_id,
            "at": datetime.now(UTC),
        }

    async def say(self, kind: type[r.InboxMessage], **fields: Any) -> None:  # noqa: ANN401
        message = kind(**(self._who | fields))
        place = route_inbox(message.runner_id, self._ground.kafka.partitions)
        await self._ground.put(place, encode(message))

    async def dispatch(self, task: TaskId, token: int, parameters: dict[str, Any]) -> None:
        await self.say(
            r.DispatchAttempt,
            task_id=task,
            user_id=ANN,
            token=token,
            scene=Scene.REHEARSAL,
            parameters=parameters,
            lease_seconds=120,
            run_limit_seconds=600,
        )


async def known(ground: Ground, runner_id: str) -> FakePool:
    """The runner has registered, and is answered."""
    register = await ground.wait(
        Topic.POOL_COMMANDS, c.RegisterRunner, lambda one: one.runner_id == runner_id
    )
    pool = FakePool(ground, runner_id, register.incarnation_id)
    await pool.say(r.BeatAnswered, beat=0, lease_seconds=120, beat_seconds=1)
    return pool


# --- with a real pool -----------------------------------------------------------------------------


async def test_it_registers_is_answered_works_stores_and_frees_its_slot(
    ground: Ground, policy: Path
) -> None:
    await (await ground.processor(policy)).ready()
    runner = await ground.runner("gpu-1")
    await runner.ready()
    task = await submit(ground, "one", {"seconds": 0.5, "steps": 20, "reports": 20})
    done = await ground.wait(Topic.TASK_EVENTS, e.TaskSucceeded)
    (file,) = done.files
    assert (done.task_id, done.token, file.object_key) == (
        task,
        1,
        f"results/{task}/1/rehearsal.json",
    )
    await ground.wait(Topic.POOL_EVENTS, e.SlotFreed)
    told = [type(one).__name__ for one in await ground.all(Topic.TASK_EVENTS)]
    assert told[:3] == ["TaskCreated", "TaskQueued", "TaskStarted"]
    assert told.count("TaskProgressed") == 4
    assert told[-2:] == ["TaskStoring", "TaskSucceeded"]
    settings = load(ground.environ)
    async with ObjectStore(need(settings, "objects")) as store:
        kept = await store.head(file.object_key)
    assert kept is not None
    assert (kept.size, kept.sha256) == (file.size, file.sha256)
    assert await runner.end() == 0


async def test_unanswered_it_stops_by_itself_and_comes_back_as_a_new_incarnation(
    ground: Ground, policy: Path
) -> None:
    processor = await ground.processor(policy)
    await processor.ready()
    runner = await ground.runner("gpu-1")
    await runner.ready()
    task = await submit(ground, "one", LONG)
    first = await held_beat(ground, task)
    at_work = workers(runner)
    assert at_work
    await processor.end(signal.SIGKILL)
    await gone(at_work)
    assert runner.process.returncode is None
    assert {one.pid for one in workers(runner)}.isdisjoint(one.pid for one in at_work)
    await (await ground.processor(policy)).ready()
    requeued = await ground.wait(Topic.TASK_EVENTS, e.TaskRequeued)
    assert (requeued.loss, requeued.counted) == (LossCause.RUNNER_REPLACED, False)
    again = await ground.wait(Topic.TASK_EVENTS, e.TaskStarted, lambda one: one.token == 2)
    assert again.incarnation_id != first.incarnation_id
    await runner.ready()
    await runner.end(signal.SIGKILL)


async def test_dismissed_it_backs_off_and_is_known_once_there_is_a_policy(
    ground: Ground, policy: Path
) -> None:
    processor = await ground.processor()
    await processor.ready()
    runner = await ground.runner("gpu-1")
    told: dict[str, datetime] = {}
    for _ in range(5):  # it asks again and again, each time as somebody else, and ever more rarely
        one = await ground.wait(
            Topic.RUNNER_INBOX,
            r.RunnerDismissed,
            lambda message: message.incarnation_id not in told,
        )
        told[one.incarnation_id] = one.at
    apart = [(later - at).total_seconds() for at, later in pairwise(told.values())]
    # What a slow machine adds makes them longer only.
    for seconds, least in zip(apart, (0.2, 0.5, 1, 2), strict=True):
        assert seconds >= least, apart
    await ground.publish(read_policy(policy.read_bytes()))  # noqa: ASYNC240
    await runner.ready()
    assert await runner.end() == 0


async def test_sigterm_lets_finish_what_ends_in_time_and_gives_the_rest_back(
    ground: Ground, policy: Path
) -> None:
    await (await ground.processor(policy)).ready()
    runner = await ground.runner("gpu-1", slots=2, drain_seconds=16)
    await runner.ready()
    short = await submit(ground, "short", {"seconds": 4, "steps": 50, "reports": 10})
    long = await submit(ground, "long", LONG)
    await held_beat(ground, short)
    await held_beat(ground, long)
    at_work = workers(runner)
    assert await runner.end() == 0
    assert not any(map(runs, at_work))
    done = await ground.wait(Topic.TASK_EVENTS, e.TaskSucceeded)
    assert done.task_id == short
    back = await ground.wait(Topic.TASK_EVENTS, e.TaskRequeued)
    assert (back.task_id, back.loss, back.counted, back.delay_ms) == (
        long,
        LossCause.DRAINED,
        False,
        0,
    )
    away = await ground.wait(Topic.POOL_EVENTS, e.RunnerGone)
    assert away.runner_id == "gpu-1"
    starts = [one for one in await ground.all(Topic.TASK_EVENTS) if isinstance(one, e.TaskStarted)]
    assert [one.token for one in starts if one.task_id == long] == [1]  # it waits for another one


async def test_killed_it_leaves_no_worker_and_its_task_is_queued_again(
    ground: Ground, policy: Path
) -> None:
    await (await ground.processor(policy)).ready()
    runner = await ground.runner("gpu-1")
    await runner.ready()
    task = await submit(ground, "one", LONG)
    await held_beat(ground, task)
    at_work = workers(runner)
    assert at_work
    await runner.end(signal.SIGKILL)
    await gone(at_work)
    requeued = await ground.wait(Topic.TASK_EVENTS, e.TaskRequeued)
    assert (requeued.task_id, requeued.loss) == (task, LossCause.LEASE_EXPIRED)


# --- with a pool that says what the story wants ---------------------------------------------------


async def test_a_stop_is_for_exactly_one_attempt_and_no_match_only_frees_its_slot(
    ground: Ground,
) -> None:
    runner = await ground.runner("gpu-1")
    pool = await known(ground, "gpu-1")
    await runner.ready()
    task, other = (task_id_of(NO_TENANT, ANN, key) for key in ("one", "other"))
    await pool.dispatch(task, 7, LONG)
    await held_beat(ground, task)
    at_work = workers(runner)
    stranger = FakePool(ground, "gpu-1", IncarnationId("somebody else"))
    await stranger.say(r.StopAttempt, task_id=task, token=7, reason="not for this incarnation")
    for wrong in ((task, 6), (task, 8), (other, 7)):
        await pool.say(r.StopAttempt, task_id=wrong[0], token=wrong[1], reason="no match")
        await freed(ground, *wrong)
    assert all(one.is_running() for one in at_work)
    await pool.say(r.StopAttempt, task_id=task, token=7, reason="canceled")
    await freed(ground, task, 7)
    assert not any(map(runs, at_work))  # when the slot was told free, the group was gone
    reports = await ground.all(Topic.TASK_COMMANDS)
    assert {type(one) for one in reports} <= {c.ReportMilestone}
    await runner.end(signal.SIGKILL)


async def test_what_its_pool_holds_no_more_it_stops(ground: Ground) -> None:
    runner = await ground.runner("gpu-1", slots=2)
    pool = await known(ground, "gpu-1")
    await runner.ready()
    kept, lost = (task_id_of(NO_TENANT, ANN, key) for key in ("kept", "lost"))
    await pool.dispatch(kept, 1, LONG)
    await pool.dispatch(lost, 1, LONG)
    await held_beat(ground, kept)
    beat = await held_beat(ground, lost)
    assert {one.task_id for one in beat.held} == {kept, lost}
    held = c.HeldAttempt(task_id=kept, token=1)
    await pool.say(r.BeatAnswered, beat=beat.beat, lease_seconds=120, beat_seconds=1, held=(held,))
    free = await ground.wait(Topic.POOL_COMMANDS, c.FreeSlot)
    assert free.task_id == lost
    later = await ground.wait(
        Topic.POOL_COMMANDS, c.BeatRunner, lambda one: one.held == (held,) and one.beat > beat.beat
    )
    assert later.incarnation_id == beat.incarnation_id
    await runner.end(signal.SIGKILL)


async def test_a_dispatch_told_twice_is_one_attempt_and_one_too_many_goes_back(
    ground: Ground,
) -> None:
    runner = await ground.runner("gpu-1")
    pool = await known(ground, "gpu-1")
    await runner.ready()
    task, more = (task_id_of(NO_TENANT, ANN, key) for key in ("one", "more"))
    for _ in range(2):
        await pool.dispatch(task, 1, {"seconds": 6, "steps": 60, "reports": 6})
    await pool.dispatch(more, 1, LONG)
    back = await ground.wait(Topic.TASK_COMMANDS, c.AttemptYielded)
    assert (back.task_id, back.cause) == (more, LossCause.NOT_ACCEPTED)
    await ground.wait(Topic.TASK_COMMANDS, c.FinishAttempt)
    await freed(ground, task, 1)
    asked = await ground.all(Topic.POOL_COMMANDS)
    assert sum(isinstance(one, c.AcceptAttempt) for one in asked) == 1
    await runner.end(signal.SIGKILL)


async def test_work_that_takes_no_time_is_done_without_a_worker(ground: Ground) -> None:
    runner = await ground.runner("gpu-1")
    pool = await known(ground, "gpu-1")
    await runner.ready()
    tasks = [task_id_of(NO_TENANT, ANN, f"key-{number}") for number in range(5)]
    for task in tasks:
        await pool.dispatch(task, 1, {"no_op": True})
    for task in tasks:
        await freed(ground, task, 1)
    finished = await ground.all(Topic.TASK_COMMANDS)
    assert sorted(one.task_id for one in finished) == sorted(tasks)
    assert workers(runner) == []
    await runner.end(signal.SIGKILL)
