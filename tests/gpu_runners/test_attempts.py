"""One attempt in the hands of a runner: a real worker, and what is told of it, in order."""

import asyncio
import errno
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpu_runners.attempts import Attempt, MissingObjectError
from gpu_runners.runner import LeaseGoneError
from gpu_runners.slots import WorkerProcess, group_members
from gpu_runners.storing import StoreError, StoringRoom, Uploads
from gpu_runners.worker_messages import WorkerOptions
from schema import commands as c
from schema.failures import FailureClass
from schema.ids import IncarnationId, MaterialId, PoolId, RunnerId, TaskId, UserId
from schema.progress import ProgressReported
from schema.replies import DispatchAttempt
from schema.wires.log import MessageTooLongError
from schema.words import LossCause, Scene

TASK = TaskId("0123456789abcdefghjkmnpqrs000007")
USER = UserId("annannannannannannan000007")
LONG: dict[str, Any] = {"seconds": 600, "steps": 60_000, "reports": 60_000}


class Place(NamedTuple):
    pool_id: PoolId = PoolId("R")
    runner_id: RunnerId = RunnerId("gpu-1")
    incarnation_id: IncarnationId = IncarnationId("first")


class Stored(NamedTuple):
    size: int
    sha256: str


class Store:
    """A store that takes everything, unless it is told to fail so many times before."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.failures: list[Exception] = []
        self.fetched: list[str] = []
        self.opens: asyncio.Event | None = None
        """It takes files once this is set; None: at any time."""
        self.content: dict[str, bytes] | None = None
        """What it has; None: a clip under every name."""

    async def fetch(self, key: str, path: Path) -> None:
        self.fetched.append(key)
        if self.failures:
            raise self.failures.pop(0)
        content = b"a clip" if self.content is None else self.content.get(key)
        if content is None:
            raise MissingObjectError(key)
        path.write_bytes(content)  # noqa: ASYNC240 - a test may wait for a disk

    async def keep(self, key: str, path: Path, content_type: str) -> Stored:
        del content_type
        if self.opens is not None:
            await self.opens.wait()
        if self.failures:
            raise self.failures.pop(0)
        data = self.kept[key] = path.read_bytes()  # noqa: ASYNC240
        return Stored(len(data), sha256(data).hexdigest())


@dataclass
class Desk:
    """Everything around an attempt, and what it told, in order."""

    worker: WorkerProcess
    directory: Path
    store: Store = field(default_factory=Store)
    told: list[c.Command] = field(default_factory=list[c.Command])
    hints: list[ProgressReported] = field(default_factory=list[ProgressReported])
    working: asyncio.Event = field(default_factory=asyncio.Event)
    refuses: dict[type, Exception] = field(default_factory=dict[type, Exception])
    waits: dict[type, asyncio.Event] = field(default_factory=dict[type, asyncio.Event])
    """A command of this kind is only told once its event is set."""
    asked: dict[type, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    """Set once a command of this kind is to be told."""
    room: StoringRoom = field(default_factory=lambda: StoringRoom(1, 1_000_000))
    left: int = 0
    """How often the slot's worker was handed back while the result was stored."""
    pid_when_free: int | None = -1
    """Of the worker, when the slot was told free; None: its group was gone by then."""

    async def tell(self, command: c.Command) -> None:
        kind = type(command)
        self.asked[kind].set()
        if kind in self.waits:
            await self.waits[kind].wait()
        if kind in self.refuses:
            raise self.refuses[kind]
        if kind is c.FreeSlot:
            self.pid_when_free = self.worker.pid
        self.told.append(command)

    def hint(self, report: ProgressReported) -> None:
        self.hints.append(report)
        self.working.set()

    def attempt(
        self,
        parameters: dict[str, Any] | None = None,
        *,
        percent: int = 0,
        run_limit_seconds: int = 60,
        materials: tuple[MaterialId, ...] = (),
        content_keys: dict[MaterialId, str] | None = None,
        storing_seconds: float = 0.1,
        checkpoint: str = "",
    ) -> Attempt:
        dispatch = DispatchAttempt(
            runner_id=RunnerId("gpu-1"),
            incarnation_id=IncarnationId("first"),
            at=datetime(2026, 3, 2, 12, tzinfo=UTC),
            task_id=TASK,
            user_id=USER,
            token=3,
            scene=Scene.REHEARSAL,
            parameters=parameters or {},
            material_ids=materials,
            content_keys=content_keys or {},
            lease_seconds=30,
            run_limit_seconds=run_limit_seconds,
            percent=percent,
            checkpoint=checkpoint,
        )
        return Attempt(
            dispatch,
            Place(),
            self.worker,
            store=self.store,
            directory=self.directory / "attempt",
            tell=self.tell,
            hint=self.hint,
            uploads=Uploads(self.store, seconds=storing_seconds, parallel_max=2),
            room=self.room,
            leave_slot=self.leave_slot,
        )

    def leave_slot(self) -> None:
        assert "FreeSlot" not in self.kinds()
        self.left += 1

    def kinds(self) -> list[str]:
        return [type(command).__name__ for command in self.told]

    def failure(self) -> c.FailAttempt:
        """What was told of the one failure."""
        (failed,) = [command for command in self.told if isinstance(command, c.FailAttempt)]
        return failed


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    worker = WorkerProcess(WorkerOptions(scenes=(Scene.REHEARSAL,)), grace_seconds=0.2)
    yield Desk(worker, tmp_path)
    await worker.kill()


