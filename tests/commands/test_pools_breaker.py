"""The breaker of a pool and a scene: opens, lets a few through, closes or opens again, exactly."""

from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands.decider import Decision, ImpossibleEventError
from commands.pools import evolve
from commands.pools.breaking import BREAKER_TRANSITIONS, counts_of
from commands.pools.rows import BreakerRow, BreakerState, LeaseRow, Stage, breaker_key
from schema import commands as c
from schema import events as e
from schema.failures import CARD_FAILURES, FailureClass
from schema.ids import CommandId, EventId, PoolId
from schema.policy import BreakerPolicy
from schema.refusals import Refusal
from schema.replies import Accepted, Refused
from schema.words import Lane, LossCause, Scene
from tests.support.pools import A, Pools, of_runner, policy

MINIMUM, WINDOW_MS, OPEN_MS, PROBES = 10, 100_000, 20_000, 2
SHARE = 0.2
BREAKER = BreakerPolicy(
    failure_share_max=SHARE,
    attempts_min=MINIMUM,
    window_seconds=WINDOW_MS // 1000,
    open_seconds=OPEN_MS // 1000,
    probes=PROBES,
)
BAD = FailureClass.CRASHED


def guarded(slots: int = 4, breaker: BreakerPolicy | None = BREAKER) -> Pools:
    pools = Pools()
    pools.publish(policy(2, breaker=breaker, lease_seconds=10**6, beat_seconds=10**5))
    pools.register(slots=slots)
    return pools


def one(pools: Pools, task: str, failure: FailureClass | None = None) -> list[Any]:
    """An attempt from its wait to its end; the kinds of the events of its end."""
    pools.enqueue(task)
    pools.accepted(task)
    return [type(event) for event in pools.ended(task, failure=failure)]


def many(pools: Pools, good: int, bad: int, name: str = "m") -> list[Any]:
    found: list[Any] = []
    for number in range(good + bad):
        found += one(pools, f"{name}{number}", BAD if number >= good else None)
    return found


def state_of(pools: Pools, scene: Scene = Scene.REHEARSAL) -> BreakerState:
    row = pools.state.breaker(A, scene)
    return BreakerState.CLOSED if row is None else row.state


def reset(pools: Pools, reply_to: int | None = None, pool: str = "A") -> Decision[Any]:
    return pools.do(
        c.ResetBreaker(
            command_id=pools.named("x"),
            pool_id=PoolId(pool),
            scene=Scene.REHEARSAL,
            who="op",
            why="mended",
            reply_to=reply_to,
        )
    )


def opened() -> Pools:
    pools = guarded()
    many(pools, MINIMUM - 3, 3)
    assert state_of(pools) is BreakerState.OPEN
    return pools


def half_open() -> Pools:
    pools = opened()
    pools.tick(OPEN_MS)
    assert state_of(pools) is BreakerState.HALF_OPEN
    return pools


# --- opening --------------------------------------------------------------------------------------


def test_too_many_failures_of_enough_attempts_open_it() -> None:
    pools = guarded()
    assert e.BreakerOpened not in many(pools, MINIMUM - 3, 2)
    pools.enqueue("last")
    pools.accepted("last")
    over = pools.task_says(c.EndAttempt, "last", failure=BAD)
    assert [type(event) for event in over.events] == [e.AttemptOver, e.BreakerOpened]
    event = over.events[1]
    assert isinstance(event, e.BreakerOpened)
    assert (event.scene, event.failed, event.counted) == (Scene.REHEARSAL, 3, MINIMUM)
    assert pools.task_says(c.EndAttempt, "last", failure=BAD) == Decision()
    pools.check()


def test_the_share_itself_is_still_allowed() -> None:
    pools = guarded()
    many(pools, MINIMUM - 2, 2)
    assert state_of(pools) is BreakerState.CLOSED


def test_too_few_attempts_say_nothing_even_if_all_failed() -> None:
    pools = guarded()
    many(pools, 0, MINIMUM - 1)
    assert state_of(pools) is BreakerState.CLOSED
    assert e.BreakerOpened in one(pools, "enough", BAD)


def test_what_is_older_than_the_window_counts_no_more() -> None:
    pools = guarded()
    many(pools, 0, MINIMUM - 1)
    pools.tick(WINDOW_MS)
    many(pools, 0, MINIMUM - 1, "later")
    assert state_of(pools) is BreakerState.CLOSED
    row = pools.state.breaker(A, Scene.REHEARSAL)
    assert row is not None
    assert counts_of(row.counts).counted == MINIMUM - 1
    assert len(row.counts) <= 10


