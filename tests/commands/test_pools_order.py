"""Who is picked next: lanes and their floors, shares of card time, places, deadlines, limits."""

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.pools.order import AGE_EVERY, next_lane
from commands.pools.rows import LANES, share_key
from commands.pools.shares import FREE_TASKS, NOTHING, SCALE, Share, amount, charged, returned
from schema import commands as c
from schema.ids import AccountId
from schema.policy import LanePolicy
from schema.words import Lane, Scene
from tests.support.pools import A, policy
from tests.support.shop import FOREVER, RUN_MS, Shop

# --- lanes ----------------------------------------------------------------------------------------


def test_better_lanes_go_first_and_each_waiting_lane_gets_its_floor() -> None:
    lanes = {
        Lane.P0: LanePolicy(),
        Lane.P1: LanePolicy(floor_picks=5),
        Lane.P2: LanePolicy(floor_picks=20),
    }
    shop = Shop(lanes=lanes)
    shop.hold()
    for lane in LANES:
        for number in range(100):
            shop.come(f"{lane}-{number:03d}", lane=lane)
    picked = [task[:2] for task in shop.work(100)]
    for first in range(len(picked) - 20):
        assert "p1" in picked[first : first + 5]
        assert "p2" in picked[first : first + 20]
    assert Counter(picked) == {"p0": 75, "p1": 20, "p2": 5}


def test_a_lane_without_a_floor_gets_what_better_lanes_leave() -> None:
    lanes = dict.fromkeys(LANES, LanePolicy(floor_picks=0))
    shop = Shop(lanes=lanes)
    shop.hold()
    for lane in reversed(LANES):
        for number in range(30):
            shop.come(f"{lane}-{number:02d}", lane=lane)
    picked = shop.work(90)
    assert picked == sorted(picked)


FLOORS = st.one_of(st.just(0), st.integers(min_value=6, max_value=40))


@given(st.tuples(FLOORS, FLOORS, FLOORS))
def test_no_waiting_lane_is_passed_over_longer_than_its_floor(floors: tuple[int, int, int]) -> None:
    passed, picked = [0, 0, 0], list[int]()
    for _ in range(200):
        lane = next_lane((0, 1, 2), passed, floors)
        picked.append(lane)
        passed = [count + 1 for count in passed]
        passed[lane] = 0
    for lane, floor in enumerate(floors):
        if floor:
            at = [-1, *(number for number, one in enumerate(picked) if one == lane)]
            assert all(after - before <= floor for before, after in pairwise(at))


# --- shares ---------------------------------------------------------------------------------------


def test_a_burst_of_one_account_does_not_push_the_others() -> None:
    """A small account waits about as long as if the big one had the same few tasks."""
    shop = Shop(slots=4)
    shop.hold()
    for number in range(400):
        shop.come(f"big-{number:03d}", "t-big")
    shop.work(80)
    for number in range(10):
        shop.come(f"small-{number}", "t-small")
        shop.work(8)
    waits = [shop.waited_ms[f"small-{number}"] for number in range(10)]
    assert max(waits) <= RUN_MS


@pytest.mark.parametrize("weight", [1, 2, 4])
def test_accounts_that_wait_share_card_time_by_their_weights(weight: int) -> None:
    shop = Shop(slots=3, tenant_weights={"t-a": weight})
    shop.hold()
    for number in range(300):
        shop.come(f"b-{number:03d}", "t-b")
    for number in range(300):
        shop.come(f"a-{number:03d}", "t-a")
    shop.work(280)
    share = shop.had_ms["t-a"] / (shop.had_ms["t-a"] + shop.had_ms["t-b"])
    assert abs(share - weight / (1 + weight)) < 0.05


