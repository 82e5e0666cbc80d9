"""What is asked of a material, and the row around it: read, decide, evolve, put."""

from typing import assert_never

from commands.decider import Decision, Now, Rows, TimerDue
from commands.materials import follow_ups as f
from commands.materials.follow_ups import NOTHING, Asked, MaterialDecision
from commands.materials.states import (
    INITIAL,
    STATUSES,
    Absent,
    MaterialRow,
    MaterialState,
    Ready,
    Registered,
    Rejected,
    evolve,
)
from schema import commands as c
from schema import events as e
from schema.refusals import Refusal
from schema.routes import MaterialBound


def decide(state: MaterialState, command: MaterialBound, now: Now) -> MaterialDecision:
    """What follows from the command, in this state, now."""
    asked = Asked(command.command_id, command.material_id, now, state.seq)
    match command:
        case c.RegisterMaterial():
            return _register(state, command, asked)
        case c.CompleteMaterial():
            return _complete(state, command, asked)
        case c.AttachMaterial():
            return _attach(state, command, asked)
        case _:
            assert_never(command)


def _register(state: MaterialState, command: c.RegisterMaterial, asked: Asked) -> MaterialDecision:
    match state:
        case Absent():
            return _registered(state, command, asked)
        case Registered() | Ready() | Rejected() if f.is_stranger(state, command):
            reason = Refusal.NOT_YOURS
        case Registered() | Ready() | Rejected() if (
            command.sha256 != state.sha256 or command.size != state.size
        ):
            reason = Refusal.IDEMPOTENCY_CONFLICT
        case Rejected():
            return _registered(state, command, asked)
        case Registered() | Ready():
            return f.already(state, command, asked)
        case _:
            assert_never(state)
    return f.refuse(command, asked, reason)


def _registered(
    state: Absent | Rejected, command: c.RegisterMaterial, asked: Asked
) -> MaterialDecision:
    event = e.MaterialRegistered(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=command.user_id,
        tenant_id=command.tenant_id,
        content_type=command.content_type,
        size=command.size,
        sha256=command.sha256,
        private=command.private,
    )
    return Decision((event,), reply=f.accepted(command, asked, event.seq, STATUSES[Registered]))


def _complete(state: MaterialState, command: c.CompleteMaterial, asked: Asked) -> MaterialDecision:
    """Nobody's word counts but the store's: size and digest as declared, or it is refused."""
    match state:
        case Absent():
            return f.refuse(command, asked, Refusal.MATERIAL_UNKNOWN)
        case Registered() | Ready() | Rejected() if f.is_stranger(state, command):
            return f.refuse(command, asked, Refusal.NOT_YOURS)
        case Registered() if f.as_declared(state, command):
            return _ready(state, command, asked)
        case Registered():
            return _mismatch(state, command, asked)
        case Ready() if f.as_declared(state, command):
            return f.already(state, command, asked)
        case Ready():
            return f.refuse(command, asked, Refusal.MATERIAL_MISMATCH)
        case Rejected() if f.as_declared(state, command):
            # Declare it again first: the tasks that waited have been told.
            return f.refuse(command, asked, Refusal.MATERIAL_REFUSED)
        case Rejected():
            return Decision(reply=f.refused(command, asked, Refusal.MATERIAL_MISMATCH))
        case _:
            assert_never(state)


def _ready(state: Registered, command: c.CompleteMaterial, asked: Asked) -> MaterialDecision:
    event = e.MaterialReady(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=state.user_id,
        size=command.size,
        sha256=command.sha256,
    )
    told = tuple(f.confirm(asked, task_id, n) for n, task_id in enumerate(state.task_ids))
    return Decision((event,), told, f.accepted(command, asked, event.seq, STATUSES[Ready]))


def _mismatch(state: Registered, command: c.CompleteMaterial, asked: Asked) -> MaterialDecision:
    """The fact says it all: there is no second record of it among the refusals."""
    reason = Refusal.MATERIAL_MISMATCH
    event = e.MaterialRefused(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=state.user_id,
        reason=reason,
    )
    told = tuple(f.reject(asked, task_id, reason, n) for n, task_id in enumerate(state.task_ids))
    return Decision((event,), told, f.refused(command, asked, reason))


def _attach(state: MaterialState, command: c.AttachMaterial, asked: Asked) -> MaterialDecision:
    """Every task that asks is answered once: now, or when it is known."""
    match state:
        case Absent():
            reason = Refusal.MATERIAL_UNKNOWN
        case Registered() | Ready() | Rejected() if f.is_stranger(state, command):
            reason = Refusal.NOT_YOURS
        case Registered() | Ready():
            if command.task_id in state.task_ids:
                return NOTHING
            event = e.MaterialAttached(
                event_id=asked.event_id(),
                seq=state.seq + 1,
                at=asked.now.at,
                material_id=asked.material_id,
                user_id=state.user_id,
                task_id=command.task_id,
            )
            told = (f.confirm(asked, command.task_id),) if isinstance(state, Ready) else ()
            return Decision((event,), told)
        case Rejected():
            reason = Refusal.MATERIAL_REFUSED
        case _:
            assert_never(state)
    refused = f.refuse(command, asked, reason)
    return refused._replace(orders=(f.reject(asked, command.task_id, reason),))


def handle(rows: Rows[MaterialRow], command: c.MaterialCommand, now: Now) -> MaterialDecision:
    """Decide on the row of the material, and put what becomes of it."""
    if isinstance(command, c.ReleaseKey):
        return NOTHING  # the engine's: it lets the parked commands go on
    state = rows.get(command.material_id) or INITIAL
    decision = decide(state, command, now)
    for event in decision.events:
        state = evolve(state, event)
        rows.put(command.material_id, state)
    return decision


def due_ms(row: MaterialRow) -> int | None:  # noqa: ARG001 - the same shape for every noun
    """Nothing happens to a material by itself; what is not used is swept by command."""
    return None


def on_due(
    rows: Rows[MaterialRow],  # noqa: ARG001 - the same shape for every noun
    timer: TimerDue,  # noqa: ARG001
    now: Now,  # noqa: ARG001
) -> MaterialDecision:
    """Never due."""
    return NOTHING
