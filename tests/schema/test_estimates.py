"""Estimates of waiting: against arithmetic by hand, and against a queue that is played through."""

import heapq
import math
import random
from collections import deque
from statistics import median
from typing import NamedTuple

import pytest

from schema.estimates import (
    SMALL_MAX,
    Load,
    ahead_of,
    seconds_until_room,
    seconds_until_wait,
    wait_seconds,
)
from schema.words import Lane

P0, P1, P2 = Lane


def load(  # noqa: PLR0913 - one number each
    *,
    waiting: dict[Lane, int] | None = None,
    slots: int = 10,
    used: int = 10,
    held_seconds: float = 20.0,
    paused: frozenset[Lane] = frozenset(),
    floors: dict[Lane, int] | None = None,
    arrivals: dict[Lane, float] | None = None,
    freed: float | None = None,
) -> Load:
    return Load(
        slots=slots,
        used=used,
        held_seconds=held_seconds,
        waiting=waiting or {},
        paused=paused,
        floors=floors or {},
        arrivals_per_second=arrivals or {},
        freed_per_second=freed,
    )


def test_a_task_that_finds_a_free_slot_does_not_wait() -> None:
    assert wait_seconds(load(used=9), P2) == 0
    assert wait_seconds(load(used=7, waiting={P1: 2}), P1) == 0


def test_without_other_lanes_it_is_the_queue_over_the_rate() -> None:
    assert wait_seconds(load(waiting={P1: 99}), P1) == pytest.approx(200)


def test_a_measured_rate_beats_the_expected_one() -> None:
    assert wait_seconds(load(waiting={P1: 99}, freed=1.0), P1) == pytest.approx(100)


def test_worse_lanes_do_not_count_without_a_floor() -> None:
    assert wait_seconds(load(waiting={P0: 10, P1: 9, P2: 5_000}), P1) == pytest.approx(40)


def test_a_floor_of_a_worse_lane_costs_its_share_while_it_waits() -> None:
    seen = load(waiting={P1: 94, P2: 5_000}, floors={P2: 20})
    assert wait_seconds(seen, P1) == pytest.approx(95 / (0.5 * 0.95))


def test_what_keeps_arriving_in_better_lanes_is_waited_for() -> None:
    seen = load(waiting={P1: 19}, arrivals={P0: 0.3})
    assert wait_seconds(seen, P1) == pytest.approx(20 / 0.2)


def test_better_lanes_are_worked_off_first_while_they_grow() -> None:
    # p0: 10 wait, 0.1 come a second, 0.5 go: empty after 25 s; then p1 has 0.4 a second.
    seen = load(waiting={P0: 10, P1: 19}, arrivals={P0: 0.1})
    assert wait_seconds(seen, P1) == pytest.approx(25 + 20 / 0.4)


def test_a_floor_serves_a_lane_that_better_ones_would_starve() -> None:
    assert wait_seconds(load(waiting={P2: 9}, arrivals={P0: 1.0}), P2) == math.inf
    seen = load(waiting={P0: 500, P2: 9}, arrivals={P0: 1.0}, floors={P2: 20})
    assert wait_seconds(seen, P2) == pytest.approx(10 / 0.025)


def test_nobody_who_serves_and_a_paused_lane_are_never() -> None:
    assert wait_seconds(load(slots=0, used=0), P0) == math.inf
    assert wait_seconds(load(paused=frozenset({P2})), P2) == math.inf


def test_a_paused_lane_is_in_nobodys_way() -> None:
    seen = load(waiting={P0: 1_000, P1: 9}, arrivals={P0: 5.0}, paused=frozenset({P0}))
    assert wait_seconds(seen, P1) == pytest.approx(20)


def test_a_place_in_the_lane_can_be_told() -> None:
    assert wait_seconds(load(waiting={P1: 500}), P1, ahead=4) == pytest.approx(10)


def test_room_comes_when_the_surplus_has_been_picked() -> None:
    assert seconds_until_room(load(waiting={P1: 104}), P1, 100) == pytest.approx(10)
    assert seconds_until_room(load(waiting={P1: 99}), P1, 100) == 0


def test_a_wait_falls_as_time_passes() -> None:
    assert seconds_until_wait(load(waiting={P1: 99}), P1, 180) == pytest.approx(20)
    assert seconds_until_wait(load(waiting={P1: 50}), P1, 180) == 0


