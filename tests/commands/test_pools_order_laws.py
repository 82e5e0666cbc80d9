"""Whoever comes in whatever order: the pick is the one that the rules say, read off the rows."""

from collections import Counter
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from commands.pools.gates import slots_of_one
from commands.pools.order import AGE_EVERY, next_lane
from commands.pools.rows import (
    HOLDS_SLOT,
    LANE_NUMBER,
    LANES,
    BreakerRow,
    BreakerState,
    LeaseRow,
    QueuedRow,
    RunnerRow,
    ShareRow,
    breaker_key,
    share_key,
)
from commands.pools.shares import Share, floor
from commands.pools.state import PoolState
from schema import commands as c
from schema import events as e
from schema.policy import BreakerPolicy, LanePolicy
from schema.words import Scene
from tests.support.pools import A, Pools, policy

NUMBERS: dict[str, Any] = {"lease_seconds": 10**6, "beat_seconds": 10**5}


def by_the_rules(state: PoolState, served_ms: int) -> str | None:
    """The same pick, in the plainest way: every waiting task is looked at."""
    pool, numbers = state.pool(A), state.pool_policy(A)
    models, accounts, slots = Counter[str](), Counter[str](), 0
    for row in state.rows.values():
        if isinstance(row, RunnerRow):
            slots += row.slots
        if isinstance(row, LeaseRow) and row.stage in HOLDS_SLOT:
            models[row.model] += 1
            accounts[str(row.account_id)] += 1
    most = slots_of_one(numbers, slots)
    may = {
        key: row
        for key, row in state.rows.items()
        if isinstance(row, QueuedRow)
        and pool.since_ms[LANE_NUMBER[row.lane]] is None
        and models[row.model] < numbers.model_caps.get(row.model, 10**9)
        and state.rows.get(breaker_key(A, row.scene)) is None
    }
    fair = {key: row for key, row in may.items() if most is None or accounts[row.account_id] < most}
    may = fair or may
    if not may:
        return None
    floors = [numbers.lanes[lane].floor_picks for lane in LANES]
    number = next_lane(sorted({LANE_NUMBER[row.lane] for row in may.values()}), pool.passed, floors)
    here = {key: row for key, row in may.items() if LANE_NUMBER[row.lane] == number}
    if pool.picks[number] == AGE_EVERY - 1:
        return min(here, key=lambda key: (here[key].rank_ms, here[key].arrival))
    near_ms = served_ms + numbers.expected_seconds * 1000
    dated = {
        key: (row.start_by_ms, row.arrival)
        for key, row in here.items()
        if row.start_by_ms is not None and served_ms <= row.start_by_ms <= near_ms
    }
    if dated:
        return min(dated, key=dated.__getitem__)

    def by_share(key: str) -> tuple[tuple[int, int], int, int]:
        row = here[key]
        share = state.rows.get(share_key(A, row.lane, row.account_id))
        had = Share(share.epoch, share.value).place if isinstance(share, ShareRow) else (0, 0)
        little = floor(
            numbers.expected_seconds * 1000, row.rank_ms, numbers.half_life_seconds * 1000
        )
        return max(had, little), row.rank_ms, row.arrival

    return min(here, key=by_share)


