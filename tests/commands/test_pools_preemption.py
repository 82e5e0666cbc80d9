"""Room for p0: who gives a slot up, for whom, and that nobody is robbed of it; and spot cards."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from commands.decider import Decision
from commands.pools import Stage
from commands.pools.rows import LANE_NUMBER, LeaseRow, QueuedRow, RunnerRow
from schema import commands as c
from schema import events as e
from schema.ids import RunnerId, TaskId
from schema.replies import BeatAnswered, StopAttempt, YieldAttempt
from schema.words import Lane, LossCause
from tests.support.pools import ACCEPT_MS, BEAT_MS, LEASE_MS, ROWS, A, Pools, policy
from tests.support.spec import Wanted, a

MIN_RUN_MS, YIELD_MS, BUDGET = 30_000, 20_000, 2
ONE_MS = 1


def preemptible(**numbers: Any) -> Pools:  # noqa: ANN401
    pools = Pools()
    fields: dict[str, Any] = {
        "preemptible": True,
        "min_run_seconds": MIN_RUN_MS // 1000,
        "yield_seconds": YIELD_MS // 1000,
        "preemptions_max": BUDGET,
        **numbers,
    }
    pools.publish(policy(2, **fields))
    return pools


def ran(pools: Pools, task: str, lane: Lane, runner: str, **more: Any) -> None:  # noqa: ANN401
    """A runner of one slot that works on this task."""
    spot = more.pop("spot", False)
    pools.register(runner, spot=spot)
    pools.enqueue(task, lane=lane, **more)
    pools.accepted(task, runner=runner)


def wait_ms(pools: Pools, ms: int) -> None:
    """Time passes, and every runner beats."""
    while ms > 0:
        step = min(ms, BEAT_MS)
        pools.served_ms += step
        ms -= step
        for key, row in list(pools.state.rows.items()):
            if isinstance(row, RunnerRow):
                runner = key.rsplit("/", 1)[1]
                held = [(attempt.task_id, attempt.token) for attempt in held_by(pools, runner)]
                pools.beat(row.beat + 1, *held, runner=runner, incarnation=row.incarnation_id)
        pools.tick()


def held_by(pools: Pools, runner: str) -> list[c.HeldAttempt]:
    found = []
    for key, row in pools.state.rows.items():
        if isinstance(row, LeaseRow) and row.runner_id == runner:
            _, _, task, token = key.split("/")
            found.append(c.HeldAttempt(task_id=TaskId(task), token=int(token)))
    return found


def victims(decision: Decision[Any]) -> list[tuple[str, str]]:
    """Who gives way, and for whom."""
    return [
        (event.task_id, event.for_task_id)
        for event in decision.events
        if isinstance(event, e.SlotPreempted)
    ]


def said(decision: Decision[Any], *wanted: type | Wanted) -> None:
    found = (*decision.events, *decision.orders)
    kinds = [one.kind if isinstance(one, Wanted) else one for one in wanted]
    assert [type(one) for one in found] == kinds, found
    for one, message in zip(wanted, found, strict=True):
        if isinstance(one, Wanted):
            one.check(message)


def full() -> Pools:
    """`low` of p2 has run long enough on the only slot."""
    pools = preemptible()
    ran(pools, "low", Lane.P2, "r")
    wait_ms(pools, MIN_RUN_MS)
    return pools


# --- stories --------------------------------------------------------------------------------------


def test_a_waiting_p0_task_takes_the_slot_of_a_lower_class() -> None:
    pools = full()
    said(
        pools.enqueue("vip", lane=Lane.P0),
        e.TaskEnqueued,
        a(e.SlotPreempted, task_id="low", token=1, runner_id="r", for_task_id="vip"),
        a(
            YieldAttempt,
            runner_id="r",
            incarnation_id="1",
            task_id="low",
            token=1,
            reason="preempted",
            seconds=YIELD_MS // 1000,
        ),
    )
    assert pools.stage("low") is Stage.ACCEPTED
    pools.check()
    assert not pools.enqueue("low", 1, lane=Lane.P2, preemptions=1).orders
    said(
        pools.runner_says(c.FreeSlot, "low"),
        a(e.SlotFreed, task_id="low"),
        a(e.SlotProposed, task_id="vip", token=1, runner_id="r"),
        c.StartAttempt,
    )
    pools.check()


def test_the_same_wait_told_twice_preempts_once() -> None:
    pools = full()
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("low", "vip")]
    assert pools.enqueue("vip", lane=Lane.P0) == Decision()
    assert not pools.tick(1000).decision.events


@pytest.mark.parametrize("lane", [Lane.P1, Lane.P2])
def test_only_p0_preempts_however_long_others_wait(lane: Lane) -> None:
    pools = full()
    assert not victims(pools.enqueue("patient", lane=lane))
    for _ in range(20):
        wait_ms(pools, 60_000)
    assert not [event for event, _ in pools.history if isinstance(event, e.SlotPreempted)]


def test_p0_is_no_victim() -> None:
    pools = preemptible()
    ran(pools, "first", Lane.P0, "r")
    wait_ms(pools, MIN_RUN_MS)
    assert not victims(pools.enqueue("second", lane=Lane.P0))


def test_a_pool_that_is_not_preemptible_lets_p0_wait() -> None:
    pools = preemptible(preemptible=False)
    ran(pools, "low", Lane.P2, "r")
    wait_ms(pools, MIN_RUN_MS)
    assert not victims(pools.enqueue("vip", lane=Lane.P0))


def test_nobody_is_preempted_while_a_slot_is_free() -> None:
    pools = full()
    pools.register("other")
    assert not victims(pools.enqueue("vip", lane=Lane.P0))
    assert pools.stage("vip") is Stage.PROPOSED


def test_an_attempt_runs_its_minimum_before_it_gives_way() -> None:
    pools = preemptible()
    ran(pools, "low", Lane.P2, "r")
    wait_ms(pools, MIN_RUN_MS - ONE_MS)
    assert not victims(pools.enqueue("vip", lane=Lane.P0))
    assert victims(pools.tick(ONE_MS).decision) == [("low", "vip")]


def test_a_task_gives_way_no_oftener_than_its_budget_allows() -> None:
    pools = preemptible()
    ran(pools, "tired", Lane.P2, "r", preemptions=BUDGET)
    ran(pools, "fit", Lane.P2, "s", preemptions=BUDGET - 1)
    wait_ms(pools, MIN_RUN_MS)
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("fit", "vip")]
    assert not victims(pools.enqueue("next", lane=Lane.P0))


def test_a_larger_budget_makes_who_was_spared_a_victim_again() -> None:
    pools = preemptible()
    ran(pools, "tired", Lane.P2, "r", preemptions=BUDGET)
    wait_ms(pools, MIN_RUN_MS)
    assert not victims(pools.enqueue("vip", lane=Lane.P0))
    larger = policy(3, preemptible=True, preemptions_max=BUDGET + 1)
    assert victims(pools.publish(larger)) == [("tired", "vip")]


def test_each_waiting_task_has_one_victim_and_no_task_two() -> None:
    pools = preemptible()
    for number in range(3):
        ran(pools, f"low{number}", Lane.P2, f"r{number}")
    wait_ms(pools, MIN_RUN_MS)
    assert [heir for _, heir in victims(pools.enqueue("a", lane=Lane.P0))] == ["a"]
    assert [heir for _, heir in victims(pools.enqueue("b", lane=Lane.P0))] == ["b"]
    for _ in range(5):
        assert not victims(pools.tick(1000).decision)
    assert pools.state.yielding == 2


def test_a_slot_that_is_emptied_for_nobody_is_the_next_ones() -> None:
    """`a` left; `b` does not make a second attempt give way, it gets what `a` was promised."""
    pools = preemptible()
    for number in range(2):
        ran(pools, f"low{number}", Lane.P2, f"r{number}")
    wait_ms(pools, MIN_RUN_MS)
    ((victim, _),) = victims(pools.enqueue("a", lane=Lane.P0))
    pools.task_says(c.DequeueTask, "a", 0)
    assert not victims(pools.enqueue("b", lane=Lane.P0))
    runner = "r" + victim[-1]
    freed = pools.runner_says(c.FreeSlot, victim, runner=runner)
    assert [event.task_id for event in freed.events if isinstance(event, e.SlotProposed)] == ["b"]


# --- who gives way --------------------------------------------------------------------------------


def test_spot_cards_are_emptied_first_whatever_runs_on_them() -> None:
    pools = preemptible()
    ran(pools, "old", Lane.P2, "r")
    ran(pools, "spotted", Lane.P1, "s", spot=True)
    wait_ms(pools, MIN_RUN_MS)
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("spotted", "vip")]


def test_then_the_lowest_class_gives_way() -> None:
    pools = preemptible()
    ran(pools, "batch", Lane.P2, "r")
    wait_ms(pools, 10_000)
    ran(pools, "paid", Lane.P1, "s")
    wait_ms(pools, MIN_RUN_MS)
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("batch", "vip")]


def test_then_whoever_has_least_unsaved_work_gives_way() -> None:
    pools = preemptible()
    ran(pools, "saves", Lane.P2, "r")
    wait_ms(pools, 10_000)
    ran(pools, "younger", Lane.P2, "s")
    wait_ms(pools, MIN_RUN_MS)
    runner = pools.state.runner_of(A, RunnerId("r"))
    assert runner is not None
    beat = pools.beat(runner.beat + 1, ("saves", 1), unsaved_ms=(500,))
    assert [one.ms for event in beat.events for one in event.runners[0].unsaved] == [500]  # type: ignore[union-attr]
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("saves", "vip")]
    pools.check()


def test_a_beat_told_twice_changes_no_unsaved_work() -> None:
    pools = preemptible()
    ran(pools, "t", Lane.P2, "r")
    wait_ms(pools, 10_000)
    pools.beat(7, ("t", 1), unsaved_ms=(100,))
    before = dict(pools.state.rows)
    assert not pools.beat(7, ("t", 1), unsaved_ms=(9_000,)).events
    assert pools.state.rows == before


def test_then_whoever_started_last_gives_way() -> None:
    """Both have just saved all that they did."""
    pools = preemptible()
    ran(pools, "first", Lane.P2, "r")
    wait_ms(pools, 5_000)
    ran(pools, "last", Lane.P2, "s")
    wait_ms(pools, MIN_RUN_MS)
    for runner, task in (("r", "first"), ("s", "last")):
        pools.beat(99, (task, 1), runner=runner, unsaved_ms=(0,))
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("last", "vip")]


def test_a_quiet_runner_is_not_asked_until_it_is_heard_of_again() -> None:
    pools = preemptible()
    ran(pools, "low", Lane.P2, "r")
    pools.tick(3 * BEAT_MS)
    assert not victims(pools.enqueue("vip", lane=Lane.P0))
    assert victims(pools.beat(1, ("low", 1))) == [("low", "vip")]


# --- what becomes of the slot ---------------------------------------------------------------------


def test_the_room_is_held_for_whom_it_was_made() -> None:
    """Whoever else would be next by the order, of p0 too, does not get it."""
    pools = full()
    pools.enqueue("vip", lane=Lane.P0, weight=50)
    pools.enqueue("better", lane=Lane.P0, account_id="another")
    pools.enqueue("other", lane=Lane.P1)
    freed = pools.runner_says(c.FreeSlot, "low")
    assert [type(event) for event in freed.events] == [e.SlotFreed, e.SlotProposed]
    assert pools.stage("vip") is Stage.PROPOSED
    pools.check()


def test_the_hold_has_an_end() -> None:
    """Its runner does not free the slot in time: then another attempt gives way."""
    pools = full()
    ran(pools, "also", Lane.P2, "s")
    wait_ms(pools, 5_000)
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("low", "vip")]
    wait_ms(pools, YIELD_MS)
    assert pools.stage("low") is Stage.LOST
    assert victims(pools.tick(YIELD_MS - ONE_MS).decision) == []
    pools.beat(99, ("also", 1), runner="s")
    assert victims(pools.tick(ONE_MS).decision) == [("also", "vip")]


def test_an_attempt_that_does_not_answer_is_lost_and_its_slot_waits_for_its_runner() -> None:
    pools = full()
    pools.enqueue("vip", lane=Lane.P0)
    said(pools.tick(YIELD_MS - ONE_MS).decision)
    said(
        pools.tick(ONE_MS).decision,
        a(e.SlotLost, task_id="low", cause=LossCause.PREEMPTED),
        a(c.LoseAttempt, task_id="low", token=1, cause=LossCause.PREEMPTED),
        a(StopAttempt, task_id="low", token=1, runner_id="r"),
    )
    assert pools.free == 0
    assert pools.waits("vip") is not None
    pools.enqueue("low", 1, lane=Lane.P2, preemptions=1)
    assert not pools.tick(1000).decision.events
    freed = pools.runner_says(c.FreeSlot, "low")
    assert [type(event) for event in freed.events] == [e.SlotFreed, e.SlotProposed]
    assert pools.stage("vip") is Stage.PROPOSED
    pools.check()


def test_a_victim_that_ends_by_itself_leaves_its_slot_to_whom_it_was_made_for() -> None:
    pools = full()
    pools.enqueue("vip", lane=Lane.P0)
    pools.task_says(c.EndAttempt, "low", ended_well=True)
    pools.runner_says(c.FreeSlot, "low")
    assert pools.stage("vip") is Stage.PROPOSED
    assert not pools.tick(YIELD_MS).decision.events


def test_a_promise_ends_with_the_runner() -> None:
    pools = full()
    ran(pools, "also", Lane.P2, "s")
    wait_ms(pools, MIN_RUN_MS)
    ((victim, _),) = victims(pools.enqueue("vip", lane=Lane.P0))
    assert victim == "also"
    decision = pools.register("s", "2", slots=0)
    assert ("low", "vip") in victims(decision)
    pools.check()


def test_a_runner_that_drains_meanwhile_gives_its_slot_to_nobody() -> None:
    pools = full()
    pools.register("s", slots=0)
    pools.enqueue("vip", lane=Lane.P0)
    pools.drain()
    freed = pools.runner_says(c.FreeSlot, "low")
    assert [type(event) for event in freed.events] == [e.SlotFreed]
    assert pools.waits("vip") is not None
    pools.check()


def test_who_may_not_start_makes_nobody_yield() -> None:
    """Its model is at its cap, or its account has all the slots that it may have."""
    pools = preemptible(model_caps={"m": 1}, tenant_share=0.5)
    ran(pools, "capped", Lane.P2, "r", model="m", account_id="a")
    ran(pools, "low", Lane.P2, "s", account_id="b")
    wait_ms(pools, MIN_RUN_MS)
    assert not victims(pools.enqueue("vip", lane=Lane.P0, model="m", account_id="c"))
    assert not victims(pools.enqueue("more", lane=Lane.P0, account_id="b"))
    ((_, heir),) = victims(pools.enqueue("fair", lane=Lane.P0, account_id="c"))
    assert heir == "fair"


def test_nobody_gives_way_while_p0_is_paused() -> None:
    pools = full()
    pools.pause(Lane.P0)
    assert not victims(pools.enqueue("vip", lane=Lane.P0))
    assert victims(pools.resume(Lane.P0)) == [("low", "vip")]


def test_two_tenants_do_not_preempt_each_other_in_turns() -> None:
    """Who was made to yield waits in a lower class: nothing that it does makes its heir yield."""
    pools = full()
    pools.enqueue("vip", lane=Lane.P0, account_id="vips")
    pools.enqueue("low", 1, lane=Lane.P2, preemptions=1)
    pools.runner_says(c.FreeSlot, "low")
    pools.accepted("vip")
    before = len(pools.history)
    for _ in range(10):
        wait_ms(pools, 60_000)
        pools.enqueue("low", 1, lane=Lane.P2, preemptions=1)
    kinds = {type(event) for event, _ in pools.history[before:]}
    assert kinds == {e.LeasesExtended}


def test_an_outage_of_thirty_minutes_preempts_nobody_and_loses_nobody() -> None:
    pools = full()
    pools.enqueue("vip", lane=Lane.P0)
    pools.log_ahead += 30 * pools.log_ahead.resolution * 60_000_000
    assert not pools.tick(YIELD_MS - ONE_MS).decision.events
    assert pools.stage("low") is Stage.ACCEPTED


def test_rows_of_before_are_read_and_left_alone() -> None:
    lease = ROWS.decode(b'["lease","r","1","accepted",0]')
    assert lease == LeaseRow(runner_id="r", incarnation_id="1", stage=Stage.ACCEPTED)  # type: ignore[arg-type]
    runner = ROWS.decode(b'["runner","1",1,999999999,999999999,0,false,[]]')
    pools = preemptible()
    pools.state.load("runner/A/r", runner)
    pools.state.load("lease/A/t/1", lease)
    pools.table |= {
        "runner/A/r": b'["runner","1",1,999999999,999999999,0,false,[]]',
        "lease/A/t/1": b'["lease","r","1","accepted",0]',
    }
    wait_ms(pools, 10 * MIN_RUN_MS)
    assert not victims(pools.enqueue("vip", lane=Lane.P0))


# --- spot -----------------------------------------------------------------------------------------


def test_a_notice_asks_everything_on_the_card_to_checkpoint() -> None:
    pools = preemptible(preemptible=False)
    pools.register(slots=2, spot=True)
    for task in ("t", "u"):
        pools.enqueue(task, lane=Lane.P2)
        pools.accepted(task)
    notice = pools.drain(spot=True)
    said(
        notice,
        a(e.RunnerDraining, spot=True),
        a(YieldAttempt, task_id="t", reason="spot", seconds=YIELD_MS // 1000),
        a(YieldAttempt, task_id="u", reason="spot"),
    )
    assert pools.drain(spot=True) == Decision()
    pools.enqueue("new", lane=Lane.P0)
    assert pools.waits("new") is not None
    pools.enqueue("t", 1, lane=Lane.P2)
    pools.runner_says(c.FreeSlot, "t")
    lost = pools.tick(YIELD_MS).decision
    assert [one.cause for one in lost.orders if isinstance(one, c.LoseAttempt)] == [LossCause.SPOT]
    pools.runner_says(c.FreeSlot, "u")
    assert pools.state.runner_of(A, RunnerId("r")) is None
    pools.check()


def test_a_runner_that_drains_already_can_still_lose_its_card() -> None:
    pools = preemptible()
    ran(pools, "t", Lane.P2, "r", spot=True)
    said(pools.drain(), a(e.RunnerDraining, spot=False))
    said(pools.drain(spot=True), a(e.RunnerDraining, spot=True), YieldAttempt)
    assert pools.drain() == Decision()


def test_what_is_accepted_after_the_notice_is_asked_to_yield_at_once() -> None:
    pools = preemptible()
    pools.register()
    pools.enqueue("t", lane=Lane.P2)
    pools.task_says(c.GrantAttempt, "t")
    said(pools.drain(spot=True), e.RunnerDraining)
    said(
        pools.runner_says(c.AcceptAttempt, "t"),
        e.AttemptAccepted,
        a(YieldAttempt, task_id="t", reason="spot"),
    )
    assert pools.runner_says(c.AcceptAttempt, "t") == Decision()
    assert pools.state.yielding == 1


@pytest.mark.parametrize(("notice", "seconds"), [(120, 108), (10, 9), (10**9, 540)])
def test_a_notice_that_says_how_long_gives_what_runs_there_that_long_and_no_longer(
    notice: int, seconds: int
) -> None:
    pools = preemptible(lease_seconds=10**6, beat_seconds=10**5)
    pools.register(slots=2, spot=True)
    for task in ("t", "late"):
        pools.enqueue(task, lane=Lane.P2)
        pools.task_says(c.GrantAttempt, task)
    pools.runner_says(c.AcceptAttempt, "t")
    said(
        pools.drain(spot=True, notice_seconds=notice),
        a(e.RunnerDraining, spot=True, notice_seconds=notice),
        a(YieldAttempt, task_id="t", reason="spot", seconds=seconds),
    )
    pools.served_ms += 4_000
    pools.beat(1, ("t", 1))
    said(
        pools.runner_says(c.AcceptAttempt, "late"),
        e.AttemptAccepted,
        a(YieldAttempt, task_id="late", reason="spot", seconds=seconds - 4),
    )
    said(pools.tick(seconds * 1000 - 4_001).decision)
    lost = pools.tick(1).decision
    assert {one.task_id for one in lost.orders if isinstance(one, StopAttempt)} == {"t", "late"}
    assert {one.cause for one in lost.events if isinstance(one, e.SlotLost)} == {LossCause.SPOT}
    pools.check()


def test_a_short_notice_also_ends_the_time_of_who_was_asked_to_yield_before() -> None:
    pools = full()
    pools.enqueue("vip", lane=Lane.P0)
    said(pools.drain(spot=True, notice_seconds=10), e.RunnerDraining)
    said(pools.tick(9_000 - ONE_MS).decision)
    lost = pools.tick(ONE_MS).decision
    assert [one.cause for one in lost.events if isinstance(one, e.SlotLost)] == [LossCause.SPOT]
    pools.check()


def test_a_long_notice_gives_who_was_asked_to_yield_before_no_more_time() -> None:
    pools = full()
    pools.enqueue("vip", lane=Lane.P0)
    said(pools.drain(spot=True, notice_seconds=120), e.RunnerDraining)
    assert any(isinstance(one, e.SlotLost) for one in pools.tick(YIELD_MS).decision.events)


def test_what_runs_on_a_runner_that_drains_by_itself_has_no_end_from_its_pool() -> None:
    pools = preemptible(lease_seconds=10**6, beat_seconds=10**5)
    ran(pools, "t", Lane.P2, "r")
    said(pools.drain(), a(e.RunnerDraining, spot=False, notice_seconds=0))
    said(pools.tick(10**6).decision)
    assert pools.stage("t") is Stage.ACCEPTED


def test_a_runner_says_once_that_its_card_is_a_spot_card() -> None:
    pools = preemptible()
    said(pools.register(), e.RunnerRegistered, BeatAnswered)
    assert [type(event) for event in pools.register(spot=True).events] == [e.RunnerRegistered]
    assert not pools.register(spot=True).events
    runner = pools.state.runner_of(A, RunnerId("r"))
    assert runner is not None
    assert runner.spot


# --- laws -----------------------------------------------------------------------------------------


class Judge:
    """Every preemption is held against the rows as they were just before its step."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        self.before: dict[str, Any] = {}
        self.seen = 0
        self.count = 0

    def look(self) -> None:
        for event, now in self.pools.history[self.seen :]:
            if isinstance(event, e.SlotPreempted):
                self._judge(event, now.served_ms)
        self.seen = len(self.pools.history)
        self.before = dict(self.pools.state.rows)

    def _judge(self, event: e.SlotPreempted, served_ms: int) -> None:
        self.count += 1
        lease = self.pools.state.lease_of(A, event.task_id, event.token)
        assert lease is not None
        assert lease.lane is not None
        assert LANE_NUMBER[lease.lane] > LANE_NUMBER[Lane.P0]
        assert served_ms - lease.accepted_ms >= MIN_RUN_MS
        assert lease.preemptions < BUDGET
        queued = self.pools.waits(event.for_task_id)
        assert queued is not None
        assert queued.lane is Lane.P0
        others = [
            row
            for row in self.pools.state.rows.values()
            if isinstance(row, LeaseRow)
            and row.for_task == event.for_task_id
            and row.hold_until_ms > served_ms
            and row.stage is not Stage.STORING
        ]
        assert len(others) == 1, others


