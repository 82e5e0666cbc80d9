"""The rehearsal: deterministic, reports by its own steps, and fails exactly as it is asked to."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gpu_runners.pipelines.pipeline import InputError, PipelineError, Progress, Work
from gpu_runners.pipelines.rehearsal import Rehearsal, run_inline, runs_inline
from schema.failures import FailureClass


def _work(directory: Path, token: int = 1, **parameters: Any) -> Work:  # noqa: ANN401 - JSON
    return Work(
        task_id="task",
        token=token,
        scene="rehearsal",
        parameters=parameters,
        inputs={},
        directory=directory,
    )


def test_the_same_attempt_makes_the_same_bytes(tmp_path: Path) -> None:
    contents = set[bytes]()
    for _ in range(2):
        product = Rehearsal().run(_work(tmp_path), lambda _: None)
        (stored,) = product.files
        contents.add(stored.path.read_bytes())
    assert len(contents) == 1


def test_reports_are_spread_evenly_over_the_steps(tmp_path: Path) -> None:
    told: list[Progress] = []
    Rehearsal().run(_work(tmp_path, steps=100, reports=20), told.append)
    assert [progress.percent for progress in told] == [5.0 * n for n in range(1, 21)]


def test_it_takes_the_time_that_it_is_given(tmp_path: Path) -> None:
    started = time.monotonic()
    product = Rehearsal().run(_work(tmp_path, seconds=0.2, steps=4, no_op=True), lambda _: None)
    assert time.monotonic() - started >= 0.2
    assert product.card_seconds == pytest.approx(0.2)
    assert product.files == ()


def test_a_stop_ends_the_wait_at_once(tmp_path: Path) -> None:
    stop = threading.Event()
    told: list[Progress] = []

    def report(progress: Progress) -> None:
        told.append(progress)
        stop.set()

    with pytest.raises(PipelineError, match="stopped"):
        Rehearsal(stop).run(_work(tmp_path, seconds=1000, steps=100_000, reports=100_000), report)
    assert len(told) == 1


@pytest.mark.parametrize("failure", list(FailureClass))
def test_it_fails_with_the_class_that_is_asked_for(failure: FailureClass, tmp_path: Path) -> None:
    told: list[Progress] = []
    with pytest.raises(PipelineError) as failed:
        Rehearsal().run(_work(tmp_path, fail=failure.value), told.append)
    assert failed.value.error_class is failure
    assert told[-1].percent < 50


def test_it_fails_only_on_the_attempts_that_are_named(tmp_path: Path) -> None:
    asked = {"fail": "network", "fail_on_attempts": [1, 2], "no_op": True}
    for token in (1, 2):
        with pytest.raises(PipelineError):
            Rehearsal().run(_work(tmp_path, token, **asked), lambda _: None)
    assert Rehearsal().run(_work(tmp_path, 3, **asked), lambda _: None).files == ()


@pytest.mark.parametrize(
    "parameters", [{"steps": 0}, {"seconds": -1}, {"fail": "sometimes"}, {"speed": 9}]
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        Rehearsal().run(_work(tmp_path, **parameters), lambda _: None)
    assert refused.value.error_class is FailureClass.INPUT


def test_a_no_op_runs_inline_and_stores_nothing(tmp_path: Path) -> None:
    work = _work(tmp_path, no_op=True, reports=20)
    assert runs_inline(work)
    assert run_inline(work).files == ()
    failing = _work(tmp_path, no_op=True, fail="store")
    assert runs_inline(failing)
    with pytest.raises(PipelineError):
        run_inline(failing)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"no_op": True, "seconds": 1}, {"no_op": True, "crash": True}, {"no_op": 1, "hang": True}],
)
def test_what_takes_time_stores_or_ends_the_process_never_runs_inline(
    parameters: dict[str, Any], tmp_path: Path
) -> None:
    assert not runs_inline(_work(tmp_path, **parameters))
