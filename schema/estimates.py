"""How long a task that comes now would wait: one reckoning for the door, the pools, simulations.

A fluid picture of a pool: picks come at a rate; each lane that waits gets its floor, the rest goes
to the better lanes first. Better lanes are not only what waits in them now but also what keeps
arriving: a task of p1 waits for every task of p0 that comes before its turn. What comes behind it
in its own lane does not matter to it. Pure: numbers in, seconds out; `math.inf` is "never, as
things stand" (nobody serves, the lane is paused, better lanes take everything).
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from schema.words import Lane

_LANES: Final = tuple(Lane)
SMALL_MAX: Final = 10
"""Accounts of which no more wait are served as they come; larger ones are counted by name."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool carries, as far as waiting depends on it."""

    slots: int
    used: int
    held_seconds: float
    """Mean time that a task holds its slot: measured if possible, else what the policy expects."""
    waiting: Mapping[Lane, int]
    paused: frozenset[Lane] = frozenset()
    floors: Mapping[Lane, int] = {}
    """`LanePolicy.floor_picks`; 0 or absent: no floor."""
    arrivals_per_second: Mapping[Lane, float] = {}
    """Of late, by lane; absent: nothing comes."""
    freed_per_second: float | None = None
    """Slots freed of late, measured while all were taken; None: `slots / held_seconds`."""

    @property
    def picks_per_second(self) -> float:
        """How fast tasks start while some wait."""
        if self.slots <= 0:
            return 0.0
        if self.freed_per_second is not None and self.freed_per_second > 0:
            return self.freed_per_second
        return self.slots / max(self.held_seconds, 0.001)


def wait_seconds(load: Load, lane: Lane, ahead: int | None = None) -> float:
    """Until a task that joins the lane now is picked. `ahead`: tasks of its lane that go first.

    Without `ahead` all that wait in the lane do; who knows better (a fair share, a weight) says so.
    """
    before = load.waiting.get(lane, 0) if ahead is None else ahead
    return _until_picked(load, lane, before + 1)


def ahead_of(
    waiting: int, large: Mapping[str, int], account_id: str, weights: Mapping[str, int]
) -> int:
    """Tasks of its lane that go before one of this account: the `ahead` of `wait_seconds`.

    A fair share lets who has few waiting pass who has many (`large`, of the `waiting`): of each of
    those about as many go first as it has itself, by their weights. Who has few comes in turn.
    """
    own = large.get(account_id, 0)
    rank = (own + 1 if own else SMALL_MAX) / weights.get(account_id, 1)
    ahead = float(waiting - sum(large.values()) + own)
    for other, count in large.items():
        if other != account_id:
            ahead += min(count, rank * weights.get(other, 1))
    return max(0, round(ahead))


def seconds_until_room(load: Load, lane: Lane, queue_limit: int) -> float:
    """Until fewer than `queue_limit` wait in the lane, if it takes nothing new meanwhile."""
    surplus = load.waiting.get(lane, 0) - queue_limit + 1
    return _until_picked(load, lane, surplus) if surplus > 0 else 0.0


def seconds_until_wait(load: Load, lane: Lane, wait_max_seconds: float) -> float:
    """Until a newcomer would wait no longer than that, if the lane takes nothing new meanwhile.

    Whoever joins later joins behind the same last task: he starts when one that joined now would.
    """
    return max(0.0, wait_seconds(load, lane) - wait_max_seconds)


class _Line:
    """A lane while it is reckoned with."""

    __slots__ = ("arriving", "floor", "queue", "share")

    def __init__(self, queue: float, arriving: float, floor: float) -> None:
        self.queue = queue
        self.arriving = arriving
        self.floor = floor
        self.share = 0.0


def _until_picked(load: Load, lane: Lane, picks: float) -> float:
    """Until the lane has had so many picks."""
    rate = load.picks_per_second
    if rate <= 0 or lane in load.paused:
        return math.inf
    lines: list[_Line] = []
    own = _Line(0.0, 0.0, 0.0)
    free = float(load.slots - load.used)
    for each in _LANES:
        if each in load.paused:
            continue
        picked = load.floors.get(each, 0)
        floor = rate / picked if picked > 0 else 0.0
        queue = picks if each is lane else float(load.waiting.get(each, 0))
        if free > 0:
            taken = min(free, queue)
            free -= taken
            queue -= taken
        line = _Line(queue, load.arrivals_per_second.get(each, 0.0), floor)
        if each is lane:
            line.arriving = 0.0  # what comes behind it does not matter to it
            own = line
        lines.append(line)
    elapsed = 0.0
    # Each round ends with a queue that is empty from then on, or with the last pick.
    for _ in range(len(lines) + 1):
        if own.queue <= 0:
            break
        _share(rate, lines)
        until = own.queue / own.share if own.share > 0 else math.inf
        emptied = None
        for line in lines:
            fall = line.share - line.arriving
            if line is not own and fall > 0 and 0 < line.queue < fall * until:
                until, emptied = line.queue / fall, line
        elapsed += until
        if emptied is None:
            break
        for line in lines:
            line.queue = max(0.0, line.queue + (line.arriving - line.share) * until)
        emptied.queue = 0.0
    return elapsed


def _share(rate: float, lines: list[_Line]) -> None:
    """Picks a second by lane: floors first, then the better lanes take what they can use."""
    left = rate
    for line in lines:
        line.share = line.floor if line.queue > 0 else min(line.arriving, line.floor)
        left -= line.share
    if left < 0:
        for line in lines:
            line.share *= rate / (rate - left)
        return
    for line in lines:
        more = left if line.queue > 0 else min(left, line.arriving - line.share)
        line.share += more
        left -= more
