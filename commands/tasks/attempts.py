"""The attempts of a task while all goes well: one start a token, milestones, the result.

Only the current token is heard. After a loss no token is current: a runner that comes back with
an older one is refused, and the refusal is recorded. What is told twice is already so.
"""

from typing import assert_never

from commands.decider import Decision
from commands.pricing import charge_micros
from commands.tasks import follow_ups as f
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
from schema.replies import DispatchAttempt
from schema.words import MILESTONES

Report = (
    c.ReportMilestone
    | c.StoreAttempt
    | c.FinishAttempt
    | c.FailAttempt
    | c.LoseAttempt
    | c.AttemptYielded
)


def start(state: TaskState, command: c.StartAttempt, asked: Asked) -> TaskDecision:
    match state:
        case Queued() if command.token == state.course.token + 1:
            return _grant(state, command, asked)
        case Running() | Storing() if (
            command.token == state.course.token
            and command.runner_id == state.runner_id
            and command.incarnation_id == state.incarnation_id
        ):
            return NOTHING
        case Queued():
            reason = (
                Refusal.TOKEN_STALE
                if command.token <= state.course.token
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
    return Decision(
        orders=(f.refuse_attempt(asked, command.pool_id, command.token, reason),),
        refusal=f.refusal(state, command, asked, reason),
    )


def _grant(state: Queued, command: c.StartAttempt, asked: Asked) -> TaskDecision:
    spec, course = state.spec, state.course
    started = e.TaskStarted(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=spec.user_id,
        token=command.token,
        pool_id=command.pool_id,
        runner_id=command.runner_id,
        incarnation_id=command.incarnation_id,
        lease_seconds=command.lease_seconds,
    )
    dispatch = DispatchAttempt(
        runner_id=command.runner_id,
        incarnation_id=command.incarnation_id,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=spec.user_id,
        token=command.token,
        scene=spec.scene,
        parameters=spec.parameters,
        material_ids=spec.material_ids,
        lease_seconds=command.lease_seconds,
        run_limit_seconds=spec.run_limit_seconds,
        trace_id=spec.trace_id,
        checkpoint=course.checkpoint,
        percent=course.percent,
        lower_spec=spec.lowered,
        content_keys=spec.content_keys,
        private=spec.private,
    )
    grant = c.GrantAttempt(
        command_id=asked.order_id("g"),
        pool_id=command.pool_id,
        task_id=asked.task_id,
        token=command.token,
    )
    # A pool that asked it to move may start it while it does: then it waits nowhere any more.
    return Decision((started,), (dispatch, grant, *f.leave_other(asked, state)))


def milestone(state: TaskState, command: c.ReportMilestone, asked: Asked) -> TaskDecision:
    """Milestones only rise, over all attempts; what is none, or is not higher, leaves no event."""
    match state:
        case Running() | Storing() if command.token == state.course.token:
            if command.percent <= state.course.percent or command.percent not in MILESTONES:
                return NOTHING
            return Decision(
                (
                    e.TaskProgressed(
                        event_id=asked.event_id(),
                        seq=state.seq + 1,
                        at=asked.now.at,
                        task_id=asked.task_id,
                        user_id=state.spec.user_id,
                        token=command.token,
                        percent=command.percent,
                    ),
                )
            )
        case _:
            return not_current(state, command, asked)


def store(state: TaskState, command: c.StoreAttempt, asked: Asked) -> TaskDecision:
    match state:
        case Running() if command.token == state.course.token:
            return Decision(
                (
                    e.TaskStoring(
                        event_id=asked.event_id(),
                        seq=state.seq + 1,
                        at=asked.now.at,
                        task_id=asked.task_id,
                        user_id=state.spec.user_id,
                        token=command.token,
                        card_ms=command.card_ms,
                    ),
                )
            )
        case Storing() if command.token == state.course.token:
            return NOTHING
        case _:
            return not_current(state, command, asked)


def finish(state: TaskState, command: c.FinishAttempt, asked: Asked) -> TaskDecision:
    match state:
        case Running() | Storing() if command.token == state.course.token:
            hold = state.hold
            charge = charge_micros(hold.price, command.card_ms, hold.reserved_micros)
            succeeded = e.TaskSucceeded(
                event_id=asked.event_id(),
                seq=state.seq + 1,
                at=asked.now.at,
                task_id=asked.task_id,
                user_id=state.spec.user_id,
                token=command.token,
                files=command.files,
                facts=command.facts,
                card_ms=command.card_ms,
                charge_micros=charge,
            )
            return Decision(
                (succeeded,),
                (
                    f.commit(asked, state.spec.account_id, hold.reservation_id, charge),
                    f.end_attempt(asked, state, command.card_ms, ended_well=True),
                ),
            )
        case Succeeded() if command.token == state.token:
            return NOTHING
        case _:
            return not_current(state, command, asked)


def not_current(state: TaskState, command: Report, asked: Asked) -> TaskDecision:
    """Why a report of an attempt is not taken: it is not, or no longer, the current one."""
    match state:
        case Absent():
            reason = Refusal.TASK_UNKNOWN
        case Created():
            reason = Refusal.TASK_NOT_RUNNING
        case Queued() | Delayed():
            reason = (
                Refusal.TOKEN_STALE
                if command.token <= state.course.token
                else Refusal.TASK_NOT_RUNNING
            )
        case Running() | Storing():
            reason = (
                Refusal.TOKEN_STALE
                if command.token <= state.course.token
                else Refusal.TOKEN_NOT_NEXT
            )
        case Succeeded() | Failed() | Canceled() | Expired():
            reason = Refusal.TASK_ENDED
        case _:
            assert_never(state)
    return f.refuse(state, command, asked, reason)
