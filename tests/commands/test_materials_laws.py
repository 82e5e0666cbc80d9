"""Materials in every state: what is told twice, the table of moves, and any life at all."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import materials
from commands.decider import ImpossibleEventError
from schema import commands as c
from schema import events as e
from schema.codec import MATERIAL_EVENTS, encode
from schema.ids import CommandId, EventId, TaskId, UserId
from schema.routes import MaterialBound
from tests.support import material_words as w
from tests.support.spec import Story

# --- every command in every state, told twice -----------------------------------------------------

STATES: dict[str, Callable[[], Story]] = {
    "absent": w.world,
    "registered": w.registered,
    "assembling": w.assembling,
    "ready": w.ready,
    "cold": w.cold,
    "refused": w.refused,
    "aborted": w.aborted,
}
COMMANDS: dict[str, MaterialBound] = {
    "register": w.register(),
    "register instead": w.register(upload="u2", instead_of="u1"),
    "touch": w.touch(),
    "complete": w.complete(),
    "sweep": w.sweep(),
    "conclude": w.conclude(),
    "conclude otherwise": w.conclude(size=98),
    "turn down": w.turn_down(),
    "miss": w.miss(),
    "adopt": w.adopt(),
    "adopt otherwise": w.adopt(size=98),
    "abandon": w.abandon(),
    "chill": w.chill(),
    "attach": w.attach(),
}


def test_the_table_names_every_command_and_every_state() -> None:
    assert {type(command) for command in COMMANDS.values()} == set(MaterialBound.__args__)
    reached = {type(story().rows.get(w.CLIP)) for name, story in STATES.items() if name != "absent"}
    assert reached == set(materials.STATUSES)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("later_seconds", [0, 31 * w.DAY_SECONDS])
def test_what_is_told_twice_is_already_so(state: str, command: str, later_seconds: int) -> None:
    story = STATES[state]().after(later_seconds)
    first = story.when(COMMANDS[command]).decision
    before = dict(story.rows)
    again = story.when(COMMANDS[command]).decision
    assert again.events == ()
    assert again.refusal == first.refusal
    assert (again.reply is None) == (first.reply is None)
    if first.refusal is None:
        assert again.orders == ()
        assert type(again.reply) is type(first.reply)
    assert dict(story.rows) == before


@pytest.mark.parametrize("state", STATES)
def test_the_key_command_of_the_engine_changes_nothing(state: str) -> None:
    story = STATES[state]()
    story.when(c.ReleaseKey(command_id=CommandId("k"), key=w.CLIP, who="o", why="w")).nothing()


# --- the table of moves ---------------------------------------------------------------------------

ROWS: dict[str, materials.MaterialState] = {
    name: story().rows.get(w.CLIP) or materials.INITIAL for name, story in STATES.items()
}


def _event(kind: type[e.MaterialEvent], state: materials.MaterialState, seq: int) -> Any:  # noqa: ANN401 - an event of that kind
    fields: dict[str, Any] = {
        "event_id": EventId("x"),
        "seq": seq,
        "at": datetime(2026, 3, 2, tzinfo=UTC),
        "material_id": w.CLIP,
        "user_id": w.USER,
        "tenant_id": w.TENANT,
        "content_type": "video/mp4",
        "size": 1,
        "sha256": "d",
        "reason": "r",
        "number": getattr(state, "tries", 0) + (kind is e.MaterialAssembling),
        "again": isinstance(state, materials.Assembling),
        "task_id": TaskId("t"),
    }
    return kind(**{name: fields[name] for name in kind.__struct_fields__ if name in fields})


@pytest.mark.parametrize("kind", e.MaterialEvent.__args__, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ROWS)
def test_the_table_of_moves_says_what_evolve_does(name: str, kind: type[e.MaterialEvent]) -> None:
    state = ROWS[name]
    target = materials.TRANSITIONS.get((type(state), kind))
    event = _event(kind, state, state.seq + 1)
    if target is None:
        with pytest.raises(ImpossibleEventError):
            materials.evolve(state, event, 0)
    else:
        assert type(materials.evolve(state, event, 0)) is target
    with pytest.raises(ImpossibleEventError):
        materials.evolve(state, _event(kind, state, state.seq + 2), 0)


def test_a_try_cannot_be_skipped_nor_begun_twice() -> None:
    state = ROWS["assembling"]
    event = _event(e.MaterialAssembling, state, state.seq + 1)
    for wrong in ({"number": 1}, {"number": 3}, {"again": False}):
        with pytest.raises(ImpossibleEventError):
            materials.evolve(state, msgspec.structs.replace(event, **wrong), 0)


def test_rows_of_an_older_release_are_read() -> None:
    """Their bytes, as they stand in its tables."""
    old: dict[type, list[Any]] = {
        materials.Registered: ["registered", 1, w.USER, w.TENANT, 100, "d1", ["t1000007"]],
        materials.Ready: ["ready", 2, w.USER, w.TENANT, 100, "d1", []],
        materials.Rejected: ["refused", 2, w.USER, w.TENANT, 100, "d1", [], "material_mismatch"],
    }
    for kind, fields in old.items():
        row: Any = msgspec.json.decode(msgspec.json.encode(fields), type=materials.ROW)
        assert type(row).__name__ == kind.__name__
        assert (row.seq, row.sha256) == (fields[1], "d1")
        assert getattr(row, "reason", fields[-1]) == fields[-1]


# --- laws -----------------------------------------------------------------------------------------


def _attach_of(task: str, user: UserId) -> c.AttachMaterial:
    return w.attach(f"{task}-{user[0]}", user=user)


USERS = st.sampled_from((w.USER, w.USER, w.USER, w.OTHER))
NUMBERS = st.integers(1, 4)
STEPS = st.one_of(
    st.builds(w.register, user=USERS, upload=st.sampled_from(("u1", "u2"))),
    st.builds(w.register, upload=st.just("u3"), instead_of=st.sampled_from(("u1", "u2"))),
    st.builds(w.touch, st.integers(1, 9), user=USERS),
    st.builds(w.complete, user=USERS),
    st.builds(w.sweep, NUMBERS, user=USERS),
    st.builds(w.conclude, NUMBERS, user=USERS, size=st.sampled_from((100, 100, 99))),
    st.builds(w.turn_down, NUMBERS, user=USERS),
    st.builds(w.miss, NUMBERS, user=USERS),
    st.builds(w.adopt, user=USERS),
    st.builds(w.abandon, user=USERS),
    st.builds(w.chill, user=USERS),
    st.builds(_attach_of, st.sampled_from(("t1", "t2", "t3")), USERS),
    st.sampled_from((60.0, w.DAY_SECONDS, 30.0 * w.DAY_SECONDS)),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=50))
def test_every_task_is_answered_and_the_events_alone_lead_to_the_row(
    steps: list[MaterialBound | float],
) -> None:
    story = w.world()
    waiting: set[str] = set()
    state: materials.MaterialState = materials.INITIAL
    for step in steps:
        if isinstance(step, float | int):
            outcomes = story.after(step).tick()
        elif isinstance(step, c.RegisterMaterial):
            # Who asks has looked it up in the read model, which forgets nothing.
            outcomes = [story.when(msgspec.structs.replace(step, after=state.seq))]
        else:
            outcomes = [story.when(step)]
        for outcome in outcomes:
            orders: tuple[Any, ...] = outcome.decision.orders
            verdicts = (c.ConfirmMaterial, c.RejectMaterial)
            answered = {order.task_id for order in orders if isinstance(order, verdicts)}
            if isinstance(step, c.AttachMaterial) and (
                outcome.events or outcome.decision.refusal is not None
            ):
                waiting |= {step.task_id}
            waiting -= answered
            for event in outcome.events:
                read: Any = MATERIAL_EVENTS.decode(encode(event))
                state = materials.evolve(state, read, story.now.served_ms)
            row = story.rows.get(w.CLIP)
            if isinstance(row, materials.Registered | materials.Assembling):
                assert waiting == set(row.task_ids)
            else:
                assert waiting == set()
            extended = {order.task_id for order in orders if isinstance(order, c.ExtendWait)}
            assert extended <= waiting
            if row is None and isinstance(state, materials.Rejected | materials.Aborted):
                state = materials.Absent(seq=state.seq)  # forgotten
            assert state == (row or materials.Absent(seq=state.seq))
