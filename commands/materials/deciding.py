"""Which rule judges a command, and the row around it: read, decide, evolve, put."""

from typing import assert_never

from commands.decider import Now, Rows, TimerDue
from commands.materials import concluding, uploading
from commands.materials.evolving import evolve
from commands.materials.follow_ups import NOTHING, Asked, MaterialDecision
from commands.materials.states import INITIAL, MaterialRow, MaterialState
from schema import commands as c
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
    state = rows.get(command.material_id) or INITIAL
    decision = decide(state, command, now)
    for event in decision.events:
        state = evolve(state, event, now.served_ms)
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
