"""Genai stopped and gone on with: the same bits; what is of no use is a start from nothing."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file
from safetensors.torch import safe_open  # type: ignore[attr-defined]

from gpu_runners.pipelines.genai import Genai
from gpu_runners.pipelines.genai.scene import CHECKPOINT
from gpu_runners.pipelines.pipeline import Product, Progress, Resumable, Saved, Work
from schema.scenes.genai import SchedulerName

pytestmark = [
    pytest.mark.media,
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:(diffusers|numpy)(\..*)?"),
    # The first test pays for the import of torch and diffusers.
    pytest.mark.timeout(400),
]

ROOT = Path(__file__).parents[2]
SMALL = {"prompt": "a red fox", "width": 64, "height": 64, "steps": 8, "seed": 3}


@pytest.fixture(scope="module")
def genai() -> Genai:
    return Genai()


def work(directory: Path, **more: Any) -> Work:  # noqa: ANN401 - fields of Work
    directory.mkdir()
    fields: dict[str, Any] = {
        "task_id": "task",
        "token": 1,
        "scene": "genai",
        "parameters": SMALL,
        "inputs": {},
        "directory": directory,
    }
    return Work(**(fields | more))


def attempt(genai: Genai, one: Work, steps: int) -> Product | Saved:
    """Ask it to stop once it has told of so many steps; it stops after the next one."""
    asked = threading.Event()
    told: list[Progress] = []

    def report(progress: Progress) -> None:
        told.append(progress)
        if [kept.phase for kept in told].count("making") > steps:
            asked.set()

    end = genai.run_or_save(one, report, asked)
    percents = [progress.percent for progress in told]
    assert percents == sorted(percents)
    return end


def preempted(
    genai: Genai,
    directory: Path,
    steps: int,
    most: int = 99,
    **more: Any,  # noqa: ANN401
) -> tuple[Product, int]:
    """The product after preemptions, and how many there were."""
    checkpoint: Path | None = None
    for count in range(99):
        one = work(directory / f"{count}", token=count + 1, checkpoint=checkpoint, **more)
        end = attempt(genai, one, steps if count < most else 999)
        if isinstance(end, Product):
            return end, count
        assert end.path is not None
        assert end.saved_seconds > 0
        checkpoint = end.path
    raise AssertionError("it never came to its end")


def saved(genai: Genai, directory: Path, **more: Any) -> Path:  # noqa: ANN401 - fields of Work
    end = attempt(genai, work(directory, **more), 2)
    assert isinstance(end, Saved)
    assert end.path is not None
    return end.path


def bits(product: Product) -> list[bytes]:
    return [file.path.read_bytes() for file in product.files]


@pytest.mark.parametrize("scheduler", list(SchedulerName))
def test_six_preemptions_in_a_run_give_the_uninterrupted_picture_bit_for_bit(
    genai: Genai, tmp_path: Path, scheduler: SchedulerName
) -> None:
    parameters = SMALL | {"scheduler": scheduler.value}
    whole = genai.run(work(tmp_path / "whole", parameters=parameters), lambda _: None)
    end, count = preempted(genai, tmp_path, 0, 6, parameters=parameters)
    assert count == 6
    assert end.facts["started_anew"] is None
    assert end.facts["resumed_from"]["step"] == 6
    assert bits(end) == bits(whole)


def test_a_picture_of_a_picture_and_several_at_once_go_on_with_the_same_bits(
    genai: Genai, tmp_path: Path
) -> None:
    source = tmp_path / "source.png"
    Image.linear_gradient("L").convert("RGB").resize((96, 72)).save(source)
    cases: dict[str, dict[str, Any]] = {
        "picture": {"inputs": {"a": source}, "parameters": SMALL | {"scheduler": "heun"}},
        "several": {"parameters": SMALL | {"pictures": 3, "scheduler": "ddpm"}},
    }
    for name, more in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        whole = genai.run(work(folder / "whole", **more), lambda _: None)
        end, count = preempted(genai, folder, 1, **more)
        assert count >= 2
        assert end.facts["started_anew"] is None
        assert bits(end) == bits(whole)


def test_a_film_goes_on_within_a_frame_with_the_same_bits(
    genai: Genai, short_clip: Path, tmp_path: Path
) -> None:
    more: dict[str, Any] = {
        "inputs": {"clip": short_clip},
        "parameters": {"prompt": "oil", "width": 64, "seconds": 0.7, "steps": 8},
    }
    whole = genai.run(work(tmp_path / "whole", **more), lambda _: None)
    end, count = preempted(genai, tmp_path, 4, **more)
    assert count >= 3
    assert end.facts["resumed_from"]["unit"] >= 2
    assert bits(end) == bits(whole)


def test_a_film_of_one_step_a_frame_stops_between_two_frames(
    genai: Genai, short_clip: Path, tmp_path: Path
) -> None:
    more: dict[str, Any] = {
        "inputs": {"clip": short_clip},
        "parameters": {"prompt": "oil", "width": 64, "seconds": 0.7, "steps": 1, "strength": 0.7},
    }
    whole = genai.run(work(tmp_path / "whole", **more), lambda _: None)
    assert whole.facts["steps_each"] == 1
    end, count = preempted(genai, tmp_path, 2, **more)
    assert count >= 2
    assert end.facts["resumed_from"]["step"] == 0
    assert end.facts["started_anew"] is None
    assert bits(end) == bits(whole)


def test_one_step_a_frame_is_kept_between_two_frames(
    genai: Genai, short_clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_runners.pipelines.genai.scene._KEEP_SECONDS", 0.0)
    parameters = {"prompt": "oil", "width": 64, "seconds": 0.7, "steps": 1, "strength": 0.7}
    one = work(tmp_path / "one", inputs={"clip": short_clip}, parameters=parameters)
    genai.run(one, lambda _: None)
    assert (one.directory / CHECKPOINT).exists()


KILLED = """
import os, sys
from pathlib import Path
from gpu_runners.pipelines.genai import Genai
from gpu_runners.pipelines.genai import scene
from gpu_runners.pipelines.pipeline import Work

