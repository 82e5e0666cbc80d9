"""What a material orders from the tasks that wait for it, and how it answers and refuses."""

from typing import Final, NamedTuple

from commands.decider import Decision, Now, wire_name
from commands.materials.states import STATUSES, MaterialRow, Ready, Registered
from schema import commands as c
from schema import events as e
from schema.ids import CommandId, EventId, MaterialId, TaskId, event_id_of, follow_up_id
from schema.refusals import Refusal
from schema.replies import Accepted, CommandRefused, Refused, ReplyMessage
from schema.routes import MaterialBound

MaterialDecision = Decision[e.MaterialEvent]
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


def as_declared(state: MaterialRow, command: c.CompleteMaterial) -> bool:
    return command.size == state.size and command.sha256 == state.sha256


def confirm(asked: Asked, task_id: TaskId, number: int = 0) -> c.ConfirmMaterial:
    return c.ConfirmMaterial(
        command_id=asked.order_id(f"y{number}"), task_id=task_id, material_id=asked.material_id
    )


def reject(asked: Asked, task_id: TaskId, reason: str, number: int = 0) -> c.RejectMaterial:
    return c.RejectMaterial(
        command_id=asked.order_id(f"n{number}"),
        task_id=task_id,
        material_id=asked.material_id,
        reason=reason,
    )


def already(
    state: Registered | Ready, command: c.RegisterMaterial | c.CompleteMaterial, asked: Asked
) -> MaterialDecision:
    """It is so; who asks again is answered again."""
    return Decision(reply=accepted(command, asked, state.seq, STATUSES[type(state)]))


def accepted(
    command: c.RegisterMaterial | c.CompleteMaterial, asked: Asked, seq: int, status: str
) -> Accepted | None:
    if command.reply_to is None:
        return None
    return Accepted(
        command_id=command.command_id,
        key=asked.material_id,
        at=asked.now.at,
        seq=seq,
        status=status,
    )


def refused(
    command: c.RegisterMaterial | c.CompleteMaterial, asked: Asked, reason: Refusal
) -> Refused | None:
    if command.reply_to is None:
        return None
    return Refused(
        command_id=command.command_id, key=asked.material_id, at=asked.now.at, reason=reason
    )


def refuse(command: MaterialBound, asked: Asked, reason: Refusal) -> MaterialDecision:
    """Nothing happens; that it was asked is recorded, and told to who waits."""
    reply: ReplyMessage | None = None
    if not isinstance(command, c.AttachMaterial):
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
