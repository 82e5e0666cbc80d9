"""How many cards a pool wants: judged once a tick, said only when the number changes.

Up when tasks wait too long *and* the slots are taken: the demand of what runs and waits then sets
the number, so that cards which are still on their way are not ordered twice. Down when either has
been low for a while, to what the highest demand of that while needs. Between two changes lies a
cool-down. Whoever starts and stops cards reads the events; nothing here waits for them.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from commands.decider import ImpossibleEventError, Now
from commands.pools.rows import (
    HOLDS_SLOT,
    LANES,
    PoolRow,
    ScaleRow,
    WaitsRow,
    scale_key,
    waits_key,
)
from schema import events as e
from schema.ids import PoolId
from schema.policy import PoolPolicy, ScalingPolicy
from schema.words import ScaleReason

if TYPE_CHECKING:
    from commands.pools.draft import Draft
    from commands.pools.state import PoolState

PARTS: Final = 10
"""The longest span of the policy moves on by a part of itself."""
_PERCENT: Final = 95
_FINE: Final = 4
"""Classes of waits for each doubling: a percentile is at most a quarter too high."""

_QUIET: Final = WaitsRow()

CHANGES_DEMAND: Final = frozenset(
    {
        e.TaskEnqueued,
        e.TaskDequeued,
        e.SlotProposed,
        e.SlotRefused,
        e.SlotFreed,
        e.RunnerGone,
        e.LanePaused,
        e.LaneResumed,
    }
)
"""Events around which the peak of the demand is noted."""


class Load(NamedTuple):
    """What is asked of a pool now."""

    used: int
    waiting: int
    """In lanes that are served."""
    task_ms: int
    """How long a task holds its slot."""

    @property
    def depth(self) -> int:
        return self.used + self.waiting

    def demand(self, scaling: ScalingPolicy) -> int:
        """Slots that work off what waits within the horizon, and those in use. Never two a task."""
        horizon_ms = scaling.horizon_seconds * 1000
        return self.used + min(self.waiting, -(-self.waiting * self.task_ms // horizon_ms))


def load_of(state: "PoolState", pool_id: PoolId, policy: PoolPolicy) -> Load:
    """O(1)."""
    yard, pool = state.yard(pool_id), state.pool(pool_id)
    return Load(
        used=sum(yard.stages[stage] for stage in HOLDS_SLOT),
        waiting=sum(
            count
            for count, since_ms in zip(yard.waiting.counts, pool.since_ms, strict=True)
            if since_ms is None
        ),
        task_ms=pool.mean_ms or policy.expected_seconds * 1000,
    )


# --- the rule -------------------------------------------------------------------------------------


def judge(draft: "Draft", pool_id: PoolId) -> None:
    """Say how many cards the pool wants, if that is another number than before."""
    state = draft.state
    policy = state.pool_policy(pool_id)
    scaling = policy.scaling
    if scaling is None:
        return
    row = state.scale(pool_id)
    cards = state.cards(pool_id, draft.now.served_ms) if row is None else row.cards
    wanted = min(max(cards, scaling.cards_min), _ceiling(scaling))
    before = 0 if row is None else row.cards
    load = load_of(state, pool_id, policy)
    if wanted != before:
        _say(draft, pool_id, (before, wanted), ScaleReason.BOUNDS, load)
        return
    still_ms = None if row is None else draft.now.served_ms - row.changed_ms
    if still_ms is not None and still_ms < scaling.cooldown_seconds * 1000:
        return
    up = _up(draft, pool_id, before, load)
    if up > before:
        _say(draft, pool_id, (before, up), ScaleReason.DEMAND, load)
    elif still_ms is not None and still_ms >= scaling.down_seconds * 1000:
        down = _down(draft, pool_id, before, load)
        if down < before:
            _say(draft, pool_id, (before, down), ScaleReason.SLACK, load)


def _up(draft: "Draft", pool_id: PoolId, cards: int, load: Load) -> int:
    """Where demand leads: no further than one step and the ceiling; `cards` if it need not be."""
    policy = draft.state.pool_policy(pool_id)
    scaling = policy.scaling
    if scaling is None or load.depth < scaling.up_share * cards * policy.slots_per_card:
        return cards
    target_ms = scaling.wait_target_seconds * 1000
    if (
        _wait_ms(draft, pool_id, scaling.look_back_seconds) <= target_ms
        and _oldest_ms(draft, pool_id) <= target_ms
    ):
        return cards
    step = max(int(cards * scaling.step_share_max), 1)
    needed = _cards_for(load.demand(scaling), policy.slots_per_card, scaling)
    return max(cards, min(needed, cards + step, _ceiling(scaling)))


def _down(draft: "Draft", pool_id: PoolId, cards: int, load: Load) -> int:
    """Where slack leads: to what the highest demand of the last while needs, one step at most."""
    policy, served_ms = draft.state.pool_policy(pool_id), draft.now.served_ms
    scaling = policy.scaling
    if scaling is None or not cards:
        return cards
    span = scaling.down_seconds
    peaks = (draft.state.waits(pool_id) or _QUIET).peaks
    since, now = _part(scaling, served_ms - span * 1000), _part(scaling, served_ms)
    # A part that lies ahead is one of another length, from before the policy changed.
    peak = max([load.demand(scaling), *(peak for number, peak in peaks if since <= number <= now)])
    low_ms = scaling.down_share * scaling.wait_target_seconds * 1000
    unused = peak < scaling.down_share * cards * policy.slots_per_card
    if not unused and (
        _wait_ms(draft, pool_id, span) >= low_ms or _oldest_ms(draft, pool_id) >= low_ms
    ):
        return cards
    step = max(int(cards * scaling.step_share_max), 1)
    needed = _cards_for(peak, policy.slots_per_card, scaling)
    return min(cards, max(needed, cards - step, scaling.cards_min))


def _cards_for(slots: int, slots_per_card: int, scaling: ScalingPolicy) -> int:
    """Cards on which so many slots in use are no more than `up_share` of all."""
    percent = max(round(scaling.up_share * 100), 1)
    return -(-slots * 100 // (percent * slots_per_card))


def _ceiling(scaling: ScalingPolicy) -> int:
    if scaling.budget_cards:
        return min(scaling.cards_max, max(scaling.budget_cards, scaling.cards_min))
    return scaling.cards_max


def _wait_ms(draft: "Draft", pool_id: PoolId, seconds: int) -> int:
    """P95 of the waits of the tasks that started in so long; 0: none did."""
    scaling = draft.state.pool_policy(pool_id).scaling
    row = draft.state.waits(pool_id)
    if scaling is None or row is None:
        return 0
    served_ms = draft.now.served_ms
    since, now = _part(scaling, served_ms - seconds * 1000), _part(scaling, served_ms)
    counts: dict[int, int] = {}
    for number, classes in row.waits:
        if since <= number <= now:
            for one, count in classes:
                counts[one] = counts.get(one, 0) + count
    left = -(-sum(counts.values()) * _PERCENT // 100)
    for one in sorted(counts):
        left -= counts[one]
        if left <= 0:
            return longest_of(one)
    return 0


def _oldest_ms(draft: "Draft", pool_id: PoolId) -> int:
    """How long the longest waiting task of a lane that is served has waited."""
    depths = draft.state.depths(pool_id)
    entered = [
        depths.oldest_ms[lane]
        for lane in LANES
        if lane in depths.oldest_ms and lane not in depths.paused
    ]
    return max(draft.now.served_ms - min(entered), 0) if entered else 0


def _say(
    draft: "Draft", pool_id: PoolId, cards: tuple[int, int], reason: ScaleReason, load: Load
) -> None:
    scaling = draft.state.pool_policy(pool_id).scaling
    draft.say(
        e.PoolScaled,
        pool_id,
        cards=cards[1],
        cards_before=cards[0],
        reason=reason,
        demand_card_seconds=load.depth * load.task_ms // 1000,
        wait_p95_ms=0 if scaling is None else _wait_ms(draft, pool_id, scaling.look_back_seconds),
        oldest_wait_ms=_oldest_ms(draft, pool_id),
    )


# --- rows -----------------------------------------------------------------------------------------


def class_of(wait_ms: int) -> int:
    """The class of a wait: exact below four milliseconds, then four for each doubling."""
    if wait_ms < _FINE:
        return max(wait_ms, 0)
    shift = wait_ms.bit_length() - 3
    return shift * _FINE + (wait_ms >> shift)


def longest_of(number: int) -> int:
    """The longest wait of a class, in milliseconds."""
    if number < _FINE:
        return number
    shift, top = divmod(number - _FINE, _FINE)
    return ((top + _FINE + 1) << shift) - 1


def _part(scaling: ScalingPolicy, served_ms: int) -> int:
    return served_ms // _part_ms(scaling)


def _part_ms(scaling: ScalingPolicy) -> int:
    return max(scaling.look_back_seconds, scaling.down_seconds) * 1000 // PARTS


def note_wait(state: "PoolState", pool_id: PoolId, wait_ms: int, now: Now) -> None:
    """A task that waited so long is given a slot."""
    scaling = state.pool_policy(pool_id).scaling
    if scaling is None:
        return
    row = state.waits(pool_id) or _QUIET
    number, one = _part(scaling, now.served_ms), class_of(wait_ms)
    kept = {part: classes for part, classes in row.waits if number - PARTS <= part <= number}
    classes = dict(kept.get(number, ()))
    classes[one] = classes.get(one, 0) + 1
    kept[number] = tuple(sorted(classes.items()))
    state.put(waits_key(pool_id), WaitsRow(waits=tuple(sorted(kept.items())), peaks=row.peaks))


def note_demand(state: "PoolState", pool_id: PoolId, now: Now) -> None:
    """Around every change of the demand: its peak in this part of the time."""
    policy = state.pool_policy(pool_id)
    scaling = policy.scaling
    if scaling is None:
        return
    row = state.waits(pool_id) or _QUIET
    number = _part(scaling, now.served_ms)
    demand = load_of(state, pool_id, policy).demand(scaling)
    if row.peaks and row.peaks[-1][0] == number and row.peaks[-1][1] >= demand:
        return
    kept = [one for one in row.peaks if number - PARTS <= one[0] < number]
    state.put(waits_key(pool_id), WaitsRow(waits=row.waits, peaks=(*kept, (number, demand))))


def scaled(state: "PoolState", pool: PoolRow, event: e.PoolScaled, now: Now) -> PoolRow:
    row = state.scale(event.pool_id)
    if event.cards_before != (0 if row is None else row.cards) or event.cards == event.cards_before:
        raise ImpossibleEventError(row, event)
    first_ms = now.served_ms if row is None or not row.cards else row.first_ms
    state.put(
        scale_key(event.pool_id),
        ScaleRow(cards=event.cards, changed_ms=now.served_ms, first_ms=first_ms),
    )
    return pool
