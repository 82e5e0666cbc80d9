"""What a task orders from its account, its pool, its materials and its runner, and how it refuses.

Every id is derived: the event's, and a letter for each order that it leads to.
"""

from typing import Final, NamedTuple

from commands.decider import Decision, Now, wire_name
from commands.tasks.states import (
    STATUSES,
    Absent,
    AttemptState,
    Course,
    Queued,
    Spec,
    TaskRow,
    TaskState,
)
from schema import commands as c
from schema import events as e
from schema.failures import FailureClass
from schema.ids import (
    AccountId,
    CommandId,
    EventId,
    PoolId,
    ReservationId,
    TaskId,
    UserId,
    event_id_of,
    follow_up_id,
)
from schema.message import Parameters
from schema.policy import Policy
from schema.refusals import Refusal
from schema.replies import Accepted, CommandRefused, DeadLetter, Refused, StopAttempt
from schema.routes import TaskBound
from schema.topics import Topic
from schema.words import LossCause, Status

TaskDecision = Decision[e.TaskEvent]
MODEL_CHARACTERS_MAX: Final = 64
Order = c.DequeueTask | c.EndAttempt | StopAttempt
NOTHING: Final[TaskDecision] = Decision()
"""It is already so."""


class Asked(NamedTuple):
    """What every rule is handed: who asks, of which task, when, and the policy of the partition."""

    command_id: CommandId
    task_id: TaskId
    now: Now
    policy: Policy

    def event_id(self, index: int = 0) -> EventId:
        return event_id_of(self.command_id, index)

    def order_id(self, suffix: str, index: int = 0) -> CommandId:
        """Of an order that the event number `index` leads to (or this refusal, as if it were 0)."""
        return follow_up_id(event_id_of(self.command_id, index), suffix)


def enqueue(asked: Asked, spec: Spec, course: Course, index: int) -> c.EnqueueTask:
    """Wait at the pool and lane of the spec; deadlines travel as what is left of them."""
    due_ms = spec.deadline_ms
    return c.EnqueueTask(
        command_id=asked.order_id("e", index),
        pool_id=spec.pool_id,
        task_id=asked.task_id,
        token=course.token,
        lane=spec.lane,
        account_id=spec.account_id,
        scene=spec.scene,
        weight=spec.weight,
        model=model_of(spec.parameters),
        deadline_ms=None if due_ms is None else due_ms - asked.now.served_ms,
        moved=spec.moved or spec.lowered,
        preemptions=course.preemptions,
        lower_spec=spec.can_lower and not spec.lowered,
    )


def model_of(parameters: Parameters) -> str:
    """The model that a task names, if it names one that a cap of a pool could name too."""
    model = parameters.get("model")
    return model if isinstance(model, str) and len(model) <= MODEL_CHARACTERS_MAX else ""


def dequeue(asked: Asked, state: Queued) -> c.DequeueTask:
    """Leave the pool where it waits now, which need not be the one where it waited first."""
    return c.DequeueTask(
        command_id=asked.order_id("d"),
        pool_id=state.spec.pool_id,
        task_id=asked.task_id,
        token=state.course.token,
        moved=state.spec.moved or state.spec.lowered,
    )


def leave_other(asked: Asked, state: Queued) -> tuple[c.DequeueTask, ...]:
    """The old pool of a task that was moved may still have had the word: leave the new one too.

    So may a pool that was asked again, and has the task waiting anew since.
    """
    twice = state.spec.moved or state.spec.lowered or state.asks > 0
    return (dequeue(asked, state),) if twice else ()


def end_attempt(
    asked: Asked,
    state: AttemptState,
    card_ms: int,
    *,
    ended_well: bool = False,
    failure: FailureClass | None = None,
) -> c.EndAttempt:
    """The attempt is over. With neither of the two it tells nothing of the card that it had."""
    return c.EndAttempt(
        command_id=asked.order_id("x"),
        pool_id=state.pool_id,
        task_id=asked.task_id,
        token=state.course.token,
        ended_well=ended_well,
        failure=failure,
        card_ms=card_ms,
    )


def refuse_attempt(asked: Asked, pool_id: PoolId, token: int, reason: str) -> c.RefuseAttempt:
    return c.RefuseAttempt(
        command_id=asked.order_id("n"),
        pool_id=pool_id,
        task_id=asked.task_id,
        token=token,
        reason=reason,
    )


