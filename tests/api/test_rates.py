"""The rate hint: it never refuses what the decider would grant, and needs no Redis to work."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from api.rates import RateHint
from schema.events import Window
from schema.ids import CommandId, TaskId, UserId
from schema.refusals import Refusal
from schema.replies import Accepted, Refused, Remaining
from schema.words import Scene

LIMIT = 5
KEY = (UserId("u" * 20 + "000001"), Scene.REHEARSAL)
START = 1_800_000_000 // 60 * 60


class Counters:
    """Counters that several instances share."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.rounds = 0

    async def add(self, counts: Mapping[str, int], seconds: int) -> dict[str, int]:
        assert seconds >= 60
        self.rounds += 1
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        return {name: self.counts[name] for name in counts}


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = float(START + 1)

    def __call__(self) -> float:
        return self.now


def _remaining(minute: int, clock: Clock) -> Remaining:
    start = datetime.fromtimestamp(clock.now // 60 * 60, UTC)
    window = Window(start=start, end=start + timedelta(minutes=1))
    return Remaining(
        minute=minute,
        day=100,
        credits_micros=1,
        minute_window=window,
        day_window=window,
        month_window=window,
    )


def _granted(minute_left: int, clock: Clock) -> Accepted:
    return Accepted(
        command_id=CommandId("c"),
        key="",
        at=datetime.now(UTC),
        seq=1,
        remaining=_remaining(minute_left, clock),
    )


def _grant(rates: RateHint, clock: Clock, name: str, left: int) -> None:
    rates.learn(KEY, TaskId(name), _granted(left, clock), LIMIT)


async def test_the_limit_is_refused_until_the_minute_ends() -> None:
    clock = Clock()
    rates = RateHint(Counters(), clock)
    for n in range(LIMIT):
        assert rates.resets_at(KEY, TaskId(f"t{n}"), LIMIT) is None
        _grant(rates, clock, f"t{n}", LIMIT - n - 1)
    assert rates.resets_at(KEY, TaskId("new"), LIMIT) == datetime.fromtimestamp(START + 60, UTC)
    assert rates.resets_at((KEY[0], Scene.SMART), TaskId("new"), LIMIT) is None
    clock.now += 60
    assert rates.resets_at(KEY, TaskId("new"), LIMIT) is None


async def test_asking_again_for_a_granted_task_is_no_new_submission() -> None:
    clock = Clock()
    rates = RateHint(Counters(), clock)
    for _ in range(3):
        for n in range(LIMIT):
            _grant(rates, clock, f"t{n}", LIMIT - n - 1)
    assert rates.resets_at(KEY, TaskId("t0"), LIMIT) is None
    assert rates.resets_at(KEY, TaskId("t9"), LIMIT) is not None


async def test_what_another_instance_granted_counts_after_a_merge() -> None:
    clock, shared = Clock(), Counters()
    here, there = RateHint(shared, clock), RateHint(shared, clock)
    # As if each heard only of its own: the decider's figure would tell more.
    for n in range(3):
        _grant(here, clock, f"h{n}", LIMIT - n - 1)
        _grant(there, clock, f"t{n}", LIMIT - n - 1)
    assert here.resets_at(KEY, TaskId("new"), LIMIT) is None
    await here.merge()
    await there.merge()
    assert there.resets_at(KEY, TaskId("new"), LIMIT) is not None


async def test_the_deciders_own_figure_knows_of_every_instance() -> None:
    clock = Clock()
    rates = RateHint(Counters(), clock)
    _grant(rates, clock, "mine", 0)
    assert rates.resets_at(KEY, TaskId("new"), LIMIT) is not None


async def test_a_refusal_by_rate_closes_the_minute() -> None:
    clock = Clock()
    rates = RateHint(Counters(), clock)
    refused = Refused(
        command_id=CommandId("c"),
        key="",
        at=datetime.now(UTC),
        reason=Refusal.RATE_EXCEEDED,
        remaining=_remaining(0, clock),
    )
    rates.learn(KEY, TaskId("t"), refused, LIMIT)
    assert rates.resets_at(KEY, TaskId("new"), LIMIT) is not None


async def test_many_grants_are_one_round_trip_and_small_counts_none() -> None:
    clock, shared = Clock(), Counters()
    rates = RateHint(shared, clock)
    rates.learn(KEY, TaskId("a"), _granted(999, clock), 1_000)
    await rates.merge()
    assert shared.rounds == 0
    for n in range(300):
        rates.learn(KEY, TaskId(f"t{n}"), _granted(999 - n, clock), 1_000)
    await rates.merge()
    assert shared.rounds == 1
