"""What was reserved is resolved once: spent or free again; and a charge is given back once."""

from typing import assert_never

from commands.decider import Decision, Now
from commands.quotas.refuse import refuse
from commands.quotas.state import Books, Charged, Committed, Open, Refunded, Released
from schema.commands import CommitReservation, RefundCharge, ReleaseReservation
from schema.events import ChargeRefunded, QuotaCommitted, QuotaEvent, QuotaReleased
from schema.ids import ChargeId, event_id_of
from schema.refusals import Refusal


def commit(books: Books, command: CommitReservation, now: Now) -> Decision[QuotaEvent]:
    """At most what is reserved is spent, in the month in which it was reserved."""
    found = books.reservation
    match found:
        case Open():
            amount = min(command.amount_micros, found.reserved_micros)
            event = QuotaCommitted(
                event_id=event_id_of(command.command_id, 0),
                seq=books.account.seq + 1,
                at=now.at,
                account_id=command.account_id,
                reservation_id=command.reservation_id,
                charge_id=ChargeId(command.reservation_id),
                task_id=found.task_id,
                user_id=found.user_id,
                scene=found.scene,
                amount_micros=amount,
                released_micros=found.reserved_micros - amount,
                month_start=found.month_start,
            )
            return Decision((event,))
        case Committed():
            return Decision()
        case Released():
            return refuse(command, now, Refusal.RESERVATION_RESOLVED, detail="released")
        case None:
            return refuse(command, now, Refusal.RESERVATION_UNKNOWN)
        case _:
            assert_never(found)


def release(books: Books, command: ReleaseReservation, now: Now) -> Decision[QuotaEvent]:
    """Everything is free again; the day's count too, if nothing ran and that day still counts."""
    found = books.reservation
    match found:
        case Open():
            event = QuotaReleased(
                event_id=event_id_of(command.command_id, 0),
                seq=books.account.seq + 1,
                at=now.at,
                account_id=command.account_id,
                reservation_id=command.reservation_id,
                task_id=found.task_id,
                user_id=found.user_id,
                scene=found.scene,
                amount_micros=found.reserved_micros,
                month_start=found.month_start,
                day_returned=not command.ran and books.user.day_start == found.day_start,
            )
            return Decision((event,))
        case Released():
            return Decision()
        case Committed():
            return refuse(command, now, Refusal.RESERVATION_RESOLVED, detail="committed")
        case None:
            return refuse(command, now, Refusal.RESERVATION_UNKNOWN)
        case _:
            assert_never(found)


def refund(books: Books, command: RefundCharge, now: Now) -> Decision[QuotaEvent]:
    """At most what was charged is given back, to the month in which it was reserved."""
    found = books.charge
    match found:
        case Charged():
            event = ChargeRefunded(
                event_id=event_id_of(command.command_id, 0),
                seq=books.account.seq + 1,
                at=now.at,
                account_id=command.account_id,
                charge_id=command.charge_id,
                user_id=found.user_id,
                scene=found.scene,
                amount_micros=min(command.amount_micros, found.amount_micros),
                month_start=found.month_start,
                reason=command.reason,
                who=command.who,
            )
            return Decision((event,))
        case Refunded() if found.event_id == event_id_of(command.command_id, 0):
            return Decision()
        case Refunded():
            return refuse(command, now, Refusal.CHARGE_REFUNDED)
        case None:
            return refuse(command, now, Refusal.CHARGE_UNKNOWN)
        case _:
            assert_never(found)
