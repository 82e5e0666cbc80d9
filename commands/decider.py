"""What every decider is made of: the time it is handed, the decision it gives, the rows it knows.

State is many small rows, each a frozen struct under a key. A decider reads rows, decides, evolves
and writes rows; where they are kept (a table of the engine, a dict of a test) is not its business.
"""

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from schema.ids import CommandId
from schema.message import Instant
from schema.replies import CommandRefused, ReplyMessage

Event = TypeVar("Event")
Row = TypeVar("Row")
RowIn = TypeVar("RowIn")


class Now(NamedTuple):
    """The only time that a rule knows."""

    at: Instant
    """Log time of the command."""
    served_ms: int
    """The served clock of the owner: log time less every span in which nobody served the partition.

    Deadlines are stored in it, so that an outage ends nothing.
    """


class Decision(NamedTuple, Generic[Event]):
    """What follows from one command. All of it is written in one transaction, or none of it."""

    events: tuple[Event, ...] = ()
    """Facts, in order. Empty: it is already so."""
    orders: tuple[msgspec.Struct, ...] = ()
    """Commands to other keys and messages to runners; the shell knows where they go."""
    reply: ReplyMessage | None = None
    refusal: CommandRefused | None = None
    """A fact of its own kind, never an input of `evolve`."""


class Rows(Protocol[RowIn]):
    """Rows of one kind of state, by key."""

    def get(self, key: str) -> RowIn | None:
        """The row, or None."""
        ...

    def put(self, key: str, row: RowIn) -> None:
        """Set a row."""
        ...

    def delete(self, key: str) -> None:
        """Forget a row; a row that is not there is no error."""
        ...


class MemoryRows(Generic[Row]):
    """Rows in a dict: for tests, simulation and folding a log."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def get(self, key: str) -> Row | None:
        return self.rows.get(key)

    def put(self, key: str, row: Row) -> None:
        self.rows[key] = row

    def delete(self, key: str) -> None:
        self.rows.pop(key, None)

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        return iter(self.rows.items())


class ImpossibleEventError(Exception):
    """The log holds an event that this state cannot follow: the log or the code is wrong."""

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"{type(event).__name__} cannot follow {type(state).__name__}: {event}")


class TimerDue(NamedTuple):
    """A deadline of a key has come, found by a tick. Never on the wire; its id is the tick's."""

    command_id: CommandId
    key: str


def wire_name(message: Any) -> str:  # noqa: ANN401 - any message struct
    """The name of a message on the wire."""
    return str(message.__struct_config__.tag)
