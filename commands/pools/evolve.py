"""What an event changes in the rows of a pool, and which steps an attempt can take.

The steps stand twice: as a table, and as the code of `evolve`; a test holds one against the other.
An event that cannot follow raises: the log or the code is wrong, and the partition stops.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from commands.decider import ImpossibleEventError, Now
from commands.pools import breaking, charging, preempting, scaling
from commands.pools.rows import (
    HOLDS_SLOT,
    LANE_NUMBER,
    POLICY_KEY,
    LeaseRow,
    PolicyRow,
    PoolRow,
    QueuedRow,
    RunnerRow,
    Stage,
    lease_key,
    pool_key,
    queued_key,
    runner_key,
)
from commands.pools.state import PoolState
from schema import events as e
from schema.ids import PoolId, RunnerId
from schema.words import Lane

QUIET_BEATS: Final = 3
"""A runner whose last beat is older than this many gets nothing new."""

TRANSITIONS: Final[dict[tuple[Stage | None, type[e.OfPool]], Stage | None]] = {
    (None, e.SlotProposed): Stage.PROPOSED,
    (Stage.PROPOSED, e.SlotGranted): Stage.GRANTED,
    (Stage.PROPOSED, e.SlotRefused): None,
    (Stage.PROPOSED, e.AttemptAccepted): Stage.ACCEPTED,
    (Stage.PROPOSED, e.SlotFreed): Stage.STORING,
    (Stage.PROPOSED, e.AttemptOver): Stage.OVER,
    (Stage.PROPOSED, e.SlotLost): Stage.LOST,
    (Stage.GRANTED, e.AttemptAccepted): Stage.ACCEPTED,
    (Stage.GRANTED, e.SlotFreed): Stage.STORING,
    (Stage.GRANTED, e.AttemptOver): Stage.OVER,
    (Stage.GRANTED, e.SlotLost): Stage.LOST,
    (Stage.ACCEPTED, e.SlotPreempted): Stage.ACCEPTED,
    (Stage.ACCEPTED, e.SlotFreed): Stage.STORING,
    (Stage.ACCEPTED, e.AttemptOver): Stage.OVER,
    (Stage.ACCEPTED, e.SlotLost): Stage.LOST,
    (Stage.STORING, e.AttemptOver): None,
    (Stage.STORING, e.SlotLost): None,
    (Stage.OVER, e.SlotFreed): None,
    (Stage.LOST, e.SlotFreed): None,
}
"""Stage before and event to stage after; None: no such lease. `RunnerGone` ends every stage."""


def evolve(state: PoolState, event: e.PoolEvent, now: Now) -> None:
    """Change the rows. `now` is that of the command: deadlines count from its served clock."""
    if isinstance(event, e.PolicyAdopted):
        adopted = state.policy_row()
        if event.seq != (1 if adopted is None else adopted.seq + 1):
            raise ImpossibleEventError(adopted, event)
        charging.begin_anew(state, event.policy)
        state.put(POLICY_KEY, PolicyRow(seq=event.seq, policy=event.policy))
        return
    pool = state.pool(event.pool_id)
    if event.seq != pool.seq + 1:
        raise ImpossibleEventError(pool, event)
    changes_demand = type(event) in scaling.CHANGES_DEMAND
    if changes_demand:
        scaling.note_demand(state, event.pool_id, now)
    after = EVOLVE[type(event)](state, pool, event, now)
    if changes_demand:
        scaling.note_demand(state, event.pool_id, now)
    state.put(pool_key(event.pool_id), msgspec.structs.replace(after, seq=event.seq))


# --- waiting --------------------------------------------------------------------------------------


def _enqueued(state: PoolState, pool: PoolRow, event: e.TaskEnqueued, now: Now) -> PoolRow:
    before = state.queued_task(event.pool_id, event.task_id)
    if before is not None and (before.token, before.moved) >= (event.token, event.moved):
        raise ImpossibleEventError(before, event)
    ttl_ms = state.lane_policy(event.pool_id, event.lane).ttl_seconds * 1000
    start_by_ms: int | None = None
    if event.deadline_ms is not None:
        expected_ms = state.pool_policy(event.pool_id).expected_seconds * 1000
        start_by_ms = now.served_ms + event.deadline_ms - expected_ms
    state.put(
        queued_key(event.pool_id, event.task_id),
        QueuedRow(
            token=event.token,
            lane=event.lane,
            arrival=event.seq,
            entered_ms=now.served_ms,
            expires_ms=pool.lane_ms(LANE_NUMBER[event.lane], now.served_ms) + ttl_ms,
            account_id=event.account_id,
            scene=event.scene,
            weight=event.weight,
            model=event.model,
            start_by_ms=start_by_ms,
            moved=event.moved,
            preemptions=event.preemptions,
            lower_spec=event.lower_spec,
        ),
    )
    return pool


def _move_asked(state: PoolState, pool: PoolRow, event: e.TaskMoveAsked, _now: Now) -> PoolRow:
    key = queued_key(event.pool_id, event.task_id)
    queued = state.queued(key)
    if queued is None or queued.token != event.token or queued.moved or queued.asked:
        raise ImpossibleEventError(queued, event)
    state.put(key, msgspec.structs.replace(queued, asked=True))
    return pool


def _dequeued(state: PoolState, pool: PoolRow, event: e.TaskDequeued, _now: Now) -> PoolRow:
    key = queued_key(event.pool_id, event.task_id)
    if state.queued(key) is None:
        raise ImpossibleEventError(None, event)
    state.delete(key)
    return pool


# --- attempts -------------------------------------------------------------------------------------


def _proposed(state: PoolState, pool: PoolRow, event: e.SlotProposed, now: Now) -> PoolRow:
    waiting = queued_key(event.pool_id, event.task_id)
    queued = state.queued(waiting)
    if queued is None or queued.token + 1 != event.token:
        raise ImpossibleEventError(queued, event)
    yard = state.yard(event.pool_id)
    key = runner_key(event.pool_id, event.runner_id)
    runner = state.runner(key)
    if (
        runner is None
        or runner.incarnation_id != event.incarnation_id
        or runner.draining
        or yard.used_of(key) >= runner.slots
    ):
        raise ImpossibleEventError(runner, event)
    attempt = lease_key(event.pool_id, event.task_id, event.token)
    lease = state.lease(attempt)
    if lease is not None:
        raise ImpossibleEventError(lease, event)
    passed, picks = yard.waiting.after(pool, queued.lane)
    state.delete(waiting)
    charged = charging.charge(state, event.pool_id, queued, now)
    scaling.note_wait(state, event.pool_id, now.served_ms - queued.entered_ms, now)
    state.put(
        attempt,
        LeaseRow(
            runner_id=event.runner_id,
            incarnation_id=event.incarnation_id,
            lane=queued.lane,
            account_id=queued.account_id,
            scene=queued.scene,
            model=queued.model,
            preemptions=queued.preemptions,
            proposed_ms=now.served_ms,
            probe=breaking.probe_of(state, event.pool_id, queued.scene),
            charged=charged,
        ),
    )
    return msgspec.structs.replace(pool, passed=passed, picks=picks)


_ON_CARD = (Stage.PROPOSED, Stage.GRANTED, Stage.ACCEPTED)
_OfAttempt = (
    e.SlotGranted | e.SlotRefused | e.AttemptAccepted | e.AttemptOver | e.SlotFreed | e.SlotLost
)


def _attempt(state: PoolState, pool: PoolRow, event: _OfAttempt, now: Now) -> PoolRow:
    """Everything that happens to an attempt between its proposal and its end."""
    key = lease_key(event.pool_id, event.task_id, event.token)
    lease = state.lease(key)
    if lease is None:
        raise ImpossibleEventError(None, event)
    after = _after(lease, event)
    if after is None or after not in HOLDS_SLOT:
        charging.correct(state, event.pool_id, lease, now)
    if isinstance(event, e.SlotFreed):
        mean_ms = charging.mean_after(pool, lease, now)
        pool = msgspec.structs.replace(pool, mean_ms=mean_ms)
    if isinstance(event, e.AttemptOver):
        breaking.count(state, lease, event, now)
    if after is None:
        state.delete(key)
        return pool
    if after is Stage.ACCEPTED:
        state.put(key, preempting.accepted(state, event.pool_id, lease, now))
        return pool
    accept_until_ms = 0
    if after is Stage.GRANTED:
        accept_until_ms = now.served_ms + state.pool_policy(event.pool_id).accept_seconds * 1000
    state.put(key, msgspec.structs.replace(lease, stage=after, accept_until_ms=accept_until_ms))
    return pool


def _after(lease: LeaseRow, event: _OfAttempt) -> Stage | None:
    """The stage that follows; None: the lease is gone."""
    stage = lease.stage
    match event:
        case e.SlotGranted() if stage is Stage.PROPOSED:
            return Stage.GRANTED
        case e.SlotRefused() if stage is Stage.PROPOSED:
            return None
        case e.AttemptAccepted() if stage in (Stage.PROPOSED, Stage.GRANTED):
            return Stage.ACCEPTED
        case e.SlotFreed() if stage in _ON_CARD:
            return Stage.STORING
        case e.AttemptOver() if stage in _ON_CARD:
            return Stage.OVER
        case e.SlotLost() if stage in _ON_CARD:
            return Stage.LOST
        case e.AttemptOver() | e.SlotLost() if stage is Stage.STORING:
            return None
        case e.SlotFreed() if stage in (Stage.OVER, Stage.LOST):
            return None
        case _:
            raise ImpossibleEventError(lease, event)


# --- runners --------------------------------------------------------------------------------------


def _registered(state: PoolState, pool: PoolRow, event: e.RunnerRegistered, now: Now) -> PoolRow:
    key = runner_key(event.pool_id, event.runner_id)
    before = state.runner(key)
    lease_until_ms, fresh_until_ms = _renewed(state, event.pool_id, now)
    if before is None:
        after = RunnerRow(
            incarnation_id=event.incarnation_id,
            slots=event.slots,
            lease_until_ms=lease_until_ms,
            fresh_until_ms=fresh_until_ms,
            spot=event.spot,
        )
    elif before.incarnation_id == event.incarnation_id:
        after = msgspec.structs.replace(
            before,
            slots=event.slots,
            spot=event.spot,
            lease_until_ms=lease_until_ms,
            fresh_until_ms=fresh_until_ms,
        )
    else:  # the old incarnation goes first, by an event of its own
        raise ImpossibleEventError(before, event)
    state.put(key, after)
    return _with_slots(state, event.pool_id, pool, now)


def _with_slots(state: PoolState, pool_id: PoolId, pool: PoolRow, now: Now) -> PoolRow:
    """Runners came or went: since when there is no slot at all."""
    since_ms = 0 if state.yard(pool_id).slots else pool.bare_since_ms or now.served_ms
    if since_ms == pool.bare_since_ms:
        return pool
    return msgspec.structs.replace(pool, bare_since_ms=since_ms)


def _renewed(state: PoolState, pool_id: PoolId, now: Now) -> tuple[int, int]:
    """Until when a runner that was heard of now has its lease, and until when it gets new work."""
    policy = state.pool_policy(pool_id)
    lease_until_ms = now.served_ms + policy.lease_seconds * 1000
    fresh_until_ms = now.served_ms + QUIET_BEATS * policy.beat_seconds * 1000
    return lease_until_ms, min(lease_until_ms, fresh_until_ms)


def _known(
    state: PoolState, pool_id: PoolId, runner_id: RunnerId, event: e.PoolEvent | e.LeaseExtended
) -> tuple[str, RunnerRow]:
    key = runner_key(pool_id, runner_id)
    runner = state.runner(key)
    if runner is None or runner.incarnation_id != getattr(event, "incarnation_id", None):
        raise ImpossibleEventError(runner, event)
    return key, runner


def _draining(state: PoolState, pool: PoolRow, event: e.RunnerDraining, now: Now) -> PoolRow:
    key, runner = _known(state, event.pool_id, event.runner_id, event)
    taken = runner.taken or event.spot
    until_ms = runner.taken_until_ms
    if event.spot:
        until_ms = preempting.notice_until_ms(event.notice_seconds, now)
    state.put(
        key,
        msgspec.structs.replace(runner, draining=True, taken=taken, taken_until_ms=until_ms),
    )
    if event.spot:
        preempting.taken(state, event.pool_id, event.runner_id, now)
    return pool


def _gone(state: PoolState, pool: PoolRow, event: e.RunnerGone, now: Now) -> PoolRow:
    """Its slots go with it, and so does all that was in them."""
    key, _ = _known(state, event.pool_id, event.runner_id, event)
    for attempt in state.yard(event.pool_id).leases_of(key):
        lease = state.lease(attempt)
        if lease is not None:
            charging.correct(state, event.pool_id, lease, now)
        state.delete(attempt)
    state.delete(key)
    return _with_slots(state, event.pool_id, pool, now)


def _extended(state: PoolState, pool: PoolRow, event: e.LeasesExtended, now: Now) -> PoolRow:
    lease_until_ms, fresh_until_ms = _renewed(state, event.pool_id, now)
    for extended in event.runners:
        key, runner = _known(state, event.pool_id, extended.runner_id, extended)
        state.put(
            key,
            RunnerRow(
                incarnation_id=runner.incarnation_id,
                slots=runner.slots,
                lease_until_ms=lease_until_ms,
                fresh_until_ms=fresh_until_ms,
                beat=extended.beat,
                draining=runner.draining,
                missing=extended.missing,
                spot=runner.spot,
                taken=runner.taken,
                taken_until_ms=runner.taken_until_ms,
            ),
        )
        preempting.saved(state, event.pool_id, extended, now)
    return pool


# --- lanes ----------------------------------------------------------------------------------------


def _paused(_state: PoolState, pool: PoolRow, event: e.LanePaused, now: Now) -> PoolRow:
    since_ms = pool.since_ms[LANE_NUMBER[event.lane]]
    if since_ms is not None:
        raise ImpossibleEventError(pool, event)
    return _with_lane(pool, event.lane, pool.stood_ms[LANE_NUMBER[event.lane]], now.served_ms)


def _resumed(_state: PoolState, pool: PoolRow, event: e.LaneResumed, _now: Now) -> PoolRow:
    if pool.since_ms[LANE_NUMBER[event.lane]] is None:
        raise ImpossibleEventError(pool, event)
    stood_ms = pool.stood_ms[LANE_NUMBER[event.lane]] + event.stood_ms
    return _with_lane(pool, event.lane, stood_ms, None)


def _with_lane(pool: PoolRow, lane: Lane, stood_ms: int, since_ms: int | None) -> PoolRow:
    stood, since = list(pool.stood_ms), list(pool.since_ms)
    stood[LANE_NUMBER[lane]], since[LANE_NUMBER[lane]] = stood_ms, since_ms
    return msgspec.structs.replace(
        pool,
        stood_ms=(stood[0], stood[1], stood[2]),
        since_ms=(since[0], since[1], since[2]),
    )


_Evolve = Callable[[PoolState, PoolRow, Any, Now], PoolRow]
EVOLVE: Final[dict[type, _Evolve]] = {
    e.TaskEnqueued: _enqueued,
    e.TaskMoveAsked: _move_asked,
    e.TaskDequeued: _dequeued,
    e.SlotProposed: _proposed,
    e.SlotPreempted: preempting.preempted,
    e.SlotGranted: _attempt,
    e.SlotRefused: _attempt,
    e.AttemptAccepted: _attempt,
    e.AttemptOver: _attempt,
    e.SlotFreed: _attempt,
    e.SlotLost: _attempt,
    e.RunnerRegistered: _registered,
    e.RunnerDraining: _draining,
    e.RunnerGone: _gone,
    e.LeasesExtended: _extended,
    e.LanePaused: _paused,
    e.LaneResumed: _resumed,
    e.BreakerOpened: breaking.opened,
    e.BreakerHalfOpened: breaking.half_opened,
    e.BreakerClosed: breaking.closed,
    e.PoolScaled: scaling.scaled,
}
"""Every pool event but PolicyAdopted, which has a counter of its own."""
