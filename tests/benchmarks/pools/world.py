"""A pool with very many waiting tasks, as encoded rows; and the plainest queue to hold against it.

Rows stand in a file, as a changelog would hand them over, so that reading them is measured and
writing them costs the reader no memory.
"""

import gc
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from commands.decider import Now
from commands.pools import ROW, PoolState, Row, handle
from commands.pools.rows import (
    LANES,
    POLICY_KEY,
    LeaseRow,
    PolicyRow,
    PoolRow,
    QueuedRow,
    RunnerRow,
    Stage,
    lease_key,
    pool_key,
    queued_key,
    runner_key,
)
from schema import commands as c
from schema.ids import AccountId, CommandId, IncarnationId, PoolId, RunnerId, TaskId
from schema.policy import LanePolicy, Policy, PoolPolicy
from schema.words import Lane, Scene

A = PoolId("A")
RUNNERS, SLOTS_EACH = 750, 4
NOW_MS = 10**9
"""The served clock at the start."""
HOUR_MS = 3_600_000
FOREVER_MS = 10**15
AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
SHARES = (10, 35, 55)
"""Of the lanes, in percent."""


def policy() -> Policy:
    lanes = dict.fromkeys(LANES, LanePolicy())
    pool = PoolPolicy(
        lanes=lanes,
        lease_seconds=10**9,
        beat_seconds=10**8,
        model_caps={"xl": 1_000, "l": 2_000},
        tenant_share=0.2,
        tenant_weights={"t-0": 3},
    )
    return Policy(version=1, scenes={}, tiers={}, pools={A: pool})


def write_rows(path: Path, tasks: int, accounts: int) -> None:
    """The rows of a pool in full use, with so many tasks waiting, in no order at all."""
    draw = random.Random(7)
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:

        def put(key: str, row: Row) -> None:
            file.write(key.encode() + b"\t" + encode(row) + b"\n")

        for key, row in _yard():
            put(key, row)
        numbers = list(range(tasks))
        draw.shuffle(numbers)
        for number in numbers:
            put(*waiting(number, draw, accounts, NOW_MS - draw.randrange(HOUR_MS)))
        put(pool_key(A), PoolRow(seq=tasks + 10**6))
        put(POLICY_KEY, PolicyRow(seq=1, policy=policy()))


def _yard() -> Iterator[tuple[str, Row]]:
    """Runners, and an attempt in each slot."""
    for number in range(RUNNERS):
        name = RunnerId(f"gpu-{number}")
        yield (
            runner_key(A, name),
            RunnerRow(
                incarnation_id=IncarnationId("1"),
                slots=SLOTS_EACH,
                lease_until_ms=FOREVER_MS,
                fresh_until_ms=FOREVER_MS,
            ),
        )
        for slot in range(SLOTS_EACH):
            at_work = number * SLOTS_EACH + slot
            yield (
                lease_key(A, TaskId(f"r{at_work:031d}"), 1),
                LeaseRow(
                    runner_id=name,
                    incarnation_id=IncarnationId("1"),
                    stage=Stage.ACCEPTED,
                    lane=LANES[at_work % 3],
                    account_id=AccountId(f"u-{at_work}"),
                    scene=Scene.GENAI,
                    proposed_ms=NOW_MS,
                ),
            )


def waiting(number: int, draw: random.Random, accounts: int, came_ms: int) -> tuple[str, QueuedRow]:
    """A waiting task; few accounts have many tasks, many have few."""
    account = int(accounts * draw.random() ** 3)
    return (
        queued_key(A, TaskId(f"{number:032d}")),
        QueuedRow(
            token=0,
            lane=draw.choices(LANES, SHARES)[0],
            arrival=number + 1,
            entered_ms=came_ms,
            expires_ms=came_ms + 24 * HOUR_MS,
            account_id=AccountId(f"t-{account}"),
            scene=draw.choice((Scene.GENAI, Scene.SMART)),
            weight=draw.choice((0, 0, 1, 6)),
            model=draw.choice(("", "xl", "l")),
            start_by_ms=NOW_MS + draw.randrange(HOUR_MS) if draw.random() < 0.01 else None,
        ),
    )


def resident_bytes() -> int:
    """Memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    decode = msgspec.json.Decoder(ROW).decode
    with path.open("rb") as file:
        for line in file:
            key, row = line.split(b"\t", 1)
            yield key.decode(), decode(row)


class Pool:
    """The real one: rows are loaded, slots are freed, tasks are picked."""

    def __init__(self) -> None:
        self.state = PoolState()
        self.served_ms = NOW_MS
        self.commands = 0

    def load(self, path: Path) -> None:
        for key, row in read_rows(path):
            self.state.load(key, row)

    def do(self, kind: Any, **fields: Any) -> Any:  # noqa: ANN401
        """One command, as the processor would do it; hands back the decision."""
        self.commands += 1
        command = kind(command_id=CommandId(f"c{self.commands}"), pool_id=A, **fields)
        decision = handle(self.state, command, Now(AT, self.served_ms))
        self.state.take_changes()
        return decision

    def enqueue(self, number: int, row: QueuedRow) -> None:
        self.do(
            c.EnqueueTask,
            task_id=TaskId(f"{number:032d}"),
            token=0,
            lane=row.lane,
            account_id=row.account_id,
            scene=row.scene,
            weight=row.weight,
            model=row.model,
        )


class Fifo:
    """What a queue can be at its plainest: one list for each lane, first come, first served."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, deque[str]] = {lane: deque() for lane in LANES}
        self.rows: dict[str, Row] = {}

    def load(self, path: Path) -> None:
        for key, row in read_rows(path):
            if isinstance(row, QueuedRow):
                self.rows[key] = row
                self.lanes[row.lane].append(key)

    def pick(self) -> str | None:
        for lane in LANES:
            if self.lanes[lane]:
                key = self.lanes[lane].popleft()
                del self.rows[key]
                return key
        return None


def timed(work: Callable[[], object], into: list[tuple[int, int]]) -> object:
    """Do it, and note the nanoseconds that it took: on the clock, and of the processor."""
    cpu = time.thread_time_ns()
    before = time.perf_counter_ns()
    done = work()
    after = time.perf_counter_ns()
    into.append((after - before, time.thread_time_ns() - cpu))
    return done