async def test_it_is_accepted_reported_stored_told_and_then_the_slot_is_free(desk: Desk) -> None:
    await desk.attempt({"seconds": 0.2, "steps": 20, "reports": 20}).done
    assert desk.kinds() == [
        "AcceptAttempt",
        *["ReportMilestone"] * 4,
        "StoreAttempt",
        "FinishAttempt",
        "FreeSlot",
    ]
    percents = [one.percent for one in desk.told if isinstance(one, c.ReportMilestone)]
    assert percents == [10, 30, 60, 90]
    (finished,) = [one for one in desk.told if isinstance(one, c.FinishAttempt)]
    (file,) = finished.files
    assert file.object_key == f"results/{TASK}/3/rehearsal.json"
    content = desk.store.kept[file.object_key]
    assert (file.size, file.sha256) == (len(content), sha256(content).hexdigest())
    assert finished.card_ms == 200
    assert not (desk.directory / "attempt").exists()


async def test_everything_told_carries_the_token_and_an_id_that_is_the_same_again(
    desk: Desk,
) -> None:
    await desk.attempt({"steps": 2, "reports": 2}).done
    assert {getattr(one, "token", None) for one in desk.told} == {3}
    ids = [one.command_id for one in desk.told]
    assert len(set(ids)) == len(ids)
    assert all(str(one).endswith(f"-{TASK}-3-first") for one in ids)


async def test_work_without_files_stores_nothing(desk: Desk) -> None:
    await desk.attempt({"seconds": 0.01, "no_op": True}).done
    assert "StoreAttempt" not in desk.kinds()
    assert desk.kinds()[-2:] == ["FinishAttempt", "FreeSlot"]


async def test_a_milestone_that_stands_is_not_told_again(desk: Desk) -> None:
    await desk.attempt({"steps": 20, "reports": 20}, percent=60).done
    assert [one.percent for one in desk.told if isinstance(one, c.ReportMilestone)] == [90]


async def test_progress_between_is_merged_to_one_a_second(desk: Desk) -> None:
    await desk.attempt({"seconds": 0.3, "steps": 100, "reports": 100}).done
    assert len(desk.hints) == 1


@pytest.mark.parametrize("failure", [one for one in FailureClass if one != "retries_spent"])
async def test_a_failure_is_told_with_its_class_and_the_slot_is_free(
    desk: Desk, failure: FailureClass
) -> None:
    await desk.attempt({"fail": failure.value}).done
    assert desk.failure().failure is failure
    assert desk.kinds()[-2:] == ["FailAttempt", "FreeSlot"]


