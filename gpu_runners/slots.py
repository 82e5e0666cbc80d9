"""The runner's side of a slot: one warm worker process, whose process group is the attempt's.

After `run` has ended, in whatever way, either the worker is idle and clean, or its whole group
(worker, ffmpeg and all) is gone. So a slot is free exactly when `run` has returned.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpu_runners.pipelines.pipeline import PipelineError, Product, Progress, Saved, Work
from gpu_runners.worker_messages import (
    LINE_BYTES_MAX,
    Answer,
    CannotSave,
    Do,
    Failed,
    Kept,
    Made,
    Ready,
    Reported,
    Save,
    WorkerOptions,
    decode_answer,
    encode_line,
)
from schema.failures import FailureClass

_ROOT = Path(__file__).parents[1]
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Several workers share a machine: no thread pool that grows with its cores."""

_GRACE_SECONDS = 1.0
_START_SECONDS_MAX = 300.0
_LOOK_AGAIN_SECONDS = 0.01
_ZOMBIE = "Z"


class WorkerDiedError(PipelineError):
    """The worker process ended while it had the attempt, without a word."""

    def __init__(self, returncode: int | None) -> None:
        super().__init__(FailureClass.CRASHED, f"The worker process died (exit {returncode}).")
        self.returncode = returncode


class WorkerProcess:
    """One worker process at a time, started when it is needed and used again while it is clean."""

    def __init__(
        self, options: WorkerOptions | None = None, *, grace_seconds: float = _GRACE_SECONDS
    ) -> None:
        self._options = options or WorkerOptions()
        self._grace_seconds = grace_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._running = asyncio.Lock()
        self._ending = asyncio.Lock()
        self._burying: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of the worker, which is the id of its group as well; None while there is none."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the worker and wait until it is warm. Errors: WorkerDiedError."""
        if self._process is not None and self._process.returncode is None:
            return
        await self.kill()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gpu_runners.worker"),
            msgspec.json.encode(self._options).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            cwd=_ROOT,
            env={**os.environ, **_ENVIRONMENT},
            start_new_session=True,
        )
        self._burying = asyncio.create_task(self._bury(self._process))
        try:
            async with asyncio.timeout(_START_SECONDS_MAX):
                answer = await self._answer(self._process)
        except BaseException:
            await asyncio.shield(self.kill())
            raise
        if not isinstance(answer, Ready):
            await self.kill()
            raise WorkerDiedError(None)

    async def run(
        self,
        work: Work,
        on_progress: Callable[[Progress], None],
        *,
        run_seconds_max: float | None = None,
    ) -> Product:
        """Do one work. Canceling kills the group before the cancellation goes on.

        Errors: PipelineError (TIME_LIMIT beyond `run_seconds_max`), WorkerDiedError.
        """
        end = await self.run_or_save(
            work, on_progress, asyncio.Event(), run_seconds_max=run_seconds_max
        )
        if isinstance(end, Saved):  # nobody could ask for that
            raise WorkerDiedError(None)
        return end

    async def run_or_save(
        self,
        work: Work,
        on_progress: Callable[[Progress], None],
        save: asyncio.Event,
        *,
        run_seconds_max: float | None = None,
    ) -> Product | Saved:
        """As `run`. Once `save` is set, the work stops and keeps how far it came.

        One that can't keep anything is ended at once, with its group.

        Errors: PipelineError (TIME_LIMIT beyond `run_seconds_max`), WorkerDiedError.
        """
        async with self._running:
            await self.start()
            try:
                async with asyncio.timeout(run_seconds_max):
                    end = await self._converse(work, on_progress, save)
            except TimeoutError:
                await asyncio.shield(self.kill())
                raise PipelineError(
                    FailureClass.TIME_LIMIT, f"The work took more than {run_seconds_max} s."
                ) from None
            except BaseException:
                await asyncio.shield(self.kill())
                raise
            match end:
                case Made(product=product):
                    return product
                case Kept(saved=saved):
                    return saved
                case CannotSave():
                    await asyncio.shield(self.kill())
                    return Saved()
                case Failed():
                    if not end.clean:
                        await asyncio.shield(self.kill())
                    raise PipelineError(end.error_class, end.message, end.reason)

    async def kill(self) -> None:
        """End the whole group: asked first, made to after the grace; returns when it is gone."""
        async with self._ending:
            if self._process is not None:
                await self._end(self._process)

    async def _bury(self, process: asyncio.subprocess.Process) -> None:
        """See to the group of a worker that ended by itself, idle or not, as soon as it has.

        Its number is the group's only until the kernel gives it to somebody else: to end that
        group later, when the slot is next used, could end a stranger's.
        """
        await process.wait()
        async with self._ending:
            if self._process is process:
                await self._end(process)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._process = None
        await _end_group(process.pid, self._grace_seconds)
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()

    async def _converse(
        self, work: Work, on_progress: Callable[[Progress], None], save: asyncio.Event
    ) -> Made | Failed | Kept | CannotSave:
        process = self._process
        if process is None or process.stdin is None:
            raise WorkerDiedError(None)
        await _say(process.stdin, Do(work=work))
        asking = asyncio.create_task(_ask_to_save(process.stdin, save))
        try:
            while True:
                match await self._answer(process):
                    case Reported(progress=progress):
                        on_progress(progress)
                    case Made() | Failed() | Kept() | CannotSave() as end:
                        return end
                    case Ready():
                        pass
        finally:
            asking.cancel()

    async def _answer(self, process: asyncio.subprocess.Process) -> Answer:
        if process.stdout is None:
            raise WorkerDiedError(None)
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerDiedError(await process.wait())
        return decode_answer(line)


async def _ask_to_save(worker: asyncio.StreamWriter, save: asyncio.Event) -> None:
    await save.wait()
    await _say(worker, Save())


async def _say(worker: asyncio.StreamWriter, request: Do | Save) -> None:
    with contextlib.suppress(ConnectionError):  # a dead worker shows in its answer
        worker.write(encode_line(request))
        await worker.drain()


async def _end_group(group: int, grace_seconds: float) -> None:
    """SIGTERM, a grace, SIGKILL; waits until no process of the group is left."""
    for name, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, None)):
        try:
            os.killpg(group, name)
        except ProcessLookupError:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while group_members(group):  # noqa: ASYNC110 - the kernel tells of no empty group
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                return


def group_members(group: int) -> list[int]:
    """Processes of a group that still run; one that only waits to be reaped is gone.

    Asks the kernel first: while nobody is there, /proc is not read.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    members: list[int] = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state, _, its_group = (place / "stat").read_text().rpartition(") ")[2].split()[:3]
            if int(its_group) == group and state != _ZOMBIE:
                members.append(int(place.name))
    return members