scene._KEEP_SECONDS, scene._KEEP_SHARE_MAX = 0.0, 1e9
parameters = {"prompt": "a red fox", "width": 64, "height": 64, "steps": 8, "seed": 3}
work = Work(task_id="task", token=1, scene="genai", parameters=parameters, inputs={},
            directory=Path(sys.argv[1]))

def report(progress):
    if progress.percent > 60:
        os.kill(os.getpid(), 9)

Genai().run(work, report)
"""


def test_what_a_killed_worker_had_kept_is_gone_on_with_in_another_process(
    genai: Genai, tmp_path: Path
) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(lost)], check=False, cwd=ROOT, capture_output=True
    )
    assert ended.returncode == -9, ended.stderr[-2_000:].decode()
    assert [path.name for path in lost.glob("*.new")] == []
    one = work(tmp_path / "next", token=2, checkpoint=lost / CHECKPOINT)
    end = genai.run(one, lambda _: None)
    assert end.facts["resumed_from"]["step"] == 5
    assert end.facts["started_anew"] is None
    whole = genai.run(work(tmp_path / "whole"), lambda _: None)
    assert bits(end) == bits(whole)


# --- checkpoints that are of no use ---------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(genai: Genai, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What comes out without a checkpoint."""
    folder = tmp_path_factory.mktemp("plain")
    return bits(genai.run(work(folder / "work"), lambda _: None))


def anew(
    genai: Genai,
    directory: Path,
    checkpoint: Path,
    whole: list[bytes] | None,
    **more: Any,  # noqa: ANN401 - fields of Work
) -> str:
    """Why it began anew; it must then make what it would have made without the file."""
    directory.mkdir()
    told: list[Progress] = []
    end = genai.run(work(directory / "with", checkpoint=checkpoint, **more), told.append)
    percents = [progress.percent for progress in told]
    assert percents == sorted(percents)
    if whole is None:
        whole = bits(genai.run(work(directory / "without", **more), lambda _: None))
    assert bits(end) == whole
    assert end.facts["resumed_from"] is None
    return str(end.facts["started_anew"])


