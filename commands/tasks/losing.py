"""The attempts of a task when something goes wrong: failed, lost, given back, never ended.

Whoever tells the end of the current token first, wins. A failure counts as a retry; a loss does
not, but there are only so many. When nothing is left to try, the task is FAILED and its quota goes
back.
"""

from zlib import crc32

from commands.decider import Decision
from commands.tasks import follow_ups as f
from commands.tasks.attempts import not_current
from commands.tasks.card_time import CardTime, told, untold
from commands.tasks.follow_ups import NOTHING, Asked, TaskDecision
from commands.tasks.states import (
    AttemptState,
    Delayed,
    Failed,
    Queued,
    Running,
    Storing,
    TaskState,
)
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import TaskId
from schema.words import LossCause

_GIVEN_BACK = frozenset({LossCause.PREEMPTED, LossCause.DRAINED})
"""Nothing broke: it waits for no repair, so it waits for no delay."""


def fail(state: TaskState, command: c.FailAttempt, asked: Asked) -> TaskDecision:
    match state:
        case Running() | Storing() if command.token == state.course.token:
            time = told(state, command.card_ms)
            over = _try_failed(state, asked, command.failure, command.message, time)
            return over._replace(orders=(*over.orders, f.end_attempt(asked, state)))
        case Queued() | Delayed() | Failed() if _ended_so(state, command.token, command.failure):
            return NOTHING
        case _:
            return not_current(state, command, asked)


def lose(state: TaskState, command: c.LoseAttempt, asked: Asked) -> TaskDecision:
    """The pool gave it up. A runner that still works on it is told, in case it lives."""
    match state:
        case Running() | Storing() if command.token == state.course.token:
            lost = attempt_lost(state, asked, command.cause, untold(state, asked))
            stop = f.stop_attempt(asked, state, command.cause)
            return lost._replace(orders=(*lost.orders, stop))
        case Queued() | Delayed() | Failed() if _ended_so(state, command.token, command.cause):
            return NOTHING
        case _:
            return not_current(state, command, asked)


def give_back(state: TaskState, command: c.AttemptYielded, asked: Asked) -> TaskDecision:
    match state:
        case Running() | Storing() if command.token == state.course.token:
            time = told(state, command.card_ms)
            lost = attempt_lost(state, asked, command.cause, time, command.checkpoint)
            return lost._replace(orders=(*lost.orders, f.end_attempt(asked, state)))
        case Queued() | Delayed() | Failed() if _ended_so(state, command.token, command.cause):
            return NOTHING
        case _:
            return not_current(state, command, asked)


def attempt_lost(
    state: AttemptState,
    asked: Asked,
    cause: LossCause,
    time: CardTime,
    checkpoint: str = "",
) -> TaskDecision:
    """No fault of the task: it burns no retry, but there is an end to that too.

    The backstop is the exception: an attempt that never ended is one over its time limit.
    """
    if cause is LossCause.BACKSTOP:
        return _try_failed(state, asked, FailureClass.TIME_LIMIT, "", time, cause)
    retries, course = asked.policy.retries, state.course
    if course.losses >= retries.losses_max:
        return _spent(state, asked, None, cause, time=time)
    delay_ms = 0
    if cause not in _GIVEN_BACK:
        delay_ms = jittered(retries.loss_delay_ms, retries.jitter, asked.task_id, course.token)
    return _again(
        state,
        asked,
        e.TaskRequeued(
            event_id=asked.event_id(),
            seq=state.seq + 1,
            at=asked.now.at,
            task_id=asked.task_id,
            user_id=state.spec.user_id,
            token=course.token,
            loss=cause,
            counted=False,
            delay_ms=delay_ms,
            checkpoint=checkpoint or course.checkpoint,
            card_ms=time.ms,
            card_measured=time.measured,
        ),
    )


def _try_failed(
    state: AttemptState,
    asked: Asked,
    failure: FailureClass,
    message: str,
    time: CardTime,
    loss: LossCause | None = None,
) -> TaskDecision:
    """A counted failure: another try from the start, or the end of the task."""
    retries, course = asked.policy.retries, state.course
    # While storing, the runner has tried the store for its whole time: it is final.
    unstored = failure is FailureClass.STORE and isinstance(state, Storing)
    if not failure.retryable or unstored:
        return _failed(state, asked, failure, message=message, time=time)
    if course.retries >= len(retries.delays_ms):
        return _spent(state, asked, failure, loss, message=message, time=time)
    delay_ms = jittered(
        retries.delays_ms[course.retries], retries.jitter, asked.task_id, course.token
    )
    requeued = e.TaskRequeued(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=state.spec.user_id,
        token=course.token,
        loss=loss,
        failure=failure if loss is None else None,
        message=message,
        counted=True,
        delay_ms=delay_ms,
        card_ms=time.ms,
        card_measured=time.measured,
    )
    return _again(state, asked, requeued)


def _again(state: AttemptState, asked: Asked, requeued: e.TaskRequeued) -> TaskDecision:
    """Back to the queue, at once where there is no delay."""
    if requeued.delay_ms > 0:
        return Decision((requeued,))
    queued = e.TaskQueued(
        event_id=asked.event_id(1),
        seq=requeued.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=state.spec.user_id,
        pool_id=state.spec.pool_id,
        lane=state.spec.lane,
    )
    return Decision((requeued, queued), (f.enqueue(asked, state.spec, state.course.token, 1),))


def _spent(
    state: AttemptState,
    asked: Asked,
    last_failure: FailureClass | None,
    loss: LossCause | None,
    *,
    message: str = "",
    time: CardTime,
) -> TaskDecision:
    """Nothing is left to try: FAILED, and a dead letter for those who must look at it."""
    failed = _failed(
        state,
        asked,
        FailureClass.RETRIES_SPENT,
        last_failure=last_failure,
        loss=loss,
        message=message,
        time=time,
    )
    letter = f.dead_letter(asked, state.spec, last_failure, loss)
    return failed._replace(orders=(*failed.orders, letter))


def _failed(
    state: AttemptState,
    asked: Asked,
    failure: FailureClass,
    *,
    last_failure: FailureClass | None = None,
    loss: LossCause | None = None,
    message: str,
    time: CardTime,
) -> TaskDecision:
    failed = e.TaskFailed(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=state.spec.user_id,
        token=state.course.token,
        failure=failure,
        last_failure=last_failure,
        loss=loss,
        message=message,
        card_ms=time.ms,
        card_measured=time.measured,
    )
    back = f.release(asked, state.spec.account_id, state.hold.reservation_id, ran=True)
    return Decision((failed,), (back,))


def jittered(delay_ms: int, jitter: float, task_id: TaskId, token: int) -> int:
    """The delay, spread by +-`jitter`; the same for the same task and attempt, whoever computes."""
    drawn = crc32(f"{task_id}/{token}".encode()) / 0xFFFFFFFF
    return round(delay_ms * (1 + jitter * (2 * drawn - 1)))


def _ended_so(state: Queued | Delayed | Failed, token: int, how: str) -> bool:
    """Whether this is what ended that token: told twice, then."""
    return token == state.course.token and how == state.course.ended_by
