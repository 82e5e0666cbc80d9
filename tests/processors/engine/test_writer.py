"""The writer: overlays, transactions without effect, positions, the journal."""

import pytest

from processors.engine import Batch, UnknownVersionError
from processors.engine.errors import GapError, RecoveryError
from processors.engine.journal import Range
from processors.engine.writer import BOOK
from tests.processors.engine.desk import Desk
from tests.processors.engine.toy import Counter


def test_a_command_is_events_rows_position_and_journal_in_one() -> None:
    desk = Desk()
    effects = desk.apply(desk.record("a"), desk.record("a"))
    assert [event.n for event in desk.events(effects)] == [1, 2]
    assert effects is not None
    assert set(effects.changes) == {b"counter\x00a", BOOK}  # the last value of a row, once
    assert desk.journal[0].ranges == (Range(topic="toy-work", start=0, end=2),)
    assert desk.journal[0].rules == 1


def test_a_batch_without_effect_writes_nothing_and_rides_with_the_next() -> None:
    desk = Desk()
    assert desk.apply(desk.record("a", "nothing"), desk.record("b", "nothing")) is None
    assert desk.writer.riding
    desk.apply(desk.record("a"))
    assert desk.journal[0].ranges == (Range(topic="toy-work", start=0, end=3),)
    assert not desk.writer.riding


def test_positions_without_effect_can_be_written_when_it_is_time() -> None:
    desk = Desk()
    assert desk.apply(desk.record("a", "nothing"), force=True) is not None
    desk.restart()
    assert desk.writer.positions["toy-work"] == 1


def test_what_is_recovered_is_what_was_there() -> None:
    desk = Desk()
    for number in range(20):
        desk.apply(desk.record(f"k{number % 3}"), desk.record("t", "later", n=number))
    before = dict(desk.writer.rows.items(desk.rules.counters))
    positions, now = desk.writer.positions, desk.writer.clock.now
    desk.restart()
    assert dict(desk.writer.rows.items(desk.rules.counters)) == before
    assert desk.writer.positions == positions
    assert desk.writer.clock.now == now
    assert desk.rules.due.rows == {(0, b"t"): now + 19}


def test_a_batch_that_does_not_begin_at_the_position_is_a_gap() -> None:
    desk = Desk()
    desk.apply(desk.record("a"))
    lost = desk.record("a")
    late = desk.record("a")
    assert lost.offset + 1 == late.offset
    with pytest.raises(GapError):
        desk.apply(late)


def test_a_control_marker_moves_the_position_without_a_record() -> None:
    desk = Desk()
    record = desk.record("a")
    desk.writer.apply(Batch("toy-work", 0, [record], 0, 2))  # offset 1 is a marker
    desk.ends["toy-work"] = 2
    desk.apply(desk.record("a"))
    assert desk.journal[0].ranges == (Range(topic="toy-work", start=0, end=3),)


def test_an_unknown_version_is_not_poison() -> None:
    desk = Desk()
    with pytest.raises(UnknownVersionError):
        desk.apply(desk.record("a", "unknown"))


def test_another_number_of_partitions_is_another_state() -> None:
    desk = Desk()
    desk.apply(desk.record("a"))
    desk.changelog[BOOK] = desk.changelog[BOOK].replace(b'"partitions":2', b'"partitions":3')
    with pytest.raises(RecoveryError, match="made with 3 partitions"):
        desk.restart()


def test_an_older_release_takes_over_nothing_that_newer_rules_made() -> None:
    """It would leave out of a row what it does not know, and write that back."""
    desk = Desk()
    desk.apply(desk.record("a"))
    desk.restart()  # the same rules
    written = desk.changelog[BOOK]
    desk.changelog[BOOK] = written.replace(b'"rules":1', b'"rules":0')
    desk.restart()  # older ones
    desk.changelog[BOOK] = written.replace(b'"rules":1', b'"rules":2')
    with pytest.raises(
        RecoveryError, match=r"made by rules 2, these are rules 1.*start the release"
    ):
        desk.restart()


def test_rows_without_positions_are_no_state() -> None:
    desk = Desk()
    desk.apply(desk.record("a"))
    del desk.changelog[BOOK]
    with pytest.raises(RecoveryError, match="rows and no positions"):
        desk.restart()


def test_an_unknown_row_of_the_engine_stops_the_recovery() -> None:
    desk = Desk()
    desk.changelog[b"\x00new"] = b"{}"
    with pytest.raises(RecoveryError, match="unknown row"):
        desk.restart()


def test_time_never_goes_back() -> None:
    desk = Desk()
    (first,) = desk.events(desk.apply(desk.record("a")))
    desk.now -= 60_000
    (second,) = desk.events(desk.apply(desk.record("a")))
    assert second.now == first.now


def test_the_state_after_a_dropped_overlay_is_the_state_before_it() -> None:
    desk = Desk()
    desk.apply(desk.record("a"))
    effects = desk.apply(desk.record("b"), desk.record("a", "poison"), desk.record("b"))
    assert [event.key for event in desk.events(effects)] == ["b", "b"]
    rows = dict(desk.writer.rows.items(desk.rules.counters))
    assert rows[b"a"] == Counter(1, 1, rows[b"a"].chain)
