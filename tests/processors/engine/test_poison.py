"""Poison, what waits behind it, and how it comes free again."""

from functools import partial

import pytest

from processors.engine import Record, Step
from processors.engine.errors import PoisonHandlerError, TooManyQuarantinesError
from processors.engine.journal import Range, Release
from processors.engine.writer import RELEASED_MAX
from tests.processors.engine.desk import Desk, kinds
from tests.processors.engine.toy import Topics, ToyRules


@pytest.mark.parametrize("op", ["poison", "bad-row", "huge", "undeclared"])
def test_poison_of_each_kind_leaves_a_dead_letter_and_nothing_else(op: str) -> None:
    desk = Desk()
    effects = desk.apply(desk.record("a", op))
    assert desk.events(effects) == []
    (letter,) = desk.letters(effects)
    assert letter["offset"] == 0
    assert not list(desk.writer.rows.items(desk.rules.counters))
    assert desk.writer.quarantine.keys == (b"a",)


def test_what_cannot_be_decoded_is_poison_of_its_key() -> None:
    desk = Desk()
    effects = desk.apply(desk.raw(b"a", b"\xff\x00not json"))
    assert len(desk.letters(effects)) == 1
    assert desk.writer.quarantine.keys == (b"a",)


def test_later_commands_of_the_key_wait_and_others_go_on() -> None:
    desk = Desk()
    effects = desk.apply(
        desk.record("a", "poison"), desk.record("a"), desk.record("b"), desk.record("a")
    )
    assert kinds(desk.events(effects)) == [("b", 2)]
    assert desk.writer.quarantine.parked == 2


def test_a_release_applies_what_waited_in_order_before_what_comes_later() -> None:
    desk = Desk()
    desk.apply(desk.record("a", "poison"), desk.record("a"), desk.record("a"))
    effects = desk.apply(
        desk.record("a"), desk.record("ops", "release", target="a"), desk.record("a")
    )
    assert kinds(desk.events(effects)) == [("ops", 4), ("a", 1), ("a", 2), ("a", 3), ("a", 5)]
    assert not desk.writer.quarantine
    assert not [key for key in desk.changelog if key.startswith(b"\x00park")]
    assert desk.journal[-1].ranges == (
        Range(topic="toy-work", start=3, end=5),
        Release(key=b"a", count=3),
        Range(topic="toy-work", start=5, end=6),
    )


def test_a_long_queue_comes_free_over_several_transactions_in_order() -> None:
    desk = Desk()
    desk.apply(desk.record("a", "poison"))
    count = 2 * RELEASED_MAX + 50
    for _ in range(count):
        desk.apply(desk.record("a"))
    found = desk.events(desk.apply(desk.record("ops", "release", target="a")))[1:]
    assert len(found) == RELEASED_MAX
    assert desk.writer.quarantine.releasing == (b"a",)
    desk.restart()  # in the middle of it
    found += desk.events(desk.apply(desk.record("a")))
    assert desk.writer.quarantine.parked == 51
    found += desk.events(desk.apply())
    assert [event.n for event in found] == list(range(1, count + 2))
    assert not desk.writer.quarantine


def test_keys_that_are_released_together_share_what_a_transaction_applies() -> None:
    desk = Desk()
    for key in ("a", "b"):
        desk.apply(desk.record(key, "poison"))
        desk.apply(*[desk.record(key) for _ in range(RELEASED_MAX - 100)])
    effects = desk.apply(*[desk.record("ops", "release", target=key) for key in ("a", "b")])
    assert len(desk.events(effects)) == 2 + RELEASED_MAX
    assert len(desk.events(desk.apply())) == RELEASED_MAX - 200


def test_a_parked_command_that_is_poison_too_holds_the_key_again() -> None:
    desk = Desk()
    desk.apply(
        desk.record("a", "poison"), desk.record("a"), desk.record("a", "poison"),
        desk.record("a"),
    )  # fmt: skip
    effects = desk.apply(desk.record("ops", "release", target="a"))
    assert kinds(desk.events(effects)) == [("ops", 4), ("a", 1)]
    assert len(desk.letters(effects)) == 1
    assert desk.writer.quarantine.parked == 1
    effects = desk.apply(desk.record("ops", "release", target="a"))
    assert kinds(desk.events(effects)) == [("ops", 5), ("a", 3)]


def test_quarantine_and_queue_survive_a_restart() -> None:
    desk = Desk()
    desk.apply(desk.record("a", "poison"), desk.record("a"))
    desk.restart()
    assert desk.apply(desk.record("a")) is not None
    desk.restart()
    effects = desk.apply(desk.record("ops", "release", target="a"))
    assert kinds(desk.events(effects)) == [("ops", 3), ("a", 1), ("a", 2)]


def test_a_poison_submission_parks_nothing() -> None:
    desk = Desk()
    effects = desk.apply(desk.record("a", "poison", topic="toy-p0"))
    assert len(desk.letters(effects)) == 1
    assert not desk.writer.quarantine
    assert len(desk.events(desk.apply(desk.record("a", topic="toy-p0")))) == 1