async def test_a_worker_that_dies_is_a_crash(desk: Desk) -> None:
    await desk.attempt({"crash": True}).done
    assert desk.failure().failure is FailureClass.CRASHED
    assert desk.worker.pid is None


async def test_a_hang_ends_at_the_run_limit_with_its_whole_group(desk: Desk) -> None:
    await desk.worker.start()
    group = desk.worker.pid
    assert group is not None
    await desk.attempt({"hang": True}, run_limit_seconds=1).done
    assert desk.failure().failure is FailureClass.TIME_LIMIT
    assert group_members(group) == []
    assert desk.kinds()[-1] == "FreeSlot"


async def test_stopped_it_tells_nothing_but_its_slot_and_that_last(desk: Desk) -> None:
    attempt = desk.attempt(LONG)
    await desk.working.wait()
    group = desk.worker.pid
    assert group is not None
    attempt.stop()
    attempt.stop()
    await attempt.done
    assert desk.kinds()[-1] == "FreeSlot"
    assert not {"FinishAttempt", "FailAttempt", "AttemptYielded"} & set(desk.kinds())
    assert desk.pid_when_free is None
    assert group_members(group) == []


async def test_stopped_before_it_began_it_frees_its_slot_all_the_same(desk: Desk) -> None:
    """Dispatch and stop stand in one batch of the inbox: the task was canceled at once."""
    attempt = desk.attempt(LONG)
    attempt.stop()
    await attempt.done
    assert desk.kinds()[-1] == "FreeSlot"
    assert desk.worker.pid is None


async def test_given_back_it_says_so_before_it_frees_the_slot(desk: Desk) -> None:
    attempt = desk.attempt(LONG)
    await desk.working.wait()
    attempt.give_back(LossCause.DRAINED)
    await attempt.done
    assert desk.kinds()[-2:] == ["AttemptYielded", "FreeSlot"]
    (yielded,) = [one for one in desk.told if isinstance(one, c.AttemptYielded)]
    assert (yielded.cause, yielded.token) == (LossCause.DRAINED, 3)
    assert yielded.card_ms >= 0
    assert desk.pid_when_free is None


async def test_once_its_end_is_told_nothing_keeps_it_from_freeing_the_slot(desk: Desk) -> None:
    told_late = desk.waits[c.FreeSlot] = asyncio.Event()
    attempt = desk.attempt({"no_op": True, "seconds": 0.01})
    await desk.asked[c.FreeSlot].wait()
    attempt.stop()
    attempt.give_back(LossCause.DRAINED)
    await asyncio.sleep(0)
    told_late.set()
    await attempt.done
    assert desk.kinds()[-2:] == ["FinishAttempt", "FreeSlot"]


async def test_a_store_that_comes_back_in_time_gets_the_result(desk: Desk) -> None:
    desk.store.failures = [StoreError("away")]
    await desk.attempt({"steps": 1}, storing_seconds=5).done
    assert desk.kinds()[-3:] == ["StoreAttempt", "FreeSlot", "FinishAttempt"]


async def test_made_but_not_stored_is_not_made(desk: Desk) -> None:
    desk.store.failures = [StoreError("away")] * 10
    await desk.attempt({"steps": 1}, storing_seconds=0.1).done
    assert desk.failure().failure is FailureClass.STORE
    assert desk.kinds()[-3:] == ["StoreAttempt", "FailAttempt", "FreeSlot"]


async def test_its_slot_is_free_while_the_result_is_stored(desk: Desk) -> None:
    opens = desk.store.opens = asyncio.Event()
    attempt = desk.attempt({"steps": 1})
    await desk.asked[c.FreeSlot].wait()
    assert desk.kinds()[-2:] == ["StoreAttempt", "FreeSlot"]
    assert desk.left == 1
    assert attempt.left_slot
    assert not attempt.done.done()
    opens.set()
    await attempt.done
    assert desk.kinds()[-3:] == ["StoreAttempt", "FreeSlot", "FinishAttempt"]
    assert (desk.room.results, desk.room.bytes) == (0, 0)