@pytest.mark.parametrize("failure", [*FailureClass, None], ids=str)
def test_only_what_a_card_can_be_blamed_for_counts(failure: FailureClass | None) -> None:
    pools = guarded()
    one(pools, "t", failure)
    row = pools.state.breaker(A, Scene.REHEARSAL)
    if failure is None:
        assert row is not None
        assert counts_of(row.counts) == (1, 0)
    elif failure in CARD_FAILURES:
        assert row is not None
        assert counts_of(row.counts) == (1, 1)
    else:
        assert row is None


def test_an_end_that_tells_nothing_does_not_count() -> None:
    """Canceled, lost with its runner, preempted, queued again."""
    pools = guarded()
    for number in range(3 * MINIMUM):
        pools.enqueue(f"t{number}")
        pools.accepted(f"t{number}")
        pools.task_says(c.EndAttempt, f"t{number}")
        pools.runner_says(c.FreeSlot, f"t{number}")
    assert pools.state.breaker(A, Scene.REHEARSAL) is None


def test_an_attempt_that_the_pool_had_given_up_counts_no_more() -> None:
    pools = guarded()
    pools.enqueue("t")
    pools.task_says(c.GrantAttempt, "t")
    pools.tick(10_000)
    assert pools.stage("t") is Stage.LOST
    assert not pools.task_says(c.EndAttempt, "t", failure=BAD).events
    assert pools.state.breaker(A, Scene.REHEARSAL) is None


def test_a_pool_without_a_breaker_counts_nothing() -> None:
    pools = guarded(breaker=None)
    many(pools, 0, 2 * MINIMUM)
    assert pools.state.breaker(A, Scene.REHEARSAL) is None


# --- open -----------------------------------------------------------------------------------------


def test_nothing_of_the_scene_starts_while_it_is_open_and_other_scenes_do() -> None:
    pools = opened()
    pools.enqueue("kept")
    assert pools.waits("kept") is not None
    pools.enqueue("other", scene=Scene.GENAI)
    assert pools.stage("other") is Stage.PROPOSED
    assert not pools.tick(OPEN_MS - 1).decision.events
    pools.check()


def test_what_ran_before_changes_nothing_any_more() -> None:
    pools = guarded()
    pools.enqueue("long")
    pools.accepted("long")
    many(pools, MINIMUM - 3, 3)
    assert state_of(pools) is BreakerState.OPEN
    before = pools.state.breaker(A, Scene.REHEARSAL)
    assert pools.ended("long", failure=BAD)
    assert pools.state.breaker(A, Scene.REHEARSAL) == before


def test_after_its_time_it_is_half_open_by_an_event() -> None:
    pools = opened()
    assert [type(event) for event in pools.tick(OPEN_MS).decision.events] == [e.BreakerHalfOpened]
    assert not pools.tick(10 * OPEN_MS).decision.events
    pools.check()


def test_an_outage_of_thirty_minutes_opens_and_ends_nothing() -> None:
    pools = opened()
    pools.log_ahead += 30 * pools.log_ahead.resolution * 60_000_000
    assert not pools.tick(OPEN_MS - 1).decision.events
    quiet = guarded()
    many(quiet, MINIMUM - 3, 2)
    quiet.log_ahead += 30 * quiet.log_ahead.resolution * 60_000_000
    assert not quiet.tick(1000).decision.events
    assert e.BreakerOpened in one(quiet, "last", BAD)


# --- half open ------------------------------------------------------------------------------------


def test_half_open_lets_so_many_through_at_once_and_no_more() -> None:
    pools = half_open()
    for number in range(PROBES + 2):
        pools.enqueue(f"p{number}")
    assert [pools.stage(f"p{number}") for number in range(PROBES + 2)] == (
        [Stage.PROPOSED] * PROBES + [None] * 2
    )
    pools.check()
    pools.accepted("p0")
    pools.task_says(c.EndAttempt, "p0", failure=FailureClass.INPUT)
    assert pools.stage(f"p{PROBES}") is Stage.PROPOSED, "its slot is not free, but its place is"
    assert state_of(pools) is BreakerState.HALF_OPEN


