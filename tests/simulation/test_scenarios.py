"""What the scenarios are made of: the day's curve, the cards, the policy, the rival."""

import json

import pytest

from processors.simulation import fifo, policies, report
from processors.simulation.crowd import Ask
from processors.simulation.door import NEWS_MS
from processors.simulation.figures import Figures, percentile, share_error
from processors.simulation.play import Play
from processors.simulation.scenarios import NAMES, Curve, Scenario, scenario
from processors.simulation.watch import Waits, Yard
from schema.estimates import SMALL_MAX
from schema.policy import check_policy
from schema.words import Lane


def test_the_cards_are_half_of_what_the_peak_would_need() -> None:
    assert 0.45 <= policies.cards_in_all() / policies.cards_at_peak() <= 0.5
    assert 58 <= policies.mean_card_seconds() <= 62


def test_the_policy_of_the_scenarios_is_one_that_may_be_published() -> None:
    check_policy(policies.policy())
    check_policy(policies.policy(model_caps={"dance": 6}))


def test_the_highest_of_a_day_is_three_times_its_mean() -> None:
    curve = Curve(scenario("day"))
    assert max(curve.factors) == pytest.approx(3.0, rel=0.02)
    assert sum(curve.factors) / len(curve.factors) == pytest.approx(1.0, rel=0.01)
    assert curve.tasks == pytest.approx(policies.TASKS_A_DAY, rel=0.01)


def test_a_festival_multiplies_its_two_hours_and_nothing_else() -> None:
    usual, festive = Curve(scenario("day")), Curve(scenario("festival", 10.0))
    times = [b / a for a, b in zip(usual.factors, festive.factors, strict=True)]
    assert sum(each == pytest.approx(10.0) for each in times) == 120
    assert sum(each == pytest.approx(1.0) for each in times) == len(times) - 120


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_has_a_curve_that_ends_at_one(name: str) -> None:
    assert Curve(scenario(name)).ends[-1] == pytest.approx(1.0)


def test_the_rival_takes_each_on_the_slot_that_is_free_first() -> None:
    asks = [Ask(0, "M", Lane.P2, 10_000)] * 8 + [Ask(1_000, "M", Lane.P0, 1_000)]
    rival = fifo.play(asks, 60_000)
    assert rival.p95(Lane.P2) == 0.0
    assert rival.waits[Lane.P0] == [(1_000, 9.0)]


def test_use_of_the_cards_is_counted_by_card_and_time() -> None:
    figures = Figures(3_600_000)
    figures.use("A", 0, 0, 32)
    figures.use("A", 1_800_000, 32, 32)
    figures.use("A", 3_600_000, 0, 32)
    assert figures.utilisation(pool_id="A") == pytest.approx(0.5)
    assert figures.card_hours() == pytest.approx(4.0)


def test_an_estimate_is_judged_by_what_happened() -> None:
    assert share_error(90.0, 120.0) == pytest.approx(0.25)
    assert share_error(2.0, 0.0) == pytest.approx(0.2)
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_a_short_day_without_faults_is_told_in_one_line_and_on_one_page() -> None:
    played = Play(Scenario("short", seconds=1_200, exactly=60, spot_waves=()), 1, 0.0).run()
    told = json.loads(json.dumps(report.summary(played)))
    assert told["violations"] == 0
    assert told["tasks"] == 60
    assert {"p0_wait_p95_s", "fifo_p1_wait_p95_s", "tasks_per_minute"} <= told.keys()
    assert "<svg" in report.page(played)
    assert played.watch.counts["succeeded"] + played.watch.counts.get("canceled", 0) == 60


def test_the_door_tells_a_burst_its_own_wait_and_others_theirs() -> None:
    """As the product does: what one account piled up is in nobody else's way."""
    rules = policies.policy()
    one = Play(Scenario("door", seconds=600, exactly=1, spot_waves=()), 1, 0.0, rules)
    one.world.now = 100_000
    yard = one.watch.yards["A"] = Yard()
    yard.slots = yard.used = 32
    for _ in range(200):
        yard.wait(Waits(0, 1, "autocut", "", "t-mill", 0), 1)
    one.door.changed("A")
    one.world.now += NEWS_MS
    assert not one.door.judge("A", Lane.P1, "t-mill").accepted
    small = one.door.judge("A", Lane.P1, "u-ann")
    assert small.accepted
    assert small.estimate == pytest.approx((SMALL_MAX + 1) * 80 / 32)
