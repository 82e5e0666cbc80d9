"""What looks after results: asks for what is old enough, lets the store follow what was decided.

It reads the read models, which show only what is committed: a tombstone stands there before any
object goes. All of it may be done twice. What one walk misses the next one finds:

- *ages*, again and again: results that are hot or kept for long enough are proposed to the material
  decider, which alone decides;
- *follow*: objects of tombstones are deleted, others go to the class that they belong in;
- *check*, daily: every SUCCEEDED of the last days has its objects, or somebody hears of it;
- *objects*, daily: objects of attempts that are no one's result, and of tombstones that were
  missed, are deleted. An object whose task is not known here is left alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from projections import cleaning
from projections.folding import Db
from projections.projector import AWAY, connect
from schema.codec import encode
from schema.commands import ChillResult, Command, DeleteResult, ResultFile
from schema.ids import TaskId, command_id_of, shard_of
from schema.objects import CHECKPOINTS, RESULTS, attempt_of, results_of
from schema.routes import Routed, route
from schema.settings import Projections
from schema.wires.log import LogUnavailableError, LogWriter
from schema.wires.objects import (
    ListedObject,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreUnavailableError,
)
from schema.wires.telemetry import facts
from schema.words import ResultEnd, Status

_SQL: Final = (Path(__file__).parent / "sql" / "results_sweep.sql").read_text().split("\n-- ;;\n")
_LOG_TIME, _BEGIN, _GO_ON, _TASKS, _UNSWEPT, _SWEPT, _OF_OBJECTS = _SQL
PAGE: Final = 1_000
AT_ONCE: Final = 8
"""Objects that are looked at or deleted side by side."""
DAY: Final = timedelta(days=1)
CHECKED: Final = timedelta(days=2)
"""How long after its end a result is looked for, once in each daily walk."""
SETTLED: Final = timedelta(minutes=10)
"""What ended later is not looked for yet."""
YOUNG: Final = timedelta(hours=1)
"""Nobody's object is left alone so long: whoever stores it may still tell of it."""
_PAUSE_SECONDS: Final = 0.05
_HOT_CLASS: Final = "STANDARD"
_FILES: Final[msgspec.json.Decoder[tuple[ResultFile, ...]]] = msgspec.json.Decoder(
    tuple[ResultFile, ...]
)
_log = logging.getLogger(__name__)

Row = Any
"""A record of asyncpg."""


class Retention(NamedTuple):
    """How long results are kept, from the end of their task on."""

    hot: timedelta
    kept: timedelta