def test_what_waits_when_it_turns_half_open_is_probed_in_that_step() -> None:
    pools = opened()
    pools.enqueue("waits")
    kinds = [type(event) for event in pools.tick(OPEN_MS).decision.events]
    assert kinds == [e.BreakerHalfOpened, e.SlotProposed]


def test_enough_probes_that_end_well_close_it_and_the_rest_starts() -> None:
    pools = half_open()
    assert e.BreakerClosed not in one(pools, "p0")
    for number in range(1, 5):
        pools.enqueue(f"p{number}")
    pools.accepted("p1")
    over = pools.task_says(c.EndAttempt, "p1", ended_well=True)
    kinds = [type(event) for event in over.events]
    assert kinds[:2] == [e.AttemptOver, e.BreakerClosed]
    closed = over.events[1]
    assert isinstance(closed, e.BreakerClosed)
    assert closed.who == ""
    assert pools.stage("p4") is Stage.PROPOSED or pools.free == 0
    pools.check()


def test_one_failed_probe_opens_it_again_and_the_rest_of_the_probes_count_no_more() -> None:
    pools = half_open()
    for task in ("p0", "p1"):
        pools.enqueue(task)
        pools.accepted(task)
    over = pools.task_says(c.EndAttempt, "p0", failure=BAD)
    again = over.events[1]
    assert isinstance(again, e.BreakerOpened)
    assert (again.failed, again.counted) == (1, 0)
    pools.tick(OPEN_MS)
    assert state_of(pools) is BreakerState.HALF_OPEN
    assert e.BreakerOpened not in [type(event) for event in pools.ended("p1", failure=BAD)]
    assert state_of(pools) is BreakerState.HALF_OPEN
    assert e.BreakerClosed not in one(pools, "q0")
    assert e.BreakerClosed in one(pools, "q1")
    pools.check()


def test_a_probe_that_is_lost_with_its_runner_makes_room_for_another() -> None:
    pools = half_open()
    for number in range(PROBES):
        pools.enqueue(f"p{number}")
    pools.enqueue("next")
    assert pools.waits("next") is not None
    decision = pools.do(
        c.RegisterRunner(command_id=CommandId("again"), slots=4, **of_runner("r", "2"))
    )
    assert e.SlotProposed in [type(event) for event in decision.events]
    assert [one.cause for one in decision.events if isinstance(one, e.SlotLost)] == (
        [LossCause.RUNNER_REPLACED] * PROBES
    )
    assert state_of(pools) is BreakerState.HALF_OPEN
    pools.check()


def test_after_it_closed_it_needs_the_whole_minimum_again() -> None:
    pools = half_open()
    one(pools, "p0")
    one(pools, "p1")
    assert state_of(pools) is BreakerState.CLOSED
    many(pools, 0, MINIMUM - 1, "again")
    assert state_of(pools) is BreakerState.CLOSED
    assert e.BreakerOpened in one(pools, "last", BAD)


# --- by hand, and by policy -----------------------------------------------------------------------


def test_an_operator_closes_it_and_is_answered_told_once_or_twice() -> None:
    pools = opened()
    pools.enqueue("waits")
    decision = reset(pools, 7)
    assert [type(event) for event in decision.events] == [e.BreakerClosed, e.SlotProposed]
    closed = decision.events[0]
    assert isinstance(closed, e.BreakerClosed)
    assert (closed.who, closed.why) == ("op", "mended")
    assert isinstance(decision.reply, Accepted)
    again = reset(pools, 7)
    assert not again.events
    assert isinstance(again.reply, Accepted)
    pools.check()


def test_a_breaker_of_a_pool_that_there_is_not_is_refused() -> None:
    decision = reset(guarded(), 7, pool="Z")
    assert isinstance(decision.reply, Refused)
    assert decision.reply.reason is Refusal.POOL_UNKNOWN


def test_a_policy_without_a_breaker_keeps_nobody_off() -> None:
    pools = opened()
    pools.enqueue("waits")
    free = policy(3, lease_seconds=10**6, beat_seconds=10**5)
    assert e.SlotProposed in [type(event) for event in pools.publish(free).events]
    assert [type(event) for event in pools.tick(OPEN_MS).decision.events] == [e.BreakerClosed]


