"""What an event makes of a material.

An event that cannot follow raises: the log or the code is wrong, and the partition stops.
"""

from typing import assert_never

import msgspec

from commands.decider import ImpossibleEventError
from commands.materials.states import (
    ATTACHED_MAX,
    FORGET_MS,
    Aborted,
    Absent,
    Assembling,
    Cold,
    MaterialRow,
    MaterialState,
    Ready,
    Registered,
    Rejected,
    Upload,
)
from schema import events as e


def evolve(  # noqa: C901, PLR0912 - a branch for each event
    state: MaterialState, event: e.MaterialEvent, served_ms: int
) -> MaterialRow:
    """The next state; raises ImpossibleEventError."""
    if event.seq != state.seq + 1:
        raise ImpossibleEventError(state, event)
    match event:
        case e.MaterialRegistered():
            if isinstance(state, Absent | Registered | Rejected | Aborted):
                return _registered(state, event, served_ms)
        case e.UploadTouched():
            if isinstance(state, Registered):
                return msgspec.structs.replace(state, seq=event.seq, active_ms=served_ms)
        case e.MaterialAttached():
            if not isinstance(state, Absent | Rejected | Aborted):
                return _attached(state, event, served_ms)
        case e.MaterialAssembling():
            if isinstance(state, Registered | Assembling):
                return _assembling(state, event, served_ms)
        case e.MaterialReopened():
            if isinstance(state, Assembling):
                return _reopened(state, event, served_ms)
        case e.MaterialReady():
            if isinstance(state, Registered | Assembling):
                return made_ready(state, event, served_ms)
        case e.MaterialRefused():
            if isinstance(state, Registered | Assembling):
                return _refused(state, event, served_ms)
        case e.MaterialAborted():
            if isinstance(state, Registered):
                return _aborted(state, event, served_ms)
        case e.MaterialChilled():
            if isinstance(state, Ready):
                return _chilled(state, event)
        case _:
            assert_never(event)
    raise ImpossibleEventError(state, event)


def _registered(
    state: Absent | Registered | Rejected | Aborted, event: e.MaterialRegistered, served_ms: int
) -> Registered:
    """Anew, or for the first time; whoever waits for an upload waits for the one in its place."""
    return Registered(
        seq=event.seq,
        user_id=event.user_id,
        tenant_id=event.tenant_id,
        size=event.size,
        sha256=event.sha256,
        task_ids=state.task_ids if isinstance(state, Registered) else (),
        upload=Upload(
            content_type=event.content_type,
            part_bytes=event.part_bytes,
            seconds_max=event.seconds_max,
            upload_id=event.upload_id,
        ),
        tries=0 if isinstance(state, Absent) else state.tries,
        active_ms=served_ms,
    )


def _attached(
    state: Registered | Assembling | Ready | Cold, event: e.MaterialAttached, served_ms: int
) -> MaterialRow:
    task_ids = (*state.task_ids, event.task_id)
    if isinstance(state, Registered | Assembling):
        return msgspec.structs.replace(state, seq=event.seq, task_ids=task_ids)
    return Ready(
        seq=event.seq,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        size=state.size,
        sha256=state.sha256,
        task_ids=task_ids[-ATTACHED_MAX:],
        content_key=state.content_key,
        seconds_ms=state.seconds_ms,
        pixels=state.pixels,
        used_ms=served_ms,
        tries=state.tries,
    )


def _assembling(
    state: Registered | Assembling, event: e.MaterialAssembling, served_ms: int
) -> Assembling:
    again = isinstance(state, Assembling)
    if event.number != state.tries + 1 or event.again is not again:
        raise ImpossibleEventError(state, event)
    return Assembling(
        seq=event.seq,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        size=state.size,
        sha256=state.sha256,
        task_ids=state.task_ids,
        upload=state.upload,
        tries=event.number,
        first_try=state.first_try if isinstance(state, Assembling) else event.number,
        active_ms=state.active_ms if isinstance(state, Assembling) else served_ms,
        asked_ms=served_ms,
    )


def _reopened(state: Assembling, event: e.MaterialReopened, served_ms: int) -> Registered:
    return Registered(
        seq=event.seq,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        size=state.size,
        sha256=state.sha256,
        task_ids=state.task_ids,
        upload=state.upload,
        tries=state.tries,
        active_ms=served_ms,
    )


def made_ready(state: Registered | Assembling, event: e.MaterialReady, served_ms: int) -> Ready:
    """It can be used from here on."""
    facts = event.facts
    return Ready(
        seq=event.seq,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        size=event.size,
        sha256=event.sha256,
        task_ids=state.task_ids[-ATTACHED_MAX:],
        content_key=event.content_key,
        seconds_ms=0 if facts is None else facts.duration_ms,
        pixels=0 if facts is None else facts.pixels,
        used_ms=served_ms,
        tries=state.tries,
    )


def _refused(state: Registered | Assembling, event: e.MaterialRefused, served_ms: int) -> Rejected:
    return Rejected(
        seq=event.seq,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        size=state.size,
        sha256=state.sha256,
        reason=event.reason,
        tries=state.tries,
        until_ms=served_ms + FORGET_MS,
    )


def _aborted(state: Registered, event: e.MaterialAborted, served_ms: int) -> Aborted:
    return Aborted(
        seq=event.seq,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        size=state.size,
        sha256=state.sha256,
        tries=state.tries,
        until_ms=served_ms + FORGET_MS,
    )


def _chilled(state: Ready, event: e.MaterialChilled) -> Cold:
    return Cold(
        seq=event.seq,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        size=state.size,
        sha256=state.sha256,
        task_ids=state.task_ids,
        content_key=state.content_key,
        seconds_ms=state.seconds_ms,
        pixels=state.pixels,
        used_ms=state.used_ms,
        tries=state.tries,
    )
