"""The breaker of a pool and a scene: work that this pool's cards keep failing is kept off them.

Closed, it counts how attempts end. Too large a share of failures in the window opens it: nothing of
the scene starts here. After a while it is half open: a few probes are let through. So many of them
ended well in a row close it, one that failed opens it again. An attempt that ended otherwise (its
input was bad, it was canceled, preempted or lost with its runner) says nothing of the card.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from commands.decider import ImpossibleEventError, Now
from commands.pools.rows import BreakerRow, BreakerState, LeaseRow, PoolRow, breaker_key
from schema import events as e
from schema.commands import EndAttempt
from schema.failures import CARD_FAILURES, FailureClass
from schema.ids import PoolId
from schema.policy import BreakerPolicy
from schema.words import Scene

if TYPE_CHECKING:
    from commands.pools.draft import Draft
    from commands.pools.state import PoolState

PARTS: Final = 10
"""The window moves on by a part of itself."""

_CLOSED: Final = BreakerRow()


class Counted(NamedTuple):
    """How the attempts of the window ended."""

    counted: int
    failed: int


def may_start(state: "PoolState", pool_id: PoolId, scene: Scene) -> bool:
    """Whether an attempt of this scene may be proposed here now."""
    row = state.breaker(pool_id, scene)
    if row is None or row.state is BreakerState.CLOSED:
        return True
    policy = state.pool_policy(pool_id).breaker
    if policy is None:
        return True
    if row.state is BreakerState.OPEN:
        return False
    return state.yard(pool_id).probes.get((scene, row.openings), 0) < policy.probes


def probe_of(state: "PoolState", pool_id: PoolId, scene: Scene) -> int:
    """The opening whose probe an attempt of this scene is that starts now; 0: it is none."""
    row = state.breaker(pool_id, scene)
    if row is None or row.state is not BreakerState.HALF_OPEN:
        return 0
    return 0 if state.pool_policy(pool_id).breaker is None else row.openings


def verdict_on(ended_well: bool, failure: FailureClass | None) -> bool | None:  # noqa: FBT001
    """Whether the card failed; None: that end says nothing of it."""
    if ended_well:
        return False
    return True if failure in CARD_FAILURES else None


def follow(draft: "Draft", end: EndAttempt, lease: LeaseRow) -> None:
    """Say what the end of an attempt, just said, does to the breaker of its scene."""
    pool_id = end.pool_id
    policy, scene = draft.state.pool_policy(pool_id).breaker, lease.scene
    failed = verdict_on(end.ended_well, end.failure)
    if policy is None or scene is None or failed is None:
        return
    row = draft.state.breaker(pool_id, scene) or _CLOSED
    match row.state:
        case BreakerState.CLOSED:
            after = counts_of(_with(row, policy, draft.now.served_ms, failed).counts)
            if (
                after.counted >= policy.attempts_min
                and after.failed > policy.failure_share_max * after.counted
            ):
                draft.say(
                    e.BreakerOpened,
                    pool_id,
                    scene=scene,
                    failed=after.failed,
                    counted=after.counted,
                )
        case BreakerState.HALF_OPEN if lease.probe == row.openings:
            if failed:
                draft.say(e.BreakerOpened, pool_id, scene=scene, failed=1, counted=0)
            elif row.good + 1 >= policy.probes:
                draft.say(e.BreakerClosed, pool_id, scene=scene)
        case _:  # it ran before the breaker opened, or was a probe of an earlier opening
            pass


def half_open(draft: "Draft", pool_id: PoolId, scene: Scene) -> None:
    """It was open long enough. A policy without a breaker has none that could be half open."""
    if draft.state.pool_policy(pool_id).breaker is None:
        draft.say(e.BreakerClosed, pool_id, scene=scene)
    else:
        draft.say(e.BreakerHalfOpened, pool_id, scene=scene)


# --- rows -----------------------------------------------------------------------------------------


def counts_of(parts: tuple[tuple[int, int, int], ...]) -> Counted:
    """The sums of a window."""
    return Counted(sum(part[1] for part in parts), sum(part[2] for part in parts))


def count(state: "PoolState", lease: LeaseRow, event: e.AttemptOver, now: Now) -> None:
    """Note in the breaker's row how an attempt ended, while that counts."""
    policy, scene = state.pool_policy(event.pool_id).breaker, lease.scene
    failed = verdict_on(event.ended_well, event.failure)
    if policy is None or scene is None or failed is None:
        return
    row = state.breaker(event.pool_id, scene) or _CLOSED
    key = breaker_key(event.pool_id, scene)
    if row.state is BreakerState.CLOSED:
        state.put(key, _with(row, policy, now.served_ms, failed))
    elif row.state is BreakerState.HALF_OPEN and lease.probe == row.openings and not failed:
        state.put(key, BreakerRow(state=row.state, openings=row.openings, good=row.good + 1))


def _with(row: BreakerRow, policy: BreakerPolicy, served_ms: int, failed: bool) -> BreakerRow:  # noqa: FBT001
    """A closed breaker's row with one more attempt, and without what has left the window."""
    number = served_ms // max(policy.window_seconds * 1000 // PARTS, 1)
    counts = {part[0]: part for part in row.counts if number - PARTS < part[0] <= number}
    _, counted, before = counts.get(number, (number, 0, 0))
    counts[number] = (number, counted + 1, before + failed)
    return BreakerRow(openings=row.openings, counts=tuple(counts[one] for one in sorted(counts)))


def opened(state: "PoolState", pool: PoolRow, event: e.BreakerOpened, now: Now) -> PoolRow:
    row = state.breaker(event.pool_id, event.scene) or _CLOSED
    policy = state.pool_policy(event.pool_id).breaker
    if row.state is BreakerState.OPEN or policy is None:
        raise ImpossibleEventError(row, event)
    state.put(
        breaker_key(event.pool_id, event.scene),
        BreakerRow(
            state=BreakerState.OPEN,
            until_ms=now.served_ms + policy.open_seconds * 1000,
            openings=row.openings + 1,
        ),
    )
    return pool


def half_opened(state: "PoolState", pool: PoolRow, event: e.BreakerHalfOpened, _: Now) -> PoolRow:
    row = state.breaker(event.pool_id, event.scene) or _CLOSED
    if row.state is not BreakerState.OPEN:
        raise ImpossibleEventError(row, event)
    state.put(
        breaker_key(event.pool_id, event.scene),
        BreakerRow(state=BreakerState.HALF_OPEN, openings=row.openings),
    )
    return pool


def closed(state: "PoolState", pool: PoolRow, event: e.BreakerClosed, _: Now) -> PoolRow:
    row = state.breaker(event.pool_id, event.scene) or _CLOSED
    if row.state is BreakerState.CLOSED:
        raise ImpossibleEventError(row, event)
    state.put(breaker_key(event.pool_id, event.scene), BreakerRow(openings=row.openings))
    return pool


BREAKER_TRANSITIONS: Final[dict[tuple[BreakerState, type[e.OfPool]], BreakerState]] = {
    (BreakerState.CLOSED, e.BreakerOpened): BreakerState.OPEN,
    (BreakerState.OPEN, e.BreakerHalfOpened): BreakerState.HALF_OPEN,
    (BreakerState.OPEN, e.BreakerClosed): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, e.BreakerOpened): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, e.BreakerClosed): BreakerState.CLOSED,
}
"""State before and event to state after; a row that is not there is a closed one."""
