"""Redis as the api sees it: news of users' tasks as they are committed, progress, shared counters.

One subscription a process and user, fanned out to the streams of this process. Nothing here is
the truth: a stream that may have missed something is told so (`stale`) and reads the read model
again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from schema.ids import TaskId, UserId
from schema.message import KeywordOnly
from schema.progress import ProgressReported
from schema.settings import Redis
from schema.wires.telemetry import facts

CONNECT_SECONDS = 1.0
QUEUE_MAX = 1_000
_PREFIX = "events:"
_CONTROL = "cutlog-api"
_RETRY_SECONDS = 0.5
_READ_SECONDS = 5.0
_log = logging.getLogger(__name__)


class LiveEvent(msgspec.Struct, metaclass=KeywordOnly, frozen=True):
    """A stored event as it is published after its commit."""

    id: str
    task_id: TaskId
    seq: int
    kind: str
    event: msgspec.Raw


class News(msgspec.Struct, metaclass=KeywordOnly, frozen=True):
    """One message of a user's channel."""

    kind: Literal["events", "progress"]
    events: tuple[LiveEvent, ...] = ()
    reports: tuple[ProgressReported, ...] = ()


_decode = msgspec.json.Decoder(News).decode
_decode_progress = msgspec.json.Decoder(ProgressReported).decode


class Listener:
    """One stream's ear: what came since it last looked."""

    def __init__(self) -> None:
        self._news: deque[News] = deque()
        self._awake = asyncio.Event()
        self.stale = False
        """Something may have been missed since `wait` was last answered."""

    def push(self, news: News) -> None:
        if len(self._news) >= QUEUE_MAX:
            self.lose()
        else:
            self._news.append(news)
            self._awake.set()

    def lose(self) -> None:
        """Forget what waits: it will be read again from the read model."""
        self._news.clear()
        self.stale = True
        self._awake.set()

    async def wait(self, seconds: float) -> list[News]:
        """What came; nothing after so long, or when the listener is stale or the process stops."""
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            self.stale = True
            return []
        self._awake.clear()
        news = list(self._news)
        self._news.clear()
        return news


class Live:
    """The connection to Redis."""

    def __init__(self, settings: Redis) -> None:
        self._redis: Any = redis.Redis.from_url(
            settings.url,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=5,
        )
        self._pubsub: Any = None
        self._listeners: dict[UserId, set[Listener]] = {}
        self._subscribed: set[UserId] = set()
        self._confirmed: dict[UserId, asyncio.Event] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self.connected = False
        self.stopping = False

    async def run(self) -> None:
        """Keep a subscription for ever."""
        while True:
            try:
                await self._serve()
            except (RedisError, OSError, RuntimeError) as error:
                if self.connected:
                    _log.warning("live news are away", extra=facts(error=repr(error)))
            self.connected = False
            for listener in self._everyone():
                listener.lose()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _serve(self) -> None:
        async with self._redis.pubsub() as pubsub:
            async with self._changing:
                self._subscribed = set(self._listeners)
                channels = [_PREFIX + user_id for user_id in self._subscribed]
                await pubsub.subscribe(_CONTROL, *channels)
                self._pubsub = pubsub
            self.connected = True
            try:
                while True:
                    message = await pubsub.get_message(timeout=_READ_SECONDS)
                    if message is not None:
                        self._take(message)
            finally:
                self._pubsub = None
                self._confirmed.clear()

    def _take(self, message: Mapping[str, Any]) -> None:
        channel = message["channel"].decode()
        if not channel.startswith(_PREFIX):
            return
        user_id = UserId(channel[len(_PREFIX) :])
        match message["type"]:
            case "message":
                self._tell(user_id, message["data"])
            case "subscribe":
                # Also after a connection that was lost and found again by the client itself.
                self._confirmation(user_id).set()
                for listener in self._listeners.get(user_id, ()):
                    listener.lose()
            case _:
                return

    def _tell(self, user_id: UserId, data: bytes) -> None:
        listeners = self._listeners.get(user_id)
        if not listeners:
            return
        try:
            news = _decode(data)
        except msgspec.DecodeError as error:
            _log.warning("news cannot be read", extra=facts(error=str(error)))
            for listener in listeners:
                listener.lose()
            return
        for listener in listeners:
            listener.push(news)

    @asynccontextmanager
    async def listen(self, user_id: UserId) -> AsyncGenerator[Listener]:
        """Hear of a user's tasks from here on; without Redis one hears nothing, and is told so."""
        listener = Listener()
        self._listeners.setdefault(user_id, set()).add(listener)
        try:
            await self._subscribe(user_id)
            yield listener
        finally:
            listeners = self._listeners[user_id]
            listeners.discard(listener)
            if not listeners:
                del self._listeners[user_id]
                # Not awaited: a stream that is canceled here has no time left.
                task = asyncio.create_task(self._unsubscribe(user_id))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def _subscribe(self, user_id: UserId) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                async with self._changing:
                    if self._pubsub is not None and user_id not in self._subscribed:
                        await self._pubsub.subscribe(_PREFIX + user_id)
                        self._subscribed.add(user_id)
                if self.connected:
                    await self._confirmation(user_id).wait()
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("no live news for a stream", extra=facts(error=repr(error)))

    async def _unsubscribe(self, user_id: UserId) -> None:
        try:
            async with self._changing:
                if user_id in self._listeners or user_id not in self._subscribed:
                    return
                self._subscribed.discard(user_id)
                self._confirmed.pop(user_id, None)
                if self._pubsub is not None:
                    await self._pubsub.unsubscribe(_PREFIX + user_id)
        except (RedisError, OSError, TimeoutError):
            return  # the connection is gone, and the subscription with it

    def _confirmation(self, user_id: UserId) -> asyncio.Event:
        return self._confirmed.setdefault(user_id, asyncio.Event())

    def _everyone(self) -> list[Listener]:
        return [listener for some in self._listeners.values() for listener in some]

    def stop(self) -> None:
        """Wake every stream: the process stops."""
        self.stopping = True
        for listener in self._everyone():
            listener.lose()

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def progress(self, task_ids: Sequence[str]) -> dict[str, ProgressReported]:
        """The latest word on running tasks; none without Redis."""
        if not task_ids or not self.connected:
            return {}
        try:
            values = await self._redis.mget([f"progress:{task_id}" for task_id in task_ids])
            found = zip(task_ids, values, strict=True)
            return {task_id: _decode_progress(value) for task_id, value in found if value}
        except (RedisError, OSError, TimeoutError, msgspec.DecodeError):
            return {}

    async def add(self, counts: Mapping[str, int], seconds: int) -> dict[str, int]:
        """Add to counters in one round trip; raises OSError without Redis."""
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for name, count in counts.items():
                    pipeline.incrby(name, count)
                    pipeline.expire(name, seconds)
                answers = await pipeline.execute()
        except RedisError as error:
            raise OSError(str(error)) from error
        return dict(zip(counts, answers[::2], strict=True))
