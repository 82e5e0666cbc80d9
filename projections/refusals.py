"""Refusals of the last day, from `refusals`: what a GET of something refused says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from projections.folding import Db, Fact, put, storable
from schema.codec import encode
from schema.replies import CommandRefused
from schema.topics import Topic

_MERGE: Final = (Path(__file__).parent / "sql" / "refusals.sql").read_text()


class Refusals:
    """The fold of `refusals`. A command refused again (told twice) is one row, the newest."""

    name: ClassVar[str] = "refusals"
    topic: ClassVar[Topic] = Topic.REFUSALS
    tables: ClassVar[tuple[str, ...]] = ("refusals",)

    def forget(self) -> None:
        """It remembers nothing."""

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """One row a command."""
        rows = {fact.message.command_id: _row(fact) for fact in facts}
        await put(db, _MERGE, list(rows.values()))


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
