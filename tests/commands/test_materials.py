"""Materials: declared, stored as declared or refused, and every task that waits is told."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import materials
from commands.decider import ImpossibleEventError
from commands.materials.states import ATTACHED_MAX
from schema import commands as c
from schema import events as e
from schema.codec import MATERIAL_EVENTS, encode
from schema.ids import CommandId, EventId, MaterialId, TaskId, TenantId, UserId, material_id_of
from schema.refusals import Refusal
from schema.replies import Accepted, Refused
from schema.routes import MaterialBound
from tests.support.spec import Story, a

USER = UserId("alicealicealicealice000007")
OTHER = UserId("mallorymallorymallor000007")
TENANT = TenantId("acme")
CLIP = material_id_of(USER, "d1", "clip.mp4")


def world() -> Story:
    return Story(
        handle=materials.handle,
        row=materials.ROW,
        on_due=materials.on_due,
        due_ms=materials.due_ms,
        key_of=lambda event: event.material_id,
    )


def register(
    *, user: UserId = USER, size: int = 100, sha256: str = "d1", reply_to: int | None = 0
) -> c.RegisterMaterial:
    return c.RegisterMaterial(
        command_id=CommandId(f"register-{user}-{size}-{sha256}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        content_type="video/mp4",
        size=size,
        sha256=sha256,
        private=b"sealed",
        reply_to=reply_to,
    )


def complete(
    *, user: UserId = USER, size: int = 100, sha256: str = "d1", reply_to: int | None = 0
) -> c.CompleteMaterial:
    return c.CompleteMaterial(
        command_id=CommandId(f"complete-{user}-{size}-{sha256}"),
        material_id=CLIP,
        user_id=user,
        tenant_id=TENANT,
        size=size,
        sha256=sha256,
        reply_to=reply_to,
    )


def attach(task: str = "t1", *, user: UserId = USER) -> c.AttachMaterial:
    return c.AttachMaterial(
        command_id=CommandId(f"attach-{task}-{user}"),
        material_id=CLIP,
        task_id=TaskId(f"{task}000007"),
        user_id=user,
        tenant_id=TENANT,
    )


def registered() -> Story:
    return world().given(register())


def ready() -> Story:
    return registered().given(complete())


def refused() -> Story:
    return registered().given(complete(size=99))


# --- stories ------------------------------------------------------------------------------------


def test_an_upload_as_declared_is_ready() -> None:
    story = world()
    story.when(register()).then(
        a(e.MaterialRegistered, seq=1, size=100, sha256="d1", private=b"sealed")
    ).replied(Accepted, seq=1, status="REGISTERED", key=CLIP)
    story.when(complete()).then(a(e.MaterialReady, seq=2, size=100, sha256="d1")).replied(
        Accepted, seq=2, status="READY"
    )


@pytest.mark.parametrize(("size", "sha256"), [(99, "d1"), (101, "d1"), (100, "d2"), (0, "")])
def test_an_upload_that_is_not_as_declared_is_refused(size: int, sha256: str) -> None:
    registered().when(complete(size=size, sha256=sha256)).then(
        a(e.MaterialRefused, reason="material_mismatch")
    ).replied(Refused, reason=Refusal.MATERIAL_MISMATCH)


def test_every_task_that_waits_is_told_once_when_it_is_ready() -> None:
    story = registered()
    story.when(attach("t1")).then(a(e.MaterialAttached, task_id="t1000007")).orders()
    story.when(attach("t2")).then(a(e.MaterialAttached, task_id="t2000007")).orders()
    story.when(attach("t1")).nothing()
    story.when(complete()).then(e.MaterialReady).orders(
        a(c.ConfirmMaterial, task_id="t1000007", material_id=CLIP),
        a(c.ConfirmMaterial, task_id="t2000007", material_id=CLIP),
    )


def test_every_task_that_waits_is_told_once_when_it_is_refused() -> None:
    story = registered().given(attach("t1"), attach("t2"))
    story.when(complete(sha256="d2")).then(e.MaterialRefused).orders(
        a(c.RejectMaterial, task_id="t1000007", reason="material_mismatch"),
        a(c.RejectMaterial, task_id="t2000007", material_id=CLIP),
    )


def test_a_task_that_comes_later_is_told_at_once() -> None:
    ready().when(attach()).then(e.MaterialAttached).orders(a(c.ConfirmMaterial, task_id="t1000007"))
    refused().when(attach()).refused(Refusal.MATERIAL_REFUSED).orders(
        a(c.RejectMaterial, task_id="t1000007", reason="material_refused")
    )


def test_a_material_that_nobody_declared_is_rejected() -> None:
    world().when(attach()).refused(Refusal.MATERIAL_UNKNOWN).orders(
        a(c.RejectMaterial, task_id="t1000007", reason="material_unknown")
    )


@pytest.mark.parametrize("story", [registered, ready, refused])
def test_nobody_uses_what_is_not_his(story: Callable[[], Story]) -> None:
    story().when(attach(user=OTHER)).refused(Refusal.NOT_YOURS).orders(
        a(c.RejectMaterial, reason="not_yours")
    )
    for asked in (register(user=OTHER), complete(user=OTHER)):
        outcome = story().when(asked).refused(Refusal.NOT_YOURS).orders()
        outcome.replied(Refused, reason=Refusal.NOT_YOURS)
        assert outcome.decision.refusal is not None
        assert outcome.decision.refusal.user_id == OTHER


@pytest.mark.parametrize("story", [registered, ready, refused])
def test_other_content_under_the_same_id_is_refused(story: Callable[[], Story]) -> None:
    for asked in (register(size=99), register(sha256="d2")):
        story().when(asked).refused(Refusal.IDEMPOTENCY_CONFLICT).replied(Refused)


def test_what_is_ready_stays_ready() -> None:
    story = ready()
    story.when(complete(size=99)).refused(Refusal.MATERIAL_MISMATCH).replied(Refused)
    story.when(register()).nothing().replied(Accepted, status="READY", seq=2)
    story.when(attach()).then(e.MaterialAttached).orders(c.ConfirmMaterial)


def test_a_wrong_upload_can_be_declared_and_stored_anew() -> None:
    story = registered().given(attach("t1"), complete(size=99))
    story.when(complete()).refused(Refusal.MATERIAL_REFUSED).replied(Refused)
    story.when(register()).then(a(e.MaterialRegistered, seq=4)).replied(Accepted, seq=4)
    story.when(complete()).then(a(e.MaterialReady, seq=5)).orders()


def test_completing_what_nobody_declared_is_refused() -> None:
    world().when(complete()).refused(Refusal.MATERIAL_UNKNOWN).replied(Refused)


def test_the_row_of_a_material_that_many_tasks_use_stays_small() -> None:
    story = ready().given(*(attach(f"t{number}") for number in range(3 * ATTACHED_MAX)))
    assert len(story.row_of(CLIP).task_ids) == ATTACHED_MAX
    story.when(attach(f"t{3 * ATTACHED_MAX - 1}")).nothing()


def test_nothing_happens_to_a_material_by_itself() -> None:
    story = registered().after(10**7)
    assert story.tick() == []


# --- every command in every state, told twice ---------------------------------------------------

STATES: dict[str, Callable[[], Story]] = {
    "absent": world,
    "registered": registered,
    "ready": ready,
    "refused": refused,
}
COMMANDS: dict[str, MaterialBound] = {
    "register": register(),
    "complete": complete(),
    "complete otherwise": complete(size=98),
    "attach": attach(),
}


def test_the_table_names_every_command() -> None:
    assert {type(command) for command in COMMANDS.values()} == set(MaterialBound.__args__)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", STATES)
def test_what_is_told_twice_is_already_so(state: str, command: str) -> None:
    story = STATES[state]()
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
    story.when(c.ReleaseKey(command_id=CommandId("k"), key=CLIP, who="o", why="w")).nothing()


# --- the table of moves -------------------------------------------------------------------------

ROWS: dict[str, materials.MaterialState] = {
    name: story().rows.get(CLIP) or materials.INITIAL for name, story in STATES.items()
}


def _event(kind: type[e.MaterialEvent], seq: int) -> e.MaterialEvent:
    fields: dict[str, Any] = {
        "event_id": EventId("x"),
        "seq": seq,
        "at": datetime(2026, 3, 2, tzinfo=UTC),
        "material_id": CLIP,
        "user_id": USER,
        "tenant_id": TENANT,
        "content_type": "video/mp4",
        "size": 1,
        "sha256": "d",
        "reason": "r",
        "task_id": TaskId("t"),
    }
    return kind(**{name: fields[name] for name in kind.__struct_fields__ if name in fields})


@pytest.mark.parametrize("kind", e.MaterialEvent.__args__, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ROWS)
def test_the_table_of_moves_says_what_evolve_does(name: str, kind: type[e.MaterialEvent]) -> None:
    state = ROWS[name]
    target = materials.TRANSITIONS.get((type(state), kind))
    event = _event(kind, state.seq + 1)
    if target is None:
        with pytest.raises(ImpossibleEventError):
            materials.evolve(state, event)
    else:
        assert type(materials.evolve(state, event)) is target
    with pytest.raises(ImpossibleEventError):
        materials.evolve(state, _event(kind, state.seq + 2))


# --- laws ---------------------------------------------------------------------------------------


def _attach_of(task: str, user: UserId) -> c.AttachMaterial:
    return attach(f"{task}-{user[0]}", user=user)


LIFE = st.lists(
    st.one_of(
        st.builds(register, user=st.sampled_from((USER, USER, OTHER))),
        st.builds(complete, size=st.sampled_from((100, 100, 99))),
        st.builds(
            _attach_of, st.sampled_from(("t1", "t2", "t3")), st.sampled_from((USER, USER, OTHER))
        ),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(LIFE)
def test_every_task_is_answered_and_the_events_alone_lead_to_the_row(
    commands: list[MaterialBound],
) -> None:
    story = world()
    waiting: set[str] = set()
    for command in commands:
        outcome = story.when(command)
        orders: tuple[Any, ...] = outcome.decision.orders
        answered = {order.task_id for order in orders}
        if isinstance(command, c.AttachMaterial):
            if outcome.events or outcome.decision.refusal is not None:
                waiting |= {command.task_id}
            known = isinstance(story.rows.get(CLIP), materials.Ready | materials.Rejected)
            if known and outcome.events:
                assert answered == {command.task_id}
        waiting -= answered
        row = story.rows.get(CLIP)
        expected = set(row.task_ids) if isinstance(row, materials.Registered) else set()
        assert waiting == expected
    state: materials.MaterialState = materials.INITIAL
    for event in story.history:
        state = materials.evolve(state, MATERIAL_EVENTS.decode(encode(event)))
    assert state == (story.rows.get(CLIP) or materials.INITIAL)


def test_a_material_id_is_the_content_and_the_name_of_a_user() -> None:
    ids: set[MaterialId] = {
        material_id_of(user, sha256, name)
        for user in (USER, OTHER)
        for sha256 in ("d1", "d2")
        for name in ("a", "b")
    }
    assert len(ids) == 8
