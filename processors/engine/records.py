"""What comes in: a record of a source topic, and how the source topics stand to each other."""

from typing import Final, Literal, NamedTuple, Protocol

import msgspec

Headers = tuple[tuple[str, bytes], ...]

TICK_KEY: Final = b"\x00tick"
"""Key of the records that the engine itself appends to ticked topics; no other producer uses it."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a source; `timestamp` in milliseconds since the epoch (the broker's clock)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Source(NamedTuple):
    """A topic that the engine reads.

    `rank` orders the topics of one partition number inside a transaction, lowest first. Submissions
    are new work from outside: they are limited while internal commands wait, so that admission
    never starves completion. A `ticked` topic gets a tick a second from the owner of the partition.
    """

    topic: str
    rank: int
    kind: Literal["internal", "submission"] = "internal"
    ticked: bool = False


class Fetched(Protocol):
    """What some log hands out for one record; the transport hands out a `Record` at once."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A record to be written in the transaction."""

    key: bytes | None
    value: bytes
    headers: Headers
