"""Stories of a decider: `given` what was asked before, `when` this is asked, `then` that follows.

    Story(handle=..., row=tasks.ROW).given(create()).when(start(1)).then(a(TaskStarted, token=1))

Each step also holds what is true of every decision of every noun, so no story has to say it:
messages and rows survive their bytes, the `seq` of a key has no gap, an event id is never used
twice nor an order's for another order, a refusal comes without events, and only who asked with
`reply_to` is answered.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import msgspec

from commands.decider import Decision, MemoryRows, Now, TimerDue, wire_name
from schema.codec import CODECS, Codec, encode
from schema.ids import CommandId
from schema.refusals import Refusal

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
_BY_TAG: dict[str, Codec[Any]] = {tag: codec for codec in CODECS.values() for tag in codec.tags}


@dataclass(frozen=True)
class Wanted:
    """A message of this kind with these fields; what is not named may be anything."""

    kind: type
    fields: dict[str, Any]

    def check(self, message: object) -> None:
        assert type(message) is self.kind, f"wanted {self}, got {message}"
        for name, value in self.fields.items():
            found = getattr(message, name)
            assert found == value, f"{self.kind.__name__}.{name}: wanted {value!r}, got {found!r}"

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.kind.__name__}({told})"


def a(kind: type, **fields: Any) -> Wanted:  # noqa: ANN401 - fields of any message
    """A message that is expected."""
    return Wanted(kind, fields)


def check_message(message: Any) -> None:  # noqa: ANN401 - any message
    """It can be written and read back, under its own name, as what it was."""
    assert _BY_TAG[wire_name(message)].decode(encode(message)) == message


@dataclass
class Outcome:
    """What one step led to. Every method but `events` checks and hands back the outcome itself."""

    decision: Decision[Any]
    story: "Story"

    @property
    def events(self) -> tuple[Any, ...]:
        return self.decision.events

    def order(self, number: int = 0) -> Any:  # noqa: ANN401 - an order of any noun
        return self.decision.orders[number]

    def then(self, *wanted: Wanted | type) -> Self:
        """Exactly these events, in this order."""
        _check_all("events", self.decision.events, wanted)
        return self

    def orders(self, *wanted: Wanted | type) -> Self:
        """Exactly these orders, in this order."""
        _check_all("orders", self.decision.orders, wanted)
        return self

    def nothing(self) -> Self:
        """Already so: no event, no order, no refusal; who asked to be answered still is."""
        assert not self.decision.events, self.decision.events
        assert not self.decision.orders, self.decision.orders
        assert self.decision.refusal is None, self.decision.refusal
        return self

    def refused(self, reason: Refusal, detail: str | None = None) -> Self:
        """A refusal for this reason is recorded, and nothing happened."""
        refusal = self.decision.refusal
        assert refusal is not None, self.decision
        assert refusal.reason is reason, refusal
        assert detail is None or refusal.detail == detail, refusal
        return self

    def replied(self, kind: type, **fields: Any) -> Self:  # noqa: ANN401 - fields of a reply
        """This is the answer."""
        a(kind, **fields).check(self.decision.reply)
        return self


def _check_all(what: str, found: tuple[object, ...], wanted: tuple[Wanted | type, ...]) -> None:
    names = [type(message).__name__ for message in found]
    asked = [one.__name__ if isinstance(one, type) else one.kind.__name__ for one in wanted]
    assert names == asked, f"{what}: wanted {asked}, got {names}: {found}"
    for message, one in zip(found, wanted, strict=True):
        if isinstance(one, Wanted):
            one.check(message)


class TouchedRows(MemoryRows[Any]):
    """Rows that know which of them the last step wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[str] = set()

    def put(self, key: str, row: Any) -> None:  # noqa: ANN401 - a row of any noun
        self.touched.add(key)
        super().put(key, row)


