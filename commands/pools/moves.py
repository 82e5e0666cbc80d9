"""Which waiting tasks are asked to wait elsewhere, once each, and where.

A pool never moves a task: the task decides, and until it does it waits here and may start here. It
is asked when it comes and its model is at its cap or its wait would be too long; and, whenever it
came, while a breaker keeps its scene off the cards, or when the pool has lost its last card and
none comes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from commands.pools import gates
from commands.pools.flows import Line
from commands.pools.rows import (
    LANE_NUMBER,
    LANES,
    BreakerState,
    QueuedRow,
    name_in,
    queued_key,
)
from schema import commands as c
from schema import events as e
from schema.estimates import Load, wait_seconds
from schema.ids import PoolId, TaskId, follow_up_id
from schema.words import Lane, MoveReason, Scene

if TYPE_CHECKING:
    from commands.pools.draft import Draft
    from commands.pools.state import PoolState

ASKED_MAX: Final = 200
"""Tasks asked in one step; what is left over goes on with the next."""
LOOKS_MAX: Final = 2_000
"""Tasks that are looked at in one step for those who could be asked."""
START_UP_SECONDS: Final = 300
"""A card that is to come is here by then, or it is not coming."""


class Place(NamedTuple):
    """Where a task may wait instead."""

    pool_id: PoolId
    lane: Lane
    lower_spec: bool = False


def ask_newcomer(draft: "Draft", command: c.EnqueueTask) -> None:
    """It came with this command and got no slot; perhaps there is a better place for it."""
    state, pool_id = draft.state, command.pool_id
    queued = state.queued_task(pool_id, command.task_id)
    if queued is None or queued.token != command.token:
        return
    if queued.moved or queued.asked or _stands(state, pool_id, queued.lane):
        return
    contest = state.yard(pool_id).contest
    contest.end_holds(draft.now.served_ms)
    if contest.is_promised(queued_key(pool_id, command.task_id)):
        return
    reason = _reason(state, pool_id, queued, draft.now.served_ms)
    place = None if reason is None else place_for(state, pool_id, queued, reason)
    if reason is not None and place is not None:
        _ask(draft, pool_id, command.task_id, queued, place, reason)


def ask_kept_off(draft: "Draft", pool_id: PoolId) -> None:
    """The tasks of scenes that an open breaker keeps off the cards, the oldest first."""
    state, left = draft.state, ASKED_MAX
    for lane, line in kept_off(state, pool_id):
        while left > 0 and (key := line.mover()) is not None:
            queued = state.queued(key)
            place = _elsewhere(state, pool_id, lane)
            if queued is None or place is None:
                break
            task_id = TaskId(name_in(key))
            _ask(draft, pool_id, task_id, queued, place, MoveReason.BREAKER_OPEN)
            left -= 1


def ask_stranded(draft: "Draft", pool_id: PoolId) -> None:
    """All that wait in a pool whose last card is gone and stays away, the oldest of a lane first.

    Once a tick, and so many at most: the cost of a step does not depend on how many wait.
    """
    state = draft.state
    waiting = state.yard(pool_id).waiting
    if not _is_stranded(state, pool_id, draft.now.served_ms):
        waiting.forget_movers()
        return
    asked, looks = 0, LOOKS_MAX
    for number, lane in enumerate(LANES):
        place = _elsewhere(state, pool_id, lane)
        if place is None or not waiting.counts[number] or _stands(state, pool_id, lane):
            continue
        while asked < ASKED_MAX:
            key, looks = waiting.mover(lane, looks)
            queued = None if key is None else state.queued(key)
            if key is None or queued is None:
                break
            _ask(draft, pool_id, TaskId(name_in(key)), queued, place, MoveReason.POOL_FULL)
            asked += 1


def kept_off(state: "PoolState", pool_id: PoolId) -> Iterator[tuple[Lane, Line]]:
    """Lines with tasks that an open breaker keeps off the cards, and that could be elsewhere."""
    if not state.waking or state.pool_policy(pool_id).breaker is None:
        return
    waiting = state.yard(pool_id).waiting
    for number, lane in enumerate(LANES):
        if not waiting.counts[number] or _stands(state, pool_id, lane):
            continue
        for (scene, _), line in list(waiting.lines[number].items()):
            if _is_kept_off(state, pool_id, scene) and _elsewhere(state, pool_id, lane):
                yield lane, line


def pending(state: "PoolState", pool_id: PoolId) -> bool:
    """Whether tasks are left that an open breaker keeps off and that were not asked yet."""
    return any(line.mover() is not None for _, line in kept_off(state, pool_id))


def place_for(
    state: "PoolState", pool_id: PoolId, queued: QueuedRow, reason: MoveReason
) -> Place | None:
    """The spare pool, else a lower lane or a lower spec here; None: it waits where it is."""
    elsewhere = _elsewhere(state, pool_id, queued.lane)
    if elsewhere is not None or reason is MoveReason.BREAKER_OPEN:
        return elsewhere
    if reason is MoveReason.POOL_FULL and _is_bare(state, pool_id):
        return None  # with no card at all, no lane and no size of it starts sooner
    policy = state.pool_policy(pool_id)
    lower = policy.lower_lane
    if (
        lower is not None
        and lower in policy.lanes
        and LANE_NUMBER[lower] > LANE_NUMBER[queued.lane]
    ):
        return Place(pool_id, lower)
    return Place(pool_id, queued.lane, lower_spec=True) if queued.lower_spec else None


def _elsewhere(state: "PoolState", pool_id: PoolId, lane: Lane) -> Place | None:
    """The lane of the spare pool: the same if it serves it."""
    policy = state.pool_policy(pool_id)
    if policy.spare_pool is None:
        return None
    lanes = state.pool_policy(policy.spare_pool).lanes
    for one in (lane, policy.lower_lane):
        if one is not None and one in lanes:
            return Place(policy.spare_pool, one)
    return None


def _reason(
    state: "PoolState", pool_id: PoolId, queued: QueuedRow, served_ms: int
) -> MoveReason | None:
    if _is_kept_off(state, pool_id, queued.scene):
        return MoveReason.BREAKER_OPEN
    if gates.is_full(state, pool_id, queued.model):
        return MoveReason.MODEL_FULL
    policy = state.pool_policy(pool_id)
    limit = policy.spill_wait_seconds
    if limit is not None and not _waits_for_its_first_card(state, pool_id, served_ms):
        return MoveReason.POOL_FULL if wait_of_newcomer(state, pool_id, queued) > limit else None
    return None


def _is_bare(state: "PoolState", pool_id: PoolId) -> bool:
    return not state.yard(pool_id).slots


def _waits_for_its_first_card(state: "PoolState", pool_id: PoolId, served_ms: int) -> bool:
    """Without any card there is no rate to go by: one that is asked for comes soon, if it does.

    The time for it counts from when a first one was wanted, or the last one went. A later rise of
    the number does not begin it anew.
    """
    if state.pool_policy(pool_id).scaling is None or not _is_bare(state, pool_id):
        return False
    row = state.scale(pool_id)
    if row is None or not row.cards:  # it wants one as soon as somebody has waited a little
        return True
    since_ms = max(row.first_ms, state.pool(pool_id).bare_since_ms)
    return served_ms < since_ms + START_UP_SECONDS * 1000


def _is_stranded(state: "PoolState", pool_id: PoolId, served_ms: int) -> bool:
    """Without any card for longer than one takes to come, and free to send elsewhere."""
    policy = state.pool_policy(pool_id)
    if policy.spare_pool is None or policy.spill_wait_seconds is None:
        return False
    if not _is_bare(state, pool_id) or _waits_for_its_first_card(state, pool_id, served_ms):
        return False
    return served_ms >= state.pool(pool_id).bare_since_ms + START_UP_SECONDS * 1000


def _is_kept_off(state: "PoolState", pool_id: PoolId, scene: Scene) -> bool:
    """A half-open breaker is no reason: a probe may close it."""
    row = state.breaker(pool_id, scene)
    policy = state.pool_policy(pool_id)
    return row is not None and row.state is BreakerState.OPEN and policy.breaker is not None


def _stands(state: "PoolState", pool_id: PoolId, lane: Lane) -> bool:
    """A paused lane is not to be worked off elsewhere."""
    return state.pool(pool_id).since_ms[LANE_NUMBER[lane]] is not None


def wait_of_newcomer(state: "PoolState", pool_id: PoolId, queued: QueuedRow) -> float:
    """Seconds until a task that has just come will start.

    A fair share lets a small account pass: before its task go about as many of each other account
    as it has itself.
    """
    policy, depths = state.pool_policy(pool_id), state.depths(pool_id)
    lines = state.yard(pool_id).waiting.lines[LANE_NUMBER[queued.lane]].values()
    flows = [flow for line in lines if (flow := line.flows.get(queued.account_id)) is not None]
    own = sum(flow.count for flow in flows)
    accounts = sum(len(line.flows) for line in lines) - len(flows) + 1
    load = Load(
        slots=depths.slots,
        used=depths.used,
        held_seconds=(state.pool(pool_id).mean_ms or policy.expected_seconds * 1000) / 1000,
        waiting=depths.waiting,
        paused=depths.paused,
        floors={lane: rules.floor_picks for lane, rules in policy.lanes.items()},
    )
    ahead = min(depths.waiting[queued.lane], own * accounts) - 1
    return wait_seconds(load, queued.lane, max(ahead, 0))


def _ask(
    draft: "Draft",
    pool_id: PoolId,
    task_id: TaskId,
    queued: QueuedRow,
    place: Place,
    reason: MoveReason,
) -> None:
    event = draft.say(
        e.TaskMoveAsked,
        pool_id,
        task_id=task_id,
        token=queued.token,
        to_pool_id=place.pool_id,
        to_lane=place.lane,
        to_lower_spec=place.lower_spec,
        reason=reason,
    )
    draft.orders.append(
        c.MoveTask(
            command_id=follow_up_id(event.event_id, "m"),
            task_id=task_id,
            token=queued.token,
            pool_id=place.pool_id,
            lane=place.lane,
            lower_spec=place.lower_spec,
            reason=reason,
        )
    )
    draft.apply()
