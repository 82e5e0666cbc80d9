"""What follows from each command to a pool. Reads rows, changes none.

A slot is free again only by its runner's word (`FreeSlot`), by the task's refusal to start, or when
its runner is gone: at the end of the runner's lease, by a newer incarnation, or drained.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from commands.decider import Decision, Now
from commands.policies import ADOPT, Refused, judge
from commands.pools import breaking, preempting
from commands.pools.draft import Draft, policy_names
from commands.pools.rows import (
    BREAKER,
    LANE_NUMBER,
    LIVE,
    BreakerState,
    LeaseRow,
    RunnerRow,
    Stage,
    attempt_in,
    name_in,
    pool_of,
    runner_key,
)
from commands.pools.state import PoolState
from schema import commands as c
from schema import events as e
from schema.ids import PoolId, RunnerId, TaskId, event_id_of, follow_up_id
from schema.refusals import Refusal
from schema.replies import BeatAnswered
from schema.words import LossCause, Scene

SUPERSEDED: Final = "superseded"
NOT_HELD: Final = "not held"


def decide(state: PoolState, command: c.PoolCommand, now: Now) -> Decision[e.PoolEvent]:
    """What the command itself leads to; `handle` applies it and gives free slots away after it."""
    draft = Draft(state, command.command_id, now)
    decide_into(draft, command)
    return draft.decision()


def decide_into(draft: Draft, command: c.PoolCommand) -> None:
    """The same, said into a draft."""
    rule = RULES.get(type(command))
    if rule is not None:  # ReleaseKey is the engine's
        rule(draft, command)


# --- from tasks -----------------------------------------------------------------------------------


def _enqueue(draft: Draft, command: c.EnqueueTask) -> None:
    """Never refused. A wait that follows a token means that the attempt of that token is over."""
    state = draft.state
    queued = state.queued_task(command.pool_id, command.task_id)
    waits = (-1, False) if queued is None else (queued.token, queued.moved)
    if waits >= (command.token, command.moved):
        return
    if state.lease_of(command.pool_id, command.task_id, command.token + 1) is not None:
        return
    _over(draft, command.pool_id, c.HeldAttempt(task_id=command.task_id, token=command.token))
    draft.say(
        e.TaskEnqueued,
        command.pool_id,
        task_id=command.task_id,
        token=command.token,
        lane=command.lane,
        account_id=command.account_id,
        scene=command.scene,
        weight=command.weight,
        model=command.model,
        deadline_ms=command.deadline_ms,
        moved=command.moved,
        preemptions=command.preemptions,
        lower_spec=command.lower_spec,
    )


def _dequeue(draft: Draft, command: c.DequeueTask) -> None:
    """If a slot is proposed for it already, the task refuses to start, and that frees the slot.

    Told again, it ends no wait that the task has been moved to since, in this very pool.
    """
    queued = draft.state.queued_task(command.pool_id, command.task_id)
    if queued is not None and (queued.token, queued.moved) <= (command.token, command.moved):
        draft.say(e.TaskDequeued, command.pool_id, task_id=command.task_id, token=queued.token)


def _grant(draft: Draft, command: c.GrantAttempt) -> None:
    """Without a lease the slot was given away while the task could not be asked: it queues again.

    If its attempt is over (or lost) already, the task hears of an old token and does nothing.
    """
    lease = draft.state.lease_of(command.pool_id, command.task_id, command.token)
    if lease is None:
        draft.orders.append(
            c.LoseAttempt(
                command_id=follow_up_id(event_id_of(command.command_id, 0), "l"),
                task_id=command.task_id,
                token=command.token,
                cause=LossCause.NOT_ACCEPTED,
            )
        )
    elif lease.stage is Stage.PROPOSED:
        draft.say(e.SlotGranted, command.pool_id, task_id=command.task_id, token=command.token)


def _refuse(draft: Draft, command: c.RefuseAttempt) -> None:
    """Only a proposal can be refused: a granted attempt may be running."""
    lease = draft.state.lease_of(command.pool_id, command.task_id, command.token)
    if lease is not None and lease.stage is Stage.PROPOSED:
        draft.say(
            e.SlotRefused,
            command.pool_id,
            task_id=command.task_id,
            token=command.token,
            reason=command.reason,
        )


def _end(draft: Draft, command: c.EndAttempt) -> None:
    """The task's word on how it ended; the breaker listens, if the pool still counts on it."""
    lease = draft.state.lease_of(command.pool_id, command.task_id, command.token)
    if lease is None or lease.stage not in LIVE:
        return
    draft.say(
        e.AttemptOver,
        command.pool_id,
        task_id=command.task_id,
        token=command.token,
        ended_well=command.ended_well,
        failure=command.failure,
        card_ms=command.card_ms,
    )
    breaking.follow(draft, command, lease)


