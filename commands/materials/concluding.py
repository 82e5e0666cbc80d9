"""What a material is found to be: the prober's verdict, a proof that it is known, how it is used.

Nobody's word counts but that of who read it: bytes and digest as declared and not longer than
declared, or it is refused.
"""

from typing import assert_never

from commands.decider import Decision
from commands.materials import follow_ups as f
from commands.materials.evolving import evolve, made_ready
from commands.materials.follow_ups import NOTHING, Asked, MaterialDecision
from commands.materials.states import (
    Aborted,
    Absent,
    Assembling,
    Cold,
    MaterialState,
    Ready,
    Registered,
    Rejected,
)
from commands.materials.uploading import refuse_material
from schema import commands as c
from schema import events as e
from schema.refusals import MaterialRefusal, Refusal

UNUSED_MS = 30 * 24 * 3600 * 1000
_SECOND_MS = 1000


def conclude(state: MaterialState, command: c.ConcludeMaterial, asked: Asked) -> MaterialDecision:
    """The verdict of a try.

    That it is what was declared is true of whichever try said so, for the digest says it. Anything
    else counts only for the upload that stands.
    """
    match state:
        case Absent():
            return f.refuse(command, asked, Refusal.MATERIAL_UNKNOWN)
        case _ if f.is_stranger(state, command):
            return f.refuse(command, asked, Refusal.NOT_YOURS)
        case Registered() | Assembling() if _is_good(state, command):
            return _stored(state, command, asked)
        case Assembling() if state.first_try <= command.number <= state.tries:
            return _verdict(state, command, asked)
        case Registered() | Ready() | Cold() | Rejected() | Aborted() if (
            command.number <= state.tries
        ):
            return NOTHING
        case Registered() | Assembling() | Ready() | Cold() | Rejected() | Aborted():
            return f.refuse(command, asked, Refusal.MATERIAL_NOT_ASSEMBLING)
        case _:
            assert_never(state)


def _is_good(state: Registered | Assembling, command: c.ConcludeMaterial) -> bool:
    return (
        command.reason is None
        and not command.part_missing
        and command.facts is not None
        and command.content_key != ""
        and command.number <= state.tries
        and (command.size, command.sha256) == (state.size, state.sha256)
    )


def _verdict(state: Assembling, command: c.ConcludeMaterial, asked: Asked) -> MaterialDecision:
    """It cannot be used as it is."""
    if command.reason is not None:
        return refuse_material(state, asked, command.reason, command.detail)
    if command.part_missing:
        # An older try may have looked before the last parts came; the newest one tells.
        return _reopened(state, command, asked) if command.number == state.tries else NOTHING
    if command.size != state.size:
        detail = f"{command.size} bytes instead of {state.size}"
        return refuse_material(state, asked, MaterialRefusal.SIZE_MISMATCH, detail)
    if command.sha256 != state.sha256:
        return refuse_material(state, asked, MaterialRefusal.DIGEST_MISMATCH)
    return f.refuse(command, asked, Refusal.MATERIAL_NOT_ASSEMBLING)  # a verdict without words


def _reopened(state: Assembling, command: c.ConcludeMaterial, asked: Asked) -> MaterialDecision:
    event = e.MaterialReopened(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=state.user_id,
        number=command.number,
        detail=command.detail,
    )
    return Decision((event,), f.extend_waits(asked, state))


def adopt(state: MaterialState, command: c.AdoptMaterial, asked: Asked) -> MaterialDecision:
    """Its content is stored already, and its caller holds it: nothing needs to be sent."""
    match state:
        case Absent():
            return f.refuse(command, asked, Refusal.MATERIAL_UNKNOWN)
        case _ if f.is_stranger(state, command):
            return f.refuse(command, asked, Refusal.NOT_YOURS)
        case _ if (command.size, command.sha256) != (state.size, state.sha256):
            return f.refuse(command, asked, Refusal.MATERIAL_MISMATCH)
        case Registered() | Assembling():
            return _stored(state, command, asked)
        case Ready() | Cold():
            return f.already(state, command, asked)
        case Rejected():  # perhaps by this very command: that it was refused is a fact already
            return Decision(reply=f.refused(command, asked, Refusal.MATERIAL_REFUSED))
        case Aborted():
            return f.refuse(command, asked, Refusal.MATERIAL_ABORTED)
        case _:
            assert_never(state)


