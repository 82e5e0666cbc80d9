"""What failed, as objects that outlive the log: one for each FAILED task and each dead letter.

It reads the read models and not the log: what stands there is committed, with everything before it.
Each feed has a position of its own, moved once its objects are stored, so nothing is lost while the
object store is away, and no read model waits for it. Names are functions of what they hold: written
twice is written once. Nothing sealed for a person is copied.

Whoever must look hears of it here too: a metric and a line in the log that says `alert`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from projections.folding import Db
from projections.projector import AWAY, connect
from schema.ids import TaskId, follow_up_id, shard_of
from schema.objects import failure_key, letter_key
from schema.topics import Topic
from schema.wires.objects import ObjectMissingError, ObjectStore, ObjectStoreUnavailableError
from schema.wires.telemetry import facts

_SQL: Final = (Path(__file__).parent / "sql" / "failures.sql").read_text().split("\n-- ;;\n")
_NEWS, _MOVE, _FAILED, _EVENTS, _TASK, _LETTERS, _OPEN = _SQL
BROKEN_SECONDS: Final = 30.0
PAGE: Final = 100
AT_ONCE: Final = 8
"""Objects that are written side by side."""
SPENT: Final = "retries_spent"
FORMAT: Final = 1
"""Of the objects; raised when a field changes its meaning."""
DEPTH_MAX: Final = 64
"""No message of ours nests so deep; whoever sent one that does shall not stop us."""
TOO_DEEP: Final = "(nested too deep)"
_JSON: Final = "application/json"
_log = logging.getLogger(__name__)

Row = Any
"""A record of asyncpg."""
Document = dict[str, Any]


class Feed(NamedTuple):
    """Rows of a read model in the order of the log, and what is done with a page of them."""

    name: str
    topic: Topic
    query: str
    work: Callable[[Db, int, Sequence[Row]], Awaitable[None]]


class Archive:
    """Stores what failed and tells of it, for as long as the process lives."""

    def __init__(
        self,
        dsn: str,
        store: ObjectStore | None,
        registry: CollectorRegistry,
        *,
        every_seconds: float,
    ) -> None:
        self._dsn = dsn
        self._store = store
        self._every = every_seconds
        self._db: Db | None = None
        self._bucket_is_there = False
        self._trouble = ""
        feeds = [Feed("alerts", Topic.DEAD_LETTERS, _LETTERS, self._tell)]
        if store is not None:
            feeds += [
                Feed("failures", Topic.TASK_EVENTS, _FAILED, self._store_failures),
                Feed("letters", Topic.DEAD_LETTERS, _LETTERS, self._store_letters),
            ]
        self._feeds = {feed.name: feed for feed in feeds}
        """Alerts first: they wait for no store."""
        self._stored = Counter(
            "cutlog_failures_archived", "Objects written.", ["kind"], registry=registry
        )
        self._alerts = Counter(
            "cutlog_alerts", "What somebody must look at.", ["alert"], registry=registry
        )
        self._open = Gauge(
            "cutlog_dead_letters_open", "Letters nobody has dealt with.", registry=registry
        )
        self._away = Gauge(
            "cutlog_failures_archive_away", "1: what failed waits to be stored.", registry=registry
        )

    async def run(self) -> None:
        """Page after page, for ever. Nothing that goes wrong here ends the projector."""
        if self._store is not None:
            await self._store.start()
        else:
            _log.warning("no object store is set: failures are told, not archived")
        try:
            while True:
                pause = await self._turn()
                await asyncio.sleep(pause)
        finally:
            if self._db is not None:
                self._db.terminate()
            if self._store is not None:
                await self._store.stop()

    async def _turn(self) -> float:
        """Everything that is new; how long to wait before the next look."""
        try:
            more = await self._look()
        except (ObjectStoreUnavailableError, ObjectMissingError, *AWAY) as error:
            self._bucket_is_there = False
            self._in_trouble(repr(error))
            return self._every
        except Exception:  # noqa: BLE001 - the entry point of the archive
            # Its positions stand where they stood; read models must not stop for an archive.
            _log.exception("the failure archive met what it cannot work on; it tries again")
            self._in_trouble("see the log")
            return BROKEN_SECONDS
        if self._trouble:
            _log.info("the failure archive goes on")
        self._trouble = ""
        self._away.set(0)
        return 0 if more else self._every

    def _in_trouble(self, what: str) -> None:
        if not self._trouble:
            _log.warning("the failure archive waits", extra=facts(error=what))
        self._trouble = what
        self._away.set(1)
        db, self._db = self._db, None
        if db is not None:
            db.terminate()

    async def _look(self) -> bool:
        """One page of each feed and partition where something is new; whether there is more."""
        if self._db is None:
            self._db = await connect(self._dsn)
        db, more = self._db, False
        async with db.transaction(readonly=True):
            new = await db.fetch(
                _NEWS, list(self._feeds), [feed.topic.value for feed in self._feeds.values()]
            )
            self._open.set(await db.fetchval(_OPEN))
        for behind in new:
            more = await self._page(db, self._feeds[behind["feed"]], behind) or more
        return more

    async def _page(self, db: Db, feed: Feed, behind: Row) -> bool:
        partition, start, upto = behind["log_partition"], behind["next"], behind["upto"]
        rows = await db.fetch(feed.query, partition, start, upto, PAGE)
        if not rows:
            return False
        await feed.work(db, partition, rows)
        await db.execute(_MOVE, feed.name, partition, start, rows[-1]["log_offset"] + 1)
        return len(rows) == PAGE

    # --- telling ---------------------------------------------------------------------------------

    async def _tell(self, db: Db, partition: int, rows: Sequence[Row]) -> None:
        """At least once each: a line in the log, and a count."""
        del db
        for row in rows:
            alert = "task_spent" if is_spent(row) else "dead_letter"
            self._alerts.labels(alert).inc()
            _log.error(
                "alert",
                extra=facts(
                    alert=alert,
                    letter_id=row["letter_id"],
                    cause=row["cause"],
                    task_id=row["task_id"],
                    trace_id=row["trace_id"],
                    failure=row["failure"],
                    quarantined_key=row["quarantined_key"],
                    at=row["at"].isoformat(),
                    partition=partition,
                ),
            )

    # --- storing ---------------------------------------------------------------------------------

    async def _store_failures(self, db: Db, partition: int, rows: Sequence[Row]) -> None:
        documents = [await _failure(db, partition, row) for row in rows]
        named = [
            (failure_key(one["failed_at"][:10], TaskId(one["task_id"]), one["token"]), one)
            for one in documents
        ]
        await self._put("task", named)

    async def _store_letters(self, db: Db, partition: int, rows: Sequence[Row]) -> None:
        """Those of spent tasks stand in the object of the task."""
        del db
        documents = [_letter(partition, row) for row in rows if not is_spent(row)]
        named = [(letter_key(one["at"][:10], one["letter_id"]), one) for one in documents]
        await self._put("letter", named)

    async def _put(self, kind: str, documents: Sequence[tuple[str, Document]]) -> None:
        store = self._store
        if store is None or not documents:
            return
        if not self._bucket_is_there:
            await store.ensure_bucket()
            self._bucket_is_there = True
        limit = asyncio.Semaphore(AT_ONCE)

        async def put(key: str, document: Document) -> None:
            async with limit:
                await store.put(key, encoded(document), content_type=_JSON)

        done = await asyncio.gather(
            *(put(key, document) for key, document in documents), return_exceptions=True
        )
        for result in done:
            if isinstance(result, BaseException):
                raise result
        self._stored.labels(kind).inc(len(documents))


def is_spent(letter: Row) -> bool:
    """Whether it tells of a task that has no try left; other letters are of commands."""
    return str(letter["cause"]).startswith(SPENT)


def encoded(document: Document) -> bytes:
    """For people too: indented, in a fixed order."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


