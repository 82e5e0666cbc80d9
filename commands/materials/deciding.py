"""Which rule judges a command, and the row around it: read, decide, evolve, put."""

from typing import assert_never

from commands.decider import Now, Rows, TimerDue
from commands.materials import concluding, uploading
from commands.materials.evolving import evolve
from commands.materials.follow_ups import NOTHING, Asked, MaterialDecision
from commands.materials.states import (
    INITIAL,
    Aborted,
    Absent,
    Assembling,
    Cold,
    MaterialRow,
    MaterialState,
    Ready,
    Registered,
    Rejected,
)
from schema import commands as c
from schema.ids import MaterialId
from schema.routes import MaterialBound


def decide(state: MaterialState, command: MaterialBound, now: Now) -> MaterialDecision:
    """What follows from the command, in this state, now."""
    asked = Asked(command.command_id, command.material_id, now, state.seq)
    match command:
        case c.RegisterMaterial():
            return uploading.register(state, command, asked)
        case c.TouchUpload():
            return uploading.touch(state, command, asked)
        case c.CompleteMaterial():
            return uploading.complete(state, command, asked)
        case c.AbandonMaterial():
            return uploading.abandon(state, command, asked)
        case c.ConcludeMaterial():
            return concluding.conclude(state, command, asked)
        case c.AdoptMaterial():
            return concluding.adopt(state, command, asked)
        case c.AttachMaterial():
            return concluding.attach(state, command, asked)
        case c.ChillMaterial():
            return concluding.chill(state, command, asked)
        case _:
            assert_never(command)


def handle(rows: Rows[MaterialRow], command: c.MaterialCommand, now: Now) -> MaterialDecision:
    """Decide on the row of the material, and put what becomes of it."""
    if isinstance(command, c.ReleaseKey):
        return NOTHING  # the engine's: it lets the parked commands go on
    state: MaterialState = rows.get(command.material_id) or INITIAL
    if isinstance(state, Absent) and isinstance(command, c.RegisterMaterial):
        # What is forgotten is numbered on where it ended, so that no reader misses its events.
        state = Absent(seq=command.after)
    decision = decide(state, command, now)
    _settle(rows, command.material_id, state, decision, now)
    return decision


def due_ms(row: MaterialRow) -> int | None:
    """When (served clock) something happens to it by itself."""
    match row:
        case Assembling():
            return uploading.again_due_ms(row)
        case Rejected() | Aborted():
            return row.until_ms
        case Registered() | Ready() | Cold():
            return None
        case _:
            assert_never(row)


def on_due(rows: Rows[MaterialRow], timer: TimerDue, now: Now) -> MaterialDecision:
    """What the deadline of a row leads to; nothing if it is gone or lies ahead again."""
    row = rows.get(timer.key)
    due = None if row is None else due_ms(row)
    if row is None or due is None or due > now.served_ms:
        return NOTHING
    asked = Asked(timer.command_id, MaterialId(timer.key), now, row.seq)
    match row:
        case Assembling():
            decision = uploading.ask_again(row, asked)
        case Rejected() | Aborted():
            rows.delete(timer.key)
            return NOTHING
        case Registered() | Ready() | Cold():
            return NOTHING
        case _:
            assert_never(row)
    _settle(rows, timer.key, row, decision, now)
    return decision


def _settle(
    rows: Rows[MaterialRow], key: str, state: MaterialState, decision: MaterialDecision, now: Now
) -> None:
    """Put what the events make of the material."""
    for event in decision.events:
        state = evolve(state, event, now.served_ms)
        rows.put(key, state)
