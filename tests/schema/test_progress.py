"""Merging reports of a task: any order, any grouping, any repetition gives the same."""

from datetime import UTC, datetime, timedelta
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from schema.ids import TaskId, UserId
from schema.progress import ProgressReported, merge

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
reports = st.builds(
    ProgressReported,
    task_id=st.just(TaskId("t")),
    user_id=st.just(UserId("u")),
    token=st.integers(1, 3),
    percent=st.sampled_from([0, 10.5, 99.9, 100]),
    phase=st.sampled_from(["", "render", "store"]),
    eta_seconds=st.none() | st.sampled_from([0.0, 1.5]),
    ended=st.booleans(),
    at=st.integers(0, 3).map(lambda seconds: NOON + timedelta(seconds=seconds)),
)


@given(reports, reports, reports)
def test_grouping_does_not_matter(
    a: ProgressReported, b: ProgressReported, c: ProgressReported
) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(reports, reports)
def test_order_and_repetition_do_not_matter(a: ProgressReported, b: ProgressReported) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(a, merge(a, b)) == merge(a, b)
    assert merge(a, a) == a


@given(st.lists(reports, min_size=1))
def test_an_end_wins_and_else_the_later_attempt_and_percent(told: list[ProgressReported]) -> None:
    stands = reduce(merge, told)
    assert stands.ended == any(one.ended for one in told)
    rivals = [one for one in told if one.ended == stands.ended]
    assert (stands.token, stands.percent) == max((one.token, one.percent) for one in rivals)