def _stored(
    state: Registered | Assembling, command: c.ConcludeMaterial | c.AdoptMaterial, asked: Asked
) -> MaterialDecision:
    """The bytes are those that were declared; it is READY unless it is longer than declared."""
    adopted = isinstance(command, c.AdoptMaterial)
    longest = state.upload.seconds_max
    lasts_ms = 0 if command.facts is None else command.facts.duration_ms
    # Whole seconds were declared: what is left of the last one is allowed.
    if longest and lasts_ms >= (longest + 1) * _SECOND_MS:
        detail = f"{lasts_ms / _SECOND_MS:.1f} s instead of {longest} s at most"
        over = refuse_material(state, asked, MaterialRefusal.MATERIAL_TOO_LONG, detail)
        if not isinstance(command, c.AdoptMaterial):
            return over
        refused = f.refused(command, asked, Refusal.MATERIAL_REFUSED, detail)
        return over._replace(reply=refused)
    event = e.MaterialReady(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=state.user_id,
        size=command.size,
        sha256=command.sha256,
        content_key=command.content_key,
        facts=command.facts,
        # What still goes on is to be aborted: of who proved, or of who began anew meanwhile.
        upload_id=state.upload.upload_id if adopted or isinstance(state, Registered) else "",
    )
    ready = made_ready(state, event, asked.now.served_ms)
    told = tuple(f.confirm(asked, ready, task_id, n) for n, task_id in enumerate(state.task_ids))
    reply = None
    if isinstance(command, c.AdoptMaterial):
        reply = f.accepted(command, asked, event.seq, Ready)
    return Decision((event,), told, reply)


def attach(state: MaterialState, command: c.AttachMaterial, asked: Asked) -> MaterialDecision:
    """Every task that asks is answered once: now, or when it is known."""
    match state:
        case Absent():
            reason: str = Refusal.MATERIAL_UNKNOWN
            refusal = Refusal.MATERIAL_UNKNOWN
        case _ if f.is_stranger(state, command):
            reason = refusal = Refusal.NOT_YOURS
        case Registered() | Assembling() | Ready() | Cold():
            return _attached(state, command, asked)
        case Rejected():
            reason, refusal = state.reason, Refusal.MATERIAL_REFUSED
        case Aborted():
            reason = refusal = Refusal.MATERIAL_ABORTED
        case _:
            assert_never(state)
    refused = f.refuse(command, asked, refusal)
    return refused._replace(orders=(f.reject(asked, command.task_id, reason),))


def _attached(
    state: Registered | Assembling | Ready | Cold, command: c.AttachMaterial, asked: Asked
) -> MaterialDecision:
    if command.task_id in state.task_ids and not isinstance(state, Cold):
        return NOTHING
    event = e.MaterialAttached(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=state.user_id,
        task_id=command.task_id,
    )
    after = evolve(state, event, asked.now.served_ms)
    told = (f.confirm(asked, after, command.task_id),) if isinstance(after, Ready) else ()
    return Decision((event,), told)


def chill(state: MaterialState, command: c.ChillMaterial, asked: Asked) -> MaterialDecision:
    """The sweep thinks that no task has used it for long; whether it is so is judged here."""
    match state:
        case Absent():
            return NOTHING
        case _ if f.is_stranger(state, command):
            return f.refuse(command, asked, Refusal.NOT_YOURS)
        case Ready() if asked.now.served_ms - state.used_ms >= UNUSED_MS:
            event = e.MaterialChilled(
                event_id=asked.event_id(),
                seq=state.seq + 1,
                at=asked.now.at,
                material_id=asked.material_id,
                user_id=state.user_id,
            )
            return Decision((event,))
        case Registered() | Assembling() | Ready() | Cold() | Rejected() | Aborted():
            return NOTHING
        case _:
            assert_never(state)
