"""A partition's pools in a test: a hand-moved clock, the table as bytes, and what is always true.

Every step goes through the bytes of messages and rows, as it does in the processors.
"""

from datetime import timedelta
from typing import Any

import msgspec

from commands.decider import Decision, Now, TimerDue
from commands.pools import (
    ROW,
    PoolState,
    Row,
    Stage,
    Ticked,
    evolve,
    handle,
    moves,
    on_due,
    on_tick,
)
from commands.pools.rows import (
    HOLDS_SLOT,
    LANES,
    LeaseRow,
    QueuedRow,
    RunnerRow,
    pool_of,
    runner_key,
)
from schema import commands as c
from schema.codec import encode
from schema.events import PoolEvent
from schema.failures import FailureClass
from schema.ids import AccountId, CommandId, IncarnationId, PoolId, RunnerId, TaskId
from schema.policy import LanePolicy, Policy, PoolPolicy
from schema.words import Lane, Scene
from tests.support.spec import NOON, check_message

A = PoolId("A")
ROWS: msgspec.json.Decoder[Row] = msgspec.json.Decoder(ROW)
LEASE_MS, BEAT_MS, ACCEPT_MS, TTL_MS = 120_000, 15_000, 10_000, 3_600_000


def policy(version: int = 1, pools: tuple[str, ...] = ("A",), **numbers: Any) -> Policy:  # noqa: ANN401
    """A policy of these pools with the numbers of the design, unless told otherwise."""
    lanes = numbers.pop("lanes", dict.fromkeys(LANES, LanePolicy(ttl_seconds=TTL_MS // 1000)))
    return Policy(
        version=version,
        scenes={},
        tiers={},
        pools={PoolId(pool): PoolPolicy(lanes=lanes, **numbers) for pool in pools},
    )


class Pools:
    """A state, its table, its clock and its whole history."""

    def __init__(self, *, adopted: bool = True) -> None:
        self.state = PoolState()
        self.table: dict[str, bytes] = {}
        self.history: list[tuple[PoolEvent, Now]] = []
        self.served_ms = 1_000_000
        self.log_ahead = timedelta()
        """How far the log's clock is ahead of the served one."""
        self.commands = 0
        if adopted:
            self.publish(policy())

    @property
    def now(self) -> Now:
        return Now(NOON + self.log_ahead + timedelta(milliseconds=self.served_ms), self.served_ms)

    def named(self, kind: str) -> CommandId:
        self.commands += 1
        return CommandId(f"{kind}{self.commands}")

    def do(self, command: c.PoolCommand) -> Decision[PoolEvent]:
        """One command, its changes written to the table."""
        check_message(command)
        return self._wrote(handle(self.state, command, self.now))

    def tick(self, after_ms: int = 0, limit: int = 500) -> Ticked:
        """Time passes; one tick."""
        self.served_ms += after_ms
        ticked = on_tick(self.state, self.named("tick"), self.now, limit)
        self._wrote(ticked.decision)
        return ticked

    def due(self, key: str) -> Decision[PoolEvent]:
        """One deadline alone."""
        return self._wrote(on_due(self.state, TimerDue(self.named("due"), key), self.now))

    def _wrote(self, decision: Decision[PoolEvent]) -> Decision[PoolEvent]:
        for message in (*decision.events, *decision.orders):
            check_message(message)
        for answer in (decision.reply, decision.refusal):
            if answer is not None:
                check_message(answer)
        ids: list[str] = [event.event_id for event in decision.events]
        ids += [order.command_id for order in decision.orders if isinstance(order, c.Command)]
        assert len(set(ids)) == len(ids), ids
        assert decision.refusal is None or not decision.events
        self.history += [(event, self.now) for event in decision.events]
        for key, row in self.state.take_changes().items():
            if row is None:
                del self.table[key]
            else:
                self.table[key] = encode(row)
        return decision

    # --- what is always true ---------------------------------------------------------------------

    def check(self) -> None:
        """Rows, indexes and sums agree."""
        rows = {key: ROWS.decode(row) for key, row in self.table.items()}
        assert rows == self.state.rows
        assert not self.state.changed
        for pool_id in self.state.pools:
            self._check_slots(pool_id)
        check_same(self.rebuilt(), self.state, self.served_ms)

    def _check_slots(self, pool_id: PoolId) -> None:
        depths = self.state.depths(pool_id)
        yard = self.state.yard(pool_id)
        used = {
            key: 0
            for key, row in self.state.rows.items()
            if isinstance(row, RunnerRow) and pool_of(key) == pool_id
        }
        slots = 0
        for key, row in self.state.rows.items():
            if isinstance(row, RunnerRow) and pool_of(key) == pool_id:
                slots += row.slots
            if isinstance(row, LeaseRow) and pool_of(key) == pool_id:
                runner = self.state.runner_of(pool_id, row.runner_id)
                assert runner is not None, f"{key} is held by nobody"
                assert runner.incarnation_id == row.incarnation_id
                used[runner_key(pool_id, row.runner_id)] += row.stage in HOLDS_SLOT
        for key, count in used.items():
            assert yard.used_of(key) == count
        assert (depths.slots, depths.used) == (slots, sum(used.values()))
        assert depths.used + depths.free == depths.slots

    def rebuilt(self) -> PoolState:
        """The state that a recovery makes of the table, in another order and with doubles."""
        state = PoolState()
        for key in sorted(self.table, reverse=True):
            state.load(key, ROWS.decode(self.table[key]))
            state.load(key, ROWS.decode(self.table[key]))
        assert not state.changed
        return state

    def folded(self) -> PoolState:
        """The state that the events make, from nothing."""
        state = PoolState()
        for event, now in self.history:
            evolve(state, event, now)
        state.take_changes()
        return state

    # --- words -----------------------------------------------------------------------------------

    def publish(self, document: Policy, **fields: Any) -> Decision[PoolEvent]:  # noqa: ANN401
        return self.do(c.PublishPolicy(command_id=self.named("p"), policy=document, **fields))

    def enqueue(
        self,
        task: str,
        token: int = 0,
        lane: Lane = Lane.P1,
        pool: str = "A",
        **more: Any,  # noqa: ANN401
    ) -> Decision[PoolEvent]:
        return self.do(enqueue(self.named("e"), task, token, lane, pool, **more))

    def register(
        self, runner: str = "r", incarnation: str = "1", slots: int = 1, *, spot: bool = False
    ) -> Decision[PoolEvent]:
        return self.do(
            c.RegisterRunner(
                command_id=self.named("r"),
                slots=slots,
                spot=spot,
                **of_runner(runner, incarnation),
            )
        )

    def beat(
        self,
        number: int,
        *held: tuple[str, int],
        runner: str = "r",
        incarnation: str = "1",
        unsaved_ms: tuple[int, ...] = (),
    ) -> Decision[PoolEvent]:
        return self.do(
            c.BeatRunner(
                command_id=self.named("b"),
                beat=number,
                held=tuple(
                    c.HeldAttempt(task_id=TaskId(task), token=token) for task, token in held
                ),
                unsaved_ms=unsaved_ms,
                **of_runner(runner, incarnation),
            )
        )

    def task_says(self, kind: Any, task: str, token: int = 1, **more: Any) -> Decision[PoolEvent]:  # noqa: ANN401
        return self.do(
            kind(command_id=self.named("t"), pool_id=A, task_id=task, token=token, **more)
        )

    def runner_says(
        self,
        kind: Any,  # noqa: ANN401
        task: str,
        token: int = 1,
        runner: str = "r",
        incarnation: str = "1",
    ) -> Decision[PoolEvent]:
        return self.do(
            kind(
                command_id=self.named("w"),
                task_id=task,
                token=token,
                **of_runner(runner, incarnation),
            )
        )

    def accepted(
        self, task: str, token: int = 1, runner: str = "r", incarnation: str = "1"
    ) -> None:
        """The task started, and its runner took it."""
        self.task_says(c.GrantAttempt, task, token)
        self.runner_says(c.AcceptAttempt, task, token, runner, incarnation)
        assert self.stage(task, token) is Stage.ACCEPTED

    def drain(
        self,
        runner: str = "r",
        incarnation: str = "1",
        *,
        spot: bool = False,
        notice_seconds: int = 0,
    ) -> Decision[PoolEvent]:
        return self.do(
            c.DrainRunner(
                command_id=self.named("d"),
                spot=spot,
                notice_seconds=notice_seconds,
                **of_runner(runner, incarnation),
            )
        )

    def ended(
        self, task: str, token: int = 1, failure: FailureClass | None = None, runner: str = "r"
    ) -> list[PoolEvent]:
        """The task ended, well or with a failure, and its slot is free; all events."""
        over = self.task_says(c.EndAttempt, task, token, ended_well=not failure, failure=failure)
        return [*over.events, *self.runner_says(c.FreeSlot, task, token, runner).events]

    def pause(self, lane: Lane, reply_to: int | None = None) -> Decision[PoolEvent]:
        return self.do(
            c.PauseLane(
                command_id=self.named("h"),
                pool_id=A,
                lane=lane,
                who="op",
                why="jam",
                reply_to=reply_to,
            )
        )

    def resume(self, lane: Lane, reply_to: int | None = None) -> Decision[PoolEvent]:
        return self.do(
            c.ResumeLane(
                command_id=self.named("h"),
                pool_id=A,
                lane=lane,
                who="op",
                why="over",
                reply_to=reply_to,
            )
        )

    def stage(self, task: str, token: int = 1, pool: str = "A") -> Stage | None:
        lease = self.state.lease_of(PoolId(pool), TaskId(task), token)
        return None if lease is None else lease.stage

    def waits(self, task: str, pool: str = "A") -> QueuedRow | None:
        return self.state.queued_task(PoolId(pool), TaskId(task))

    @property
    def free(self) -> int:
        return self.state.depths(A).free


def of_runner(runner: str, incarnation: str) -> dict[str, Any]:
    return {
        "pool_id": A,
        "runner_id": RunnerId(runner),
        "incarnation_id": IncarnationId(incarnation),
    }


def enqueue(
    command_id: str,
    task: str,
    token: int = 0,
    lane: Lane = Lane.P1,
    pool: str = "A",
    **more: Any,  # noqa: ANN401
) -> c.EnqueueTask:
    fields: dict[str, Any] = {"account_id": AccountId("u-1"), "scene": Scene.REHEARSAL, **more}
    return c.EnqueueTask(
        command_id=CommandId(command_id),
        pool_id=PoolId(pool),
        task_id=TaskId(task),
        token=token,
        lane=lane,
        **fields,
    )


def check_same(left: PoolState, right: PoolState, served_ms: int) -> None:
    """Two states know the same, and would do the same next."""
    assert left.rows == right.rows
    for pool_id in {*left.pools, *right.pools}:
        assert left.depths(pool_id) == right.depths(pool_id)
        assert left.assignable(pool_id, served_ms) == right.assignable(pool_id, served_ms)
        ours, theirs = left.yard(pool_id), right.yard(pool_id)
        assert ours.leases == theirs.leases
        assert ours.used == theirs.used
        assert ours.drained == theirs.drained
        assert (ours.models, ours.accounts) == (theirs.models, theirs.accounts)
        assert (ours.over, ours.shares) == (theirs.over, theirs.shares)
        assert ours.fresh == theirs.fresh
        assert ours.probes == theirs.probes
        check_contest(left, right, pool_id, served_ms)
        assert left.next_task(pool_id, served_ms) == right.next_task(pool_id, served_ms)
        assert moves.pending(left, pool_id) == moves.pending(right, pool_id)
        for lane in LANES:
            assert ours.waiting.oldest(lane) == theirs.waiting.oldest(lane)
            assert ours.waiting.mover(lane, 10**9)[0] == theirs.waiting.mover(lane, 10**9)[0]
            assert ours.expiry[lane].first() == theirs.expiry[lane].first()
    assert left.accepting == right.accepting
    assert (left.yielding, left.waking) == (right.yielding, right.waking)
    assert left.timers.first() == right.timers.first()
    assert left.due(served_ms) == right.due(served_ms)


def check_contest(left: PoolState, right: PoolState, pool_id: PoolId, served_ms: int) -> None:
    """They would preempt the same attempt, for the same task."""
    found: list[tuple[str | None, str | None, int]] = []
    for state in (left, right):
        contest = state.yard(pool_id).contest
        contest.end_holds(served_ms)
        victim = contest.victim(state.pool_policy(pool_id), served_ms)
        found.append((victim, contest.seeker(_always, _never), contest.emptying))
    assert found[0] == found[1]


def _always(_scene: Scene, _model: str) -> bool:
    return True


def _never(_account_id: AccountId) -> bool:
    return False
