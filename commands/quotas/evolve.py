"""What each event changes in the books.

An event that cannot follow raises: the log or the code is wrong, and the partition stops.
"""

from typing import assert_never

from commands.decider import ImpossibleEventError
from commands.quotas.state import (
    SECOND_MS,
    AccountRow,
    Books,
    Charged,
    Committed,
    Open,
    PolicyRow,
    Refunded,
    Released,
    TenantMonth,
    ToppedUp,
    UserMonth,
)
from schema.events import (
    ChargeRefunded,
    PolicyAdopted,
    QuotaCommitted,
    QuotaEvent,
    QuotaReleased,
    QuotaReserved,
    QuotaToppedUp,
    Window,
)
from schema.message import Instant
from schema.windows import to_ms


def evolve(books: Books, event: QuotaEvent, served_ms: int) -> Books:
    """The books after the event; `served_ms` is what deadlines count from."""
    if isinstance(event, PolicyAdopted):
        return _adopted(books, event)
    if event.seq != books.account.seq + 1:
        raise ImpossibleEventError(books.account, event)
    match event:
        case QuotaReserved():
            return _reserved(books, event, served_ms)
        case QuotaCommitted():
            return _committed(books, event, served_ms)
        case QuotaReleased():
            return _released(books, event, served_ms)
        case ChargeRefunded():
            return _refunded(books, event)
        case QuotaToppedUp():
            return _topped_up(books, event, served_ms)
        case _:
            assert_never(event)


def _adopted(books: Books, event: PolicyAdopted) -> Books:
    held = books.policy
    seq, version = (0, 0) if held is None else (held.seq, held.policy.version)
    if event.seq != seq + 1 or event.policy.version <= version:
        raise ImpossibleEventError(held, event)
    return books._replace(policy=PolicyRow(policy=event.policy, seq=event.seq))


def _reserved(books: Books, event: QuotaReserved, served_ms: int) -> Books:
    if books.reservation is not None:
        raise ImpossibleEventError(books.reservation, event)
    user, amount = books.user, event.amount_micros
    day, minute = event.day.start, event.minute.start
    kept = user.kept_until_ms or _kept_until_ms(books, event.month, event.at, served_ms)
    return Books(
        books.policy,
        AccountRow(seq=event.seq),
        UserMonth(
            reserved_micros=user.reserved_micros + amount,
            spent_micros=user.spent_micros,
            topped_up_micros=user.topped_up_micros,
            open_count=user.open_count + 1,
            day_start=day,
            day_count=user.day_count + 1 if user.day_start == day else 1,
            minute_start=minute,
            minute_count=user.minute_count + 1 if user.minute_start == minute else 1,
            kept_until_ms=kept,
        ),
        _move_contract(books, event, reserved=amount, opened=1, kept_until_ms=kept),
        Open(
            task_id=event.task_id,
            user_id=event.user_id,
            scene=event.scene,
            fingerprint=event.fingerprint,
            reserved_micros=amount,
            month_start=event.month.start,
            day_start=day,
        ),
    )


def _committed(books: Books, event: QuotaCommitted, served_ms: int) -> Books:
    found, amount = books.reservation, event.amount_micros
    if not isinstance(found, Open) or found.reserved_micros != amount + event.released_micros:
        raise ImpossibleEventError(found, event)
    keep = books.keep
    kept = served_ms + keep.charge_seconds * SECOND_MS
    reserved = -found.reserved_micros
    charge = Charged(
        user_id=found.user_id,
        scene=found.scene,
        amount_micros=amount,
        month_start=found.month_start,
        kept_until_ms=kept,
    )
    return Books(
        books.policy,
        AccountRow(seq=event.seq),
        _move(books, event, reserved=reserved, spent=amount, opened=-1, kept_until_ms=kept),
        _move_contract(
            books, event, reserved=reserved, spent=amount, opened=-1, kept_until_ms=kept
        ),
        Committed(
            task_id=found.task_id,
            fingerprint=found.fingerprint,
            reserved_micros=found.reserved_micros,
            kept_until_ms=served_ms + keep.ended_seconds * SECOND_MS,
        ),
        charge if amount else None,  # of nothing nothing can be given back
    )


