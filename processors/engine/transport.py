"""Faust's consumer, hooked: one message is a batch, positions are ours, nothing else is sent.

Replaced, through the classes that Faust asks for: the consumer thread (committed reads, exact
positions, seeks that check for trimming), the consumer (no acks, no commits but lazy ones for lag
tools) and the producer (none: a plain `topic.send` would leave the transaction).
"""

# Faust and aiokafka ship no types that hold; what they hand out is unknown, and stays so.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportPrivateUsage=false
# pyright: reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# pyright: reportOptionalMemberAccess=false, reportIncompatibleVariableOverride=false
# pyright: reportUntypedBaseClass=false, reportUnknownLambdaType=false

# Private members and any types: that is what hooking into Faust means.
# ruff: noqa: ANN401, SLF001, ARG002

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from aiokafka import OffsetAndMetadata, TopicPartition
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from processors.engine.engine import Engine, Place, Seen, check_positions
from processors.engine.errors import PlainSendForbiddenError
from processors.engine.exits import DOUBT, leave
from processors.engine.order import Batch
from processors.engine.records import Record

log = logging.getLogger(__name__)

FETCH_WAIT_MS: Final = 250
"""Longest poll of the broker; Faust fixes it at 1,500, for which a drained partition would wait."""
FETCH_BYTES_MAX: Final = 4 << 20
GROWN_MAX: Final = 2_000
"""A batch that waits grows up to so many records."""
LOG_APPEND_TIME: Final = 1
FULL: Final = 1_000
"""So many records at once mean a backlog: the next fetch does not wait."""


class Results(OrderedDict[TopicPartition, Any]):
    """aiokafka's buffer of fetched results; what is unpacked from it is a `Record` at once.

    Its own record has eleven fields in a dictionary and costs as much as a small command.
    """

    def __setitem__(self, tp: TopicPartition, result: Any) -> None:
        if isinstance(result, FetchResult):
            result._partition_records._consumer_record = _record
        super().__setitem__(tp, result)


def _record(tp: TopicPartition, record: Any) -> Record:
    headers = record.headers
    return Record(
        tp.topic,
        tp.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple(headers) if headers else (),
    )


