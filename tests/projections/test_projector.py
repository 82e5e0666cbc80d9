"""The projector on the real log and the real database."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from subprocess import DEVNULL
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from api.measures import Measures
from api.pools import Pools
from api.problems import Problem
from api.reads import ReadModel
from api.standing import Standing
from cutlog.stack import LocalStack
from projections import migrations, positions, process
from projections.__main__ import TAKEN_OVER, UNFOLDABLE
from projections.folding import Db, Fact, GapError
from projections.positions import Move, TakenOverError
from projections.projector import Projector, begin, connect
from projections.watching import Watching
from schema.settings import Postgres
from schema.wires.log import LogReader, Place
from tests.projections.checking import check_fold, projecting
from tests.projections.conftest import TOPICS, Ground
from tests.projections.histories import History

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


async def start_process(ground: Ground) -> asyncio.subprocess.Process:
    """`python -m projections`."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "projections",
        env={**os.environ, **ground.environ},
        stdout=DEVNULL,
        stderr=DEVNULL,
    )


async def end_process(projector: asyncio.subprocess.Process) -> int:
    """Told to stop; its exit code."""
    if projector.returncode is None:
        projector.send_signal(signal.SIGTERM)
    return await projector.wait()


async def test_the_tables_are_the_fold_of_the_log(ground: Ground) -> None:
    history = History(1)
    async with projecting(ground):
        await ground.write([*history.start(), *history.take(150)], abort=7)
        await ground.applied()
        await ground.write(history.take(50), batch=3)
        await ground.applied()
    raw = await check_fold(ground)
    assert {row["status"] for row in raw.tasks.values()} >= {"SUCCEEDED", "FAILED", "CANCELED"}
    assert raw.slots


async def test_a_projector_that_is_killed_at_any_instant_applies_everything_once(
    ground: Ground,
) -> None:
    history, chance = History(3), random.Random(3)
    await ground.write([*history.start(), *history.take(100)], batch=5)
    for _ in range(3):
        projector = await start_process(ground)
        try:
            await ground.begun()
            await ground.write(history.take(60), batch=2)
            await asyncio.sleep(chance.random() * 0.3)
        finally:
            projector.kill()
            await projector.wait()
    projector = await start_process(ground)
    try:
        await ground.applied()
    finally:
        # Where nothing was left to apply it may be told to stop before it listens to signals.
        assert await end_process(projector) in (0, -signal.SIGTERM)
    await check_fold(ground)


async def test_of_two_projectors_one_ends_and_the_tables_are_exact(ground: Ground) -> None:
    history = History(4)
    pair = [await start_process(ground), await start_process(ground)]
    try:
        async with asyncio.timeout(60):
            while all(one.returncode is None for one in pair):
                await ground.write(history.take(5))
        await ground.applied()
    finally:
        codes = sorted([await end_process(one) for one in pair])
    assert codes == [0, TAKEN_OVER]
    await check_fold(ground)


async def test_a_gap_in_the_numbers_of_a_key_ends_the_projector(ground: Ground) -> None:
    placed = History(2).take(5)
    hole = next(one for one in placed if one[3].__struct_config__.tag == "task.queued.v1")
    await ground.write(one for one in placed if one is not hole)
    with pytest.raises(GapError, match=hole[3].task_id):
        await process.serve(ground.settings, asyncio.Event())
    assert await (await start_process(ground)).wait() == UNFOLDABLE
    assert await ground.rows("SELECT * FROM tasks WHERE task_id = $1", hole[3].task_id) == []


async def test_an_event_told_twice_is_applied_once(ground: Ground) -> None:
    placed = History(5).take(30)
    numbered = [one for one in placed if hasattr(one[3], "seq")]
    async with projecting(ground):
        await ground.write(numbered)
        await ground.applied()
        before = await ground.dump()
        await ground.write(numbered)
        await ground.applied()
        assert await ground.dump() == before


async def test_postgres_may_go_and_come_back(ground: Ground, stack: LocalStack) -> None:
    history = History(6)
    async with projecting(ground):
        await ground.write([*history.start(), *history.take(40)])
        await ground.applied()
        writing = asyncio.create_task(ground.write(history.take(120), batch=4))
        await asyncio.to_thread(stack.kill, "postgres")
        await writing
        await asyncio.to_thread(stack.start)
        await ground.applied(60)
    await check_fold(ground)