def _released(books: Books, event: QuotaReleased, served_ms: int) -> Books:
    found, user = books.reservation, books.user
    if not isinstance(found, Open) or found.reserved_micros != event.amount_micros:
        raise ImpossibleEventError(found, event)
    if event.day_returned and (user.day_start != found.day_start or user.day_count < 1):
        raise ImpossibleEventError(user, event)
    reserved = -found.reserved_micros
    return Books(
        books.policy,
        AccountRow(seq=event.seq),
        _move(books, event, reserved=reserved, opened=-1, days=-1 if event.day_returned else 0),
        _move_contract(books, event, reserved=reserved, opened=-1),
        Released(
            task_id=found.task_id,
            fingerprint=found.fingerprint,
            reserved_micros=found.reserved_micros,
            kept_until_ms=served_ms + books.keep.released_seconds * SECOND_MS,
        ),
    )


def _refunded(books: Books, event: ChargeRefunded) -> Books:
    found, amount = books.charge, event.amount_micros
    if not isinstance(found, Charged) or amount > found.amount_micros:
        raise ImpossibleEventError(found, event)
    return books._replace(
        account=AccountRow(seq=event.seq),
        user=_move(books, event, spent=-amount),
        tenant=_move_contract(books, event, spent=-amount),
        charge=Refunded(event_id=event.event_id, kept_until_ms=found.kept_until_ms),
    )


def _topped_up(books: Books, event: QuotaToppedUp, served_ms: int) -> Books:
    if books.top_up is not None:
        raise ImpossibleEventError(books.top_up, event)
    kept = _kept_until_ms(books, event.month, event.at, served_ms)
    after = books._replace(
        account=AccountRow(seq=event.seq),
        top_up=ToppedUp(
            user_id=event.user_id,
            scene=event.scene,
            amount_micros=event.amount_micros,
            kept_until_ms=kept,
        ),
    )
    if event.user_id is not None:
        user = _move(books, event, topped_up=event.amount_micros, kept_until_ms=kept)
        return after._replace(user=user)
    if books.tenant is None:
        raise ImpossibleEventError(books, event)
    contract = _move_contract(books, event, topped_up=event.amount_micros, kept_until_ms=kept)
    return after._replace(tenant=contract)


def _kept_until_ms(books: Books, month: Window, at: Instant, served_ms: int) -> int:
    """Until the month is over and a charge of its last instant can no more be refunded."""
    left_ms = max(to_ms(month.end) - to_ms(at), 0)
    return served_ms + left_ms + books.keep.charge_seconds * SECOND_MS


def _move(  # noqa: PLR0913 - what moves
    books: Books,
    event: QuotaEvent,
    *,
    reserved: int = 0,
    spent: int = 0,
    topped_up: int = 0,
    opened: int = 0,
    days: int = 0,
    kept_until_ms: int = 0,
) -> UserMonth:
    user = books.user
    after = UserMonth(
        reserved_micros=user.reserved_micros + reserved,
        spent_micros=user.spent_micros + spent,
        topped_up_micros=user.topped_up_micros + topped_up,
        open_count=user.open_count + opened,
        day_start=user.day_start,
        day_count=user.day_count + days,
        minute_start=user.minute_start,
        minute_count=user.minute_count,
        kept_until_ms=max(user.kept_until_ms, kept_until_ms),
    )
    if after.reserved_micros < 0 or after.spent_micros < 0 or after.open_count < 0:
        raise ImpossibleEventError(user, event)
    return after


def _move_contract(
    books: Books,
    event: QuotaEvent,
    *,
    reserved: int = 0,
    spent: int = 0,
    topped_up: int = 0,
    opened: int = 0,
    kept_until_ms: int = 0,
) -> TenantMonth | None:
    tenant = books.tenant
    if tenant is None:
        return None
    after = TenantMonth(
        reserved_micros=tenant.reserved_micros + reserved,
        spent_micros=tenant.spent_micros + spent,
        topped_up_micros=tenant.topped_up_micros + topped_up,
        open_count=tenant.open_count + opened,
        kept_until_ms=max(tenant.kept_until_ms, kept_until_ms),
    )
    if after.reserved_micros < 0 or after.spent_micros < 0 or after.open_count < 0:
        raise ImpossibleEventError(tenant, event)
    return after