def stop_attempt(asked: Asked, state: AttemptState, reason: str) -> StopAttempt:
    return StopAttempt(
        runner_id=state.runner_id,
        incarnation_id=state.incarnation_id,
        at=asked.now.at,
        task_id=asked.task_id,
        token=state.course.token,
        reason=reason,
    )


def commit(
    asked: Asked, account_id: AccountId, reservation_id: ReservationId, amount_micros: int
) -> c.CommitReservation:
    return c.CommitReservation(
        command_id=asked.order_id("c"),
        account_id=account_id,
        reservation_id=reservation_id,
        amount_micros=amount_micros,
    )


def release(
    asked: Asked, account_id: AccountId, reservation_id: ReservationId, *, ran: bool
) -> c.ReleaseReservation:
    return c.ReleaseReservation(
        command_id=asked.order_id("r"),
        account_id=account_id,
        reservation_id=reservation_id,
        ran=ran,
    )


def dead_letter(
    asked: Asked, spec: Spec, failure: FailureClass | None, loss: LossCause | None
) -> DeadLetter:
    """Retries are spent. Where the cause stands in the log, the shell knows and fills in."""
    return DeadLetter(
        letter_id=asked.order_id("l"),
        at=asked.now.at,
        topic=Topic.TASK_COMMANDS,
        partition=-1,
        offset=-1,
        cause=f"retries_spent: {loss}" if loss is not None else "retries_spent",
        task_id=asked.task_id,
        failure=failure,
        trace_id=spec.trace_id,
    )


def refuse(state: TaskState, command: TaskBound, asked: Asked, reason: Refusal) -> TaskDecision:
    """Nothing happens; that it was asked is recorded."""
    return Decision(refusal=refusal(state, command, asked, reason))


def refusal(
    state: TaskState, command: TaskBound, asked: Asked, reason: Refusal, detail: str = ""
) -> CommandRefused:
    """Recorded for the user who asked, or else for the one whose task it is."""
    return CommandRefused(
        command_id=answered_id(command),
        command=wire_name(command),
        key=asked.task_id,
        user_id=_asker(state, command),
        at=asked.now.at,
        reason=reason,
        detail=detail,
    )


def answered_id(command: TaskBound) -> CommandId:
    """The command that somebody waits for: a reservation is named by the one that reserved it."""
    if isinstance(command, c.RequeueTask):
        return CommandId(command.reservation_id)
    return command.command_id


def _asker(state: TaskState, command: TaskBound) -> UserId | None:
    match command:
        case c.CancelTask() | c.RequeueTask():
            return command.user_id
        case c.CreateTask():
            return command.origin.user_id
        case _:
            return None if isinstance(state, Absent) else state.user_id


def refused(
    state: TaskState,
    command: c.CancelTask | c.RequeueTask,
    asked: Asked,
    reason: Refusal,
    orders: tuple[c.ReleaseReservation, ...] = (),
) -> TaskDecision:
    """A refusal that somebody waits for. A stranger learns nothing of the task."""
    detail = ""
    if reason is not Refusal.NOT_YOURS and not isinstance(state, Absent):
        detail = STATUSES[type(state)].value
    fact = refusal(state, command, asked, reason, detail)
    reply: Refused | None = None
    if command.reply_to is not None:
        reply = Refused(
            command_id=fact.command_id,
            key=asked.task_id,
            at=asked.now.at,
            reason=reason,
            detail=detail,
        )
    return Decision(orders=orders, reply=reply, refusal=fact)


def accepted(
    command: c.CancelTask | c.RequeueTask,
    asked: Asked,
    seq: int,
    status: Status,
    reserved_micros: int | None = None,
) -> Accepted | None:
    """The answer, where somebody waits for one: done, or already so."""
    if command.reply_to is None:
        return None
    return Accepted(
        command_id=answered_id(command),
        key=asked.task_id,
        at=asked.now.at,
        seq=seq,
        status=status,
        reserved_micros=reserved_micros,
    )


def already(state: TaskRow, command: c.CancelTask | c.RequeueTask, asked: Asked) -> TaskDecision:
    """It is so; who asks again is answered again."""
    reserved = command.reserved_micros if isinstance(command, c.RequeueTask) else None
    return Decision(reply=accepted(command, asked, state.seq, STATUSES[type(state)], reserved))


def is_stranger(state: TaskRow, command: c.CancelTask | c.RequeueTask) -> bool:
    return state.user_id != command.user_id or state.tenant_id != command.tenant_id
