"""The owner of one partition number: takes what waits, has it worked, writes the transaction."""

# aiokafka's clients have no types.
# ruff: noqa: ANN401

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from processors.engine import transaction
from processors.engine.clients import close_quietly
from processors.engine.errors import EngineError, StayDownError, UnknownVersionError
from processors.engine.exits import DOUBT, UNKNOWN_VERSION, leave
from processors.engine.metrics import Metrics
from processors.engine.order import Batch, Waiting
from processors.engine.pace import Pace
from processors.engine.settings import Settings
from processors.engine.ticker import Ticker
from processors.engine.writer import Effects, Writer

log = logging.getLogger(__name__)


class Shared:
    """What the owners of one process have in common."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.slots = asyncio.Semaphore(settings.in_flight_max)
        self.pace = Pace(
            seconds_max=settings.pace_seconds_max,
            rate_min=settings.pace_rate_min,
            rate_max=settings.pace_rate_max,
        )
        self.stay_down: Callable[[str], None] = lambda _: None


class Owner:
    """Partition number n of every source: the one place where its transactions are made."""

    def __init__(self, writer: Writer, producer: Any, waiting: Waiting, shared: Shared) -> None:
        self.writer = writer
        self.producer = producer
        self.waiting = waiting
        self.open = False
        self.recovered = False
        """The writer holds the whole state: it may be kept over a rebalance."""
        self.ticker: Ticker | None = None
        self.moved_at = time.monotonic()
        """When a transaction or a batch without effect was last finished."""
        self._shared = shared
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._started = 0.0
        self._written = time.monotonic()
        self._committed = -math.inf
        self._unwritten = 0

    @property
    def number(self) -> int:
        return self.writer.number

    @property
    def fenced_as(self) -> tuple[int, int]:
        """Producer id and epoch: whoever comes after us has another."""
        manager = self.producer._txn_manager  # noqa: SLF001
        return manager.producer_id, manager.producer_epoch

    def submit(self, batch: Batch) -> None:
        """A fetched batch, from the agent of its topic."""
        if self.open:
            self.waiting.add(batch)
            self._wake.set()

    def start(self, ticker: Ticker) -> None:
        self.ticker = ticker
        self.open = True
        self.moved_at = time.monotonic()
        self._task = asyncio.create_task(self._run(), name=f"owner-{self.number}")

    def close(self) -> None:
        """No new transaction from now on; what waits will be fetched again by somebody."""
        self.open = False
        self.waiting.clear()
        self._wake.set()

    async def finished(self) -> None:
        """The transaction at work, if any, is over."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Close for good; the producer's connections go too."""
        self.close()
        await self.finished()
        await close_quietly(self.producer)

    async def beat(self) -> None:
        """Once a second: the tick, and positions that have ridden long enough."""
        if self.open and self.ticker is not None:
            await self.ticker.beat()
            if self._flush_due():
                self._wake.set()

    def just_wrote(self) -> bool:
        """Whether the last transaction may not have ended in every partition yet."""
        since = time.monotonic() - self._committed
        return self.open and since < self._shared.settings.ending_seconds_max

    # ---------------------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while True:
            while self.open and not self._work_waits():
                self._wake.clear()
                await self._wake.wait()
            if self.open:
                await self._pause()
            async with self._shared.slots:
                if not self.open:
                    return
                self._idle.clear()
                try:
                    await self._transaction()
                finally:
                    self._idle.set()

    def _work_waits(self) -> bool:
        return bool(self.waiting) or bool(self.writer.quarantine.releasing) or self._flush_due()

    def _flush_due(self) -> bool:
        if not self.writer.riding:
            return False
        settings = self._shared.settings
        late = time.monotonic() - self._written > settings.flush_seconds_max
        return late or self._unwritten > settings.flush_records_max

    async def _pause(self) -> None:
        """Let more come together, until it is enough."""
        end = self._started + self._shared.pace.seconds
        while self.open and not self.waiting.full() and (rest := end - time.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._wake.wait()

    async def _transaction(self) -> None:
        self._started = time.monotonic()
        try:
            effects = self._work()
            if effects is not None:
                await self._write(effects)
        except UnknownVersionError as error:
            leave(UNKNOWN_VERSION, f"partition {self.number}: {error}")
        except StayDownError as error:
            self._shared.stay_down(f"partition {self.number}: {error}")
            return
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            if not isinstance(error, EngineError):
                log.exception("transaction failed", extra={"partition": self.number})
            leave(DOUBT, f"partition {self.number}: transaction failed: {error!r}")
        self.moved_at = time.monotonic()
        if self.writer.more_due and self.ticker is not None:
            await self.ticker.again()

    def _work(self) -> Effects | None:
        writer, metrics = self.writer, self._shared.metrics
        poison = writer.poison
        writer.release()
        for batch in self.waiting.take():
            writer.apply(batch)
        records = writer.commands
        effects = writer.take(force=self._flush_due())
        self._shared.pace.count(records)
        metrics.commands.inc(records)
        metrics.working.inc(time.monotonic() - self._started)
        if writer.poison != poison:
            metrics.poison.inc(writer.poison - poison)
        self._unwritten = 0 if effects is not None else self._unwritten + records
        return effects

    async def _write(self, effects: Effects) -> None:
        settings, metrics = self._shared.settings, self._shared.metrics
        number = self.number
        batches = transaction.build(
            self.producer, effects, (settings.changelog, number), (settings.journal, number)
        )
        start = time.monotonic()
        async with asyncio.timeout(settings.transaction_seconds_max):
            await self.commit(self.producer, batches)
        self._written = self._committed = time.monotonic()
        metrics.transactions.inc()
        metrics.batch.observe(effects.commands)
        metrics.seconds.observe(self._written - start)

    commit: Callable[[Any, Any], Awaitable[None]] = staticmethod(transaction.commit)
    """Tests put a slow one here."""