async def _failure(db: Db, partition: int, row: Row) -> Document:
    """Everything that led to the failure. Events older than the read model keeps are missing."""
    failed: Document = msgspec.json.decode(row["body"])
    events: list[Document] = [
        without_sealed(msgspec.json.decode(one["body"]))
        for one in await db.fetch(_EVENTS, row["task_id"], row["seq"])
    ]
    complete = len(events) == row["seq"]
    known: Document = {}
    if not complete:
        task = await db.fetchrow(_TASK, shard_of(row["task_id"]), row["task_id"])
        known = {} if task is None else dict(task)
    for event in events:
        _learn(known, event)
    is_last_try = failed["failure"] == SPENT
    return {
        "format": FORMAT,
        "task_id": row["task_id"],
        "token": failed["token"],
        "failed_at": failed["at"],
        "failure": failed["failure"],
        "last_failure": failed.get("last_failure"),
        "loss": failed.get("loss"),
        "message": failed.get("message", ""),
        "letter_id": follow_up_id(failed["event_id"], "l") if is_last_try else None,
        **{name: known.get(name) for name in _KNOWN},
        "card_ms": sum(event.get("card_ms", 0) for event in events if event["type"] in _OVER),
        "card_measured": all(event.get("card_measured", True) for event in events),
        **_tries(events),
        "log": {
            "topic": Topic.TASK_EVENTS.value,
            "partition": partition,
            "offset": row["log_offset"],
        },
        "complete": complete,
        "events": events,
    }