class Built:
    """A projector put together by hand, so that a fault can be put into it."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.told: list[Fact] = []
        self.folds = process.all_folds()
        places = [Place(t.value, n) for t in TOPICS for n in range(ground.kafka.partitions)]
        self.reader = LogReader(ground.kafka, places)

    def tell(self, facts: Sequence[Fact]) -> None:
        self.told.extend(facts)

    async def run(self, stop: asyncio.Event) -> None:
        db = await connect(self.ground.dsn)
        try:
            await migrations.migrate(db)
            await self.reader.start()
            await begin(self.reader, db, [topic.value for topic in TOPICS])
            await Projector(
                self.reader,
                self.ground.dsn,
                self.folds,
                window_seconds=0.02,
                watching=Watching(CollectorRegistry()),
                told=self.tell,
            ).run(stop)
        finally:
            await db.close()
            await self.reader.stop()


class FaultError(Exception):
    """Put in by a test."""


async def test_a_death_between_commit_and_redis_loses_nothing_in_the_tables(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_self: Built, _facts: Sequence[Fact]) -> None:
        raise FaultError

    await ground.write(History(7).take(30), batch=10)
    with monkeypatch.context() as patch:
        patch.setattr(Built, "tell", die)
        with pytest.raises(FaultError):
            await Built(ground).run(asyncio.Event())
    assert await ground.rows("SELECT 1 FROM tasks")
    async with projecting(ground):
        await ground.applied()
    await check_fold(ground)


async def _fail_once(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A projector that dies within its first batch of task events, after the position moved."""
    built = Built(ground)

    async def fail(_db: Db, _facts: Sequence[Fact]) -> None:
        raise FaultError

    monkeypatch.setattr(built.folds[0], "apply", fail)
    with pytest.raises(FaultError):
        await built.run(asyncio.Event())


async def test_a_batch_that_fails_moves_no_position(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ground.write(History(8).take(20), batch=10)
    await _fail_once(ground, monkeypatch)
    async with projecting(ground):
        await ground.applied()
    await check_fold(ground)


async def test_a_position_outside_of_the_transaction_is_seen_by_the_check(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def move_apart(_db: Db, moves: Sequence[Move]) -> None:
        apart: Any = await connect(ground.dsn)
        await real(apart, moves)
        await apart.close()

    real = positions.move
    await ground.write(History(9).take(20), batch=10)
    with monkeypatch.context() as patch:
        patch.setattr(positions, "move", move_apart)
        await _fail_once(ground, monkeypatch)
    async with projecting(ground):
        await ground.applied()
    with pytest.raises(AssertionError):
        await check_fold(ground)


async def test_a_projection_that_is_rebuilt_is_byte_equal_and_touches_no_other(
    ground: Ground,
) -> None:
    history = History(10)
    await ground.write([*history.start(), *history.take(80)])
    async with projecting(ground):
        await ground.applied()
    first = await ground.dump()
    written = "SELECT xmin::text AS xmin, ctid::text AS ctid FROM quota_windows ORDER BY 1, 2"
    untouched = await ground.rows(written)
    db = await connect(ground.dsn)
    await process.empty(db, ["tasks", "pools"])
    assert await ground.rows("SELECT 1 FROM tasks") == []
    async with projecting(ground):
        await ground.applied()
    assert await ground.dump() == first
    assert await ground.rows(written) == untouched
    await process.empty(db, [])
    await db.close()
    async with projecting(ground):
        await ground.applied()
    assert await ground.dump() == first


async def test_emptied_tables_are_behind_until_they_are_folded_again(ground: Ground) -> None:
    """What is not there yet is never taken for what never was: the door refuses meanwhile."""
    history = History(12)
    await ground.write([*history.start(), *history.take(10)])
    async with projecting(ground):
        await ground.applied()
    behind = "SELECT caught_up_at IS NULL AS behind FROM projection_log"
    db = await connect(ground.dsn)
    known = await positions.load(db)
    await positions.caught_up(db, known)
    assert [row["behind"] for row in await ground.rows(behind)] == [False]
    await process.empty(db, ["tasks"])
    assert [row["behind"] for row in await ground.rows(behind)] == [True]
    with pytest.raises(TakenOverError):  # a projector that still runs and has nothing to write
        await positions.caught_up(db, known)
    assert [row["behind"] for row in await ground.rows(behind)] == [True]
    await db.close()


async def test_the_door_is_shut_from_the_emptying_until_all_is_caught_up(ground: Ground) -> None:
    history = History(13)
    await ground.write([*history.start(), *history.take(10)])
    async with projecting(ground):
        await ground.applied()
    reads, db = ReadModel(Postgres(dsn=ground.dsn)), await connect(ground.dsn)
    standing = Standing(reads, Pools(), Measures(CollectorRegistry()))
    try:
        await positions.caught_up(db, await positions.load(db))
        await standing.refresh()
        standing.check_fresh()
        await process.empty(db, ["tasks"])
        await standing.refresh()
        with pytest.raises(Problem) as found:
            standing.check_fresh()
        assert (found.value.status, found.value.code) == (503, "read_model_away")
        assert int(found.value.all_headers()["retry-after"]) > 0
        async with projecting(ground):
            await ground.applied()
        await positions.caught_up(db, await positions.load(db))
        await standing.refresh()
        standing.check_fresh()
    finally:
        await reads.close()
        await db.close()


async def test_a_projector_whose_projection_is_emptied_ends(ground: Ground) -> None:
    history = History(11)
    stop = asyncio.Event()
    projector = asyncio.create_task(process.serve(ground.settings, stop))
    await ground.write(history.take(10))
    await ground.applied()
    db = await connect(ground.dsn)
    await process.empty(db, ["tasks"])
    await db.close()
    await ground.write(history.take(10))
    with pytest.raises(TakenOverError):
        async with asyncio.timeout(60):
            await projector
