"""Results grow old, and the store follows only what the log has decided."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from projections import migrations
from projections.folding import Fact
from projections.projector import connect
from projections.results import MaterialsAndResults
from projections.results_sweep import YOUNG, ResultSweep, Retention, is_orphan, proposal
from projections.tasks import Tasks
from schema import commands as c
from schema import events as e
from schema.codec import MATERIAL_COMMANDS, encode
from schema.ids import (
    AccountId,
    IncarnationId,
    PoolId,
    ReservationId,
    RunnerId,
    TaskId,
    TenantId,
    UserId,
    user_partition,
)
from schema.objects import result_key
from schema.settings import need
from schema.topics import Topic
from schema.wires.log import LogReader, LogWriter, Place
from schema.wires.objects import ObjectStore
from schema.wires.telemetry import new_registry
from schema.words import Lane, ResultEnd, Scene
from tests.projections.conftest import Ground
from tests.projections.histories import NOON, PRICE

USER: Final = UserId("0123456789abcdefghjk000007")
TENANT: Final = TenantId("acme")
HOT, KEPT = timedelta(days=7), timedelta(days=30)
FILM: Final = b"a film"


def task(name: str) -> TaskId:
    return TaskId(f"{name:0>26}000007")


class Library:
    """Tables, a store and a log, and what is told of results."""

    def __init__(self, ground: Ground, db: Any, store: ObjectStore, sweep: ResultSweep) -> None:  # noqa: ANN401
        self.ground, self.db, self.store, self.sweep = ground, db, store, sweep
        self._tasks, self._results = Tasks(), MaterialsAndResults()
        self._seqs: dict[str, int] = {}
        self._offset = 0

    async def make(self, name: str, ended: datetime, *, token: int = 1) -> TaskId:
        """A SUCCEEDED task with one file."""
        task_id = task(name)
        key = result_key(task_id, token, "film.mp4")
        await self.store.put(key, FILM, content_type="video/mp4")
        file = c.ResultFile(
            name="film.mp4",
            object_key=key,
            content_type="video/mp4",
            size=len(FILM),
            sha256=hashlib.sha256(FILM).hexdigest(),
        )
        origin = c.Origin(
            user_id=USER,
            tenant_id=TENANT,
            account_id=AccountId("t-acme"),
            scene=Scene.AUTOCUT,
            tier="pro",
            fingerprint="f",
        )
        of: dict[str, Any] = {"task_id": task_id, "user_id": USER}
        events: list[e.TaskEvent] = [
            e.TaskCreated(
                **self._next(name, ended), **of, origin=origin, pool_id=PoolId("A"), lane=Lane.P1,
                price=PRICE, policy_version=1, reservation_id=ReservationId("r"),
                reserved_micros=1, run_limit_seconds=600, created_wait_seconds=900,
            ),
            e.TaskStarted(
                **self._next(name, ended), **of, token=token, pool_id=PoolId("A"), lease_seconds=9,
                runner_id=RunnerId("r"), incarnation_id=IncarnationId("r.1"),
            ),
            e.TaskSucceeded(
                **self._next(name, ended), **of, token=token, files=(file,), card_ms=1,
                charge_micros=1,
            ),
        ]  # fmt: skip
        await self._fold(self._tasks, events)
        return task_id

    async def tell(self, name: str, kind: type[e.OfResult], at: datetime, **fields: Any) -> None:  # noqa: ANN401
        of: dict[str, Any] = {"task_id": task(name), "user_id": USER, "tenant_id": TENANT}
        await self._fold(self._results, [kind(**self._next(f"result {name}", at), **of, **fields)])

    async def deliver(self, *deliveries: c.Delivery, source: str = "api-0") -> None:
        event = e.ResultsDelivered(**self._next(source, NOON), source=source, deliveries=deliveries)
        await self._fold(self._results, [event])

    async def at(self, at: datetime) -> None:
        """It is so late, by the log."""
        await self.db.execute("DELETE FROM projection_positions")
        await self.db.execute(
            "INSERT INTO projection_positions VALUES ('task-events', 0, 1, $1)", at
        )

    async def walk(self) -> None:
        """All walks to their end."""
        while await self.sweep.sweep(self.db):
            pass

    async def asked(self) -> list[tuple[str, TaskId]]:
        """What the sweep proposed of our tasks, in order; in each test other tasks."""
        place = Place(
            Topic.MATERIAL_COMMANDS.value, user_partition(USER, self.ground.kafka.partitions)
        )
        found: list[tuple[str, TaskId]] = []
        async with LogReader(self.ground.kafka, [place]) as reader:
            ends = await reader.ends()
            await reader.seek_to_beginning()
            while reader.positions[place] < ends[place]:
                for batch in await reader.read():
                    commands = [MATERIAL_COMMANDS.decode(one.value or b"") for one in batch.records]
                    found += [
                        (type(one).__name__, one.task_id)
                        for one in commands
                        if isinstance(one, c.ChillResult | c.DeleteResult)
                    ]
        return found

    def _next(self, key: str, at: datetime) -> dict[str, Any]:
        self._seqs[key] = self._seqs.get(key, 0) + 1
        return {"event_id": f"{key}-{self._seqs[key]}", "seq": self._seqs[key], "at": at}

    async def _fold(self, fold: Tasks | MaterialsAndResults, events: list[Any]) -> None:
        facts: list[Fact] = []
        for event in events:
            facts.append(Fact(fold.topic, 0, self._offset, event, encode(event)))
            self._offset += 1
        async with self.db.transaction():
            await fold.apply(self.db, facts)


@pytest.fixture
async def library(ground: Ground) -> AsyncIterator[Library]:
    objects = need(ground.settings, "objects")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(ObjectStore(objects))
        await store.ensure_bucket()
        writer = await stack.enter_async_context(LogWriter(ground.kafka, client_id="sweep"))
        db = await connect(ground.dsn)
        stack.push_async_callback(db.close)
        await migrations.migrate(db)
        sweep = ResultSweep(
            ground.dsn,
            store,
            writer,
            new_registry(),
            ground.settings.projections,
            partitions=ground.kafka.partitions,
        )
        yield Library(ground, db, store, sweep)


# --- what is proposed -----------------------------------------------------------------------------


def row(age: timedelta, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    file = {"name": "f", "object_key": "k", "content_type": "t", "size": 1, "sha256": "s"}
    return {
        "task_id": task("t"), "user_id": USER, "tenant_id": TENANT, "status": "SUCCEEDED",
        "files": encode([file]).decode(), "ended_at": NOON - age, "state": None, "seq": 0,
        "hot_at": None,
    } | fields  # fmt: skip


SECOND = timedelta(seconds=1)
CASES: list[tuple[dict[str, Any], type | None]] = [
    (row(HOT - SECOND), None),
    (row(HOT), c.ChillResult),
    (row(HOT, state="hot", seq=2, hot_at=NOON - SECOND), None),
    (row(HOT + HOT, state="hot", seq=2, hot_at=NOON - HOT), c.ChillResult),
    (row(HOT, state="cold", seq=1), None),
    (row(HOT, state="withheld", seq=1), None),
    (row(KEPT - SECOND, state="cold", seq=1), None),
    (row(KEPT), c.DeleteResult),
    (row(KEPT, state="cold", seq=1), c.DeleteResult),
    (row(KEPT, state="withheld", seq=1), c.DeleteResult),
    (row(KEPT, state="hot", seq=2, hot_at=NOON - SECOND), c.DeleteResult),
    (row(KEPT, state="deleted", seq=1), None),
    (row(KEPT, status="FAILED"), None),
    (row(KEPT, status="RUNNING", ended_at=None), None),
    (row(KEPT, files=None), None),
]


@pytest.mark.parametrize(("found", "expected"), CASES)
def test_what_is_old_enough_is_proposed(found: dict[str, Any], expected: type | None) -> None:
    asked = proposal(found, NOON, Retention(HOT, KEPT))
    assert type(asked) is (expected or type(None))
    assert asked is None or getattr(asked, "seq", None) == found["seq"]


def test_what_is_asked_again_is_the_same_command_until_something_happens() -> None:
    retention = Retention(HOT, KEPT)
    first, again = (proposal(row(HOT), NOON + n * SECOND, retention) for n in range(2))
    assert first == again
    later = proposal(row(HOT, state="hot", seq=2), NOON, retention)
    assert later is not None
    assert first is not None
    assert later.command_id != first.command_id


@pytest.mark.parametrize(
    ("key", "token", "status", "state", "orphan"),
    [
        ("results/", 1, "SUCCEEDED", None, True),
        ("results/", 2, "SUCCEEDED", None, False),
        ("results/", 2, "SUCCEEDED", "withheld", False),
        ("results/", 2, "SUCCEEDED", "deleted", True),
        ("results/", 3, "SUCCEEDED", None, False),
        ("results/", 1, "RUNNING", None, True),
        ("results/", 2, "RUNNING", None, False),
        ("results/", 2, "QUEUED", None, True),
        ("results/", 2, "FAILED", None, True),
        ("results/", 3, "QUEUED", None, False),
        ("checkpoints/", 2, "QUEUED", None, False),
        ("checkpoints/", 1, "RUNNING", None, False),
        ("checkpoints/", 2, "CANCELED", None, True),
    ],
)
def test_an_orphan_is_what_can_never_be_the_result(
    key: str,
    token: int,
    status: str,
    state: str | None,
    orphan: bool,  # noqa: FBT001 - a case
) -> None:
    assert is_orphan(key, token, {"status": status, "token": 2, "state": state}) is orphan


# --- with the real parts --------------------------------------------------------------------------


@pytest.mark.integration
async def test_objects_go_after_their_tombstone_and_never_before(library: Library) -> None:
    old = await library.make("old", NOON - KEPT)
    new = await library.make("new", NOON - SECOND)
    await library.at(NOON)
    await library.walk()
    assert [one for one in await library.asked() if one[1] in {old, new}] == [("DeleteResult", old)]
    assert len(await library.store.sizes(f"results/{old}/")) == 1
    await library.tell("old", e.ResultDeleted, NOON, reason=ResultEnd.AGED)
    await library.walk()
    assert await library.store.sizes(f"results/{old}/") == {}
    assert len(await library.store.sizes(f"results/{new}/")) == 1
    (found,) = await library.ground.rows("SELECT state, reason, swept_at FROM results")
    assert (found["state"], found["reason"]) == ("deleted", "aged")
    assert found["swept_at"] is not None


@pytest.mark.integration
async def test_a_result_is_folded_as_it_stands_however_the_log_is_cut(library: Library) -> None:
    await library.make("one", NOON - HOT)
    await library.tell("one", e.ResultChilled, NOON)
    await library.tell("one", e.ResultPublished, NOON + SECOND, by=task("full"))
    await library.tell("one", e.ResultWithheld, NOON + 2 * SECOND, reason="asked", who="eve")
    (held,) = await library.ground.rows("SELECT * FROM results")
    assert (held["state"], held["reason"], held["cold"], held["published_by"], held["seq"]) == (
        "withheld", "asked", True, task("full"), 3,
    )  # fmt: skip
    await library.tell("one", e.ResultRestored, NOON, cold=True, who="eve", why="wrong")
    (cold,) = await library.ground.rows("SELECT * FROM results")
    assert (cold["state"], cold["reason"], cold["hot_at"]) == ("cold", "", None)
    await library.tell("one", e.ResultRestored, NOON, cold=False, who="eve", why="again")
    (hot,) = await library.ground.rows("SELECT * FROM results")
    assert (hot["state"], hot["cold"], hot["hot_at"]) == ("hot", False, NOON)


@pytest.mark.integration
async def test_what_was_handed_out_is_summed_up_by_day_and_counted_once(library: Library) -> None:
    one = c.Delivery(tenant_id=TENANT, scene=Scene.AUTOCUT, cold=False, reads=2, size=10)
    cold = c.Delivery(tenant_id=TENANT, scene=Scene.AUTOCUT, cold=True, reads=1, size=5)
    await library.deliver(one, cold)
    await library.deliver(one)
    await library.deliver(one, source="api-1")
    rows = await library.ground.rows("SELECT * FROM results_delivered ORDER BY cold")
    assert [(found["cold"], found["reads"], found["bytes"]) for found in rows] == [
        (False, 6, 30),
        (True, 1, 5),
    ]


@pytest.mark.integration
async def test_what_no_result_is_made_of_is_deleted_once_it_is_old(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await library.make("mine", NOON, token=2)
    stale = result_key(mine, 1, "film.mp4")
    unknown = result_key(task("unknown"), 1, "film.mp4")
    for key in (stale, unknown):
        await library.store.put(key, FILM, content_type="video/mp4")
    await library.at(NOON)
    await library.walk()
    assert await library.store.head(stale) is not None, "somebody may still tell of it"
    monkeypatch.setattr("projections.results_sweep.YOUNG", -YOUNG)
    await library.db.execute("DELETE FROM sweep_cursors")
    await library.walk()
    assert await library.store.head(stale) is None
    assert await library.store.head(unknown) is not None
    assert await library.store.head(result_key(mine, 2, "film.mp4")) is not None


@pytest.mark.integration
async def test_a_result_that_lost_its_objects_is_told(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    lost = await library.make("lost", NOON - timedelta(hours=2))
    await library.make("there", NOON - timedelta(hours=2))
    await library.store.delete(result_key(lost, 1, "film.mp4"))
    await library.at(NOON)
    await library.walk()
    told = [one for one in caplog.records if one.getMessage() == "alert"]
    assert len(told) == 1
