"""Order inside a partition: completion before admission, and nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from processors.engine import Batch, Limits, Record, Source
from processors.engine.order import Waiting, plan

SOURCES = (
    Source("tasks", 0),
    Source("pools", 1),
    Source("p0", 2, "submission"),
    Source("p1", 3, "submission"),
    Source("p2", 4, "submission"),
)
LIMITS = Limits(batch_max=1_000, submissions_max=200, floor=10)


def test_internal_commands_come_first_by_rank() -> None:
    taken = plan(SOURCES, {"p0": 5, "pools": 7, "tasks": 3}, LIMITS)
    assert taken == [("tasks", 3), ("pools", 7), ("p0", 5)]


def test_while_internal_commands_wait_submissions_are_few() -> None:
    taken = dict(plan(SOURCES, {"tasks": 1, "p0": 9_000}, LIMITS))
    assert taken == {"tasks": 1, "p0": 200}


def test_without_internal_commands_submissions_fill_the_transaction() -> None:
    assert plan(SOURCES, {"p1": 9_000}, LIMITS) == [("p1", 1_000)]


def test_the_lowest_lane_keeps_a_floor() -> None:
    taken = dict(plan(SOURCES, {"p0": 9_000, "p1": 9_000, "p2": 9_000}, LIMITS))
    assert taken == {"p0": 980, "p1": 10, "p2": 10}


def test_a_flood_of_internal_commands_leaves_the_floors() -> None:
    taken = dict(plan(SOURCES, {"tasks": 90_000, "p0": 500, "p2": 4}, LIMITS))
    assert taken == {"tasks": 986, "p0": 10, "p2": 4}


@given(st.fixed_dictionaries({source.topic: st.integers(0, 5_000) for source in SOURCES}))
def test_a_plan_takes_what_is_there_within_the_limits(waiting: dict[str, int]) -> None:
    taken = plan(SOURCES, waiting, LIMITS)
    counts = dict(taken)
    assert len(counts) == len(taken)
    assert all(0 < count <= waiting[topic] for topic, count in taken)
    assert sum(counts.values()) <= LIMITS.batch_max
    if any(waiting.values()):
        assert taken
    submissions = sum(counts.get(lane, 0) for lane in ("p0", "p1", "p2"))
    if waiting["tasks"] or waiting["pools"]:
        assert submissions <= LIMITS.submissions_max
    ranks = [[source.topic for source in SOURCES].index(topic) for topic, _ in taken]
    assert ranks == sorted(ranks)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(5, 40))
def test_batches_are_cut_and_put_together_without_losing_an_offset(
    sizes: list[int], batch_max: int
) -> None:
    waiting = Waiting([Source("tasks", 0)], Limits(batch_max=batch_max))
    offset = 0
    for size in sizes:
        records = [Record("tasks", 0, offset + n, 0, None, None) for n in range(size)]
        waiting.add(Batch("tasks", 0, list(records), offset, offset + size + 1))  # and a marker
        offset += size + 1
    position = 0
    while waiting:
        taken = waiting.take()
        assert sum(len(batch.records) for batch in taken) <= batch_max
        for batch in taken:
            assert not batch.growing
            assert batch.start == position
            assert all(batch.start <= record.offset < batch.end for record in batch.records)
            position = batch.end
    assert position == offset
