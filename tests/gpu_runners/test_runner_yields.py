"""A runner on the real log and store that must give its work up: asked to, noticed, or too late."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutlog.stack import LocalStack
from schema import commands as c
from schema import replies as r
from schema.ids import NO_TENANT, TaskId, task_id_of
from schema.objects import checkpoint_key
from schema.progress import ProgressReported
from schema.settings import load, need
from schema.topics import Topic
from schema.wires.objects import ObjectStore
from schema.words import LossCause, Scene
from tests.gpu_runners.test_runner import ANN, FakePool, freed, held_beat, known
from tests.support.ground import Ground, ground_on

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WORK: dict[str, Any] = {"seconds": 200, "steps": 20_000, "reports": 20_000}
"""A step each 10 ms, each of them a place to go on from."""
LEASE_SECONDS = 10


@pytest.fixture
async def ground(stack: LocalStack, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground_on(stack, tmp_path) as found:
        yield found


async def yielded(ground: Ground, task_id: TaskId, token: int) -> c.AttemptYielded:
    return await ground.wait(
        Topic.TASK_COMMANDS,
        c.AttemptYielded,
        lambda one: (one.task_id, one.token) == (task_id, token),
    )


async def worked(ground: Ground, task_id: TaskId, token: int) -> ProgressReported:
    """A report: the attempt is at work, and has done some of it."""
    return await ground.wait(
        Topic.PROGRESS,
        ProgressReported,
        lambda one: (one.task_id, one.token) == (task_id, token) and one.percent > 0,
    )


async def beat_with(ground: Ground, task_id: TaskId, unsaved_ms: int) -> c.BeatRunner:
    """A beat that tells of so much work which is not saved."""

    def tells(beat: c.BeatRunner) -> bool:
        told = dict(zip(beat.held, beat.unsaved_ms, strict=True))
        return told.get(c.HeldAttempt(task_id=task_id, token=1), 0) >= unsaved_ms

    return await ground.wait(Topic.POOL_COMMANDS, c.BeatRunner, tells)


async def dispatch(
    pool: FakePool, task: TaskId, token: int, parameters: dict[str, Any], checkpoint: str = ""
) -> None:
    await pool.say(
        r.DispatchAttempt,
        task_id=task,
        user_id=ANN,
        token=token,
        scene=Scene.REHEARSAL,
        parameters=parameters,
        lease_seconds=120,
        run_limit_seconds=600,
        checkpoint=checkpoint,
    )


async def test_preempted_work_goes_on_where_it_was_saved_and_a_notice_gives_everything_back(
    ground: Ground,
) -> None:
    notice = ground.directory / "notice"
    runner = await ground.start(
        "gpu_runners",
        "gpu-1",
        CUTLOG_RUNNER_RUNNER_ID="gpu-1",
        CUTLOG_RUNNER_POOL_ID="C-spot",
        CUTLOG_RUNNER_SLOTS="2",
        CUTLOG_RUNNER_SPOT="true",
        CUTLOG_RUNNER_SPOT_NOTICE_FILE=str(notice),
        CUTLOG_RUNNER_WORK_DIRECTORY=str(ground.directory / "scratch"),
    )
    pool = await known(ground, "gpu-1")
    register = await ground.wait(Topic.POOL_COMMANDS, c.RegisterRunner)
    assert (register.spot, register.slots) == (True, 2)
    await runner.ready()
    task, other = (task_id_of(NO_TENANT, ANN, key) for key in ("one", "other"))

    await dispatch(pool, task, 1, WORK)
    await dispatch(pool, other, 1, WORK | {"save_steps": 0})
    await worked(ground, task, 1)
    await beat_with(ground, other, 500)
    await pool.say(
        r.YieldAttempt, task_id=task, token=1, reason=LossCause.PREEMPTED.value, seconds=30
    )
    first = await yielded(ground, task, 1)
    assert (first.cause, first.checkpoint) == (LossCause.PREEMPTED, checkpoint_key(task, 1))
    assert 0 < first.saved_ms <= first.card_ms
    await freed(ground, task, 1)
    async with ObjectStore(need(load(ground.environ), "objects")) as store:
        saved = msgspec.json.decode(await store.get(first.checkpoint))
    assert saved["step"] * 10 == first.saved_ms

    await dispatch(pool, task, 2, WORK, first.checkpoint)
    resumed = await worked(ground, task, 2)
    # Its first report may be told before its first step: what was saved is the least it can say.
    assert round(resumed.percent * WORK["seconds"] * 10) >= first.saved_ms
    notice.touch()
    draining = await ground.wait(Topic.POOL_COMMANDS, c.DrainRunner)
    assert draining.spot
    assert 0 < draining.notice_seconds <= 120
    second, unsaved = await yielded(ground, task, 2), await yielded(ground, other, 1)
    assert (second.cause, unsaved.cause) == (LossCause.SPOT, LossCause.SPOT)
    assert (unsaved.checkpoint, unsaved.saved_ms) == ("", 0)
    await freed(ground, task, 2)
    await freed(ground, other, 1)
    await pool.say(r.RunnerDismissed, reason="drained")
    assert await runner.process.wait() == 0
    told = {c.AttemptYielded, c.ReportMilestone}
    assert {type(one) for one in await ground.all(Topic.TASK_COMMANDS)} <= told


async def test_a_notice_by_signal_leaves_a_grace_that_has_begun(ground: Ground) -> None:
    """SIGTERM came first, and the work had time to finish; now it has not."""
    runner = await ground.runner("gpu-1", drain_seconds=600)
    pool = await known(ground, "gpu-1")
    await runner.ready()
    task = task_id_of(NO_TENANT, ANN, "one")
    await dispatch(pool, task, 1, WORK)
    await worked(ground, task, 1)
    runner.send(signal.SIGTERM)
    await ground.wait(Topic.POOL_COMMANDS, c.DrainRunner, lambda one: not one.spot)
    runner.send(signal.SIGUSR1)
    await ground.wait(Topic.POOL_COMMANDS, c.DrainRunner, lambda one: one.spot)
    assert (await yielded(ground, task, 1)).cause is LossCause.SPOT
    await pool.say(r.RunnerDismissed, reason="drained")
    assert await runner.process.wait() == 0


async def test_one_that_wakes_up_after_its_lease_tells_nothing_of_what_it_made(
    ground: Ground,
) -> None:
    """It was stopped, its worker was not: the work is done, and somebody else's by now."""
    runner = await ground.runner("gpu-1")
    register = await ground.wait(Topic.POOL_COMMANDS, c.RegisterRunner)
    pool = FakePool(ground, "gpu-1", register.incarnation_id)
    await pool.say(r.BeatAnswered, beat=0, lease_seconds=LEASE_SECONDS, beat_seconds=1)
    await runner.ready()
    task = task_id_of(NO_TENANT, ANN, "one")
    await dispatch(pool, task, 1, {"seconds": LEASE_SECONDS, "no_op": True, "reports": 0})
    await held_beat(ground, task)
    runner.send(signal.SIGSTOP)
    await asyncio.sleep(LEASE_SECONDS + 1)  # the fault itself: it is away for so long
    runner.send(signal.SIGCONT)
    again = await ground.wait(
        Topic.POOL_COMMANDS,
        c.RegisterRunner,
        lambda one: one.incarnation_id != register.incarnation_id,
    )
    assert again.runner_id == "gpu-1"
    assert await ground.all(Topic.TASK_COMMANDS) == []
    assert not [one for one in await ground.all(Topic.POOL_COMMANDS) if type(one) is c.FreeSlot]
    await runner.end(signal.SIGKILL)