def test_accounts_that_had_little_are_served_as_they_come() -> None:
    """Who had one task before does not wait behind all who come for the first time after him."""
    shop = Shop()
    for number in range(5):
        shop.come(f"before-{number}", f"u-{number}")
    shop.work()
    shop.hold()
    for number in range(5):
        shop.pools.served_ms += 1
        shop.come(f"again-{number}", f"u-{number}")
        shop.pools.served_ms += 1
        shop.come(f"new-{number}", f"u-new-{number}")
    picked = shop.work(10)
    assert picked == [f"{word}-{number}" for number in range(5) for word in ("again", "new")]


def test_what_counts_as_little_follows_the_policy() -> None:
    shop = Shop()
    for number in range(2 * FREE_TASKS):
        shop.come(f"a-before-{number}", "t-a")
    shop.work()
    shop.hold()
    shop.come("a", "t-a")
    shop.pools.served_ms += 1
    shop.come("b", "t-b")
    first = shop.pools.state.next_task(A, shop.pools.served_ms)
    assert first is not None
    assert first.endswith("/b")
    longer = policy(2, expected_seconds=100, lease_seconds=FOREVER, beat_seconds=FOREVER - 1)
    shop.pools.publish(longer)
    first = shop.pools.state.next_task(A, shop.pools.served_ms)
    assert first is not None
    assert first.endswith("/a")
    shop.pools.check()


def test_it_is_card_time_that_is_shared_not_picks() -> None:
    """One account's tasks take five times as long: it starts a fifth as many."""
    shop = Shop(slots=4)
    shop.hold()
    for number in range(250):
        shop.come(f"long-{number:03d}", "t-long")
        shop.come(f"short-{number:03d}", "t-short")
    had = Counter[str]()
    for _ in range(250):
        end_ms, task, token = shop.running[0]
        del end_ms, token
        had[shop.account_of[task]] += 1
        before = len(shop.picked)
        shop.finish()
        for one in shop.picked[before:]:
            if shop.account_of[one] == "t-long":
                shop.running = sorted(
                    (end + 4 * RUN_MS, name, number) if name == one else (end, name, number)
                    for end, name, number in shop.running
                )
    assert 3 < had["t-short"] / had["t-long"] < 6


def test_a_new_burst_pays_at_once_when_it_is_proposed_not_when_it_ends() -> None:
    shop = Shop(slots=6)
    for number in range(2 * FREE_TASKS):
        for account in "ab":
            shop.come(f"{account}-before-{number:02d}", f"t-{account}")
    shop.work()
    shop.hold()
    for account in "ab":
        for number in range(20):
            shop.come(f"{account}-{number:02d}", f"t-{account}")
    assert Counter(task[0] for task in shop.work(6)) == {"a": 3, "b": 3}


def test_what_was_had_long_ago_counts_for_little() -> None:
    shop = Shop(half_life_seconds=60)
    for number in range(30):
        shop.come(f"old-{number:02d}", "t-old")
    shop.work()
    shop.pools.served_ms += 9 * 60_000
    shop.hold()
    for number in range(20):
        shop.come(f"again-{number:02d}", "t-old")
        shop.come(f"new-{number:02d}", "t-new")
    assert Counter(task.split("-")[0] for task in shop.work(20)) == {"again": 10, "new": 10}


def test_what_was_had_is_forgotten_in_the_end() -> None:
    shop = Shop(half_life_seconds=60)
    for number in range(20):
        shop.come(f"t-{number:02d}", f"u-{number:02d}")
    shop.work()
    assert shop.pools.state.yard(A).shares == 20
    shop.pools.served_ms += 11 * 60_000
    for number in range(12):
        shop.come(f"late-{number:02d}", "u-late")
    shop.work()
    assert shop.pools.state.yard(A).shares == 1
    shop.pools.check()


def test_a_slot_that_was_not_used_costs_its_account_nothing() -> None:
    shop = Shop()
    shop.come("t", "t-a")
    key = share_key(A, Lane.P1, AccountId("t-a"))
    assert shop.pools.state.share(key) is not None
    shop.pools.task_says(c.RefuseAttempt, "t", reason="task_not_queued")
    assert shop.pools.state.share(key) is None