KINDS = (
    *("p0", "p0", "p1", "p2", "p2", "runner", "accept", "accept", "accept", "free", "free"),
    *("yielded", "yielded", "time", "time", "beat", "beat", "notice", "leave", "silent"),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(min_value=0, max_value=97),
    ),
    min_size=10,
    max_size=70,
)


def play(steps: list[tuple[str, int]]) -> int:
    """Such a life; how many were preempted."""
    pools = preemptible()
    judge = Judge(pools)
    tasks = 0
    for kind, number in steps:
        rows = pools.state.rows
        leases = sorted(key for key, row in rows.items() if isinstance(row, LeaseRow))
        lease = leases[number % len(leases)] if leases else None
        match kind:
            case "p0" | "p1" | "p2":
                tasks += 1
                pools.enqueue(f"t{tasks}", lane=Lane(kind), preemptions=number % 3)
            case "runner":
                pools.register(f"r{number % 4}", str(number % 2), number % 3, spot=number % 5 == 0)
            case "time":
                wait_ms(pools, (1_000, ACCEPT_MS - 1, MIN_RUN_MS, YIELD_MS)[number % 4])
            case "silent":
                pools.tick((MIN_RUN_MS, LEASE_MS)[number % 2])
            case "beat":
                beat(pools, number)
            case "notice":
                drain(pools, number)
            case "leave":
                waiting = sorted(key for key, row in rows.items() if isinstance(row, QueuedRow))
                if waiting:
                    key = waiting[number % len(waiting)]
                    row = rows[key]
                    assert isinstance(row, QueuedRow)
                    pools.task_says(c.DequeueTask, key.rsplit("/", 1)[1], row.token)
            case _ if lease is not None:
                of_lease(pools, kind, lease)
            case _:
                pass
        judge.look()
        pools.check()
    return judge.count


