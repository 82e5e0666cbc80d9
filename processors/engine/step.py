"""The overlay of one command: what it reads, changes and sends, until it is accepted or dropped."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from processors.engine.clock import Clock
from processors.engine.errors import RecordTooLargeError, UnencodedRowError
from processors.engine.quarantine import Quarantine
from processors.engine.records import Headers, Record, Sent
from processors.engine.routes import Routes
from processors.engine.rows import AnyTable, Rows, Table

RowT = TypeVar("RowT")

RECORD_BYTES_MAX: Final = 700_000
"""Of key, value and headers together; below a Kafka batch, which is below the broker's 1 MiB."""
ROW_OVERHEAD: Final = 64


class Failure(NamedTuple):
    """A timer that raised, and the key that waits until somebody releases it."""

    key: bytes | None
    """None: nothing waits; it only counts."""
    error: Exception


class Step:
    """One command at work. The state below is not touched before the step is accepted.

    `now` (milliseconds, log time) is the only time that a rule may use; `cause` is the record at
    work, which everything written names.

    A tick works on many timers in one step: `seal` after each keeps it, `undo` drops what came
    since, `fail` quarantines its key.
    """

    __slots__ = (
        "_clock", "_kept", "_quarantine", "_routes", "_rows", "_sealed", "_sent", "_touched",
        "cause", "failures", "now", "partition",
    )  # fmt: skip

    def __init__(
        self,
        rows: Rows,
        clock: Clock,
        routes: Routes,
        cause: Record,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.now = clock.now
        self.cause = cause
        self.partition = rows.partition
        self._rows = rows
        self._clock = clock
        self._routes = routes
        self._touched: dict[bytes, tuple[AnyTable, Any]] = {}
        self._sealed: dict[bytes, tuple[AnyTable, Any, bytes | None]] = {}
        self._sent: list[tuple[tuple[str, int], Sent]] = []
        self._kept = 0
        """How many of `_sent` are sealed."""
        self._quarantine = quarantine
        self.failures: list[Failure] = []
        """What the writer quarantines when the step is accepted."""

    def served(self, topic: str) -> int:
        """The served clock of a ticked topic, milliseconds: deadlines are stored in it."""
        return self._clock.served(topic)

    def get(self, table: Table[RowT], key: bytes) -> RowT | None:
        """The row as this command sees it, or None."""
        full = table.prefix + key
        touched = self._touched
        if touched and full in touched:
            return cast("RowT | None", touched[full][1])
        if self._sealed and full in self._sealed:
            return cast("RowT | None", self._sealed[full][1])
        return self._rows.get(table, full)

    def put(self, table: Table[RowT], key: bytes, row: RowT) -> None:
        self._touched[table.prefix + key] = (table, row)

    def delete(self, table: Table[RowT], key: bytes) -> None:
        """Deleting a row that is not there is nothing."""
        self._touched[table.prefix + key] = (table, None)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Write a record in this transaction; without `partition`, murmur2 of the key decides.

        Raises UndeclaredTopicError or RecordTooLargeError: uncaught, the command is poison.
        """
        number = self._routes.partition(topic, key, partition)
        given: Headers = ()
        size = len(value) + (len(key) if key is not None else 0)
        if headers:
            given = tuple(headers)
            size += sum(len(name) + len(content) for name, content in given)
        if size > RECORD_BYTES_MAX:
            raise RecordTooLargeError(f"{size} bytes to {topic}; at most {RECORD_BYTES_MAX}")
        self._sent.append(((topic, number), Sent(key, value, given)))

    def seal(self) -> None:
        """Encode every changed row, so that whatever cannot be written fails inside the step.

        What is sealed stays, whatever is undone later.
        """
        sealed: dict[bytes, tuple[AnyTable, Any, bytes | None]] = {}
        for full, (table, row) in self._touched.items():
            if row is None:
                sealed[full] = (table, None, None)
                continue
            value = table.encode(row)
            if type(value) is not bytes:
                raise UnencodedRowError(f"{table!r} encodes to {type(value).__name__}")
            if len(value) + len(full) + ROW_OVERHEAD > RECORD_BYTES_MAX:
                raise RecordTooLargeError(f"a row of {table!r} has {len(value)} bytes")
            sealed[full] = (table, row, value)
        if self._sealed:  # a tick, which seals after each timer
            self._sealed.update(sealed)
        else:
            self._sealed = sealed
        self._touched = {}
        self._kept = len(self._sent)

    def undo(self) -> None:
        """Drop what was changed and sent since the last seal."""
        self._touched = {}
        del self._sent[self._kept :]

    def fail(self, key: bytes | None, error: Exception) -> None:
        """A timer raised and was undone: its key waits, if it has one, and the failure counts."""
        self.failures.append(Failure(key, error))

    def waits(self, key: bytes) -> bool:
        """Whether the key is quarantined: its timers must not overtake its parked commands."""
        return (self._quarantine is not None and key in self._quarantine) or any(
            failure.key == key for failure in self.failures
        )

    def failed(self) -> set[bytes]:
        """The keys that are quarantined because a timer of theirs raised."""
        keys = set(() if self._quarantine is None else self._quarantine.timers)
        keys.update(failure.key for failure in self.failures if failure.key is not None)
        return keys

    def accept(
        self,
        changes: dict[bytes, bytes | None],
        sends: dict[tuple[str, int], list[Sent]],
    ) -> None:
        """Move a sealed overlay into the state and into what the transaction will write."""
        rows = self._rows
        for full, (table, row, value) in self._sealed.items():
            if value is not None:
                rows.put(table, full, row)
                changes[full] = value
            elif rows.delete(table, full):
                changes[full] = None
        for place, sent in self._sent:
            waiting = sends.get(place)
            if waiting is None:
                sends[place] = [sent]
            else:
                waiting.append(sent)
