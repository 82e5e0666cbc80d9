"""Loads and objectives, read from tables that were folded from a history reckoned by hand."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from api.objectives import figures
from api.reads import LaneLoad, ReadModel
from cutlog.installation import LOCAL_POLICY
from projections import migrations
from projections.folding import Fact
from projections.pools import Pools
from projections.projector import connect
from projections.tasks import Tasks
from schema import events as e
from schema.codec import encode
from schema.commands import Origin
from schema.failures import FailureClass
from schema.ids import (
    AccountId,
    IncarnationId,
    PoolId,
    ReservationId,
    RunnerId,
    TaskId,
    TenantId,
    UserId,
)
from schema.policy import LanePolicy, PoolPolicy, read_policy
from schema.settings import Postgres
from schema.topics import Topic
from schema.words import Lane, LossCause, Scene
from tests.projections.conftest import Ground
from tests.projections.histories import NOON, PRICE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
USER: Final = UserId("0" * 20 + "000007")
ACCOUNT: Final = AccountId(f"u-{USER}")
A: Final = PoolId("A")
RUNNER: Final[dict[str, Any]] = {
    "runner_id": RunnerId("runner-1"),
    "incarnation_id": IncarnationId("runner-1.1"),
}


class _Told(NamedTuple):
    second: float
    kind: type[Any]
    fields: dict[str, Any]


class Story:
    """Events at seconds of our choosing, folded as the projector folds them."""

    def __init__(self) -> None:
        self._told: list[_Told] = []

    def tell(self, second: float, kind: type[Any], **fields: Any) -> None:  # noqa: ANN401
        """One event of the pool or of a task, in any order."""
        self._told.append(_Told(second, kind, fields))

    async def fold(self, db: Any, batch: int) -> None:  # noqa: ANN401 - a connection
        """All that was told, in batches of so many."""
        seqs: dict[str, int] = {}
        facts: dict[Topic, list[Fact]] = {Topic.TASK_EVENTS: [], Topic.POOL_EVENTS: []}
        at = NOON
        for second, kind, fields in sorted(self._told, key=lambda told: told.second):
            of_pool = issubclass(kind, e.OfPool)
            key = A if of_pool else fields["task_id"]
            seqs[key] = seqs.get(key, 0) + 1
            at = NOON + timedelta(seconds=second)
            where = {"pool_id": A} if of_pool else {"user_id": USER}
            event = kind(event_id=f"{key}-{seqs[key]}", seq=seqs[key], at=at, **where, **fields)
            of = facts[Topic.POOL_EVENTS if of_pool else Topic.TASK_EVENTS]
            of.append(Fact("", 0, len(of), event, encode(event)))
        for fold in (Tasks(), Pools()):
            for start in range(0, len(facts[fold.topic]), batch):
                async with db.transaction():
                    await fold.apply(db, facts[fold.topic][start : start + batch])
        await db.execute("INSERT INTO projection_positions VALUES ('task-events', 0, 1, $1)", at)

    # --- lives -----------------------------------------------------------------------------------

    def create(self, task: TaskId, second: float, lane: Lane) -> None:
        """Made, and waiting at the pool."""
        origin = Origin(
            user_id=USER,
            tenant_id=TenantId(""),
            account_id=ACCOUNT,
            scene=Scene.REHEARSAL,
            tier="pro",
            fingerprint="f",
        )
        self.tell(
            second, e.TaskCreated, task_id=task, origin=origin, pool_id=A, lane=lane, price=PRICE,
            policy_version=1, reservation_id=ReservationId("r"), reserved_micros=1,
            run_limit_seconds=600, created_wait_seconds=900,
        )  # fmt: skip
        self.tell(second, e.TaskQueued, task_id=task, pool_id=A, lane=lane)
        self.enqueue(task, second, lane, 0)

    def enqueue(self, task: TaskId, second: float, lane: Lane, token: int) -> None:
        self.tell(
            second, e.TaskEnqueued, task_id=task, token=token, lane=lane, account_id=ACCOUNT,
            scene=Scene.REHEARSAL,
        )  # fmt: skip

    def start(self, task: TaskId, second: float, token: int = 1) -> None:
        of = {"task_id": task, "token": token}
        self.tell(second, e.SlotProposed, **of, **RUNNER)
        self.tell(second, e.TaskStarted, **of, pool_id=A, lease_seconds=120, **RUNNER)
        self.tell(second, e.SlotGranted, **of)
        self.tell(second, e.AttemptAccepted, **of)

    def leave(self, task: TaskId, second: float, token: int = 1) -> None:
        of = {"task_id": task, "token": token}
        self.tell(second, e.SlotFreed, **of, runner_id=RUNNER["runner_id"])
        self.tell(second, e.AttemptOver, **of)


def _task(name: str) -> TaskId:
    return TaskId(f"{name:0>26}000007")


def _history() -> Story:
    """Two slots for 100 s: three of p0, one of p1 that is lost once and fails, one that waits."""
    story = Story()
    story.tell(0, e.RunnerRegistered, slots=2, **RUNNER)
    story.tell(0, e.LanePaused, lane=Lane.P2, who="ops", why="festival")
    for name, began, ended in (("a", 0, 20), ("b", 0, 40), ("c", 20, 40)):
        story.create(_task(name), 0, Lane.P0)
        story.start(_task(name), began)
        story.leave(_task(name), ended)
        card_ms = (ended - began) * 1_000
        of: dict[str, Any] = {"task_id": _task(name), "token": 1}
        story.tell(ended, e.TaskSucceeded, **of, card_ms=card_ms, charge_micros=0)
    task = _task("d")
    story.create(task, 10, Lane.P1)
    story.start(task, 40)
    story.tell(
        60, e.TaskRequeued, task_id=task, token=1, loss=LossCause.LEASE_EXPIRED, counted=False,
        delay_ms=0, card_ms=20_000, saved_ms=5_000, card_measured=False,
    )  # fmt: skip
    story.leave(task, 60)
    story.enqueue(task, 60, Lane.P1, 1)
    story.start(task, 70, token=2)
    failed: dict[str, Any] = {"failure": FailureClass.CRASHED, "card_ms": 10_000}
    story.tell(80, e.TaskFailed, task_id=task, token=2, **failed)
    story.leave(task, 80, token=2)
    story.create(_task("f"), 90, Lane.P1)
    story.tell(100, e.LeasesExtended, runners=())
    return story


@pytest.fixture
async def db(ground: Ground) -> AsyncIterator[Any]:
    """A connection to empty read models."""
    found = await connect(ground.dsn)
    await migrations.migrate(found)
    yield found
    await found.close()


@pytest.mark.parametrize("batch", [1, 7, 1_000])
async def test_the_figures_are_those_reckoned_by_hand(
    batch: int,
    db: Any,  # noqa: ANN401 - a connection
    ground: Ground,
) -> None:
    await _history().fold(db, batch)
    reads = ReadModel(Postgres(dsn=ground.dsn))
    try:
        recent = await reads.recent(timedelta(minutes=10))
        (load,) = await reads.pools()
        starts = await reads.first_starts([_task("c"), _task("f")])
        rows = await reads.tasks([_task("b"), _task("d")])
    finally:
        await reads.close()
    assert {task: tuple(start) for task, start in starts.items()} == {_task("c"): (20.0, 0.0)}
    assert {task: (row["card_ms"], row["card_measured"]) for task, row in rows.items()} == {
        _task("b"): (40_000, True),
        _task("d"): (30_000, False),
    }
    assert (load.slots, load.used, load.held_seconds) == (2, 0, None)
    assert load.lanes[Lane.P1].waiting == 1
    assert load.lanes[Lane.P2] == LaneLoad(paused=True, why="festival")
    # Of the last whole ten seconds within a minute: from 40 s to 100 s came two of p1.
    assert load.lanes[Lane.P1].arrivals_per_second == pytest.approx(2 / 60)
    assert load.lanes[Lane.P0].arrivals_per_second == 0

    lanes = {lane: LanePolicy(wait_p95_seconds=15) for lane in Lane}
    pools = {A: PoolPolicy(lanes=lanes, expected_seconds=20)}
    policy = msgspec.structs.replace(read_policy(LOCAL_POLICY.read_bytes()), pools=pools)
    found = figures(policy, recent, {})
    assert found.waits[A, "p0"] == pytest.approx((0, 18))  # of 0, 0, 20
    assert found.waits[A, "p1"] == pytest.approx((20, 29))  # of 30, 10
    assert found.oldest == {(A, "p1"): 10.0}
    # What was saved at 60 s is given up with the failure.
    assert found.burnt == {(A, "lease_expired"): 15.0, (A, "crashed"): 15.0}
    by_name = {(one.name, one.lane): one for one in found.objectives}
    # Slots taken: 20 + 40 + 20 s of p0, 20 + 10 s of p1, of 2 x 100 s.
    assert by_name["utilisation", None].value == pytest.approx(110 / 200)
    assert by_name["failure_share", None].value == pytest.approx(2 / 5)
    assert by_name["card_seconds", None].value == pytest.approx(80 / 3)
    assert [by_name["wait_p95_seconds", lane].kept for lane in Lane] == [False, False, None]


async def test_what_tasks_hold_of_late_is_slot_time_for_each_slot_freed(
    db: Any,  # noqa: ANN401 - a connection
    ground: Ground,
) -> None:
    story = Story()
    story.tell(0, e.RunnerRegistered, slots=2, **RUNNER)
    for number in range(10):
        task = _task(f"{number}")
        story.create(task, 0, Lane.P1)
        story.start(task, 6 * number)
        story.leave(task, 6 * number + 6)
    story.create(_task("x"), 0, Lane.P1)
    story.start(_task("x"), 0)  # it runs on: its time counts, it is not among the freed
    story.tell(60, e.LeasesExtended, runners=())
    await story.fold(db, 50)
    reads = ReadModel(Postgres(dsn=ground.dsn))
    try:
        (load,) = await reads.pools()
    finally:
        await reads.close()
    assert (load.slots, load.used) == (2, 1)
    assert load.held_seconds == pytest.approx(120 / 10)


@pytest.mark.parametrize("batch", [1, 4, 1_000])
async def test_a_token_that_was_refused_and_proposed_again_is_with_its_new_runner(
    batch: int,
    db: Any,  # noqa: ANN401 - a connection
) -> None:
    """Whether both stand in one batch or not."""
    other = {"runner_id": RunnerId("runner-2"), "incarnation_id": IncarnationId("runner-2.1")}
    story, task = Story(), _task("g")
    of: dict[str, Any] = {"task_id": task, "token": 1}
    story.tell(0, e.RunnerRegistered, slots=1, **RUNNER)
    story.tell(0, e.RunnerRegistered, slots=1, **other)
    story.enqueue(task, 0, Lane.P2, 0)
    story.tell(1, e.SlotProposed, **of, **RUNNER)
    story.tell(2, e.SlotRefused, **of, reason="task_not_queued")
    story.enqueue(task, 3, Lane.P1, 0)
    story.tell(4, e.SlotProposed, **of, **other)
    await story.fold(db, batch)
    (slot,) = await db.fetch("SELECT * FROM pool_slots")
    assert (slot["runner_id"], slot["incarnation_id"]) == ("runner-2", "runner-2.1")
    assert (slot["lane"], slot["proposed_at"]) == ("p1", NOON + timedelta(seconds=4))
