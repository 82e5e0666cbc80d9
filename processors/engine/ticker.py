"""Ticks: the owner of a partition appends one a second to its ticked topics.

The commands go there too, so a tick never overtakes one; at most one is unread.

A plain idempotent producer, not the transactional one: a tick only says that somebody serves, its
time is the broker's, one too many does no harm, and it must not wait for, or cost, a transaction.
While the broker is away the one tick waits in the producer.
"""

# aiokafka ships no types; what it hands out is unknown, and stays so.
# ruff: noqa: ANN401
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import logging
import time
from typing import Any, Final

from aiokafka.errors import KafkaError

from processors.engine.records import TICK_KEY
from processors.engine.writer import Writer

log = logging.getLogger(__name__)

TICK_VALUE: Final = b"{}"


class Ticker:
    """Appends the ticks of one partition number."""

    def __init__(self, producer: Any, writer: Writer) -> None:
        self._producer = producer
        self._writer = writer
        self._sent: dict[str, tuple[asyncio.Future[Any], float]] = {}
        self._silent_since: dict[str, float] = {}
        """When the first of the ticks was sent of which none has come back."""

    async def beat(self) -> None:
        """Once a second, and once when the partition opens."""
        for topic in self._writer.ticked:
            if not self._unread(topic):
                await self._send(topic)

    async def again(self) -> None:
        """After a transaction: topics with more due get their next tick at once."""
        for topic in tuple(self._writer.more_due):
            self._writer.more_due.discard(topic)
            if not self._unread(topic):
                await self._send(topic)

    def waiting_seconds(self) -> float:
        """For how long the oldest unread tick has not come back: the whole way is stuck."""
        now = time.monotonic()
        sent = tuple(self._sent.items())
        return max((now - at for topic, (_, at) in sent if self._unread(topic)), default=0.0)

    def silent_seconds(self) -> float:
        """For how long no tick has come back, ticks that failed included; any thread may ask."""
        now = time.monotonic()
        return max((now - since for since in tuple(self._silent_since.values())), default=0.0)

    def _unread(self, topic: str) -> bool:
        sent = self._sent.get(topic)
        if sent is None:
            return False
        future, _ = sent
        if not future.done():
            return True
        if future.cancelled() or future.exception() is not None:
            log.warning("tick not appended", extra={"topic": topic, "error": repr(future)})
            del self._sent[topic]
            return False
        if self._writer.positions.get(topic, 0) <= future.result().offset:
            return True
        self._silent_since.pop(topic, None)
        return False

    async def _send(self, topic: str) -> None:
        self._silent_since.setdefault(topic, time.monotonic())
        try:
            future = await self._producer.send(
                topic, TICK_VALUE, key=TICK_KEY, partition=self._writer.number
            )
        except KafkaError as error:
            log.warning("tick not sent", extra={"topic": topic, "error": repr(error)})
            return
        self._sent[topic] = (future, time.monotonic())
