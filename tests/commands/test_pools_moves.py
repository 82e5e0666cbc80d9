"""Waiting tasks are asked to wait elsewhere: when, where, once; the pool itself moves none."""

from typing import Any

import msgspec
import pytest

from commands.decider import Decision
from commands.pools import Stage, on_tick
from commands.pools.moves import ASKED_MAX, LOOKS_MAX, START_UP_SECONDS
from commands.pools.rows import LANES, BreakerRow, BreakerState, breaker_key
from schema import commands as c
from schema import events as e
from schema.ids import PoolId, TaskId
from schema.policy import BreakerPolicy, LanePolicy, PoolPolicy, ScalingPolicy
from schema.words import Lane, MoveReason, Scene
from tests.support.pools import LEASE_MS, TTL_MS, A, Pools, policy
from tests.support.shop import RUN_MS, Shop

B = PoolId("B")
Asked = tuple[str, int, str, Lane, bool, MoveReason]


def asked(decision: Decision[Any]) -> list[Asked]:
    """Whom the pool asked to go where; the event and the order say the same."""
    events = [event for event in decision.events if isinstance(event, e.TaskMoveAsked)]
    orders = [order for order in decision.orders if isinstance(order, c.MoveTask)]
    told: list[Asked] = [
        (one.task_id, one.token, one.to_pool_id, one.to_lane, one.to_lower_spec, one.reason)
        for one in events
    ]
    assert told == [
        (one.task_id, one.token, one.pool_id, one.lane, one.lower_spec, one.reason)
        for one in orders
    ]
    return told


def shop(slots: int = 2, spare: tuple[Lane, ...] | None = LANES, **numbers: Any) -> Shop:  # noqa: ANN401
    """Pool A, whose model xl may run once, and its spare pool B with these lanes."""
    made = Shop(slots=slots)
    lanes = dict.fromkeys(LANES, LanePolicy())
    numbers = {"lease_seconds": 10**6, "beat_seconds": 10**5, "model_caps": {"xl": 1}, **numbers}
    pools = {A: PoolPolicy(lanes=lanes, spare_pool=None if spare is None else B, **numbers)}
    if spare is not None:
        pools[B] = PoolPolicy(lanes=dict.fromkeys(spare, LanePolicy()))
    document = msgspec.structs.replace(policy(version=2), pools=pools)
    made.pools.publish(document)
    made.come("first", model="xl")
    assert made.picked == ["first"]
    return made


# --- where to -------------------------------------------------------------------------------------


def test_a_task_whose_model_is_at_its_cap_is_asked_to_go_to_the_spare_pool() -> None:
    full = shop()
    assert asked(full.come("t", model="xl")) == [("t", 0, B, Lane.P1, False, MoveReason.MODEL_FULL)]
    full.pools.check()


def test_a_spare_pool_that_lacks_the_lane_takes_it_in_the_lower_one() -> None:
    full = shop(spare=(Lane.P2,), lower_lane=Lane.P2)
    assert asked(full.come("t", model="xl"))[0][2:4] == (B, Lane.P2)
    assert asked(full.come("u", lane=Lane.P2, model="xl"))[0][2:4] == (B, Lane.P2)


def test_without_a_spare_pool_it_goes_to_the_lower_lane_else_to_the_lower_spec_else_it_waits() -> (
    None
):
    full = shop(spare=None, lower_lane=Lane.P2)
    assert asked(full.come("t", model="xl"))[0][2:5] == (A, Lane.P2, False)
    assert asked(full.come("u", lane=Lane.P2, model="xl", lower_spec=True))[0][2:5] == (
        A,
        Lane.P2,
        True,
    )
    assert not asked(full.come("v", lane=Lane.P2, model="xl"))
    bare = shop(spare=None)
    assert asked(bare.come("t", model="xl", lower_spec=True))[0][2:5] == (A, Lane.P1, True)
    assert not asked(bare.come("u", model="xl"))
    bare.pools.check()


# --- when -----------------------------------------------------------------------------------------


def test_a_task_that_starts_at_once_or_whose_model_has_room_is_not_asked() -> None:
    free = shop()
    assert not asked(free.come("other", model="s"))
    assert free.picked == ["first", "other"]
    assert not asked(free.come("waits", model="s"))


