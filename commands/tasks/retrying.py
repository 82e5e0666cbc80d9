"""A retry by hand: back into the queue from FAILED, paid by a new reservation."""

from typing import assert_never

from commands.decider import Decision
from commands.tasks import follow_ups as f
from commands.tasks.evolving import course_when_retried, spec_when_retried
from commands.tasks.follow_ups import NOTHING, Asked, TaskDecision
from commands.tasks.states import (
    Absent,
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
from schema.words import Status


def requeue(state: TaskState, command: c.RequeueTask, asked: Asked) -> TaskDecision:
    """Retries start anew, tokens go on. A reservation that is not held goes back at once.

    Also one that the task took and is done with: whoever tells the retry again after the account
    has forgotten it reserves anew, and nobody else would ever resolve that.
    """
    match state:
        case Absent():
            reason = Refusal.TASK_UNKNOWN
        case _ if f.is_stranger(state, command):
            reason = Refusal.NOT_YOURS
        case Created() | Queued() | Delayed() | Running() | Storing() if (
            state.hold.reservation_id == command.reservation_id
        ):
            return f.already(state, command, asked)
        case _ if command.reservation_id in state.taken:
            reason = Refusal.RESERVATION_RESOLVED
        case Failed():
            return _retried(state, command, asked)
        case (
            Created()
            | Queued()
            | Delayed()
            | Running()
            | Storing()
            | Succeeded()
            | Canceled()
            | Expired()
        ):
            reason = Refusal.TASK_NOT_FAILED
        case _:
            assert_never(state)
    back = f.release(asked, command.account_id, command.reservation_id, ran=False)
    return f.refused(state, command, asked, reason, (back,))


def discard(state: TaskState, command: c.RequeueTask, asked: Asked) -> TaskDecision:
    """It was thrown away by hand: it stays FAILED, and what was reserved for it goes back."""
    if (
        isinstance(state, Created | Queued | Delayed | Running | Storing)
        and state.hold.reservation_id == command.reservation_id
    ):
        return NOTHING
    back = f.release(asked, command.account_id, command.reservation_id, ran=False)
    return Decision(orders=(back,))


def _retried(state: Failed, command: c.RequeueTask, asked: Asked) -> TaskDecision:
    retried = e.TaskRetried(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=state.spec.user_id,
        price=command.price,
        policy_version=command.policy_version,
        reservation_id=command.reservation_id,
        reserved_micros=command.reserved_micros,
    )
    spec = spec_when_retried(state.spec)
    order = f.enqueue(asked, spec, course_when_retried(state.course), 0)
    reply = f.accepted(command, asked, retried.seq, Status.QUEUED, command.reserved_micros)
    return Decision((retried,), (order,), reply)
