"""Load, faults and the collection of evidence, on a whole installation of its own."""

import asyncio
import contextlib
import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition

from cutlog.installation import LOCAL_POLICY, Installation, Plan, RunnerPlan
from cutlog.stack.stack import PartName
from cutlog.up import Up
from schema.settings import load as load_settings
from schema.settings import need
from schema.wires.objects import ObjectMissingError, ObjectStore
from tests.faults.proof import (
    EVENT_TOPICS,
    Json,
    Proof,
    RawRecord,
    StoredBytes,
    prove,
    result_keys,
)

SESSION_SECONDS: Final = 4
STOPPED_SECONDS: Final = 7
"""Beyond the session, so that a successor has taken over when the sleeper wakes."""
USERS: Final = 400
TENANTS: Final = 40
_READ_TOPICS = (*EVENT_TOPICS, "dead-letters", "refusals")
_ASK_SECONDS = 10
_UNANSWERED_MAX = 500
"""Nobody new asks while so many wait: on a slow machine their repeats would be all that it does."""
_OBJECTS_AT_ONCE = 8


class Fault(NamedTuple):
    """What is done to whom: `kill`, `stop` (and later continue), or `term`."""

    target: str
    kind: str


OURS: Final = ("processor-1", "processor-2", "runner-1", "runner-2", "projector", "api")
PARTS: Final[tuple[PartName, ...]] = ("kafka", "postgres", "valkey", "s3")
EACH_ONCE: Final = (
    *(Fault(target, kind) for target in OURS for kind in ("kill", "stop")),
    *(Fault(part, "kill") for part in PARTS),
)
IN_PAIRS: Final = (
    *(Fault("processor-1", "stop"), Fault("runner-1", "kill")),
    *(Fault("processor-2", "stop"), Fault("api", "kill")),
    *(Fault("runner-1", "stop"), Fault("projector", "kill")),
    *(Fault("runner-2", "stop"), Fault("processor-1", "kill")),
    *(Fault("projector", "stop"), Fault("valkey", "kill")),
    *(Fault("api", "stop"), Fault("runner-2", "kill")),
    *(Fault("processor-2", "kill"), Fault("postgres", "kill")),
    *(Fault("kafka", "kill"), Fault("s3", "kill")),
)
"""The same, two at once: while one process sleeps, something else is killed."""


def write_policy(path: Path) -> Path:
    """The local policy with short leases, beats and delays, and a tier that runs out of quota."""
    policy = json.loads(LOCAL_POLICY.read_bytes())
    policy["pools"]["R"] |= {"lease_seconds": 6, "beat_seconds": 1, "accept_seconds": 3}
    # A drill breaks in a quarter of an hour what a year breaks: with the five losses of the usual
    # policy some tasks would rightly end FAILED, and hide one that failed for a reason of ours.
    # `failed_by_losses` of the proof counts those that came to it nevertheless.
    policy["retries"] = {"delays_ms": [300, 600], "loss_delay_ms": 500, "losses_max": 50}
    policy["retries"]["backstop_seconds"] = 60
    policy["scenes"]["rehearsal"]["run_limit_seconds"] = 30
    policy["tiers"]["scarce"] = {
        "lane": "p1",
        "limits": {
            "rehearsal": {
                "per_minute": 1_000_000,
                "per_day": 1_000_000,
                "credits_month_micros": 2_000_000,
            }
        },
    }
    path.write_text(json.dumps(policy))
    return path


