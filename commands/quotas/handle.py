"""One step: the rows that a command names are loaded, decided on, evolved and written back.

What the shells call, and `apply`, which folds a log that somebody else decided.
"""

from typing import NamedTuple, assert_never

from commands.decider import Decision, Now, Rows, TimerDue
from commands.quotas.decide import decide
from commands.quotas.evolve import evolve
from commands.quotas.state import (
    NEW_ACCOUNT,
    NEW_TENANT_MONTH,
    NEW_USER_MONTH,
    POLICY_KEY,
    AccountRow,
    Books,
    Charge,
    Charged,
    Committed,
    Open,
    PolicyRow,
    QuotaRow,
    Refunded,
    Released,
    Reservation,
    TenantMonth,
    ToppedUp,
    UserMonth,
    charge_key,
    has_tenant,
    reservation_key,
    tenant_month_key,
    top_up_key,
    user_month_key,
)
from schema.commands import (
    CommitReservation,
    Origin,
    PublishPolicy,
    QuotaCommand,
    RefundCharge,
    ReleaseKey,
    ReleaseReservation,
    RetryTask,
    SubmitTask,
    TopUpQuota,
)
from schema.events import (
    ChargeRefunded,
    PolicyAdopted,
    QuotaCommitted,
    QuotaEvent,
    QuotaReleased,
    QuotaReserved,
    QuotaToppedUp,
)
from schema.windows import to_ms, windows_at


class Keys(NamedTuple):
    """Where the rows of the books are kept; empty: no such row is meant."""

    account: str = ""
    user: str = ""
    tenant: str = ""
    reservation: str = ""
    charge: str = ""
    top_up: str = ""


def handle(rows: Rows[QuotaRow], command: QuotaCommand, now: Now) -> Decision[QuotaEvent]:
    """Decide one command; its effect is in the rows when this returns."""
    keys = _keys(rows, command, now)
    books = _read(rows, keys, now.served_ms)
    decision = decide(books, command, now)
    for event in decision.events:
        after = evolve(books, event, now.served_ms)
        _write(rows, keys, books, after)
        books = after
    return decision


def apply(rows: Rows[QuotaRow], event: QuotaEvent, served_ms: int) -> None:
    """Fold an event that was decided elsewhere; raises ImpossibleEventError if it cannot follow."""
    keys = _keys_of_event(event)
    books = _read(rows, keys, served_ms)
    _write(rows, keys, books, evolve(books, event, served_ms))


def due_ms(row: QuotaRow) -> int | None:
    """When a row may be forgotten, in the served clock; None: not by itself."""
    match row:
        case UserMonth() | TenantMonth():
            return None if row.open_count else row.kept_until_ms
        case Committed() | Released() | Charged() | Refunded() | ToppedUp():
            return row.kept_until_ms
        case PolicyRow() | AccountRow() | Open():
            return None
        case _:
            assert_never(row)


def on_due(rows: Rows[QuotaRow], timer: TimerDue, now: Now) -> Decision[QuotaEvent]:
    """A row whose time has passed is deleted; it counted as absent before, so nothing follows."""
    row = rows.get(timer.key)
    due = None if row is None else due_ms(row)
    if due is not None and due <= now.served_ms:
        rows.delete(timer.key)
    return Decision()


def _keys(rows: Rows[QuotaRow], command: QuotaCommand, now: Now) -> Keys:
    """The rows that a command names: of the month that is now, or of the one it was reserved in."""
    match command:
        case SubmitTask():
            origin = command.origin
            return _keys_at_the_door(rows, origin, command.command_id, now)
        case CommitReservation() | ReleaseReservation():
            return _keys_of_reservation(rows, command.account_id, command.reservation_id)
        case RetryTask():
            return _keys_at_the_door(rows, command, command.command_id, now)
        case RefundCharge():
            return _keys_of_charge(rows, command.account_id, command.charge_id)
        case TopUpQuota():
            return _keys_of_top_up(rows, command, now)
        case PublishPolicy() | ReleaseKey():
            return Keys()
        case _:
            assert_never(command)


def _keys_at_the_door(
    rows: Rows[QuotaRow], asker: Origin | RetryTask, command_id: str, now: Now
) -> Keys:
    account_id = asker.account_id
    month_ms = _month_ms(rows, now)
    return Keys(
        account_id,
        user_month_key(account_id, asker.user_id, asker.scene, month_ms),
        tenant_month_key(account_id, asker.scene, month_ms) if has_tenant(account_id) else "",
        reservation_key(account_id, command_id),
    )


def _keys_of_reservation(rows: Rows[QuotaRow], account_id: str, reservation_id: str) -> Keys:
    key = reservation_key(account_id, reservation_id)
    found = rows.get(key)
    if not isinstance(found, Open):
        return Keys(reservation=key)
    month_ms = to_ms(found.month_start)
    return Keys(
        account_id,
        user_month_key(account_id, found.user_id, found.scene, month_ms),
        tenant_month_key(account_id, found.scene, month_ms) if has_tenant(account_id) else "",
        key,
        charge_key(account_id, reservation_id),
    )


