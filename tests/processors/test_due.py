"""The index of deadlines against a list that is searched from end to end."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from processors.due import DueIndex

PARTITION = 0
_KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
_DUE = st.one_of(st.none(), st.integers(0, 12))


@dataclass(frozen=True)
class Row:
    due: int | None


def fresh() -> DueIndex[Row]:
    index: DueIndex[Row] = DueIndex(lambda row: row.due)
    index.reset(PARTITION)
    return index


class Table:
    """What the index listens to, with the naive answer beside it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Row] = {}
        self.index = fresh()

    def put(self, key: bytes, due: int | None) -> None:
        row = Row(due)
        self.index.on_put(PARTITION, key, self.rows.get(key), row)
        self.rows[key] = row

    def delete(self, key: bytes) -> None:
        old = self.rows.pop(key, None)
        if old is not None:
            self.index.on_delete(PARTITION, key, old)

    def naive(self, served_ms: int) -> list[tuple[int, bytes]]:
        found = [
            (row.due, key)
            for key, row in self.rows.items()
            if row.due is not None and row.due <= served_ms
        ]
        return sorted(found)


Steps = st.lists(st.tuples(_KEYS, st.one_of(_DUE, st.just("delete"))), max_size=40)


def played(steps: list[tuple[bytes, int | str | None]]) -> Table:
    table = Table()
    for key, what in steps:
        if isinstance(what, str):
            table.delete(key)
        else:
            table.put(key, what)
    return table


@given(Steps, st.integers(0, 12), st.integers(1, 6))
def test_what_is_due_comes_earliest_first_and_in_pages(
    steps: list[tuple[bytes, int | str | None]], served_ms: int, limit: int
) -> None:
    table = played(steps)
    wanted = table.naive(served_ms)
    found = list(table.index.due(PARTITION, served_ms, limit))
    assert len(found) == len(set(found)) <= limit
    deadlines = {key: due for due, key in wanted}
    assert [deadlines[key] for key in found] == [due for due, _ in wanted[: len(found)]]
    # A key that came back to an earlier deadline may stand twice in the heap: a page is then short.
    if limit >= 2 * len(steps):
        assert found == [key for _, key in wanted]
    assert bool(found) == bool(wanted)


@given(Steps, st.integers(0, 12))
def test_looking_moves_nothing(steps: list[tuple[bytes, int | str | None]], at: int) -> None:
    table = played(steps)
    first = list(table.index.due(PARTITION, at, 100))
    assert list(table.index.due(PARTITION, at, 100)) == first


@given(Steps, st.integers(0, 12))
def test_page_after_page_everything_due_is_seen_once(
    steps: list[tuple[bytes, int | str | None]], served_ms: int
) -> None:
    """What a tick does with a row moves its deadline; here the row goes."""
    table = played(steps)
    wanted = {key for _, key in table.naive(served_ms)}
    seen: list[bytes] = []
    while page := list(table.index.due(PARTITION, served_ms, 2)):
        for key in page:
            seen.append(key)
            table.delete(key)
    assert sorted(seen) == sorted(wanted)


@given(Steps, st.integers(0, 12), st.sets(_KEYS))
def test_keys_that_wait_are_left_out_and_keep_nobody_from_being_found(
    steps: list[tuple[bytes, int | str | None]], served_ms: int, waiting: set[bytes]
) -> None:
    table = played(steps)
    wanted = {key for _, key in table.naive(served_ms)}
    found = set(table.index.due(PARTITION, served_ms, 100, waiting.__contains__))
    assert found == wanted - waiting
    assert set(table.index.due(PARTITION, served_ms, 100)) == wanted


@given(Steps, st.integers(0, 12))
def test_an_index_made_from_the_rows_is_the_same_as_one_that_has_lived(
    steps: list[tuple[bytes, int | str | None]], served_ms: int
) -> None:
    table = played(steps)
    recovered = fresh()
    for key, row in sorted(table.rows.items(), reverse=True):
        recovered.on_put(PARTITION, key, None, row)
    assert sorted(recovered.due(PARTITION, served_ms, 100)) == sorted(
        table.index.due(PARTITION, served_ms, 100)
    )
    assert len(recovered) == len(table.index)


def test_entries_that_hold_no_more_are_swept() -> None:
    table = Table()
    for turn in range(10_000):
        table.put(b"restless", turn)
    assert len(table.index) == 1
    assert len(table.index._heaps[PARTITION]) <= 1_100  # pyright: ignore[reportPrivateUsage]
    assert list(table.index.due(PARTITION, 10_000, 5)) == [b"restless"]


def test_partitions_do_not_see_each_other() -> None:
    index = fresh()
    index.reset(1)
    index.on_put(PARTITION, b"a", None, Row(1))
    assert list(index.due(1, 10, 5)) == []
    index.reset(PARTITION)
    assert list(index.due(PARTITION, 10, 5)) == []
