"""Dead letters and the keys that wait behind them, from `dead-letters`."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from projections.folding import Db, Fact
from schema.replies import DeadLetter
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "letters.sql").read_text().split("\n-- ;;\n")
_ADD_LETTER, _MERGE_PARKED = _SQL


class Letters:
    """The fold of `dead-letters`. They are few: one statement each."""

    name: ClassVar[str] = "letters"
    topic: ClassVar[Topic] = Topic.DEAD_LETTERS
    tables: ClassVar[tuple[str, ...]] = ("dead_letters", "parked_keys")

    async def prepare(self, db: Db) -> None:
        """Nothing to prepare."""

    def forget(self) -> None:
        """It remembers nothing."""

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Each letter once, by its id."""
        for fact in facts:
            letter: DeadLetter = fact.message
            await db.execute(
                _ADD_LETTER,
                letter.letter_id,
                letter.topic,
                letter.partition,
                letter.offset,
                letter.key,
                letter.value,
                letter.cause,
                letter.quarantined_key,
                letter.task_id,
                letter.failure,
                letter.trace_id,
                letter.at,
                fact.partition,
                fact.offset,
            )
            if letter.quarantined_key:
                key = letter.quarantined_key
                await db.execute(
                    _MERGE_PARKED, fact.partition, key, letter.letter_id, letter.cause, letter.at
                )
