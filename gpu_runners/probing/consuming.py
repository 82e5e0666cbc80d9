"""Reads material-events in a consumer group: several processes share the partitions.

A position is committed when everything before it is done, so what a process that died had open is
done by its heir. Events of one material are worked on in their order, those of others beside them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from schema.codec import MATERIAL_EVENTS, UnreadableMessageError
from schema.events import MaterialEvent, ResultEvent
from schema.settings import Kafka
from schema.topics import Topic
from schema.wires.log import LogUnavailableError, start
from schema.wires.telemetry import end_tasks, facts

log = logging.getLogger(__name__)

Told = MaterialEvent | ResultEvent
"""What stands in material-events; only materials can be wanted here."""
Untyped = Any
"""A consumer of aiokafka, which has no types."""
_WAIT_MS: Final = 500
_AGAIN_SECONDS: Final = 1.0
_POLL_SECONDS_MAX: Final = 24 * 3_600
"""All slots may be at large files for long; that the process lives is told beside."""


class _Progress:
    """What of one partition is done."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.position: int | None = None
        """Behind the last record that was read."""
        self.committed: int | None = None

    @property
    def finished(self) -> int | None:
        """Up to where everything is done."""
        return min(self.open) if self.open else self.position


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # it has no types
    """Tells when partitions go and come; its base also takes coroutines, and doesn't say so."""

    def __init__(self, consumer: "Consumer") -> None:
        self._consumer = consumer

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, revoked: list[TopicPartition]
    ) -> None:
        await self._consumer.give_back(revoked)

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, assigned: list[TopicPartition]
    ) -> None:
        self._consumer.take_over(assigned)


class Consumer:
    """Hands wanted events to `work`, at most `slots` at once, until it is told to stop."""

    def __init__(
        self,
        kafka: Kafka,
        *,
        group: str,
        slots: int,
        wanted: Callable[[Told], MaterialEvent | None],
        work: Callable[[MaterialEvent], Awaitable[None]],
    ) -> None:
        self._kafka = kafka
        self._group = group
        self._wanted = wanted
        self._work = work
        self._slots = asyncio.Semaphore(slots)
        self._progress: dict[TopicPartition, _Progress] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: dict[str, asyncio.Task[None]] = {}
        self._failed: BaseException | None = None
        self._client: Untyped = None
        self.ready = False
        """Whether it has joined its group."""

    async def run(self, stopping: asyncio.Event, drain_seconds: float) -> None:
        """Read and hand out; a log that is away is waited for. Raises what `work` raised."""
        stop = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                try:
                    await self._follow(stop)
                except (KafkaError, LogUnavailableError) as error:
                    self.ready = False
                    log.warning("material-events can't be read", extra=facts(error=str(error)))
                    await asyncio.wait([stop], timeout=_AGAIN_SECONDS)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=drain_seconds)
            await self._commit()
        finally:
            self.ready = False
            await end_tasks(stop, *self._tasks)
            await self._close()

    async def _follow(self, stop: "asyncio.Task[bool]") -> None:
        client: Untyped = self._client or await self._open()
        self.ready = True
        while not stop.done():
            fetched = await client.getmany(timeout_ms=_WAIT_MS, max_records=100)
            for partition, records in fetched.items():
                progress = self._progress.setdefault(partition, _Progress())
                for record in records:
                    await self._take(partition, progress, record, stop)
                    # What was not taken is read again: by the next process, or from where the
                    # group has come to, if the partition went and came while a slot was waited for.
                    if stop.done() or self._progress.get(partition) is not progress:
                        break
            await self._commit()
            if self._failed is not None:
                raise self._failed

    async def _open(self) -> Untyped:
        client: Untyped = AIOKafkaConsumer(
            bootstrap_servers=self._kafka.brokers,
            client_id="probing",
            group_id=self._group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_interval_ms=_POLL_SECONDS_MAX * 1_000,
            session_timeout_ms=int(self._kafka.session_timeout_seconds * 1_000),
            heartbeat_interval_ms=int(self._kafka.session_timeout_seconds * 1_000 / 4),
        )
        client.subscribe([Topic.MATERIAL_EVENTS.value], listener=_Listener(self))
        await start(client, self._kafka.request_timeout_seconds * 4, lambda: _stop(client))
        self._client = client
        return client

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _stop(client)

    async def _take(
        self,
        partition: TopicPartition,
        progress: _Progress,
        record: Untyped,
        stop: "asyncio.Task[bool]",
    ) -> None:
        """Begin with a record, when there is a slot for it and the partition is still ours."""
        told = _decoded(record)
        event = None if told is None else self._wanted(told)
        if event is not None:
            before = self._last.get(event.material_id)
            if before is None:
                if not await self._has_slot(stop):
                    return
                if self._progress.get(partition) is not progress:
                    self._slots.release()
                    return
            progress.open.add(record.offset)
            task = asyncio.create_task(self._do(event, before))
            self._tasks.add(task)
            self._last[event.material_id] = task
            task.add_done_callback(
                lambda done: self._ended(done, event, progress, int(record.offset))
            )
        progress.position = record.offset + 1

    async def _has_slot(self, stop: "asyncio.Task[bool]") -> bool:
        """Wait for a slot; False: the end came first."""
        slot = asyncio.create_task(self._slots.acquire())
        await asyncio.wait([slot, stop], return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            await end_tasks(slot)
        return not stop.done()

    async def _do(self, event: MaterialEvent, before: "asyncio.Task[None] | None") -> None:
        """Work on an event; it has a slot, unless one of the same material is at work before it."""
        if before is not None:  # waits without a slot: others need none of its patience
            await asyncio.wait([before])
            await self._slots.acquire()
        try:
            await self._work(event)
        finally:
            self._slots.release()

    def _ended(
        self,
        task: "asyncio.Task[None]",
        event: MaterialEvent,
        progress: _Progress,
        offset: int,
    ) -> None:
        self._tasks.discard(task)
        if self._last.get(event.material_id) is task:
            del self._last[event.material_id]
        if task.cancelled():
            return  # still open: the next process does it
        error = task.exception()
        if error is not None:
            self._failed = self._failed or error
            return
        progress.open.discard(offset)

    async def _commit(self) -> None:
        """Say what is done; that it can't be said now costs at most that it is done twice."""
        if self._client is None:
            return
        assigned = self._client.assignment()
        done = {
            partition: progress.finished
            for partition, progress in self._progress.items()
            if partition in assigned and progress.finished not in (None, progress.committed)
        }
        if not done:
            return
        try:
            await self._client.commit(done)
        except KafkaError as error:
            log.warning("positions could not be committed", extra=facts(error=str(error)))
            return
        for partition, position in done.items():
            self._progress[partition].committed = position

    async def give_back(self, revoked: list[TopicPartition]) -> None:
        """Another process goes on with these; what is open here ends here, and again there."""
        await self._commit()
        for partition in revoked:
            self._progress.pop(partition, None)

    def take_over(self, assigned: list[TopicPartition]) -> None:
        """Begin where the group has come to."""
        for partition in assigned:
            self._progress[partition] = _Progress()


async def _stop(client: Untyped) -> None:
    with contextlib.suppress(KafkaError, asyncio.CancelledError):
        await client.stop()


def _decoded(record: Untyped) -> Told | None:
    if record.value is None:
        return None
    try:
        return MATERIAL_EVENTS.decode(record.value)
    except UnreadableMessageError as error:
        place = facts(partition=record.partition, offset=record.offset)
        log.exception("a material event can't be read", extra=place, exc_info=error)
        return None
