"""Reports are merged: a milestone once, the rest once a second, and nothing ever falls."""

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.reports import REPORT_SECONDS, Reports
from schema.ids import TaskId, UserId
from schema.progress import ProgressReported

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
PERCENTS = st.lists(st.floats(0, 100), max_size=60)


def report(percent: float) -> ProgressReported:
    return ProgressReported(
        task_id=TaskId("task"), user_id=UserId("user"), token=1, percent=percent, at=AT
    )


def test_each_milestone_is_told_when_it_is_passed() -> None:
    reports = Reports()
    told = [reports.milestones(percent) for percent in (5, 10, 12, 31, 60.5, 90, 99, 100)]
    assert told == [None, 10, None, 30, 60, 90, None, None]


def test_of_several_that_are_passed_at_once_the_highest_is_told() -> None:
    assert Reports().milestones(75) == 60


def test_the_end_is_no_milestone_of_a_runner() -> None:
    assert Reports(percent=90).milestones(100) is None


def test_what_stands_from_an_earlier_attempt_is_not_told_again() -> None:
    reports = Reports(percent=60)
    assert [reports.milestones(percent) for percent in (10, 30, 60, 95)] == [None, None, None, 90]


@given(st.sampled_from([0, 10, 30, 60, 90]), PERCENTS)
def test_milestones_rise_and_are_told_once(standing: int, percents: list[float]) -> None:
    reports = Reports(standing)
    told = [one for one in map(reports.milestones, percents) if one is not None]
    assert told == sorted(set(told))
    assert all(one in (10, 30, 60, 90) and one > standing for one in told)
    reached = [one for one in (10, 30, 60, 90) if one <= max([standing, *percents], default=0)]
    assert (told or [standing])[-1] == max([standing, *reached])


def test_the_first_report_goes_at_once_and_the_next_a_second_later() -> None:
    reports = Reports()
    first, second, third = report(1), report(2), report(3)
    assert reports.take(first, 10.0) == first
    assert reports.take(second, 10.5) is None
    assert reports.take(third, 11.0) == third


@given(st.lists(st.tuples(st.floats(0, 0.4), st.floats(0, 100)), max_size=60))
def test_at_most_one_a_second_goes_and_it_tells_the_most(
    steps: list[tuple[float, float]],
) -> None:
    reports, at, waiting = Reports(), 0.0, list[float]()
    sent: list[float] = []
    for pause, percent in steps:
        at += pause
        waiting.append(percent)
        due = reports.take(report(percent), at)
        if due is not None:
            assert due.percent == max(waiting)
            waiting = []
            sent.append(at)
    assert all(later - one >= REPORT_SECONDS for one, later in pairwise(sent))
    assert len(sent) == len(steps) or len(sent) <= at + 1
    assert bool(sent) == bool(steps)
