"""The warm worker process of a slot: used again while clean, ended with its group otherwise."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cutlog.clips import ClipFacts
from gpu_runners.pipelines.pipeline import PipelineError, Progress, Work
from gpu_runners.slots import WorkerDiedError, WorkerProcess, group_members
from gpu_runners.worker_messages import WorkerOptions
from schema.failures import FailureClass
from schema.words import Scene

_REHEARSAL = WorkerOptions(scenes=(Scene.REHEARSAL,))
_ROOT = Path(__file__).parents[2]


@pytest.fixture
async def worker() -> AsyncIterator[WorkerProcess]:
    process = WorkerProcess(_REHEARSAL, grace_seconds=0.2)
    yield process
    await process.kill()


def _rehearsal(directory: Path, **parameters: Any) -> Work:  # noqa: ANN401 - JSON
    return Work(
        task_id="task",
        token=1,
        scene="rehearsal",
        parameters=parameters,
        inputs={},
        directory=directory,
    )


def _ignore(_: Progress) -> None:
    pass


async def _failed(worker: WorkerProcess, work: Work, **limits: float) -> PipelineError:
    with pytest.raises(PipelineError) as failed:
        await worker.run(work, _ignore, **limits)
    return failed.value


async def test_a_worker_is_used_again_after_a_clean_end(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    told: list[Progress] = []
    first = await worker.run(_rehearsal(tmp_path, reports=4, steps=4), told.append)
    pid = worker.pid
    assert [progress.percent for progress in told] == [25, 50, 75, 100]
    assert first.files[0].path == tmp_path / "rehearsal.json"
    await worker.run(_rehearsal(tmp_path, no_op=True), _ignore)
    asked = await _failed(worker, _rehearsal(tmp_path, fail="moderation"))
    assert asked.error_class is FailureClass.MODERATION
    refused = await _failed(worker, _rehearsal(tmp_path, nonsense=True))
    assert (refused.error_class, refused.reason) == (FailureClass.INPUT, "parameters")
    assert worker.pid == pid


async def test_a_worker_whose_memory_ran_out_is_not_used_again(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    await worker.start()
    pid = worker.pid
    short = await _failed(worker, _rehearsal(tmp_path, fail="out_of_memory"))
    assert short.error_class is FailureClass.OUT_OF_MEMORY
    await worker.run(_rehearsal(tmp_path, no_op=True), _ignore)
    assert worker.pid != pid


async def test_the_worker_leads_a_session_of_its_own(worker: WorkerProcess) -> None:
    await worker.start()
    assert worker.pid is not None
    assert os.getpgid(worker.pid) == os.getsid(worker.pid) == worker.pid


async def test_a_worker_that_dies_is_told_and_replaced(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    await worker.start()
    died = await _failed(worker, _rehearsal(tmp_path, crash=True))
    assert isinstance(died, WorkerDiedError)
    assert died.error_class is FailureClass.CRASHED
    assert worker.pid is None
    assert (await worker.run(_rehearsal(tmp_path, no_op=True), _ignore)).files == ()


async def test_a_worker_killed_from_outside_is_told(worker: WorkerProcess, tmp_path: Path) -> None:
    started = asyncio.Event()
    work = _rehearsal(tmp_path, seconds=60, steps=6000, reports=6000)
    running = asyncio.create_task(worker.run(work, lambda _: started.set()))
    await started.wait()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError) as died:
        await running
    assert died.value.returncode == -signal.SIGKILL


async def test_a_worker_that_dies_idle_is_forgotten_with_its_number(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    """The kernel gives the number to others: whoever ended that group later would end a stranger's.

    What the worker had started goes at once.
    """
    await worker.start()
    group = worker.pid
    assert group is not None
    os.kill(group, signal.SIGKILL)
    async with asyncio.timeout(60):
        while worker.pid is not None:  # noqa: ASYNC110 - nothing else tells of it
            await asyncio.sleep(0.01)
    assert group_members(group) == []
    assert (await worker.run(_rehearsal(tmp_path, no_op=True), _ignore)).files == ()


async def test_a_hang_that_ignores_to_be_asked_is_killed_at_its_limit(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    await worker.start()
    group = worker.pid
    assert group is not None
    over = await _failed(worker, _rehearsal(tmp_path, hang=True), run_seconds_max=0.3)
    assert over.error_class is FailureClass.TIME_LIMIT
    assert group_members(group) == []


async def test_killing_twice_and_killing_nothing_is_fine(worker: WorkerProcess) -> None:
    await worker.kill()
    await worker.start()
    await asyncio.gather(worker.kill(), worker.kill())
    assert worker.pid is None


@pytest.mark.media
async def test_canceling_a_render_leaves_no_process_of_the_group(
    known_clip: ClipFacts, tmp_path: Path
) -> None:
    worker = WorkerProcess()
    rendering = asyncio.Event()

    def watch(progress: Progress) -> None:
        pid = worker.pid
        if progress.phase == "rendering" and pid and len(group_members(pid)) == 2:
            rendering.set()  # the worker and its ffmpeg

    running = asyncio.create_task(worker.run(_autocut(known_clip, tmp_path), watch))
    await rendering.wait()
    group = worker.pid
    assert group is not None
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert group_members(group) == []
    assert worker.pid is None


@pytest.mark.media
async def test_a_film_is_made_in_a_warm_worker_and_a_refusal_leaves_it_warm(
    known_clip: ClipFacts, tmp_path: Path
) -> None:
    worker = WorkerProcess()
    text = tmp_path / "text.mp4"
    text.write_text("no film")
    refused = await _failed(worker, _autocut(known_clip, tmp_path, text))
    assert (refused.error_class, refused.reason) == (FailureClass.INPUT, "not_media")
    pid = worker.pid
    product = await worker.run(_autocut(known_clip, tmp_path), _ignore)
    assert worker.pid == pid
    await worker.kill()
    names = ["film.mp4", "poster.jpg", "thumbnails.jpg", "edit.otio"]
    assert [file.name for file in product.files] == names
    assert all(file.path.stat().st_size > 5_000 for file in product.files)
    assert product.card_seconds > 0


@pytest.mark.media
async def test_too_little_memory_is_told_as_such(known_clip: ClipFacts, tmp_path: Path) -> None:
    worker = WorkerProcess(WorkerOptions(memory_bytes_max=380_000_000))
    short = await _failed(worker, _autocut(known_clip, tmp_path))
    await worker.kill()
    assert short.error_class is FailureClass.OUT_OF_MEMORY


async def test_a_busy_worker_whose_runner_is_killed_dies_with_its_group(tmp_path: Path) -> None:
    """The runner is a process of its own here: killed at once, it can't clean up."""
    runner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _RUNNER, str(tmp_path)),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert runner.stdout is not None
    pid = int(await runner.stdout.readline())
    watch = os.pidfd_open(pid)
    runner.kill()
    await runner.wait()
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(watch, gone.set)
    async with asyncio.timeout(60):
        await gone.wait()
    asyncio.get_running_loop().remove_reader(watch)
    os.close(watch)
    assert group_members(pid) == []


_RUNNER = """
import asyncio, sys
from pathlib import Path
from gpu_runners.pipelines.pipeline import Work
from gpu_runners.slots import WorkerProcess
from gpu_runners.worker_messages import WorkerOptions
from schema.words import Scene

async def main():
    worker = WorkerProcess(WorkerOptions(scenes=(Scene.REHEARSAL,)))
    parameters = {"seconds": 600, "steps": 60000, "reports": 60000}
    work = Work(task_id="t", token=1, scene="rehearsal", parameters=parameters, inputs={},
                directory=Path(sys.argv[1]))
    told = []
    def report(progress):
        if not told:
            print(worker.pid, flush=True)
            told.append(progress)
    await worker.run(work, report)

asyncio.run(main())
"""


def _autocut(clip: ClipFacts, directory: Path, source: Path | None = None) -> Work:
    return Work(
        task_id="task",
        token=1,
        scene="autocut",
        parameters={},
        inputs={"clip": source or clip.path},
        directory=directory,
    )