def test_another_half_life_begins_anew() -> None:
    shop = Shop()
    shop.come("t", "t-a")
    shop.work()
    assert shop.pools.state.yard(A).shares == 1
    shop.pools.publish(policy(version=2, half_life_seconds=60))
    assert shop.pools.state.yard(A).shares == 0
    shop.pools.check()


def test_a_pool_that_the_policy_names_no_more_begins_anew_and_so_when_it_is_named_again() -> None:
    shop = Shop(half_life_seconds=10)
    yard = shop.pools.state.yard(A)
    shop.come("t")
    shop.come("u")
    assert yard.shares == 1
    shop.pools.publish(policy(2, pools=("B",)))
    assert yard.shares == 0
    shop.work(1)
    assert yard.shares == 1
    shop.pools.publish(policy(3, half_life_seconds=10))
    assert yard.shares == 0
    shop.pools.check()


TIMES = st.integers(min_value=0, max_value=10**8)


@given(
    st.lists(st.tuples(TIMES, st.integers(min_value=1, max_value=10**7)), max_size=30),
    st.integers(min_value=10**5 + 1, max_value=10**8),
)
def test_a_share_is_the_halved_sum_of_its_charges(
    charges: list[tuple[int, int]], half_life_ms: int
) -> None:
    share, now_ms = NOTHING, 0
    for at_ms, units in sorted(charges):
        share, now_ms = charged(share, units * SCALE, at_ms, half_life_ms), at_ms
    epoch, rest = divmod(now_ms, half_life_ms)
    unit = 2.0**epoch * (1 + rest / half_life_ms)
    found = share.value / SCALE * 2.0**share.epoch / unit
    wanted = sum(
        units * 2.0 ** (at // half_life_ms) * (1 + at % half_life_ms / half_life_ms) / unit
        for at, units in charges
    )
    assert found == pytest.approx(wanted, rel=0.001, abs=1)


@given(TIMES, st.integers(min_value=0, max_value=10**7), st.integers(min_value=0, max_value=10**6))
def test_a_charge_taken_back_at_once_leaves_what_was_there(
    at_ms: int, units: int, before: int
) -> None:
    share = Share(at_ms // 600_000, before)
    again = returned(charged(share, units, at_ms, 600_000), units, at_ms, 600_000)
    assert again == share


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 10**12)), min_size=2, max_size=2))
def test_the_place_of_a_share_sorts_as_its_value(pair: list[tuple[int, int]]) -> None:
    one, other = (Share(epoch, value) for epoch, value in pair)
    exact = (one.value << one.epoch) - (other.value << other.epoch)
    if exact < 0:
        assert one.place <= other.place
    elif exact > 0:
        assert one.place >= other.place
    else:
        assert one.place == other.place


def test_twice_the_weight_is_half_the_charge() -> None:
    assert amount(1000, 1) == 2 * amount(1000, 2)


# --- places ---------------------------------------------------------------------------------------


def test_inside_an_account_weight_puts_a_task_back_by_ten_seconds_and_ties_go_by_arrival() -> None:
    shop = Shop()
    shop.hold()
    shop.come("heavy", weight=2)
    shop.pools.served_ms += 19_999
    shop.come("before")
    shop.pools.served_ms += 1
    shop.come("tie")
    shop.pools.served_ms += 1
    shop.come("after")
    shop.come("after-too")
    assert shop.work(5) == ["before", "heavy", "tie", "after", "after-too"]


