"""Giving up early: what can be saved is saved and told, and another attempt goes on there."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpu_runners.pipelines.autocut import Autocut
from gpu_runners.pipelines.pipeline import Product, Progress, Saved, Work
from gpu_runners.pipelines.rehearsal import Rehearsal
from gpu_runners.slots import WorkerProcess, group_members
from gpu_runners.storing import StoreError
from gpu_runners.worker_messages import WorkerOptions
from schema import commands as c
from schema.objects import checkpoint_key
from schema.words import LossCause, Scene
from tests.gpu_runners.test_attempts import LONG, TASK, Desk

SAVED = checkpoint_key(TASK, 3)
SECONDS: dict[str, Any] = {"seconds": 600, "steps": 60_000, "reports": 60_000}
"""A step each 10 ms, each of them a place to go on from."""


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    worker = WorkerProcess(WorkerOptions(scenes=(Scene.REHEARSAL,)), grace_seconds=0.2)
    yield Desk(worker, tmp_path)
    await worker.kill()


def yielded(desk: Desk) -> c.AttemptYielded:
    """What was told of the one giving back."""
    (found,) = [one for one in desk.told if isinstance(one, c.AttemptYielded)]
    return found


def work(directory: Path, **more: Any) -> Work:  # noqa: ANN401 - fields of Work
    fields: dict[str, Any] = {
        "task_id": "task",
        "token": 1,
        "scene": "rehearsal",
        "parameters": {},
        "inputs": {},
        "directory": directory,
    }
    return Work(**(fields | more))


def saved_after(directory: Path, step: int, **parameters: Any) -> Path:  # noqa: ANN401 - JSON
    """The file of a rehearsal that was asked to save once it had told of this step."""
    directory.mkdir()
    asked = threading.Event()

    def report(progress: Progress) -> None:
        if progress.percent >= step:
            asked.set()

    wanted = {"seconds": 0.1, "steps": 100, "reports": 100} | parameters
    end = Rehearsal().run_or_save(work(directory, parameters=wanted), report, asked)
    assert isinstance(end, Saved)
    assert end.path is not None
    return end.path


# --- the rehearsal --------------------------------------------------------------------------------


def test_a_rehearsal_that_goes_on_has_only_the_rest_to_do(tmp_path: Path) -> None:
    path = saved_after(tmp_path / "first", 40)
    told: list[Progress] = []
    parameters = {"seconds": 0.1, "steps": 100, "reports": 100}
    product = Rehearsal().run(
        work(tmp_path, token=2, parameters=parameters, checkpoint=path), told.append
    )
    done = product.facts["resumed_after"]
    assert 40 <= done < 100
    assert [progress.percent for progress in told] == [float(n) for n in range(done + 1, 101)]
    assert product.card_seconds == pytest.approx(0.1 * (100 - done) / 100)


def test_it_goes_on_only_where_it_can_be_saved(tmp_path: Path) -> None:
    path = saved_after(tmp_path / "first", 45, save_steps=20)
    assert msgspec.json.decode(path.read_bytes())["step"] % 20 == 0


def test_what_it_would_keep_is_told_with_its_progress(tmp_path: Path) -> None:
    told: list[Progress] = []
    parameters = {"seconds": 0.1, "steps": 10, "reports": 10, "save_steps": 4}
    Rehearsal().run(work(tmp_path, parameters=parameters), told.append)
    assert [progress.saved_seconds for progress in told] == pytest.approx(
        [0, 0, 0, 0.04, 0.04, 0.04, 0.04, 0.08, 0.08, 0.08]
    )


@pytest.mark.parametrize(
    "content", [b"", b"no json", b'{"task_id":"other","step":5,"steps":10}', b'{"step":99}']
)
def test_a_checkpoint_of_no_use_is_a_start_from_the_beginning(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    product = Rehearsal().run(
        work(tmp_path, parameters={"steps": 10}, checkpoint=path), lambda _: None
    )
    assert "resumed_after" not in product.facts


def test_asked_before_anything_is_done_there_is_nothing_to_save(tmp_path: Path) -> None:
    asked = threading.Event()
    asked.set()
    end = Rehearsal().run_or_save(
        work(tmp_path, parameters={"seconds": 600}), lambda _: None, asked
    )
    assert end == Saved()


def test_with_its_lower_spec_it_takes_half(tmp_path: Path) -> None:
    parameters = {"seconds": 0.2, "steps": 4, "no_op": True}
    product = Rehearsal().run(
        work(tmp_path, parameters=parameters, lower_spec=True), lambda _: None
    )
    assert product.card_seconds == pytest.approx(0.1)
    assert product.facts["lower_spec"] is True


# --- the worker -----------------------------------------------------------------------------------


async def test_a_worker_that_has_saved_is_clean_and_used_again(desk: Desk, tmp_path: Path) -> None:
    save = asyncio.Event()
    end = await desk.worker.run_or_save(
        work(tmp_path, parameters=LONG), lambda _: save.set(), save, run_seconds_max=60
    )
    assert isinstance(end, Saved)
    assert end.path is not None
    pid = desk.worker.pid
    again = await desk.worker.run(work(tmp_path, parameters={"steps": 1}), lambda _: None)
    assert isinstance(again, Product)
    assert desk.worker.pid == pid


async def test_a_wish_that_comes_late_does_not_hit_the_next_work(
    desk: Desk, tmp_path: Path
) -> None:
    """The wish and the end cross: the worker reads it when nothing is open any more."""
    for _ in range(20):
        save = asyncio.Event()
        await desk.worker.run_or_save(
            work(tmp_path, parameters={"steps": 1, "reports": 1}),
            lambda _, save=save: save.set(),  # type: ignore[misc]
            save,
        )
        end = await desk.worker.run(
            work(tmp_path, parameters={"seconds": 0.02, "no_op": True}), lambda _: None
        )
        assert isinstance(end, Product)


# --- the attempt ----------------------------------------------------------------------------------


async def test_a_preempted_attempt_stores_how_far_it_came_and_tells_what_that_saves(
    desk: Desk,
) -> None:
    attempt = desk.attempt(SECONDS)
    await desk.working.wait()
    attempt.give_back(LossCause.PREEMPTED, 30)
    await attempt.done
    told = yielded(desk)
    assert (told.cause, told.checkpoint, told.token) == (LossCause.PREEMPTED, SAVED, 3)
    assert 0 < told.saved_ms <= told.card_ms
    assert desk.kinds()[-2:] == ["AttemptYielded", "FreeSlot"]
    assert msgspec.json.decode(desk.store.kept[SAVED])["step"] > 0
    assert desk.worker.pid is not None  # clean: the next attempt finds it warm
    assert attempt.end.word == "given_back"
    assert attempt.end.wasted_ms == told.card_ms - told.saved_ms


async def test_the_next_attempt_goes_on_from_the_checkpoint_that_its_dispatch_names(
    desk: Desk,
) -> None:
    step = msgspec.json.encode({"task_id": TASK, "step": 9, "steps": 10})
    desk.store.content = {SAVED: step}
    await desk.attempt({"steps": 10, "seconds": 0.1}, checkpoint=SAVED).done
    (finished,) = [one for one in desk.told if isinstance(one, c.FinishAttempt)]
    assert finished.facts["resumed_after"] == 9
    assert finished.card_ms == 10


async def test_a_checkpoint_that_is_gone_is_a_start_from_the_beginning(desk: Desk) -> None:
    desk.store.content = {}
    await desk.attempt({"steps": 10}, checkpoint=SAVED).done
    (finished,) = [one for one in desk.told if isinstance(one, c.FinishAttempt)]
    assert "resumed_after" not in finished.facts


async def test_one_that_does_not_manage_in_time_is_ended_and_given_back_as_it_is(
    desk: Desk,
) -> None:
    attempt = desk.attempt(SECONDS | {"saving_seconds": 600})
    await desk.working.wait()
    group = desk.worker.pid
    assert group is not None
    attempt.give_back(LossCause.SPOT, 0.3)
    await attempt.done
    told = yielded(desk)
    assert (told.cause, told.checkpoint, told.saved_ms) == (LossCause.SPOT, "", 0)
    assert told.card_ms > 0
    assert desk.pid_when_free is None
    assert group_members(group) == []


async def test_a_checkpoint_that_the_store_does_not_take_saves_nothing(desk: Desk) -> None:
    attempt = desk.attempt(SECONDS, storing_seconds=0.1)
    await desk.working.wait()
    desk.store.failures = [StoreError("away")] * 10
    attempt.give_back(LossCause.PREEMPTED, 30)
    await attempt.done
    told = yielded(desk)
    assert (told.checkpoint, told.saved_ms) == ("", 0)


async def test_one_that_ends_by_itself_meanwhile_has_ended_well(desk: Desk) -> None:
    desk.waits[c.StoreAttempt] = asyncio.Event()
    attempt = desk.attempt({"seconds": 0.05, "steps": 1})
    await desk.asked[c.StoreAttempt].wait()
    attempt.give_back(LossCause.PREEMPTED, 30)
    await asyncio.sleep(0)
    desk.waits[c.StoreAttempt].set()
    await attempt.done
    assert desk.kinds()[-2:] == ["FinishAttempt", "FreeSlot"]
    assert attempt.end.word == "finished"


async def test_a_stop_after_the_wish_wins_and_nothing_is_told(desk: Desk) -> None:
    """The pool waited long enough, and has lost the attempt."""
    attempt = desk.attempt(SECONDS | {"saving_seconds": 600})
    await desk.working.wait()
    attempt.give_back(LossCause.PREEMPTED, 30)
    await asyncio.sleep(0)
    attempt.stop("canceled")
    await attempt.done
    assert "AttemptYielded" not in desk.kinds()
    assert desk.kinds()[-1] == "FreeSlot"
    assert attempt.end[:2] == ("stopped", "canceled")


async def test_asked_twice_it_is_given_back_once_for_the_first_reason(desk: Desk) -> None:
    attempt = desk.attempt(SECONDS)
    await desk.working.wait()
    attempt.give_back(LossCause.SPOT, 30)
    attempt.give_back(LossCause.PREEMPTED, 30)
    await attempt.done
    assert yielded(desk).cause is LossCause.SPOT


async def test_what_a_preemption_would_burn_is_the_work_since_the_last_place_to_go_on_from(
    desk: Desk,
) -> None:
    never = desk.attempt(SECONDS | {"save_steps": 0})
    assert never.unsaved_ms == 0  # nothing has begun
    await desk.working.wait()
    await asyncio.to_thread(threading.Event().wait, 0.2)  # card time is what it is about
    assert never.unsaved_ms >= 200
    never.stop()
    await never.done
    assert never.end.wasted_ms >= 200


# --- a scene that can't ---------------------------------------------------------------------------


@pytest.mark.media
async def test_a_work_that_can_not_be_saved_is_ended_at_once(
    short_clip: Path, tmp_path: Path
) -> None:
    worker = WorkerProcess(WorkerOptions(scenes=(Scene.AUTOCUT,)), grace_seconds=0.2)
    save = asyncio.Event()
    film = work(tmp_path, scene="autocut", inputs={"clip": short_clip})
    end = await worker.run_or_save(film, lambda _: save.set(), save, run_seconds_max=60)
    assert end == Saved()
    assert worker.pid is None


@pytest.mark.media
def test_with_its_lower_spec_a_film_has_480_lines(short_clip: Path, tmp_path: Path) -> None:
    film = work(
        tmp_path,
        scene="autocut",
        inputs={"clip": short_clip},
        parameters={"target_seconds": 2},
        lower_spec=True,
    )
    product = Autocut().run(film, lambda _: None)
    assert (product.facts["width"], product.facts["height"]) == (854, 480)
