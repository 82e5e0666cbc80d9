"""A projector in this process, and the proof that the tables are the fold of the log."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from projections import process
from tests.projections.conftest import Ground
from tests.projections.raw_fold import RawFold


@asynccontextmanager
async def projecting(ground: Ground) -> AsyncGenerator[asyncio.Task[None], None]:
    """A projector in this process."""
    stop = asyncio.Event()
    task = asyncio.create_task(process.serve(ground.settings, stop))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait([task])
    task.result()


async def check_fold(ground: Ground) -> RawFold:
    """The tables hold what the raw JSON of the log says."""
    raw = await ground.fold_raw()
    tasks = await ground.rows("SELECT * FROM tasks")
    assert {row["task_id"]: _task(row) for row in tasks} == {
        task_id: _wanted(row) for task_id, row in raw.tasks.items()
    }
    events = await ground.rows("SELECT *, body::text AS text FROM task_events")
    assert {
        (row["task_id"], row["seq"]): (row["log_partition"], row["log_offset"]) for row in events
    } == {key: row["place"] for key, row in raw.events.items()}
    windows = await ground.rows("SELECT * FROM quota_windows")
    assert {
        (row["account_id"], row["user_id"], row["scene"]): (
            row["reserved_micros"],
            row["spent_micros"],
            row["refunded_micros"],
            row["submitted"],
        )
        for row in windows
        if row["kind"] == "month"
    } == {
        key: (row["reserved"], row["spent"], row["refunded"], row["submitted"])
        for key, row in raw.months.items()
    }
    assert sorted(row["submitted"] for row in windows if row["kind"] == "day") == sorted(
        row["submitted"] for row in raw.days.values()
    )
    entries = await ground.rows("SELECT * FROM quota_entries")
    assert {row["event_id"]: (row["kind"], row["amount_micros"]) for row in entries} == {
        key: (row["kind"], row["amount"]) for key, row in raw.entries.items()
    }
    waiting = await ground.rows("SELECT * FROM pool_waiting")
    assert {row["task_id"]: row["token"] for row in waiting} == {
        key: row["token"] for key, row in raw.waiting.items()
    }
    slots = await ground.rows("SELECT * FROM pool_slots")
    assert {(row["task_id"], row["token"]): row["state"] for row in slots} == {
        key: row["state"] for key, row in raw.slots.items()
    }
    materials = await ground.rows("SELECT * FROM materials")
    assert {row["material_id"]: (row["status"], row["seq"]) for row in materials} == {
        key: (row["status"], row["seq"]) for key, row in raw.materials.items()
    }
    refusals = await ground.rows("SELECT * FROM refusals")
    assert {row["command_id"]: row["reason"] for row in refusals} == {
        key: row["reason"] for key, row in raw.refusals.items()
    }
    letters = await ground.rows("SELECT * FROM dead_letters")
    assert {row["letter_id"] for row in letters} == set(raw.letters)
    return raw


def _task(row: dict[str, object]) -> tuple[object, ...]:
    names = ("status", "seq", "token", "retries", "losses", "card_ms", "charge_micros", "failure")
    return tuple(row[name] for name in names)


def _wanted(row: dict[str, object]) -> tuple[object, ...]:
    names = ("status", "seq", "token", "retries", "losses", "card_ms", "charge", "failure")
    return tuple(row[name] for name in names)