def _over(draft: Draft, pool_id: PoolId, attempt: c.HeldAttempt) -> None:
    lease = draft.state.lease_of(pool_id, attempt.task_id, attempt.token)
    if lease is not None and lease.stage in LIVE:
        draft.say(e.AttemptOver, pool_id, task_id=attempt.task_id, token=attempt.token)


# --- from runners ---------------------------------------------------------------------------------


def _register(draft: Draft, command: c.RegisterRunner) -> None:
    state, pool_id = draft.state, command.pool_id
    unknown = policy_names(state.policy(), pool_id)
    if unknown is not None:
        draft.refuse(command, unknown, command.runner_id)
        draft.dismiss(command.runner_id, command.incarnation_id, unknown)
        return
    key = runner_key(pool_id, command.runner_id)
    before = state.runner(key)
    slots = max(command.slots, 0)
    if before is not None and before.incarnation_id == command.incarnation_id:
        if (before.slots, before.spot) == (slots, command.spot):
            _answer(draft, command, 0)
            return
    elif before is not None:
        _all_lost(draft, pool_id, command.runner_id, LossCause.RUNNER_REPLACED)
        _gone(draft, pool_id, command.runner_id, before)
    _answer(draft, command, 0)
    draft.say(
        e.RunnerRegistered,
        pool_id,
        runner_id=command.runner_id,
        incarnation_id=command.incarnation_id,
        slots=slots,
        spot=command.spot,
    )


def _all_lost(draft: Draft, pool_id: PoolId, runner_id: RunnerId, cause: LossCause) -> None:
    """Tell the tasks of all attempts of a runner that may still have ended well."""
    state = draft.state
    for key in state.yard(pool_id).leases_of(runner_key(pool_id, runner_id)):
        lease = state.lease(key)
        if lease is not None and lease.stage in LIVE:
            draft.lose(pool_id, attempt_in(key), runner_id, cause)


def _gone(draft: Draft, pool_id: PoolId, runner_id: RunnerId, runner: RunnerRow) -> None:
    draft.say(e.RunnerGone, pool_id, runner_id=runner_id, incarnation_id=runner.incarnation_id)


_OfRunner = c.BeatRunner | c.AcceptAttempt | c.FreeSlot | c.DrainRunner


def _current(draft: Draft, command: _OfRunner) -> RunnerRow | None:
    """The runner's row if this very incarnation is the one known; otherwise it is refused."""
    runner = draft.state.runner_of(command.pool_id, command.runner_id)
    if runner is not None and runner.incarnation_id == command.incarnation_id:
        return runner
    reason = Refusal.RUNNER_UNKNOWN if runner is None else Refusal.INCARNATION_STALE
    draft.refuse(command, reason, f"{command.runner_id} {command.incarnation_id}")
    if not isinstance(command, c.DrainRunner):
        draft.dismiss(command.runner_id, command.incarnation_id, reason)
    return None


class _RollCall(NamedTuple):
    """What a beat says of the attempts that the pool has on a runner."""

    held: list[c.HeldAttempt]
    missing: list[c.HeldAttempt]
    lost: list[c.HeldAttempt]
    """Missing for the second time running, though nobody said that they are over."""
    stuck: list[c.HeldAttempt]
    """Done with, but the slot still waits for a runner that has forgotten them."""


