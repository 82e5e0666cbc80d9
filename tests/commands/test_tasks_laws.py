"""Laws of a task, whatever is told in whatever order, twice, late, or by the wrong one.

Each run is a random sequence of commands, passing time, outages and ticks; at its end stand the
invariants of the domain.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import tasks
from schema import commands as c
from schema import events as e
from schema.codec import TASK_EVENTS, encode
from schema.failures import FailureClass
from schema.ids import CommandId, MaterialId
from schema.replies import DispatchAttempt, StopAttempt
from schema.words import MILESTONES, Lane, LossCause, Status
from tests.support import task_words as w
from tests.support.spec import Outcome, Story

ENDS = (e.TaskSucceeded, e.TaskFailed, e.TaskCanceled, e.TaskExpired)
RESOLVES = (c.CommitReservation, c.ReleaseReservation)
SETTINGS = settings(max_examples=150)

KINDS = (
    *("create", "confirm", "start", "milestone", "store", "finish", "fail", "lose", "give back"),
    *(
        "extend",
        "cancel",
        "expire",
        "requeue",
        "reject",
        "wait",
        "outage",
        "again",
        "again",
        "move",
    ),
    *["sensible"] * 30,
)
SENSIBLE: dict[type[tasks.TaskState], tuple[str, ...]] = {
    tasks.Absent: ("create",),
    tasks.Created: ("confirm", "confirm", "extend"),
    tasks.Queued: ("start", "start", "start", "start", "move now"),
    tasks.Delayed: ("wait",),
    tasks.Running: (
        *("fail", "fail", "fail", "lose", "lose", "lose", "give back", "give back"),
        *("milestone", "milestone", "milestone", "store", "store", "finish", "cancel"),
    ),
    tasks.Storing: ("milestone", "fail", "lose", "give back", "wait", "finish", "cancel"),
    tasks.Succeeded: ("again",),
    tasks.Failed: ("requeue",),
    tasks.Canceled: ("again",),
    tasks.Expired: ("again",),
}
"""What a good citizen would tell next; without it few random lives come far."""
STEP = st.tuples(
    st.sampled_from(KINDS), st.integers(-1, 2), st.integers(0, 59), st.sampled_from((1, 1, 1, 2))
)


@dataclass
class Run:
    """One random life of one task, and what was seen of it."""

    materials: tuple[MaterialId, ...]
    story: Story = field(default_factory=w.world)
    said: list[Any] = field(default_factory=list[Any])
    outcomes: list[tuple[Any, Outcome]] = field(default_factory=list[tuple[Any, Outcome]])
    offered: list[str] = field(default_factory=list[str])

    @property
    def row(self) -> tasks.TaskRow | None:
        return self.story.rows.get(w.TASK)

    def step(self, kind: str, shift: int, draw: int, times: int) -> None:
        if kind == "sensible":
            row = self.row
            wise = SENSIBLE[tasks.Absent if row is None else type(row)]
            kind = wise[draw % len(wise)]
            shift = int(isinstance(row, tasks.Queued) and kind == "start")
        match kind:
            case "wait":
                self.story.after((1 + draw) * 15)
                for outcome in self.story.tick():
                    self.outcomes.append((None, outcome))
                return
            case "outage":
                self.story.after_outage(draw * 1000)
                return
            case "again":
                if self.said:
                    self.tell(self.said[draw % len(self.said)])
                return
            case _:
                command = self.command(kind, shift, draw)
                for _ in range(times):
                    self.tell(command)

    def tell(self, command: Any) -> None:  # noqa: ANN401 - a command
        self.outcomes.append((command, self.story.when(command)))

    def command(self, kind: str, shift: int, draw: int) -> Any:  # noqa: ANN401 - a command
        row = self.row
        current = 0 if row is None else row.token
        token = max(0, current + shift)
        number = len(self.outcomes)
        match kind:
            case "create":
                self.offered.append(f"submit-{number}")
                self.said.append(
                    w.create(*self.materials, reservation=self.offered[-1], lower=draw % 2 == 0)
                )
                return self.said[-1]
            case "requeue":
                self.offered.append(f"retry-{number}")
                self.said.append(w.requeue(self.offered[-1], reply_to=(None, 1)[draw % 2]))
                return self.said[-1]
            case _:
                command = self.report(kind, token, draw)
        named = msgspec.structs.replace(command, command_id=CommandId(f"{kind}-{number}"))
        self.said.append(named)
        return named

    def report(  # noqa: PLR0912 - a branch for each kind
        self, kind: str, token: int, draw: int
    ) -> Any:  # noqa: ANN401 - a command
        failures, losses = tuple(FailureClass), tuple(LossCause)
        match kind:
            case "confirm":
                return w.confirm((w.CLIP, w.LOGO)[draw % 2])
            case "extend":
                return w.extend((w.CLIP, w.LOGO)[draw % 2], draw)
            case "reject":
                return w.reject((w.CLIP, w.LOGO)[draw % 2])
            case "start":
                return w.start(max(1, token), f"gpu-{draw % 3}")
            case "move" | "move now":
                place = ((w.SPARE, Lane.P0), (w.POOL, Lane.P2), (w.POOL, Lane.P0))[draw % 3]
                return w.move(token, *place, lower=draw % 5 == 0)
            case "milestone":
                return w.milestone((*MILESTONES, 0, 55)[draw % 7], token)
            case "store":
                return w.store(token, draw * 1000)
            case "finish":
                return w.finish(token, draw * 10_000)
            case "fail":
                return w.fail(token, failures[draw % len(failures)])
            case "lose":
                return w.lose(token, losses[draw % len(losses)])
            case "give back":
                return w.give_back(token, losses[draw % len(losses)], f"step-{draw}")
            case "cancel":
                return w.cancel(reply_to=(None, 1)[draw % 2])
            case _:
                return w.expire(token)


def lived(materials: tuple[MaterialId, ...], steps: list[tuple[str, int, int, int]]) -> Run:
    run = Run(materials)
    run.step("create", 0, 0, 1)
    for kind, shift, draw, times in steps:
        run.step(kind, shift, draw, times)
    return run


LIFE = st.builds(
    lived,
    st.sampled_from(((), (), (w.CLIP,), (w.CLIP, w.LOGO))),
    st.lists(STEP, min_size=10, max_size=60),
)


@SETTINGS
@given(LIFE)
def test_every_reservation_is_resolved_exactly_once_and_never_charged_beyond(run: Run) -> None:
    """By the end of the task that took it; who offers one that is not held is told to release it.

    That may be told again and again: the account releases once, and what is committed stays so.
    """
    held: str | None = None
    taken: set[str] = set()
    resolved: Counter[str] = Counter()
    given_back: set[str] = set()
    for _, outcome in run.outcomes:
        for event in outcome.events:
            if isinstance(event, e.TaskCreated | e.TaskRetried):
                assert held is None
                assert event.reservation_id not in taken
                held = event.reservation_id
                taken.add(held)
        for order in outcome.decision.orders:
            if not isinstance(order, RESOLVES):
                continue
            if outcome.decision.refusal is not None:
                assert isinstance(order, c.ReleaseReservation)
                assert order.reservation_id != held
                given_back.add(order.reservation_id)
                continue
            assert order.reservation_id == held
            resolved[order.reservation_id] += 1
            if isinstance(order, c.CommitReservation):
                assert order.amount_micros <= w.RESERVED
        if any(isinstance(event, ENDS) for event in outcome.events):
            held = None
    assert resolved == Counter(taken - {held})
    assert taken | given_back == set(run.offered)


@SETTINGS
@given(LIFE)
def test_every_token_that_was_granted_has_its_card_time_in_exactly_one_event(run: Run) -> None:
    """It runs until that event, and no other event of the task counts any card time."""
    token = 0
    started: datetime | None = None
    stored: int | None = None
    for command, outcome in run.outcomes:
        for event in outcome.events:
            match event:
                case e.TaskStarted():
                    assert started is None
                    token, started, stored = event.token, event.at, None
                case e.TaskStoring():
                    stored = event.card_ms
                case e.TaskRequeued() | e.TaskSucceeded() | e.TaskFailed() | e.TaskCanceled():
                    measured = getattr(event, "card_measured", True)
                    assert event.token == token
                    if started is None:
                        assert isinstance(event, e.TaskCanceled)
                        assert (event.card_ms, measured) == (0, True)
                        continue
                    ran_ms = (event.at - started) // timedelta(milliseconds=1)
                    assert (event.card_ms, measured) == _card_time(command, ran_ms, stored)
                    started = None
                case _:
                    assert not hasattr(event, "card_ms")
    assert (started is not None) == isinstance(run.row, tasks.Running | tasks.Storing)


def _card_time(command: Any, ran_ms: int, stored: int | None) -> tuple[int, bool]:  # noqa: ANN401
    """The runner's last word, or (False) the time that it may have been at most."""
    match command:
        case c.FinishAttempt():
            return command.card_ms, True
        case c.FailAttempt() | c.AttemptYielded():
            return max(command.card_ms, stored or 0), True
        case _:
            return (ran_ms, False) if stored is None else (stored, True)