@dataclass
class Story:
    """One world of one noun: its rows, its clock, and all that was decided so far."""

    handle: Callable[[Any, Any, Now], Decision[Any]]
    """The noun's `handle`, with everything but (rows, command, now) bound."""
    row: Any
    """The noun's `ROW`, to read rows back from their bytes."""
    on_due: Callable[[Any, TimerDue, Now], Decision[Any]] | None = None
    due_ms: Callable[[Any], int | None] | None = None
    key_of: Callable[[Any], str] = lambda event: event.task_id
    """The key whose `seq` an event counts."""
    rows: TouchedRows = field(default_factory=TouchedRows)
    at: datetime = NOON
    stall: timedelta = timedelta()
    """How long nobody served: the served clock is that much behind."""
    history: list[Any] = field(default_factory=list[Any])
    """Every event so far."""
    ordered: list[Any] = field(default_factory=list[Any])
    """Every order so far."""
    refusals: list[Any] = field(default_factory=list[Any])
    _seqs: dict[str, int] = field(default_factory=dict[str, int])
    _ids: dict[str, type] = field(default_factory=dict[str, type])
    _ticks: int = 0

    @property
    def now(self) -> Now:
        served = self.at - self.stall - datetime(1970, 1, 1, tzinfo=UTC)
        return Now(self.at, served // timedelta(milliseconds=1))

    def given(self, *commands: Any) -> Self:  # noqa: ANN401 - commands of any noun
        """These were asked before, one after the other."""
        for command in commands:
            self.when(command)
        return self

    def row_of(self, key: str) -> Any:  # noqa: ANN401 - a row of any noun
        """The row under this key, which must be there."""
        return self.rows.rows[key]

    def after(self, seconds: float) -> Self:
        """Time passes, and somebody serves the partition all the while."""
        self.at += timedelta(seconds=seconds)
        return self

    def after_outage(self, seconds: float) -> Self:
        """Time passes while nobody serves: no deadline comes nearer."""
        self.at += timedelta(seconds=seconds)
        self.stall += timedelta(seconds=seconds)
        return self

    def when(self, command: Any) -> Outcome:  # noqa: ANN401 - a command of any noun
        """This is asked."""
        check_message(command)
        decision = self.handle(self.rows, command, self.now)
        reply_to = getattr(command, "reply_to", None)
        assert (decision.reply is None) == (reply_to is None), (command, decision.reply)
        return self._outcome(decision)

    def twice(self, command: Any) -> Outcome:  # noqa: ANN401 - a command of any noun
        """This is asked and told again: the outcome of the second time."""
        self.when(command)
        return self.when(command)

    def tick(self) -> list[Outcome]:
        """Every timer that is due, in order of being due."""
        assert self.on_due is not None
        assert self.due_ms is not None
        found: list[tuple[int, str]] = []
        for key, row in self.rows:
            due = self.due_ms(row)
            if due is not None and due <= self.now.served_ms:
                found.append((due, key))
        outcomes: list[Outcome] = []
        for _, key in sorted(found):
            self._ticks += 1
            timer = TimerDue(CommandId(f"tick-{self._ticks}"), key)
            outcomes.append(self._outcome(self.on_due(self.rows, timer, self.now)))
        return outcomes

    def due(self) -> Outcome:
        """Exactly one timer is due: what it leads to."""
        (outcome,) = self.tick()
        return outcome

    def _outcome(self, decision: Decision[Any]) -> Outcome:
        self._check(decision)
        self.history.extend(decision.events)
        self.ordered.extend(decision.orders)
        if decision.refusal is not None:
            self.refusals.append(decision.refusal)
        return Outcome(decision, self)

    def _check(self, decision: Decision[Any]) -> None:
        for message in (*decision.events, *decision.orders):
            check_message(message)
        if decision.reply is not None:
            check_message(decision.reply)
        if decision.refusal is not None:
            check_message(decision.refusal)
            assert not decision.events, decision
        for event in decision.events:
            key = self.key_of(event)
            assert event.seq == self._seqs.get(key, 0) + 1, event
            self._seqs[key] = event.seq
            assert event.at == self.at
            assert event.event_id not in self._ids, event
            self._ids[event.event_id] = type(event)
        for order in decision.orders:
            named = getattr(order, "command_id", None)
            if named is not None:
                assert self._ids.setdefault(named, type(order)) is type(order), order
        for key in self.rows.touched:
            row = self.rows.get(key)
            assert row is None or msgspec.json.decode(encode(row), type=self.row) == row, row
        self.rows.touched.clear()
