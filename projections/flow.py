"""How a pool flows: what came, started and left in each ten seconds of log time, and its use.

Counted from the events' own times and added up in the tables, so that it is the same however the
log is cut into batches. Waits are estimated from it and utilisation is told from it.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from projections.folding import Db, put

SPAN_SECONDS: Final = 10
SILENCE_MAX: Final = timedelta(seconds=60)
"""A longer silence of a pool is an outage: nobody knows how its slots were used."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_SPAN: Final = timedelta(seconds=SPAN_SECONDS)
_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)

_Lane = tuple[datetime, str, str]
_Pool = tuple[datetime, str]


class Additions(NamedTuple):
    """The statements that add what a batch brought."""

    queues: str
    flow: str
    use: str
    accounts: str
    accounts_gone: str


class Flow:
    """What a batch adds."""

    def __init__(self) -> None:
        self._lanes: dict[_Lane, list[int]] = {}
        self._use: dict[_Pool, list[int]] = {}
        self._queues: dict[tuple[str, str], int] = {}
        self._accounts: dict[tuple[str, str, str], int] = {}
        self._since = self._until = _NEVER

    def passed(
        self, pool_id: str, since: datetime | None, at: datetime, *, used: int, slots: int
    ) -> None:
        """So many slots were taken, of so many, from one event of the pool to the next."""
        lasted = min(at - since, SILENCE_MAX) // _MILLISECOND if since is not None else 0
        found = self._use.setdefault((self._span(at), pool_id), [0, 0])
        found[0] += used * lasted
        found[1] += slots * lasted

    def waits(self, pool_id: str, lane: str, account_id: str, more: int) -> None:
        """So many of an account wait more (or less) in a lane."""
        self._queues[pool_id, lane] = self._queues.get((pool_id, lane), 0) + more
        account = (pool_id, lane, account_id)
        self._accounts[account] = self._accounts.get(account, 0) + more

    def arrived(self, pool_id: str, lane: str, at: datetime) -> None:
        self._lane(pool_id, lane, at)[0] += 1

    def started(self, pool_id: str, lane: str, at: datetime) -> None:
        self._lane(pool_id, lane, at)[1] += 1

    def freed(self, pool_id: str, lane: str, since: datetime, at: datetime) -> None:
        """A slot that was taken since then is free."""
        found = self._lane(pool_id, lane, at)
        found[2] += 1
        found[3] += (at - since) // _MILLISECOND

    def _lane(self, pool_id: str, lane: str, at: datetime) -> list[int]:
        return self._lanes.setdefault((self._span(at), pool_id, lane), [0, 0, 0, 0])

    def _span(self, at: datetime) -> datetime:
        """The beginning of the ten seconds in which it lies, mostly those of the event before."""
        if not self._since <= at < self._until:
            second = at.second - at.second % SPAN_SECONDS
            self._since = at.replace(second=second, microsecond=0)
            self._until = self._since + _SPAN
        return self._since

    async def write(self, db: Db, additions: Additions) -> None:
        """Add it to the tables. A lane that was ever used keeps its row, an account does not."""
        await put(db, additions.queues, [(*key, more) for key, more in self._queues.items()])
        await put(db, additions.flow, [(*key, *counts) for key, counts in self._lanes.items()])
        await put(db, additions.use, [(*key, *counts) for key, counts in self._use.items()])
        changed = [(*key, more) for key, more in self._accounts.items() if more]
        await put(db, additions.accounts, changed)
        await put(db, additions.accounts_gone, [row[:3] for row in changed if row[3] < 0])
