"""The object store's wires on stores that do not do their part: every call ends, as an error."""

import asyncio
import hashlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from schema.settings import Objects
from schema.wires.objects import ObjectStore, ObjectStoreUnavailableError, StoredPart
from tests.support.bad_stores import HOST, BadStore, Manner

pytestmark = pytest.mark.timeout(300)
STILL_SECONDS: Final = 1.0
ENOUGH_SECONDS: Final = 60
"""In which a call that ends has ended on any machine; one that hangs never does."""
LARGE: Final = bytes(range(256)) * (16 << 12)
SMALL: Final = b"a small body"
PART: Final = StoredPart(1, 1, "etag")


def objects(url: str) -> Objects:
    return Objects(endpoint=url, access_key="a", secret_key="b")


async def drained(store: ObjectStore) -> int:
    return sum([len(chunk) async for chunk in store.stream("k")])


def calls(store: ObjectStore, folder: Path) -> dict[str, Awaitable[Any]]:
    """Everything that is asked of a store."""
    large, small = folder / "large", folder / "small"
    large.write_bytes(LARGE)
    small.write_bytes(SMALL)
    kind = {"content_type": "video/mp4"}
    return {
        "put_file of a large one": store.put_file("k", large, **kind),
        "put_file of a small one": store.put_file("k", small, **kind),
        "put of a large one": store.put("k", LARGE, **kind),
        "put of a small one": store.put("k", SMALL, **kind),
        "put of nothing": store.put("k", b"", **kind),
        "put_part of a large one": store.put_part("k", "u", 1, LARGE),
        "put_part of a small one": store.put_part("k", "u", 1, SMALL),
        "head": store.head("k"),
        "get": store.get("k"),
        "get_file": store.get_file("k", folder / "got"),
        "digest": store.digest("k"),
        "stream": drained(store),
        "read_range": store.read_range("k", 0, 100),
        "sizes": store.sizes("k/"),
        "page": store.page("k/", "", 10),
        "parts": store.parts("k", "u"),
        "create_upload": store.create_upload("k", **kind),
        "complete_upload": store.complete_upload("k", "u", [PART]),
        "abort_upload": store.abort_upload("k", "u"),
        "copy": store.copy("k", "l", **kind),
        "move_to_class": store.move_to_class("k", "COLD"),
        "delete": store.delete("k"),
        "ensure_bucket": store.ensure_bucket(),
    }


HEAD_IS_WHOLE: Final = {Manner.TRICKLES_ANSWER, Manner.STOPS_IN_ANSWER, Manner.CUTS_ANSWER}
"""Who is asked for no more than a head has it whole from them."""


@pytest.mark.parametrize("manner", list(Manner), ids=lambda one: one.name.lower())
async def test_no_call_outlasts_a_store_that_does_not_do_its_part(
    manner: Manner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schema.wires.objects.COPY_SECONDS", STILL_SECONDS)
    async with (
        BadStore(manner) as bad,
        ObjectStore(objects(bad.url), timeout_seconds=STILL_SECONDS) as store,
    ):
        asked = calls(store, tmp_path)
        async with asyncio.timeout(ENOUGH_SECONDS):
            ended = await asyncio.gather(*asked.values(), return_exceptions=True)
    told = {name: type(end) for name, end in zip(asked, ended, strict=True)}
    expected: dict[str, Any] = dict.fromkeys(asked, ObjectStoreUnavailableError)
    if manner in HEAD_IS_WHOLE:
        expected |= {name: told[name] for name in ("head", "ensure_bucket")}
    assert told == expected


async def test_a_page_that_is_no_answer_of_a_store_is_one_that_is_away() -> None:
    page = b"<html><body>Please sign in"

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + page)
        writer.close()

    server = await asyncio.start_server(proxy, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with ObjectStore(objects(f"http://{HOST}:{port}"), timeout_seconds=30) as store:
        for ask in (
            lambda: store.sizes("k/"),
            lambda: store.page("k/", "", 10),
            lambda: store.parts("k", "u"),
        ):
            with pytest.raises(ObjectStoreUnavailableError):
                await ask()
    server.close()


BLOCK_BYTES: Final = 256 << 10
PACE_SECONDS: Final = 0.06
SLOW_STILL_SECONDS: Final = 3.0


class SlowStore:
    """Takes and gives a block at each step of `pace`."""

    def __init__(self, pace: Callable[[], Awaitable[None]]) -> None:
        self._pace = pace
        self.taken = hashlib.sha256()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await (self._take(reader, writer) if head.startswith(b"PUT") else self._give(writer))
        writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _block in range(len(LARGE) // BLOCK_BYTES):
            await self._pace()
            self.taken.update(await reader.readexactly(BLOCK_BYTES))
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n')

    async def _give(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE))
        for start in range(0, len(LARGE), BLOCK_BYTES):
            await self._pace()
            writer.write(LARGE[start : start + BLOCK_BYTES])
            await writer.drain()


async def test_what_is_slow_and_moves_may_take_longer_than_a_call_may_stand_still(
    tmp_path: Path,
) -> None:
    """The pace is far from the bound: 16 blocks a second, and 3 seconds of standing still.

    A body has 64 blocks, so it takes longer than that, and only a machine that holds still for
    three seconds would end it.
    """
    slow = SlowStore(lambda: asyncio.sleep(PACE_SECONDS))
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    listening.bind((HOST, 0))
    server = await asyncio.start_server(slow, sock=listening, limit=BLOCK_BYTES)
    port = listening.getsockname()[1]
    (tmp_path / "large").write_bytes(LARGE)
    digest = hashlib.sha256(LARGE).hexdigest()
    loop = asyncio.get_running_loop()
    place = objects(f"http://{HOST}:{port}")
    async with ObjectStore(place, timeout_seconds=SLOW_STILL_SECONDS) as store:
        began = loop.time()
        put = await store.put_file("k", tmp_path / "large", content_type="video/mp4")
        took = loop.time() - began
        assert (put.size, put.sha256, slow.taken.hexdigest()) == (len(LARGE), digest, digest)
        assert await store.get_file("k", tmp_path / "got") == (len(LARGE), digest)
    assert took > SLOW_STILL_SECONDS, "it was no test of that"
    server.close()
