"""The words of the log's wires: places, records and batches as they are read, and what can fail."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from schema.settings import Kafka

Headers = Sequence[tuple[str, bytes]]
Untyped = Any
"""An object of aiokafka, which ships no types."""


def milliseconds(kafka: Kafka) -> int:
    """The request timeout as the client wants it."""
    return int(kafka.request_timeout_seconds * 1000)


class LogUnavailableError(Exception):
    """The log did not take a record, or did not say so in time.

    `in_doubt`: the record was handed to the broker and may stand in the log all the same; whoever
    asks again must ask under the same id. Otherwise nothing was written and nothing will be.
    """

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.in_doubt = in_doubt


class MessageTooLongError(ValueError):
    """More bytes than a message may have; nothing was written."""


class TopologyError(Exception):
    """Topics have another number of partitions than the settings say. Nothing may run on them."""


class OffsetTrimmedError(Exception):
    """A position is not in the log (any more): what stood there can't be read."""

    def __init__(self, place: "Place", position: int, start: int, end: int) -> None:
        super().__init__(
            f"{place.topic}/{place.partition}: position {position} is outside of {start}..{end}"
        )
        self.place = place
        self.position = position


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Appended(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int


class Record(Protocol):
    """One record as it is read; `timestamp` in milliseconds since the epoch."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


class LogBatch(NamedTuple):
    """Everything committed in [start, end) of a partition; the next batch starts at `end`.

    `end` may lie behind the last record (markers of transactions take offsets too), and there may
    be no record at all.
    """

    place: Place
    start: int
    end: int
    records: Sequence[Record]
