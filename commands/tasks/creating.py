"""From nothing to the queue: a task is created, waits for its material, and goes to its pool."""

from typing import Final, assert_never

import msgspec

from commands.decider import Decision, ImpossibleEventError
from commands.tasks import follow_ups as f
from commands.tasks.ending import canceled
from commands.tasks.evolving import evolve, spec_of, wait_until_ms
from commands.tasks.follow_ups import NOTHING, Asked, TaskDecision
from commands.tasks.states import (
    Absent,
    Canceled,
    Course,
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
from schema.refusals import MaterialRefusal, Refusal
from schema.words import CancelCause

_SECOND_MS: Final = 1000
_EXTENDED_MS: Final = 50 * _SECOND_MS


def create(state: TaskState, command: c.CreateTask, asked: Asked) -> TaskDecision:
    """A task that is there already, even one that counts as absent, is never created again.

    Its history begins at `seq` 1 only once, and whoever asks again is told of it by the read model.
    A reservation that this task does not hold goes back, also one that it is done with: it may have
    been reserved anew by a submission that was told again after the account had forgotten it.
    """
    match state:
        case Absent():
            return _create(command, asked)
        case Created() | Queued() | Delayed() | Running() | Storing() if (
            state.hold.reservation_id == command.reservation_id
        ):
            return NOTHING
        case (
            Created()
            | Queued()
            | Delayed()
            | Running()
            | Storing()
            | Succeeded()
            | Failed()
            | Canceled()
            | Expired()
        ):
            back = f.release(asked, command.origin.account_id, command.reservation_id, ran=False)
            reason = (
                Refusal.RESERVATION_RESOLVED
                if command.reservation_id in state.taken
                else Refusal.IDEMPOTENCY_CONFLICT
            )
            return Decision(orders=(back,), refusal=f.refusal(state, command, asked, reason))
        case _:
            assert_never(state)


def _created(command: c.CreateTask, asked: Asked) -> e.TaskCreated:
    origin = command.origin
    return e.TaskCreated(
        event_id=asked.event_id(),
        seq=1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=origin.user_id,
        origin=origin,
        pool_id=command.pool_id,
        lane=command.lane,
        price=command.price,
        policy_version=command.policy_version,
        reservation_id=command.reservation_id,
        reserved_micros=command.reserved_micros,
        run_limit_seconds=command.run_limit_seconds,
        created_wait_seconds=command.created_wait_seconds,
        weight=command.weight,
        deadline_seconds=command.deadline_seconds,
        lower_spec=command.lower_spec,
        input_limits=command.input_limits,
    )


def _create(command: c.CreateTask, asked: Asked) -> TaskDecision:
    origin, created = command.origin, _created(command, asked)
    published = _published(origin, asked)
    if origin.material_ids:
        attached = tuple(
            c.AttachMaterial(
                command_id=asked.order_id(f"m{number}"),
                material_id=material_id,
                task_id=asked.task_id,
                user_id=origin.user_id,
                tenant_id=origin.tenant_id,
            )
            for number, material_id in enumerate(dict.fromkeys(origin.material_ids))
        )
        return Decision((created,), (*attached, *published))
    queued = e.TaskQueued(
        event_id=asked.event_id(1),
        seq=2,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=origin.user_id,
        pool_id=command.pool_id,
        lane=command.lane,
    )
    order = f.enqueue(asked, spec_of(created, asked.now.served_ms), Course(), 1)
    return Decision((created, queued), (order, *published))


def discard(state: TaskState, command: c.CreateTask, asked: Asked) -> TaskDecision:
    """It was thrown away by hand, and its user believes in it: created, canceled, and refunded.

    What is told of it later finds a task that has ended.
    """
    if not isinstance(state, Absent):
        return create(state, command, asked)
    created = _created(command, asked)
    row = evolve(state, created, asked.now.served_ms, asked.policy)
    if not isinstance(row, Created):
        raise ImpossibleEventError(state, created)
    over = canceled(row, asked, CancelCause.OPERATOR)
    (event,) = over.events
    after = msgspec.structs.replace(event, event_id=asked.event_id(1))
    return over._replace(events=(created, after))


def _published(origin: c.Origin, asked: Asked) -> tuple[c.PublishResult, ...]:
    """The result that this task makes in full size hears of it: only now is it accepted."""
    if origin.publishes is None:
        return ()
    told = c.PublishResult(
        command_id=asked.order_id("p"),
        task_id=origin.publishes,
        user_id=origin.user_id,
        tenant_id=origin.tenant_id,
        by=asked.task_id,
    )
    return (told,)


def confirm_material(state: TaskState, command: c.ConfirmMaterial, asked: Asked) -> TaskDecision:
    """One of its materials is there; with the last one the task goes to its pool.

    If it is more than its user's tier takes it cannot be made: no card is spent on it.
    """
    match state:
        case Created() if command.material_id in state.missing:
            beyond = _beyond(state.input_limits, command)
            if beyond is not None:
                return canceled(state, asked, CancelCause.MATERIAL_REFUSED, reason=beyond)
            if len(state.missing) == 1:
                return queue(state, asked, command)
            return Decision(
                (
                    e.TaskMaterialConfirmed(
                        event_id=asked.event_id(),
                        seq=state.seq + 1,
                        at=asked.now.at,
                        task_id=asked.task_id,
                        user_id=state.spec.user_id,
                        material_id=command.material_id,
                        content_key=command.content_key,
                    ),
                )
            )
        case Canceled() if state.cause is CancelCause.MATERIAL_REFUSED:
            return NOTHING
        case Created() | Queued() | Delayed() | Running() | Storing() | Failed():
            if command.material_id in state.spec.material_ids:
                return NOTHING
            reason = Refusal.MATERIAL_UNKNOWN
        case Absent():
            reason = Refusal.TASK_UNKNOWN
        case Succeeded() | Canceled() | Expired():
            reason = Refusal.TASK_ENDED
        case _:
            assert_never(state)
    return f.refuse(state, command, asked, reason)


def _beyond(limits: c.InputLimits | None, found: c.ConfirmMaterial) -> MaterialRefusal | None:
    """The first limit of its tier that a material passes."""
    if limits is None:
        return None
    # Whole seconds are sold: what is left of the last one is allowed.
    if found.seconds_ms >= (limits.seconds_max + 1) * _SECOND_MS:
        return MaterialRefusal.MATERIAL_TOO_LONG
    if found.size > limits.bytes_max:
        return MaterialRefusal.MATERIAL_TOO_LARGE
    if found.pixels > limits.pixels_max:
        return MaterialRefusal.PIXELS_TOO_MANY
    return None


def _is_longer(state: Created, asked: Asked) -> bool:
    """Whether it would wait so much longer that an event is worth it: about one a minute."""
    more_ms = wait_until_ms(state, asked.now.served_ms) - state.until_ms
    return more_ms >= min(_EXTENDED_MS, max(1, state.wait_ms // 4))


def extend_wait(state: TaskState, command: c.ExtendWait, asked: Asked) -> TaskDecision:
    """An upload goes on. Whoever does not wait for it is not concerned, and that is no fact."""
    match state:
        case Created() if command.material_id in state.missing and _is_longer(state, asked):
            extended = e.TaskWaitExtended(
                event_id=asked.event_id(),
                seq=state.seq + 1,
                at=asked.now.at,
                task_id=asked.task_id,
                user_id=state.spec.user_id,
                material_id=command.material_id,
            )
            return Decision((extended,))
        case (
            Absent()
            | Created()
            | Queued()
            | Delayed()
            | Running()
            | Storing()
            | Succeeded()
            | Failed()
            | Canceled()
            | Expired()
        ):
            return NOTHING
        case _:
            assert_never(state)


def queue(
    state: Created | Delayed, asked: Asked, last: c.ConfirmMaterial | None = None
) -> TaskDecision:
    """It waits for nothing any more but a slot; `last` is the material that it waited for last."""
    spec = state.spec
    named = last if last is not None and last.content_key else None
    queued = e.TaskQueued(
        event_id=asked.event_id(),
        seq=state.seq + 1,
        at=asked.now.at,
        task_id=asked.task_id,
        user_id=spec.user_id,
        pool_id=spec.pool_id,
        lane=spec.lane,
        material_id=None if named is None else named.material_id,
        content_key="" if named is None else named.content_key,
    )
    return Decision((queued,), (f.enqueue(asked, spec, state.course, 0),))


def reject_material(state: TaskState, command: c.RejectMaterial, asked: Asked) -> TaskDecision:
    """Without its material it cannot be made: canceled by the system, with its quota back."""
    match state:
        case Created():
            if command.material_id in state.spec.material_ids:
                cause = CancelCause.MATERIAL_REFUSED
                return canceled(state, asked, cause, reason=command.reason)
            reason = Refusal.MATERIAL_UNKNOWN
        case Canceled() if state.cause is CancelCause.MATERIAL_REFUSED:
            return NOTHING
        case Absent():
            reason = Refusal.TASK_UNKNOWN
        case Queued() | Delayed() | Running() | Storing():
            reason = Refusal.TASK_NOT_CREATED
        case Succeeded() | Failed() | Canceled() | Expired():
            reason = Refusal.TASK_ENDED
        case _:
            assert_never(state)
    return f.refuse(state, command, asked, reason)
