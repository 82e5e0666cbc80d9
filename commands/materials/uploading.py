"""The way in: a file is declared, its parts come in, its caller says that all are there.

Or they don't: an upload of which nothing is heard for a day is aborted.
"""

from typing import Final, assert_never

from commands.decider import Decision
from commands.materials import follow_ups as f
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
from schema import commands as c
from schema import events as e
from schema.refusals import MaterialRefusal, Refusal

TOUCHED_MS: Final = 50_000
"""Signs of an upload that follow sooner are none: about one a minute is written."""
ABANDONED_MS: Final = 24 * 3600 * 1000
AGAIN_MS: Final = 2 * 60 * 1000
"""So long a first try is waited for, then twice as long, and so on."""
AGAIN_MAX_MS: Final = 10 * 60 * 1000
"""But no longer than this: whoever waits hears that it goes on with each try, and waits for
`created_wait_seconds` from then on, which a policy must keep above it."""


def register(state: MaterialState, command: c.RegisterMaterial, asked: Asked) -> MaterialDecision:
    """Declared. What was refused or aborted may be declared again: it was the upload's fault."""
    match state:
        case Absent():
            return _registered(state, command, asked)
        case _ if f.is_stranger(state, command):
            reason = Refusal.NOT_YOURS
        case _ if command.sha256 != state.sha256 or command.size != state.size:
            reason = Refusal.IDEMPOTENCY_CONFLICT
        case Rejected() | Aborted():
            return _registered(state, command, asked)
        case Registered() if (
            command.upload_id != state.upload.upload_id
            and command.upload_id
            and command.instead_of == state.upload.upload_id
        ):
            return _registered(state, command, asked)
        case Registered() | Assembling() | Ready() | Cold():
            return f.already(state, command, asked)
        case _:
            assert_never(state)
    return f.refuse(command, asked, reason)


def _registered(
    state: Absent | Registered | Rejected | Aborted, command: c.RegisterMaterial, asked: Asked
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
        part_bytes=command.part_bytes,
        seconds_max=command.seconds_max,
        upload_id=command.upload_id,
    )
    told = f.extend_waits(asked, state) if isinstance(state, Registered) else ()
    reply = f.accepted(command, asked, event.seq, Registered, command.upload_id)
    return Decision((event,), told, reply)


def touch(state: MaterialState, command: c.TouchUpload, asked: Asked) -> MaterialDecision:
    """Something of it came in; whoever waits is told about once a minute."""
    match state:
        case Absent():
            return f.refuse(command, asked, Refusal.MATERIAL_UNKNOWN)
        case _ if f.is_stranger(state, command):
            return f.refuse(command, asked, Refusal.NOT_YOURS)
        case Registered() if asked.now.served_ms - state.active_ms >= TOUCHED_MS:
            event = e.UploadTouched(
                event_id=asked.event_id(),
                seq=state.seq + 1,
                at=asked.now.at,
                material_id=asked.material_id,
                user_id=state.user_id,
            )
            return Decision((event,), f.extend_waits(asked, state))
        case Registered() | Assembling() | Ready() | Cold() | Rejected() | Aborted():
            return NOTHING
        case _:
            assert_never(state)


def complete(state: MaterialState, command: c.CompleteMaterial, asked: Asked) -> MaterialDecision:
    """All parts are said to be there: what they are is for the prober to say.

    `again_after` names a try that nothing was heard of (an older release's sweep told it): only
    that one is followed by another.
    """
    swept = command.again_after > 0 and command.reply_to is None
    match state:
        case Absent():
            return f.refuse(command, asked, Refusal.MATERIAL_UNKNOWN)
        case _ if f.is_stranger(state, command):
            return f.refuse(command, asked, Refusal.NOT_YOURS)
        case Registered() if not swept:
            return _assembling(state, command, asked)
        case Assembling() if command.again_after == state.tries:
            return _assembling(state, command, asked)
        case _ if swept:
            return NOTHING
        case Registered() | Assembling() | Ready() | Cold():
            return f.already(state, command, asked)
        case Rejected():
            # Declare it again first: the tasks that waited have been told.
            return f.refuse(command, asked, Refusal.MATERIAL_REFUSED)
        case Aborted():
            return f.refuse(command, asked, Refusal.MATERIAL_ABORTED)
        case _:
            assert_never(state)


def again_due_ms(state: Assembling) -> int:
    """When the prober is asked again, for it may have died over it; or given up."""
    tried = state.tries - state.first_try
    next_ms = state.asked_ms + min(AGAIN_MS << min(tried, 10), AGAIN_MAX_MS)
    return min(next_ms, state.active_ms + ABANDONED_MS)


def ask_again(state: Assembling, asked: Asked) -> MaterialDecision:
    """No verdict yet: another try; or the end, when nobody could look at it for a day."""
    if asked.now.served_ms - state.active_ms >= ABANDONED_MS:
        return refuse_material(state, asked, MaterialRefusal.NOT_CHECKED)
    return _asked(state, asked)


def _assembling(
    state: Registered | Assembling, command: c.CompleteMaterial, asked: Asked
) -> MaterialDecision:
    decision = _asked(state, asked)
    reply = f.accepted(command, asked, state.seq + 1, Assembling)
    return decision._replace(reply=reply)


def _asked(state: Registered | Assembling, asked: Asked) -> MaterialDecision:
    """The prober is asked to look at it."""
    upload = state.upload
    event = e.MaterialAssembling(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        number=state.tries + 1,
        again=isinstance(state, Assembling),
        content_type=upload.content_type,
        size=state.size,
        sha256=state.sha256,
        part_bytes=upload.part_bytes,
        seconds_max=upload.seconds_max,
        upload_id=upload.upload_id,
    )
    # Nobody shall wait in vain because it is us who are slow.
    return Decision((event,), f.extend_waits(asked, state))


def abandon(state: MaterialState, command: c.AbandonMaterial, asked: Asked) -> MaterialDecision:
    """The sweep thinks that it was left lying; whether it was is judged here."""
    match state:
        case Absent():
            return NOTHING
        case _ if f.is_stranger(state, command):
            return f.refuse(command, asked, Refusal.NOT_YOURS)
        case Registered() | Assembling() if asked.now.served_ms - state.active_ms < ABANDONED_MS:
            return NOTHING
        case Registered():
            return _aborted(state, asked)
        case Assembling():
            return refuse_material(state, asked, MaterialRefusal.NOT_CHECKED)
        case Ready() | Cold() | Rejected() | Aborted():
            return NOTHING
        case _:
            assert_never(state)


def _aborted(state: Registered, asked: Asked) -> MaterialDecision:
    event = e.MaterialAborted(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=state.user_id,
        upload_id=state.upload.upload_id,
    )
    return Decision((event,), f.reject_all(asked, state, MaterialRefusal.MATERIAL_ABORTED))


def refuse_material(
    state: Registered | Assembling, asked: Asked, reason: MaterialRefusal, detail: str = ""
) -> MaterialDecision:
    """It cannot be used, and whoever waits for it is told why."""
    event = e.MaterialRefused(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        material_id=asked.material_id,
        user_id=state.user_id,
        reason=reason,
        detail=detail,
        upload_id=state.upload.upload_id,
    )
    return Decision((event,), f.reject_all(asked, state, reason))
