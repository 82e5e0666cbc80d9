"""Poison keeps its key behind it: later commands of the key wait as rows, in their order.

Rows of the changelog: `NUL quarantined: KEY` for the key and `NUL parked: KEY : NNNNNNNNNNNN` for
each command that waits. Nothing is asked of a command while no key is quarantined.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from processors.engine.errors import TooManyQuarantinesError
from processors.engine.records import Record

QUARANTINED: Final = b"\x00quarantined:"
PARKED: Final = b"\x00parked:"
MINUTE_MS: Final = 60_000


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a key is quarantined: the command that was poison, and what was raised."""

    topic: str
    partition: int
    offset: int
    at: int
    error: str
    releasing: bool = False
    timer: bool = False
    """It was a timer that raised, found by a tick; no command."""


class _Held:
    """One quarantined key."""

    __slots__ = ("cause", "last", "waiting")

    def __init__(self, cause: Cause) -> None:
        self.cause = cause
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.last = 0


_decode_cause = msgspec.json.Decoder(Cause).decode
_decode_record = msgspec.json.Decoder(Record).decode
_encode = msgspec.json.Encoder().encode


class Quarantine:
    """The quarantined keys of one partition number and what is parked behind them.

    Every change goes to `changes` of the transaction at work.
    """

    __slots__ = ("_held", "_loaded", "_recent", "per_minute_max")

    def __init__(self, per_minute_max: int = 20) -> None:
        self.per_minute_max = per_minute_max
        self._held: dict[bytes, _Held] = {}
        self._recent: deque[int] = deque()
        self._loaded: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def __contains__(self, key: bytes) -> bool:
        return key in self._held

    @property
    def keys(self) -> tuple[bytes, ...]:
        return tuple(self._held)

    @property
    def timers(self) -> tuple[bytes, ...]:
        """Keys that wait because a timer of theirs raised."""
        if not self._held:
            return ()
        return tuple(key for key, held in self._held.items() if held.cause.timer)

    @property
    def recent(self) -> tuple[int, ...]:
        """When keys were quarantined in the last minute of log time; stored with the positions."""
        return tuple(self._recent)

    @property
    def parked(self) -> int:
        return sum(len(held.waiting) for held in self._held.values())

    def count(self, now: int) -> None:
        """One more quarantine at `now`; raises TooManyQuarantinesError."""
        recent = self._recent
        recent.append(now)
        while recent[0] <= now - MINUTE_MS:
            recent.popleft()
        if len(recent) > self.per_minute_max:
            raise TooManyQuarantinesError(
                f"{len(recent)} quarantines in a minute; at most {self.per_minute_max}"
            )

    def hold(self, key: bytes, cause: Cause, changes: dict[bytes, bytes | None]) -> None:
        """Quarantine a key; one that was being released is held again, with what still waits."""
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(cause)
        held.cause = cause
        changes[QUARANTINED + key] = _encode(cause)

    def park(self, key: bytes, record: Record, changes: dict[bytes, bytes | None]) -> None:
        held = self._held[key]
        held.last += 1
        row = _encode(record)
        held.waiting.append((held.last, row))
        changes[_parked(key, held.last)] = row

    def release(self, key: bytes, changes: dict[bytes, bytes | None]) -> None:
        """From now on the parked commands of this key are applied."""
        held = self._held[key]
        held.cause = msgspec.structs.replace(held.cause, releasing=True)
        changes[QUARANTINED + key] = _encode(held.cause)

    @property
    def releasing(self) -> tuple[bytes, ...]:
        """Keys whose parked commands are still to be applied."""
        if not self._held:
            return ()
        return tuple(key for key, held in self._held.items() if held.cause.releasing)

    def drain(self, key: bytes, limit: int, changes: dict[bytes, bytes | None]) -> Iterator[Record]:
        """At most `limit` parked commands in order; stops when one of them quarantines the key."""
        held = self._held[key]
        while held.waiting and held.cause.releasing and limit > 0:
            number, row = held.waiting.popleft()
            changes[_parked(key, number)] = None
            limit -= 1
            yield _decode_record(row)
        if not held.waiting and held.cause.releasing:
            del self._held[key]
            changes[QUARANTINED + key] = None

    def load(self, key: bytes, value: bytes | None) -> bool:
        """One record of the changelog, at recovery; False: it is not one of ours."""
        if not key.startswith((QUARANTINED, PARKED)):
            return False
        if value is None:
            self._loaded.pop(key, None)
        else:
            self._loaded[key] = value
        return True

    def loaded(self, recent: tuple[int, ...]) -> None:
        """Recovery has read everything (compaction keeps no order between two keys)."""
        self._recent = deque(recent)
        for key, value in self._loaded.items():
            if key.startswith(QUARANTINED):
                self._held[key[len(QUARANTINED) :]] = _Held(_decode_cause(value))
        for key, value in sorted(self._loaded.items()):
            if key.startswith(PARKED):
                name, _, number = key[len(PARKED) :].rpartition(b":")
                held = self._held[name]
                held.waiting.append((int(number), value))
                held.last = int(number)
        self._loaded = {}


def _parked(key: bytes, number: int) -> bytes:
    return PARKED + key + b":%012d" % number
