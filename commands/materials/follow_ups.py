"""What a material orders from the tasks that wait for it, and how it answers and refuses."""

from typing import Final, NamedTuple

from commands.decider import Decision, Now, wire_name
from commands.materials.states import (
    STATUSES,
    Assembling,
    Cold,
    MaterialRow,
    Ready,
    Registered,
)
from schema import commands as c
from schema import events as e
from schema.ids import CommandId, EventId, MaterialId, TaskId, event_id_of, follow_up_id
from schema.refusals import Refusal
from schema.replies import Accepted, CommandRefused, Refused, ReplyMessage
from schema.routes import MaterialBound

MaterialDecision = Decision[e.MaterialEvent]
Answered = c.RegisterMaterial | c.CompleteMaterial | c.AdoptMaterial
"""What an api may wait for."""
NOTHING: Final[MaterialDecision] = Decision()
"""It is already so."""


class Asked(NamedTuple):
    """What every rule is handed: who asks, of which material, when.

    A material may be declared anew, and then the same command is told again and means something: so
    the number in its event's id is that of the events before it.
    """

    command_id: CommandId
    material_id: MaterialId
    now: Now
    seq: int

    def event_id(self) -> EventId:
        return event_id_of(self.command_id, self.seq)

    def order_id(self, suffix: str) -> CommandId:
        return follow_up_id(self.event_id(), suffix)


def is_stranger(state: MaterialRow, command: MaterialBound) -> bool:
    return state.user_id != command.user_id or state.tenant_id != command.tenant_id


def confirm(asked: Asked, ready: Ready, task_id: TaskId, number: int = 0) -> c.ConfirmMaterial:
    return c.ConfirmMaterial(
        command_id=asked.order_id(f"y{number}"),
        task_id=task_id,
        material_id=asked.material_id,
        content_key=ready.content_key,
        seconds_ms=ready.seconds_ms,
        pixels=ready.pixels,
        size=ready.size,
    )


def reject(asked: Asked, task_id: TaskId, reason: str, number: int = 0) -> c.RejectMaterial:
    return c.RejectMaterial(
        command_id=asked.order_id(f"n{number}"),
        task_id=task_id,
        material_id=asked.material_id,
        reason=reason,
    )


def reject_all(
    asked: Asked, state: Registered | Assembling, reason: str
) -> tuple[c.RejectMaterial, ...]:
    """Nobody waits any more."""
    return tuple(reject(asked, task_id, reason, n) for n, task_id in enumerate(state.task_ids))


def extend_waits(asked: Asked, state: Registered | Assembling) -> tuple[c.ExtendWait, ...]:
    """The upload goes on: whoever waits for it waits longer."""
    return tuple(
        c.ExtendWait(
            command_id=asked.order_id(f"w{number}"),
            task_id=task_id,
            material_id=asked.material_id,
        )
        for number, task_id in enumerate(state.task_ids)
    )


def already(
    state: Registered | Assembling | Ready | Cold, command: Answered, asked: Asked
) -> MaterialDecision:
    """It is so; who asks again is answered again."""
    upload_id = state.upload.upload_id if isinstance(state, Registered) else ""
    return Decision(reply=accepted(command, asked, state.seq, type(state), upload_id))


def accepted(
    command: Answered, asked: Asked, seq: int, kind: type[MaterialRow], upload_id: str = ""
) -> Accepted | None:
    if command.reply_to is None:
        return None
    return Accepted(
        command_id=command.command_id,
        key=asked.material_id,
        at=asked.now.at,
        seq=seq,
        status=STATUSES[kind],
        upload_id=upload_id,
    )


def refused(command: Answered, asked: Asked, reason: Refusal, detail: str = "") -> Refused | None:
    if command.reply_to is None:
        return None
    return Refused(
        command_id=command.command_id,
        key=asked.material_id,
        at=asked.now.at,
        reason=reason,
        detail=detail,
    )


def refuse(command: MaterialBound, asked: Asked, reason: Refusal) -> MaterialDecision:
    """Nothing happens; that it was asked is recorded, and told to who waits."""
    reply: ReplyMessage | None = None
    if isinstance(command, Answered):
        reply = refused(command, asked, reason)
    fact = CommandRefused(
        command_id=command.command_id,
        command=wire_name(command),
        key=asked.material_id,
        user_id=command.user_id,
        at=asked.now.at,
        reason=reason,
    )
    return Decision(reply=reply, refusal=fact)
