"""Progress between milestones: merged, kept for ten seconds, pushed once a second and user at most.

Reads the topic `progress` from its end and keeps no position: what was missed is outdated. Nothing
here is ever the truth, so what Redis does not take is dropped.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from projections.notices import CHANNEL, listeners
from schema.codec import PROGRESS, UnknownVersionError, UnreadableMessageError, encode
from schema.progress import ProgressReported, merge
from schema.wires.log import LogBatch, LogReader, LogUnavailableError
from schema.wires.telemetry import facts

KEY: Final = "progress:"
KEPT_SECONDS: Final = 10
PUSH_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)


class Pending:
    """What was reported and not pushed yet, and when each user was last pushed to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: dict[str, dict[str, ProgressReported]] = {}
        self._pushed: dict[str, float] = {}

    def add(self, report: ProgressReported) -> None:
        """Merge a report with what waits of its task."""
        tasks = self._reports.setdefault(report.user_id, {})
        before = tasks.get(report.task_id)
        tasks[report.task_id] = report if before is None else merge(before, report)

    def due(self) -> dict[str, list[ProgressReported]]:
        """What may be pushed now, by user; each user at most once in PUSH_SECONDS."""
        now = self._clock()
        self._pushed = {user: at for user, at in self._pushed.items() if now - at < PUSH_SECONDS}
        ready = [user for user in self._reports if user not in self._pushed]
        self._pushed.update(dict.fromkeys(ready, now))
        return {user: list(self._reports.pop(user).values()) for user in ready}


class Progress:
    """From the topic to Redis."""

    def __init__(self, reader: LogReader, redis: "Redis") -> None:
        self._reader = reader
        self._redis: Any = redis
        self._pending = Pending()

    async def run(self) -> None:
        """Read and push for ever."""
        try:
            await self._begin()
            pushed_at = 0.0
            while True:
                for batch in await self._reader.read(_LOOK_SECONDS):
                    self._take(batch)
                if time.monotonic() - pushed_at >= _LOOK_SECONDS:
                    pushed_at = time.monotonic()
                    await self._push()
        finally:
            await self._reader.stop()

    async def _begin(self) -> None:
        while True:
            try:
                await self._reader.start()
                await self._reader.seek_to_end()
            except LogUnavailableError as error:
                _log.warning("progress waits for the log", extra=facts(error=str(error)))
                await self._reader.stop()
                await asyncio.sleep(1)
            else:
                return

    def _take(self, batch: LogBatch) -> None:
        for record in batch.records:
            try:
                self._pending.add(PROGRESS.decode(record.value or b""))
            except (UnreadableMessageError, UnknownVersionError) as error:
                _log.warning("progress not read", extra=facts(error=str(error)))

    async def _push(self) -> None:
        due = self._pending.due()
        if not due:
            return
        try:
            listening = await listeners(self._redis)
            pipe = self._redis.pipeline(transaction=False)
            for user_id, reports in due.items():
                for report in reports:
                    pipe.set(KEY + report.task_id, encode(report), ex=KEPT_SECONDS)
                if user_id in listening:
                    message = {"kind": "progress", "reports": reports}
                    pipe.publish(CHANNEL + user_id, msgspec.json.encode(message))
            await pipe.execute()
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("progress not told", extra=facts(error=repr(error)))
