"""The read models as the api asks them: a few queries, short, read only, and one way to fail.

Every method raises Problem (503) when Postgres does not answer in time. Nothing here is written,
so a connection goes back to its pool as it is.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import orjson

from api import queries
from api.problems import Door, at_the_door
from schema.ids import AccountId, MaterialId, PoolId, TaskId, UserId, shard_of
from schema.policy import Policy, read_policy
from schema.settings import Postgres
from schema.words import Lane

QUERY_SECONDS = 2.0
_ACQUIRE_SECONDS = 1.0
SNAPSHOT_TASKS_MAX = 100
Row: TypeAlias = Mapping[str, Any]
"""A row by the names of its columns, as `queries` lists them."""


class KnownTask(NamedTuple):
    """What an old submission left behind."""

    fingerprint: str
    status: str
    seq: int
    lane: str
    reserved_micros: int


class LaneLoad(NamedTuple):
    waiting: int = 0
    paused: bool = False


class PoolLoad(NamedTuple):
    pool_id: PoolId
    slots: int
    used: int
    lanes: Mapping[Lane, LaneLoad]


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
        paused = {(row["pool_id"], row["lane"]) for row in await self._fetch(queries.PAUSED_LANES)}
        waiting = {
            (row["pool_id"], row["lane"]): row["waiting"]
            for row in await self._fetch(queries.WAITING)
        }
        slots = {row["pool_id"]: row["slots"] for row in await self._fetch(queries.SLOTS)}
        used = {row["pool_id"]: row["used"] for row in await self._fetch(queries.USED)}
        pool_ids = {*slots, *used, *(pool for pool, _ in [*paused, *waiting])}
        return [
            PoolLoad(
                PoolId(pool_id),
                slots.get(pool_id, 0),
                used.get(pool_id, 0),
                {
                    lane: LaneLoad(waiting.get((pool_id, lane), 0), (pool_id, lane.value) in paused)
                    for lane in Lane
                },
            )
            for pool_id in sorted(pool_ids)
        ]

    async def material(self, material_id: MaterialId) -> Row | None:
        """A material, or None."""
        rows = await self._fetch(queries.MATERIAL, material_id)
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
                rows: list[Row] = await connection.fetch(query, *arguments)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
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