def of_lease(pools: Pools, kind: str, key: str) -> None:
    row = pools.state.lease(key)
    assert row is not None
    _, _, task, token = key.split("/")
    runner, incarnation = row.runner_id, row.incarnation_id
    if kind == "accept":
        if row.stage is Stage.PROPOSED:
            pools.task_says(c.GrantAttempt, task, int(token))
        pools.runner_says(c.AcceptAttempt, task, int(token), runner, incarnation)
    elif kind == "yielded" and row.yields:
        pools.enqueue(task, int(token), row.lane or Lane.P2, preemptions=row.preemptions + 1)
        pools.runner_says(c.FreeSlot, task, int(token), runner, incarnation)
    elif kind == "free":
        pools.task_says(c.EndAttempt, task, int(token), ended_well=True)
        pools.runner_says(c.FreeSlot, task, int(token), runner, incarnation)


def beat(pools: Pools, number: int) -> None:
    runners = [(key, row) for key, row in pools.state.rows.items() if isinstance(row, RunnerRow)]
    if runners:
        key, row = sorted(runners, key=lambda one: one[0])[number % len(runners)]
        runner = key.rsplit("/", 1)[1]
        held = [(one.task_id, one.token) for one in held_by(pools, runner)]
        unsaved = tuple(number * 700 * (place + 1) for place in range(len(held)))
        pools.beat(
            row.beat + 1,
            *held,
            runner=runner,
            incarnation=row.incarnation_id,
            unsaved_ms=unsaved,
        )


