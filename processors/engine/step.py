"""The overlay of one command: what it reads, changes and sends, until it is accepted or dropped."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

from processors.engine.clock import Clock
from processors.engine.errors import RecordTooLargeError, UnencodedRowError
from processors.engine.records import Headers, Record, Sent
from processors.engine.routes import Routes
from processors.engine.rows import AnyTable, Rows, Table

RowT = TypeVar("RowT")

RECORD_BYTES_MAX: Final = 700_000
"""Of key, value and headers together; below a Kafka batch, which is below the broker's 1 MiB."""
ROW_OVERHEAD: Final = 64


class Step:
    """One command at work. The state below is not touched before the step is accepted.

    `now` (milliseconds, log time) is the only time that a rule may use; `cause` is the record at
    work, which everything written names.
    """

    __slots__ = (
        "_clock", "_routes", "_rows", "_sealed", "_sent", "_touched", "cause", "now", "partition",
    )  # fmt: skip

    def __init__(self, rows: Rows, clock: Clock, routes: Routes, cause: Record) -> None:
        self.now = clock.now
        self.cause = cause
        self.partition = rows.partition
        self._rows = rows
        self._clock = clock
        self._routes = routes
        self._touched: dict[bytes, tuple[AnyTable, Any]] = {}
        self._sealed: list[tuple[bytes, AnyTable, Any, bytes | None]] = []
        self._sent: list[tuple[tuple[str, int], Sent]] = []

    def served(self, topic: str) -> int:
        """The served clock of a ticked topic, milliseconds: deadlines are stored in it."""
        return self._clock.served(topic)

    def get(self, table: Table[RowT], key: bytes) -> RowT | None:
        """The row as this command sees it, or None."""
        full = table.prefix + key
        touched = self._touched
        if touched and full in touched:
            return cast("RowT | None", touched[full][1])
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
        """Encode every changed row, so that whatever cannot be written fails inside the step."""
        for full, (table, row) in self._touched.items():
            if row is None:
                self._sealed.append((full, table, None, None))
                continue
            value = table.encode(row)
            if type(value) is not bytes:
                raise UnencodedRowError(f"{table!r} encodes to {type(value).__name__}")
            if len(value) + len(full) + ROW_OVERHEAD > RECORD_BYTES_MAX:
                raise RecordTooLargeError(f"a row of {table!r} has {len(value)} bytes")
            self._sealed.append((full, table, row, value))

    def accept(
        self,
        changes: dict[bytes, bytes | None],
        sends: dict[tuple[str, int], list[Sent]],
    ) -> None:
        """Move a sealed overlay into the state and into what the transaction will write."""
        rows = self._rows
        for full, table, row, value in self._sealed:
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