def plan(policy: Path, **more: Any) -> Plan:  # noqa: ANN401 - fields of Plan
    """Two of what may be two, and a session short enough to be outlasted."""
    environ = {"CUTLOG_KAFKA_SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS)}
    return Plan(
        processors=2,
        runners=(RunnerPlan("R", 64), RunnerPlan("R", 64)),
        policy=policy,
        environ=environ,
        **more,
    )


def parameters(number: int) -> Json:
    """Mostly work that is done at once; a tenth stores a file; some fail as asked."""
    if number % 10 == 0:
        return {"seconds": 0.05, "steps": 2, "reports": 2}
    match number % 50:
        case 2:
            return {"no_op": True, "fail": "network", "fail_on_attempts": [1]}
        case 3:
            return {"no_op": True, "fail": "out_of_memory"}
        case 4:
            return {"no_op": True, "fail": "input"}
        case 5:
            return {"seconds": 0.2, "crash": True, "fail_on_attempts": [1]}
        case 6:
            return {"seconds": 4.0, "steps": 40, "no_op": True}
        case _:
            return {"no_op": True}


@dataclass
class Load:
    """Submissions at a rate, each asked again under its key until it has a definite answer."""

    url: str
    tokens: Sequence[str]
    rate: float
    run: str
    accepted: dict[str, int] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    """Answers that no fault excuses: a 500, or a status that nobody documents."""
    asked: int = 0
    unanswered: int = 0
    asked_again: int = 0
    canceled: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience_seconds: float = 90) -> None:
        """Ask nothing new; wait until everything that was asked has its answer."""
        self._stop.set()
        self._thread.join(patience_seconds)

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=200)
        timeout = aiohttp.ClientTimeout(total=_ASK_SECONDS)
        tasks: set[asyncio.Task[None]] = set()
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            began = time.monotonic()
            while not self._stop.is_set():
                while (
                    len(tasks) < _UNANSWERED_MAX
                    and began + self.asked / self.rate <= time.monotonic()
                ):
                    task = asyncio.create_task(self._one(session, self.asked))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    self.asked += 1
                await asyncio.sleep(0.005)
            if tasks:
                await asyncio.wait(tasks, timeout=60)
            self.unanswered = len(tasks)
            for task in tasks:
                task.cancel()

    async def _one(self, session: aiohttp.ClientSession, number: int) -> None:
        token = self.tokens[number % len(self.tokens)]
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"{self.run}-{number}"}
        body = {"scene": "rehearsal", "parameters": parameters(number)}
        pause, began = 0.2, time.monotonic()
        while True:
            try:
                async with session.post(
                    f"{self.url}/v1/tasks", json=body, headers=headers
                ) as answer:
                    found = await answer.json(content_type=None)
                    status = answer.status
            except (aiohttp.ClientError, TimeoutError, ValueError):
                status, found = 0, {}
            if status == 202 and found["status"] != "pending":
                self.latencies_ms.append((time.monotonic() - began) * 1000)
                self.accepted[found["task_id"]] = number
                if number % 97 == 0:
                    await self._cancel(session, found["task_id"], token)
                return
            if status == 429 and found.get("code") in {"quota_exhausted", "contract_exhausted"}:
                self.refused[found["code"]] += 1
                return
            if status not in {0, 202, 429, 503}:
                self.broken[f"{status} {found.get('code')}"] += 1
                return
            self.asked_again += 1
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 2.0)

    async def _cancel(self, session: aiohttp.ClientSession, task_id: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"cancel-{task_id}"}
        try:
            async with session.post(
                f"{self.url}/v1/tasks/{task_id}/cancel", headers=headers
            ) as answer:
                self.canceled += answer.status in {200, 202}
        except (aiohttp.ClientError, TimeoutError):
            return


class Chaos:
    """Applies faults one after another and brings everything back."""

    def __init__(self, up: Up, tell: Callable[[str], None]) -> None:
        self._up = up
        self._tell = tell
        self.done: Counter[str] = Counter()

    def apply(self, faults: Sequence[Fault]) -> None:
        """Do them all at once; returns when everything is ready again."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(faults)) as pool:
            list(pool.map(self._inflict, faults))
        self._up.await_ready(120)
        for fault in faults:
            self.done[f"{fault.kind} {fault.target}"] += 1
        names = ", ".join(f"{fault.kind} {fault.target}" for fault in faults)
        self._tell(f"{names}: ready again after {time.monotonic() - began:.1f} s")

    def _inflict(self, fault: Fault) -> None:
        if fault.target in PARTS:
            part: PartName = fault.target
            stack = self._up.installation.stack
            stack.kill(part)
            time.sleep(1)  # the fault itself: it is away for a moment
            stack.start()
        elif fault.kind == "stop":
            pid = self._up.pid(fault.target)
            self._up.send(fault.target, signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)  # the fault itself
            if self._up.pid(fault.target) == pid:
                self._up.send(fault.target, signal.SIGCONT)
        else:
            self._up.send(fault.target, signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM)
            time.sleep(0.3)  # until it is seen to be gone


@dataclass
class Outcome:
    """What the run came to."""

    proof: Proof
    faults: Counter[str]
    load: Load
    seconds: float
    starts: dict[str, int]

    def ledger(self) -> str:
        """Faults and sums, for people."""
        lines = [f"{count} x {name}" for name, count in sorted(self.faults.items())]
        lines += [f"{name}: {value}" for name, value in self.proof.sums.items()]
        lines.append(
            f"asked {self.load.asked}, again {self.load.asked_again}, unanswered "
            f"{self.load.unanswered}, refused {dict(self.load.refused)}, "
            f"broken {dict(self.load.broken)}, canceled {self.load.canceled}"
        )
        lines.append(f"starts: {self.starts}")
        lines += [f"VIOLATION {words}" for words in self.proof.violations[:20]]
        return "\n".join(lines)


def run(
    directory: Path,
    faults: Sequence[Fault],
    *,
    rate: float,
    tell: Callable[[str], None],
    at_least: int = 0,
    at_once: int = 1,
    pause_seconds: float = 2.0,
    **more: Any,  # noqa: ANN401 - fields of Plan
) -> Outcome:
    """Bring an installation up, load it, break it, let it end everything, prove.

    The faults come one after another, `at_once` at a time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    policy = write_policy(directory / "policy.json")
    installation = Installation(
        directory / "installation", plan=plan(policy, **more), die_with_parent=True
    )
    up = Up(installation, tell)
    up.start()
    try:
        tokens = [
            installation.token(
                f"user-{n}", tenant=f"tenant-{n % TENANTS}", tier="scarce" if n % 8 == 0 else "load"
            )
            for n in range(USERS)
        ]
        began = time.monotonic()
        load = Load(up.api_url, tokens, rate, run=f"{random.randrange(1 << 40):x}")
        load.start()
        time.sleep(pause_seconds)
        chaos = Chaos(up, tell)
        for number in range(0, len(faults), at_once):
            chaos.apply(faults[number : number + at_once])
            time.sleep(pause_seconds)  # some undisturbed load between two faults
        while len(load.accepted) < at_least:
            time.sleep(0.5)
        load.stop()
        tell(f"load over: {len(load.accepted)} accepted; waiting for their ends")
        environ = installation.environ()
        asyncio.run(_await_ends(environ["CUTLOG_POSTGRES_DSN"], list(load.accepted)))
        starts = {name: up.starts(name) for name in up.names}
        log, rows, objects = asyncio.run(_evidence(environ))
        up.stop(stack=False)
        proof = prove(log, load.accepted, rows, objects)
        return Outcome(proof, chaos.done, load, time.monotonic() - began, starts)
    finally:
        up.stop()