def test_one_pick_in_eight_goes_to_the_best_place_whatever_the_shares() -> None:
    """An account that has had much does not starve beside others that come anew and anew."""
    shop = Shop()
    for number in range(40):
        shop.come(f"much-{number:02d}", "t-much")
    shop.work(20)
    shop.picked.clear()
    for number in range(64):
        shop.come(f"new-{number:02d}", f"u-{number:02d}")
        shop.work(1)
    assert Counter(task.split("-")[0] for task in shop.picked) == {"new": 56, "much": 8}


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), min_size=30, max_size=60
    )
)
def test_the_best_place_of_a_lane_is_picked_within_eight_picks(
    tasks: list[tuple[int, int, bool]],
) -> None:
    shop = Shop()
    shop.hold()
    waiting = dict[str, int]()
    for number, (account, weight, dated) in enumerate(tasks):
        name = f"t{number:02d}"
        deadline_ms = 25_000 if dated else None
        shop.come(name, f"u-{account}", weight=weight, deadline_ms=deadline_ms)
        waiting[name] = weight * 10_000 * 100 + number
    passed, best = 0, min(waiting, key=waiting.__getitem__)
    while waiting:
        (picked,) = shop.work(1)
        del waiting[picked]
        passed = 0 if picked == best else passed + 1
        assert passed < AGE_EVERY
        best = min(waiting, key=waiting.__getitem__, default="")


# --- deadlines ------------------------------------------------------------------------------------


def test_a_task_whose_latest_start_is_near_goes_first_in_its_lane() -> None:
    shop = Shop()
    shop.hold()
    for number in range(6):
        shop.come(f"plain-{number}")
    shop.come("dated", deadline_ms=110_000)  # to start within 90 s
    shop.come("sooner", deadline_ms=85_000)
    assert shop.work(5) == ["plain-0", "plain-1", "sooner", "dated", "plain-2"]


def test_a_deadline_that_cannot_be_met_any_more_pushes_nobody() -> None:
    shop = Shop()
    shop.hold()
    for number in range(3):
        shop.come(f"plain-{number}")
    shop.come("hopeless", deadline_ms=RUN_MS - 1)
    assert shop.work(4) == ["plain-0", "plain-1", "plain-2", "hopeless"]
    shop.pools.check()


def test_a_deadline_moves_no_lane() -> None:
    shop = Shop()
    shop.hold()
    shop.come("dated", lane=Lane.P2, deadline_ms=RUN_MS + 1)
    shop.come("better", lane=Lane.P1)
    assert shop.work(2) == ["better", "dated"]


# --- limits ---------------------------------------------------------------------------------------


def test_a_model_at_its_cap_waits_and_lets_the_others_pass() -> None:
    shop = Shop(slots=4, model_caps={"xl": 2})
    for number in range(5):
        shop.come(f"xl-{number}", model="xl")
    shop.come("yy-0")
    shop.come("yy-1", model="other")
    assert shop.picked == ["xl-0", "xl-1", "yy-0", "yy-1"]
    assert shop.work(2) == ["xl-2", "xl-3"]
    assert shop.pools.free == 0
    shop.work(2)
    assert shop.pools.free == 2
    assert shop.pools.state.assignable(A, shop.pools.served_ms) is None
    shop.pools.check()


def test_a_raised_cap_lets_those_start_that_waited_for_it() -> None:
    shop = Shop(slots=4, model_caps={"xl": 1})
    for number in range(4):
        shop.come(f"xl-{number}", model="xl")
    assert shop.picked == ["xl-0"]
    caps: dict[str, Any] = {"lease_seconds": 10**6, "beat_seconds": 10**5, "model_caps": {"xl": 3}}
    shop.note(shop.pools.publish(policy(version=2, **caps)))
    assert shop.picked == ["xl-0", "xl-1", "xl-2"]


