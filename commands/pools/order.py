"""Which task next, and on which slot: the only place that knows. Picks are O(log n).

Lanes are served p0, p1, p2, but one that waits is picked at least once in its floor of picks, so
that p2 moves a little even when p0 never ends. Inside a lane the account goes first that had the
least card time of late (`shares`), and of its tasks the one of the best place: priority = user
weight - wait / 10 s, as a key that does not change; ties by arrival. One pick in eight goes by
place alone, whatever the shares: nobody starves. A task whose latest start is near goes before
both. Of the runners the one with the most free slots is taken. Everything here is memory, a
function of the rows alone, so a rebuilt order picks the same.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from commands.pools.flows import Entry, Flow, Kind, Line, dated_key
from commands.pools.ranked import Ranked
from commands.pools.rows import LANE_NUMBER, LANES, PoolRow, QueuedRow, RunnerRow
from schema.ids import AccountId
from schema.words import Lane, Scene

AGE_EVERY: Final = 8
"""One pick in so many goes to whoever has the best place in the lane, whatever the shares."""


class Terms(NamedTuple):
    """What the policy and the cards say at the time of a pick."""

    is_open: Callable[[Scene, str], bool]
    """Whether a task of this scene and model may start."""
    any_over: bool
    """Whether any account has all the slots that it may have while others wait."""
    floors: tuple[int, int, int]
    """For each lane, one pick in so many while it waits; 0: none."""
    served_ms: int
    near_ms: int
    """So long before its latest start a task goes first."""


def next_lane(lanes: Sequence[int], passed: Sequence[int], floors: Sequence[int]) -> int:
    """The lane that is picked, of those (in order) that have something to start.

    Each is to be picked once in its floor. If `k` of them can wait no more than `k` picks, the most
    pressing is picked now; otherwise the best.
    """
    slack = sorted((floors[lane] - 1 - passed[lane], lane) for lane in lanes if floors[lane])
    if any(left <= place for place, (left, _) in enumerate(slack)):
        return slack[0][1]
    return lanes[0]


def _first_of(lines: Sequence[Line], terms: Terms, *, by_age: bool, fair: bool) -> str | None:
    """The task that is next in these lines of one lane.

    `fair`: somebody in the lane has not all the slots that he may have, and he is to get one.
    """
    if by_age:
        oldest = [one for line in lines if (one := line.ages.first()) is not None]
        return _key(min(oldest)[-1].head) if oldest else None
    due = [one for line in lines if (one := line.due(terms.served_ms, terms.near_ms))]
    if due:
        over, _, _, flow = min(due)
        if not (over and fair):
            return dated_key(flow)
    least = [first for line in lines if (first := line.shares.first()) is not None]
    return _key(min(least)[-1].head) if least else None


def _key(entry: Entry | None) -> str | None:
    return None if entry is None else entry[2]


class Waiting:
    """The waiting tasks of a pool, in the order in which they are served."""

    __slots__ = (
        "_arrivals",
        "_capped",
        "_floor_of",
        "_is_over",
        "_movers",
        "_queued",
        "_share_of",
        "counts",
        "lines",
    )

    def __init__(
        self,
        queued: Callable[[str], QueuedRow | None],
        share_of: Callable[[Lane, AccountId], tuple[int, int]],
        is_over: Callable[[AccountId], bool],
        floor_of: Callable[[int], tuple[int, int]],
    ) -> None:
        """What is asked of an account and of a place.

        `share_of` says what an account has had of a lane, `is_over` if it has all its slots, and
        `floor_of` what share counts as little for a task of this place.
        """

        def arrival(key: str) -> int | None:
            row = queued(key)
            return None if row is None else row.arrival

        self._queued = queued
        self._share_of = share_of
        self._is_over = is_over
        self._floor_of = floor_of
        self._arrivals: dict[Lane, Ranked[int, str]] = {lane: Ranked(arrival) for lane in LANES}
        self._movers: dict[Lane, Ranked[int, str]] = {}
        """Of a lane, those that were never asked to move; made when first wanted, then kept up."""
        self._capped: frozenset[str] | None = None
        """Models that have a cap; None: not known yet, each stands by itself meanwhile."""
        self.lines: tuple[dict[Kind, Line], ...] = ({}, {}, {})
        self.counts = [0, 0, 0]

    def add(self, key: str, row: QueuedRow) -> None:
        number = LANE_NUMBER[row.lane]
        self.counts[number] += 1
        self._arrivals[row.lane].push(row.arrival, key, self.counts[number])
        if row.lane in self._movers:
            self._movers[row.lane].push(row.arrival, key, self.counts[number])
        self._line_up(key, row)

    def _line_up(self, key: str, row: QueuedRow) -> None:
        number, kind = LANE_NUMBER[row.lane], self.kind_of(row)
        line = self.lines[number].get(kind)
        if line is None:
            line = self.lines[number][kind] = Line(self._held_in(kind), self._floor_of)
        flow = line.flows.get(row.account_id)
        if flow is None:
            share = self._share_of(row.lane, row.account_id)
            flow = Flow(row.account_id, share, over=self._is_over(row.account_id))
        line.add(key, row, flow)

    def remove(self, row: QueuedRow) -> None:
        """Its row is gone already."""
        self.counts[LANE_NUMBER[row.lane]] -= 1
        self._leave(row, self.kind_of(row))

    def _leave(self, row: QueuedRow, kind: Kind) -> None:
        lines = self.lines[LANE_NUMBER[row.lane]]
        lines[kind].remove(row)
        if not lines[kind].count:
            del lines[kind]

    def marked(self, key: str, row: QueuedRow) -> None:
        """It was asked to move, or (an undone step) it was not."""
        line = self.lines[LANE_NUMBER[row.lane]][self.kind_of(row)]
        if row.asked:
            return
        if line.movers is not None:
            line.movers.push(row.arrival, key, line.count)
        if row.lane in self._movers:
            self._movers[row.lane].push(row.arrival, key, self.counts[LANE_NUMBER[row.lane]])

    def changed(self, account_id: AccountId, lanes: Sequence[Lane] = LANES) -> None:
        """The account has had more (or less) of these lanes, or its slots came to the limit."""
        over = self._is_over(account_id)
        for lane in lanes:
            for line in self.lines[LANE_NUMBER[lane]].values():
                flow = line.flows.get(account_id)
                if flow is not None:
                    line.rank(flow, self._share_of(lane, account_id), over=over)

    def kind_of(self, row: QueuedRow) -> Kind:
        """The line of a task. Callers name models as they like: only a capped one has its own."""
        capped = self._capped
        return row.scene, row.model if capped is None or row.model in capped else ""

    def cap(self, models: Iterable[str]) -> bool:
        """Another policy caps these models; whether that puts any tasks into other lines."""
        capped = frozenset(models) - {""}
        added = frozenset[str]() if self._capped is None else capped - self._capped
        leaving: list[Entry] = []
        for lines in self.lines:
            for kind, line in list(lines.items()):
                if kind[1] and kind[1] not in capped:
                    leaving += line.entries()
                    del lines[kind]
                elif added and not kind[1]:
                    leaving += [one for one in line.entries() if self._model_of(one) in added]
        self._capped = capped
        # In the order of their places: then hardly anything is sorted twice.
        for _, _, key in sorted(leaving):
            row = self._queued(key)
            if row is not None:
                if row.model in added:
                    self._leave(row, (row.scene, ""))
                self._line_up(key, row)
        return bool(leaving)

    def _model_of(self, entry: Entry) -> str:
        row = self._queued(entry[2])
        return "" if row is None else row.model

    def _held_in(self, kind: Kind) -> Callable[[str], QueuedRow | None]:
        """Reads the rows of the tasks that stand in the line of this kind, and no others."""

        def queued(key: str) -> QueuedRow | None:
            row = self._queued(key)
            return row if row is not None and self.kind_of(row) == kind else None

        return queued

    def keys(self, lane: Lane) -> list[str]:
        """The tasks that wait in a lane, in no order."""
        lines = self.lines[LANE_NUMBER[lane]].values()
        return [key for line in lines for _, _, key in line.entries()]

    def rank_all_again(self) -> None:
        """Another policy: something else counts as little."""
        for lines in self.lines:
            for line in lines.values():
                for flow in line.flows.values():
                    line.rank_again(flow, aged=False)

    def oldest(self, lane: Lane) -> str | None:
        """The task of this lane that came first."""
        first = self._arrivals[lane].first()
        return None if first is None else first[1]

    def mover(self, lane: Lane, looks: int) -> tuple[str | None, int]:
        """The task of this lane that came first of those never moved nor asked to.

        It takes so many looks at most, and hands back how many are left.
        """
        movers = self._movers.get(lane)
        if movers is None:
            movers = self._movers[lane] = self._arrivals[lane].copy(self._arrival_of_mover)
        first, looks = movers.first_soon(looks)
        return (None if first is None else first[1]), looks

    def _arrival_of_mover(self, key: str) -> int | None:
        row = self._queued(key)
        return None if row is None or row.moved or row.asked else row.arrival

    def forget_movers(self) -> None:
        """Nobody is to move for now: nothing is kept up for it."""
        self._movers.clear()

    def first(self, pool: PoolRow, terms: Terms) -> str | None:
        """The task to be served next, or None: nobody waits that may start."""
        lines = self._open_lines(pool, terms.is_open)
        lanes = fair = list(lines)
        if terms.any_over:
            fair = [number for number in lanes if any(line.fair for line in lines[number])]
            lanes = fair or lanes
        if not lanes:
            return None
        number = next_lane(lanes, pool.passed, terms.floors)
        by_age = pool.picks[number] >= AGE_EVERY - 1
        return _first_of(lines[number], terms, by_age=by_age, fair=bool(fair))

    def _open_lines(
        self, pool: PoolRow, is_open: Callable[[Scene, str], bool]
    ) -> dict[int, list[Line]]:
        """By number of the lane, the lines whose tasks may start; a lane without one is absent."""
        asked: dict[Kind, bool] = {}
        found: dict[int, list[Line]] = {}
        for number, lines in enumerate(self.lines):
            if not self.counts[number] or pool.since_ms[number] is not None:
                continue
            here: list[Line] = []
            for kind, line in lines.items():
                open_now = asked.get(kind)
                if open_now is None:
                    open_now = asked[kind] = is_open(*kind)
                if open_now:
                    here.append(line)
            if here:
                found[number] = here
        return found

    def after(
        self, pool: PoolRow, picked: Lane
    ) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """`passed` and `picks` of the pool's row once a task of lane `picked` has been taken."""
        chosen = LANE_NUMBER[picked]
        passed = [
            before + 1 if self.counts[number] and pool.since_ms[number] is None else before
            for number, before in enumerate(pool.passed)
        ]
        passed[chosen] = 0
        picks = list(pool.picks)
        picks[chosen] = (picks[chosen] + 1) % AGE_EVERY
        return (passed[0], passed[1], passed[2]), (picks[0], picks[1], picks[2])


class FreeSlots:
    """The runners of a pool that have room."""

    __slots__ = ("_free_of", "_ranked", "_runner")

    def __init__(
        self, runner: Callable[[str], RunnerRow | None], used: Callable[[str], int]
    ) -> None:
        """`used` says how many slots of a runner (by its row's key) are taken."""

        def rank(key: str) -> int | None:
            row = runner(key)
            if row is None or row.draining:
                return None
            free = row.slots - used(key)
            return -free if free > 0 else None

        self._free_of = rank
        self._runner = runner
        self._ranked = Ranked(rank)

    def changed(self, key: str, runners: int) -> None:
        """A runner, its slots or their use changed; `runners` is how many the pool has."""
        rank = self._free_of(key)
        if rank is not None:
            self._ranked.push(rank, key, runners)

    def first(self, served_ms: int) -> str | None:
        """The key of the runner whose slot is taken next, or None: no room.

        A runner that has gone quiet is passed over until it beats again.
        """
        while (first := self._ranked.first()) is not None:
            row = self._runner(first[1])
            if row is not None and served_ms < row.fresh_until_ms:
                return first[1]
            self._ranked.skip()
        return None

    def __len__(self) -> int:
        """Entries kept, stale ones included."""
        return len(self._ranked)
