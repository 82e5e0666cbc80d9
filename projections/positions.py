"""How far each partition has been applied, moved in the transaction of what was applied.

The first statement of a batch moves its rows from where the batch starts to where it ends. Whoever
finds a row elsewhere is not the only projector (or somebody emptied a projection to have it folded
again), and stops.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

from projections.folding import Db
from schema.topics import Topic
from schema.wires.log import LogBatch, Place

_SQL: Final = (Path(__file__).parent / "sql" / "positions.sql").read_text().split("\n-- ;;\n")
_ENSURE, _LOAD, _MOVE, _ENSURE_LOG, _LOG, _CAUGHT_UP, _HOLD_LOG = _SQL
NUMBERED: Final = frozenset(
    {Topic.TASK_EVENTS, Topic.QUOTA_EVENTS, Topic.POOL_EVENTS, Topic.MATERIAL_EVENTS}
)
"""Topics whose keys count their events: a fold of them needs the log from its beginning."""


class TakenOverError(Exception):
    """The positions are not where this process left them: another one applies the log."""


class ReadModelError(Exception):
    """The read models can't be folded from this log; the message says what to do."""


class Move:
    """From where to where one batch of one partition goes."""

    __slots__ = ("at", "end", "place", "start")

    def __init__(self, place: Place, start: int, end: int, at: datetime | None) -> None:
        self.place = place
        self.start = start
        self.end = end
        self.at = at


def moves_of(batches: Iterable[LogBatch]) -> list[Move]:
    """One move a partition, from the first of its batches to the last, in a fixed order."""
    moves: dict[Place, Move] = {}
    for batch in batches:
        at = None
        if batch.records:
            at = datetime.fromtimestamp(batch.records[-1].timestamp / 1000, UTC)
        move = moves.get(batch.place)
        if move is None:
            moves[batch.place] = Move(batch.place, batch.start, batch.end, at)
        elif move.end != batch.start:
            raise AssertionError(f"{batch.place}: {batch.start} does not follow {move.end}")
        else:
            move.end, move.at = batch.end, at or move.at
    return [moves[place] for place in sorted(moves)]


async def move(db: Db, moves: Sequence[Move]) -> None:
    """Move the rows, as the first statement of the transaction; raises TakenOverError."""
    done = await db.execute(
        _MOVE,
        [one.place.topic for one in moves],
        [one.place.partition for one in moves],
        [one.start for one in moves],
        [one.end for one in moves],
        [one.at for one in moves],
    )
    if done != f"UPDATE {len(moves)}":
        raise TakenOverError(f"{len(moves)} positions were to be moved, but: {done}")


async def load(db: Db) -> dict[Place, int]:
    """The next offset of every partition that has a row."""
    rows = await db.fetch(_LOAD)
    return {Place(row["topic"], row["log_partition"]): row["next"] for row in rows}


async def ensure(db: Db, starts: Mapping[Place, int]) -> dict[Place, int]:
    """Rows for the partitions that have none, at the start of the log; then all of them.

    Raises ReadModelError where the log no longer begins at its beginning.
    """
    known = await load(db)
    missing = {place: start for place, start in starts.items() if place not in known}
    trimmed = [place for place, start in missing.items() if start > 0 and place.topic in NUMBERED]
    if trimmed:
        raise ReadModelError(
            f"nothing is applied yet of {trimmed[0].topic}/{trimmed[0].partition}, whose log now "
            f"begins at {missing[trimmed[0]]}: restore the read models or the log from the archive"
        )
    await db.execute(
        _ENSURE,
        [place.topic for place in missing],
        [place.partition for place in missing],
        list(missing.values()),
    )
    loaded = await load(db)
    return {place: loaded[place] for place in starts}


def epoch_of(cluster_id: str) -> str:
    """The name of an incarnation of the log in SSE ids: 8 hex digits."""
    return blake2b(cluster_id.encode(), digest_size=4).hexdigest()


async def ensure_log(db: Db, cluster_id: str) -> str:
    """Remember of which log the positions are; its epoch. Raises ReadModelError for another one."""
    await db.execute(_ENSURE_LOG, cluster_id, epoch_of(cluster_id))
    row = await db.fetchrow(_LOG)
    if row is None or row["cluster_id"] != cluster_id:
        raise ReadModelError(
            "the read models were folded from another log: `python -m projections rebuild` empties "
            "them to be folded from this one"
        )
    epoch: str = row["epoch"]
    return epoch


async def caught_up(db: Db, positions: Mapping[Place, int]) -> None:
    """Say that nothing is left to apply; raises TakenOverError when the rows are not ours."""
    async with db.transaction():
        # Whoever empties a projection takes this row first: it is never said of emptied tables.
        await db.execute(_HOLD_LOG)
        loaded = await load(db)
        if any(loaded.get(place) != position for place, position in positions.items()):
            raise TakenOverError("the positions were moved by somebody else")
        await db.execute(_CAUGHT_UP)
