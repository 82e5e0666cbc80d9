"""Ticks, due timers, and the clock that stands still while nobody serves."""

import pytest

from processors.engine import Record, Step
from processors.engine.clock import Clock
from processors.engine.errors import TooManyQuarantinesError
from tests.processors.engine.desk import Desk
from tests.processors.engine.toy import Event, Topics, ToyRules


def test_a_timer_fires_at_the_tick_after_it_is_due() -> None:
    desk = Desk()
    desk.apply(desk.tick(), desk.record("a", "later", n=1_500))
    desk.now += 1_000
    assert desk.apply(desk.tick()) is None
    desk.now += 1_000
    (event,) = desk.events(desk.apply(desk.tick()))
    assert (event.kind, event.key) == ("fired", "a")
    desk.now += 1_000
    assert desk.apply(desk.tick()) is None


def test_many_due_timers_come_in_order_and_ask_for_another_tick() -> None:
    desk = Desk()
    desk.apply(desk.tick())
    desk.apply(*[desk.record(f"t{9 - n}", "later", n=n) for n in range(8)])
    desk.now += 1_000
    first = desk.events(desk.apply(desk.tick()))
    assert desk.writer.more_due == {"toy-work"}
    desk.writer.more_due.clear()
    second = desk.events(desk.apply(desk.tick()))
    assert not desk.writer.more_due
    assert [event.key for event in first + second] == [f"t{9 - n}" for n in range(8)]


def test_no_timer_passes_because_of_an_outage() -> None:
    desk = Desk()
    desk.apply(desk.tick(), desk.record("a", "later", n=120_000))
    desk.now += 3_600_000  # an hour without a tick
    desk.restart()
    assert desk.apply(desk.tick()) is None
    desk.now += 4_000
    assert desk.apply(desk.tick()) is None
    fired: list[Event] = []
    for _ in range(29):
        assert fired == []
        desk.now += 4_000
        fired = desk.events(desk.apply(desk.tick()))
    assert [event.kind for event in fired] == ["fired"]


def test_commands_of_an_outage_are_worked_with_a_clock_that_stands() -> None:
    desk = Desk()
    desk.apply(desk.tick())
    served = desk.writer.clock.served("toy-work")
    desk.now += 600_000
    desk.apply(desk.record("a"))
    assert desk.writer.clock.served("toy-work") <= served + 5_000
    desk.apply(desk.tick())
    assert desk.writer.clock.served("toy-work") == served


def test_a_tick_that_raises_counts_as_a_quarantine() -> None:
    class Broken(ToyRules):
        def tick(self, step: Step, topic: str) -> bool:
            raise ValueError(f"{topic} {step.now}")

    desk = Desk(rules=Broken(Topics("toy")), per_minute_max=3)
    for _ in range(3):
        assert len(desk.letters(desk.apply(desk.tick()))) == 1
    with pytest.raises(TooManyQuarantinesError):
        desk.apply(desk.tick())


def test_the_served_clock_of_a_topic_without_ticks_cannot_be_asked_for() -> None:
    desk = Desk()
    step = Step(desk.writer.rows, desk.writer.clock, desk.writer.routes, _record())
    with pytest.raises(KeyError):
        step.served("toy-notes")


@pytest.mark.parametrize(
    ("gap", "stall"), [(1_000, 0), (5_000, 0), (5_001, 5_001), (60_000, 60_000)]
)
def test_only_a_gap_of_more_than_five_seconds_is_a_stall(gap: int, stall: int) -> None:
    clock = Clock(["t"])
    clock.advance(1_000)
    clock.tick("t")
    clock.advance(1_000 + gap)
    clock.tick("t")
    assert clock.stall == {"t": stall}
    assert clock.served("t") == 1_000 + gap - stall


def test_each_topic_stalls_for_itself() -> None:
    clock = Clock(["t", "u"])
    for second in range(20):
        clock.advance(1_000 * second)
        clock.tick("u")
        if second in (0, 19):
            clock.tick("t")
    assert clock.stall == {"t": 19_000, "u": 0}


def test_the_clock_is_stored_whole() -> None:
    clock = Clock(["t"])
    for at in (0, 10_000, 11_000):
        clock.advance(at)
        clock.tick("t")
    other = Clock(["t"])
    other.restore(clock.store())
    assert (other.now, other.stall, other.served("t")) == (11_000, {"t": 10_000}, 1_000)


def _record() -> Record:
    return Record("toy-notes", 0, 0, 0, b"k", b"{}")