@SETTINGS
@given(LIFE)
def test_there_is_one_start_a_token_and_one_end_a_reservation(run: Run) -> None:
    tokens = [event.token for event in run.story.history if isinstance(event, e.TaskStarted)]
    assert tokens == list(range(1, len(tokens) + 1))
    ends = [event for event in run.story.history if isinstance(event, ENDS)]
    retries = [event for event in run.story.history if isinstance(event, e.TaskRetried)]
    assert len(ends) <= 1 + len(retries)
    for before, after in zip(run.story.history, run.story.history[1:], strict=False):
        if isinstance(before, ENDS):
            assert isinstance(before, e.TaskFailed)
            assert isinstance(after, e.TaskRetried)
    milestones = [
        event.percent for event in run.story.history if isinstance(event, e.TaskProgressed)
    ]
    assert milestones == sorted(set(milestones))
    assert set(milestones) <= set(MILESTONES)


@SETTINGS
@given(LIFE)
def test_retries_and_losses_have_an_end(run: Run) -> None:
    counted = losses = 0
    for event in run.story.history:
        match event:
            case e.TaskRetried():
                counted = losses = 0
            case e.TaskRequeued():
                counted += event.counted
                losses += not event.counted and event.loss is not LossCause.PREEMPTED
                assert (event.loss is None) != (event.failure is None)
                assert counted <= len(w.RETRIES.delays_ms)
                assert losses <= w.RETRIES.losses_max
            case _:
                pass