def test_the_release_of_a_free_key_is_a_command_like_another() -> None:
    desk = Desk()
    effects = desk.apply(desk.record("ops", "release", target="a"))
    assert kinds(desk.events(effects)) == [("ops", 0)]


class Sick(ToyRules):
    """The timers of keys that begin with `sick` raise, in the middle of their work."""

    def fire(self, step: Step, key: bytes) -> None:
        super().fire(step, key)
        if key.startswith(b"sick"):
            raise ValueError(key)


def due(desk: Desk, *keys: str) -> None:
    """These keys have a timer that is due."""
    desk.apply(desk.tick(), *[desk.record(key, "later", n=1) for key in keys])
    desk.now += 1_000


def test_a_timer_that_raises_is_undone_alone_and_its_key_waits() -> None:
    desk = Desk(rules=Sick(Topics("toy")))
    due(desk, "a", "sick", "z")
    effects = desk.apply(desk.tick())
    assert [event.key for event in desk.events(effects)] == ["a", "z"]
    assert len(desk.letters(effects)) == 1
    assert desk.writer.quarantine.keys == desk.writer.quarantine.timers == (b"sick",)
    assert desk.writer.poison == 1
    assert [key for key, _ in desk.writer.rows.items(desk.rules.timers)] == [b"sick"]
    assert desk.apply(desk.record("sick")) is not None  # parked
    desk.restart()
    assert desk.writer.quarantine.timers == (b"sick",)
    assert desk.apply(desk.tick()) is None  # it does not raise every second
    assert not desk.writer.more_due
    desk.rules.fire = partial(ToyRules.fire, desk.rules)  # type: ignore[method-assign]
    effects = desk.apply(desk.record("ops", "release", target="sick"), desk.tick())
    assert [event.kind for event in desk.events(effects)] == ["release", "add", "fired"]


def test_timers_that_wait_let_the_others_come_and_ask_for_no_tick() -> None:
    desk = Desk(rules=Sick(Topics("toy")))
    due(desk, *[f"sick{number}" for number in range(ToyRules.timers_max)], "z")
    assert len(desk.letters(desk.apply(desk.tick()))) == ToyRules.timers_max
    assert desk.writer.more_due == {"toy-work"}
    desk.writer.more_due.clear()
    assert [event.key for event in desk.events(desk.apply(desk.tick()))] == ["z"]
    assert not desk.writer.more_due


def test_the_timer_of_a_key_waits_for_its_parked_commands() -> None:
    desk = Desk()
    due(desk, "a")
    desk.apply(desk.record("a", "poison"), desk.record("a"))
    assert desk.apply(desk.tick()) is None
    effects = desk.apply(desk.record("ops", "release", target="a"), desk.tick())
    assert [event.kind for event in desk.events(effects)] == ["release", "add", "fired"]


def test_timers_that_raise_count_as_quarantines() -> None:
    desk = Desk(rules=Sick(Topics("toy")), per_minute_max=3)
    due(desk, *[f"sick{number}" for number in range(4)])
    with pytest.raises(TooManyQuarantinesError):
        desk.apply(desk.tick())


class Parking(ToyRules):
    """Tells of what is parked, or raises."""

    def parked(self, step: Step, record: Record) -> None:
        step.send(self.topics.notes, record.key, record.value or b"", step.partition)
        if b'"nothing"' in (record.value or b""):
            raise ValueError("parked")


def test_whoever_waits_is_told_that_a_command_is_parked() -> None:
    desk = Desk(rules=Parking(Topics("toy")))
    desk.apply(desk.record("a", "poison"))
    effects = desk.apply(desk.record("a"))
    assert effects is not None
    assert [sent.key for sent in effects.sends["toy-notes", 0]] == [b"a"]
    assert desk.writer.quarantine.parked == 1
    effects = desk.apply(desk.record("a", "nothing"))  # the telling raises
    assert effects is not None
    assert ("toy-notes", 0) not in effects.sends
    assert len(desk.letters(effects)) == 1
    assert desk.writer.quarantine.parked == 2


def test_more_than_twenty_quarantines_a_minute_mean_that_the_code_is_wrong() -> None:
    desk = Desk()
    for number in range(20):
        desk.apply(desk.record(f"k{number}", "poison"))
    desk.restart()  # the count is part of the state
    with pytest.raises(TooManyQuarantinesError):
        desk.apply(desk.record("another", "poison"))


def test_twenty_quarantines_in_more_than_a_minute_are_bad_luck() -> None:
    desk = Desk()
    for number in range(60):
        desk.apply(desk.record(f"k{number}", "poison"))
        desk.now += 3_100


def test_a_poison_handler_that_raises_stays_down() -> None:
    class Worse(ToyRules):
        def poisoned(self, step: Step, record: Record, error: BaseException) -> None:
            raise KeyError(record.offset, step.now) from error

    desk = Desk(rules=Worse(Topics("toy")))
    with pytest.raises(PoisonHandlerError, match="cannot be written down"):
        desk.apply(desk.record("a", "poison"))
