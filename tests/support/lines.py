"""A TCP line to a server that counts what is sent over it, and can be cut or held at a count.

It stands between a client and the object store as a bad network does: a cut resets every
connection that is open, a held line takes nothing more and says nothing.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Final

HOST: Final = "127.0.0.1"
_BLOCK_BYTES: Final = 32 << 10
_TAKEN: Final = b"HTTP/1.1 2"
_START_SECONDS: Final = 10


class _Request:
    """The request that a connection is at: a new one begins with what comes after an answer."""

    def __init__(self) -> None:
        self.sent = 0
        self.answered = False

    def add(self, count: int) -> bool:
        """So many more bytes; whether a new request began with them."""
        new = self.answered or not self.sent
        self.sent = count if new else self.sent + count
        self.answered = False
        return new


class Line:
    """Forwards to `target`, which is asked for at each connection. Works in a thread of its own."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._at: dict[asyncio.StreamWriter, _Request] = {}
        self._cuts: deque[int] = deque()
        self._hold_at: int | None = None
        self._free = asyncio.Event()
        self._free.set()
        self.held = threading.Event()
        """Set once the line holds."""
        self.sent = 0
        """Bytes towards the server."""
        self.requests = 0
        self.lost = 0
        """Bytes of requests that ended without an answer, or with one that refuses them."""
        self.lost_by_cuts: list[int] = []
        """How much of that by each cut."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def cut_at(self, *counts: int) -> None:
        """Reset all connections when so many more bytes were sent; counts rise."""
        self._do(self._set_cuts, [self.sent + count for count in counts])

    def hold_at(self, count: int) -> None:
        """Let nothing more through after so many more bytes."""
        self.held.clear()
        self._do(self._set_hold, self.sent + count)

    def release(self) -> None:
        """Whoever waits is cut off; from here on everything goes through."""
        self._do(self._release)

    def start(self) -> None:
        self._thread.start()
        listening: Future[int] = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        self.port = listening.result(_START_SECONDS)

    def stop(self) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_SECONDS)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    # --- in the loop -----------------------------------------------------------------------------

    def _do(self, act: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
        async def acting() -> None:
            act(*arguments)

        asyncio.run_coroutine_threadsafe(acting(), self._loop).result(_START_SECONDS)

    def _set_cuts(self, counts: list[int]) -> None:
        self._cuts = deque(counts)

    def _set_hold(self, count: int) -> None:
        self._hold_at = count

    def _release(self) -> None:
        self._hold_at = None
        self._cut()
        self._free.set()

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._cut()

    def _cut(self) -> None:
        """What is answered counts too: the answer may not have been read."""
        self.lost_by_cuts.append(sum(request.sent for request in self._at.values()))
        self.lost += self.lost_by_cuts[-1]
        self._at.clear()
        for writer in list(self._open):
            writer.transport.abort()
        self._open.clear()

    async def _listen(self) -> int:
        self._server = server = await asyncio.start_server(self._connected, HOST, 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _connected(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        self._open.add(answers)
        try:
            server, requests = await asyncio.open_connection(*self._target())
        except OSError:
            answers.transport.abort()
            return
        self._open.add(requests)
        request = _Request()
        self._at[requests] = request
        ways = (self._up(client, requests, request), self._down(server, answers, request))
        with suppress(OSError):
            await asyncio.gather(*ways)
        if self._at.pop(requests, None) is not None and not request.answered:
            self.lost += request.sent
        for writer in (answers, requests):
            self._open.discard(writer)
            writer.transport.abort()

    async def _up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: _Request
    ) -> None:
        while block := await reader.read(_BLOCK_BYTES):
            if writer not in self._at:
                return  # cut off, and this had come before
            self.sent += len(block)
            self.requests += request.add(len(block))
            if self._hold_at is not None and self.sent >= self._hold_at:
                self._free.clear()
                self.held.set()
            await self._free.wait()
            if self._cuts and self.sent >= self._cuts[0]:
                self._cuts.popleft()
                self._cut()
                return
            writer.write(block)
            await writer.drain()
        writer.close()

    async def _down(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: _Request
    ) -> None:
        while block := await reader.read(_BLOCK_BYTES):
            if not request.answered and not block.startswith(_TAKEN):
                self.lost += request.sent
            request.answered = True
            writer.write(block)
            await writer.drain()
        writer.close()


@contextmanager
def running_line(target: Callable[[], tuple[str, int]]) -> Generator[Line]:
    """A line that is open inside the block."""
    line = Line(target)
    line.start()
    try:
        yield line
    finally:
        line.stop()
