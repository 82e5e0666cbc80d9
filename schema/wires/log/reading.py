"""Reading: committed records of given partitions, from positions that the caller keeps."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from schema.settings import Kafka
from schema.wires.log.places import (
    LogBatch,
    LogUnavailableError,
    OffsetTrimmedError,
    Place,
    Untyped,
    milliseconds,
)
from schema.wires.log.starting import start


class LogReader:
    """Reads given partitions, committed records only, without a group: positions are the caller's.

    Say where to begin (`seek`, `seek_to_beginning`, `seek_to_end`) before the first `read`. While
    the broker is away `read` returns nothing; it goes on by itself when the broker is back.
    """

    def __init__(
        self,
        kafka: Kafka,
        places: Iterable[Place],
        *,
        client_id: str = "cutlog",
        records_max: int = 5_000,
        wait_ms: int = 500,
    ) -> None:
        self._kafka = kafka
        self._places = {place: TopicPartition(*place) for place in places}
        self._client_id = client_id
        self._records_max = records_max
        self._wait_ms = wait_ms
        self._consumer: Untyped = None
        self._positions: dict[Place, int] = {}

    @property
    def places(self) -> tuple[Place, ...]:
        """What it reads."""
        return tuple(self._places)

    @property
    def positions(self) -> Mapping[Place, int]:
        """The next offset of each partition, as of what `read` has returned."""
        return self._positions

    async def start(self) -> None:
        """Connect; raises LogUnavailableError when no broker answers in time."""
        consumer: Untyped = AIOKafkaConsumer(
            bootstrap_servers=self._kafka.brokers,
            client_id=self._client_id,
            group_id=None,
            isolation_level="read_committed",
            auto_offset_reset="none",
            enable_auto_commit=False,
            max_poll_records=self._records_max,
            fetch_max_wait_ms=self._wait_ms,
            max_partition_fetch_bytes=4 << 20,
            request_timeout_ms=max(milliseconds(self._kafka), self._wait_ms + 1_000),
        )
        await start(consumer, self._kafka.request_timeout_seconds, lambda: _stop(consumer))
        self._consumer = consumer

    async def stop(self) -> None:
        """Close the connections."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await _stop(consumer)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def starts(self) -> dict[Place, int]:
        """The first offset that the log still has, for each partition."""
        return await self._ask(self._client().beginning_offsets)

    async def ends(self) -> dict[Place, int]:
        """Where the next committed record will stand; behind it may be open transactions."""
        return await self._ask(self._client().end_offsets)

    async def _ask(self, ask: Untyped) -> dict[Place, int]:
        try:
            async with asyncio.timeout(self._kafka.request_timeout_seconds):
                offsets = await ask(list(self._places.values()))
        except (KafkaError, TimeoutError) as error:
            raise LogUnavailableError(f"offsets: {error!r}") from error
        return {place: offsets[partition] for place, partition in self._places.items()}

    async def seek_to_beginning(self) -> None:
        """Begin at the oldest record that the log still has."""
        self._seek(await self.starts())

    async def seek_to_end(self) -> None:
        """Begin behind what is committed now."""
        self._seek(await self.ends())

    async def seek(self, positions: Mapping[Place, int]) -> None:
        """Begin at these positions (partitions not named: at the beginning).

        Raises OffsetTrimmedError when one of them is not in the log.
        """
        starts, ends = await self.starts(), await self.ends()
        wanted = {place: positions.get(place, starts[place]) for place in self._places}
        for place, position in wanted.items():
            # Behind `ends` a position may still be right: markers of a transaction that is open.
            if position < starts[place]:
                raise OffsetTrimmedError(place, position, starts[place], ends[place])
        self._seek(wanted)

    def _seek(self, positions: Mapping[Place, int]) -> None:
        consumer = self._client()
        if not consumer.assignment():
            consumer.assign(list(self._places.values()))
        for place, position in positions.items():
            consumer.seek(self._places[place], position)
        self._positions = dict(positions)

    async def read(self, timeout_seconds: float = 1.0) -> list[LogBatch]:
        """What is there, waiting at most so long for a record; at most one batch a partition.

        The batches of a partition are contiguous: each starts where the one before ended. One
        without records tells that only markers, or records that came to nothing, were passed.
        Raises OffsetTrimmedError when the log no longer has what comes next.
        """
        consumer = self._client()
        try:
            fetched = await consumer.getmany(timeout_ms=int(timeout_seconds * 1000))
        except OffsetOutOfRangeError as error:
            raise await self._trimmed() from error
        batches: list[LogBatch] = []
        for place, partition in self._places.items():
            end = await consumer.position(partition)
            if end != self._positions[place]:
                records = fetched.get(partition, ())
                batches.append(LogBatch(place, self._positions[place], end, records))
                self._positions[place] = end
        return batches

    async def _trimmed(self) -> Exception:
        starts, ends = await self.starts(), await self.ends()
        for place, position in self._positions.items():
            if not starts[place] <= position <= ends[place]:
                return OffsetTrimmedError(place, position, starts[place], ends[place])
        return LogUnavailableError("a position was out of range and is no more")

    async def follow(self) -> AsyncIterator[LogBatch]:
        """Batch after batch, for ever."""
        while True:
            for batch in await self.read():
                yield batch

    def lag(self) -> dict[Place, int]:
        """Committed offsets not yet read, as of the last fetch; no round trip."""
        consumer = self._client()
        lags: dict[Place, int] = {}
        for place, partition in self._places.items():
            end = consumer.last_stable_offset(partition)
            lags[place] = 0 if end is None else max(0, end - self._positions.get(place, end))
        return lags

    def _client(self) -> Untyped:
        if self._consumer is None:
            raise LogUnavailableError("the reader is not open")
        return self._consumer


async def _stop(consumer: Untyped) -> None:
    """Close a consumer, also one whose broker does not answer.

    aiokafka awaits the fetches that it has just canceled itself, so its `stop` ends as if somebody
    had canceled it, with the connections open; in a task of its own that hits nobody else.
    """
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait([stopping])
    if not stopping.cancelled():
        stopping.result()
        return
    for fetch in list(consumer._fetcher._pending_tasks):  # noqa: SLF001 - it has no other way
        fetch.cancel()
    await consumer._client.close()  # noqa: SLF001