def drain(pools: Pools, number: int) -> None:
    key = f"runner/A/r{number % 4}"
    row = pools.state.runner(key)
    if row is not None:
        pools.drain(f"r{number % 4}", row.incarnation_id, spot=number % 2 == 0)


@given(steps=STEPS)
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_whoever_gives_way_had_to_and_for_one_task_alone(steps: list[tuple[str, int]]) -> None:
    play(steps)


def test_such_lives_do_preempt() -> None:
    steps = [("runner", 5), ("p2", 0), ("accept", 0), ("time", 2), ("p0", 0), ("yielded", 0)]
    assert play(steps * 3) >= 1


def test_whom_a_slot_is_emptied_for_is_not_asked_to_wait_elsewhere() -> None:
    pools = preemptible(spill_wait_seconds=1, lower_lane=Lane.P2)
    ran(pools, "low", Lane.P2, "r")
    wait_ms(pools, MIN_RUN_MS)
    said(pools.enqueue("vip", lane=Lane.P0), e.TaskEnqueued, e.SlotPreempted, YieldAttempt)
    assert e.TaskMoveAsked in [type(one) for one in pools.enqueue("too", lane=Lane.P0).events]


def test_a_card_that_turns_out_to_be_lent_is_still_looked_at() -> None:
    pools = preemptible(model_caps={"m": 1})
    ran(pools, "low", Lane.P2, "r", model="m")
    wait_ms(pools, MIN_RUN_MS)
    pools.enqueue("capped", lane=Lane.P0, model="m")  # the victim is looked at, for nobody
    pools.register("r", spot=True)
    pools.check()
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("low", "vip")]


