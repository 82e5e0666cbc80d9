"""Ends before the end: canceled by somebody, or expired after waiting too long."""

from typing import assert_never

from commands.decider import Decision
from commands.pricing import cancel_charge_micros
from commands.tasks import follow_ups as f
from commands.tasks.card_time import NONE, ran_ms, untold
from commands.tasks.follow_ups import NOTHING, Asked, TaskDecision
from commands.tasks.states import (
    Absent,
    AttemptState,
    Canceled,
    Created,
    Delayed,
    Expired,
    Failed,
    Queued,
    Running,
    Storing,
    Succeeded,
    TaskState,
)
from schema import commands as c
from schema import events as e
from schema.refusals import Refusal
from schema.words import CancelCause, Status

Waiting = Created | Queued | Delayed


def cancel(state: TaskState, command: c.CancelTask, asked: Asked) -> TaskDecision:
    """Whatever the runner tells afterwards is refused: canceled stays."""
    match state:
        case Absent():
            reason = Refusal.TASK_UNKNOWN
        case _ if f.is_stranger(state, command):
            reason = Refusal.NOT_YOURS
        case Created() | Queued() | Delayed() | Running() | Storing():
            reply = f.accepted(command, asked, state.seq + 1, Status.CANCELED)
            return canceled(state, asked, command.cause)._replace(reply=reply)
        case Canceled():
            return f.already(state, command, asked)
        case Succeeded() | Failed() | Expired():
            reason = Refusal.TASK_ENDED
        case _:
            assert_never(state)
    return f.refused(state, command, asked, reason)


def canceled(
    state: Waiting | AttemptState, asked: Asked, cause: CancelCause, reason: str = ""
) -> TaskDecision:
    """A running attempt is stopped as best one can; the time that it ran is charged."""
    charge, time = 0, NONE
    match state:
        case Created() | Delayed():
            orders: tuple[f.Order, ...] = ()
        case Queued():
            orders = (f.dequeue(asked, state),)
        case Running() | Storing():
            charge = cancel_charge_micros(
                state.hold.price, ran_ms(state, asked), state.hold.reserved_micros
            )
            time = untold(state, asked)
            orders = (
                f.stop_attempt(asked, state, "canceled"),
                f.end_attempt(asked, state, time.ms),
            )
        case _:
            assert_never(state)
    event = e.TaskCanceled(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=state.spec.user_id,
        cause=cause,
        token=state.course.token,
        charge_micros=charge,
        reason=reason,
        card_ms=time.ms,
        card_measured=time.measured,
    )
    return Decision((event,), (_resolve(state, asked, charge), *orders))


def _resolve(
    state: Waiting | AttemptState, asked: Asked, charge_micros: int
) -> c.CommitReservation | c.ReleaseReservation:
    account_id, hold = state.spec.account_id, state.hold
    if charge_micros > 0:
        return f.commit(asked, account_id, hold.reservation_id, charge_micros)
    ran = state.course.token > hold.since_token
    return f.release(asked, account_id, hold.reservation_id, ran=ran)


def expire(state: TaskState, command: c.ExpireTask, asked: Asked) -> TaskDecision:
    """The pool's word that the wait which began at this token was too long."""
    match state:
        case Queued() if command.token == state.course.token:
            decision = expired(state, asked)
            # It may have left the pool that says so while that was on its way: it waits nowhere.
            return decision._replace(orders=(*decision.orders, *f.leave_other(asked, state)))
        case Expired() if command.token == state.token:
            return NOTHING
        case _:
            return not_waiting(state, command, asked)


def not_waiting(state: TaskState, command: c.ExpireTask | c.MoveTask, asked: Asked) -> TaskDecision:
    """Why the pool's word on a wait is not taken: the task does not wait with that token."""
    match state:
        case Queued():
            reason = (
                Refusal.TOKEN_STALE
                if command.token < state.course.token
                else Refusal.TOKEN_NOT_NEXT
            )
        case Absent():
            reason = Refusal.TASK_UNKNOWN
        case Created() | Delayed() | Running() | Storing():
            reason = Refusal.TASK_NOT_QUEUED
        case Succeeded() | Failed() | Canceled() | Expired():
            reason = Refusal.TASK_ENDED
        case _:
            assert_never(state)
    return f.refuse(state, command, asked, reason)


def expired(state: Created | Queued, asked: Asked) -> TaskDecision:
    """It waited too long, for its material or for a slot."""
    event = e.TaskExpired(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=state.spec.user_id,
        token=state.course.token,
    )
    return Decision((event,), (_resolve(state, asked, 0),))
