"""State of one partition number: the rows of all tables in one dictionary.

Recovery fills it with bytes; a row is decoded when somebody first asks for it and then stays
decoded. Rows are frozen, so an overlay that is dropped has changed nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar, cast

RowT = TypeVar("RowT")
RowT_contra = TypeVar("RowT_contra", contravariant=True)

SEPARATOR: Final = b"\x00"
MISSING: Final = object()


class Listener(Protocol[RowT_contra]):
    """Keeps an index in memory (an order, a heap of due timers) in step with a table.

    Called when the overlay of a command is accepted, and for each row at recovery (`old` is None).
    Never called for a dropped overlay: handlers must not touch an index themselves.
    """

    def on_put(
        self, partition: int, key: bytes, old: RowT_contra | None, new: RowT_contra
    ) -> None: ...
    def on_delete(self, partition: int, key: bytes, old: RowT_contra) -> None: ...
    def reset(self, partition: int) -> None:
        """Forget everything of this partition: it is lost, or about to be recovered."""
        ...


class Table(Generic[RowT]):
    """One kind of rows. All tables share one changelog topic, whose keys are `name NUL key`.

    `decode` and `encode` map the row's bytes; a decoded row is frozen and never `bytes`.
    """

    __slots__ = ("decode", "encode", "listeners", "name", "prefix")

    def __init__(
        self, name: str, *, decode: Callable[[bytes], RowT], encode: Callable[[RowT], bytes]
    ) -> None:
        if not name or "\x00" in name:
            raise ValueError(f"a table cannot be called {name!r}")
        self.name = name
        self.prefix = name.encode() + SEPARATOR
        self.decode = decode
        self.encode = encode
        self.listeners: list[Listener[RowT]] = []

    def listen(self, listener: Listener[RowT]) -> None:
        """Keep `listener` in step with this table; call before the app starts."""
        self.listeners.append(listener)

    def __repr__(self) -> str:
        return f"Table({self.name!r})"


AnyTable = Table[Any]


class Rows:
    """All rows of one partition number: changelog key -> bytes or decoded row."""

    __slots__ = ("_rows", "partition", "tables")

    def __init__(self, partition: int, tables: tuple[AnyTable, ...]) -> None:
        self.partition = partition
        self.tables = tables
        self._rows: dict[bytes, Any] = {}
        self._reset_listeners()

    def load(self, key: bytes, value: bytes | None) -> None:
        """One record of the changelog, in order, at recovery."""
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = value

    def loaded(self) -> None:
        """Recovery has read everything: tell the listeners of each row."""
        heard = {table.prefix: table for table in self.tables if table.listeners}
        if not heard:
            return
        for full in self._rows:
            prefix, separator, key = full.partition(SEPARATOR)
            table = heard.get(prefix + separator)
            if table is not None:
                row = self.get(table, full)
                for listener in table.listeners:
                    listener.on_put(self.partition, key, None, row)

    def get(self, table: Table[RowT], full: bytes) -> RowT | None:
        """The decoded row under the whole changelog key `full`."""
        row = self._rows.get(full)
        if type(row) is bytes:
            row = self._rows[full] = table.decode(row)
        return cast("RowT | None", row)

    def put(self, table: Table[RowT], full: bytes, row: RowT) -> None:
        if not table.listeners:
            self._rows[full] = row
            return
        old = self.get(table, full)
        self._rows[full] = row
        key = full[len(table.prefix) :]
        for listener in table.listeners:
            listener.on_put(self.partition, key, old, row)

    def delete(self, table: Table[RowT], full: bytes) -> bool:
        """Whether there was such a row."""
        if full not in self._rows:
            return False
        old = self.get(table, full) if table.listeners else None
        del self._rows[full]
        if old is not None:
            key = full[len(table.prefix) :]
            for listener in table.listeners:
                listener.on_delete(self.partition, key, old)
        return True

    def items(self, table: Table[RowT]) -> Iterator[tuple[bytes, RowT]]:
        """Every row of a table, in no order; for tests, replay and tools, not for handlers."""
        for full in list(self._rows):
            if full.startswith(table.prefix):
                row = self.get(table, full)
                if row is not None:
                    yield full[len(table.prefix) :], row

    def drop(self) -> None:
        """The partition is lost: free the memory and the indexes."""
        self._rows = {}
        self._reset_listeners()

    def __len__(self) -> int:
        return len(self._rows)

    def _reset_listeners(self) -> None:
        for table in self.tables:
            for listener in table.listeners:
                listener.reset(self.partition)