def test_a_drain_that_is_undone_leaves_who_could_give_way() -> None:
    pools = full()
    contest, numbers = pools.state.yard(A).contest, pools.state.pool_policy(A)
    victim = contest.victim(numbers, pools.served_ms)
    assert victim is not None
    row = pools.state.runner_of(A, RunnerId("r"))
    assert row is not None
    pools.state.put("runner/A/r", replace(row, draining=True))
    assert contest.victim(numbers, pools.served_ms) is None
    pools.state.rollback()
    assert contest.victim(numbers, pools.served_ms) == victim
    pools.check()


def test_who_seeks_is_found_whatever_models_a_new_policy_caps() -> None:
    pools = full()
    pools.pause(Lane.P0)
    for number in range(3):
        pools.enqueue(f"vip{number}", lane=Lane.P0, model=f"m{number}")
    fields: dict[str, Any] = {"preemptible": True, "min_run_seconds": 30, "yield_seconds": 20}
    pools.publish(policy(3, model_caps={"m0": 1, "m1": 1}, **fields))
    pools.check()
    assert victims(pools.resume(Lane.P0)) == [("low", "vip0")]
    pools.publish(policy(4, **fields))
    pools.check()


def test_whose_promise_is_over_is_asked_to_wait_elsewhere_like_anybody() -> None:
    pools = preemptible(model_caps={"m": 1})
    ran(pools, "low", Lane.P2, "r")
    wait_ms(pools, MIN_RUN_MS)
    assert victims(pools.enqueue("vip", lane=Lane.P0)) == [("low", "vip")]
    pools.task_says(c.DequeueTask, "vip", 0)
    pools.served_ms += 2 * YIELD_MS
    pools.register("r2", slots=2)
    pools.enqueue("first", model="m")
    back = pools.enqueue("vip", lane=Lane.P0, model="m", lower_spec=True)
    assert [type(event) for event in back.events] == [e.TaskEnqueued, e.TaskMoveAsked]
    pools.check()