class _Played(NamedTuple):
    lane: Lane
    arrived: float
    estimate: float
    waited: float


class _Queue:
    """Slots, three lanes with strict order and floors, a door that refuses p1 beyond a wait."""

    def __init__(self, seed: int, slots: int, wait_max: float) -> None:
        self.random = random.Random(seed)
        self.slots, self.wait_max = slots, wait_max
        self.now = 0.0
        self.running: list[float] = []
        self.lanes: dict[Lane, deque[tuple[float, float]]] = {lane: deque() for lane in Lane}
        self.passed = dict.fromkeys(Lane, 0)
        self.came: dict[Lane, deque[float]] = {lane: deque() for lane in Lane}
        self.freed: deque[float] = deque()
        self.played: list[_Played] = []

    def load(self) -> Load:
        window = 60.0
        for times in (*self.came.values(), self.freed):
            while times and times[0] < self.now - window:
                times.popleft()
        return load(
            slots=self.slots,
            used=len(self.running),
            waiting={lane: len(queue) for lane, queue in self.lanes.items()},
            floors={P1: 20, P2: 20},
            arrivals={lane: len(times) / window for lane, times in self.came.items()},
            freed=len(self.freed) / window if self.now > window and self.freed else None,
        )

    def arrive(self, lane: Lane) -> None:
        estimate = wait_seconds(self.load(), lane)
        if lane is P1 and estimate > self.wait_max:
            return
        self.came[lane].append(self.now)
        self.lanes[lane].append((self.now, estimate))

    def pick(self) -> None:
        while len(self.running) < self.slots:
            waiting = [lane for lane in Lane if self.lanes[lane]]
            if not waiting:
                return
            starved = [lane for lane in waiting if self.passed[lane] >= 19]
            lane = starved[0] if starved else waiting[0]
            for other in waiting:
                self.passed[other] = 0 if other is lane else self.passed[other] + 1
            arrived, estimate = self.lanes[lane].popleft()
            self.played.append(_Played(lane, arrived, estimate, self.now - arrived))
            heapq.heappush(self.running, self.now + self.random.lognormvariate(2.9, 0.4))

    def run(self, rates: dict[Lane, float], until: float) -> None:
        coming = [(self.now + self.random.expovariate(rate), lane) for lane, rate in rates.items()]
        heapq.heapify(coming)
        while self.now < until:
            if self.running and self.running[0] <= coming[0][0]:
                self.now = heapq.heappop(self.running)
                self.freed.append(self.now)
            else:
                self.now, lane = heapq.heappop(coming)
                self.arrive(lane)
                heapq.heappush(coming, (self.now + self.random.expovariate(rates[lane]), lane))
            self.pick()


@pytest.mark.parametrize("seed", range(5))
def test_in_overload_the_median_error_for_p1_is_at_most_a_quarter(seed: int) -> None:
    """Three times what fits, of it a burst of p0 in the middle; p2 bears what the floors leave."""
    queue = _Queue(seed, slots=40, wait_max=180.0)
    capacity = 40 / 20
    for until, p0 in ((900, 0.25), (1_500, 0.6), (2_400, 0.25)):
        rates = {P0: p0 * capacity, P1: 1.2 * capacity, P2: 1.5 * capacity}
        queue.run(rates, until)
    told = [played for played in queue.played if played.lane is P1 and played.waited > 1]
    errors = [abs(played.estimate - played.waited) / played.waited for played in told]
    assert len(told) > 800
    assert median(errors) <= 0.25, f"median error {median(errors):.2f} of {len(told)}"


def test_before_a_small_account_go_the_small_ones_and_few_of_each_large_one() -> None:
    large = {"t-mill": 400, "t-shop": 12}
    assert ahead_of(432, large, "u-ann", {}) == 20 + 2 * SMALL_MAX
    assert ahead_of(432, large, "u-ann", {"u-ann": 2}) == 20 + SMALL_MAX
    assert ahead_of(432, large, "t-mill", {}) == 432
    assert ahead_of(432, large, "t-shop", {}) == 20 + 12 + 13
    assert ahead_of(3, {}, "u-ann", {}) == 3
