"""The single writer of one partition number, without Kafka: records in, effects out.

Everything that decides what a transaction holds is here, synchronous and deterministic; the owner
(`owner.py`) only moves bytes. Tests, replay and simulation use it as it is.

A failed transaction ends the process, so accepted overlays go straight into the state while a batch
is worked; the changelog gets the last value of each row only.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from processors.engine import journal
from processors.engine.clock import Clock, ClockRow
from processors.engine.errors import (
    GapError,
    PoisonHandlerError,
    RecoveryError,
    UnknownVersionError,
)
from processors.engine.order import Batch
from processors.engine.quarantine import Cause, Quarantine
from processors.engine.records import TICK_KEY, Fetched, Record, Sent, Source
from processors.engine.routes import Routes
from processors.engine.rows import AnyTable, Rows
from processors.engine.rules import Rules
from processors.engine.step import Step

log = logging.getLogger(__name__)

BOOK: Final = b"\x00book"
"""Changelog key of the row that holds positions and clocks."""
RELEASED_MAX: Final = 300
"""Parked commands that one transaction applies."""


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """Where a partition number stands; written in every transaction."""

    partitions: int
    rules: int
    positions: dict[str, int]
    clock: ClockRow
    quarantined_at: tuple[int, ...] = ()


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """What one transaction writes; `journal` and `book` come with everything else."""

    sends: dict[tuple[str, int], list[Sent]]
    changes: dict[bytes, bytes | None]
    journal: bytes
    now: int
    commands: int


class Writer:
    """State of one partition number and how commands change it."""

    def __init__(
        self,
        number: int,
        *,
        partitions: int,
        sources: Sequence[Source],
        tables: Sequence[AnyTable],
        rules: Rules,
        routes: Routes,
        per_minute_max: int = 20,
    ) -> None:
        self.number = number
        self.partitions = partitions
        self.rules = rules
        self.routes = routes
        self.ticked = frozenset(source.topic for source in sources if source.ticked)
        self.clock = Clock(self.ticked)
        self.rows = Rows(number, tuple(tables))
        self.quarantine = Quarantine(per_minute_max)
        self.positions: dict[str, int] = {}
        self.more_due: set[str] = set()
        """Ticked topics with more due now; whoever appends the ticks takes them out."""
        self.commands = 0
        """Records of the transaction at work."""
        self.poison = 0
        """Commands that were poison, since the start; a metric."""
        self._changes: dict[bytes, bytes | None] = {}
        self._sends: dict[tuple[str, int], list[Sent]] = {}
        self._ranges = journal.Ranges()
        self._releases_left = RELEASED_MAX
        self._book: Book | None = None

    # ------------------------------------------------------------------------------- recovery

    def load(self, key: bytes, value: bytes | None) -> None:
        """One record of the changelog, in order."""
        if key[:1] != b"\x00":
            self.rows.load(key, value)
        elif key == BOOK:
            self._book = None if value is None else _decode_book(value)
        elif not self.quarantine.load(key, value):
            raise RecoveryError(f"an unknown row in the changelog: {key!r}")

    def loaded(self) -> None:
        """The changelog was read to its end.

        Raises RecoveryError for another topology, or for state that newer rules made.
        """
        book = self._book
        if book is None:
            if len(self.rows):
                raise RecoveryError(
                    f"partition {self.number}: the changelog has rows and no positions"
                )
        elif book.partitions != self.partitions:
            raise RecoveryError(
                f"partition {self.number}: the state was made with {book.partitions} partitions, "
                f"now there are {self.partitions}; their number cannot change"
            )
        elif book.rules > self.rules.version:
            raise RecoveryError(
                f"partition {self.number}: the state was made by rules {book.rules}, these are "
                f"rules {self.rules.version}: an older release would read it wrongly and write it "
                "back so; start the release that made it again, and mend it forwards"
            )
        else:
            self.positions = dict(book.positions)
            self.clock.restore(book.clock)
        self.quarantine.loaded(() if book is None else book.quarantined_at)
        self.rows.loaded()

    # ----------------------------------------------------------------------------- commands in

    def release(self) -> None:
        """First in every transaction: parked commands of released keys, before later ones."""
        self._releases_left = RELEASED_MAX
        for key in self.quarantine.releasing:
            self._drain(key)

    def apply(self, batch: Batch) -> None:
        """Work a batch.

        Raises GapError, StayDownError, UnknownVersionError, and whatever a listener raises; after
        that this writer is of no use any more.
        """
        topic = batch.topic
        start = self.positions.get(topic)
        if start is None:
            raise GapError(f"{topic}[{self.number}] has no position")
        if batch.start != start:
            raise GapError(f"{topic}[{self.number}] goes on at {batch.start}, expected was {start}")
        ticked = topic in self.ticked
        advance = self.clock.advance
        for fetched in batch.records:
            record = fetched if type(fetched) is Record else self._record(topic, fetched)
            advance(record.timestamp)
            if ticked and record.key == TICK_KEY:
                self._tick(record)
            elif self.quarantine:
                start = self._guarded(record, start)
            else:
                self._command(record)
        self.commands += len(batch.records)
        self._ranges.read(topic, start, batch.end)
        self.positions[topic] = batch.end

    def take(self, *, force: bool = False) -> Effects | None:
        """What the transaction writes, or None if nothing that was applied had an effect.

        Without effect, positions and ranges stay in memory and ride with the next transaction;
        `force` writes them all the same.
        """
        changes, sends = self._changes, self._sends
        if not (changes or sends or force or len(self._ranges) > journal.RANGES_MAX):
            self.commands = 0
            return None
        changes[BOOK] = _encode(self._store())
        record = journal.JournalRecord(
            partition=self.number,
            rules=self.rules.version,
            now=self.clock.now,
            ranges=self._ranges.take(),
        )
        effects = Effects(
            sends=sends,
            changes=changes,
            journal=journal.encode(record),
            now=self.clock.now,
            commands=self.commands,
        )
        self._changes, self._sends, self.commands = {}, {}, 0
        return effects

    @property
    def riding(self) -> bool:
        """Whether positions have moved that no transaction has written yet."""
        return len(self._ranges) > 0

    # --------------------------------------------------------------------------------- one step

    def _record(self, topic: str, fetched: Fetched) -> Record:
        return Record(
            topic,
            self.number,
            fetched.offset,
            fetched.timestamp,
            fetched.key,
            fetched.value,
            fetched.headers or (),
        )

    def _command(self, record: Record) -> bool:
        """One command on an overlay of its own; False: it was poison."""
        step = Step(self.rows, self.clock, self.routes, record)
        try:
            self.rules.handle(step, record)
            step.seal()
        except UnknownVersionError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the command is poison
            self._poisoned(record, error, self._key_of(record))
            return False
        step.accept(self._changes, self._sends)
        return True

    def _tick(self, record: Record) -> None:
        topic = record.topic
        self.clock.tick(topic)
        step = Step(self.rows, self.clock, self.routes, record, self.quarantine)
        try:
            more = self.rules.tick(step, topic)
            step.seal()
        except UnknownVersionError:
            raise
        except Exception as error:  # noqa: BLE001
            self._poisoned(record, error, None)
            self.quarantine.count(self.clock.now)
        else:
            step.accept(self._changes, self._sends)
            for failed in step.failures:
                self._tell(record, failed.error, failed.key)
                self._hold(record, failed.error, failed.key, timer=True)
            if more:
                self.more_due.add(topic)

    def _guarded(self, record: Record, start: int) -> int:
        """A command while keys are quarantined; gives where the range of the batch goes on."""
        released = self._released(record)
        if released is not None:
            # What is redriven comes with the release; poison again, what waits behind it stays.
            if not self._command(record) or released not in self.quarantine:
                return start
            self._ranges.read(record.topic, start, record.offset + 1)
            self.quarantine.release(released, self._changes)
            self._drain(released)
            return record.offset + 1
        key = self._key_of(record)
        if key is not None and key in self.quarantine:
            self._park(key, record)
        else:
            self._command(record)
        return start

    def _park(self, key: bytes, record: Record) -> None:
        self.quarantine.park(key, record, self._changes)
        step = Step(self.rows, self.clock, self.routes, record)
        try:
            self.rules.parked(step, record)
            step.seal()
        except UnknownVersionError:
            raise
        except Exception as error:  # noqa: BLE001 - the command stays parked all the same
            self._poisoned(record, error, key)
        else:
            step.accept(self._changes, self._sends)

    def _drain(self, key: bytes) -> None:
        count = 0
        for record in self.quarantine.drain(key, self._releases_left, self._changes):
            count += 1
            self._command(record)
        self._releases_left -= count
        self._ranges.released(key, count)

    def _poisoned(self, record: Record, error: Exception, key: bytes | None) -> None:
        self._tell(record, error, key)
        step = Step(self.rows, self.clock, self.routes, record)
        try:
            self.rules.poisoned(step, record, error)
            step.seal()
        except UnknownVersionError:
            raise
        except Exception as second:
            raise PoisonHandlerError(
                f"poison at {record.topic}[{record.partition}]@{record.offset} "
                f"cannot be written down: {second!r}"
            ) from second
        step.accept(self._changes, self._sends)
        if key is not None:
            self._hold(record, error, key, timer=False)

    def _tell(self, record: Record, error: Exception, key: bytes | None) -> None:
        self.poison += 1
        log.error(
            "poison",
            exc_info=error,
            extra={
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "quarantined": key is not None,
            },
        )

    def _hold(self, record: Record, error: Exception, key: bytes | None, *, timer: bool) -> None:
        if key is not None:
            cause = Cause(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                at=self.clock.now,
                error=type(error).__name__,
                timer=timer,
            )
            self.quarantine.hold(key, cause, self._changes)
        self.quarantine.count(self.clock.now)

    def _key_of(self, record: Record) -> bytes | None:
        try:
            return self.rules.key_of(record)
        except UnknownVersionError:
            raise
        except Exception:
            log.exception("key_of raised", extra={"topic": record.topic, "offset": record.offset})
            return None

    def _released(self, record: Record) -> bytes | None:
        try:
            return self.rules.released(record)
        except UnknownVersionError:
            raise
        except Exception:  # noqa: BLE001 - it cannot be read: `handle` will find that too
            return None

    def _store(self) -> Book:
        return Book(
            partitions=self.partitions,
            rules=self.rules.version,
            positions=self.positions,
            clock=self.clock.store(),
            quarantined_at=self.quarantine.recent,
        )


_encode = msgspec.json.Encoder().encode
_decode_book = msgspec.json.Decoder(Book).decode
