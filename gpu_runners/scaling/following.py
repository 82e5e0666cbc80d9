"""Reads pool-events from the beginning of what is kept, and stays at their end.

They are kept for months, so what was read is written down with its positions, now and then: the
next start goes on there, if that is still this log.
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Final

import msgspec

from gpu_runners.scaling.wanted import MARKS, Known, Wanted
from schema.codec import POOL_EVENTS, UnreadableMessageError
from schema.settings import Kafka
from schema.topics import Topic
from schema.wires.log import LogBatch, LogReader, LogUnavailableError, OffsetTrimmedError, Place
from schema.wires.telemetry import facts

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 1.0
_WRITE_SECONDS: Final = 60.0


class Following:
    """Keeps `wanted` as the log has it. `changed` is set when there may be something to do."""

    def __init__(self, kafka: Kafka, wanted: Wanted, memory: Path) -> None:
        self._kafka = kafka
        self._wanted = wanted
        self._memory = memory
        self._written_at = 0.0
        self.changed = asyncio.Event()
        self.caught_up = False
        """Whether everything that was there at the start was read: before that, nobody acts."""

    async def run(self) -> None:
        """For ever; a log that is away, or not there yet, is asked again."""
        while True:
            try:
                await self._follow()
            except (LogUnavailableError, OffsetTrimmedError) as error:
                log.warning("pool-events can't be read", extra=facts(error=str(error)))
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _follow(self) -> None:
        places = [Place(Topic.POOL_EVENTS.value, n) for n in range(self._kafka.partitions)]
        async with LogReader(self._kafka, places, client_id="scaling") as reader:
            ends = await reader.ends()
            await self._begin(reader, ends)
            while True:
                batches = await reader.read()
                told = [self._take(batch) for batch in batches]
                if not self.caught_up and all(
                    reader.positions[place] >= end for place, end in ends.items()
                ):
                    self.caught_up = True
                    self.changed.set()
                self._write(reader, now=any(told))

    async def _begin(self, reader: LogReader, ends: dict[Place, int]) -> None:
        """Where the one before us stopped; at the beginning, if this log is another one."""
        known = self._remembered()
        if known is not None and len(known.positions) == len(ends):
            starts = await reader.starts()
            positions = {place: known.positions.get(place.partition, 0) for place in ends}
            if all(positions[place] <= end for place, end in ends.items()):
                self._wanted.go_on_from(known)
                # What was trimmed meanwhile is missed; a later word of a pool still counts.
                await reader.seek({place: max(positions[place], starts[place]) for place in ends})
                return
        await reader.seek_to_beginning()

    def _remembered(self) -> Known | None:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self._memory.read_bytes(), type=Known)
        return None

    def _write(self, reader: LogReader, *, now: bool) -> None:
        """At once when it has changed; otherwise only so that the next start has less to read."""
        at = asyncio.get_running_loop().time()
        if not now and at - self._written_at < _WRITE_SECONDS:
            return
        self._written_at = at
        known = self._wanted.known(
            {place.partition: position for place, position in reader.positions.items()}
        )
        new = self._memory.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(known))
        new.replace(self._memory)

    def _take(self, batch: LogBatch) -> bool:
        """Whether anything that matters was in it."""
        told = False
        for record in batch.records:
            value = record.value
            if value is None or not any(mark in value for mark in MARKS):
                continue
            try:
                event = POOL_EVENTS.decode(value)
            except UnreadableMessageError as error:
                place = facts(partition=batch.place.partition, offset=record.offset)
                log.exception("a pool event can't be read", extra=place, exc_info=error)
                continue
            if self._wanted.apply(event):
                told = True
                self.changed.set()
        return told
