"""What is left lying is asked about by command, as often as needed, and judged by the decider."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Self

import pytest

from commands import materials
from projections import migrations, sweeps
from projections.projector import connect
from projections.sweeps import Sweeper
from schema.codec import MATERIAL_COMMANDS
from schema.routes import MaterialBound
from schema.topics import Topic
from schema.wires.log import LogReader, Place
from schema.wires.telemetry import end_tasks
from tests.projections.checking import projecting
from tests.projections.conftest import Ground
from tests.support import material_words as w
from tests.support.spec import Story

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("minutes", "hours", "days"))


class Asked:
    """The material commands that come into the log from here on; it is shared by the tests."""

    def __init__(self, ground: Ground) -> None:
        topic = Topic.MATERIAL_COMMANDS.value
        self._places = [Place(topic, number) for number in range(ground.kafka.partitions)]
        self._reader = LogReader(ground.kafka, self._places)

    async def __aenter__(self) -> Self:
        await self._reader.start()
        await self._reader.seek_to_end()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reader.stop()

    async def all(self) -> list[MaterialBound]:
        """Those that are there by now."""
        ends = await self._reader.ends()
        found: list[Any] = []
        while any(self._reader.positions[place] < end for place, end in ends.items()):
            for batch in await self._reader.read():
                found += [MATERIAL_COMMANDS.decode(one.value or b"") for one in batch.records]
        return [one for one in found if isinstance(one, MaterialBound)]


@asynccontextmanager
async def sweeping(ground: Ground) -> AsyncGenerator[Sweeper]:
    """A sweeper that looks when it is told to, at tables that are up to date."""
    sweeper = Sweeper(ground.dsn, ground.kafka)
    running = asyncio.create_task(sweeper.run())
    try:
        yield sweeper
    finally:
        await end_tasks(running)


async def caught_up(db: Any) -> None:  # noqa: ANN401 - a connection
    await db.execute(
        "INSERT INTO projection_log (cluster_id, epoch, caught_up_at) VALUES ('c', 'e', now())"
    )


async def put(db: Any, name: str, **fields: Any) -> None:  # noqa: ANN401 - a connection, a row
    """A material, as old as its fields say; the clock is the database's."""
    row = {"status": "REGISTERED", "tries": 0, "active": timedelta(), "assembling": timedelta()}
    row |= {"used": timedelta(), **fields}
    await db.execute(
        "INSERT INTO materials (material_id, user_id, tenant_id, content_type, size, sha256, "
        "status, seq, created_at, updated_at, tries, active_at, assembling_at, used_at) VALUES "
        "($1, $2, 'acme', 'video/mp4', 1, 'd', $3, 1, now(), now(), $4, now() - $5::interval, "
        "now() - $6::interval, now() - $7::interval)",
        f"{name}000007",
        w.USER,
        row["status"],
        row["tries"],
        row["active"],
        row["assembling"],
        row["used"],
    )


async def test_what_is_due_is_asked_for_and_nothing_else(ground: Ground) -> None:
    db = await connect(ground.dsn)
    await migrations.migrate(db)
    await caught_up(db)
    await put(db, "fresh", active=23 * HOUR)
    await put(db, "lying", active=25 * HOUR)
    working = {"status": "ASSEMBLING"}
    await put(db, "first", **working, tries=1, assembling=MINUTE)
    await put(db, "silent", **working, tries=1, assembling=3 * MINUTE)
    await put(db, "patience", **working, tries=3, assembling=7 * MINUTE)
    await put(db, "again", **working, tries=3, assembling=9 * MINUTE)
    await put(db, "hourly", **working, tries=90, assembling=61 * MINUTE)
    await put(db, "hopeless", **working, tries=30, active=25 * HOUR)
    await put(db, "used", status="READY", used=29 * DAY)
    await put(db, "unused", status="READY", used=31 * DAY, active=99 * DAY)
    await put(db, "cold", status="COLD", used=99 * DAY, active=99 * DAY)
    await put(db, "refused", status="REFUSED", used=99 * DAY, active=99 * DAY)
    async with Asked(ground) as asked, sweeping(ground) as sweeper:
        assert await sweeper.turn() == {
            "assembled_again": 3,
            "abandoned": 2,
            "chilled": 1,
        }
        told = {
            (type(one).__name__, one.material_id[:-6], getattr(one, "again_after", 0))
            for one in await asked.all()
        }
    await db.close()
    assert told == {
        ("CompleteMaterial", "silent", 1),
        ("CompleteMaterial", "again", 3),
        ("CompleteMaterial", "hourly", 90),
        ("AbandonMaterial", "lying", 0),
        ("AbandonMaterial", "hopeless", 0),
        ("ChillMaterial", "unused", 0),
    }


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
        (w.assembling, {"status": "ASSEMBLING", "tries": 1, "assembling": HOUR}, "ASSEMBLING"),
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
