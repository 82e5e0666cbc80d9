"""How many cards a pool wants: up on wait and depth together, down on either, never to and fro."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from commands.decider import ImpossibleEventError
from commands.pools import evolve, settle
from commands.pools.rows import LeaseRow, RunnerRow, lease_key
from commands.pools.scaling import Load, class_of, longest_of
from schema import events as e
from schema.ids import EventId
from schema.policy import ScalingPolicy
from schema.words import Lane, ScaleReason
from tests.support.pools import A, Pools, policy

TASK_S, TARGET_S, COOL_S, DOWN_S = 20, 10, 30, 30
SLOTS = 4
SCALING = ScalingPolicy(
    cards_min=1,
    cards_max=20,
    wait_target_seconds=TARGET_S,
    up_share=0.7,
    down_share=0.6,
    down_seconds=DOWN_S,
    cooldown_seconds=COOL_S,
    look_back_seconds=20,
    horizon_seconds=40,
    step_share_max=0.5,
)


def with_policy(scaling: ScalingPolicy | None = SCALING, **numbers: Any) -> Pools:  # noqa: ANN401
    pools = Pools(adopted=False)
    document = policy(
        1,
        scaling=scaling,
        slots_per_card=SLOTS,
        expected_seconds=TASK_S,
        lease_seconds=10**6,
        beat_seconds=10**5,
        **numbers,
    )
    pools.publish(document)
    return pools


class Site:
    """A pool whose executor does at once what it is told, and whose tasks take their time."""

    def __init__(self, pools: Pools, task_s: int = TASK_S) -> None:
        self.pools = pools
        self.task_s = task_s
        self.tasks = 0
        self.ends: dict[int, list[str]] = {}
        self.second = 0
        self.seen = 0
        self.cards = 0
        self.cards_made = 0
        self.scaled: list[e.PoolScaled] = []
        self.used_max = 0

    def play(self, arrivals: list[int], lane: Lane = Lane.P1) -> None:
        """One number for each second: how many tasks come."""
        for count in arrivals:
            self.second += 1
            for _ in range(count):
                self.tasks += 1
                self.pools.enqueue(f"t{self.tasks}", lane=lane)
            for key in self.ends.pop(self.second, ()):
                lease = self.pools.state.lease(key)
                if lease is not None:
                    self.pools.ended(key.split("/")[2], runner=lease.runner_id)
            self._note(self.pools.tick(1000).decision.events)
            self._start()
            self._follow()

    def _note(self, events: tuple[Any, ...]) -> None:
        self.scaled += [event for event in events if isinstance(event, e.PoolScaled)]

    def _start(self) -> None:
        new, self.seen = self.pools.history[self.seen :], len(self.pools.history)
        for event, _ in new:
            if isinstance(event, e.SlotProposed):
                key = lease_key(A, event.task_id, event.token)
                self.ends.setdefault(self.second + self.task_s, []).append(key)
                self.pools.accepted(event.task_id, runner=event.runner_id)
        yard = self.pools.state.yard(A)
        for key, used in yard.used.items():
            runner = self.pools.state.runner(key)
            assert runner is not None
            assert used <= runner.slots
            self.used_max = max(self.used_max, used)

    def _follow(self) -> None:
        wanted = self.pools.state.scale(A)
        names = sorted(self.pools.state.yard(A).fresh, key=lambda name: (len(name), name))
        while wanted is not None and len(names) < wanted.cards:
            self.cards_made += 1
            self.pools.register(f"r{self.cards_made}", slots=SLOTS)
            names.append(f"runner/A/r{self.cards_made}")
        while wanted is not None and len(names) > wanted.cards:
            self.pools.drain(names.pop().split("/")[2])

    @property
    def wanted(self) -> int:
        row = self.pools.state.scale(A)
        return 0 if row is None else row.cards


# --- stories --------------------------------------------------------------------------------------


def test_at_first_it_wants_what_is_there_within_its_bounds() -> None:
    pools = with_policy()
    for number in range(3):
        pools.register(f"r{number}", slots=SLOTS)
    pools.register("going", slots=SLOTS)
    pools.drain("going")
    (event,) = pools.tick().decision.events
    assert isinstance(event, e.PoolScaled)
    assert (event.cards, event.cards_before, event.reason) == (3, 0, ScaleReason.BOUNDS)
    assert not pools.tick().decision.events
    pools.check()


def test_a_quiet_runner_is_no_card() -> None:
    pools = with_policy()
    pools.publish(policy(2, scaling=SCALING, lease_seconds=1000, beat_seconds=10))
    for number in range(3):
        pools.register(f"r{number}")
    pools.served_ms += 31_000
    pools.beat(1, runner="r0")
    (event,) = pools.tick().decision.events
    assert isinstance(event, e.PoolScaled)
    assert event.cards == 1


def test_a_pool_of_which_nothing_is_known_wants_its_floor() -> None:
    pools = with_policy()
    assert not settle(pools.state, pools.named("x"), pools.now).events
    pools.state.rollback()
    (event,) = settle(pools.state, pools.named("x"), pools.now, [A]).events
    assert isinstance(event, e.PoolScaled)
    assert event.cards == SCALING.cards_min


def test_a_pool_without_scaling_wants_nothing_and_keeps_no_rows_of_it() -> None:
    site = Site(with_policy(None))
    site.pools.register(slots=SLOTS)
    site.play([3] * 60)
    assert not site.scaled
    assert site.pools.state.waits(A) is None
    assert site.pools.state.scale(A) is None


def test_long_waits_and_full_slots_together_make_it_grow() -> None:
    site = Site(with_policy())
    site.play([1] * 25)
    assert [event.reason for event in site.scaled] == [ScaleReason.BOUNDS]
    site.play([1] * 40)
    up = site.scaled[1]
    assert up.reason is ScaleReason.DEMAND
    assert up.cards > up.cards_before
    assert up.demand_card_seconds > 0
    assert max(up.wait_p95_ms, up.oldest_wait_ms) > TARGET_S * 1000
    site.pools.check()


def test_full_slots_without_waits_are_no_reason() -> None:
    site = Site(with_policy())
    site.pools.register("r0", slots=SLOTS)
    site.play([0] * 2)
    for _ in range(10):
        site.play([SLOTS] + [0] * (TASK_S - 1))
    assert [event.reason for event in site.scaled] == [ScaleReason.BOUNDS]


def test_waits_with_free_slots_are_no_reason() -> None:
    """A model at its cap waits, though half of the pool is free: more cards would not help."""
    site = Site(with_policy(model_caps={"m": 1}))
    for number in range(5):
        site.pools.register(f"r{100 + number}", slots=SLOTS)
    site.pools.tick()
    for number in range(4):
        site.pools.enqueue(f"m{number}", model="m")
    site.play([0] * 25)
    assert site.scaled == []
    assert site.wanted == 5


def test_it_is_never_more_than_the_ceiling_the_budget_or_one_step() -> None:
    for budget, most in ((0, 20), (6, 6)):
        scaling = ScalingPolicy(
            cards_min=1,
            cards_max=20,
            budget_cards=budget,
            wait_target_seconds=1,
            cooldown_seconds=5,
        )
        site = Site(with_policy(scaling))
        site.play([20] * 120)
        assert max(event.cards for event in site.scaled) == most
        for event in site.scaled[1:]:
            step = max(int(event.cards_before * scaling.step_share_max), 1)
            assert abs(event.cards - event.cards_before) <= step


def test_slack_for_long_enough_makes_it_shrink_to_its_floor() -> None:
    site = Site(with_policy(replace(SCALING, cooldown_seconds=5)))
    for number in range(10):
        site.pools.register(f"r{100 + number}", slots=SLOTS)
    site.play([0] * (DOWN_S - 1))
    assert site.wanted == 10
    site.play([0] * 600)
    assert site.wanted == SCALING.cards_min
    downs = site.scaled[1:]
    assert all(event.reason is ScaleReason.SLACK for event in downs)
    assert downs[0].cards == 5


def test_it_shrinks_to_what_the_peak_of_the_last_while_needs() -> None:
    """Twelve slots were in demand ten seconds ago: five cards hold them at seventy percent."""
    site = Site(with_policy(), task_s=5)
    for number in range(10):
        site.pools.register(f"r{100 + number}", slots=SLOTS)
    site.play([0] * 25)
    site.play([12] + [0] * 9)
    downs = [event for event in site.scaled if event.reason is ScaleReason.SLACK]
    assert [event.cards for event in downs] == [5]


@pytest.mark.parametrize("waits", [True, False])
def test_slots_in_use_and_long_waits_keep_the_number(waits: bool) -> None:  # noqa: FBT001
    """Five eighths in use is not slack as long as somebody waits."""
    site = Site(with_policy(model_caps={"m": 1}), task_s=1000)
    for number in range(20):
        site.pools.register(f"r{100 + number}", slots=SLOTS)
    for number in range(2 if waits else 1):
        site.pools.enqueue(f"m{number}", model="m")
    site.play([49] + [0] * 90)
    assert site.wanted == (20 if waits else 18)


@pytest.mark.parametrize(("horizon_s", "slots"), [(5, 7), (40, 5), (10**6, 4)])
def test_what_waits_is_worked_off_within_the_horizon_but_no_task_by_two(
    horizon_s: int, slots: int
) -> None:
    load = Load(used=3, waiting=4, task_ms=TASK_S * 1000)
    assert load.demand(replace(SCALING, horizon_seconds=horizon_s)) == slots


def test_between_two_changes_lies_the_cool_down() -> None:
    site = Site(with_policy())
    changes: list[int] = []
    for second in range(400):
        before = len(site.scaled)
        site.play([6 if second < 150 else 0])
        if len(site.scaled) > before:
            changes.append(second)
    assert len(changes) > 4
    gaps = [later - sooner for sooner, later in pairwise(changes)]
    assert min(gaps) >= min(COOL_S, DOWN_S)


def test_new_bounds_hold_at_once() -> None:
    pools = with_policy()
    for number in range(8):
        pools.register(f"r{number}", slots=SLOTS)
    pools.tick()
    smaller = ScalingPolicy(cards_min=1, cards_max=5)
    pools.publish(policy(2, scaling=smaller, slots_per_card=SLOTS))
    (event,) = pools.tick().decision.events
    assert isinstance(event, e.PoolScaled)
    assert (event.cards, event.reason) == (5, ScaleReason.BOUNDS)


def test_what_waits_in_a_paused_lane_is_no_demand() -> None:
    """It makes nothing grow, and keeps nothing from shrinking."""
    site = Site(with_policy())
    for number in range(4):
        site.pools.register(f"r{100 + number}", slots=SLOTS)
    site.pools.pause(Lane.P2)
    site.play([5] * 120, Lane.P2)
    assert ScaleReason.DEMAND not in [event.reason for event in site.scaled]
    assert site.wanted == SCALING.cards_min


def test_an_outage_of_thirty_minutes_changes_no_number() -> None:
    site = Site(with_policy())
    site.play([2] * 90)
    before = site.wanted
    site.pools.log_ahead += 30 * site.pools.log_ahead.resolution * 60_000_000
    assert not [
        event
        for event in site.pools.tick().decision.events
        if isinstance(event, e.PoolScaled) and event.reason is not ScaleReason.DEMAND
    ]
    assert site.wanted >= before


# --- cases from the field -------------------------------------------------------------------------


@pytest.mark.parametrize("period_s", [10, 20])
def test_a_demand_that_swings_fast_does_not_make_the_cards_swing(period_s: int) -> None:
    """Five-fold and back all the time: it settles for the peaks and stays there."""
    site = Site(with_policy(), task_s=5)
    half = period_s // 2
    site.play(([5] * half + [1] * half) * (300 // period_s))
    settled = len(site.scaled)
    site.play(([5] * half + [1] * half) * (300 // period_s))
    assert len(site.scaled) - settled <= 1, [one.cards for one in site.scaled]


@pytest.mark.parametrize("seed", range(3))
def test_random_arrivals_around_a_mean_change_the_number_seldom(seed: int) -> None:
    dice = Random(seed)
    site = Site(with_policy())
    site.play([dice.choice([0, 0, 1, 2, 2]) for _ in range(400)])
    settled = len(site.scaled)
    site.play([dice.choice([0, 0, 1, 2, 2]) for _ in range(1200)])
    turns = sum(one.reason is not other.reason for one, other in pairwise(site.scaled[settled:]))
    assert len(site.scaled) - settled <= 8, [one.cards for one in site.scaled]
    assert turns <= 6


def test_a_slow_swing_is_followed_with_few_steps_a_period() -> None:
    site = Site(with_policy())
    for _ in range(2):
        site.play([3] * 160)
        site.play([1] * 160)
    assert len(site.scaled) <= 2 * 12
    assert max(event.cards for event in site.scaled) >= 15


def test_cards_that_drain_get_nothing_new() -> None:
    site = Site(with_policy())
    site.play([4] * 200)
    site.play([0] * 30)
    yard = site.pools.state.yard(A)
    site.pools.drain(min(yard.fresh).split("/")[2])
    draining = {
        key
        for key, row in site.pools.state.rows.items()
        if isinstance(row, RunnerRow) and row.draining
    }
    before = {
        key
        for key, row in site.pools.state.rows.items()
        if isinstance(row, LeaseRow) and f"runner/A/{row.runner_id}" in draining
    }
    site.pools.enqueue("one-more")
    after = {
        key
        for key, row in site.pools.state.rows.items()
        if isinstance(row, LeaseRow) and f"runner/A/{row.runner_id}" in draining
    }
    assert after <= before


def test_work_is_packed_by_card_and_none_is_over_full() -> None:
    """Ten cards of four slots and forty tasks: each has its four, whatever the node's sum says."""
    site = Site(with_policy(None))
    for number in range(10):
        site.pools.register(f"r{number}", slots=SLOTS)
    site.pools.register("half", slots=SLOTS)
    site.pools.register("half", slots=SLOTS // 2)
    site.play([60, 0, 0])
    yard = site.pools.state.yard(A)
    assert site.used_max == SLOTS
    assert yard.used_of("runner/A/half") == SLOTS // 2
    assert sum(yard.used.values()) == 10 * SLOTS + SLOTS // 2


# --- laws -----------------------------------------------------------------------------------------


@given(wait_ms=st.integers(min_value=0, max_value=10**9))
def test_a_class_holds_its_waits_and_is_at_most_a_quarter_wide(wait_ms: int) -> None:
    number = class_of(wait_ms)
    assert wait_ms <= longest_of(number) <= max(wait_ms * 5 // 4, wait_ms + 1)
    assert class_of(longest_of(number)) == number
    assert class_of(longest_of(number) + 1) == number + 1


def test_a_number_that_does_not_follow_raises() -> None:
    pools = with_policy()
    pools.register()
    pools.tick()
    for cards, before in ((5, 3), (1, 1)):
        event = e.PoolScaled(
            event_id=EventId("x.0"),
            seq=pools.state.pool(A).seq + 1,
            at=pools.now.at,
            pool_id=A,
            cards=cards,
            cards_before=before,
            reason=ScaleReason.DEMAND,
            demand_card_seconds=0,
            wait_p95_ms=0,
            oldest_wait_ms=0,
        )
        with pytest.raises(ImpossibleEventError):
            evolve(pools.state, event, pools.now)


@given(
    arrivals=st.lists(st.integers(min_value=0, max_value=9), min_size=20, max_size=120),
    slots_s=st.integers(min_value=1, max_value=40),
    floor=st.integers(min_value=0, max_value=3),
    budget=st.integers(min_value=0, max_value=6),
)
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_whatever_comes_the_number_keeps_its_bounds_and_its_pace(
    arrivals: list[int], slots_s: int, floor: int, budget: int
) -> None:
    scaling = ScalingPolicy(
        cards_min=floor,
        cards_max=8,
        budget_cards=budget,
        wait_target_seconds=3,
        cooldown_seconds=7,
        down_seconds=9,
        look_back_seconds=5,
        horizon_seconds=20,
    )
    site = Site(with_policy(scaling), task_s=slots_s)
    ceiling = min(8, max(budget, floor)) if budget else 8
    for count in [1, *arrivals]:
        before = len(site.scaled)
        site.play([count])
        assert floor <= site.wanted <= ceiling
        assert len(site.scaled) - before <= 1
    for event in site.scaled:
        assert event.cards != event.cards_before
        step = max(event.cards_before // 2, 1)
        if event.reason is not ScaleReason.BOUNDS:
            assert abs(event.cards - event.cards_before) <= step
        assert (event.reason is ScaleReason.DEMAND) == (
            event.cards > event.cards_before and event.reason is not ScaleReason.BOUNDS
        )
    site.pools.check()
    folded = site.pools.folded()
    assert folded.rows == site.pools.state.rows


def test_a_partition_says_nothing_of_the_cards_of_a_pool_that_another_one_has() -> None:
    pools = Pools(adopted=False)
    for version, half_life in ((1, 600), (2, 60)):
        names = ("A", "B")
        pools.publish(policy(version, names, scaling=SCALING, half_life_seconds=half_life))
        events = settle(pools.state, pools.named("tick"), pools.now, [A]).events
        assert {event.pool_id for event in events if isinstance(event, e.PoolScaled)} == {A}
        pools.state.rollback()
    assert pools.state.pools == [A]


def test_an_idle_pool_shrinks_though_the_policy_cuts_its_time_into_longer_parts() -> None:
    short = replace(SCALING, look_back_seconds=10, down_seconds=10)
    pools = with_policy(short)
    for number in range(8):
        pools.register(f"r{number}", slots=SLOTS)
    pools.tick(1000)
    for number in range(8 * SLOTS):
        pools.enqueue(f"t{number}")
    for key in [key for held in pools.state.yard(A).leases.values() for key in held]:
        lease = pools.state.lease(key)
        assert lease is not None
        task = key.split("/")[2]
        pools.accepted(task, runner=lease.runner_id)
        pools.ended(task, runner=lease.runner_id)
    wanted = pools.state.scale(A)
    assert wanted is not None
    assert wanted.cards == 8
    numbers: dict[str, Any] = {
        "slots_per_card": SLOTS,
        "lease_seconds": 10**6,
        "beat_seconds": 10**5,
    }
    longer = replace(SCALING, look_back_seconds=600, down_seconds=60)
    pools.publish(policy(2, scaling=longer, **numbers))
    for _ in range(5):
        pools.tick(61_000)
    wanted = pools.state.scale(A)
    assert wanted is not None
    assert wanted.cards == SCALING.cards_min
