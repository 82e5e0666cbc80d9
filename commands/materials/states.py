"""The states of a material, one type each, the moves between them, and what an event makes of it.

A state is its own row, under the material's id.
"""

from typing import Any, Final, assert_never, dataclass_transform

import msgspec

from commands.decider import ImpossibleEventError
from schema import events as e
from schema.ids import TaskId, TenantId, UserId
from schema.message import KeywordOnly

ATTACHED_MAX: Final = 8
"""How many of the last tasks of a READY material are remembered, to know an order told twice."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Row(msgspec.Struct, metaclass=KeywordOnly, frozen=True, array_like=True, gc=False):
    """Compact on the wire: an array. Fields are only ever added at the end, with a default."""


class Absent(Row):
    """No such material. Never a row."""

    seq: int = 0


class _Known(Row):
    seq: int
    user_id: UserId
    tenant_id: TenantId
    size: int
    sha256: str
    task_ids: tuple[TaskId, ...] = ()


class Registered(_Known, tag="registered"):
    """Declared; `task_ids` wait for it."""


class Ready(_Known, tag="ready"):
    """Stored as declared; `task_ids` are the last ones that were told so."""


class Rejected(_Known, tag="refused"):
    """What was stored is not what was declared; nobody waits any more."""

    reason: str


MaterialRow = Registered | Ready | Rejected
MaterialState = Absent | MaterialRow
ROW: Final[Any] = MaterialRow
"""What the rows are decoded as."""
INITIAL: Final = Absent()

STATUSES: Final[dict[type[MaterialRow], str]] = {
    Registered: "REGISTERED",
    Ready: "READY",
    Rejected: "REFUSED",
}
"""What a reply calls the state."""

TRANSITIONS: Final[dict[tuple[type[MaterialState], type[e.MaterialEvent]], type[MaterialRow]]] = {
    (Absent, e.MaterialRegistered): Registered,
    (Registered, e.MaterialAttached): Registered,
    (Registered, e.MaterialReady): Ready,
    (Registered, e.MaterialRefused): Rejected,
    (Ready, e.MaterialAttached): Ready,
    (Rejected, e.MaterialRegistered): Registered,
}
"""Every move there is, as data; `evolve` says the same as code, and a test holds them together."""


def evolve(state: MaterialState, event: e.MaterialEvent) -> MaterialRow:
    """The next state; raises ImpossibleEventError."""
    if event.seq != state.seq + 1:
        raise ImpossibleEventError(state, event)
    match event:
        case e.MaterialRegistered():
            if isinstance(state, Absent | Rejected):
                return Registered(
                    seq=event.seq,
                    user_id=event.user_id,
                    tenant_id=event.tenant_id,
                    size=event.size,
                    sha256=event.sha256,
                )
        case e.MaterialAttached():
            if isinstance(state, Registered):
                return msgspec.structs.replace(
                    state, seq=event.seq, task_ids=(*state.task_ids, event.task_id)
                )
            if isinstance(state, Ready):
                task_ids = (*state.task_ids, event.task_id)[-ATTACHED_MAX:]
                return msgspec.structs.replace(state, seq=event.seq, task_ids=task_ids)
        case e.MaterialReady():
            if isinstance(state, Registered):
                return Ready(
                    seq=event.seq,
                    user_id=state.user_id,
                    tenant_id=state.tenant_id,
                    size=event.size,
                    sha256=event.sha256,
                    task_ids=state.task_ids[-ATTACHED_MAX:],
                )
        case e.MaterialRefused():
            if isinstance(state, Registered):
                return Rejected(
                    seq=event.seq,
                    user_id=state.user_id,
                    tenant_id=state.tenant_id,
                    size=state.size,
                    sha256=state.sha256,
                    reason=event.reason,
                )
        case _:
            assert_never(event)
    raise ImpossibleEventError(state, event)
