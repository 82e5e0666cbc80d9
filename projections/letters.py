"""Dead letters, what operators did with them, and the keys that wait, from `dead-letters`."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, assert_never

from projections.folding import Db, Fact, storable
from schema.replies import DeadLetter, DeadLetterMessage, KeyReleased
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "letters.sql").read_text().split("\n-- ;;\n")
_ADD_LETTER, _MERGE_PARKED, _CLOSE_LETTER, _RELEASE_KEY = _SQL


class Letters:
    """The fold of `dead-letters`. They are few: one statement each."""

    name: ClassVar[str] = "letters"
    topic: ClassVar[Topic] = Topic.DEAD_LETTERS
    tables: ClassVar[tuple[str, ...]] = ("dead_letters", "parked_keys")

    def forget(self) -> None:
        """It remembers nothing."""

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Each letter once, by its id; a key stands here until it is released.

        What broke is told in the words of what was sent, so none of them may be one that stops us.
        """
        for fact in facts:
            message: DeadLetterMessage = fact.message
            match message:
                case DeadLetter():
                    await _opened(db, fact, message)
                case KeyReleased():
                    await _released(db, fact, message)
                case _:
                    assert_never(message)


async def _opened(db: Db, fact: Fact, letter: DeadLetter) -> None:
    await db.execute(
        _ADD_LETTER,
        storable(letter.letter_id),
        letter.topic,
        letter.partition,
        letter.offset,
        letter.key,
        letter.value,
        storable(letter.cause),
        storable(letter.quarantined_key),
        storable(letter.task_id) if letter.task_id is not None else None,
        letter.failure,
        storable(letter.trace_id) if letter.trace_id is not None else None,
        letter.at,
        fact.partition,
        fact.offset,
    )
    if letter.replaces:
        replaced = storable(letter.replaces)
        await db.execute(_CLOSE_LETTER, replaced, "replaced", None, None, letter.at)
    if letter.quarantined_key:
        await db.execute(
            _MERGE_PARKED,
            fact.partition,
            storable(letter.quarantined_key),
            storable(letter.letter_id),
            storable(letter.cause),
            letter.at,
        )


async def _released(db: Db, fact: Fact, released: KeyReleased) -> None:
    if released.letter_id:
        state = "discarded" if released.discarded else "redriven"
        await db.execute(
            _CLOSE_LETTER,
            storable(released.letter_id),
            state,
            storable(released.who),
            storable(released.why),
            released.at,
        )
    if released.key:
        await db.execute(_RELEASE_KEY, fact.partition, storable(released.key))
