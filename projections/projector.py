"""The projector: reads the log in windows and applies each window in one transaction.

Busy or not, two transactions begin at least a window apart, so their number is bounded; after a
quiet spell an event waits only a few milliseconds. While Postgres is away the window in hand waits;
a commit whose answer was lost is looked up in the positions. Every doubt (positions elsewhere, a
gap, an unknown message) raises and ends the process.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import asyncpg

from projections import positions
from projections.folding import Db, Fact, Fold
from projections.positions import Move, TakenOverError
from projections.watching import Watching
from schema.codec import CODECS
from schema.topics import Topic
from schema.wires.log import LogBatch, LogReader, LogUnavailableError, Place
from schema.wires.telemetry import facts as log_facts

RECORDS_MAX: Final = 20_000
QUIET_WAIT_SECONDS: Final = 0.01
READ_SECONDS: Final = 0.5
LAST_READS_SECONDS: Final = 0.02
"""What waits at the broker is fetched within it, so a window holds what came until its end."""
BEHIND_RECORDS: Final = 1_000
"""Whoever has so many to fetch at once does not wait for more."""
CAUGHT_UP_EVERY_SECONDS: Final = 5.0
STUCK_SECONDS: Final = 60.0
COMMAND_SECONDS: Final = 30.0
_BACKOFF_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_log = logging.getLogger(__name__)

CONFUSED: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What asyncpg also says when a connection breaks in the middle of something."""
CONFUSED_MAX: Final = 5

AWAY: Final = (
    OSError,
    TimeoutError,
    *CONFUSED,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
)
"""What Postgres being away looks like; everything else is a fault of ours."""


class StuckError(Exception):
    """There is something to read and nothing is read: a new process is the cure."""


