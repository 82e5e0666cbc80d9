"""What it costs: transactions a second, rows a milestone writes, how long things are kept."""

import asyncio
import time
from datetime import timedelta

import asyncpg
import msgspec
import pytest

from projections import cleaning, migrations, positions
from projections.projector import connect
from schema.codec import encode
from schema.ids import TaskId, UserId
from schema.progress import ProgressReported
from schema.routes import Route
from schema.settings import Projections
from schema.topics import Topic
from schema.wires.log import LogWriter
from tests.projections.checking import projecting
from tests.projections.conftest import Ground
from tests.projections.histories import NOON, History

pytestmark = pytest.mark.integration
SECONDS = 6
TASKS_A_SECOND = 104
REPORTS = 20


async def test_progress_of_a_hundred_tasks_a_second_costs_ten_transactions_a_second(
    ground: Ground,
) -> None:
    # The window that is the default, not the short one of the other tests.
    ground.settings = msgspec.structs.replace(ground.settings, projections=Projections())
    history = History(31, users=500)
    async with projecting(ground), LogWriter(ground.kafka) as writer:
        await ground.applied()
        db = await asyncpg.connect(ground.dsn)
        before, began = await _writes(db), time.monotonic()
        for second in range(SECONDS):
            await ground.write(history.take(TASKS_A_SECOND), batch=100)
            await asyncio.gather(
                *(
                    writer.append(*_report(second, task, number))
                    for task in range(TASKS_A_SECOND)
                    for number in range(REPORTS)
                )
            )
            await asyncio.sleep(max(0.0, began + second + 1 - time.monotonic()))
        took = time.monotonic() - began
        writes = await _writes(db) - before
        await db.close()
        await ground.applied()
    assert writes / took <= 10, f"{writes} transactions in {took:.1f} s"
    milestones = await ground.rows(
        "SELECT max(count) AS most FROM (SELECT count(*) FROM task_events "
        "WHERE kind = 'task.progressed.v1' GROUP BY task_id, body->>'token') AS counted"
    )
    assert milestones[0]["most"] <= 4


async def _writes(db: asyncpg.Connection) -> int:
    """Number of the next transaction that writes: exact at once.

    The statistics of `pg_stat_database` come seconds late, and hold the reads of whoever waits.
    """
    found: int = await db.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    return found


def _report(second: int, task: int, number: int) -> tuple[Route, bytes]:
    task_id = TaskId(f"t{second}-{task:020d}000001")
    one = ProgressReported(
        task_id=task_id,
        user_id=UserId(f"u{task:019d}000001"),
        token=1,
        percent=number * 5,
        at=NOON,
    )
    return Route(Topic.PROGRESS, task % 2, task_id), encode(one)


async def test_a_milestone_writes_no_row_of_a_task(ground: Ground) -> None:
    placed = [one for one in History(32).take(10) if one[0] is Topic.TASK_EVENTS]
    first = next(
        number
        for number, one in enumerate(placed)
        if one[3].__struct_config__.tag == "task.progressed.v1"
    )
    versions = "SELECT task_id, xmin::text AS xmin, ctid::text AS ctid FROM tasks ORDER BY 1"
    async with projecting(ground):
        await ground.write(placed[:first])
        await ground.applied()
        before = await ground.rows(versions)
        await ground.write(placed[first : first + 1])
        await ground.applied()
        assert await ground.rows(versions) == before
        stored = await ground.rows(
            "SELECT 1 FROM task_events WHERE task_id = $1 AND seq = $2",
            placed[first][3].task_id,
            placed[first][3].seq,
        )
        assert stored


async def test_what_is_too_old_by_the_time_of_the_log_is_deleted(ground: Ground) -> None:
    db = await connect(ground.dsn)
    await migrations.migrate(db)
    await db.execute("INSERT INTO projection_positions VALUES ('task-events', 0, 9, $1)", NOON)
    for hours in (1, 23, 25, 24 * 6, 24 * 8):
        at = NOON - timedelta(hours=hours)
        await db.execute(
            "INSERT INTO refusals VALUES ($1, 'c', 'k', NULL, 'r', '', NULL, NULL, $2, 0, 0)",
            str(hours),
            at,
        )
        await db.execute(
            "INSERT INTO task_events VALUES ($1, 1, 'u', 0, $2, 'k', $3, '{}')",
            str(hours),
            hours,
            at,
        )
        await db.execute(
            "INSERT INTO task_attempts VALUES ($1, 1, 'A', 'p1', 's', 'r', $2, $2)", str(hours), at
        )
        await db.execute("INSERT INTO pool_flow VALUES ($1, 'A', 'p1', 1, 1, 1, 1)", at)
        await db.execute("INSERT INTO pool_use VALUES ($1, 'A', 1, 1)", at)
    assert await cleaning.clean(db) == {
        "refusals": 3,
        "task_events": 1,
        "task_attempts": 1,
        "pool_flow": 4,
        "pool_use": 4,
    }
    left = await db.fetch("SELECT command_id FROM refusals ORDER BY at")
    assert [row[0] for row in left] == ["23", "1"]
    assert not any((await cleaning.clean(db)).values())
    await db.close()


async def test_a_failure_that_nobody_archives_is_kept_as_long_as_the_log_keeps_it(
    ground: Ground,
) -> None:
    """Without an object store there is no archive, and the table must not grow for ever."""
    db = await connect(ground.dsn)
    await migrations.migrate(db)
    await db.execute("INSERT INTO projection_positions VALUES ('task-events', 0, 9, $1)", NOON)
    for days in (6, 8, 89, 91):
        await db.execute(
            "INSERT INTO task_events VALUES ($1, 1, 'u', 0, $2, 'task.failed.v1', $3, '{}')",
            str(days),
            days,
            NOON - timedelta(days=days),
        )
    assert (await cleaning.clean(db))["task_events"] == 1
    left = await db.fetch("SELECT task_id FROM task_events ORDER BY at")
    assert [row[0] for row in left] == ["89", "8", "6"]
    await db.execute("INSERT INTO archive_positions VALUES ('failures', 0, 89)")
    assert (await cleaning.clean(db))["task_events"] == 1
    await db.close()


async def test_nothing_is_deleted_while_the_log_is_still_being_folded(ground: Ground) -> None:
    """One partition is read before the other: what is old by its time is needed by the other."""
    db = await connect(ground.dsn)
    await migrations.migrate(db)
    assert not await cleaning.is_due(db)
    await db.execute("INSERT INTO projection_log (cluster_id, epoch) VALUES ('c', 'e')")
    assert not await cleaning.is_due(db)
    await db.execute("UPDATE projection_log SET caught_up_at = now() - interval '1 minute'")
    assert not await cleaning.is_due(db)
    await positions.caught_up(db, {})
    assert await cleaning.is_due(db)
    await db.close()
