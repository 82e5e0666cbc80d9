"""Materials: what was uploaded and what became of it, from `material-events`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from projections.folding import Db, Fact, Seqs, change, copy
from schema import events as e
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "materials.sql").read_text().split("\n-- ;;\n")
_LAST_SEQS, _MERGE = _SQL
_COLUMNS: Final = (
    "material_id", "user_id", "tenant_id", "content_type", "size", "sha256", "status", "reason",
    "private", "seq", "created_at", "updated_at",
)  # fmt: skip
_CHANGED: Final = (
    "material_id", "content_type", "private", "status", "size", "sha256", "reason", "seq",
    "updated_at",
)  # fmt: skip


class _Row:
    """What a batch does to one material; None: the column stays as it is."""

    __slots__ = (
        "content_type", "created_at", "material_id", "private", "reason", "seq", "sha256", "size",
        "status", "tenant_id", "updated_at", "user_id",
    )  # fmt: skip

    def __init__(self, material_id: str, user_id: str) -> None:
        self.material_id = material_id
        self.user_id = user_id
        self.tenant_id: str | None = None
        self.content_type: str | None = None
        self.size: int | None = None
        self.sha256: str | None = None
        self.status: str | None = None
        self.reason: str | None = None
        self.private: bytes | None = None
        self.seq = 0
        self.created_at: datetime | None = None
        self.updated_at: datetime | None = None

    def values(self, columns: Sequence[str]) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in columns)


class Materials:
    """The fold of `material-events`."""

    name: ClassVar[str] = "materials"
    topic: ClassVar[Topic] = Topic.MATERIAL_EVENTS
    tables: ClassVar[tuple[str, ...]] = ("materials",)

    def __init__(self) -> None:
        self._seqs = Seqs()

    def forget(self) -> None:
        self._seqs.forget()

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Rows that are new, and changes of the others."""
        unknown = self._seqs.unknown(fact.message.material_id for fact in facts)
        if unknown:
            found = await db.fetch(_LAST_SEQS, unknown)
            self._seqs.learn(unknown, {row["material_id"]: row["seq"] for row in found})
        rows: dict[str, _Row] = {}
        for fact in facts:
            event = fact.message
            if not self._seqs.is_next(fact, event.material_id, event.seq):
                continue
            row = rows.get(event.material_id)
            if row is None:
                row = rows[event.material_id] = _Row(event.material_id, event.user_id)
            row.seq, row.updated_at = event.seq, event.at
            _fold(row, event)
        new = [row.values(_COLUMNS) for row in rows.values() if row.created_at is not None]
        await copy(db, "materials", _COLUMNS, new)
        changed = [row.values(_CHANGED) for row in rows.values() if row.created_at is None]
        await change(db, _MERGE, changed)


def _fold(row: _Row, event: e.MaterialEvent) -> None:
    match event:
        case e.MaterialRegistered():
            row.tenant_id, row.content_type = event.tenant_id, event.content_type
            row.size, row.sha256, row.private = event.size, event.sha256, event.private
            row.status, row.reason = "REGISTERED", ""
            if event.seq == 1:  # announced anew after a refusal it has a row already
                row.created_at = event.at
        case e.MaterialReady():
            row.status, row.size, row.sha256 = "READY", event.size, event.sha256
        case e.MaterialRefused():
            row.status, row.reason = "REFUSED", event.reason
        case e.MaterialAttached():
            pass
