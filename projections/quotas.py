"""Quotas: the ledger, the sums of each day and month, the policies, from `quota-events`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, assert_never

from projections.folding import Db, Fact, Seqs, copy, put
from schema import events as e
from schema.codec import encode
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "quotas.sql").read_text().split("\n-- ;;\n")
_LAST_SEQS, _DAYS_OF, _MERGE_WINDOWS, _MERGE_ACCOUNTS, _MERGE_SEQS, _ADD_POLICY = _SQL
_ENTRY_COLUMNS: Final = (
    "event_id", "account_id", "seq", "kind", "user_id", "scene", "task_id", "reservation_id",
    "charge_id", "amount_micros", "released_micros", "month_start", "day_start", "minute_start",
    "who", "why", "at",
)  # fmt: skip
CONTRACT: Final = ""
"""In place of a user: the contract of the whole account."""

_AccountEvent = (
    e.QuotaReserved | e.QuotaCommitted | e.QuotaReleased | e.ChargeRefunded | e.QuotaToppedUp
)
_Place = tuple[str, str, str, str, datetime]


class _Sums:
    """What a batch adds to one window."""

    __slots__ = ("at", "end", "limit", "refunded", "reserved", "spent", "submitted", "topped_up")

    def __init__(self) -> None:
        self.submitted = self.reserved = self.spent = self.refunded = self.topped_up = 0
        self.end: datetime | None = None
        self.limit: int | None = None
        self.at: datetime | None = None


class _Windows:
    """The windows that a batch touches."""

    def __init__(self) -> None:
        self._sums: dict[_Place, _Sums] = {}

    def months(self, event: _AccountEvent, user_id: str, start: datetime) -> list[_Sums]:
        """The months of an event: the user's, and that of the tenant's contract."""
        users = (user_id, CONTRACT) if event.account_id.startswith("t-") else (user_id,)
        return [self.month(event, user, start) for user in users]

    def month(self, event: _AccountEvent, user: str, start: datetime) -> _Sums:
        return self._window(event, user, "month", start)

    def day(self, event: _AccountEvent, user_id: str, start: datetime) -> _Sums:
        return self._window(event, user_id, "day", start)

    def _window(self, event: _AccountEvent, user: str, kind: str, start: datetime) -> _Sums:
        place = (event.account_id, user, str(event.scene), kind, start)
        sums = self._sums.get(place)
        if sums is None:
            sums = self._sums[place] = _Sums()
        sums.at = event.at
        return sums

    def rows(self) -> list[tuple[Any, ...]]:
        return [
            (
                *place,
                s.end,
                s.submitted,
                s.reserved,
                s.spent,
                s.refunded,
                s.topped_up,
                s.limit,
                s.at,
            )
            for place, s in self._sums.items()
        ]


class Quotas:
    """The fold of `quota-events`."""

    name: ClassVar[str] = "quotas"
    topic: ClassVar[Topic] = Topic.QUOTA_EVENTS
    tables: ClassVar[tuple[str, ...]] = (
        "quota_accounts",
        "quota_windows",
        "quota_entries",
        "policy",
    )

    def __init__(self) -> None:
        self._seqs = Seqs()

    def forget(self) -> None:
        self._seqs.forget()

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Entries, sums, accounts and policies of these events."""
        unknown = self._seqs.unknown(_key(fact) for fact in facts)
        if unknown:
            found = await db.fetch(_LAST_SEQS, unknown, self.topic.value)
            self._seqs.learn(unknown, {row["key"]: row["seq"] for row in found})
        applied = [fact for fact in facts if self._seqs.is_next(fact, _key(fact), fact.message.seq)]
        adopted = [fact for fact in applied if isinstance(fact.message, e.PolicyAdopted)]
        moved: list[_AccountEvent] = [
            fact.message for fact in applied if not isinstance(fact.message, e.PolicyAdopted)
        ]
        if moved:
            await self._write(db, moved)
        for fact in adopted:
            await _adopt(db, fact)

    async def _write(self, db: Db, moved: Sequence[_AccountEvent]) -> None:
        entries = [_entry(event) for event in moved]
        await copy(db, "quota_entries", _ENTRY_COLUMNS, entries)
        days = await _returned_days(db, moved)
        windows, accounts = _Windows(), dict[str, tuple[Any, ...]]()
        for event in moved:
            _sum(windows, event, days)
            version = event.policy_version if isinstance(event, e.QuotaReserved) else None
            before = accounts.get(event.account_id)
            if version is None and before is not None:
                version = before[2]
            accounts[event.account_id] = (event.account_id, event.seq, version, event.at)
        await put(db, _MERGE_WINDOWS, windows.rows())
        await put(db, _MERGE_ACCOUNTS, list(accounts.values()))


