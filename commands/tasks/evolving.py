"""What an event makes of a task. Deadlines are set here, in the served clock of the moment.

An event that cannot follow raises: the log or the code is wrong, and the partition stops.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, assert_never

import msgspec

from commands.decider import ImpossibleEventError
from commands.tasks.states import (
    Absent,
    Canceled,
    Course,
    Created,
    Delayed,
    Expired,
    Failed,
    Hold,
    Queued,
    Running,
    Spec,
    Storing,
    Succeeded,
    TaskRow,
    TaskState,
)
from schema import events as e
from schema.ids import MaterialId, PoolId
from schema.message import Instant
from schema.policy import LanePolicy, Policy
from schema.words import Lane, LossCause

SECOND_MS: Final = 1000
CREATED_WAIT_MAX_MS: Final = 24 * 3600 * SECOND_MS
"""A task waits no longer than this for its material, however long the upload goes on."""
_NO_LANE: Final = LanePolicy()
_ASKS_SLOWED: Final = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def log_ms(at: Instant) -> int:
    """Log time as a number."""
    return (at - _EPOCH) // _MILLISECOND


def evolve(  # noqa: PLR0912 - a branch for each event
    state: TaskState, event: e.TaskEvent, served_ms: int, policy: Policy
) -> TaskRow:
    """The next state; raises ImpossibleEventError."""
    if event.seq != state.seq + 1:
        raise ImpossibleEventError(state, event)
    match event:
        case e.TaskStarted():
            return _started(state, event, served_ms, policy)
        case e.TaskProgressed():
            return _progressed(state, event)
        case e.TaskCreated():
            return _created(state, event, served_ms)
        case e.TaskQueued():
            if isinstance(state, Created | Delayed):
                return _queued(state, event, served_ms, policy)
        case e.TaskMoved():
            return _moved(state, event, served_ms, policy)
        case e.TaskMaterialConfirmed():
            return _material_confirmed(state, event, served_ms)
        case e.TaskWaitExtended():
            return _wait_extended(state, event, served_ms)
        case e.TaskStoring():
            return _storing(state, event, served_ms, policy)
        case e.TaskRequeued():
            return _requeued(state, event, served_ms)
        case e.TaskRetried():
            return _retried(state, event, served_ms, policy)
        case e.TaskSucceeded() | e.TaskFailed() | e.TaskCanceled() | e.TaskExpired():
            return _ended(state, event, served_ms, policy)
        case _:
            assert_never(event)
    raise ImpossibleEventError(state, event)


def _created(state: TaskState, event: e.TaskCreated, served_ms: int) -> Created:
    if not isinstance(state, Absent):
        raise ImpossibleEventError(state, event)
    spec = spec_of(event, served_ms)
    wait_ms = event.created_wait_seconds * SECOND_MS
    return Created(
        seq=event.seq,
        spec=spec,
        hold=Hold(
            taken=(event.reservation_id,),
            reserved_micros=event.reserved_micros,
            price=event.price,
            since_token=0,
        ),
        missing=spec.material_ids,
        wait_ms=wait_ms,
        until_ms=served_ms + min(wait_ms, CREATED_WAIT_MAX_MS),
        end_until_ms=served_ms + CREATED_WAIT_MAX_MS,
        input_limits=event.input_limits,
    )


def spec_of(event: e.TaskCreated, served_ms: int) -> Spec:
    """What was asked for, as the row keeps it."""
    origin, seconds = event.origin, event.deadline_seconds
    return Spec(
        user_id=origin.user_id,
        tenant_id=origin.tenant_id,
        account_id=origin.account_id,
        scene=origin.scene,
        lane=event.lane,
        pool_id=event.pool_id,
        run_limit_seconds=event.run_limit_seconds,
        parameters=origin.parameters,
        material_ids=tuple(dict.fromkeys(origin.material_ids)),
        trace_id=origin.trace_id,
        weight=event.weight,
        deadline_ms=None if seconds is None else served_ms + seconds * SECOND_MS,
        can_lower=event.lower_spec,
        private=origin.private,
    )


def _queued(
    state: Created | Delayed, event: e.TaskQueued, served_ms: int, policy: Policy
) -> Queued:
    spec = spec_when_confirmed(state.spec, event.material_id, event.content_key)
    return Queued(
        seq=event.seq,
        spec=spec,
        hold=state.hold,
        course=state.course,
        until_ms=ask_again_ms(spec, served_ms, policy),
    )


def ask_again_ms(spec: Spec, served_ms: int, policy: Policy, asks: int = 0) -> int:
    """When it is time to ask its pool again: it should have started, or expired, by then.

    Twice as long each time, up to eight times: a lane may be paused for days.
    """
    pool = policy.pools.get(spec.pool_id)
    lane = _NO_LANE if pool is None else pool.lanes.get(spec.lane, _NO_LANE)
    seconds = lane.ttl_seconds + policy.retries.backstop_seconds
    return served_ms + (seconds << min(asks, _ASKS_SLOWED)) * SECOND_MS


def _moved(state: TaskState, event: e.TaskMoved, served_ms: int, policy: Policy) -> Queued:
    """It waits there from here on, also after a failure or a retry by hand."""
    if (
        not isinstance(state, Queued)
        or event.token != state.course.token
        or state.spec.moved
        or (event.lower_spec and state.spec.lowered)
    ):
        raise ImpossibleEventError(state, event)
    spec = spec_when_moved(state.spec, event.pool_id, event.lane, lower=event.lower_spec)
    return Queued(
        seq=event.seq,
        spec=spec,
        hold=state.hold,
        course=state.course,
        until_ms=ask_again_ms(spec, served_ms, policy),
    )


def spec_when_moved(spec: Spec, pool_id: PoolId, lane: Lane, *, lower: bool) -> Spec:
    """Where and how richly it is made from here on."""
    return msgspec.structs.replace(
        spec, pool_id=pool_id, lane=lane, moved=True, lowered=spec.lowered or lower
    )


def _material_confirmed(
    state: TaskState, event: e.TaskMaterialConfirmed, served_ms: int
) -> Created:
    if not isinstance(state, Created) or event.material_id not in state.missing:
        raise ImpossibleEventError(state, event)
    return Created(
        seq=event.seq,
        spec=spec_when_confirmed(state.spec, event.material_id, event.content_key),
        hold=state.hold,
        missing=tuple(one for one in state.missing if one != event.material_id),
        wait_ms=state.wait_ms,
        until_ms=wait_until_ms(state, served_ms),
        end_until_ms=state.end_until_ms,
        input_limits=state.input_limits,
    )


def wait_until_ms(state: Created, served_ms: int) -> int:
    """How long it waits for its material when something of it is heard of now."""
    return min(served_ms + state.wait_ms, state.end_until_ms)


def spec_when_confirmed(spec: Spec, material_id: MaterialId | None, content_key: str) -> Spec:
    """Where its runner finds that material; one without a key stands under its own name."""
    if material_id is None or not content_key:
        return spec
    keys = {**spec.content_keys, material_id: content_key}
    return msgspec.structs.replace(spec, content_keys=keys)


def _wait_extended(state: TaskState, event: e.TaskWaitExtended, served_ms: int) -> Created:
    if not isinstance(state, Created) or event.material_id not in state.missing:
        raise ImpossibleEventError(state, event)
    return msgspec.structs.replace(state, seq=event.seq, until_ms=wait_until_ms(state, served_ms))


def _started(state: TaskState, event: e.TaskStarted, served_ms: int, policy: Policy) -> Running:
    if not isinstance(state, Queued) or event.token != state.course.token + 1:
        raise ImpossibleEventError(state, event)
    course = state.course
    seconds = state.spec.run_limit_seconds + policy.retries.backstop_seconds
    return Running(
        seq=event.seq,
        spec=state.spec,
        hold=state.hold,
        course=Course(
            token=event.token,
            retries=course.retries,
            losses=course.losses,
            percent=course.percent,
            checkpoint=course.checkpoint,
            preemptions=course.preemptions,
        ),
        pool_id=event.pool_id,
        runner_id=event.runner_id,
        incarnation_id=event.incarnation_id,
        started_ms=log_ms(event.at),
        until_ms=served_ms + seconds * SECOND_MS,
        started_served_ms=served_ms,
        lease_seconds=event.lease_seconds,
    )


def ran_ms(state: Running, at: Instant, served_ms: int) -> int:
    """Log time of its work, without what nobody served: neither an outage nor a jumped clock."""
    by_log = max(0, log_ms(at) - state.started_ms)
    if state.started_served_ms is None:
        return by_log
    return min(by_log, max(0, served_ms - state.started_served_ms))


def _progressed(state: TaskState, event: e.TaskProgressed) -> Running | Storing:
    if not isinstance(state, Running | Storing) or event.token != state.course.token:
        raise ImpossibleEventError(state, event)
    course = state.course
    if event.percent <= course.percent:
        raise ImpossibleEventError(state, event)
    risen = Course(
        token=course.token,
        retries=course.retries,
        losses=course.losses,
        percent=event.percent,
        checkpoint=course.checkpoint,
        preemptions=course.preemptions,
    )
    if isinstance(state, Running):
        return Running(
            seq=event.seq,
            spec=state.spec,
            hold=state.hold,
            course=risen,
            pool_id=state.pool_id,
            runner_id=state.runner_id,
            incarnation_id=state.incarnation_id,
            started_ms=state.started_ms,
            until_ms=state.until_ms,
            started_served_ms=state.started_served_ms,
            lease_seconds=state.lease_seconds,
        )
    return Storing(
        seq=event.seq,
        spec=state.spec,
        hold=state.hold,
        course=risen,
        pool_id=state.pool_id,
        runner_id=state.runner_id,
        incarnation_id=state.incarnation_id,
        ran_ms=state.ran_ms,
        until_ms=state.until_ms,
        card_ms=state.card_ms,
    )


def _storing(state: TaskState, event: e.TaskStoring, served_ms: int, policy: Policy) -> Storing:
    if not isinstance(state, Running) or event.token != state.course.token:
        raise ImpossibleEventError(state, event)
    return Storing(
        seq=event.seq,
        spec=state.spec,
        hold=state.hold,
        course=state.course,
        pool_id=state.pool_id,
        runner_id=state.runner_id,
        incarnation_id=state.incarnation_id,
        ran_ms=ran_ms(state, event.at, served_ms),
        until_ms=served_ms + policy.retries.storing_seconds * SECOND_MS,
        card_ms=event.card_ms,
    )


def _requeued(state: TaskState, event: e.TaskRequeued, served_ms: int) -> Delayed:
    if not isinstance(state, Running | Storing) or event.token != state.course.token:
        raise ImpossibleEventError(state, event)
    course, preempted = state.course, event.loss is LossCause.PREEMPTED
    return Delayed(
        seq=event.seq,
        spec=spec_when_lowered(state.spec) if event.lower_spec else state.spec,
        hold=state.hold,
        course=Course(
            token=course.token,
            retries=course.retries + event.counted,
            losses=course.losses + (not event.counted and not preempted),
            percent=course.percent,
            checkpoint=event.checkpoint,
            ended_by=event.loss or event.failure or "",
            preemptions=course.preemptions + preempted,
        ),
        until_ms=served_ms + event.delay_ms,
    )


def spec_when_lowered(spec: Spec) -> Spec:
    """It is made with less from here on."""
    return msgspec.structs.replace(spec, lowered=True)


def spec_when_retried(spec: Spec) -> Spec:
    """Whoever asks again after a failure asks for it as soon as may be."""
    return spec if spec.deadline_ms is None else msgspec.structs.replace(spec, deadline_ms=None)


def course_when_retried(course: Course) -> Course:
    """Retries and losses begin anew; tokens, milestones and what it gave up for others go on."""
    return Course(token=course.token, percent=course.percent, preemptions=course.preemptions)


def _retried(state: TaskState, event: e.TaskRetried, served_ms: int, policy: Policy) -> Queued:
    if not isinstance(state, Failed):
        raise ImpossibleEventError(state, event)
    spec = spec_when_retried(state.spec)
    return Queued(
        seq=event.seq,
        spec=spec,
        hold=Hold(
            taken=(*state.hold.taken, event.reservation_id),
            reserved_micros=event.reserved_micros,
            price=event.price,
            since_token=state.course.token,
        ),
        course=course_when_retried(state.course),
        until_ms=ask_again_ms(spec, served_ms, policy),
    )


def _ended(
    state: TaskState,
    event: e.TaskSucceeded | e.TaskFailed | e.TaskCanceled | e.TaskExpired,
    served_ms: int,
    policy: Policy,
) -> TaskRow:
    match event:
        case e.TaskFailed():
            return _failed(state, event, served_ms, policy)
        case e.TaskSucceeded():
            allowed = isinstance(state, Running | Storing)
        case e.TaskCanceled():
            allowed = isinstance(state, Created | Queued | Delayed | Running | Storing)
        case e.TaskExpired():
            allowed = isinstance(state, Created | Queued)
        case _:
            assert_never(event)
    if not allowed or isinstance(state, Absent) or event.token != state.token:
        raise ImpossibleEventError(state, event)
    until_ms = served_ms + policy.keep.ended_seconds * SECOND_MS
    if isinstance(event, e.TaskCanceled):
        return Canceled(
            seq=event.seq,
            user_id=state.user_id,
            tenant_id=state.tenant_id,
            taken=state.taken,
            token=event.token,
            until_ms=until_ms,
            cause=event.cause,
        )
    kind = Succeeded if isinstance(event, e.TaskSucceeded) else Expired
    return kind(
        seq=event.seq,
        user_id=state.user_id,
        tenant_id=state.tenant_id,
        taken=state.taken,
        token=event.token,
        until_ms=until_ms,
    )


def _failed(state: TaskState, event: e.TaskFailed, served_ms: int, policy: Policy) -> Failed:
    if not isinstance(state, Running | Storing) or event.token != state.course.token:
        raise ImpossibleEventError(state, event)
    course = state.course
    return Failed(
        seq=event.seq,
        spec=state.spec,
        hold=state.hold,
        course=Course(
            token=course.token,
            retries=course.retries,
            losses=course.losses,
            percent=course.percent,
            ended_by=event.loss or event.last_failure or event.failure,
            preemptions=course.preemptions,
        ),
        until_ms=served_ms + policy.keep.failed_seconds * SECOND_MS,
    )
