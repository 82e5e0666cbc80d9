"""The load: an open loop of submissions over plain sockets, in a process of its own.

`python -m tests.benchmarks.lifecycles.load PLAN.json`: waits for a line on stdin, submits at a
fixed rate, prints one JSON line. Latency counts from the instant at which a submission was due: a
server that falls behind cannot hide it. Every `sample_every`-th accepted task is printed as it is
answered, with its due time, for whoever waits for the SUCCEEDED row.
"""

import asyncio
import sys
import time
from collections import deque
from pathlib import Path
from typing import cast

import msgspec
import uvloop

_STEP_SECONDS = 0.002
_DRAIN_SECONDS = 15


class LoadPlan(msgspec.Struct, kw_only=True):
    host: str
    port: int
    tokens: list[str]
    rate: float
    seconds: float
    warm_seconds: float
    connections: int = 128
    sample_every: int = 20
    run: str
    parameters: str = '{"no_op":true}'


class Sampled(msgspec.Struct, tag="sampled"):
    """A task that somebody may wait for; `due` in seconds of the system's monotonic clock."""

    task_id: str
    due: float


class LoadReport(msgspec.Struct, tag="report", kw_only=True):
    sent: int
    accepted: int
    refused: dict[str, int]
    latencies_ms: list[float]
    """Of the counted submissions, sorted."""
    window_seconds: float


class _Load:
    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.free: deque[_Connection] = deque()
        self.waiting: deque[tuple[float, int]] = deque()
        self.latencies: list[float] = []
        self.accepted = 0
        self.answered = 0
        self.refused: dict[str, int] = {}
        self.count_from = 0.0
        self.heads = [
            (
                f"POST /v1/tasks HTTP/1.1\r\nHost: {plan.host}\r\nAuthorization: Bearer {token}\r\n"
                "Content-Type: application/json\r\nIdempotency-Key: "
            ).encode()
            for token in plan.tokens
        ]
        body = f'{{"scene":"rehearsal","parameters":{plan.parameters}}}'.encode()
        self.tail = b"\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    def request(self, number: int) -> bytes:
        head = self.heads[number % len(self.heads)]
        return head + f"{self.plan.run}-{number}".encode() + self.tail

    def done(self, due: float, number: int, status: bytes, body: bytes) -> None:
        now = time.monotonic()
        self.answered += 1
        if due >= self.count_from:
            self.latencies.append((now - due) * 1000)
        if status == b"202":
            self.accepted += 1
            if due >= self.count_from and number % self.plan.sample_every == 0:
                task_id = msgspec.json.decode(body)["task_id"]
                _say(Sampled(task_id, due))
        else:
            kind = status.decode("latin-1")
            if kind not in self.refused:
                print(body[:400], file=sys.stderr)
            self.refused[kind] = self.refused.get(kind, 0) + 1


class _Connection(asyncio.Protocol):
    """One keep-alive connection with one request under way."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._buffer = b""
        self._due = 0.0
        self._number = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own kind
        self._load.free.append(self)

    def submit(self, due: float, number: int) -> None:
        assert self._transport is not None
        self._due, self._number = due, number
        self._transport.write(self._load.request(number))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        at = head.index(b"content-length: ") + len(b"content-length: ")
        length = int(head[at:].split(b"\r", 1)[0])
        if len(self._buffer) < end + 4 + length:
            return
        body = self._buffer[end + 4 : end + 4 + length]
        self._buffer = b""
        self._load.done(self._due, self._number, head[9:12], body)
        if self._load.waiting:
            self.submit(*self._load.waiting.popleft())
        else:
            self._load.free.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self in self._load.free:
            self._load.free.remove(self)


async def run(plan: LoadPlan) -> None:
    """Connect, wait for the word, submit, report."""
    load = _Load(plan)
    loop = asyncio.get_running_loop()
    for _ in range(plan.connections):
        await loop.create_connection(lambda: _Connection(load), plan.host, plan.port)
    await loop.run_in_executor(None, sys.stdin.readline)
    began = time.monotonic()
    load.count_from = began + plan.warm_seconds
    total = plan.warm_seconds + plan.seconds
    number = 0
    while (now := time.monotonic()) - began < total:
        while (due := began + number / plan.rate) <= now:
            if load.free:
                load.free.popleft().submit(due, number)
            else:
                load.waiting.append((due, number))
            number += 1
        await asyncio.sleep(_STEP_SECONDS)
    until = time.monotonic() + _DRAIN_SECONDS
    while load.answered < number and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    _say(
        LoadReport(
            sent=number,
            accepted=load.accepted,
            refused=load.refused
            | ({"unanswered": number - load.answered} if load.answered < number else {}),
            latencies_ms=sorted(load.latencies),
            window_seconds=plan.seconds,
        )
    )


def _say(message: Sampled | LoadReport) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=LoadPlan)))
