"""Results after their task has ended, and what was handed out of them, from `material-events`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, cast

import msgspec

from projections.folding import Db, Fact, Seqs, put, storable
from projections.materials import Materials
from schema import events as e
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "results.sql").read_text().split("\n-- ;;\n")
_LAST_SEQS, _SOURCE_SEQS, _MERGE, _KNOWN, _ADD, _SET_SEQS = _SQL
_SOURCE: Final = "deliveries/"
"""Sources are told from tasks by it, among the keys whose events are counted."""


class _Row(msgspec.Struct, kw_only=True, array_like=True):
    """A result as it stands; in the order of the columns."""

    task_id: str
    user_id: str
    tenant_id: str
    state: str = "hot"
    reason: str = ""
    cold: bool = False
    published_by: str = ""
    seq: int = 0
    hot_at: datetime | None = None
    changed_at: datetime


class Results:
    """The part of the fold that results are."""

    tables: ClassVar[tuple[str, ...]] = ("results", "results_delivered")

    def __init__(self) -> None:
        self._seqs = Seqs()

    def forget(self) -> None:
        self._seqs.forget()

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Rows of results as they stand after the batch, and sums of deliveries."""
        await self._learn(db, facts)
        told = [fact for fact in facts if isinstance(fact.message, e.OfResult)]
        found = await db.fetch(_KNOWN, sorted({fact.message.task_id for fact in told}))
        rows = {row["task_id"]: _Row(**dict(row)) for row in found}
        changed: dict[str, _Row] = {}
        for fact in told:
            event: e.OfResult = fact.message
            if not self._seqs.is_next(fact, event.task_id, event.seq):
                continue
            row = rows.get(event.task_id)
            if row is None:
                row = rows[event.task_id] = _Row(
                    task_id=event.task_id,
                    user_id=event.user_id,
                    tenant_id=event.tenant_id,
                    changed_at=event.at,
                )
            row.seq, row.changed_at = event.seq, event.at
            _fold(row, event)
            changed[event.task_id] = row
        await put(db, _MERGE, [msgspec.structs.astuple(row) for row in changed.values()])
        await self._add(db, [f for f in facts if isinstance(f.message, e.ResultsDelivered)])

    async def _learn(self, db: Db, facts: Sequence[Fact]) -> None:
        unknown = self._seqs.unknown(_key(fact) for fact in facts)
        if unknown:
            seqs = {row["task_id"]: row["seq"] for row in await db.fetch(_LAST_SEQS, unknown)}
            sources = await db.fetch(_SOURCE_SEQS, unknown)
            self._seqs.learn(unknown, seqs | {row["key"]: row["seq"] for row in sources})

    async def _add(self, db: Db, facts: Sequence[Fact]) -> None:
        sums: dict[tuple[object, ...], list[int]] = {}
        last: dict[str, int] = {}
        for fact in facts:
            event: e.ResultsDelivered = fact.message
            if not self._seqs.is_next(fact, _key(fact), event.seq):
                continue
            last[_key(fact)] = event.seq
            for one in event.deliveries:
                found = sums.setdefault(
                    (event.at.date(), one.tenant_id, one.scene.value, one.cold), [0, 0]
                )
                found[0] += one.reads
                found[1] += one.size
        await put(db, _ADD, [(*key, *counts) for key, counts in sums.items()])
        await put(db, _SET_SEQS, list(last.items()))


class MaterialsAndResults:
    """The fold of `material-events`: two nouns share the topic."""

    name: ClassVar[str] = "materials"
    topic: ClassVar[Topic] = Topic.MATERIAL_EVENTS
    tables: ClassVar[tuple[str, ...]] = (*Materials.tables, *Results.tables)

    def __init__(self) -> None:
        self._materials = Materials()
        self._results = Results()

    def forget(self) -> None:
        self._materials.forget()
        self._results.forget()

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Each noun its own facts, in order."""
        results = [fact for fact in facts if isinstance(fact.message, e.ResultEvent)]
        materials = [fact for fact in facts if not isinstance(fact.message, e.ResultEvent)]
        if materials:
            await self._materials.apply(db, materials)
        if results:
            await self._results.apply(db, results)


def _key(fact: Fact) -> str:
    event = cast("e.ResultEvent", fact.message)
    return f"{_SOURCE}{event.source}" if isinstance(event, e.ResultsDelivered) else event.task_id


def _fold(row: _Row, event: e.OfResult) -> None:
    match event:
        case e.ResultChilled():
            row.state, row.cold = "cold", True
        case e.ResultWithheld():
            row.state, row.reason = "withheld", storable(event.reason)
        case e.ResultRestored():
            row.state = "cold" if event.cold else "hot"
            row.reason, row.cold = "", event.cold
            if not event.cold:
                row.hot_at = event.at
        case e.ResultPublished():
            row.published_by = event.by
        case e.ResultDeleted():
            row.state, row.reason = "deleted", event.reason.value
        case _:
            raise AssertionError(f"{type(event).__name__} is no event of a result")
