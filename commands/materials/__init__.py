"""Materials: what a user uploads, from its declaration to READY or REFUSED, and who waits for it.

An upload is declared with its size and digest, stored past us, and complete when the store says
that it holds exactly that. A task that needs a material attaches to it and is told as soon as it is
known: `ConfirmMaterial` or `RejectMaterial`.

A material's id is derived from its user, digest and name, so the same id is the same content. One
that was refused may be declared again: it is the upload that was wrong.
"""

from commands.materials.deciding import decide, due_ms, handle, on_due
from commands.materials.states import (
    INITIAL,
    ROW,
    STATUSES,
    TRANSITIONS,
    Absent,
    MaterialRow,
    MaterialState,
    Ready,
    Registered,
    Rejected,
    evolve,
)

__all__ = [
    "INITIAL",
    "ROW",
    "STATUSES",
    "TRANSITIONS",
    "Absent",
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
