"""Percent as it is told: rising, in steps worth telling, with an estimate of the rest."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.pipelines.meter import Meter
from gpu_runners.pipelines.pipeline import Progress

_PHASES = st.sampled_from(["reading", "rendering", "checking"])


@given(told=st.lists(st.tuples(_PHASES, st.floats(0, 100)), max_size=60))
def test_percent_never_falls_and_each_report_is_a_step_or_another_phase(
    told: list[tuple[str, float]],
) -> None:
    seen: list[Progress] = []
    meter = Meter(seen.append)
    for phase, percent in told:
        meter.tell(phase, percent)
    percents = [progress.percent for progress in seen]
    assert percents == sorted(percents)
    for before, after in itertools.pairwise(seen):
        assert after.phase != before.phase or after.percent - before.percent >= 0.99
    if told:
        assert abs(max(percent for _, percent in told) - percents[-1]) < 1.01


def test_steps_of_a_tenth_of_a_percent_are_told_a_hundred_times() -> None:
    seen: list[Progress] = []
    meter = Meter(seen.append)
    for step in range(1_001):
        meter.tell("rendering", step / 10)
    assert [progress.percent for progress in seen] == [float(n) for n in range(101)]


def test_the_rest_is_estimated_once_there_is_something_to_judge_by() -> None:
    seen: list[Progress] = []
    meter = Meter(seen.append)
    for percent in (0, 50, 100):
        meter.tell("rendering", percent)
    assert seen[0].eta_seconds is None
    assert seen[1].eta_seconds is not None
    assert seen[2].eta_seconds == 0
