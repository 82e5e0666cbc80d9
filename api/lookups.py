"""Many look-ups at once in one query: requests that arrive while one runs share the next.

Two queries at most are on their way; under load their batches grow, and a request pays a share
of one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")
Found = TypeVar("Found")

BATCH_MAX = 1_000


class Lookups(Generic[Key, Found]):
    """Answers `get` by asking `fetch` for many keys; absent keys are None."""

    def __init__(
        self,
        fetch: Callable[[list[Key]], Awaitable[Mapping[Key, Found]]],
        *,
        gather_seconds: float = 0.002,
        at_once: int = 2,
    ) -> None:
        self._fetch = fetch
        self._gather_seconds = gather_seconds
        self._at_once = at_once
        self._waiting: dict[Key, asyncio.Future[Found | None]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def get(self, key: Key) -> Found | None:
        """What is found under the key, or None; raises whatever `fetch` raises."""
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            if len(self._running) < self._at_once:
                task = asyncio.create_task(self._run())
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        # Others may wait for the same key: one that gives up must not take it from them.
        return await asyncio.shield(future)

    async def _run(self) -> None:
        await asyncio.sleep(self._gather_seconds)
        while self._waiting:
            keys = list(self._waiting)[:BATCH_MAX]
            batch = {key: self._waiting.pop(key) for key in keys}
            try:
                found = await self._fetch(keys)
            except Exception as error:  # noqa: BLE001 - handed to those who asked
                for future in batch.values():
                    future.set_exception(error)
                    future.exception()  # whoever asked may have gone
            else:
                for key, future in batch.items():
                    future.set_result(found.get(key))
