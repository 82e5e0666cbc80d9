"""What a runner lacks for a scene is said before it takes work, with what brings it."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_runners.__main__ import look_at_needs
from gpu_runners.pipelines.needs import CUT_OUT_MODEL, DIFFUSION_LIBRARIES, lacking
from gpu_runners.worker_messages import WorkerOptions
from schema.settings import Runner, SettingsError
from schema.words import Scene


def test_without_its_libraries_genai_names_them_and_the_command() -> None:
    told = lacking(Scene.GENAI, WorkerOptions(), lambda name: name != "torch")
    assert told == "not installed: torch; `make setup-diffusion` brings them"
    assert lacking(Scene.GENAI, WorkerOptions(), DIFFUSION_LIBRARIES.__contains__) is None


def test_a_folder_without_a_model_is_told_with_its_setting(tmp_path: Path) -> None:
    options = WorkerOptions(diffusion_model=str(tmp_path), models_directory=str(tmp_path))
    told = lacking(Scene.GENAI, options, lambda _: True)
    assert told is not None
    assert "CUTLOG_RUNNER_DIFFUSION_MODEL" in told
    told = lacking(Scene.MATTING, options)
    assert told is not None
    assert "CUTLOG_RUNNER_MODELS_DIRECTORY" in told
    assert CUT_OUT_MODEL in told
    (tmp_path / "model_index.json").write_text("{}")
    (tmp_path / CUT_OUT_MODEL).write_bytes(b"")
    assert lacking(Scene.GENAI, options, lambda _: True) is None
    assert lacking(Scene.MATTING, options) is None


def test_a_scene_that_it_shall_get_ready_for_and_cannot_ends_the_start(tmp_path: Path) -> None:
    settings = Runner(models_directory=str(tmp_path), warm_scenes="rehearsal, matting")
    with pytest.raises(SettingsError, match=rf"WARM_SCENES: matting .*{CUT_OUT_MODEL}"):
        look_at_needs(settings)


def test_any_other_scene_that_it_cannot_is_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    look_at_needs(Runner(models_directory=str(tmp_path)))
    told = [record for record in caplog.records if "can't be made here" in record.message]
    assert any(CUT_OUT_MODEL in str(record.__dict__) for record in told)


def test_a_worker_is_there_for_other_scenes_when_one_cannot_be_made_ready() -> None:
    program = (
        "import sys\n"
        "sys.modules['av'] = None\n"
        "from gpu_runners.worker import main\n"
        """assert main(['{"scenes": ["autocut"]}']) == 0\n"""
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    assert b"ready" in done.stdout
    assert b"ModuleNotFoundError" in done.stderr
