"""The read models as the api asks them: a few queries, short, read only, and one way to fail.

Every method raises Problem (503) when Postgres does not answer in time. Nothing here is written,
so a connection goes back to its pool as it is.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import orjson

from api import queries
from api.problems import Door, at_the_door
from schema.ids import AccountId, MaterialId, PoolId, TaskId, TenantId, UserId, shard_of
from schema.policy import Policy, read_policy
from schema.settings import Postgres
from schema.words import Lane, MediaKind

QUERY_SECONDS = 2.0
_ACQUIRE_SECONDS = 1.0
SNAPSHOT_TASKS_MAX = 100
ARRIVALS_WINDOW = timedelta(seconds=60)
HELD_WINDOW = timedelta(seconds=300)
HELD_MIN = 10
"""Slots freed in the window below which the policy's expectation is better."""
ROWS_MAX = 100_000
_AWAY = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # of neither family
    OSError,
    TimeoutError,
)
Row: TypeAlias = Mapping[str, Any]
"""A row by the names of its columns, as `queries` lists them."""


class KnownTask(NamedTuple):
    """What an old submission left behind."""

    fingerprint: str
    status: str
    seq: int
    lane: str
    reserved_micros: int


class KnownMaterial(NamedTuple):
    """Whose a material is, and what it was found to be."""

    user_id: str
    tenant_id: str
    kind: MediaKind


class LaneLoad(NamedTuple):
    waiting: int = 0
    paused: bool = False
    why: str = ""
    """Why it is paused."""
    arrivals_per_second: float = 0.0
    large: Mapping[str, int] = {}
    """Accounts of which more than `estimates.SMALL_MAX` wait, and how many (`queries.LARGE`)."""


class Breaker(NamedTuple):
    """What is known of a scene that a pool's cards failed."""

    scene: str
    state: str
    failed: int
    counted: int
    who: str
    why: str
    since: datetime


class PoolLoad(NamedTuple):
    pool_id: PoolId
    slots: int
    used: int
    lanes: Mapping[Lane, LaneLoad]
    held_seconds: float | None = None
    """Slot time for each slot freed of late; None: too few to say."""
    cards_wanted: int | None = None
    """None: the pool does not scale."""
    breakers: tuple[Breaker, ...] = ()


class Recent(NamedTuple):
    """What happened in a window of log time."""

    waits: Sequence[Row]
    """By pool and lane: started, p50, p95 (seconds)."""
    oldest: Sequence[Row]
    """By pool and lane: seconds that the first in line has waited."""
    ends: Sequence[Row]
    """By pool, outcome and cause: ended, card_ms."""
    use: Sequence[Row]
    """By pool: used_ms, slots_ms."""
    waste: Sequence[Row]
    """By pool and cause, since ever: attempts, card_ms, burnt_ms."""


class FirstStart(NamedTuple):
    """How long a task waited until it was first started."""

    waited_seconds: float
    created_seconds: float
    """Before that: for its material, or for us."""


class StoredEvent(NamedTuple):
    """An event as the projection keeps it; `body` is its JSON exactly as in the log."""

    task_id: str
    seq: int
    partition: int
    offset: int
    body: bytes


class LogState(NamedTuple):
    """Which incarnation of the log is projected, and how long ago nothing was left to apply."""

    epoch: str
    behind_seconds: float


async def _prepare(connection: Any) -> None:  # noqa: ANN401 - asyncpg's proxy
    await connection.set_type_codec(
        "json", schema="pg_catalog", encoder=orjson.dumps, decoder=orjson.loads
    )


async def _leave(_connection: Any) -> None:  # noqa: ANN401 - asyncpg's proxy
    """Nothing is left behind by reading; asyncpg's own reset costs a round trip."""