class ResultSweep:
    """Walks for as long as the process lives."""

    def __init__(
        self,
        dsn: str,
        store: ObjectStore,
        writer: LogWriter,
        registry: CollectorRegistry,
        settings: Projections,
        *,
        partitions: int,
        cold_class: str = "",
    ) -> None:
        self._dsn = dsn
        self._store = store
        self._writer = writer
        self._partitions = partitions
        self._cold_class = cold_class
        self._every = settings.results_sweep_seconds
        self._retention = Retention(
            timedelta(days=settings.results_hot_days), timedelta(days=settings.results_days)
        )
        self._done = Counter(
            "cutlog_results_swept",
            "Of results: chilled, deleted (asked for); objects deleted, moved, orphaned.",
            ["what"],
            registry=registry,
        )
        self._missing = Gauge(
            "cutlog_results_missing",
            "Results of SUCCEEDED tasks whose objects are not all there, by the last daily check.",
            registry=registry,
        )
        self._missing_so_far = 0
        self._walks: tuple[tuple[str, timedelta, Callable[[Db, str], Awaitable[str]]], ...] = (
            ("ages", timedelta(0), self._ages),
            ("check", DAY, self._check),
            (RESULTS, DAY, self._orphans_of(RESULTS)),
            (CHECKPOINTS, DAY, self._orphans_of(CHECKPOINTS)),
        )

    async def run(self) -> None:
        """For ever. Nothing that goes wrong here ends the projector."""
        await self._store.start()
        started, trouble = False, False
        try:
            while True:
                more = False
                try:
                    if not started:
                        await self._writer.start()
                        started = True
                    more = await self._turn()
                    trouble = False
                except (
                    LogUnavailableError,
                    ObjectStoreUnavailableError,
                    ObjectMissingError,
                    *AWAY,
                ) as error:
                    if not trouble:
                        _log.warning("results are not swept", extra=facts(error=repr(error)))
                    trouble = True
                except Exception:  # noqa: BLE001 - the entry point of the sweep
                    _log.exception("the sweep of results met what it cannot work on")
                await asyncio.sleep(_PAUSE_SECONDS if more else self._every)
        finally:
            await self._writer.stop()
            await self._store.stop()

    async def _turn(self) -> bool:
        """A page of each walk that is under way; whether any goes on."""
        db = await connect(self._dsn)
        try:
            return await self.sweep(db) if await cleaning.is_due(db) else False
        finally:
            await db.close(timeout=5)

    async def sweep(self, db: Db) -> bool:
        """A page of each walk; whether any of them goes on."""
        more = False
        for walk, pause, page in self._walks:
            begun = await db.fetchrow(_BEGIN, walk, pause)
            if begun is None:
                continue
            cursor = await page(db, begun["cursor"])
            await db.execute(_GO_ON, walk, cursor)
            more = more or bool(cursor)
        return await self.follow(db) or more

    # --- ages ------------------------------------------------------------------------------------

    async def _ages(self, db: Db, cursor: str) -> str:
        rows = await self._page(db, cursor)
        at = await _now(db)
        if at is not None:
            asked = [one for row in rows if (one := proposal(row, at, self._retention)) is not None]
            await asyncio.gather(*(self._ask(command) for command in asked))
        return _next(rows)

    async def _page(self, db: Db, cursor: str) -> Sequence[Row]:
        shard, _, task_id = cursor.partition("/")
        return await db.fetch(_TASKS, int(shard or -1), task_id, PAGE)

    async def _ask(self, command: Command) -> None:
        routed: Routed = command  # type: ignore[assignment]
        await self._writer.append(route(routed, self._partitions), encode(command))
        self._done.labels("deleted" if isinstance(command, DeleteResult) else "chilled").inc()

    # --- what was decided ------------------------------------------------------------------------

    async def follow(self, db: Db) -> bool:
        """Let the store follow some results that changed; whether there may be more."""
        rows = await db.fetch(_UNSWEPT, PAGE)
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(row: Row) -> bool:
            async with limit:
                try:
                    await self._follow_one(row)
                except ObjectStoreUnavailableError as error:
                    # Of this one alone: the others must not wait behind what the store refuses.
                    self._done.labels("refused").inc()
                    _log.warning(
                        "the store does not follow a result",
                        extra=facts(task_id=row["task_id"], error=str(error)),
                    )
                    return False
                return True

        followed = await asyncio.gather(*(one(row) for row in rows))
        for row, done in zip(rows, followed, strict=True):
            if done:  # changed meanwhile, it is looked at again
                await db.execute(_SWEPT, row["task_id"], row["changed_at"])
        return len(rows) == PAGE and all(followed)

    async def _follow_one(self, row: Row) -> None:
        if row["state"] == "deleted":
            for key in await self._store.sizes(results_of(TaskId(row["task_id"]))):
                await self._store.delete(key)
                self._done.labels("object_deleted").inc()
        elif self._cold_class:
            wanted = self._cold_class if row["cold"] else _HOT_CLASS
            for file in files_of(row):
                try:
                    await self._store.move_to_class(file.object_key, wanted)
                except ObjectMissingError:
                    _alert("result_missing", row, file)
                else:
                    self._done.labels("object_moved").inc()

    # --- is everything there? --------------------------------------------------------------------

    async def _check(self, db: Db, cursor: str) -> str:
        if not cursor:
            self._missing_so_far = 0
        rows = await self._page(db, cursor)
        at = await _now(db)
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(row: Row) -> None:
            async with limit:
                self._missing_so_far += not await self._is_whole(row)

        if at is not None:
            wanted = (row for row in rows if is_to_be_checked(row, at))
            await asyncio.gather(*(one(row) for row in wanted))
        following = _next(rows)
        if not following:
            self._missing.set(self._missing_so_far)
        return following

    async def _is_whole(self, row: Row) -> bool:
        for file in files_of(row):
            found = await self._store.head(file.object_key)
            if found is None or found.size != file.size or found.sha256 not in ("", file.sha256):
                _alert("result_missing", row, file)
                return False
        return True

    # --- is anything there that is nobody's? -----------------------------------------------------

    def _orphans_of(self, prefix: str) -> Callable[[Db, str], Awaitable[str]]:
        async def page(db: Db, cursor: str) -> str:
            found = await self._store.page(prefix, cursor, PAGE)
            await self._delete_orphans(db, found)
            return found[-1].key if len(found) == PAGE else ""

        return page

    async def _delete_orphans(self, db: Db, found: Sequence[ListedObject]) -> None:
        named = [(one, attempt) for one in found if (attempt := attempt_of(one.key)) is not None]
        tasks = sorted({attempt.task_id for _, attempt in named})
        rows = await db.fetch(_OF_OBJECTS, [shard_of(task) for task in tasks], tasks)
        known = {row["task_id"]: row for row in rows}
        before = datetime.now(UTC) - YOUNG
        for one, attempt in named:
            row = known.get(attempt.task_id)
            if row is None or one.changed_at > before:
                continue
            if is_orphan(one.key, attempt.token, row):
                await self._store.delete(one.key)
                self._done.labels("orphan_deleted").inc()