@SETTINGS
@given(LIFE)
def test_no_order_is_lost(run: Run) -> None:
    for command, outcome in run.outcomes:
        check_orders(command, outcome)


def check_orders(command: Any, outcome: Outcome) -> None:  # noqa: ANN401 - a command
    """What one decision must tell the pool, the runner and the account."""
    orders = outcome.decision.orders

    def ordered(kind: type, **fields: Any) -> bool:  # noqa: ANN401 - fields of any order
        return any(
            type(one) is kind and all(getattr(one, name) == of for name, of in fields.items())
            for one in orders
        )

    for event in outcome.events:
        match event:
            case e.TaskQueued() | e.TaskRetried():
                assert ordered(c.EnqueueTask)
            case e.TaskMoved():
                assert ordered(c.EnqueueTask, pool_id=event.pool_id, lane=event.lane, moved=True)
            case e.TaskStarted():
                assert ordered(c.GrantAttempt, token=event.token)
                assert ordered(DispatchAttempt, token=event.token, runner_id=event.runner_id)
            case e.TaskRequeued() | e.TaskFailed() | e.TaskSucceeded():
                told_by_pool = isinstance(command, c.LoseAttempt)
                assert ordered(c.EndAttempt, token=event.token) != told_by_pool
                stopped = told_by_pool or command is None
                assert ordered(StopAttempt, token=event.token) == stopped
            case e.TaskCanceled():
                ran = isinstance(command, c.CancelTask) and ordered(c.EndAttempt)
                assert ordered(StopAttempt, token=event.token) == ran
            case _:
                pass
        resolved = sum(isinstance(one, RESOLVES) for one in orders)
        assert resolved == sum(isinstance(one, ENDS) for one in outcome.events)
    if isinstance(command, c.StartAttempt) and outcome.decision.refusal is not None:
        assert ordered(c.RefuseAttempt, token=command.token)