def _roll_call(
    state: PoolState, command: c.BeatRunner, runner: RunnerRow, served_ms: int
) -> _RollCall:
    calls = _RollCall([], [], [], [])
    news, told = command.beat > runner.beat, frozenset(command.held)
    apart = False
    if runner.missing:
        # Beats that were kept back and are worked at once say one thing: all may be older than
        # what the pool has heard of the attempt meanwhile.
        policy = state.pool_policy(command.pool_id)
        before_ms = runner.lease_until_ms - policy.lease_seconds * 1000
        apart = 2 * (served_ms - before_ms) >= policy.beat_seconds * 1000
    key = runner_key(command.pool_id, command.runner_id)
    for lease_name in state.yard(command.pool_id).leases_of(key):
        attempt, lease = attempt_in(lease_name), state.lease(lease_name)
        if lease is None:
            continue
        if lease.stage in (Stage.PROPOSED, Stage.GRANTED):  # its dispatch may be on its way
            calls.held.append(attempt)
            continue
        absent = news and attempt not in told
        again = absent and apart and attempt in runner.missing
        if absent:
            calls.missing.append(attempt)
        if lease.stage in LIVE:
            (calls.lost if again else calls.held).append(attempt)
        elif again:
            calls.stuck.append(attempt)
    return calls


def _beat(draft: Draft, command: c.BeatRunner) -> None:
    """Renew the lease, and answer which attempts stay held: the runner stops everything else."""
    runner = _current(draft, command)
    if runner is None:
        return
    calls = _roll_call(draft.state, command, runner, draft.now.served_ms)
    if command.beat > runner.beat:
        extended = e.LeaseExtended(
            runner_id=command.runner_id,
            incarnation_id=command.incarnation_id,
            beat=command.beat,
            missing=tuple(calls.missing),
            unsaved=preempting.unsaved_of(draft.state, command, draft.now.served_ms),
        )
        draft.say(e.LeasesExtended, command.pool_id, runners=(extended,))
    for attempt in calls.lost:
        draft.lose(command.pool_id, attempt, command.runner_id, LossCause.LEASE_EXPIRED)
    for attempt in calls.stuck:
        draft.stop(command.runner_id, command.incarnation_id, attempt, NOT_HELD)
    _answer(draft, command, command.beat, calls.held)


def _answer(
    draft: Draft,
    command: c.RegisterRunner | c.BeatRunner,
    beat: int,
    held: Sequence[c.HeldAttempt] = (),
) -> None:
    """Tell the runner how long its lease is and how often this pool wants to be told."""
    policy = draft.state.pool_policy(command.pool_id)
    draft.orders.append(
        BeatAnswered(
            runner_id=command.runner_id,
            incarnation_id=command.incarnation_id,
            at=draft.now.at,
            beat=beat,
            lease_seconds=policy.lease_seconds,
            beat_seconds=policy.beat_seconds,
            held=tuple(held),
        )
    )


def _held_by(lease: LeaseRow, command: c.AcceptAttempt | c.FreeSlot) -> bool:
    return lease.runner_id == command.runner_id and lease.incarnation_id == command.incarnation_id


def _accept(draft: Draft, command: c.AcceptAttempt) -> None:
    runner = _current(draft, command)
    if runner is None:
        return
    lease = draft.state.lease_of(command.pool_id, command.task_id, command.token)
    if lease is not None and lease.stage in LIVE and _held_by(lease, command):
        if lease.stage in (Stage.PROPOSED, Stage.GRANTED):
            draft.say(
                e.AttemptAccepted, command.pool_id, task_id=command.task_id, token=command.token
            )
            if runner.taken:
                attempt = c.HeldAttempt(task_id=command.task_id, token=command.token)
                preempting.on_late_start(draft, command.pool_id, attempt, lease, runner)
        return
    draft.refuse(command, Refusal.ATTEMPT_UNKNOWN, f"{command.task_id} {command.token}")
    attempt = c.HeldAttempt(task_id=command.task_id, token=command.token)
    draft.stop(command.runner_id, command.incarnation_id, attempt, SUPERSEDED)


def _free(draft: Draft, command: c.FreeSlot) -> None:
    if _current(draft, command) is None:
        return
    lease = draft.state.lease_of(command.pool_id, command.task_id, command.token)
    if lease is None or not _held_by(lease, command) or lease.stage is Stage.STORING:
        return
    draft.say(
        e.SlotFreed,
        command.pool_id,
        task_id=command.task_id,
        token=command.token,
        runner_id=command.runner_id,
    )
    preempting.hand_over(draft, command.pool_id, lease)


