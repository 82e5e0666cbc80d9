"""Stored events told to whoever watches now, through Redis, after they are committed.

Only channels that somebody listens to get anything. Who listens is asked after the commit, so a
watcher that subscribes first and then reads the stored events misses none: either they were there
when it read, or it was heard. After a doubt (this process is new, Redis was away for long) every
watcher is told to read again.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from projections.folding import Fact
from schema.wires.telemetry import facts as log_facts

CHANNEL: Final = "events:"
WAITING_MAX: Final = 50_000
_BACKOFF_SECONDS: Final = 0.5
_encode = msgspec.json.Encoder().encode
_AGAIN: Final = _encode({"kind": "again"})
_log = logging.getLogger(__name__)


class Notices:
    """Tells committed events in their order; keeps them while Redis is away."""

    def __init__(self, redis: "Redis", epoch: str) -> None:
        self._redis: Any = redis
        self._epoch = epoch
        self._waiting: list[Fact] = []
        self._more = asyncio.Event()
        self._again = True
        self._more.set()

    def tell(self, committed: Iterable[Fact]) -> None:
        """These events are committed. Never waits."""
        self._waiting.extend(committed)
        if len(self._waiting) > WAITING_MAX:
            self._waiting.clear()
            self._again = True
        self._more.set()

    async def run(self) -> None:
        """Tell for ever; what Redis does not take is told when it is back."""
        while True:
            await self._more.wait()
            self._more.clear()
            waiting, self._waiting = self._waiting, []
            again, self._again = self._again, False
            try:
                await self._publish(waiting, again=again)
            except (RedisError, OSError, TimeoutError) as error:
                self._again = self._again or again
                self._waiting[:0] = waiting
                self._more.set()
                _log.warning("events not told", extra=log_facts(error=repr(error)))
                await asyncio.sleep(_BACKOFF_SECONDS)

    async def _publish(self, committed: list[Fact], *, again: bool) -> None:
        listening = await listeners(self._redis)
        if not listening:
            return
        by_user: dict[str, list[Fact]] = defaultdict(list)
        for fact in committed:
            if fact.message.user_id in listening:
                by_user[fact.message.user_id].append(fact)
        pipe = self._redis.pipeline(transaction=False)
        if again:
            for user_id in listening:
                pipe.publish(CHANNEL + user_id, _AGAIN)
        for user_id, told in by_user.items():
            pipe.publish(CHANNEL + user_id, self._message(told))
        await pipe.execute()

    def _message(self, told: list[Fact]) -> bytes:
        events = [
            {
                "id": f"{self._epoch}:{fact.partition}:{fact.offset}",
                "task_id": fact.message.task_id,
                "seq": fact.message.seq,
                "kind": fact.message.__struct_config__.tag,
                "event": msgspec.Raw(fact.value),
            }
            for fact in told
        ]
        return _encode({"kind": "events", "events": events})


async def listeners(redis: Any) -> set[str]:  # noqa: ANN401 - redis types its answers loosely
    """The users whose channel has a subscriber now."""
    channels = await redis.pubsub_channels(f"{CHANNEL}*")
    return {channel.decode()[len(CHANNEL) :] for channel in channels}