class Thread(driver.AIOKafkaConsumerThread):
    """Owns aiokafka's consumer; every method with a leading underscore runs in this thread."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seeks = 0
        """Grows with each seek: what was fetched before it is worth nothing."""
        self._chain: dict[TopicPartition, int] = {}

    async def on_start(self) -> None:
        await super().on_start()
        fetcher = self._ensure_consumer()._fetcher
        fetcher._records = Results(fetcher._records)

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # read by AIOKafkaConsumer.start(); Faust has no settings for them
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def _fetch_records(
        self,
        consumer: Any,
        active_partitions: Any,
        timeout: Any = None,  # noqa: ASYNC109 - Faust's signature
        max_records: Any = None,
    ) -> Any:
        """(seeks, [(tp, records, start, end)]); positions are exact also over control markers."""
        try:
            fetched = await super()._fetch_records(
                consumer, active_partitions, timeout=timeout, max_records=max_records
            )
        except NoOffsetForPartitionError:
            return self.seeks, []  # aiokafka looked for a committed offset before we sought
        except OffsetOutOfRangeError as error:
            if self._sought_to(error.args[0]):
                raise
            return self.seeks, []  # it stood at a committed offset, which is not our position
        # no await from here on: records, positions and `seeks` belong together
        assignment = consumer._subscription.subscription.assignment
        parts: list[tuple[TP, list[Any], int, int]] = []
        for tp, records in fetched.items():
            state = assignment.state_value(tp) if assignment.active else None
            place = TopicPartition(tp.topic, tp.partition)
            if state is not None and place in self._chain:
                end = state.position
                parts.append((TP(tp.topic, tp.partition), records, self._chain[place], end))
                self._chain[place] = end
        return self.seeks, parts

    def _sought_to(self, offsets: Mapping[TopicPartition, int]) -> bool:
        return any(self._chain.get(tp) == offset for tp, offset in offsets.items())

    async def seek_all(
        self, known: Mapping[Place, int | None], others: Iterable[Any]
    ) -> tuple[dict[Place, int], int]:
        """Seek every source partition to its known position, or the beginning of an unread one."""
        return await self.call_thread(self._seek_all, dict(known), list(others))  # type: ignore[no-any-return]

    async def _seek_all(
        self, known: dict[Place, int | None], others: list[Any]
    ) -> tuple[dict[Place, int], int]:
        consumer = self._ensure_consumer()
        tps = [TopicPartition(*place) for place in known]
        begin: Mapping[Any, int] = await consumer.beginning_offsets(tps) if tps else {}
        end: Mapping[Any, int] = await consumer.end_offsets(tps) if tps else {}
        positions = check_positions(known, begin, end)
        if others:  # changelogs are read by a reader of their own: keep aiokafka from prefetching
            consumer.pause(*[TopicPartition(*tp) for tp in others])
        self._chain = {}
        for place, position in positions.items():
            tp = TopicPartition(*place)
            consumer.seek(tp, position)
            self._chain[tp] = position
        self.seeks += 1
        return positions, self.seeks

    def seen(self) -> dict[Place, Seen]:
        """Where the consumer stands, from what the broker said last. Reads numbers only."""
        subscription = self._consumer._subscription.subscription if self._consumer else None
        assignment = subscription.assignment if subscription else None
        places: dict[Place, Seen] = {}
        if assignment is None or not assignment.active:
            return places
        for tp, handed in list(self._chain.items()):
            state = assignment.tps and tp in assignment.tps and assignment.state_value(tp)
            if state and state.has_valid_position and state.lso is not None:
                places[tp.topic, tp.partition] = Seen(state.position, state.lso, handed)
        return places

    async def commit_lazily(self, positions: Mapping[Place, int]) -> None:
        """Group offsets, for lag tools only: whatever goes wrong does not matter."""
        await self.call_thread(self._commit_lazily, dict(positions))

    async def _commit_lazily(self, positions: dict[Place, int]) -> None:
        consumer = self._ensure_consumer()
        mine = consumer.assignment()
        offsets = {
            TopicPartition(*place): OffsetAndMetadata(position, "")
            for place, position in positions.items()
            if TopicPartition(*place) in mine
        }
        if offsets:
            try:
                await consumer.commit(offsets)
            except (KafkaError, ValueError) as error:
                log.debug("group offsets not committed", extra={"error": repr(error)})

    async def leave_group(self) -> None:
        """Give the partitions away now, a static member too: a planned stop is not a crash."""
        await self.call_thread(self._leave_group)

    async def _leave_group(self) -> None:
        coordinator = self._ensure_consumer()._coordinator
        coordinator._group_instance_id = None
        await coordinator.close()


class Consumer(driver.Consumer):
    """Fetches batches for the agents."""

    app: Any
    engine: Engine
    can_resume_flow: Any
    _thread: Thread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.engine = self.app.engine
        self._seeks = 0
        self._tails: dict[TP, Batch] = {}
        self._left = False

    def _new_consumer_thread(self) -> Thread:
        return Thread(self, loop=self.loop, beacon=self.beacon)

    # ---- Faust's bookkeeping of offsets is not used: positions are part of the transaction

    def ack(self, message: Any) -> bool:
        if message.acked:
            return False
        message.acked = True
        self._unacked_messages.discard(message)
        return True

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: FBT001, FBT002
        return False

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: FBT001, FBT002
        return False

    async def verify_all_partitions_active(self) -> None:
        """Looks at acks and commits; the engine has a watchdog instead."""

    async def create_topic(self, *_: Any, **__: Any) -> None:
        """Topics are made by whoever installs the system, never here."""

    async def wait_empty(self) -> None:
        """Partitions are revoked, or the app stops: running transactions are finished first."""
        await self.engine.quiesce()
        if self.app.should_stop:
            await self._leave()

    async def on_stop(self) -> None:
        await self.engine.quiesce()
        await self._leave()
        await self.engine.stop()
        await super().on_stop()

    async def _leave(self) -> None:
        if not self._left:
            self._left = True
            await self._thread.leave_group()

    async def perform_seek(self) -> None:
        """After fence and recovery: seek, and tell the engine where everything stands."""
        positions, self._seeks = await self._thread.seek_all(
            self.engine.positions(), [tp for tp in self.assignment() if self._is_changelog_tp(tp)]
        )
        self._tails = {}
        self.sought = positions

    sought: Mapping[Place, int] = {}

    async def _drain_messages(self, fetcher: Any) -> None:
        """One Faust message for each batch; a batch that waits just grows."""
        self._tails = {}
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                if self.flow_active:
                    await self._fetch()
                else:
                    await self.wait(self.can_resume_flow)
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise
        except OffsetOutOfRangeError as error:
            leave(DOUBT, f"a source was trimmed or cut under our position: {error}")
        except KafkaError as error:
            leave(DOUBT, f"fetching failed: {error!r}")

    async def _fetch(self) -> None:
        may_fetch = self.engine.may_fetch
        wanted = self._get_active_partitions()
        active = {tp for tp in wanted if may_fetch(tp.topic, tp.partition)}
        if not active:
            await asyncio.sleep(0.01 if wanted and self.engine.ready else 0.1)
            return
        timeout = 1.0 if len(active) == len(wanted) else 0.02
        fetched: Any = await self._thread.getmany(active, timeout=timeout)
        if not fetched:  # the flow was stopped meanwhile
            return
        seeks, parts = fetched
        if seeks != self._seeks or not self.flow_active:
            return  # fetched before a seek: it will be fetched again
        for tp, records, start, end in parts:
            await self._hand_over(tp, records, start, end)
        pause = self.engine.fetch_pause()
        if pause and 0 < sum(len(records) for _, records, _, _ in parts) < FULL:
            await asyncio.sleep(pause)

    async def _hand_over(self, tp: TP, records: list[Any], start: int, end: int) -> None:
        tail = self._tails.get(tp)
        if (
            tail is not None
            and tail.growing
            and tail.end == start
            and len(tail.records) + len(records) <= GROWN_MAX
        ):
            tail.records.extend(records)
            tail.end = end
            return
        batch = self._tails[tp] = Batch(tp.topic, tp.partition, records, start, end)
        first = records[0]
        whole: Any = batch  # Faust means bytes
        message = ConsumerMessage(
            tp.topic,
            tp.partition,
            first.offset,
            first.timestamp / 1000.0,
            LOG_APPEND_TIME,
            None,
            None,
            whole,
            None,
            0,
            0,
            tp,
            generation_id=self.app.consumer_generation_id,
        )
        await self.callback(message)


class Producer(driver.Producer):
    """No producer: what an app sends, it sends in a transaction."""

    async def on_start(self) -> None:
        """There is nothing to connect."""

    async def on_stop(self) -> None:
        """There is nothing to close."""

    async def flush(self) -> None:
        """There is nothing to flush."""

    async def create_topic(self, *_: Any, **__: Any) -> None:
        """Topics are made by whoever installs the system, never here."""

    async def send(self, topic: str, *_: Any, **__: Any) -> NoReturn:
        raise _forbidden(topic)

    async def send_and_wait(self, topic: str, *_: Any, **__: Any) -> NoReturn:
        raise _forbidden(topic)

    def send_soon(self, fut: Any) -> NoReturn:
        raise _forbidden(str(fut))


def _forbidden(topic: str) -> PlainSendForbiddenError:
    return PlainSendForbiddenError(
        f"a plain send to {topic} would be outside of the transaction; use step.send"
    )


class Transport(driver.Transport):
    Consumer = Consumer
    Producer = Producer