def _keys_of_charge(rows: Rows[QuotaRow], account_id: str, charge_id: str) -> Keys:
    key = charge_key(account_id, charge_id)
    found = rows.get(key)
    if not isinstance(found, Charged):
        return Keys(charge=key)
    month_ms = to_ms(found.month_start)
    return Keys(
        account_id,
        user_month_key(account_id, found.user_id, found.scene, month_ms),
        tenant_month_key(account_id, found.scene, month_ms) if has_tenant(account_id) else "",
        charge=key,
    )


def _keys_of_top_up(rows: Rows[QuotaRow], command: TopUpQuota, now: Now) -> Keys:
    account_id, user_id = command.account_id, command.user_id
    month_ms = _month_ms(rows, now)
    return Keys(
        account_id,
        "" if user_id is None else user_month_key(account_id, user_id, command.scene, month_ms),
        tenant_month_key(account_id, command.scene, month_ms) if has_tenant(account_id) else "",
        top_up=top_up_key(account_id, command.command_id),
    )


def _month_ms(rows: Rows[QuotaRow], now: Now) -> int:
    """The start of the month that is now, by the policy's zone; without a policy there is none."""
    held = rows.get(POLICY_KEY)
    return windows_at(now.at, held.policy.timezone).month_ms if isinstance(held, PolicyRow) else 0


def _keys_of_event(event: QuotaEvent) -> Keys:
    if isinstance(event, PolicyAdopted):
        return Keys()
    account_id, user_id, scene = event.account_id, event.user_id, event.scene
    reservation = charge = top_up = ""
    match event:
        case QuotaReserved():
            start = event.month.start
            reservation = reservation_key(account_id, event.reservation_id)
        case QuotaCommitted():
            start = event.month_start
            reservation = reservation_key(account_id, event.reservation_id)
            charge = charge_key(account_id, event.charge_id)
        case QuotaReleased():
            start = event.month_start
            reservation = reservation_key(account_id, event.reservation_id)
        case ChargeRefunded():
            start = event.month_start
            charge = charge_key(account_id, event.charge_id)
        case QuotaToppedUp():
            start = event.month.start
            top_up = top_up_key(account_id, event.event_id.rpartition(".")[0])
        case _:
            assert_never(event)
    month_ms = to_ms(start)
    return Keys(
        account_id,
        "" if user_id is None else user_month_key(account_id, user_id, scene, month_ms),
        tenant_month_key(account_id, scene, month_ms) if has_tenant(account_id) else "",
        reservation,
        charge,
        top_up,
    )


def _read(rows: Rows[QuotaRow], keys: Keys, served_ms: int) -> Books:
    """The books under these keys. What has ended long enough ago counts as absent."""
    policy = rows.get(POLICY_KEY)
    account = rows.get(keys.account)
    user = rows.get(keys.user)
    tenant = None
    if keys.tenant:
        found = rows.get(keys.tenant)
        tenant = found if isinstance(found, TenantMonth) else NEW_TENANT_MONTH
    return Books(
        policy if isinstance(policy, PolicyRow) else None,
        account if isinstance(account, AccountRow) else NEW_ACCOUNT,
        user if isinstance(user, UserMonth) else NEW_USER_MONTH,
        tenant,
        _reservation(rows.get(keys.reservation), served_ms) if keys.reservation else None,
        _charge(rows.get(keys.charge), served_ms) if keys.charge else None,
        _top_up(rows.get(keys.top_up), served_ms) if keys.top_up else None,
    )


def _reservation(row: QuotaRow | None, served_ms: int) -> Reservation | None:
    match row:
        case Open():
            return row
        case Committed() | Released() if row.kept_until_ms > served_ms:
            return row
        case _:
            return None


def _charge(row: QuotaRow | None, served_ms: int) -> Charge | None:
    match row:
        case Charged() | Refunded() if row.kept_until_ms > served_ms:
            return row
        case _:
            return None


def _top_up(row: QuotaRow | None, served_ms: int) -> ToppedUp | None:
    return row if isinstance(row, ToppedUp) and row.kept_until_ms > served_ms else None


def _write(rows: Rows[QuotaRow], keys: Keys, before: Books, after: Books) -> None:
    """Put the rows that the event changed, and no other: each is a record of the changelog."""
    if after.policy is not before.policy and after.policy is not None:
        rows.put(POLICY_KEY, after.policy)
    if after.account is not before.account:
        rows.put(keys.account, after.account)
    if after.user is not before.user:
        rows.put(keys.user, after.user)
    if after.tenant is not before.tenant and after.tenant is not None:
        rows.put(keys.tenant, after.tenant)
    if after.reservation is not before.reservation and after.reservation is not None:
        rows.put(keys.reservation, after.reservation)
    if after.charge is not before.charge and after.charge is not None:
        rows.put(keys.charge, after.charge)
    if after.top_up is not before.top_up and after.top_up is not None:
        rows.put(keys.top_up, after.top_up)
