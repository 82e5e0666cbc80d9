"""A step of a pool: decide, evolve, then give free slots to waiting tasks.

The shell calls `handle` for a command and, once a second, `fire` for each deadline that is due and
then `settle` (`on_tick` is all of it at once). After each it either takes the changed rows
(`PoolState.take_changes`) or, if anything raised, undoes them (`PoolState.rollback`).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from commands.decider import Decision, Now, TimerDue
from commands.pools import moves, preempting, scaling
from commands.pools.decide import decide_due, decide_into
from commands.pools.draft import Draft
from commands.pools.rows import behind, name_in
from commands.pools.state import PoolState
from schema import commands as c
from schema import events as e
from schema.ids import CommandId, PoolId, RunnerId, TaskId

ASSIGNED_MAX: Final = 200
"""Slots proposed by one command or tick; what is left over goes on with the next."""
DUE_MAX: Final = 500


class Ticked(NamedTuple):
    decision: Decision[e.PoolEvent]
    more: bool
    """Something is left that can be done now: append another tick."""


def handle(state: PoolState, command: c.PoolCommand, now: Now) -> Decision[e.PoolEvent]:
    """Work on one command. `state.has_more(now.served_ms)` says whether slots are left to give."""
    draft = Draft(state, command.command_id, now)
    decide_into(draft, command)
    draft.apply()
    match command:
        case c.PublishPolicy():
            _settle_all(draft)
        case c.ReleaseKey():
            pass
        case c.EnqueueTask():
            _settle(draft, command.pool_id, ASSIGNED_MAX)
            moves.ask_newcomer(draft, command)
        case _:
            _settle(draft, command.pool_id, ASSIGNED_MAX)
    return draft.decision()


def on_due(state: PoolState, timer: TimerDue, now: Now) -> Decision[e.PoolEvent]:
    """Work on the one deadline that is due first, if it is this key's; otherwise already so."""
    draft = Draft(state, timer.command_id, now)
    if state.due(now.served_ms) == timer.key:
        decide_due(draft, timer.key)
        draft.apply()
        _settle_all(draft)
    return draft.decision()


def fire(state: PoolState, timer: TimerDue, now: Now) -> Decision[e.PoolEvent]:
    """Work on the deadline that is due first, and on no slot: `settle` comes after the last one."""
    draft = Draft(state, timer.command_id, now)
    decide_due(draft, timer.key)
    draft.apply()
    return draft.decision()


def settle(
    state: PoolState, command_id: CommandId, now: Now, here: Iterable[PoolId] = ()
) -> Decision[e.PoolEvent]:
    """What ends a tick: let drained runners go, give free slots away, say how many cards to have.

    `here` are the pools of this partition: one of which nothing is known yet may want cards too.
    """
    draft = Draft(state, command_id, now)
    _settle_all(draft)
    _clear_bare(draft)
    _scale_all(draft, here)
    return draft.decision()


def rows_behind(state: PoolState, held: Iterable[str | bytes]) -> frozenset[str]:
    """The rows whose deadlines wait behind these quarantined keys (see `PoolState.hold`)."""
    names = [key.decode() if isinstance(key, bytes) else key for key in held]
    rows = (behind(name, pool_id) for name in names for pool_id in state.pools)
    return frozenset(row for row in rows if row is not None)


def on_tick(state: PoolState, command_id: CommandId, now: Now, limit: int = DUE_MAX) -> Ticked:
    """Work on at most `limit` deadlines that have passed, first come first, then on free slots.

    `command_id` is the tick's; the ids of everything that follows derive from it.
    """
    draft = Draft(state, command_id, now)
    for _ in range(limit):
        key = state.due(now.served_ms)
        if key is None:
            break
        decide_due(draft, key)
        draft.apply()
    _settle_all(draft)
    _clear_bare(draft)
    _scale_all(draft, ())
    return Ticked(draft.decision(), state.has_more(now.served_ms))


def _settle_all(draft: Draft) -> None:
    left = ASSIGNED_MAX
    for pool_id in draft.state.pools:
        left = _settle(draft, pool_id, left)


def _clear_bare(draft: Draft) -> None:
    """Once a tick, so that a spare pool is not flooded for cards that come back soon."""
    for pool_id in draft.state.pools:
        moves.ask_stranded(draft, pool_id)


def _scale_all(draft: Draft, here: Iterable[PoolId]) -> None:
    for pool_id in sorted({*draft.state.pools, *here}):
        scaling.judge(draft, pool_id)
        draft.apply()


def _settle(draft: Draft, pool_id: PoolId, left: int) -> int:
    """Let drained runners go and propose free slots; hands back how many proposals are left."""
    state, served_ms = draft.state, draft.now.served_ms
    yard = state.yard(pool_id)
    for key in sorted(yard.drained) if yard.drained else ():
        runner = state.runner(key)
        if runner is not None:
            draft.say(
                e.RunnerGone,
                pool_id,
                runner_id=RunnerId(name_in(key)),
                incarnation_id=runner.incarnation_id,
            )
            draft.apply()
    if not any(yard.waiting.counts):
        return left
    while left > 0 and (pair := state.assignable(pool_id, served_ms)) is not None:
        task, chosen = pair
        queued, runner = state.queued(task), state.runner(chosen)
        if queued is None or runner is None:
            break
        attempt = c.HeldAttempt(task_id=TaskId(name_in(task)), token=queued.token + 1)
        draft.propose(pool_id, attempt, RunnerId(name_in(chosen)), runner.incarnation_id)
        draft.apply()
        left -= 1
    preempting.seek(draft, pool_id)
    if state.waking:
        moves.ask_kept_off(draft, pool_id)
    return left
