"""What is left lying is asked about by command, as often as needed, and judged by the decider."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from commands import materials
from projections import migrations, sweeps
from projections.projector import connect
from projections.sweeps import Sweeper
from schema.wires.telemetry import end_tasks
from tests.projections.checking import projecting
from tests.projections.conftest import Ground
from tests.projections.lying import Asked, caught_up, put
from tests.support import material_words as w
from tests.support.spec import Story

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@asynccontextmanager
async def sweeping(ground: Ground) -> AsyncGenerator[Sweeper]:
    """A sweeper that looks when it is told to, at tables that are up to date."""
    sweeper = Sweeper(ground.dsn, ground.kafka)
    running = asyncio.create_task(sweeper.run())
    try:
        yield sweeper
    finally:
        await end_tasks(running)


async def test_what_is_due_is_asked_for_and_nothing_else(ground: Ground) -> None:
    db = await connect(ground.dsn)
    await migrations.migrate(db)
    await caught_up(db)
    await put(db, "fresh", active=23 * HOUR)
    await put(db, "lying", active=25 * HOUR)
    await put(db, "working", status="ASSEMBLING", tries=30, active=25 * HOUR)  # its decider's own
    await put(db, "used", status="READY", used=29 * DAY)
    await put(db, "unused", status="READY", used=31 * DAY, active=99 * DAY)
    await put(db, "cold", status="COLD", used=99 * DAY, active=99 * DAY)
    await put(db, "refused", status="REFUSED", used=99 * DAY, active=99 * DAY)
    async with Asked(ground) as asked, sweeping(ground) as sweeper:
        assert await sweeper.turn() == {"abandoned": 1, "chilled": 1}
        told = {(type(one).__name__, one.material_id[:-6]) for one in await asked.all()}
    await db.close()
    assert told == {("AbandonMaterial", "lying"), ("ChillMaterial", "unused")}


async def test_while_the_log_is_behind_nothing_is_due(ground: Ground) -> None:
    async with projecting(ground):
        await ground.applied()
        db = await connect(ground.dsn)
        await db.execute("UPDATE projection_log SET caught_up_at = now()")
        assert await sweeps.is_due(db)
        await db.execute("UPDATE projection_log SET caught_up_at = now() - interval '31 seconds'")
        assert not await sweeps.is_due(db)
        await db.execute("UPDATE projection_log SET caught_up_at = NULL")
        assert not await sweeps.is_due(db)
        await db.close()


@pytest.mark.parametrize(
    ("story", "fields", "status"),
    [
        (lambda: w.registered().after(w.DAY_SECONDS), {"active": 25 * HOUR}, "ABORTED"),
        (
            lambda: w.ready().after(30 * w.DAY_SECONDS),
            {"status": "READY", "used": 31 * DAY},
            "COLD",
        ),
    ],
)
async def test_what_is_asked_is_what_the_decider_understands(
    ground: Ground, story: Callable[[], Story], fields: dict[str, Any], status: str
) -> None:
    told = story()
    before = told.row_of(w.CLIP).seq
    db = await connect(ground.dsn)
    await migrations.migrate(db)
    await caught_up(db)
    await put(db, w.CLIP[:-6], **fields)
    async with Asked(ground) as asked, sweeping(ground) as sweeper:
        for _ in range(2):
            await sweeper.turn()
        commands = await asked.all()
    await db.close()
    assert len(commands) == 2
    for command in commands:
        told.when(command)
    row = told.row_of(w.CLIP)
    assert (materials.STATUSES[type(row)], row.seq) == (status, before + 1)
