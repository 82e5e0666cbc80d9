"""Quotas: what an account may still ask for, what is held for its tasks, what it has spent.

One writer for an account. Every submission passes all layers or none: a minute, a day, a month of
the user in the scene, the month of the tenant's contract. What is reserved is resolved once, by a
commit (at most the reserved amount is spent, the rest is free again) or by a release.

The invariant that a stranger can prove from the events alone: at each `QuotaReserved`, the sum of
what is reserved and spent in that month, this amount included, is at most the limit that stands
in the event (of the user and scene: `limit_micros`; of the tenant and scene: `contract_micros`).
Between two of them the sum only falls, so at every offset it is at most the limit of the last one.
A limit that was lowered leaves what is held and refuses what comes until the sum is below it.
"""

from commands.quotas.decide import decide
from commands.quotas.evolve import evolve
from commands.quotas.handle import apply, due_ms, handle, on_due
from commands.quotas.state import (
    INITIAL,
    POLICY_KEY,
    ROW,
    TRANSITIONS,
    AccountRow,
    Books,
    Charged,
    Committed,
    Open,
    PolicyRow,
    QuotaRow,
    Refunded,
    Released,
    TenantMonth,
    ToppedUp,
    UserMonth,
)

__all__ = [
    "INITIAL",
    "POLICY_KEY",
    "ROW",
    "TRANSITIONS",
    "AccountRow",
    "Books",
    "Charged",
    "Committed",
    "Open",
    "PolicyRow",
    "QuotaRow",
    "Refunded",
    "Released",
    "TenantMonth",
    "ToppedUp",
    "UserMonth",
    "apply",
    "decide",
    "due_ms",
    "evolve",
    "handle",
    "on_due",
]
