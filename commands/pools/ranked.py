"""A heap whose entries may grow stale: what no longer holds is passed over, then shed."""

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, Generic, Protocol, TypeVar

STALE_ALLOWED: Final = 64


class _Ordered(Hashable, Protocol):
    def __lt__(self, other: Any, /) -> bool: ...  # noqa: ANN401 - of its own kind


Rank = TypeVar("Rank", bound=_Ordered)
Ranker = TypeVar("Ranker", bound=Hashable)


class Ranked(Generic[Rank, Ranker]):
    """Things by a rank that they have; O(log n) a push, and a first that is looked at is free."""

    __slots__ = ("_entries", "_rank_of")

    def __init__(self, rank_of: Callable[[Ranker], Rank | None]) -> None:
        """`rank_of` says the present rank, None: it has none. Equal ranks go by the thing."""
        self._rank_of = rank_of
        self._entries: list[tuple[Rank, Ranker]] = []

    def push(self, rank: Rank, thing: Ranker, live: int) -> None:
        """It has this rank now; `live` is how many have one, this one included."""
        entries = self._entries
        if entries and entries[0][1] is thing:  # who is first is who changes most
            heapreplace(entries, (rank, thing))
            return
        heappush(entries, (rank, thing))
        if len(entries) > 2 * live + STALE_ALLOWED:
            rank_of = self._rank_of
            self._entries = [entry for entry in set(self._entries) if rank_of(entry[1]) == entry[0]]
            heapify(self._entries)

    def first(self) -> tuple[Rank, Ranker] | None:
        """The lowest rank and whose it is."""
        entries = self._entries
        while entries:
            rank, thing = entries[0]
            if self._rank_of(thing) == rank:
                return entries[0]
            heappop(entries)
        return None

    def first_soon(self, looks: int) -> tuple[tuple[Rank, Ranker] | None, int]:
        """`first`, but only so many looks; and how many of them are left: 0, go on another time."""
        entries = self._entries
        while entries and looks > 0:
            rank, thing = entries[0]
            looks -= 1
            if self._rank_of(thing) == rank:
                return entries[0], looks
            heappop(entries)
        return None, looks

    def copy(self, rank_of: Callable[[Ranker], Rank | None]) -> "Ranked[Rank, Ranker]":
        """The same order of things of which fewer have a rank."""
        made: Ranked[Rank, Ranker] = Ranked(rank_of)
        made._entries = self._entries.copy()
        return made

    def skip(self) -> None:
        """Forget the first entry until it is pushed again."""
        heappop(self._entries)

    def things(self) -> list[Ranker]:
        """All that have a rank, lowest first."""
        rank_of = self._rank_of
        return [thing for rank, thing in sorted(set(self._entries)) if rank_of(thing) == rank]

    def __len__(self) -> int:
        """Entries kept, stale ones included."""
        return len(self._entries)