@SETTINGS
@given(LIFE)
def test_a_waiting_task_stands_at_its_pool_and_no_other_does(run: Run) -> None:
    at_pool: int | None = None
    place: tuple[str, str] | None = None
    for _, outcome in run.outcomes:
        granted = False
        for order in outcome.decision.orders:
            match order:
                case c.EnqueueTask() if not outcome.events:  # its backstop: it asks again
                    assert (at_pool, place) == (order.token, (order.pool_id, order.lane))
                case c.EnqueueTask():
                    assert at_pool is None
                    at_pool, place = order.token, (order.pool_id, order.lane)
                case c.GrantAttempt():
                    assert at_pool == order.token - 1
                    at_pool, granted = None, True
                case c.DequeueTask():
                    assert granted or at_pool == order.token
                    assert place is not None
                    assert order.pool_id == place[0]
                    at_pool = None
                case _:
                    pass
        if any(isinstance(event, e.TaskExpired) for event in outcome.events):
            at_pool = None
    row = run.row
    assert (at_pool is not None) == isinstance(row, tasks.Queued)
    assert at_pool is None or row is None or at_pool == row.token
    if isinstance(row, tasks.Queued):
        assert (row.spec.pool_id, row.spec.lane) == place


@SETTINGS
@given(LIFE)
def test_a_task_moves_once_and_is_lowered_once(run: Run) -> None:
    moves = [event for event in run.story.history if isinstance(event, e.TaskMoved)]
    lowered = [
        event
        for event in run.story.history
        if isinstance(event, e.TaskMoved | e.TaskRequeued) and event.lower_spec
    ]
    assert len(moves) <= 1
    assert len(lowered) <= 1


@SETTINGS
@given(LIFE)
def test_the_events_alone_lead_to_the_same_task_by_moves_of_the_table(run: Run) -> None:
    state: tasks.TaskState = tasks.INITIAL
    for event in run.story.history:
        read = TASK_EVENTS.decode(encode(event))
        following = tasks.evolve(state, read, 0, w.POLICY)
        assert tasks.TRANSITIONS[type(state), type(read)] is type(following)
        state = following
    row = run.row
    if row is not None:
        assert isinstance(state, type(row))
        assert (row.seq, row.token, row.taken) == (state.seq, state.token, state.taken)


@SETTINGS
@given(LIFE)
def test_left_alone_every_task_comes_to_rest(run: Run) -> None:
    for _ in range(100):
        run.story.after(1000)
        run.story.tick()
    row = run.row
    statuses = (Status.QUEUED, Status.SUCCEEDED, Status.FAILED, Status.CANCELED, Status.EXPIRED)
    assert row is None or tasks.STATUSES[type(row)] in statuses
    assert not isinstance(row, tasks.Delayed)
    run.story.after(8 * 86_400)
    run.story.tick()
    run.story.after(8 * 86_400)
    run.story.tick()
    assert run.row is None or isinstance(run.row, tasks.Queued)
