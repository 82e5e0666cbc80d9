"""The attempts of a task when something goes wrong: failed, lost, given back, never ended.

Whoever tells the end of the current token first, wins. What follows is a line of `verdicts`: from
which budget another try is taken, after which delay, and what is changed before it. When nothing is
left to try, the task is FAILED and its quota goes back.
"""

from typing import NamedTuple, assert_never
from zlib import crc32

import msgspec

from commands.decider import Decision
from commands.tasks import follow_ups as f
from commands.tasks.attempts import not_current
from commands.tasks.card_time import CardTime, told, untold
from commands.tasks.evolving import spec_when_lowered, spec_when_moved
from commands.tasks.follow_ups import NOTHING, Asked, TaskDecision
from commands.tasks.states import (
    AttemptState,
    Course,
    Delayed,
    Failed,
    Queued,
    Running,
    Spec,
    Storing,
    TaskState,
)
from commands.tasks.verdicts import FAILURES, LOSSES, Budget, Remedy, Verdict, Wait
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import PoolId, TaskId
from schema.policy import RetryPolicy
from schema.words import Lane, LossCause, MoveReason


class _End(NamedTuple):
    """How an attempt ended: by a failure that its runner told, or by a loss."""

    time: CardTime
    failure: FailureClass | None = None
    loss: LossCause | None = None
    message: str = ""
    checkpoint: str = ""
    saved_ms: int = 0
    started_anew: bool = False

    @property
    def last_failure(self) -> FailureClass | None:
        """What spent retries were spent on; an attempt without an end is over its time limit."""
        return FailureClass.TIME_LIMIT if self.loss is LossCause.BACKSTOP else self.failure

    @property
    def final_failure(self) -> FailureClass:
        """What ends the task at once; a loss is final only of what was being stored."""
        return FailureClass.STORE if self.failure is None else self.failure


def fail(state: TaskState, command: c.FailAttempt, asked: Asked) -> TaskDecision:
    match state:
        case Running() | Storing() if command.token == state.course.token:
            time = told(state, command.card_ms)
            end = _End(time, failure=command.failure, message=command.message)
            over = _over(state, asked, FAILURES[command.failure], end)
            told_pool = f.end_attempt(asked, state, time.ms, failure=command.failure)
            return ended(over, state, told_pool)
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
    """Its runner gave it back; what a checkpoint keeps is not burnt."""
    match state:
        case Running() | Storing() if command.token == state.course.token:
            time = told(state, command.card_ms)
            saved_ms = min(command.saved_ms, time.ms) if command.checkpoint else 0
            end = _End(
                time,
                loss=command.cause,
                checkpoint=command.checkpoint,
                saved_ms=saved_ms,
                started_anew=command.started_anew,
            )
            lost = _over(state, asked, LOSSES[command.cause], end)
            return ended(lost, state, f.end_attempt(asked, state, time.ms))
        case Queued() | Delayed() | Failed() if _ended_so(state, command.token, command.cause):
            return NOTHING
        case _:
            return not_current(state, command, asked)


def ended(over: TaskDecision, state: AttemptState, *told: f.Order) -> TaskDecision:
    """With the word to its pool, which ends an attempt without a cause when it hears of a wait."""
    waits_there = any(
        isinstance(order, c.EnqueueTask) and order.pool_id == state.pool_id for order in over.orders
    )
    orders = (*told, *over.orders) if waits_there else (*over.orders, *told)
    return over._replace(orders=orders)


def attempt_lost(
    state: AttemptState, asked: Asked, cause: LossCause, time: CardTime
) -> TaskDecision:
    """No fault of the task, but there is an end to that too."""
    return _over(state, asked, LOSSES[cause], _End(time, loss=cause))