def test_garbage_a_cut_file_a_changed_bit_and_a_pickle_begin_from_the_beginning(
    genai: Genai, plain: list[bytes], tmp_path: Path
) -> None:
    good = saved(genai, tmp_path / "saved").read_bytes()
    flipped = bytearray(good)
    flipped[-100] ^= 1
    hostile = {
        "nothing": b"",
        "garbage": bytes(range(256)) * 40,
        "cut": good[: len(good) // 2],
        "header": (1 << 62).to_bytes(8, "little") + good[8:],
        "flipped": bytes(flipped),
        "pickle": b"\x80\x04cos\nsystem\n\x94\x8c\x05false\x94\x85\x94R\x94.",
    }
    for name, data in hostile.items():
        path = tmp_path / f"{name}.file"
        path.write_bytes(data)
        assert anew(genai, tmp_path / name, path, plain) == "the checkpoint is damaged"
    missing = anew(genai, tmp_path / "missing", tmp_path / "not there", plain)
    assert missing == "the checkpoint is damaged"


def test_another_task_order_scheduler_or_spec_begins_from_the_beginning_and_says_so(
    genai: Genai, tmp_path: Path
) -> None:
    kept = saved(genai, tmp_path / "saved")
    changes: dict[str, tuple[str, dict[str, Any]]] = {
        "task": ("another task", {"task_id": "other"}),
        "order": ("another order", {"parameters": SMALL | {"prompt": "the sea"}}),
        "steps": ("another order", {"parameters": SMALL | {"steps": 9}}),
        "scheduler": ("scheduler", {"parameters": SMALL | {"scheduler": "euler"}}),
        "batch": ("batch", {"parameters": SMALL | {"pictures": 2}}),
        "spec": ("another order", {"lower_spec": True}),
    }
    for name, (word, more) in changes.items():
        assert word in anew(genai, tmp_path / name, kept, None, **more)


def rewritten(path: Path, out: Path, **changes: object) -> Path:
    """A checkpoint with other words in it and a digest that fits: somebody who knows how."""
    from safetensors.torch import load_file as load  # noqa: PLC0415

    from gpu_runners.pipelines.genai import checkpoints  # noqa: PLC0415 - the digest is its own

    with safe_open(path, framework="pt") as file:
        state = json.loads(file.metadata()["state"])
    text = json.dumps(state | changes)
    digest = checkpoints.digest_of(text, load(path))
    save_file(load_file(path), out, {"state": text, "sha256": digest})
    return out


def test_another_machine_and_a_forged_state_begin_from_the_beginning(
    genai: Genai, plain: list[bytes], tmp_path: Path
) -> None:
    kept = saved(genai, tmp_path / "saved")
    with safe_open(kept, framework="pt") as file:
        state = json.loads(file.metadata()["state"])
    same = rewritten(kept, tmp_path / "same")
    fine = genai.run(work(tmp_path / "fine", checkpoint=same), lambda _: None)
    assert fine.facts["resumed_from"]["step"] == 3  # the forging itself is sound
    there = state["fingerprint"] | {"card": "another card", "threads": "8"}
    forged: dict[str, tuple[str, dict[str, object]]] = {
        "machine": ("card, threads", {"fingerprint": there}),
        "format": ("another release", {"format": 99}),
        "unit": ("damaged", {"unit": -1}),
        "far": ("damaged", {"unit": 7}),
        "step": ("damaged", {"step": 99}),
        "words": ("another release", {"step": "three"}),
        "method": ("no scheduler remembers", {"scheduler": {"step": None}}),
        "name": ("no scheduler remembers", {"scheduler": {"__class__": None}}),
        "value": ("no scheduler remembers", {"scheduler": {"sample": {"code": "print()"}}}),
        "tensor": ("damaged", {"scheduler": {"sample": {"tensor": "nowhere", "device": "cpu"}}}),
        "strides": ("damaged", {"strides": {"latents": [9, 9, 9, 9]}}),
    }
    for name, (word, changes) in forged.items():
        path = rewritten(kept, tmp_path / f"{name}.file", **changes)
        assert word in anew(genai, tmp_path / name, path, plain), name


def test_one_that_is_asked_before_it_begins_hands_on_what_it_was_given(
    genai: Genai, tmp_path: Path
) -> None:
    asked = threading.Event()
    asked.set()
    none = genai.run_or_save(work(tmp_path / "none"), lambda _: None, asked)
    assert none == Saved()
    kept = saved(genai, tmp_path / "saved")
    again = genai.run_or_save(work(tmp_path / "again", checkpoint=kept), lambda _: None, asked)
    assert isinstance(again, Saved)
    assert again.path is not None
    end = genai.run(work(tmp_path / "end", checkpoint=again.path), lambda _: None)
    assert end.facts["resumed_from"]["step"] == 3


def test_the_scene_can_be_saved(genai: Genai) -> None:
    assert isinstance(genai, Resumable)
