"""Many look-ups at once in one query: requests that arrive while one runs share the next.

One query is on its way at a time. Alone, a request waits for nobody; under load a short pause
between queries lets batches grow, and a request pays a small share of one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")
Found = TypeVar("Found")

BATCH_MAX = 1_000
PAUSE_SECONDS = 0.012


class Lookups(Generic[Key, Found]):
    """Answers `get` by asking `fetch` for many keys; absent keys are None."""

    def __init__(
        self,
        fetch: Callable[[list[Key]], Awaitable[Mapping[Key, Found]]],
        *,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._fetch = fetch
        self._pause_seconds = pause_seconds
        self._waiting: dict[Key, asyncio.Future[Found | None]] = {}
        self._running: asyncio.Task[None] | None = None

    async def get(self, key: Key) -> Found | None:
        """What is found under the key, or None; raises whatever `fetch` raises."""
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            if self._running is None:
                self._running = asyncio.create_task(self._run())
        # Others may wait for the same key: one that gives up must not take it from them.
        return await asyncio.shield(future)

    async def _run(self) -> None:
        while self._waiting:
            keys = list(self._waiting)[:BATCH_MAX]
            await self._answer({key: self._waiting.pop(key) for key in keys})
            if self._waiting:
                await asyncio.sleep(self._pause_seconds)
        self._running = None

    async def _answer(self, batch: dict[Key, "asyncio.Future[Found | None]"]) -> None:
        try:
            found = await self._fetch(list(batch))
        except Exception as error:  # noqa: BLE001 - handed to those who asked
            for future in batch.values():
                future.set_exception(error)
                future.exception()  # whoever asked may have gone
        else:
            for key, future in batch.items():
                future.set_result(found.get(key))
