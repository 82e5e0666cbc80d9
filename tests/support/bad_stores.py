"""Object stores that take a connection and then do not do their part, each in a way of its own.

Each listens on a real socket whose kernel keeps little, so that a body nobody reads comes to stand
still early.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final, Self

HOST: Final = "127.0.0.1"
_RECEIVED_BYTES_MAX: Final = 64 << 10
_SOME_BYTES: Final = 100_000
_TRICKLE_SECONDS: Final = 0.05
_STEPS_OF_ACCEPTING: Final = 10
"""Of the loop, after which a connection that it took before is with its handler."""
_LONG_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


class Manner(StrEnum):
    """What a bad store does."""

    NEVER_ACCEPTS = "takes the connection in its kernel and reads nothing"
    STOPS_AFTER_HEAD = "reads the head and no more"
    CONTINUES = "says 100 and no more"
    STOPS_IN_BODY = "reads some of the body and no more"
    TAKES_ALL = "reads everything and says nothing"
    TRICKLES_HEAD = "answers a byte of a head at a time"
    TRICKLES_ANSWER = "answers a byte of a body at a time"
    STOPS_IN_ANSWER = "answers a head and some of a body"
    CUTS_BODY = "cuts the line in the middle of what it is sent"
    CUTS_ANSWER = "cuts the line in the middle of its answer"
    FAILS = "says 500 for ever"
    BABBLES = "says what is no HTTP"


class BadStore:
    """A listening socket with bad manners, inside `async with`."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self._socket = socket.socket()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_BYTES_MAX)
        self._socket.bind((HOST, 0))
        self._socket.listen(128)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        if self._manner is not Manner.NEVER_ACCEPTS:
            self._server = await asyncio.start_server(
                self._connected, sock=self._socket, limit=_RECEIVED_BYTES_MAX
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for _step in range(_STEPS_OF_ACCEPTING):
            await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(lambda _: writer.transport.abort())
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await _CALLS[self._manner](reader, writer)


async def _head(reader: asyncio.StreamReader) -> int:
    """Read the head of a request; how long its body is."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read a whole request; whoever asks before it sends its body is told to go on."""
    left = await _head(reader)
    if left:
        await _tell(writer, b"HTTP/1.1 100 Continue\r\n\r\n")
    while left:
        left -= len(await reader.readexactly(min(left, _RECEIVED_BYTES_MAX)))


async def _tell(writer: asyncio.StreamWriter, what: bytes) -> None:
    writer.write(what)
    await writer.drain()


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def _trickle(writer: asyncio.StreamWriter) -> None:
    while True:
        await _tell(writer, b"x")
        await asyncio.sleep(_TRICKLE_SECONDS)


async def _stop_after_head(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await _head(reader)
    await _for_ever()


async def _continue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _head(reader)
    await _tell(writer, b"HTTP/1.1 100 Continue\r\n\r\n")
    await _for_ever()


async def _read_some(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    size = await _head(reader)
    await _tell(writer, b"HTTP/1.1 100 Continue\r\n\r\n")
    await reader.readexactly(min(size // 2, _SOME_BYTES))


async def _stop_in_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _read_some(reader, writer)
    await _for_ever()


async def _take_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader, writer)
    await _for_ever()


async def _trickle_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader, writer)
    await _tell(writer, b"HTTP/1.1 200 OK\r\nX-Long: ")
    await _trickle(writer)


async def _trickle_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader, writer)
    await _tell(writer, _LONG_ANSWER)
    await _trickle(writer)


async def _stop_in_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader, writer)
    await _tell(writer, _LONG_ANSWER + b"x" * 1_000)
    await _for_ever()


async def _cut_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader, writer)
    await _tell(writer, _LONG_ANSWER + b"x" * 1_000)
    writer.write_eof()


async def _fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await _request(reader, writer)
        await _tell(writer, b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")


async def _babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader, writer)
    await _tell(writer, b"\x00 hello, whoever you are\r\n\r\n")
    writer.write_eof()


_CALLS: Final[
    dict[Manner, Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]]
] = {
    Manner.STOPS_AFTER_HEAD: _stop_after_head,
    Manner.CONTINUES: _continue,
    Manner.STOPS_IN_BODY: _stop_in_body,
    Manner.TAKES_ALL: _take_all,
    Manner.TRICKLES_HEAD: _trickle_head,
    Manner.TRICKLES_ANSWER: _trickle_answer,
    Manner.STOPS_IN_ANSWER: _stop_in_answer,
    Manner.CUTS_BODY: _read_some,
    Manner.CUTS_ANSWER: _cut_answer,
    Manner.FAILS: _fail,
    Manner.BABBLES: _babble,
}