def _over(state: AttemptState, asked: Asked, verdict: Verdict, end: _End) -> TaskDecision:
    """Another try, or the end of the task."""
    budget, retries = verdict.budget, asked.policy.retries
    if budget is None or (verdict.final_while_storing and isinstance(state, Storing)):
        return _failed(state, asked, end.final_failure, end)
    if not _is_left(budget, state.course, retries):
        return _spent(state, asked, end)
    spare = _spare_place(state, asked) if verdict.remedy is Remedy.SPARE_POOL else None
    lower = (
        verdict.remedy is not Remedy.NONE
        and spare is None
        and state.spec.can_lower
        and not state.spec.lowered
    )
    delay_ms = 0 if spare is not None else _delay_ms(verdict.wait, state, asked)
    counted = budget is Budget.RETRIES
    requeued = e.TaskRequeued(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=state.spec.user_id,
        token=state.course.token,
        loss=end.loss,
        failure=end.failure,
        message=end.message,
        counted=counted,
        delay_ms=delay_ms,
        # What failed begins anew: its last steps may be what it failed on.
        checkpoint="" if counted else end.checkpoint or state.course.checkpoint,
        saved_ms=0 if counted else end.saved_ms,
        lower_spec=lower,
        card_ms=end.time.ms,
        card_measured=end.time.measured,
        # One that saved nothing leaves the older checkpoint: another card may go on from that.
        started_anew=end.started_anew and bool(end.checkpoint),
    )
    if delay_ms > 0:
        return Decision((requeued,))
    return _queued_at_once(state, asked, requeued, spare)


def _queued_at_once(
    state: AttemptState, asked: Asked, requeued: e.TaskRequeued, spare: tuple[PoolId, Lane] | None
) -> TaskDecision:
    """To its pool without a delay, or to the spare one."""
    spec: Spec = spec_when_lowered(state.spec) if requeued.lower_spec else state.spec
    preempted = requeued.loss is LossCause.PREEMPTED
    course = msgspec.structs.replace(state.course, preemptions=state.course.preemptions + preempted)
    queued = e.TaskQueued(
        event_id=asked.event_id(1),
        seq=requeued.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=spec.user_id,
        pool_id=spec.pool_id,
        lane=spec.lane,
    )
    if spare is None:
        return Decision((requeued, queued), (f.enqueue(asked, spec, course, 1),))
    pool_id, lane = spare
    moved = e.TaskMoved(
        event_id=asked.event_id(2),
        seq=requeued.seq + 2,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=spec.user_id,
        token=course.token,
        pool_id=pool_id,
        lane=lane,
        reason=MoveReason.POOL_FULL,
    )
    there = spec_when_moved(spec, pool_id, lane, lower=False)
    return Decision((requeued, queued, moved), (f.enqueue(asked, there, course, 2),))


def _is_left(budget: Budget, course: Course, retries: RetryPolicy) -> bool:
    """Whether another try may be taken from it."""
    match budget:
        case Budget.RETRIES:
            return course.retries < len(retries.delays_ms)
        case Budget.LOSSES:
            return course.losses < retries.losses_max
        case Budget.PREEMPTIONS:
            return True  # the pool has the budget, and asks nobody beyond it
        case _:
            assert_never(budget)


def _delay_ms(wait: Wait, state: AttemptState, asked: Asked) -> int:
    retries, course = asked.policy.retries, state.course
    match wait:
        case Wait.NONE:
            return 0
        case Wait.STEPS:
            delay_ms = retries.delays_ms[course.retries]
        case Wait.REPAIR:
            delay_ms = retries.loss_delay_ms
        case _:
            assert_never(wait)
    return jittered(delay_ms, retries.jitter, asked.task_id, course.token)


def _spare_place(state: AttemptState, asked: Asked) -> tuple[PoolId, Lane] | None:
    """Pool and lane to which the pool that was full sends what it cannot take; once."""
    if state.spec.moved or state.spec.lowered:
        return None
    pools = asked.policy.pools
    pool = pools.get(state.pool_id)
    if pool is None or pool.spare_pool is None or pool.spare_pool not in pools:
        return None
    served = pools[pool.spare_pool].lanes
    lane = state.spec.lane if state.spec.lane in served else pool.lower_lane
    return None if lane is None or lane not in served else (pool.spare_pool, lane)


def _spent(state: AttemptState, asked: Asked, end: _End) -> TaskDecision:
    """Nothing is left to try: FAILED, and a dead letter for those who must look at it."""
    last = end.last_failure
    failed = _failed(state, asked, FailureClass.RETRIES_SPENT, end, last)
    letter = f.dead_letter(asked, state.spec, last, end.loss)
    return failed._replace(orders=(*failed.orders, letter))


def _failed(
    state: AttemptState,
    asked: Asked,
    failure: FailureClass,
    end: _End,
    last_failure: FailureClass | None = None,
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
        loss=end.loss,
        message=end.message,
        card_ms=end.time.ms,
        card_measured=end.time.measured,
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