def test_a_timer_that_waits_behind_a_quarantine_is_left_out() -> None:
    pools = opened()
    pools.served_ms += OPEN_MS
    key = breaker_key(A, Scene.REHEARSAL)
    pools.state.hold(frozenset({key}))
    assert pools.state.due(pools.served_ms) is None
    pools.state.hold(frozenset())
    assert pools.state.due(pools.served_ms) == key
    assert [type(event) for event in pools.due(key).events] == [e.BreakerHalfOpened]


# --- laws -----------------------------------------------------------------------------------------

KINDS: dict[type, dict[str, Any]] = {
    e.BreakerOpened: {"failed": 1, "counted": 1},
    e.BreakerHalfOpened: {},
    e.BreakerClosed: {},
}


@pytest.mark.parametrize(("before", "kind"), list(product(BreakerState, KINDS)), ids=str)
def test_the_table_of_steps_and_evolve_say_the_same(before: BreakerState, kind: Any) -> None:  # noqa: ANN401
    pools = guarded()
    pools.state.put(breaker_key(A, Scene.REHEARSAL), BreakerRow(state=before, until_ms=1))
    event = kind(
        event_id=EventId("x.0"),
        seq=pools.state.pool(A).seq + 1,
        at=pools.now.at,
        pool_id=A,
        scene=Scene.REHEARSAL,
        **KINDS[kind],
    )
    if (before, kind) in BREAKER_TRANSITIONS:
        evolve(pools.state, event, pools.now)
        assert state_of(pools) is BREAKER_TRANSITIONS[(before, kind)]
    else:
        with pytest.raises(ImpossibleEventError):
            evolve(pools.state, event, pools.now)


class Model:
    """The breaker in a few lines: every attempt remembered, nothing clever."""

    def __init__(self) -> None:
        self.state = BreakerState.CLOSED
        self.ends: list[tuple[int, bool]] = []
        self.until_ms = 0
        self.openings = 0
        self.good = 0

    def time(self, served_ms: int) -> None:
        if self.state is BreakerState.OPEN and served_ms >= self.until_ms:
            self.state, self.good = BreakerState.HALF_OPEN, 0

    def open(self, served_ms: int) -> None:
        self.state, self.until_ms = BreakerState.OPEN, served_ms + OPEN_MS
        self.openings += 1
        self.ends = []

    def end(self, served_ms: int, *, failed: bool, opening: int) -> None:
        part_ms = WINDOW_MS // 10
        if self.state is BreakerState.CLOSED:
            self.ends.append((served_ms // part_ms, failed))
            self.ends = [one for one in self.ends if one[0] > served_ms // part_ms - 10]
            bad = sum(failed for _, failed in self.ends)
            if len(self.ends) >= MINIMUM and bad > SHARE * len(self.ends):
                self.open(served_ms)
        elif self.state is BreakerState.HALF_OPEN and opening == self.openings:
            self.good += not failed
            if failed:
                self.open(served_ms)
            elif self.good >= PROBES:
                self.state, self.ends = BreakerState.CLOSED, []


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["good", "good", "bad", "bad", "neutral", "start", "start", "time"]),
            st.integers(min_value=0, max_value=99),
        ),
        min_size=20,
        max_size=150,
    )
)
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_it_does_exactly_what_a_simple_model_does(steps: list[tuple[str, int]]) -> None:
    pools, model = guarded(slots=6), Model()
    tasks = 0
    for kind, number in steps:
        running = sorted(
            key
            for key, row in pools.state.rows.items()
            if isinstance(row, LeaseRow) and row.stage is Stage.PROPOSED
        )
        if kind == "start":
            tasks += 1
            pools.enqueue(f"t{tasks}", lane=Lane(f"p{number % 3}"))
        elif kind == "time":
            pools.tick((1_000, 9_000, OPEN_MS, WINDOW_MS)[number % 4])
            model.time(pools.served_ms)
        elif running:
            key = running[number % len(running)]
            lease = pools.state.lease(key)
            assert lease is not None
            task = key.split("/")[2]
            pools.accepted(task)
            failure = {"bad": BAD, "neutral": FailureClass.INPUT}.get(kind)
            if kind != "neutral":
                model.end(pools.served_ms, failed=kind == "bad", opening=lease.probe)
            pools.ended(task, failure=failure)
        assert state_of(pools) is model.state
        probes = pools.state.yard(A).probes.get((Scene.REHEARSAL, model.openings), 0)
        assert probes <= PROBES
        pools.check()