_KNOWN: Final = (
    "user_id", "tenant_id", "account_id", "scene", "tier", "trace_id", "policy_version", "pool_id",
    "lane", "runner_id", "incarnation_id",
)  # fmt: skip
_OVER: Final = frozenset({"task.requeued.v1", "task.failed.v1"})
"""Events that tell the card time of an attempt; that of storing is told again by them."""


def _learn(known: Document, event: Document) -> None:
    """What the newest event that says it says."""
    origin: Document = event.get("origin", {})
    for name in _KNOWN:
        for told in (origin, event):
            if name in told:
                known[name] = told[name]


def _tries(events: Sequence[Document]) -> Document:
    """Attempts in all; retries, losses and preemptions since the last retry by hand."""
    counts = {"attempts": 0, "retries": 0, "losses": 0, "preemptions": 0}
    for event in events:
        match event["type"]:
            case "task.started.v1":
                counts["attempts"] += 1
            case "task.retried.v1":
                counts |= {"retries": 0, "losses": 0, "preemptions": 0}
            case "task.requeued.v1" if event["counted"]:
                counts["retries"] += 1
            case "task.requeued.v1":
                name = "preemptions" if event.get("loss") == "preempted" else "losses"
                counts[name] += 1
            case _:
                pass
    return counts


def _letter(partition: int, row: Row) -> Document:
    """A command that could not be worked on. What cannot be read is named, not copied."""
    value: bytes = row["value"] or b""
    try:
        read: Any = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read = None
    return {
        "format": FORMAT,
        "letter_id": row["letter_id"],
        "at": row["at"].isoformat(),
        "topic": row["topic"],
        "partition": row["source_partition"],
        "offset": row["source_offset"],
        "cause": row["cause"],
        "quarantined_key": row["quarantined_key"],
        "task_id": row["task_id"],
        "trace_id": row["trace_id"],
        "record": without_sealed(read) if isinstance(read, dict) else None,
        "record_bytes": len(value),
        "record_sha256": sha256(value).hexdigest(),
        "log": {
            "topic": Topic.DEAD_LETTERS.value,
            "partition": partition,
            "offset": row["log_offset"],
        },
    }


def without_sealed(found: Any, depth: int = DEPTH_MAX) -> Any:  # noqa: ANN401 - JSON
    """The same without what is sealed for a person, and without what no message of ours nests."""
    if depth == 0 and isinstance(found, dict | list):
        return TOO_DEEP
    if isinstance(found, dict):
        fields = cast("Document", found)
        return {
            name: without_sealed(one, depth - 1)
            for name, one in fields.items()
            if name != "private"
        }
    if isinstance(found, list):
        listed: list[Any] = found
        return [without_sealed(one, depth - 1) for one in listed]
    return found