class ReadModel:
    """Questions to Postgres."""

    def __init__(self, postgres: Postgres) -> None:
        self._settings = postgres
        self._pool: Any = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), QUERY_SECONDS)
            except TimeoutError:
                self._pool.terminate()

    async def known_tasks(self, task_ids: Sequence[TaskId]) -> dict[TaskId, KnownTask]:
        """What is remembered of these tasks, many at once."""
        rows = await self._of_tasks(queries.KNOWN_TASK, queries.KNOWN_TASKS, task_ids)
        return {
            row["task_id"]: KnownTask(
                row["fingerprint"],
                row["status"],
                row["seq"],
                row["lane"],
                row["reserved_micros"],
            )
            for row in rows
        }

    async def tasks(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Row]:
        """These tasks, many at once."""
        rows = await self._of_tasks(queries.TASK, queries.TASKS, task_ids)
        return {row["task_id"]: row for row in rows}

    async def list_tasks(
        self,
        user_id: UserId,
        *,
        statuses: Sequence[str] | None,
        scene: str | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[Row]:
        """A user's tasks, newest first, from behind `before` on."""
        created_at, task_id = before or (None, None)
        return await self._fetch(
            queries.LIST_TASKS,
            shard_of(user_id),
            user_id,
            statuses,
            scene,
            created_at,
            task_id,
            limit,
        )

    async def refused_submissions(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Row]:
        """The newest refusal of each of these submissions, of the last 24 hours."""
        rows = await self._fetch(queries.REFUSED_SUBMISSIONS, list(task_ids))
        return {row["key"]: row for row in rows}

    async def cursor_known(self, partition: int, offset: int, user_id: UserId) -> bool:
        """Whether the event at this place is stored and is one of this user."""
        return bool(await self._fetch(queries.CURSOR_KNOWN, partition, offset, user_id))

    async def task_events(self, task_id: TaskId, seq: int, limit: int) -> list[StoredEvent]:
        """Events of a task after `seq`, in order."""
        return _events(await self._fetch(queries.TASK_EVENTS, task_id, seq, limit))

    async def task_events_after(
        self, task_id: TaskId, offset: int, limit: int
    ) -> list[StoredEvent]:
        """Events of a task that stand after an offset of its partition, in order."""
        rows = await self._fetch(queries.TASK_EVENTS_AFTER_OFFSET, task_id, offset, limit)
        return _events(rows)

    async def user_events_after(
        self, user_id: UserId, partition: int, offset: int, limit: int
    ) -> list[StoredEvent]:
        """Events of all tasks of a user after an offset of his partition, in order."""
        return _events(
            await self._fetch(queries.USER_EVENTS_AFTER_OFFSET, user_id, partition, offset, limit)
        )

    async def task_snapshot(self, task_id: TaskId, partition: int) -> tuple[int, list[Row]]:
        """A task, and the offset from which events are not in it."""
        rows = await self._fetch(queries.TASK_SNAPSHOT, partition, shard_of(task_id), task_id)
        return _snapshot(rows)

    async def user_snapshot(self, user_id: UserId, partition: int) -> tuple[int, list[Row]]:
        """A user's newest tasks, and the offset from which events are not in them."""
        rows = await self._fetch(
            queries.USER_SNAPSHOT, partition, shard_of(user_id), user_id, SNAPSHOT_TASKS_MAX
        )
        return _snapshot(rows)

    async def event_position(self, partition: int) -> int:
        """The offset in task-events up to which everything is stored (exclusive)."""
        rows = await self._fetch(queries.TASK_EVENTS_POSITION, partition)
        return int(rows[0]["next"]) if rows else 0

    async def log(self) -> LogState | None:
        """None: the projection has never caught up with the log."""
        rows = await self._fetch(queries.LOG)
        if not rows or rows[0]["behind_seconds"] is None:
            return None
        return LogState(rows[0]["epoch"], max(0.0, rows[0]["behind_seconds"]))

    async def newer_policy(self, version: int) -> Policy | None:
        """The newest policy, if its version is higher."""
        rows = await self._fetch(queries.NEWER_POLICY, version)
        return read_policy(rows[0]["document"].encode()) if rows else None

    async def quota_windows(
        self, account_id: AccountId, user_id: UserId, day_start: datetime, month_start: datetime
    ) -> list[Row]:
        """What a user and (user '') his contract have used in these windows, by scene."""
        return await self._fetch(queries.QUOTA_WINDOWS, account_id, user_id, day_start, month_start)

    async def quota_minute(
        self, account_id: AccountId, user_id: UserId, minute_start: datetime
    ) -> dict[str, int]:
        """Submissions granted since then, by scene."""
        rows = await self._fetch(queries.QUOTA_MINUTE, account_id, user_id, minute_start)
        return {row["scene"]: row["submitted"] for row in rows}

    async def pools(self) -> list[PoolLoad]:
        """The load of every pool that was ever used."""
        lanes: dict[tuple[str, str], LaneLoad] = {}
        for row in await self._fetch(queries.WAITING):
            lanes[row["pool_id"], row["lane"]] = LaneLoad(row["waiting"])
        for row in await self._fetch(queries.PAUSED_LANES):
            at = lanes.get((row["pool_id"], row["lane"]), LaneLoad())
            lanes[row["pool_id"], row["lane"]] = at._replace(paused=True, why=row["why"])
        for row in await self._fetch(queries.ARRIVALS, ARRIVALS_WINDOW):
            at = lanes.get((row["pool_id"], row["lane"]), LaneLoad())
            rate = row["per_second"]
            lanes[row["pool_id"], row["lane"]] = at._replace(arrivals_per_second=rate)
        large: dict[tuple[str, str], dict[str, int]] = {}
        for row in await self._fetch(queries.LARGE):
            of_lane = large.setdefault((row["pool_id"], row["lane"]), {})
            of_lane[row["account_id"]] = row["waiting"]
        for place, accounts in large.items():
            lanes[place] = lanes.get(place, LaneLoad())._replace(large=accounts)
        slots = {row["pool_id"]: row["slots"] for row in await self._fetch(queries.SLOTS)}
        used = {row["pool_id"]: row["used"] for row in await self._fetch(queries.USED)}
        held = {
            row["pool_id"]: row["used_ms"] / 1000 / row["freed"]
            for row in await self._fetch(queries.HELD, HELD_WINDOW, HELD_MIN)
        }
        scaled = {row["pool_id"]: row["cards_wanted"] for row in await self._fetch(queries.SCALED)}
        breakers: dict[str, list[Breaker]] = {}
        for row in await self._fetch(queries.BREAKERS):
            breaker = Breaker(*(row[name] for name in Breaker._fields))
            breakers.setdefault(row["pool_id"], []).append(breaker)
        pool_ids = {*slots, *used, *scaled, *breakers, *(pool for pool, _ in lanes)}
        return [
            PoolLoad(
                PoolId(pool_id),
                slots.get(pool_id, 0),
                used.get(pool_id, 0),
                {lane: lanes.get((pool_id, lane.value), LaneLoad()) for lane in Lane},
                held.get(pool_id),
                scaled.get(pool_id),
                tuple(breakers.get(pool_id, ())),
            )
            for pool_id in sorted(pool_ids)
        ]

    async def recent(self, window: timedelta) -> Recent:
        """What the objectives are told from, of the last `window` of log time."""
        now = (await self._fetch(queries.LOG_TIME))[0]["at"]
        waste = await self._fetch(queries.WASTE)
        if now is None:
            return Recent([], [], [], [], waste)
        since = now - window
        return Recent(
            await self._fetch(queries.WAITS, since, ROWS_MAX),
            await self._fetch(queries.OLDEST, now),
            await self._fetch(queries.ENDS, since, ROWS_MAX),
            await self._fetch(queries.USE, since),
            waste,
        )

    async def first_starts(self, task_ids: Sequence[TaskId]) -> dict[TaskId, FirstStart]:
        """Those of these tasks that were ever started."""
        shards = [shard_of(task_id) for task_id in task_ids]
        rows = await self._fetch(queries.FIRST_STARTS, shards, list(task_ids))
        return {
            row["task_id"]: FirstStart(row["waited_seconds"], row["created_seconds"])
            for row in rows
        }

    async def letters(
        self, of: str | None, state: str | None, limit: int, *, whole: bool = False
    ) -> list[Row]:
        """Dead letters of a letter's, a task's or a trace's id (None: all), newest first.

        `whole`: with their records, in the order of the log.
        """
        if of is None:
            return await self._fetch(queries.LETTERS, state, limit)
        query = queries.LETTERS_WHOLE if whole else queries.LETTERS_OF
        return await self._fetch(query, of, state, limit)

    async def parked_keys(self, limit: int) -> list[Row]:
        """Keys behind which commands wait, the oldest first."""
        return await self._fetch(queries.PARKED_KEYS, limit)

    async def material(self, material_id: MaterialId) -> Row | None:
        """A material, or None."""
        rows = await self._fetch(queries.MATERIAL, material_id)
        return rows[0] if rows else None

    async def material_kinds(
        self, material_ids: Sequence[MaterialId]
    ) -> dict[MaterialId, KnownMaterial]:
        """What these are, many at once; those that nobody has looked at yet are left out."""
        rows = await self._fetch(queries.MATERIAL_KINDS, list(material_ids))
        return {
            row["material_id"]: KnownMaterial(
                row["user_id"], row["tenant_id"], MediaKind(row["kind"])
            )
            for row in rows
            if row["kind"]
        }

    async def list_materials(
        self,
        user_id: UserId,
        tenant_id: TenantId,
        *,
        statuses: Sequence[str] | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[Row]:
        """A user's materials, newest first, from behind `before` on."""
        created_at, material_id = before or (None, None)
        return await self._fetch(
            queries.LIST_MATERIALS, user_id, tenant_id, statuses, created_at, material_id, limit
        )

    async def content(self, owner: AccountId, sha256: str) -> Row | None:
        """The content of this digest that this tenant (or user) holds, or None."""
        rows = await self._fetch(queries.CONTENT, owner, sha256)
        return rows[0] if rows else None

    async def _of_tasks(self, one: str, many: str, task_ids: Sequence[TaskId]) -> list[Row]:
        if len(task_ids) == 1:
            return await self._fetch(one, shard_of(task_ids[0]), task_ids[0])
        shards = [shard_of(task_id) for task_id in task_ids]
        return await self._fetch(many, shards, list(task_ids))

    async def _fetch(self, query: str, *arguments: Any) -> list[Row]:  # noqa: ANN401
        try:
            pool = self._pool or await self._open()
            async with pool.acquire(timeout=_ACQUIRE_SECONDS) as connection:
                try:
                    rows: list[Row] = await connection.fetch(query, *arguments)
                except asyncpg.InternalClientError:
                    # Postgres died between two messages: the protocol stands in the middle of
                    # something, and would stay there for whoever gets this connection next.
                    connection.terminate()
                    raise
        except _AWAY as error:
            raise at_the_door(Door.READ_MODEL_AWAY) from error
        return rows

    async def _open(self) -> Any:  # noqa: ANN401 - asyncpg.Pool
        async with self._opening:
            if self._pool is None:
                # Connects when it is asked, so that the api starts (not ready) before Postgres.
                self._pool = await asyncpg.create_pool(
                    self._settings.dsn,
                    min_size=0,
                    max_size=self._settings.pool_max,
                    timeout=_ACQUIRE_SECONDS,
                    command_timeout=QUERY_SECONDS,
                    init=_prepare,
                    reset=_leave,
                    server_settings={
                        "application_name": "cutlog-api",
                        "default_transaction_read_only": "on",
                        # Planning 64 partitions again and again costs more than any plan saves.
                        "plan_cache_mode": "force_generic_plan",
                    },
                )
        return self._pool


def _snapshot(rows: Sequence[Row]) -> tuple[int, list[Row]]:
    """Position and tasks of a snapshot; a join that found no task leaves its columns empty."""
    position = rows[0]["next"] if rows else 0
    return position or 0, [row for row in rows if row["task_id"] is not None]


def _events(rows: Iterable[Row]) -> list[StoredEvent]:
    return [
        StoredEvent(
            row["task_id"],
            row["seq"],
            row["log_partition"],
            row["log_offset"],
            row["body"].encode(),
        )
        for row in rows
    ]
