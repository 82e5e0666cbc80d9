"""A projector in this process, and the proof that the tables are the fold of the log."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime

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
    await _check_pools(ground, raw)
    await _check_attempts(ground, raw)
    materials = await ground.rows("SELECT * FROM materials")
    names = ("status", "seq", "tries", "active_at", "used_at")
    assert {row["material_id"]: tuple(row[name] for name in names) for row in materials} == {
        key: tuple(row.get(name) for name in names) for key, row in raw.materials.items()
    }
    assert {row["material_id"]: json.loads(row["facts"] or "null") for row in materials} == {
        key: row["facts"] for key, row in raw.materials.items()
    }
    contents = await ground.rows("SELECT * FROM contents")
    assert {
        (row["owner"], row["sha256"]): (row["content_key"], row["stored_at"]) for row in contents
    } == {key: (row["key"], row["stored_at"]) for key, row in raw.contents.items()}
    refusals = await ground.rows("SELECT * FROM refusals")
    assert {row["command_id"]: row["reason"] for row in refusals} == {
        key: row["reason"] for key, row in raw.refusals.items()
    }
    letters = await ground.rows("SELECT * FROM dead_letters")
    assert {row["letter_id"] for row in letters} == set(raw.letters)
    return raw


async def _check_pools(ground: Ground, raw: RawFold) -> None:
    """Queues, flow, breakers, cards."""
    waiting = await ground.rows("SELECT * FROM pool_waiting")
    assert {row["task_id"]: (row["lane"], row["move_lane"]) for row in waiting} == {
        key: (row["lane"], row["move"]) for key, row in raw.waiting.items()
    }
    lanes = [row["lane"] for row in raw.waiting.values()]
    queues = await ground.rows("SELECT * FROM pool_queues")
    assert {row["lane"]: row["waiting"] for row in queues if row["waiting"]} == {
        lane: lanes.count(lane) for lane in lanes
    }
    places = [(row["lane"], row["account"]) for row in raw.waiting.values()]
    accounts = await ground.rows("SELECT * FROM pool_accounts")
    assert {(row["lane"], row["account_id"]): row["waiting"] for row in accounts} == {
        place: places.count(place) for place in places
    }
    slots = await ground.rows("SELECT * FROM pool_slots")
    assert {
        (row["task_id"], row["token"]): (row["lane"], row["proposed_at"], row["preempted_for"])
        for row in slots
    } == {key: (row["lane"], row["since"], row["for"]) for key, row in raw.slots.items()}
    flow = await ground.rows("SELECT * FROM pool_flow")
    counts = ("arrived", "started", "freed", "held_ms")
    assert {(row["lane"], row["at"]): [row[name] for name in counts] for row in flow} == {
        key: [row[name] for name in counts] for key, row in raw.flow.items()
    }
    use = await ground.rows("SELECT * FROM pool_use")
    assert {row["at"]: (row["used_ms"], row["slots_ms"]) for row in use} == {
        key: (row["used_ms"], row["slots_ms"]) for key, row in raw.use.items()
    }
    breakers = await ground.rows("SELECT * FROM pool_breakers")
    assert {row["scene"]: (row["state"], row["counted"]) for row in breakers} == {
        scene: (row["state"], row["counted"]) for scene, row in raw.breakers.items()
    }
    pools = await ground.rows("SELECT * FROM pools WHERE cards_wanted IS NOT NULL")
    assert {row["pool_id"]: row["cards_wanted"] for row in pools} == raw.cards


async def _check_attempts(ground: Ground, raw: RawFold) -> None:
    """Attempts and what they burnt."""
    attempts = await ground.rows("SELECT * FROM task_attempts")
    assert {
        (row["task_id"], row["token"]): (
            row["lane"],
            row["queued_at"],
            row["started_at"],
            row["outcome"],
            row["card_ms"],
            row["card_measured"],
            row["saved_ms"],
        )
        for row in attempts
    } == {
        key: (
            row["lane"],
            datetime.fromisoformat(row["queued_at"]),
            datetime.fromisoformat(row["started_at"]),
            row["outcome"],
            row.get("card_ms"),
            row.get("card_measured"),
            row.get("saved_ms"),
        )
        for key, row in raw.attempts.items()
    }
    waste = await ground.rows("SELECT * FROM pool_waste")
    sums = ("attempts", "card_ms", "burnt_ms")
    assert {(row["pool_id"], row["cause"]): [row[name] for name in sums] for row in waste} == {
        key: [row[name] for name in sums] for key, row in raw.waste.items()
    }
    await check_card_time(ground)


async def check_card_time(ground: Ground) -> None:
    """All card time is of use, kept for another attempt to go on from, or waste."""
    tasks = await ground.rows("SELECT task_id, status, card_ms FROM tasks")
    attempts = await ground.rows("SELECT * FROM task_attempts WHERE ended_at IS NOT NULL")
    (waste,) = await ground.rows("SELECT coalesce(sum(burnt_ms), 0)::bigint AS ms FROM pool_waste")
    kept = {row["task_id"]: 0 for row in tasks}
    for row in attempts:
        kept[row["task_id"]] += row["saved_ms"]
    made = sum(row["card_ms"] for row in attempts if row["outcome"] == "succeeded")
    assert sum(row["card_ms"] for row in tasks) == made + sum(kept.values()) + waste["ms"]
    for row in tasks:
        # Nothing is kept of what ended otherwise than well.
        if row["status"] in ("FAILED", "CANCELED", "EXPIRED"):
            assert kept[row["task_id"]] == 0, row


_NAMES = (
    "status", "seq", "token", "retries", "losses", "card_ms", "failure", "lane", "lower_spec",
    "card_measured",
)  # fmt: skip


def _task(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in (*_NAMES, "charge_micros"))


def _wanted(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in (*_NAMES, "charge"))