class Life:
    """A pool in which anything may come next."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.pools = Pools(adopted=False)
        self.versions = 0
        self.tasks = 0
        self.attempts: list[tuple[str, int]] = []
        self.started = 0
        self.publish()
        self.pools.register(slots=3)

    def publish(self) -> None:
        random = self.random
        self.versions += 1
        lanes = {lane: LanePolicy(floor_picks=random.choice([0, 3, 20])) for lane in LANES}
        self.note(
            self.pools.publish(
                policy(
                    self.versions,
                    lanes=lanes,
                    tenant_share=random.choice([0.2, 0.5, 1.0]),
                    tenant_weights={"u-0": random.choice([1, 3])},
                    half_life_seconds=random.choice([10, 600]),
                    model_caps={"m": random.choice([1, 2]), "n": 1},
                    breaker=BreakerPolicy(),
                    **NUMBERS,
                )
            )
        )

    def note(self, decision: Any) -> None:  # noqa: ANN401
        for event in decision.events:
            if isinstance(event, e.SlotProposed):
                self.attempts.append((event.task_id, event.token))
                self.started += 1
                used = self.pools.state.yard(A).models
                caps = self.pools.state.pool_policy(A).model_caps
                model = self.pools.state.lease_of(A, event.task_id, event.token)
                if model is not None and model.model:
                    assert used[model.model] <= caps[model.model]

    def come(self) -> None:
        random = self.random
        self.tasks += 1
        self.note(
            self.pools.enqueue(
                f"t{self.tasks:03d}",
                lane=random.choice(LANES),
                account_id=f"u-{random.randrange(4)}",
                weight=random.choice([0, 0, 1, 5]),
                model=random.choice(["", "", "m", "n"]),
                scene=random.choice([Scene.GENAI, Scene.SMART]),
                deadline_ms=random.choice([None, None, 30_000, 90_000]),
            )
        )

    def finish(self) -> None:
        if not self.attempts:
            return
        task, token = self.attempts.pop(self.random.randrange(len(self.attempts)))
        if self.random.random() < 0.2:
            self.note(self.pools.task_says(c.RefuseAttempt, task, token, reason="x"))
            return
        if self.random.random() < 0.3:
            self.pools.accepted(task, token)
        self.note(self.pools.task_says(c.EndAttempt, task, token))
        self.note(self.pools.runner_says(c.FreeSlot, task, token))

    def leave(self) -> None:
        waiting = sorted(
            key for key, row in self.pools.state.rows.items() if type(row) is QueuedRow
        )
        if waiting:
            task = self.random.choice(waiting).rsplit("/", 1)[1]
            self.note(self.pools.task_says(c.DequeueTask, task, 0))

    def pass_time(self) -> None:
        self.note(self.pools.tick(self.random.choice([100, 7_000, 20_000])).decision)

    def pause_or_resume(self) -> None:
        step = self.random.choice([self.pools.pause, self.pools.resume, self.pools.resume])
        self.note(step(self.random.choice(LANES)))

    def change_slots(self) -> None:
        self.note(self.pools.register(slots=self.random.randrange(1, 6)))

    def break_or_mend(self) -> None:
        state, key = self.pools.state, breaker_key(A, Scene.SMART)
        if state.rows.get(key) is None:
            state.put(key, BreakerRow(state=BreakerState.OPEN, until_ms=10**12))
        else:
            state.delete(key)
        self.note(self.pools.tick().decision)

    def step(self) -> None:
        moves = [
            *[self.come] * 12,
            *[self.finish] * 9,
            self.leave,
            *[self.pass_time] * 2,
            self.pause_or_resume,
            self.change_slots,
            self.publish,
            self.break_or_mend,
        ]
        self.random.choice(moves)()
        state, served_ms = self.pools.state, self.pools.served_ms
        assert state.next_task(A, served_ms) == by_the_rules(state, served_ms)
        assert state.assignable(A, served_ms) is None


@given(st.integers(min_value=0, max_value=10**9))
@settings(max_examples=25)
def test_every_pick_is_the_one_that_the_rules_say(seed: int) -> None:
    life = Life(Random(seed))
    for count in range(120):
        life.step()
        if count % 10 == 0:
            life.pools.check()
    assert life.started


@given(st.integers(min_value=0, max_value=10**9))
@settings(max_examples=15)
def test_an_order_rebuilt_from_rows_in_any_order_picks_the_same_ever_after(seed: int) -> None:
    life = Life(Random(seed))
    for _ in range(60):
        life.step()
    pools, random = life.pools, Random(seed)
    other = PoolState()
    rows = list(pools.state.rows.items())
    random.shuffle(rows)
    for key, row in rows:
        other.load(key, row)
    mine, picks = pools.state, list[list[str | None]]()
    for state in (mine, other):
        picks.append([])
        for step in range(40):
            first = state.next_task(A, pools.served_ms + step * 1000)
            picks[-1].append(first)
            if first is not None:
                state.delete(first)
    assert picks[0] == picks[1]


@given(st.integers(min_value=0, max_value=10**9))
@settings(max_examples=15)
def test_a_step_that_is_undone_leaves_the_order_as_it_was(seed: int) -> None:
    life = Life(Random(seed))
    for _ in range(40):
        life.step()
    state, served_ms = life.pools.state, life.pools.served_ms
    for number in range(20):
        before = state.next_task(A, served_ms)
        for key in sorted(state.rows)[number::3]:
            if not key.startswith(("policy", "pool/", "runner/")):
                state.delete(key)
        state.rollback()
        assert state.next_task(A, served_ms) == before
    life.pools.check()
