"""The waiting tasks of one lane, sorted so that whole kinds and whole accounts can be left out.

A *line* is the tasks of one kind, (scene, model), in one lane: a model at its cap or a scene that
is kept off the cards closes its line as a whole. A *flow* is what one account has in a line; an
account that has all the slots that it may have goes behind all that have not. Heaps of tasks stand
in the flows, heaps of flows in the lines. Everything is memory, a function of the rows alone, and
small: a million accounts may wait with one task each.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

from commands.pools.ranked import STALE_ALLOWED, Ranked
from commands.pools.rows import QueuedRow
from schema.ids import AccountId
from schema.words import Scene

Kind = tuple[Scene, str]
"""Scene of a task and its model, if that has a cap; else an empty one."""
Entry = tuple[int, int, str]
"""Place of a task, its arrival and the key of its row."""
ByShare = tuple[bool, int, int, int, int, "Flow"]
"""Over its slots, card time that the account has had (two places), then the place of its head."""
ByTime = tuple[bool, int, int, "Flow"]
"""Over its slots, then the place (or the latest start) of one of its tasks."""


class Flow:
    """The waiting tasks of one account in a line."""

    __slots__ = (
        "account_id",
        "by_age",
        "by_date",
        "by_share",
        "count",
        "dated",
        "had",
        "head",
        "over",
        "tasks",
    )

    def __init__(self, account_id: AccountId, share: tuple[int, int], *, over: bool) -> None:
        self.account_id = account_id
        self.count = 0
        self.head: Entry | None = None
        self.tasks: list[Entry] | None = None
        """A heap of all of them, once there were two."""
        self.dated: list[Entry] | None = None
        """A heap of those with a deadline, by their latest start."""
        self.had = share
        self.over = over
        self.by_share: ByShare | None = None
        self.by_age: ByTime | None = None
        self.by_date: ByTime | None = None

    def __lt__(self, other: "Flow") -> bool:
        """Ranks tell flows apart; only one that is empty for good may tie with its successor."""
        return False


_Head = TypeVar("_Head", bound=tuple[Any, ...])


class Heads(Generic[_Head]):
    """Flows by one of their ranks, which end with the flow; what is no rank any more is shed."""

    __slots__ = ("_entries", "_rank_of")

    def __init__(self, rank_of: Callable[[Flow], _Head | None]) -> None:
        self._rank_of = rank_of
        self._entries: list[_Head] = []

    def push(self, rank: _Head, live: int) -> None:
        """Its flow has this rank now; `live` is how many flows there are."""
        entries = self._entries
        if entries and entries[0][-1] is rank[-1]:  # who is first is who changes most
            heapreplace(entries, rank)
            return
        heappush(entries, rank)
        if len(entries) > 2 * live + STALE_ALLOWED:
            rank_of = self._rank_of
            self._entries = [one for one in entries if rank_of(one[-1]) is one]
            heapify(self._entries)

    def first(self) -> _Head | None:
        """The lowest rank; its flow is its last part."""
        entries, rank_of = self._entries, self._rank_of
        while entries:
            first = entries[0]
            if rank_of(first[-1]) is first:
                return first
            heappop(entries)
        return None


def _by_share(flow: Flow) -> ByShare | None:
    return flow.by_share


def _by_age(flow: Flow) -> ByTime | None:
    return flow.by_age


def _by_date(flow: Flow) -> ByTime | None:
    return flow.by_date


class Line:
    """The waiting tasks of one kind in one lane."""

    __slots__ = ("_floor_of", "_queued", "ages", "count", "dates", "flows", "movers", "shares")

    def __init__(
        self,
        queued: Callable[[str], QueuedRow | None],
        floor_of: Callable[[int], tuple[int, int]],
    ) -> None:
        """What is asked of a task and of a place.

        `queued` reads the row of a task as long as it stands in this line, and `floor_of` says what
        share counts as little for a task of this place.
        """
        self._queued = queued
        self._floor_of = floor_of
        self.count = 0
        self.flows: dict[AccountId, Flow] = {}
        self.shares: Heads[ByShare] = Heads(_by_share)
        self.ages: Heads[ByTime] = Heads(_by_age)
        self.dates: Heads[ByTime] = Heads(_by_date)
        self.movers: Ranked[int, str] | None = None
        """Those that were never asked to move, by arrival; made when it is first wanted."""

    # --- tasks -----------------------------------------------------------------------------------

    def add(self, key: str, row: QueuedRow, flow: Flow) -> None:
        """A task waits; `flow` is its account's."""
        self.flows[flow.account_id] = flow
        flow.count += 1
        self.count += 1
        entry = (row.rank_ms, row.arrival, key)
        if flow.tasks is not None:
            self._push(flow.tasks, entry, flow.count)
        elif flow.head is not None:
            flow.tasks = [min(flow.head, entry), max(flow.head, entry)]
        if flow.head is None or entry < flow.head:
            flow.head = entry
            self.rank_again(flow)
        if row.start_by_ms is not None:
            entry = (row.start_by_ms, row.arrival, key)
            if flow.dated is None:
                flow.dated = []
            self._push(flow.dated, entry, flow.count)
            if flow.by_date is None or entry[:2] < flow.by_date[1:3]:
                self._date(flow)
        if self.movers is not None:
            self.movers.push(row.arrival, key, self.count)

    def remove(self, row: QueuedRow) -> None:
        """It waits here no longer: its row is gone already, or stands in another line."""
        flow = self.flows[row.account_id]
        flow.count -= 1
        self.count -= 1
        if not flow.count:
            del self.flows[row.account_id]
            flow.by_share = flow.by_age = flow.by_date = None
            return
        if flow.head is not None and flow.head[1] == row.arrival:
            flow.head = self._first(flow.tasks)
            self.rank_again(flow)
        if flow.by_date is not None and flow.by_date[2] == row.arrival:
            self._date(flow)

    def entries(self) -> list[Entry]:
        """Its tasks, in no order."""
        found: list[Entry] = []
        for flow in self.flows.values():
            if flow.tasks is not None:
                found += [one for one in set(flow.tasks) if self._holds(one)]
            elif flow.head is not None:
                found.append(flow.head)
        return found

    def _push(self, tasks: list[Entry], entry: Entry, live: int) -> None:
        heappush(tasks, entry)
        if len(tasks) > 2 * live + STALE_ALLOWED:
            tasks[:] = [one for one in set(tasks) if self._holds(one)]
            heapify(tasks)

    def _holds(self, entry: Entry) -> bool:
        row = self._queued(entry[2])
        return row is not None and row.arrival == entry[1]

    def _first(self, tasks: list[Entry] | None) -> Entry | None:
        while tasks:
            if self._holds(tasks[0]):
                return tasks[0]
            heappop(tasks)
        return None

    # --- flows -----------------------------------------------------------------------------------

    def rank(self, flow: Flow, share: tuple[int, int], *, over: bool) -> None:
        """Its account has had more, or has got or given back a slot."""
        if share == flow.had and over == flow.over:
            return
        aged = over != flow.over
        flow.had, flow.over = share, over
        self.rank_again(flow, aged=aged)
        if aged and flow.by_date is not None:
            self._date(flow)

    def rank_again(self, flow: Flow, *, aged: bool = True) -> None:
        """Its head or its share is another one, or what counts as little is."""
        if flow.head is None:
            return
        place, arrival, _ = flow.head
        live = len(self.flows)
        flow.by_share = (flow.over, *max(flow.had, self._floor_of(place)), place, arrival, flow)
        self.shares.push(flow.by_share, live)
        if aged:
            flow.by_age = (flow.over, place, arrival, flow)
            self.ages.push(flow.by_age, live)

    def _date(self, flow: Flow) -> None:
        soonest = self._first(flow.dated)
        if soonest is None:
            flow.by_date = None
            return
        flow.by_date = (flow.over, soonest[0], soonest[1], flow)
        self.dates.push(flow.by_date, len(self.flows))

    # --- who is first ----------------------------------------------------------------------------

    @property
    def fair(self) -> bool:
        """Whether anybody waits here who has not all the slots that he may have."""
        first = self.ages.first()
        return first is not None and not first[0]

    def due(self, served_ms: int, near_ms: int) -> ByTime | None:
        """The flow with the task whose latest start is next, if that is near.

        One whose latest start has passed cannot make it: it waits in the usual order from then on.
        """
        while (first := self.dates.first()) is not None:
            _, start_by_ms, _, flow = first
            if start_by_ms >= served_ms:
                return first if start_by_ms - near_ms <= served_ms else None
            if flow.dated is not None:
                heappop(flow.dated)
            self._date(flow)
        return None

    # --- who may move ----------------------------------------------------------------------------

    def mover(self) -> str | None:
        """The key of the task that came first of those that were never moved nor asked to."""
        if self.movers is None:
            self.movers = Ranked(self._arrival_of_mover)
            for _, _, key in self.entries():
                arrival = self._arrival_of_mover(key)
                if arrival is not None:
                    self.movers.push(arrival, key, self.count)
        first = self.movers.first()
        return None if first is None else first[1]

    def _arrival_of_mover(self, key: str) -> int | None:
        row = self._queued(key)
        return None if row is None or row.moved or row.asked else row.arrival


def dated_key(flow: Flow) -> str | None:
    """The key of its task whose latest start is next."""
    return flow.dated[0][2] if flow.dated else None
