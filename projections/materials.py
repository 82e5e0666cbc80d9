"""Materials: what was uploaded and what became of it, from `material-events`.

Beside the row of each material there is one of each content that an owner holds (`contents`): who
declares it again need not send it.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Final

from projections.folding import Db, Fact, Seqs, change, copy, put, storable
from schema import events as e
from schema.codec import encode
from schema.refusals import MaterialRefusal
from schema.topics import Topic

_SQL: Final = (Path(__file__).parent / "sql" / "materials.sql").read_text().split("\n-- ;;\n")
_LAST_SEQS, _MERGE, _ADD_CONTENTS = _SQL


class _Row:
    """What a batch does to one material. None: the column stays as it is (new: its default)."""

    def __init__(self, material_id: str, user_id: str) -> None:
        self.material_id = material_id
        self.user_id = user_id

    material_id: str
    user_id: str
    tenant_id: str | None = None
    content_type: str | None = None
    size: int | None = None
    sha256: str | None = None
    status: str | None = None
    reason: str | None = None
    private: bytes | None = None
    seq: int
    created_at: datetime | None = None
    updated_at: datetime
    detail: str | None = None
    part_bytes: int | None = None
    seconds_max: int | None = None
    upload_id: str | None = None
    tries: int | None = None
    content_key: str | None = None
    facts: str | None = None
    active_at: datetime | None = None
    assembling_at: datetime | None = None
    used_at: datetime | None = None
    stored_at: datetime | None = None
    """When it became READY, where that was in this batch."""


_COLUMNS: Final = tuple(name for name in _Row.__annotations__ if name != "stored_at")
_CHANGED: Final = (
    "material_id", "content_type", "private", "status", "size", "sha256", "reason", "seq",
    "updated_at", "detail", "part_bytes", "seconds_max", "upload_id", "tries", "content_key",
    "facts", "active_at", "assembling_at", "used_at",
)  # fmt: skip
_DEFAULTS: Final[dict[str, Any]] = {
    "detail": "", "part_bytes": 0, "seconds_max": 0, "upload_id": "", "tries": 0, "content_key": "",
}  # fmt: skip
_changed_values: Final = attrgetter(*_CHANGED)


def _new_values(row: _Row) -> tuple[Any, ...]:
    values = ((name, getattr(row, name)) for name in _COLUMNS)
    return tuple(_DEFAULTS.get(name) if value is None else value for name, value in values)


class Materials:
    """The fold of `material-events`."""

    name: ClassVar[str] = "materials"
    topic: ClassVar[Topic] = Topic.MATERIAL_EVENTS
    tables: ClassVar[tuple[str, ...]] = ("materials", "contents")

    def __init__(self) -> None:
        self._seqs = Seqs()

    def forget(self) -> None:
        self._seqs.forget()

    async def apply(self, db: Db, facts: Sequence[Fact]) -> None:
        """Rows that are new, and changes of the others; then what is held from here on.

        What the topic says of results is not for this table.
        """
        facts = [fact for fact in facts if isinstance(fact.message, e.OfMaterial)]
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
        new = [_new_values(row) for row in rows.values() if row.created_at is not None]
        await copy(db, "materials", _COLUMNS, new)
        changed = [_changed_values(row) for row in rows.values() if row.created_at is None]
        await change(db, _MERGE, changed)
        stored = [(row.material_id, row.stored_at) for row in rows.values() if row.stored_at]
        await put(db, _ADD_CONTENTS, stored)


def _fold(row: _Row, event: e.MaterialEvent) -> None:
    match event:
        case e.MaterialRegistered():
            _registered(row, event)
        case e.UploadTouched():
            row.active_at = event.at
        case e.MaterialAssembling():
            row.status, row.tries, row.assembling_at = "ASSEMBLING", event.number, event.at
            row.detail = ""
            if not event.again:
                row.active_at = event.at
        case e.MaterialReopened():
            row.status, row.detail = "REGISTERED", storable(event.detail)
            row.active_at = event.at
        case e.MaterialReady():
            row.status, row.size, row.sha256 = "READY", event.size, event.sha256
            row.content_key, row.used_at, row.stored_at = event.content_key, event.at, event.at
            row.facts = None if event.facts is None else encode(event.facts).decode()
            row.detail = ""
        case e.MaterialRefused():
            row.status, row.reason = "REFUSED", event.reason
            row.detail = storable(event.detail)
        case e.MaterialAborted():
            row.status, row.reason = "ABORTED", MaterialRefusal.MATERIAL_ABORTED
        case e.MaterialChilled():
            row.status = "COLD"
        case e.MaterialAttached():
            row.used_at = event.at
            if row.status == "COLD":  # what was COLD before this batch, the statement sees
                row.status = "READY"


def _registered(row: _Row, event: e.MaterialRegistered) -> None:
    """Declared; anew after a refusal it has a row already."""
    row.tenant_id, row.content_type = event.tenant_id, event.content_type
    row.size, row.sha256, row.private = event.size, event.sha256, event.private
    row.status, row.reason, row.detail = "REGISTERED", "", ""
    row.part_bytes, row.seconds_max = event.part_bytes, event.seconds_max
    row.upload_id, row.active_at = event.upload_id, event.at
    if event.seq == 1:
        row.created_at = event.at