class Projector:
    """Applies the log to the read models until it is told to stop."""

    def __init__(
        self,
        reader: LogReader,
        dsn: str,
        folds: Sequence[Fold],
        *,
        window_seconds: float,
        watching: Watching,
        told: Callable[[Sequence[Fact]], None],
    ) -> None:
        self._reader = reader
        self._dsn = dsn
        self._folds = {fold.topic.value: fold for fold in folds}
        self._window = window_seconds
        self._watching = watching
        self._told = told
        self._db: Db | None = None
        self._began = 0.0
        self._moved = time.monotonic()
        self._goal: Mapping[Place, int] | None = None
        self._asked = -CAUGHT_UP_EVERY_SECONDS
        self._markers: list[LogBatch] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Apply window after window; the reader stands at the positions of the tables."""
        self._moved = time.monotonic()
        try:
            while not stop.is_set():
                batches = await self._collect()
                self._watching.lag(self._reader.lag())
                if batches:
                    await self._apply(batches)
                else:
                    self._idle()
                await self._look()
        finally:
            await self._disconnect()

    # --- reading ---------------------------------------------------------------------------------

    async def _collect(self) -> list[LogBatch]:
        """The next window: what comes until it is time for another transaction.

        It is not read as it trickles in: each fetch costs us and the broker the same, be it full
        or nearly empty.
        Markers without records wait for the next window; they are not worth a transaction.
        """
        batches = self._markers + await self._reader.read(READ_SECONDS)
        self._markers = []
        if not any(batch.records for batch in batches):
            self._markers = batches
            return []
        until = max(self._began + self._window, time.monotonic() + QUIET_WAIT_SECONDS)
        count = sum(len(batch.records) for batch in batches)
        if sum(self._reader.lag().values()) < BEHIND_RECORDS:
            await asyncio.sleep(until - LAST_READS_SECONDS - time.monotonic())
        while count < RECORDS_MAX:
            left = until - time.monotonic()
            if left <= 0:
                break
            more = await self._reader.read(left)
            batches += more
            count += sum(len(batch.records) for batch in more)
        return batches

    def _idle(self) -> None:
        """Nothing came: notice when that is not because nothing is there."""
        now = time.monotonic()
        lag = sum(self._reader.lag().values())
        if not lag:
            self._moved = now
        elif now - self._moved > STUCK_SECONDS:
            raise StuckError(f"{lag} records wait and none was read for {STUCK_SECONDS} s")

    async def _look(self) -> None:
        """Say now and then that all is applied: all that stood in the log when it was asked.

        Under load there is never a moment without something new, so the ends of the log are asked
        for once, and what counts is that the positions have passed them.
        """
        now = time.monotonic()
        try:
            if self._goal is None:
                if now - self._asked < CAUGHT_UP_EVERY_SECONDS:
                    return
                self._goal, self._asked = await self._reader.ends(), now
            if any(self._reader.positions[place] < end for place, end in self._goal.items()):
                return
            if self._markers:
                markers, self._markers = self._markers, []
                await self._apply(markers)
            await positions.caught_up(await self._connected(), self._reader.positions)
            self._goal = None
            self._watching.caught_up()
        except LogUnavailableError as error:
            self._watching.trouble(str(error))
        except AWAY as error:
            await self._disconnect()
            self._watching.trouble(f"Postgres: {error!r}")

    # --- applying --------------------------------------------------------------------------------

    async def _apply(self, batches: Sequence[LogBatch]) -> None:
        moves = positions.moves_of(batches)
        by_topic: dict[str, list[Fact]] = {}
        for batch in batches:
            if batch.records:
                by_topic.setdefault(batch.place.topic, []).extend(_decode(batch))
        self._began = time.monotonic()
        for attempt in range(1_000_000_000):
            try:
                await self._transact(moves, by_topic)
                break
            except AWAY as error:
                await self._away(error, attempt)
                if await self._applied_all_the_same(moves):
                    break
        self._moved = time.monotonic()
        self._watching.applied(
            {topic: len(found) for topic, found in by_topic.items()}, self._moved - self._began
        )
        self._told(by_topic.get(Topic.TASK_EVENTS.value, ()))

    async def _transact(self, moves: Sequence[Move], by_topic: dict[str, list[Fact]]) -> None:
        db = await self._connected()
        async with db.transaction():
            await positions.move(db, moves)
            for topic, found in by_topic.items():
                await self._folds[topic].apply(db, found)

    async def _away(self, error: BaseException, attempt: int) -> None:
        if attempt >= CONFUSED_MAX and isinstance(error, CONFUSED):
            raise error  # not a broken connection, a fault of ours
        self._watching.trouble(f"Postgres: {error!r}")
        _log.warning("postgres is away", extra=log_facts(error=repr(error), attempt=attempt))
        await self._disconnect()
        await asyncio.sleep(_BACKOFF_SECONDS[min(attempt, len(_BACKOFF_SECONDS) - 1)])

    async def _applied_all_the_same(self, moves: Sequence[Move]) -> bool:
        """Whether a commit without answer took place; False also while nobody can say."""
        try:
            loaded = await positions.load(await self._connected())
        except AWAY:
            await self._disconnect()
            return False
        stand: list[int | None] = [loaded.get(move.place) for move in moves]
        if stand == [move.end for move in moves]:
            return True
        if stand != [move.start for move in moves]:
            raise TakenOverError("the positions were moved by somebody else")
        return False

    async def _connected(self) -> Db:
        if self._db is None or self._db.is_closed():
            db: Db = await connect(self._dsn)
            for fold in self._folds.values():
                fold.forget()
            self._db = db
        return self._db

    async def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.terminate()


async def connect(dsn: str) -> Db:
    """A connection for folding: rows are found by their keys, however small a table is now.

    Plans are made once a connection, often while tables are empty, and kept while they grow.
    """
    db: Db = await asyncpg.connect(
        dsn,
        timeout=10,
        command_timeout=COMMAND_SECONDS,
        max_cached_statement_lifetime=0,
        server_settings={
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "enable_seqscan": "off",
            # Planning for 64 partitions costs more than running.
            "plan_cache_mode": "force_generic_plan",
            "timezone": "UTC",
            "client_min_messages": "warning",
        },
    )
    return db


async def begin(reader: LogReader, db: Db, topics: Sequence[str]) -> dict[Place, int]:
    """Put the reader where the tables say; raises ReadModelError or OffsetTrimmedError."""
    starts = await reader.starts()
    wanted = {place: start for place, start in starts.items() if place.topic in topics}
    known = await positions.ensure(db, wanted)
    await reader.seek(known)
    return known


def _decode(batch: LogBatch) -> list[Fact]:
    """The messages of a batch; one that can't be read stops everything (see `schema.codec`)."""
    topic, partition = batch.place
    decode = CODECS[Topic(topic)].decode
    decoded: list[Fact] = []
    for record in batch.records:
        value: Any = record.value or b""
        decoded.append(Fact(topic, partition, record.offset, decode(value), value))
    return decoded
