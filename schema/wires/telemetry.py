"""What a process says of itself: logs as JSON lines, metrics, health, and the file that says ready.

A log line has a constant message and its facts in fields:
`log.info("position moved", extra=facts(topic=..., offset=...))`. Processes without HTTP of their
own serve /metrics, /healthz and /readyz by `HealthServer`.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

_REQUEST_SECONDS: Final = 5
_REQUEST_LINES_MAX: Final = 100
_CANCEL_AGAIN_SECONDS: Final = 1.0
_encode = msgspec.json.Encoder().encode
Problem = str | None
"""Why a process is not ready (or not healthy); None: it is."""


def facts(**fields: object) -> dict[str, object]:
    """Facts of a log line, to be given as its `extra`."""
    return {"facts": fields}


class JsonLines(logging.Formatter):
    """One line of JSON a record."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, process, logger, message, then the facts."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def set_up_logging(process: str, *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Log everything of this process as JSON lines on stderr; libraries from WARNING up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for library in ("aiokafka", "aiobotocore", "botocore", "faust", "mode", "httpx", "asyncio"):
        logging.getLogger(library).setLevel(logging.WARNING)


def new_registry() -> CollectorRegistry:
    """A registry of this process, with what Python and the kernel know of it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def write_ready_file(path: str | Path, **fields: object) -> None:
    """Say that the process is ready, atomically: JSON with its pid and `fields`. Empty path: no."""
    if not str(path):
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    fresh.write_bytes(_encode({"pid": os.getpid(), **fields}))
    fresh.replace(target)


class HealthServer:
    """A tiny HTTP server: /metrics, /healthz (alive), /readyz (503 with the reason when not).

    `more` is asked for any other path: a JSON document, or None.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        ready: Callable[[], Problem],
        healthy: Callable[[], Problem] = lambda: None,
        host: str = "127.0.0.1",
        port: int = 0,
        more: Callable[[str], bytes | None] = lambda _: None,
    ) -> None:
        self._registry = registry
        self._more = more
        self._ready = ready
        self._healthy = healthy
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that it listens on (given, or chosen by the system)."""
        if self._server is None:
            return self._port
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, self._host, self._port)

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                path = await _request_path(reader)
                status, kind, body = self._answer(path)
                head = (
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # whoever asked went away, or never spoke HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, path: str) -> tuple[str, str, bytes]:
        match path:
            case "/metrics":
                return "200 OK", "text/plain; version=0.0.4", generate_latest(self._registry)
            case "/healthz":
                return _verdict(self._healthy())
            case "/readyz":
                return _verdict(self._ready())
            case _:
                document = self._more(path)
                if document is None:
                    return "404 Not Found", "application/json", b'{"problem":"no such path"}'
                return "200 OK", "application/json", document


def _verdict(problem: Problem) -> tuple[str, str, bytes]:
    if problem is None:
        return "200 OK", "application/json", b'{"ok":true}'
    body = _encode({"ok": False, "problem": problem})
    return "503 Service Unavailable", "application/json", body


async def _request_path(reader: asyncio.StreamReader) -> str:
    """The path of a GET; reads and forgets the headers."""
    method, target, _ = (await reader.readline()).decode("latin-1").split(" ", 2)
    for _ in range(_REQUEST_LINES_MAX):
        if (await reader.readline()).strip() == b"":
            break
    if method != "GET":
        raise ValueError(method)
    return target.partition("?")[0]


async def stop_quietly(stop: Callable[[], Awaitable[None]]) -> None:
    """Stop a part at the end of a process; what fails then is logged and holds up nobody."""
    try:
        await stop()
    except Exception:
        logging.getLogger(__name__).exception("a part did not stop cleanly")


async def end_tasks(*tasks: "asyncio.Task[Any]") -> list[Any]:
    """Cancel tasks until they have ended; what each of them returned or raised.

    Once is not enough: `asyncio.wait_for` of Python 3.11, which redis and aiokafka wait by, loses
    a cancellation that comes in the moment in which what it waits for is done.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)
    return await asyncio.gather(*tasks, return_exceptions=True)
