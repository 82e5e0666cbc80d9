"""What a process says of itself: JSON lines, metrics and health over HTTP, the ready file."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from prometheus_client import Counter

from schema.wires.telemetry import (
    HealthServer,
    end_tasks,
    facts,
    new_registry,
    set_up_logging,
    stop_quietly,
    write_ready_file,
)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    set_up_logging("tester", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_log_line_is_json_with_a_constant_message_and_facts(lines: io.StringIO) -> None:
    log = logging.getLogger("some.module")
    log.info("position moved", extra=facts(topic="task-events", offset=7, place=Path("x")))
    try:
        int("no")
    except ValueError:
        log.exception("failed")
    first, second = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (
        first.items()
        >= {
            "level": "info",
            "process": "tester",
            "logger": "some.module",
            "message": "position moved",
            "topic": "task-events",
            "offset": 7,
            "place": "x",
        }.items()
    )
    assert first["at"].endswith("Z")
    assert "ValueError: invalid" in second["exception"]


class Watched:
    """A server whose readiness a test moves by hand."""

    def __init__(self) -> None:
        self.problem: str | None = "starting"
        self.registry = new_registry()
        self.server = HealthServer(self.registry, ready=lambda: self.problem)

    async def ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    one = Watched()
    await one.server.start()
    yield one
    await one.server.stop()


async def test_health_is_served_with_the_reason_and_metrics_with_their_values(
    watched: Watched,
) -> None:
    Counter("cutlog_tests", "Tests", registry=watched.registry).inc()
    alive = await watched.ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert alive.startswith(b"HTTP/1.1 200 OK\r\n")
    waiting = await watched.ask(b"GET /readyz?verbose HTTP/1.1\r\n\r\n")
    assert waiting.startswith(b"HTTP/1.1 503 ")
    assert json.loads(waiting.partition(b"\r\n\r\n")[2]) == {"ok": False, "problem": "starting"}
    watched.problem = None
    assert b" 200 " in await watched.ask(b"GET /readyz HTTP/1.1\r\n\r\n")
    metrics = await watched.ask(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert b"cutlog_tests_total 1.0" in metrics
    assert b"process_cpu_seconds_total" in metrics
    assert b" 404 " in await watched.ask(b"GET /nothing HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    "request_", [b"\r\n", b"nonsense\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_get_is_hung_up_on(watched: Watched, request_: bytes) -> None:
    assert await watched.ask(request_) == b""
    assert b" 200 " in await watched.ask(b"GET /healthz HTTP/1.1\r\n\r\n")


def test_the_ready_file_is_whole_and_an_empty_name_writes_none(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ready.json"
    write_ready_file(path, metrics_port=7)
    told = json.loads(path.read_text())
    assert told["metrics_port"] == 7
    assert told["pid"] > 0
    assert [one.name for one in path.parent.iterdir()] == ["ready.json"]
    write_ready_file("", metrics_port=7)


async def test_a_part_that_does_not_stop_cleanly_holds_up_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise OSError("gone")

    await stop_quietly(fail)
    assert "a part did not stop cleanly" in caplog.text


async def test_a_task_that_loses_a_cancellation_is_ended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("schema.wires.telemetry._CANCEL_AGAIN_SECONDS", 0.01)
    for_ever = asyncio.Event()
    lost: list[str] = []

    async def loser() -> None:
        try:
            await for_ever.wait()
        except asyncio.CancelledError:
            lost.append("once")
        await for_ever.wait()

    async def failed() -> None:
        raise OSError("gone")

    tasks = [asyncio.create_task(loser()), asyncio.create_task(failed())]
    await asyncio.sleep(0)
    ends = await end_tasks(*tasks)
    assert lost == ["once"]
    assert [type(end) for end in ends] == [asyncio.CancelledError, OSError]
