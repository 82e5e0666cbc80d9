"""Every command in every state, and every event after every state: nothing is left to chance."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from commands import tasks
from commands.decider import ImpossibleEventError
from schema import commands as c
from schema import events as e
from schema.commands import TaskCommand
from schema.failures import FailureClass
from schema.ids import CommandId, EventId, IncarnationId, RunnerId
from schema.refusals import Refusal
from schema.routes import TaskBound
from schema.words import CancelCause, Lane, LossCause, MoveReason, Status
from tests.support import task_words as w
from tests.support.spec import Story, a

# --- every command in every state ---------------------------------------------------------------


def _delayed() -> Story:
    return w.world().given(w.create(), w.start(), w.fail())


def _queued_again() -> Story:
    story = _delayed().after(10)
    story.due().then(e.TaskQueued)
    return story


STATES: dict[str, Callable[[], Story]] = {
    "absent": w.world,
    "created": lambda: w.world().given(w.create(w.CLIP, w.LOGO)),
    "queued": lambda: w.world().given(w.create()),
    "delayed": _delayed,
    "queued again": _queued_again,
    "running": lambda: w.world().given(w.create(), w.start()),
    "storing": lambda: w.world().given(w.create(), w.start(), w.store()),
    "succeeded": lambda: w.world().given(w.create(), w.start(), w.finish()),
    "failed": lambda: w.world().given(
        w.create(), w.start(), w.fail(failure=FailureClass.MODERATION)
    ),
    "canceled": lambda: w.world().given(w.create(), w.start(), w.cancel()),
    "expired": lambda: w.world().given(w.create(), w.expire()),
}
COMMANDS: dict[str, TaskBound] = {
    "create": w.create(),
    "create otherwise": w.create(reservation="submit-2"),
    "requeue": w.requeue(),
    "confirm": w.confirm(),
    "extend": w.extend(),
    "reject": w.reject(),
    "start": w.start(),
    "start next": w.start(2),
    "start too high": w.start(3),
    "move": w.move(),
    "move again": w.move(1),
    "milestone": w.milestone(30),
    "store": w.store(),
    "finish": w.finish(),
    "fail": w.fail(),
    "lose": w.lose(),
    "give back": w.give_back(),
    "cancel": w.cancel(),
    "expire": w.expire(),
    "expire again": w.expire(1),
}
UNKNOWN, ENDED = "task_unknown", "task_ended"
NOT_QUEUED, NOT_RUNNING = "task_not_queued", "task_not_running"
NOT_FAILED = "task_not_failed"
STALE, NOT_NEXT = "token_stale", "token_not_next"
REPORT = (UNKNOWN, NOT_RUNNING, NOT_RUNNING, STALE, STALE)
"""A report of token 1 before RUNNING; once it is over, it is stale."""

# absent, created, queued, delayed, queued again, running, storing,
# succeeded, failed, canceled, expired
TABLE: dict[str, tuple[str, ...]] = {
    "create": ("TaskCreated TaskQueued", *[""] * 6, *["reservation_resolved"] * 4),
    "create otherwise": ("TaskCreated TaskQueued", *["idempotency_conflict"] * 10),
    "requeue": (UNKNOWN, *[NOT_FAILED] * 7, "TaskRetried", NOT_FAILED, NOT_FAILED),
    "confirm": (
        *(UNKNOWN, "TaskMaterialConfirmed", *["material_unknown"] * 5),
        *(ENDED, "material_unknown", ENDED, ENDED),
    ),
    "extend": ("",) * 11,
    "reject": (UNKNOWN, "TaskCanceled", *["task_not_created"] * 5, *[ENDED] * 4),
    "start": (
        *(UNKNOWN, NOT_QUEUED, "TaskStarted", NOT_QUEUED, STALE, "", ""),
        *[ENDED] * 4,
    ),
    "start next": (
        *(UNKNOWN, NOT_QUEUED, NOT_NEXT, NOT_QUEUED, "TaskStarted", NOT_QUEUED, NOT_QUEUED),
        *[ENDED] * 4,
    ),
    "start too high": (
        *(UNKNOWN, NOT_QUEUED, NOT_NEXT, NOT_QUEUED, NOT_NEXT, NOT_QUEUED, NOT_QUEUED),
        *[ENDED] * 4,
    ),
    "move": (UNKNOWN, NOT_QUEUED, "TaskMoved", NOT_QUEUED, STALE, *[NOT_QUEUED] * 2, *[ENDED] * 4),
    "move again": (
        *(UNKNOWN, NOT_QUEUED, NOT_NEXT, NOT_QUEUED, "TaskMoved", NOT_QUEUED, NOT_QUEUED),
        *[ENDED] * 4,
    ),
    "milestone": (*REPORT, "TaskProgressed", "TaskProgressed", *[ENDED] * 4),
    "store": (*REPORT, "TaskStoring", "", *[ENDED] * 4),
    "finish": (*REPORT, "TaskSucceeded", "TaskSucceeded", "", *[ENDED] * 3),
    "fail": (*REPORT[:3], "", "", "TaskRequeued", "TaskRequeued", *[ENDED] * 4),
    "lose": (*REPORT, "TaskRequeued", "TaskRequeued", *[ENDED] * 4),
    "give back": (*REPORT, *["TaskRequeued TaskQueued"] * 2, *[ENDED] * 4),
    "cancel": (UNKNOWN, *["TaskCanceled"] * 6, ENDED, ENDED, "", ENDED),
    "expire": (
        *(UNKNOWN, NOT_QUEUED, "TaskExpired", NOT_QUEUED, STALE, NOT_QUEUED, NOT_QUEUED),
        *(ENDED, ENDED, ENDED, ""),
    ),
    "expire again": (
        *(UNKNOWN, NOT_QUEUED, NOT_NEXT, NOT_QUEUED, "TaskExpired", NOT_QUEUED, NOT_QUEUED),
        *[ENDED] * 4,
    ),
}
CASES = [
    (command, state, wanted)
    for command, row in TABLE.items()
    for state, wanted in zip(STATES, row, strict=True)
]


def test_the_table_names_every_command() -> None:
    told = {type(command) for command in COMMANDS.values()}
    assert told == set(TaskBound.__args__)
    assert {*told} == {kind for kind in TaskCommand.__args__ if kind.__name__ != "ReleaseKey"}
    assert set(TABLE) == set(COMMANDS)


@pytest.mark.parametrize(("command", "state", "wanted"), CASES)
def test_each_command_in_each_state_and_told_twice(command: str, state: str, wanted: str) -> None:
    story = STATES[state]()
    asked = COMMANDS[command]
    outcome = story.when(asked)
    is_refusal = wanted.islower()
    if is_refusal:
        outcome.then().refused(Refusal(wanted))
    elif wanted:
        assert " ".join(type(event).__name__ for event in outcome.events) == wanted
        assert outcome.decision.refusal is None
    else:
        outcome.nothing()
    before = dict(story.rows)
    again = story.when(asked)
    if is_refusal:
        again.then().refused(Refusal(wanted))
        assert again.decision.orders == outcome.decision.orders
    else:
        again.nothing()
    assert dict(story.rows) == before


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("command", ["start", "start next", "start too high"])
def test_a_start_that_is_not_granted_is_refused_at_the_pool(command: str, state: str) -> None:
    outcome = STATES[state]().when(COMMANDS[command])
    if outcome.decision.refusal is not None:
        reason = outcome.decision.refusal.reason
        token = {"start": 1, "start next": 2, "start too high": 3}[command]
        outcome.orders(a(c.RefuseAttempt, token=token, reason=reason))


@pytest.mark.parametrize("state", STATES)
def test_the_key_command_of_the_engine_changes_nothing(state: str) -> None:
    story = STATES[state]()
    before = dict(story.rows)
    story.when(c.ReleaseKey(command_id=CommandId("k"), key=w.TASK, who="o", why="w")).nothing()
    assert dict(story.rows) == before


# --- every event after every state --------------------------------------------------------------

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
ROWS: dict[str, tasks.TaskState] = {
    name: story().rows.get(w.TASK) or tasks.INITIAL for name, story in STATES.items()
}
_CREATED = STATES["queued"]().history[0]


def _event(kind: type[e.TaskEvent], state: tasks.TaskState) -> e.TaskEvent:
    """An event of this kind that fits the state in everything but its kind."""
    token = 0 if isinstance(state, tasks.Absent) else state.token
    fields: dict[str, Any] = {
        name: getattr(_CREATED, name) for name in e.TaskCreated.__struct_fields__
    }
    fields |= {
        "token": token + 1 if kind is e.TaskStarted else token,
        "runner_id": RunnerId("r"),
        "incarnation_id": IncarnationId("i"),
        "lease_seconds": 120,
        "percent": 90,
        "card_ms": 1,
        "counted": False,
        "loss": LossCause.DRAINED,
        "delay_ms": 5,
        "charge_micros": 0,
        "failure": FailureClass.INPUT,
        "cause": CancelCause.USER,
        "material_id": w.CLIP,
        "lane": Lane.P0,
        "reason": MoveReason.POOL_FULL,
        "event_id": EventId("x"),
        "seq": state.seq + 1,
        "at": AT,
    }
    known = {name: fields[name] for name in kind.__struct_fields__ if name in fields}
    return kind(**known)


@pytest.mark.parametrize("kind", e.TaskEvent.__args__, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ROWS)
def test_the_table_of_moves_says_what_evolve_does(name: str, kind: type[e.TaskEvent]) -> None:
    state = ROWS[name]
    event = _event(kind, state)
    target = tasks.TRANSITIONS.get((type(state), kind))
    if target is None:
        with pytest.raises(ImpossibleEventError):
            tasks.evolve(state, event, 0, w.POLICY)
    else:
        row = tasks.evolve(state, event, 0, w.POLICY)
        assert type(row) is target
        assert row.seq == state.seq + 1


def test_every_state_stands_in_the_rows_of_the_test() -> None:
    assert {type(state) for state in ROWS.values()} == {*tasks.TaskState.__args__}


@pytest.mark.parametrize(("state", "kind"), tasks.TRANSITIONS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seq", [-1, 0, 2])
def test_a_gap_or_a_repetition_in_seq_stops_the_partition(
    state: type[tasks.TaskState], kind: type[e.TaskEvent], seq: int
) -> None:
    row = next(one for one in ROWS.values() if type(one) is state)
    event = _event(kind, row)
    elsewhere = msgspec.structs.replace(event, seq=max(0, row.seq + seq))
    with pytest.raises(ImpossibleEventError):
        tasks.evolve(row, elsewhere, 0, w.POLICY)


@pytest.mark.parametrize(("state", "kind"), tasks.TRANSITIONS, ids=lambda kind: kind.__name__)
def test_an_event_of_another_token_stops_the_partition(
    state: type[tasks.TaskState], kind: type[e.TaskEvent]
) -> None:
    if "token" not in kind.__struct_fields__:
        return
    row = next(one for one in ROWS.values() if type(one) is state)
    event: Any = _event(kind, row)
    other = msgspec.structs.replace(event, token=event.token + 1)
    with pytest.raises(ImpossibleEventError):
        tasks.evolve(row, other, 0, w.POLICY)


def test_the_moves_between_statuses_are_those_of_the_design() -> None:
    statuses: dict[type, Status] = dict(tasks.STATUSES.items())
    moves = {
        (statuses.get(state), tasks.STATUSES[target])
        for (state, _), target in tasks.TRANSITIONS.items()
    }
    s = Status
    assert {move for move in moves if move[0] != move[1]} == {
        (None, s.CREATED),
        *((s.CREATED, end) for end in (s.QUEUED, s.CANCELED, s.EXPIRED)),
        *((s.QUEUED, end) for end in (s.RUNNING, s.CANCELED, s.EXPIRED)),
        *((s.RUNNING, end) for end in (s.QUEUED, s.SUCCEEDED, s.FAILED, s.CANCELED)),
        (s.FAILED, s.QUEUED),
    }