async def _await_ends(dsn: str, accepted: Sequence[str], seconds: float = 180) -> None:
    """Until every accepted task has an ended row, or the time is up: then the proof will tell."""
    connection = await asyncpg.connect(dsn)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended = await connection.fetchval(
            "SELECT count(*) FROM tasks WHERE task_id = ANY($1) AND status = ANY($2)",
            accepted,
            ["SUCCEEDED", "FAILED", "CANCELED", "EXPIRED"],
        )
        if ended == len(set(accepted)):
            break
        await asyncio.sleep(0.5)
    await connection.close()


class Evidence(NamedTuple):
    """All that the proof reads."""

    log: dict[str, list[RawRecord]]
    rows: dict[str, list[Json]]
    objects: dict[str, StoredBytes]


async def _evidence(environ: dict[str, str]) -> Evidence:
    """The log up to an instant, the tables once they have caught up with it, and the objects."""
    log, ends = await _read_log(
        environ["CUTLOG_KAFKA_BROKERS"], int(environ["CUTLOG_KAFKA_PARTITIONS"])
    )
    connection = await asyncpg.connect(environ["CUTLOG_POSTGRES_DSN"])
    until = time.monotonic() + 60
    while time.monotonic() < until:
        positions = {
            (row["topic"], row["log_partition"]): row["next"]
            for row in await connection.fetch(
                "SELECT topic, log_partition, next FROM projection_positions"
            )
        }
        if all(positions.get(place, 0) >= end for place, end in ends.items()):
            break
        await asyncio.sleep(0.2)
    rows = {
        "tasks": await _rows(connection, "SELECT task_id, status FROM tasks"),
        "task_events": await _rows(connection, "SELECT task_id, seq, kind FROM task_events"),
        "quota_windows": await _rows(
            connection,
            "SELECT account_id, user_id, scene, kind, reserved_micros, spent_micros"
            " FROM quota_windows",
        ),
    }
    await connection.close()
    return Evidence(log, rows, await _read_objects(environ, result_keys(log)))


async def _read_objects(environ: dict[str, str], keys: Sequence[str]) -> dict[str, StoredBytes]:
    """Every object, read to its end; what the store does not have is absent."""
    found: dict[str, StoredBytes] = {}
    at_once = asyncio.Semaphore(_OBJECTS_AT_ONCE)

    async def read(store: ObjectStore, key: str) -> None:
        async with at_once:
            with contextlib.suppress(ObjectMissingError):
                found[key] = StoredBytes(*await store.digest(key))

    async with ObjectStore(need(load_settings(environ), "objects")) as store:
        await asyncio.gather(*(read(store, key) for key in keys))
    return found


async def _rows(connection: Any, sql: str) -> list[Json]:  # noqa: ANN401 - a proxy class
    return [dict(row) for row in await connection.fetch(sql)]


async def _read_log(
    brokers: str, partitions: int
) -> tuple[dict[str, list[RawRecord]], dict[tuple[str, int], int]]:
    """Committed records of every topic that the proof reads, in order within a partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=brokers,
        isolation_level="read_committed",
        enable_auto_commit=False,
        # By default it begins at the end, and the answer to that may overtake a seek.
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        places = [
            TopicPartition(topic, number) for topic in _READ_TOPICS for number in range(partitions)
        ]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: dict[TopicPartition, list[RawRecord]] = {place: [] for place in places}
        left = {place for place in places if ends[place]}
        while left:
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                found[place] += [
                    RawRecord(
                        record.topic,
                        record.partition,
                        record.offset,
                        (record.key or b"").decode(),
                        record.value or b"",
                    )
                    for record in records
                    if record.offset < ends[place]
                ]
            left = {place for place in left if await consumer.position(place) < ends[place]}
    finally:
        await consumer.stop()
    log: dict[str, list[RawRecord]] = {topic: [] for topic in _READ_TOPICS}
    for place in places:
        log[place.topic] += found[place]
    event_ends = {
        (place.topic, place.partition): end
        for place, end in ends.items()
        if place.topic in EVENT_TOPICS
    }
    return log, event_ends