async def _now(db: Db) -> datetime | None:
    """The log's time, and no later than ours: a broker whose clock jumped deletes nothing."""
    at: datetime | None = await db.fetchval(_LOG_TIME)
    return None if at is None else min(at, datetime.now(UTC))


def proposal(row: Row, at: datetime, retention: Retention) -> Command | None:
    """What is asked of the decider for this task's result, at this log time."""
    if row["status"] != Status.SUCCEEDED or row["ended_at"] is None or not files_of(row):
        return None
    who: dict[str, Any] = {name: row[name] for name in ("task_id", "user_id", "tenant_id", "seq")}
    state, seq = row["state"] or "hot", str(row["seq"])
    if state == "deleted":
        return None
    if at - row["ended_at"] >= retention.kept:
        return DeleteResult(
            command_id=command_id_of("result-delete", row["task_id"], seq),
            reason=ResultEnd.AGED,
            **who,
        )
    hot_since = max(row["ended_at"], row["hot_at"] or row["ended_at"])
    if state == "hot" and at - hot_since >= retention.hot:
        return ChillResult(command_id=command_id_of("result-chill", row["task_id"], seq), **who)
    return None


def is_to_be_checked(row: Row, at: datetime) -> bool:
    """Whether the objects of this task must be there, and it is time to look."""
    ended_at: datetime | None = row["ended_at"]
    if row["status"] != Status.SUCCEEDED or row["state"] == "deleted" or ended_at is None:
        return False
    return SETTLED <= at - ended_at <= CHECKED


def is_orphan(key: str, token: int, row: Row) -> bool:
    """Whether an object of this attempt is of no use to its task, as that stands.

    A token that is higher than the task's is of an attempt that is not known here yet.
    """
    status, last = Status(row["status"]), int(row["token"])
    if key.startswith(CHECKPOINTS):
        return status.ended and token <= last
    if status is Status.SUCCEEDED:
        return token < last or (token == last and row["state"] == "deleted")
    return token < last or (token == last and status is not Status.RUNNING)


def files_of(row: Row) -> tuple[ResultFile, ...]:
    """The files of a row's result."""
    return _FILES.decode(row["files"]) if row["files"] else ()


def _next(rows: Sequence[Row]) -> str:
    if len(rows) < PAGE:
        return ""
    return f"{rows[-1]['shard']}/{rows[-1]['task_id']}"


def _alert(alert: str, row: Row, file: ResultFile) -> None:
    _log.error("alert", extra=facts(alert=alert, task_id=row["task_id"], key=file.object_key))
