"""The journal: what each transaction applied, in the order it was applied.

One record a transaction, in the partition of the journal that has the number of the writer. Its
ranges cover every offset of every source exactly once: ranges of batches without effect ride in the
next record. Together with the sources it replays a partition exactly.
"""

from typing import Final

import msgspec

RANGES_MAX: Final = 256
"""So many ranges without effect ride at most."""


class Range(msgspec.Struct, frozen=True, kw_only=True, tag="read", tag_field="kind"):
    """Offsets `start` <= offset < `end` of a source were applied (control markers included)."""

    topic: str
    start: int
    end: int


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="released", tag_field="kind"):
    """`count` parked commands of a key were applied, the oldest first."""

    key: bytes
    count: int


Entry = Range | Release


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Value of a record of the journal (JSON; bytes are base64)."""

    partition: int
    rules: int
    now: int
    ranges: tuple[Entry, ...]


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(JournalRecord).decode


class Ranges:
    """Entries not yet written; neighbours of one topic are one."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def read(self, topic: str, start: int, end: int) -> None:
        if start == end:
            return
        last = self._entries[-1] if self._entries else None
        if isinstance(last, Range) and last.topic == topic and last.end == start:
            self._entries[-1] = Range(topic=topic, start=last.start, end=end)
        else:
            self._entries.append(Range(topic=topic, start=start, end=end))

    def released(self, key: bytes, count: int) -> None:
        if count:
            self._entries.append(Release(key=key, count=count))

    def take(self) -> tuple[Entry, ...]:
        taken, self._entries = tuple(self._entries), []
        return taken

    def __len__(self) -> int:
        return len(self._entries)