def _drain(draft: Draft, command: c.DrainRunner) -> None:
    runner = _current(draft, command)
    if runner is None or (runner.draining and (runner.taken or not command.spot)):
        return
    draft.say(
        e.RunnerDraining,
        command.pool_id,
        runner_id=command.runner_id,
        incarnation_id=command.incarnation_id,
        spot=command.spot,
        notice_seconds=command.notice_seconds,
    )
    if command.spot:
        preempting.on_notice(draft, command)


# --- from operators -------------------------------------------------------------------------------


def _pause(draft: Draft, command: c.PauseLane) -> None:
    unknown = policy_names(draft.state.policy(), command.pool_id)
    if unknown is not None:
        draft.refuse(command, unknown)
        return
    if draft.state.pool(command.pool_id).since_ms[LANE_NUMBER[command.lane]] is None:
        draft.say(
            e.LanePaused, command.pool_id, lane=command.lane, who=command.who, why=command.why
        )
    draft.accept(command)


def _resume(draft: Draft, command: c.ResumeLane) -> None:
    unknown = policy_names(draft.state.policy(), command.pool_id)
    since_ms = draft.state.pool(command.pool_id).since_ms[LANE_NUMBER[command.lane]]
    if unknown is not None and since_ms is None:
        draft.refuse(command, unknown)
        return
    if since_ms is not None:
        draft.say(
            e.LaneResumed,
            command.pool_id,
            lane=command.lane,
            who=command.who,
            why=command.why,
            stood_ms=max(draft.now.served_ms - since_ms, 0),
        )
    draft.accept(command)


def _reset(draft: Draft, command: c.ResetBreaker) -> None:
    row = draft.state.breaker(command.pool_id, command.scene)
    unknown = policy_names(draft.state.policy(), command.pool_id)
    if row is not None and row.state is not BreakerState.CLOSED:
        draft.say(
            e.BreakerClosed,
            command.pool_id,
            scene=command.scene,
            who=command.who,
            why=command.why,
        )
    elif unknown is not None:
        draft.refuse(command, unknown)
        return
    draft.accept(command)


def _publish(draft: Draft, command: c.PublishPolicy) -> None:
    adopted = draft.state.policy_row()
    verdict = judge(None if adopted is None else adopted.policy, command.policy)
    if isinstance(verdict, Refused):
        draft.refuse(command, verdict.reason, verdict.detail)
        return
    if verdict is ADOPT:
        draft.adopt(command, 1 if adopted is None else adopted.seq + 1)
    draft.accept(command)


# --- deadlines ------------------------------------------------------------------------------------


def decide_due(draft: Draft, key: str) -> None:
    """What follows when the deadline of a row has come (see `PoolState.due`)."""
    state = draft.state
    pool_id, name = pool_of(key), name_in(key)
    if (queued := state.queued(key)) is not None:
        draft.expire(pool_id, TaskId(name), queued.token)
    elif (runner := state.runner(key)) is not None:
        runner_id = RunnerId(name)
        _all_lost(draft, pool_id, runner_id, LossCause.LEASE_EXPIRED)
        _gone(draft, pool_id, runner_id, runner)
    elif (lease := state.lease(key)) is not None and lease.yields:
        preempting.overdue(draft, pool_id, key, lease)
    elif lease is not None:
        draft.lose(pool_id, attempt_in(key), lease.runner_id, LossCause.NOT_ACCEPTED)
    elif key.startswith(BREAKER):
        breaking.half_open(draft, pool_id, Scene(name))


_Rule = Callable[[Draft, Any], None]
RULES: Final[dict[type, _Rule]] = {
    c.EnqueueTask: _enqueue,
    c.DequeueTask: _dequeue,
    c.GrantAttempt: _grant,
    c.RefuseAttempt: _refuse,
    c.EndAttempt: _end,
    c.RegisterRunner: _register,
    c.BeatRunner: _beat,
    c.AcceptAttempt: _accept,
    c.FreeSlot: _free,
    c.DrainRunner: _drain,
    c.PauseLane: _pause,
    c.ResumeLane: _resume,
    c.ResetBreaker: _reset,
    c.PublishPolicy: _publish,
}
