"""Materials: what a user uploads, from its declaration to READY or REFUSED, and who waits for it.

A file is declared with its size and digest, its parts are stored past us, and once its caller says
that all are there the prober joins, reads and probes them: READY, or REFUSED with a reason, or open
again for the parts that are missing. What its tenant holds already need not be sent at all.

A task that needs a material attaches to it and is told as soon as it is known: `ConfirmMaterial` or
`RejectMaterial`; until then it hears that the upload goes on (`ExtendWait`).

A material's id is derived from its user, digest and name, so the same id is the same content. One
that was refused, or aborted because its upload was left lying, may be declared again; after some
days it is forgotten here, and who asks for it hears that it is unknown, until it is declared again.
One that no task has used for long is COLD until one does.

Read in this order: `states` (one type each, and the table of moves), `deciding` (which rule judges
a command), `uploading` (up to the verdict), `concluding` (the verdict, and its use), `evolving`,
and `follow_ups` (what is ordered from tasks, and how it is answered).
"""

from commands.materials.deciding import decide, due_ms, handle, on_due
from commands.materials.evolving import evolve
from commands.materials.states import (
    INITIAL,
    ROW,
    STATUSES,
    TRANSITIONS,
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

__all__ = [
    "INITIAL",
    "ROW",
    "STATUSES",
    "TRANSITIONS",
    "Aborted",
    "Absent",
    "Assembling",
    "Cold",
    "MaterialRow",
    "MaterialState",
    "Ready",
    "Registered",
    "Rejected",
    "decide",
    "due_ms",
    "evolve",
    "handle",
    "on_due",
]
