"""HTTP/1.1 with bounds: uvicorn's httptools protocol has none for headers, neither size nor time.

A head (request line and headers) is at most `HEAD_BYTES_MAX` long and arrives within
`HEAD_SECONDS`; what is no HTTP is answered as a problem, like every other refusal.
"""

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from api.problems import Door, at_the_door

HEAD_BYTES_MAX: Final = 16_384
HEAD_SECONDS: Final = 10.0


class HeadTooLargeError(Exception):
    """Raised inside the parser's callbacks to end the parsing of this connection."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    head_seconds: float = HEAD_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - handed on
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._fields_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head or not self._head_bytes or self.parser is None:
            return
        if not self.transport.is_closing():
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(Door.HEADERS_TOO_LARGE)
            elif self._head_timer is None:
                self._arm()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._fields_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._disarm()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words are not ours
        too_large = self._fields_bytes > HEAD_BYTES_MAX
        self._refuse(Door.HEADERS_TOO_LARGE if too_large else Door.BAD_REQUEST)

    def _count(self, size: int) -> None:
        """Counts trailers too, which the parser hands over like headers."""
        self._fields_bytes += size
        if self._fields_bytes > HEAD_BYTES_MAX:
            raise HeadTooLargeError

    def _arm(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self._late)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _late(self) -> None:
        self._head_timer = None
        if self._in_head and not self._busy() and not self.transport.is_closing():
            self.transport.close()

    def _busy(self) -> bool:
        """Whether a response is owed. Before the first request there is no cycle at all."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _refuse(self, door: Door) -> None:
        """Answer and close. A response that is being written is cut off instead."""
        self._disarm()
        if not self._busy():
            problem = at_the_door(door)
            body = problem.body()
            lines = [f"{name}: {value}\r\n" for name, value in problem.all_headers().items()]
            head = "".join([*lines, f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"])
            self.transport.write(STATUS_LINE[problem.status] + head.encode("latin-1") + body)
        self.transport.close()
