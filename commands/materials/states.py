"""The states of a material, one type each, and the moves between them.

A state is its own row, under the material's id. `active_ms` and `used_ms` are instants of the
served clock of task-commands, so that nothing is left lying because nobody served it.
"""

from typing import Any, Final, dataclass_transform

import msgspec

from schema import events as e
from schema.ids import TaskId, TenantId, UserId
from schema.message import KeywordOnly

ATTACHED_MAX: Final = 8
"""How many of the last tasks of a READY material are remembered, to know an order told twice."""

FORGET_MS: Final = 7 * 24 * 3600 * 1000
"""So long after its end one that came to nothing is remembered; the read model remembers it on."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Row(msgspec.Struct, metaclass=KeywordOnly, frozen=True, array_like=True, gc=False):
    """Compact on the wire: an array. Fields are only ever added at the end, with a default."""


class Upload(Row):
    """How its bytes come in."""

    content_type: str = ""
    part_bytes: int = 0
    seconds_max: int = 0
    """The longest that its caller said it is; 0: he did not say."""
    upload_id: str = ""


class Absent(Row):
    """No such material, or one that is forgotten. Never a row."""

    seq: int = 0
    """Of the last event before it was forgotten, as the read model knows it."""


class _Known(Row):
    """Never given another field: those of the states follow it in the array."""

    seq: int
    user_id: UserId
    tenant_id: TenantId
    size: int
    sha256: str
    task_ids: tuple[TaskId, ...] = ()


class Registered(_Known, tag="registered"):
    """Declared; its parts come in, and `task_ids` wait for it."""

    upload: Upload = Upload()
    tries: int = 0
    """To assemble it: the number of the last one, over its whole life."""
    active_ms: int = 0
    """When something of the upload was heard of last."""


class Assembling(_Known, tag="assembling"):
    """All parts are said to be there; the prober joins, reads and probes them."""

    upload: Upload
    tries: int
    first_try: int
    """Verdicts of earlier ones are on what was uploaded before."""
    active_ms: int
    """When it was said."""
    asked_ms: int = 0
    """When the prober was asked last."""


class _Stored(_Known):
    content_key: str = ""
    seconds_ms: int = 0
    pixels: int = 0
    used_ms: int = 0
    """When it became READY, or was attached last."""
    tries: int = 0


class Ready(_Stored, tag="ready"):
    """Stored as declared; `task_ids` are the last ones that were told so."""


class Cold(_Stored, tag="cold"):
    """As READY, but no task has used it for long; it is READY again when one does."""


class Rejected(_Known, tag="refused"):
    """What was stored cannot be used; nobody waits any more."""

    reason: str
    tries: int = 0
    until_ms: int = 0
    """Forgotten from here on, as every deadline in the served clock; 0: of an older release."""


class Aborted(_Known, tag="aborted"):
    """Its upload was left lying; nobody waits any more."""

    tries: int = 0
    until_ms: int = 0


MaterialRow = Registered | Assembling | Ready | Cold | Rejected | Aborted
MaterialState = Absent | MaterialRow
ROW: Final[Any] = MaterialRow
"""What the rows are decoded as."""
INITIAL: Final = Absent()

STATUSES: Final[dict[type[MaterialRow], str]] = {
    Registered: "REGISTERED",
    Assembling: "ASSEMBLING",
    Ready: "READY",
    Cold: "COLD",
    Rejected: "REFUSED",
    Aborted: "ABORTED",
}
"""What a reply calls the state."""

TRANSITIONS: Final[dict[tuple[type[MaterialState], type[e.MaterialEvent]], type[MaterialRow]]] = {
    (Absent, e.MaterialRegistered): Registered,
    (Registered, e.MaterialRegistered): Registered,
    (Registered, e.UploadTouched): Registered,
    (Registered, e.MaterialAttached): Registered,
    (Registered, e.MaterialAssembling): Assembling,
    (Registered, e.MaterialReady): Ready,
    (Registered, e.MaterialRefused): Rejected,
    (Registered, e.MaterialAborted): Aborted,
    (Assembling, e.MaterialAttached): Assembling,
    (Assembling, e.MaterialAssembling): Assembling,
    (Assembling, e.MaterialReopened): Registered,
    (Assembling, e.MaterialReady): Ready,
    (Assembling, e.MaterialRefused): Rejected,
    (Ready, e.MaterialAttached): Ready,
    (Ready, e.MaterialChilled): Cold,
    (Cold, e.MaterialAttached): Ready,
    (Rejected, e.MaterialRegistered): Registered,
    (Aborted, e.MaterialRegistered): Registered,
}
"""Every move there is, as data; `evolve` says the same as code, and a test holds them together."""
