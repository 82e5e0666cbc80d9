"""Appending: own batches, one produce a batch, and no failure without a word."""

import asyncio
from typing import Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

from schema.codec import MESSAGE_BYTES_MAX
from schema.routes import Route
from schema.settings import Kafka
from schema.wires.log.places import (
    Appended,
    Headers,
    LogUnavailableError,
    MessageTooLongError,
    Place,
    Untyped,
    milliseconds,
)
from schema.wires.log.starting import start

BATCH_BYTES_MAX: Final = 262_144
WINDOW_SECONDS: Final = 0.005
BUFFER_MAX: Final = 20_000
_RETRY_SECONDS: Final = 0.5


class _Batch:
    """What is gathered for one partition, and who waits for it."""

    __slots__ = ("builder", "expiry", "futures", "handed_over", "overdue", "place")

    def __init__(self, place: Place, builder: Untyped) -> None:
        self.place = place
        self.builder = builder
        self.expiry: asyncio.TimerHandle | None = None
        self.futures: list[asyncio.Future[Appended]] = []
        self.handed_over = False
        self.overdue = False

    def stand(self, base_offset: int) -> None:
        """The records stand in the log, from this offset on."""
        self._stop_timer()
        topic, partition = self.place
        for index, future in enumerate(self.futures):
            if not future.done():
                future.set_result(Appended(topic, partition, base_offset + index))

    def fail(self, message: str, *, in_doubt: bool) -> None:
        """Tell everybody who waits."""
        self._stop_timer()
        for future in self.futures:
            if not future.done():
                future.set_exception(LogUnavailableError(message, in_doubt=in_doubt))

    def _stop_timer(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class _Lane:
    """The way to one partition: batches in order, one at a time in the hands of the client."""

    __slots__ = ("overdue", "sender", "waiting")

    def __init__(self) -> None:
        self.waiting: list[_Batch] = []
        self.sender: asyncio.Task[None] | None = None
        self.overdue = 0
        """Batches that were handed over, not answered in time, and are still on their way."""


class LogWriter:
    """An idempotent producer (`acks=all`) that batches by itself and never fails silently.

    While a batch of a partition is overdue (handed over, not answered in time, still being tried),
    further appends to that partition fail at once and write nothing.
    """

    def __init__(
        self,
        kafka: Kafka,
        *,
        client_id: str = "cutlog",
        window_seconds: float = WINDOW_SECONDS,
        buffer_max: int = BUFFER_MAX,
    ) -> None:
        self._kafka = kafka
        self._client_id = client_id
        self._window = window_seconds
        self._buffer_max = buffer_max
        self._lanes: dict[Place, _Lane] = {}
        self._producer: Untyped | None = None
        self._connecting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._unanswered = 0
        self._open = False

    @property
    def unanswered(self) -> int:
        """Appends that wait for their answer."""
        return self._unanswered

    async def start(self) -> None:
        """Connect; raises LogUnavailableError when no broker answers in time."""
        await self._connected()
        self._open = True

    async def start_unless(self, stopping: asyncio.Event) -> None:
        """Connect, trying until a broker answers: who comes before it is early, not wrong."""
        while not stopping.is_set():
            try:
                await self.start()
            except LogUnavailableError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def stop(self) -> None:
        """Send what waits, then close. What is not answered in time fails, in doubt."""
        self._open = False
        senders = [lane.sender for lane in self._lanes.values() if lane.sender is not None]
        if senders:
            await asyncio.wait(senders, timeout=self._kafka.request_timeout_seconds)
        for sender in senders:
            sender.cancel()
        if self._producer is not None:
            self._lose(self._producer)
        if self._closing:
            await asyncio.gather(*self._closing)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def append(self, route: Route, value: bytes, headers: Headers = ()) -> Appended:
        """Append one record; returns where it stands once every in-sync replica has it.

        Raises LogUnavailableError within the request timeout of the settings.
        """
        future = self._add(route, value, headers)
        self._unanswered += 1
        try:
            return await future
        finally:
            self._unanswered -= 1

    def _add(self, route: Route, value: bytes, headers: Headers) -> "asyncio.Future[Appended]":
        if len(value) > MESSAGE_BYTES_MAX:
            raise MessageTooLongError(f"{len(value)} bytes; at most {MESSAGE_BYTES_MAX}")
        if not self._open:
            raise LogUnavailableError("the writer is not open")
        if self._unanswered >= self._buffer_max:
            raise LogUnavailableError(f"{self._unanswered} appends are unanswered")
        place = Place(str(route.topic), route.partition)
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane()
        if lane.overdue:
            raise LogUnavailableError(f"{place.topic}/{place.partition} does not answer")
        key = route.key.encode()
        batch = lane.waiting[-1] if lane.waiting else self._new_batch(lane, place)
        fields = {"timestamp": None, "key": key, "value": value, "headers": list(headers)}
        if batch.builder.append(**fields) is None:
            batch = self._new_batch(lane, place)
            batch.builder.append(**fields)
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        batch.futures.append(future)
        if lane.sender is None:
            lane.sender = asyncio.create_task(self._send(lane))
        return future

    def _new_batch(self, lane: _Lane, place: Place) -> _Batch:
        codec = DefaultRecordBatch.CODEC_ZSTD if self._kafka.zstd else 0
        batch = _Batch(place, BatchBuilder(BATCH_BYTES_MAX, codec))
        batch.expiry = asyncio.get_running_loop().call_later(
            self._kafka.request_timeout_seconds, self._expire, lane, batch
        )
        lane.waiting.append(batch)
        return batch

    def _expire(self, lane: _Lane, batch: _Batch) -> None:
        """No answer in time: tell those who wait, and take nothing new for this partition."""
        if batch.handed_over:
            batch.overdue = True
            lane.overdue += 1
        elif batch in lane.waiting:
            lane.waiting.remove(batch)
        where = f"{batch.place.topic}/{batch.place.partition}"
        batch.fail(f"{where} did not answer in time", in_doubt=batch.handed_over)

    async def _send(self, lane: _Lane) -> None:
        """Hand the batches of a lane over, one after the other, until none waits."""
        await asyncio.sleep(self._window)
        while lane.waiting:
            try:
                producer = await self._connected()
            except LogUnavailableError as error:
                for batch in lane.waiting:
                    batch.fail(str(error), in_doubt=False)
                lane.waiting.clear()
                break
            if lane.waiting:
                await self._hand_over(producer, lane, lane.waiting.pop(0))
        lane.sender = None

    async def _hand_over(self, producer: Untyped, lane: _Lane, batch: _Batch) -> None:
        topic, partition = batch.place
        batch.handed_over = True
        try:
            answer: asyncio.Future[Untyped] = await producer.send_batch(
                batch.builder, topic, partition=partition
            )
        except KafkaTimeoutError as error:
            # The client never took it: batches before it are still on their way.
            self._settle(lane, batch, error, in_doubt=False)
            return
        except KafkaError as error:
            self._settle(lane, batch, error, in_doubt=False)
            self._lose(producer)
            return

        def answered(done: "asyncio.Future[Untyped]") -> None:
            if done.cancelled() or done.exception() is not None:
                error = None if done.cancelled() else done.exception()
                self._settle(lane, batch, error, in_doubt=True)
                # The sequence of this producer has a hole now; only a new one can go on.
                self._lose(producer)
            else:
                self._settle(lane, batch, None, in_doubt=False)
                batch.stand(done.result().offset)

        answer.add_done_callback(answered)

    def _settle(
        self, lane: _Lane, batch: _Batch, error: BaseException | None, *, in_doubt: bool
    ) -> None:
        if batch.overdue:
            batch.overdue = False
            lane.overdue -= 1
        if error is not None or in_doubt:
            batch.fail(f"{batch.place.topic}: {error!r}", in_doubt=in_doubt)

    def _lose(self, producer: Untyped) -> None:
        """Go on without this producer; what it still holds gets its answer or fails."""
        if self._producer is producer:
            self._producer = None
            task = asyncio.create_task(_close(producer, self._kafka.request_timeout_seconds))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _connected(self) -> Untyped:
        if self._producer is None:
            async with self._connecting:
                if self._producer is None:
                    self._producer = await self._connect()
        return self._producer

    async def _connect(self) -> Untyped:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._kafka.brokers,
            client_id=self._client_id,
            enable_idempotence=True,
            acks="all",
            compression_type="zstd" if self._kafka.zstd else None,
            max_batch_size=BATCH_BYTES_MAX,
            request_timeout_ms=milliseconds(self._kafka),
        )
        await start(producer, self._kafka.request_timeout_seconds, lambda: _close(producer, 0))
        return producer


async def _close(producer: Untyped, timeout_seconds: float) -> None:
    """Stop a producer; what the broker does not take in time fails instead of hanging."""
    try:
        async with asyncio.timeout(timeout_seconds):
            await producer.flush()
    except TimeoutError:
        # aiokafka tries for ever and its stop() waits for ever: end the batches first.
        producer._message_accumulator.fail_all(KafkaTimeoutError())  # noqa: SLF001
    try:
        await producer.stop()
    except KeyError:
        # Its sender wanted to put one of them back; what is left to close are the connections.
        await producer.client.close()