def test_one_account_gets_its_share_of_the_slots_while_others_wait() -> None:
    shop = Shop(slots=4, tenant_share=0.5)
    for number in range(8):
        shop.come(f"a-{number}", "t-a")
    assert shop.picked == ["a-0", "a-1", "a-2", "a-3"]  # nobody else waits
    shop.come("b-0", "t-b", lane=Lane.P2)
    shop.come("b-1", "t-b", lane=Lane.P2)
    shop.come("b-2", "t-b", lane=Lane.P2)
    assert shop.work(2) == ["b-0", "b-1"]
    assert shop.work(2) == ["a-4", "a-5"]
    assert shop.work(2) == ["a-6", "a-7"]
    assert shop.work(1) == ["b-2"]
    shop.pools.check()


def test_more_slots_are_more_for_each_account() -> None:
    shop = Shop(slots=2, tenant_share=0.5)
    shop.come("a-0", "t-a")
    shop.come("b-0", "t-b")
    for number in range(1, 4):
        shop.come(f"a-{number}", "t-a")
        shop.come(f"b-{number}", "t-b")
    shop.note(shop.pools.register(slots=6))
    assert Counter(task[0] for task in shop.picked) == {"a": 3, "b": 3}
    shop.pools.check()


def test_work_of_another_scene_of_an_account_shares_with_it() -> None:
    """An account is one account whatever it has made."""
    shop = Shop()
    shop.hold()
    for number in range(30):
        shop.come(f"a-{number:02d}", "t-a", scene=(Scene.GENAI, Scene.SMART)[number % 2])
        shop.come(f"b-{number:02d}", "t-b", scene=Scene.GENAI)
    assert Counter(task[0] for task in shop.work(30)) == {"a": 15, "b": 15}


# --- whatever callers name ------------------------------------------------------------------------


def test_models_that_nobody_caps_stand_in_one_line_however_many_are_named() -> None:
    shop = Shop(model_caps={"xl": 1})
    shop.hold()
    for number in range(300):
        shop.come(f"t{number:03d}", model=f"made-up-{number}", lane=LANES[number % 3])
    shop.come("capped", model="xl")
    waiting = shop.pools.state.yard(A).waiting
    assert [len(lines) for lines in waiting.lines] == [1, 2, 1]
    row = shop.pools.waits("t000")
    assert row is not None
    assert row.model == "made-up-0"
    shop.pools.check()


def test_a_model_that_is_capped_while_its_tasks_wait_is_capped_for_them_too() -> None:
    shop = Shop(slots=4)
    shop.hold()
    for number in range(4):
        shop.come(f"xl-{number}", model="xl")
        shop.come(f"yy-{number}", model="other")
    numbers: dict[str, Any] = {"lease_seconds": FOREVER, "beat_seconds": FOREVER - 1}
    shop.pools.publish(policy(2, model_caps={"xl": 1}, **numbers))
    shop.pools.check()
    assert shop.work(4) == ["xl-0", "yy-0", "yy-1", "yy-2"]
    shop.note(shop.pools.publish(policy(3, model_caps={"other": 1}, **numbers)))
    shop.pools.check()
    assert shop.work(3) == ["xl-1", "xl-2", "xl-3"]
    assert shop.work(1) == ["yy-3"]


@given(st.integers(min_value=0, max_value=10**9))
@settings(max_examples=20)
def test_whatever_models_come_and_are_capped_a_rebuilt_order_is_the_same(seed: int) -> None:
    random, shop = Random(seed), Shop(slots=3, preemptible=True)
    numbers: dict[str, Any] = {
        "lease_seconds": FOREVER,
        "beat_seconds": FOREVER - 1,
        "preemptible": True,
    }
    for step in range(60):
        match random.randrange(8):
            case 0:
                caps = {name: random.randrange(1, 3) for name in "abc" if random.random() < 0.5}
                shop.note(shop.pools.publish(policy(2 + step, model_caps=caps, **numbers)))
            case 1 | 2 | 3 if shop.running:
                shop.finish()
            case _:
                lane, model = random.choice(LANES), random.choice(["", "a", "b", "c", "d"])
                shop.come(f"t{step}", f"u-{random.randrange(3)}", lane, model=model)
        shop.pools.check()
