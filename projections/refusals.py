"""Refusals of the last day, from `refusals`: what a GET of something refused says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from projections.folding import Db, Fact, copy, storable
from schema.codec import encode
from schema.replies import CommandRefused
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "refusals.sql").read_text().split("\n-- ;;\n")
_STAGE, _MERGE = _SQL
_COLUMNS: Final = (
    "command_id", "command", "key", "user_id", "reason", "detail", "remaining", "resets_at", "at",
    "log_partition", "log_offset",
)  # fmt: skip


class Refusals:
    """The fold of `refusals`. A command refused again (told twice) is one row, the newest."""

    name: ClassVar[str] = "refusals"
    topic: ClassVar[Topic] = Topic.REFUSALS
    tables: ClassVar[tuple[str, ...]] = ("refusals",)

    async def prepare(self, db: Db) -> None:
        await db.execute(_STAGE)

    def forget(self) -> None:
        """It remembers nothing."""

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """One row a command."""
        rows = {fact.message.command_id: _row(fact) for fact in facts}
        await copy(db, "fold_refusals", _COLUMNS, list(rows.values()))
        await db.execute(_MERGE)


def _row(fact: Fact) -> tuple[Any, ...]:
    refused: CommandRefused = fact.message
    remaining = refused.remaining
    return (
        refused.command_id,
        refused.command,
        refused.key,
        refused.user_id,
        refused.reason,
        storable(refused.detail),
        None if remaining is None else encode(remaining).decode(),
        refused.resets_at,
        refused.at,
        fact.partition,
        fact.offset,
    )
