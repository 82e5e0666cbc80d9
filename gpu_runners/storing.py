"""A finished result on its way to the object store, while its slot works on something else.

An attempt that stores leaves its slot as soon as there is room for it beside the slots: so many
results, so many bytes on the disk. Its files go up side by side, each offered again and again until
the store has taken it or the time for storing is over.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from schema.wires.telemetry import facts

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.5
_PAUSE_SECONDS_MAX = 15.0


class StoreError(Exception):
    """The object store did not do what it was asked, for now."""


class Stored(Protocol):
    """What a store says of an object that it took."""

    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...


class Keeper(Protocol):
    """The part of the object store that takes results."""

    async def keep(self, key: str, path: Path, content_type: str) -> Stored:
        """Upload a local file under a name that nobody else writes. Raises StoreError."""
        ...


class Parcel(NamedTuple):
    """One file to be stored."""

    key: str
    path: Path
    content_type: str


class StoringRoom:
    """What a runner may have beside its slots of what is being stored. First come, first in."""

    def __init__(self, results_max: int, bytes_max: int) -> None:
        self._results_max = results_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.results = 0
        self.bytes = 0

    async def enter(self, size: int) -> None:
        """Wait until there is room for a result of so many bytes, and take it.

        One that could never come in keeps nobody else out; it waits until it is canceled.
        """
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._results_max > 0 and size <= self._bytes_max:
            self._waiting.append((size, entered))
            self._let_in()
        try:
            await entered
        except asyncio.CancelledError:
            if entered.done() and not entered.cancelled():
                self.leave(size)  # it was let in at the very moment
            else:
                self._waiting = deque(one for one in self._waiting if one[1] is not entered)
                self._let_in()
            raise

    def leave(self, size: int) -> None:
        """It is stored, or is not going to be: nothing of it is on the disk any more."""
        self.results -= 1
        self.bytes -= size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self.results < self._results_max:
            size, entered = self._waiting[0]
            if self.bytes + size > self._bytes_max:
                return
            self._waiting.popleft()
            self.results += 1
            self.bytes += size
            entered.set_result(None)


class Uploads:
    """Brings files to the store: for so long, so many of one attempt at a time."""

    def __init__(self, store: Keeper, *, seconds: float, parallel_max: int) -> None:
        self._store = store
        self._seconds = seconds
        self._parallel_max = parallel_max

    async def keep_all(self, parcels: Sequence[Parcel]) -> list[Stored]:
        """Store all of them within the one time that there is; in the order given.

        Raises StoreError, and then the rest is not tried any longer.
        """
        until = time.monotonic() + self._seconds
        places = asyncio.Semaphore(self._parallel_max)

        async def keep(parcel: Parcel) -> Stored:
            async with places:
                return await self._keep_until(parcel, until)

        uploads = [asyncio.create_task(keep(parcel)) for parcel in parcels]
        try:
            return await asyncio.gather(*uploads)
        finally:
            for upload in uploads:
                upload.cancel()
            await asyncio.gather(*uploads, return_exceptions=True)

    async def keep_one(self, parcel: Parcel) -> Stored:
        """Store one file. Raises StoreError."""
        return await self._keep_until(parcel, time.monotonic() + self._seconds)

    async def _keep_until(self, parcel: Parcel, until: float) -> Stored:
        """Until then and no longer, whatever the store does."""
        pause = _PAUSE_SECONDS
        while True:
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    return await self._store.keep(*parcel)
            except TimeoutError as error:
                raise StoreError(f"{parcel.key}: the time to store it is over") from error
            except StoreError as error:
                rest = until - time.monotonic()
                if pause > rest:
                    raise
                log.warning(
                    "the store did not take a file", extra=facts(key=parcel.key, error=str(error))
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)