async def test_a_runner_that_stores_enough_already_keeps_the_slot(desk: Desk) -> None:
    desk.room = StoringRoom(0, 1_000_000)
    opens = desk.store.opens = asyncio.Event()
    attempt = desk.attempt({"steps": 1})
    await desk.asked[c.StoreAttempt].wait()
    opens.set()
    await attempt.done
    assert desk.kinds()[-3:] == ["StoreAttempt", "FinishAttempt", "FreeSlot"]
    assert desk.left == 0


async def test_told_to_stop_while_it_stores_it_says_nothing_more(desk: Desk) -> None:
    desk.store.opens = asyncio.Event()
    attempt = desk.attempt({"steps": 1})
    await desk.asked[c.FreeSlot].wait()
    attempt.stop()
    await attempt.done
    assert desk.kinds().count("FreeSlot") == 1
    assert desk.kinds()[-1] == "FreeSlot"
    assert (desk.room.results, desk.room.bytes) == (0, 0)
    assert not (desk.directory / "attempt").exists()


async def test_given_back_while_it_stores_it_may_use_the_time_to_be_stored(desk: Desk) -> None:
    opens = desk.store.opens = asyncio.Event()
    attempt = desk.attempt({"steps": 1})
    await desk.asked[c.FreeSlot].wait()
    attempt.give_back(LossCause.DRAINED, 60)
    opens.set()
    await attempt.done
    assert desk.kinds()[-2:] == ["FreeSlot", "FinishAttempt"]


async def test_a_store_that_stays_away_fails_it_though_its_slot_is_free_long_since(
    desk: Desk,
) -> None:
    desk.store.failures = [StoreError("away")] * 1_000
    await desk.attempt({"steps": 1}, storing_seconds=4).done
    assert desk.failure().failure is FailureClass.STORE
    assert desk.kinds()[-3:] == ["StoreAttempt", "FreeSlot", "FailAttempt"]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (StoreError("away"), FailureClass.STORE),
        (MissingObjectError("gone"), FailureClass.INPUT),
        (OSError(errno.ENOSPC, "no space left"), FailureClass.INTERNAL),
    ],
)
async def test_an_input_that_does_not_come_is_told_as_what_it_is(
    desk: Desk, error: Exception, failure: FailureClass
) -> None:
    desk.store.failures = [error]
    await desk.attempt(materials=(MaterialId("clip"),)).done
    assert desk.store.fetched == [f"materials/{USER}/clip"]
    assert desk.failure().failure is failure
    assert desk.kinds() == ["AcceptAttempt", "FailAttempt", "FreeSlot"]


async def test_a_material_is_fetched_from_where_its_content_stands(desk: Desk) -> None:
    clip, logo = MaterialId("clip"), MaterialId("logo")
    keys = {clip: "contents/t-acme/1"}
    await desk.attempt({"steps": 1}, materials=(clip, logo), content_keys=keys).done
    assert desk.store.fetched == ["contents/t-acme/1", f"materials/{USER}/logo"]


async def test_a_result_that_no_message_holds_fails_this_attempt_alone(desk: Desk) -> None:
    desk.refuses[c.FinishAttempt] = MessageTooLongError("70,000 bytes")
    await desk.attempt({"no_op": True, "seconds": 0.01}).done
    assert desk.failure().failure is FailureClass.INTERNAL
    assert desk.kinds()[-2:] == ["FailAttempt", "FreeSlot"]


@pytest.mark.parametrize("when", [c.AcceptAttempt, c.ReportMilestone, c.FinishAttempt])
async def test_without_a_lease_nothing_more_is_told(desk: Desk, when: type[c.Command]) -> None:
    desk.refuses[when] = LeaseGoneError()
    attempt = desk.attempt({"seconds": 0.05, "no_op": True})
    await asyncio.wait([attempt.done])
    assert isinstance(attempt.done.exception(), LeaseGoneError)
    assert when not in {type(one) for one in desk.told}
    assert not {"FinishAttempt", "FreeSlot"} & set(desk.kinds())
    assert not (desk.directory / "attempt").exists()
