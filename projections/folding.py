"""What every fold is made of: facts as they were read, and the check that none of a key is missing.

A fold turns the facts of one batch into rows and writes them within the transaction that moves the
position. It reads no clock: the same log gives the same rows, however it is cut into batches.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from asyncpg import Connection

from schema.topics import Topic

Db: TypeAlias = "Connection[Any]"


class Fact(NamedTuple):
    """One record of a topic, decoded."""

    topic: str
    partition: int
    offset: int
    message: Any
    """A message of the topic's union; the fold of the topic knows which."""
    value: bytes
    """The message as it stands in the log."""


class Fold(Protocol):
    """The projection of one topic into its own tables."""

    name: ClassVar[str]
    topic: ClassVar[Topic]
    tables: ClassVar[tuple[str, ...]]
    """Tables that nobody else writes; emptying them and the topic's positions begins anew."""

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Write the rows of these facts. Raises GapError; runs inside the transaction."""
        ...

    def forget(self) -> None:
        """A transaction failed: what is kept in memory may be wrong."""
        ...


def storable(text: str) -> str:
    """The text as Postgres takes it: a NUL, which JSON may hold, is shown as what it is."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}")


class GapError(Exception):
    """An event of a key is missing: the log lost something, or the read model did."""

    def __init__(self, fact: Fact, key: str, seq: int, last: int) -> None:
        super().__init__(
            f"{fact.topic}/{fact.partition} offset {fact.offset}: {key} goes on with seq {seq} "
            f"after {last}"
        )


class Seqs:
    """The last `seq` applied of each key, remembered for keys that were seen lately."""

    def __init__(self, remembered_max: int = 200_000) -> None:
        self._known: dict[str, int] = {}
        self._max = remembered_max

    def unknown(self, keys: Iterable[str]) -> list[str]:
        """Keys whose last seq must be read from the tables first; each once, sorted."""
        return sorted({key for key in keys if key not in self._known})

    def learn(self, asked: Iterable[str], found: Mapping[str, int]) -> None:
        """What the tables say of the keys that were asked for; absent: no event yet."""
        if len(self._known) > self._max:
            self._known.clear()
        for key in asked:
            self._known[key] = found.get(key, 0)

    def is_next(self, fact: Fact, key: str, seq: int) -> bool:
        """Whether to apply it (False: it was applied already); raises GapError."""
        last = self._known[key]
        if seq <= last:
            return False
        if seq != last + 1:
            raise GapError(fact, key, seq, last)
        self._known[key] = seq
        return True

    def forget(self) -> None:
        """Nothing is known any more."""
        self._known.clear()


async def copy(db: Db, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Copy rows into a table; nothing is sent for none."""
    if rows:
        await db.copy_records_to_table(table, columns=columns, records=rows)


async def put(db: Db, statement: str, rows: Sequence[Sequence[Any]]) -> str:
    """Run a statement that takes each column of the rows as an array; its tag, "" for no rows.

    Arrays leave nothing behind: the plan of the statement is made once a connection. A staging
    table that a commit empties would have it made anew for every batch.
    """
    if not rows:
        return ""
    columns = zip(*rows, strict=True)
    # `unnest` fills what is shorter with NULL: a column of nothing else needs no array.
    done: str = await db.execute(
        statement, *(None if column.count(None) == len(column) else column for column in columns)
    )
    return done


async def change(db: Db, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Change rows as `put` does: every one must be there."""
    done = await put(db, statement, rows)
    if rows and done != f"INSERT 0 {len(rows)}":
        raise AssertionError(f"{len(rows)} rows were to change, but: {done}")