def test_a_pool_that_is_too_full_asks_those_that_would_wait_too_long() -> None:
    full = shop(slots=1, spill_wait_seconds=60, expected_seconds=RUN_MS // 1000)
    told = [asked(full.come(f"t{number}")) for number in range(5)]
    assert [bool(one) for one in told] == [False, False, False, True, True]
    assert told[-1] == [("t4", 0, B, Lane.P1, False, MoveReason.POOL_FULL)]


def test_a_small_account_is_not_sent_away_for_the_burst_of_another() -> None:
    full = shop(slots=1, spill_wait_seconds=60, expected_seconds=RUN_MS // 1000)
    for number in range(50):
        full.come(f"big-{number}", "t-big", moved=True)
    assert asked(full.come("big", "t-big"))
    assert not asked(full.come("small", "t-small"))


def test_a_pool_that_is_slower_than_the_policy_says_is_full_sooner() -> None:
    slow = shop(slots=1, spill_wait_seconds=60, expected_seconds=1)
    slow.come("next")
    slow.pools.accepted("first")
    slow.pools.served_ms += 100_000
    slow.note(slow.pools.runner_says(c.FreeSlot, "first"))
    assert slow.pools.state.pool(A).mean_ms == 100_000
    assert asked(slow.come("t"))


def test_a_pool_without_a_runner_is_full() -> None:
    none = shop(spill_wait_seconds=60)
    none.pools.register(slots=0)
    assert asked(none.come("t"))


def test_tasks_of_a_paused_lane_stay_where_they_are() -> None:
    full = shop(spill_wait_seconds=60)
    full.pools.pause(Lane.P1)
    assert not asked(full.come("t", model="xl"))


# --- once -----------------------------------------------------------------------------------------


def test_a_task_is_asked_once_however_often_it_is_told_and_never_when_it_was_moved() -> None:
    full = shop()
    assert asked(full.come("t", model="xl"))
    assert full.come("t", model="xl") == Decision()
    row = full.pools.waits("t")
    assert row is not None
    assert row.asked
    assert not asked(full.come("u", model="xl", moved=True))
    assert not asked(full.pools.tick(60_000).decision)


def test_a_task_that_was_asked_may_still_start_here() -> None:
    full = shop()
    full.come("t", model="xl")
    full.work(1)
    assert full.picked == ["first", "t"]
    assert full.pools.waits("t") is None
    full.pools.check()


def test_a_task_that_moves_leaves_its_old_pool_and_waits_at_the_new_one() -> None:
    full = shop()
    full.come("t", model="xl")
    left = full.pools.task_says(c.DequeueTask, "t", 0)
    assert [type(event) for event in left.events] == [e.TaskDequeued]
    came = full.pools.enqueue("t", pool="B", moved=True, model="xl")
    assert [type(event) for event in came.events] == [e.TaskEnqueued]
    assert full.pools.waits("t", "B") is not None
    assert full.pools.enqueue("t", pool="B", moved=True, model="xl") == Decision()
    full.pools.check()


@pytest.mark.parametrize("dequeued", [True, False])
def test_a_move_inside_the_pool_takes_the_place_of_the_old_wait(dequeued: bool) -> None:  # noqa: FBT001
    full = shop(spare=None, lower_lane=Lane.P2)
    full.come("t", model="xl")
    if dequeued:
        full.pools.task_says(c.DequeueTask, "t", 0)
    full.pools.enqueue("t", lane=Lane.P2, moved=True, model="xl")
    row = full.pools.waits("t")
    assert row is not None
    assert (row.lane, row.moved, row.asked) == (Lane.P2, True, False)
    for again in (True, False):  # what is told twice changes nothing
        lane = Lane.P2 if again else Lane.P1
        assert full.pools.enqueue("t", lane=lane, moved=again, model="xl") == Decision()
    assert full.pools.state.depths(A).waiting == {Lane.P0: 0, Lane.P1: 0, Lane.P2: 1}
    full.pools.check()


def test_leaving_the_old_wait_told_late_or_twice_ends_no_wait_that_the_task_was_moved_to() -> None:
    full = shop(spare=None, lower_lane=Lane.P2)
    full.come("t", model="xl")
    full.pools.task_says(c.DequeueTask, "t", 0)
    full.pools.enqueue("t", lane=Lane.P2, moved=True, model="xl")
    assert full.pools.task_says(c.DequeueTask, "t", 0) == Decision()
    assert full.pools.waits("t") is not None
    canceled = full.pools.task_says(c.DequeueTask, "t", 0, moved=True)
    assert [type(event) for event in canceled.events] == [e.TaskDequeued]
    full.pools.check()


def test_a_task_that_comes_back_after_an_attempt_is_judged_anew() -> None:
    full = shop()
    full.come("t", model="xl")
    full.work(1)
    full.come("u", model="xl", moved=True)
    full.pools.task_says(c.EndAttempt, "t")
    assert asked(full.note(full.pools.enqueue("t", 1, model="xl")))
    full.pools.check()


# --- breakers -------------------------------------------------------------------------------------


def broken(waiting: int, **numbers: Any) -> Shop:  # noqa: ANN401
    """So many tasks of a scene wait, and its breaker opens."""
    made = shop(slots=1, breaker=BreakerPolicy(), **numbers)
    for number in range(waiting):
        made.come(f"t{number:04d}", f"u-{number % 7}", scene=Scene.GENAI)
    made.come("other", scene=Scene.SMART)
    state = made.pools.state
    state.put(
        breaker_key(A, Scene.GENAI),
        BreakerRow(state=BreakerState.OPEN, until_ms=10**12, openings=1),
    )
    made.pools.table |= {
        key: msgspec.json.encode(row) for key, row in state.take_changes().items() if row
    }
    return made


def test_an_open_breaker_asks_all_that_wait_for_it_the_oldest_first_in_several_steps() -> None:
    count = ASKED_MAX + 50
    made = broken(count)
    assert made.pools.state.has_more(made.pools.served_ms)
    first = made.pools.tick()
    assert first.more
    second = made.pools.tick()
    assert not second.more
    told = [one for ticked in (first, second) for one in asked(ticked.decision)]
    assert [one[0] for one in told] == [f"t{number:04d}" for number in range(count)]
    assert {one[2:] for one in told} == {(B, Lane.P1, False, MoveReason.BREAKER_OPEN)}
    assert not made.pools.tick().decision.events
    made.pools.check()


def test_a_task_that_comes_while_the_breaker_is_open_is_asked_at_once() -> None:
    made = broken(0)
    assert asked(made.come("t", scene=Scene.GENAI))[0][5] is MoveReason.BREAKER_OPEN
    assert not asked(made.come("u", scene=Scene.SMART))
    assert not asked(made.pools.tick().decision)


def test_what_an_open_breaker_keeps_off_waits_if_there_is_no_spare_pool() -> None:
    made = broken(5, spare=None, lower_lane=Lane.P2)
    assert not made.pools.state.has_more(made.pools.served_ms)
    assert not asked(made.pools.tick().decision)
    made.work(1)
    assert made.picked[-1] == "other"
    made.work(1)
    assert made.pools.free == 1
    made.pools.check()


def test_an_undone_step_asks_nobody() -> None:
    made = broken(5)
    handled = made.pools.state
    on_tick(handled, made.pools.named("x"), made.pools.now)
    handled.rollback()
    assert made.pools.stage("t0000") is None
    row = made.pools.state.queued_task(A, TaskId("t0000"))
    assert row is not None
    assert not row.asked
    assert len(asked(made.pools.tick().decision)) == 5
    assert made.pools.stage("first") is Stage.PROPOSED


# --- no card --------------------------------------------------------------------------------------

START_UP_MS = START_UP_SECONDS * 1000
WANTED_MS = 30_000
SCALED = ScalingPolicy(cards_max=8)


def spilling(*, spare: bool = True, **numbers: Any) -> Pools:  # noqa: ANN401
    """Pool A, which has no card yet and spills to B who would wait for more than an hour."""
    pools = Pools(adopted=False)
    lanes = dict.fromkeys(LANES, LanePolicy(ttl_seconds=TTL_MS // 1000))
    numbers = {"spill_wait_seconds": 3_600, "expected_seconds": 1, **numbers}
    document = policy(pools=("A", "B"))
    here = PoolPolicy(lanes=lanes, spare_pool=B if spare else None, **numbers)
    pools.publish(msgspec.structs.replace(document, pools={**document.pools, A: here}))
    return pools


def lost(waiting: int, **numbers: Any) -> Pools:  # noqa: ANN401
    """One task runs and so many wait, and the card goes for good."""
    pools = spilling(**numbers)
    pools.register()
    pools.tick()  # what is there is what a scaled pool wants
    pools.served_ms += START_UP_MS
    pools.beat(1)
    pools.enqueue("runs")
    for number in range(waiting):
        pools.enqueue(f"t{number:04d}", account_id=f"u-{number % 7}", moved=number % 2 == 1)
    gone = pools.tick(LEASE_MS).decision
    assert [event for event in gone.events if isinstance(event, e.RunnerGone)]
    assert not asked(gone)
    return pools


@pytest.mark.parametrize("scaling", [None, SCALED])
def test_who_waits_in_a_pool_that_lost_its_last_card_goes_elsewhere_when_none_comes(
    scaling: ScalingPolicy | None,
) -> None:
    pools = lost(6, scaling=scaling)
    assert not asked(pools.tick(START_UP_MS - 1).decision)
    told = asked(pools.tick(1).decision)
    reason = MoveReason.POOL_FULL
    assert told == [(f"t000{n}", 0, B, Lane.P1, False, reason) for n in (0, 2, 4)]
    assert not asked(pools.tick(START_UP_MS).decision)
    assert asked(pools.enqueue("new"))
    assert not asked(pools.enqueue("from-elsewhere", moved=True))
    pools.check()


def test_those_without_a_card_are_asked_so_many_a_tick_the_oldest_first() -> None:
    count = 2 * ASKED_MAX + 100
    pools = lost(2 * count)
    first = pools.tick(START_UP_MS)
    assert not first.more
    assert not asked(pools.enqueue("other", moved=True))
    ticks = [first, pools.tick(), pools.tick(), pools.tick()]
    told = [[one[0] for one in asked(ticked.decision)] for ticked in ticks]
    assert [len(one) for one in told] == [ASKED_MAX, ASKED_MAX, 100, 0]
    assert [task for one in told for task in one] == [f"t{n:04d}" for n in range(0, 2 * count, 2)]
    pools.check()


def test_those_that_may_not_move_cost_a_tick_no_more_than_so_many_looks() -> None:
    pools = spilling()
    for number in range(LOOKS_MAX):
        pools.enqueue(f"m{number}", moved=True)
    pools.register(slots=0)
    pools.enqueue("last", lane=Lane.P1)
    row = pools.waits("last")
    assert row is not None
    assert row.asked  # there never was a card: nobody waits for one to come back
    pools = spilling(scaling=SCALED)
    for number in range(LOOKS_MAX):
        pools.enqueue(f"m{number}", moved=True)
    pools.enqueue("last")
    pools.tick(WANTED_MS + 1)
    assert not asked(pools.tick(START_UP_MS).decision)
    assert [one[0] for one in asked(pools.tick().decision)] == ["last"]
    pools.check()


def test_a_card_that_comes_back_in_time_keeps_its_tasks() -> None:
    pools = lost(3, scaling=SCALED)
    assert not asked(pools.enqueue("new"))
    pools.tick(START_UP_MS - 1)
    pools.register(incarnation="2")
    assert pools.stage("t0000") is Stage.PROPOSED
    assert not asked(pools.tick(1).decision)
    assert pools.state.pool(A).bare_since_ms == 0
    pools.check()


def test_the_first_card_of_a_pool_has_its_time_from_when_it_is_wanted() -> None:
    pools = spilling(scaling=SCALED)
    assert not asked(pools.enqueue("first"))
    wanted = pools.tick(WANTED_MS + 1).decision
    assert [event.cards for event in wanted.events if isinstance(event, e.PoolScaled)] == [1]
    assert not asked(pools.tick(START_UP_MS - 2).decision)
    assert not asked(pools.enqueue("second"))
    assert [one[0] for one in asked(pools.tick(2).decision)] == ["first", "second"]
    assert asked(pools.enqueue("third"))
    pools.check()


def test_a_pool_that_wants_more_and_more_cards_and_gets_none_still_lets_its_tasks_go() -> None:
    pools = spilling(scaling=SCALED)
    went: list[str] = []
    for number in range(2 * START_UP_SECONDS // 60):
        went += [one[0] for one in asked(pools.enqueue(f"t{number}", account_id=f"u-{number}"))]
        went += [one[0] for one in asked(pools.tick(60_000).decision)]
    assert len([one for one, _ in pools.history if isinstance(one, e.PoolScaled)]) > 1
    assert sorted(went) == sorted(f"t{number}" for number in range(2 * START_UP_SECONDS // 60))
    pools.check()


def test_without_any_card_no_task_is_asked_into_a_lower_lane_or_size_of_the_same_pool() -> None:
    pools = lost(1, spare=False, lower_lane=Lane.P2)
    pools.tick(START_UP_MS)
    assert not asked(pools.enqueue("new", lower_spec=True))


def test_a_paused_lane_of_a_pool_without_a_card_stays() -> None:
    pools = lost(1)
    pools.pause(Lane.P1)
    assert not asked(pools.tick(START_UP_MS).decision)
    pools.resume(Lane.P1)
    assert asked(pools.tick().decision)


def test_an_undone_tick_has_asked_nobody_without_a_card() -> None:
    pools = lost(1)
    pools.served_ms += START_UP_MS
    on_tick(pools.state, pools.named("x"), pools.now)
    pools.state.rollback()
    assert [one[0] for one in asked(pools.tick().decision)] == ["t0000"]
    pools.check()