def _key(fact: Fact) -> str:
    if isinstance(fact.message, e.PolicyAdopted):
        return f"policy/{fact.partition}"
    account_id: str = fact.message.account_id
    return account_id


async def _returned_days(db: Db, moved: Sequence[_AccountEvent]) -> dict[tuple[str, str], datetime]:
    """The day in which each released reservation was made that returns its count to that day."""
    wanted = [
        (event.account_id, event.reservation_id)
        for event in moved
        if isinstance(event, e.QuotaReleased) and event.day_returned
    ]
    if not wanted:
        return {}
    accounts, reservations = zip(*wanted, strict=True)
    found = await db.fetch(_DAYS_OF, list(accounts), list(reservations))
    return {(row["account_id"], row["reservation_id"]): row["day_start"] for row in found}


async def _adopt(db: Db, fact: Fact) -> None:
    event: e.PolicyAdopted = fact.message
    await db.execute(_MERGE_SEQS, fact.topic, _key(fact), event.seq)
    document = encode(event.policy).decode()
    await db.execute(_ADD_POLICY, event.policy.version, document, event.who, event.why, event.at)


def _sum(windows: _Windows, event: _AccountEvent, days: dict[tuple[str, str], datetime]) -> None:
    match event:
        case e.QuotaReserved():
            day = windows.day(event, event.user_id, event.day.start)
            day.end, day.submitted = event.day.end, day.submitted + 1
            limits = (event.limit_micros, event.contract_micros)
            months = windows.months(event, event.user_id, event.month.start)
            for month, limit in zip(months, limits, strict=False):
                month.end, month.limit = event.month.end, limit
                month.submitted += 1
                month.reserved += event.amount_micros
        case e.QuotaCommitted():
            for month in windows.months(event, event.user_id, event.month_start):
                month.reserved -= event.amount_micros + event.released_micros
                month.spent += event.amount_micros
        case e.QuotaReleased():
            for month in windows.months(event, event.user_id, event.month_start):
                month.reserved -= event.amount_micros
            if event.day_returned:
                start = days[event.account_id, event.reservation_id]
                windows.day(event, event.user_id, start).submitted -= 1
        case e.ChargeRefunded():
            for month in windows.months(event, event.user_id, event.month_start):
                month.spent -= event.amount_micros
                month.refunded += event.amount_micros
        case e.QuotaToppedUp():
            month = windows.month(event, event.user_id or CONTRACT, event.month.start)
            month.end, month.topped_up = event.month.end, month.topped_up + event.amount_micros
        case _:
            assert_never(event)


def _entry(event: _AccountEvent) -> tuple[Any, ...]:
    """The ledger's line of an event, in the order of the columns."""
    kind, amount, released = _KINDS[type(event)], event.amount_micros, 0
    month_start = event.month_start if not isinstance(event, _WITH_WINDOW) else event.month.start
    day_start = minute_start = None
    if isinstance(event, e.QuotaReserved):
        day_start, minute_start = event.day.start, event.minute.start
    if isinstance(event, e.QuotaCommitted):
        released = event.released_micros
    who: str | None = getattr(event, "who", None)
    why: str | None = getattr(event, "why", None) or getattr(event, "reason", None)
    return (
        event.event_id,
        event.account_id,
        event.seq,
        kind,
        event.user_id,
        event.scene,
        getattr(event, "task_id", None),
        getattr(event, "reservation_id", None),
        getattr(event, "charge_id", None),
        amount,
        released,
        month_start,
        day_start,
        minute_start,
        who,
        why,
        event.at,
    )


_WITH_WINDOW: Final = (e.QuotaReserved, e.QuotaToppedUp)
_KINDS: Final[dict[type, str]] = {
    e.QuotaReserved: "reserved",
    e.QuotaCommitted: "committed",
    e.QuotaReleased: "released",
    e.ChargeRefunded: "refunded",
    e.QuotaToppedUp: "topped_up",
}
