"""The rows of an account, what a decision sees of them, the moves of reservations and charges.

Rows of a window are found by its start and never reset in place. Times in rows are instants of the
log where a window is meant, and milliseconds of the served clock where something is forgotten.
"""

from typing import Final, NamedTuple

import msgspec

from schema import events as e
from schema.ids import EventId, TaskId, UserId
from schema.message import Instant, KeywordOnly
from schema.policy import KeepPolicy, Policy
from schema.words import Scene

POLICY_KEY: Final = "policy"
SECOND_MS: Final = 1_000


class Row(msgspec.Struct, metaclass=KeywordOnly, frozen=True, array_like=True, tag=True, gc=False):
    """A row is an array on the wire: a changelog is long."""


class PolicyRow(Row, tag="policy"):
    """What the partition goes by; `seq` counts its own events."""

    policy: Policy
    seq: int


class AccountRow(Row, tag="account"):
    """Never forgotten: the numbers of an account's events go on."""

    seq: int


class UserMonth(Row, tag="user"):
    """A user in one scene and month. The day and the minute are the last in which he asked."""

    reserved_micros: int = 0
    spent_micros: int = 0
    topped_up_micros: int = 0
    open_count: int = 0
    """Open reservations; while there are any the row stays."""
    day_start: Instant | None = None
    day_count: int = 0
    minute_start: Instant | None = None
    minute_count: int = 0
    kept_until_ms: int = 0
    """The month's end and the time in which a charge of it may still be refunded."""


class TenantMonth(Row, tag="tenant"):
    """All users of a tenant in one scene and month, contract or not: one may be agreed on later."""

    reserved_micros: int = 0
    spent_micros: int = 0
    topped_up_micros: int = 0
    open_count: int = 0
    kept_until_ms: int = 0


class Open(Row, tag="open"):
    """A reservation that is held for a task. It never goes by itself."""

    task_id: TaskId
    user_id: UserId
    scene: Scene
    fingerprint: str
    reserved_micros: int
    month_start: Instant
    day_start: Instant


class Committed(Row, tag="committed"):
    task_id: TaskId
    fingerprint: str
    reserved_micros: int
    kept_until_ms: int


class Released(Row, tag="released"):
    task_id: TaskId
    fingerprint: str
    reserved_micros: int
    kept_until_ms: int


class Charged(Row, tag="charged"):
    """What a task was charged, while it can be given back."""

    user_id: UserId
    scene: Scene
    amount_micros: int
    month_start: Instant
    kept_until_ms: int


class Refunded(Row, tag="refunded"):
    """The refund's once: as long as this stands, nothing of the charge is given back again."""

    event_id: EventId
    kept_until_ms: int


class ToppedUp(Row, tag="topped_up"):
    """A top-up's once."""

    user_id: UserId | None
    scene: Scene
    amount_micros: int
    kept_until_ms: int


Reservation = Open | Committed | Released
Charge = Charged | Refunded
QuotaRow = (
    PolicyRow
    | AccountRow
    | UserMonth
    | TenantMonth
    | Open
    | Committed
    | Released
    | Charged
    | Refunded
    | ToppedUp
)
ROW = QuotaRow
"""What the bytes of a row are decoded as."""

TRANSITIONS: Final[dict[tuple[type[Row] | None, type[e.Event]], type[Row]]] = {
    (None, e.QuotaReserved): Open,
    (Open, e.QuotaCommitted): Committed,
    (Open, e.QuotaReleased): Released,
    (Charged, e.ChargeRefunded): Refunded,
}
"""Every move of a reservation and of a charge; any other event cannot follow."""


class Books(NamedTuple):
    """What one decision sees: the rows that its command names, absent ones as if never written."""

    policy: PolicyRow | None = None
    account: AccountRow = AccountRow(seq=0)
    user: UserMonth = UserMonth()
    tenant: TenantMonth | None = None
    """None: no tenant stands behind the account."""
    reservation: Reservation | None = None
    charge: Charge | None = None
    top_up: ToppedUp | None = None

    @property
    def keep(self) -> KeepPolicy:
        """How long what has ended is remembered."""
        return KeepPolicy() if self.policy is None else self.policy.policy.keep


INITIAL: Final = Books()
NEW_USER_MONTH: Final = UserMonth()
NEW_TENANT_MONTH: Final = TenantMonth()
NEW_ACCOUNT: Final = AccountRow(seq=0)


def has_tenant(account_id: str) -> bool:
    """Whether the account is that of a tenant and its users (`schema.ids.account_of`)."""
    return account_id.startswith("t-")


# Keys are short, as each stands in the changelog again and again. Account ids end them: they hold
# what a tenant is called, so nothing may follow. An account's own row is found by its id alone.


def user_month_key(account_id: str, user_id: str, scene: str, month_ms: int) -> str:
    return f"m/{month_ms}/{scene}/{user_id}/{account_id}"


def tenant_month_key(account_id: str, scene: str, month_ms: int) -> str:
    return f"k/{month_ms}/{scene}/{account_id}"


def reservation_key(account_id: str, reservation_id: str) -> str:
    return f"r/{reservation_id}/{account_id}"


def charge_key(account_id: str, charge_id: str) -> str:
    return f"c/{charge_id}/{account_id}"


def top_up_key(account_id: str, command_id: str) -> str:
    return f"p/{command_id}/{account_id}"
