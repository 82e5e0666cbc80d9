"""A million waiting tasks in one pool: a pick, memory, recovery; a plain queue beside it.

`python -m tests.benchmarks.pools [--tasks N] [--accounts N] [--picks N]` prints a table and one
line of JSON; the exit code tells whether every goal was reached.
"""

import argparse
import gc
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from schema import commands as c
from schema import events as e
from schema.ids import IncarnationId
from schema.wires.processes import collect_rarely
from tests.benchmarks.pools.world import (
    NOW_MS,
    A,
    Fifo,
    Pool,
    resident_bytes,
    timed,
    waiting,
    write_rows,
)

Figures = dict[str, float]
GOALS: dict[str, tuple[Callable[[float], bool], str]] = {
    "pick_p99_us": (lambda value: value < 100, "< 100"),
    "bytes_per_task": (lambda value: value < 1024, "< 1,024"),
    "recovery_seconds": (lambda value: value < 60, "< 60"),
}


def percentiles(name: str, times_ns: list[tuple[int, int]]) -> Figures:
    """Of the clock; and of the processor, which a busy machine does not stretch."""
    figures: Figures = {}
    for words, times in (
        (name, [one[0] for one in times_ns]),
        (f"{name}_cpu", [one[1] for one in times_ns]),
    ):
        ordered = sorted(times)
        figures[f"{words}_p50_us"] = round(ordered[len(ordered) // 2] / 1000, 1)
        figures[f"{words}_p99_us"] = round(ordered[len(ordered) * 99 // 100] / 1000, 1)
        figures[f"{words}_max_us"] = round(ordered[-1] / 1000, 1)
    return figures


def work(pool: Pool, tasks: int, accounts: int, picks: int) -> Figures:
    """Attempts end one after the other; the freed slot goes to the next task, and a new one comes.

    The pick is the choice alone; the decision is all of `FreeSlot`: the slot is freed, a task
    picked, its account charged, the slot proposed.
    """
    draw = random.Random(11)
    running = [
        (attempt.rsplit("/", 2)[1], int(attempt.rsplit("/", 1)[1]), runner.rsplit("/", 1)[1])
        for runner, held in pool.state.yard(A).leases.items()
        for attempt in held
    ]
    chosen, decided, came = (list[tuple[int, int]]() for _ in range(3))
    for number in range(picks):
        pool.served_ms += 7
        place = draw.randrange(len(running))
        task, token, runner = running[place]
        pool.do(c.EndAttempt, task_id=task, token=token)
        timed(partial(pool.state.next_task, A, pool.served_ms), chosen)
        free = partial(
            pool.do,
            c.FreeSlot,
            task_id=task,
            token=token,
            runner_id=runner,
            incarnation_id=IncarnationId("1"),
        )
        events = getattr(timed(free, decided), "events", ())
        (proposed,) = (event for event in events if isinstance(event, e.SlotProposed))
        running[place] = (proposed.task_id, proposed.token, proposed.runner_id)
        _, row = waiting(tasks + number, draw, accounts, pool.served_ms)
        timed(partial(pool.enqueue, tasks + number, row), came)
    return (
        percentiles("pick", chosen)
        | percentiles("decision", decided)
        | percentiles("enqueue", came)
    )


def read_depths(pool: Pool) -> Figures:
    """How long a look at a lane's depth takes, and at all that a pool shows."""
    counts = pool.state.yard(A).waiting.counts
    rounds = 100_000
    before = time.perf_counter_ns()
    for _ in range(rounds):
        counts[2]
    depth_ns = (time.perf_counter_ns() - before) / rounds
    before = time.perf_counter_ns()
    for _ in range(rounds // 10):
        pool.state.depths(A)
    all_us = (time.perf_counter_ns() - before) / (rounds // 10) / 1000
    return {"depth_read_ns": round(depth_ns), "depths_read_us": round(all_us, 1)}


def bench(path: Path, tasks: int, accounts: int, picks: int) -> Figures:
    """All figures. The collector of cycles, of which there are none here, is kept off the picks."""
    figures: Figures = {"tasks": tasks, "accounts": accounts, "picks": picks}
    collect_rarely()
    write_rows(path, tasks, accounts)
    for name in ("fifo", "pool"):
        queue = Fifo() if name == "fifo" else Pool()
        before = resident_bytes()
        start = time.perf_counter()
        queue.load(path)
        seconds = time.perf_counter() - start
        per_task = (resident_bytes() - before) / tasks
        prefix = "fifo_" if name == "fifo" else ""
        figures[f"{prefix}recovery_seconds"] = round(seconds, 1)
        figures[f"{prefix}bytes_per_task"] = round(per_task)
        gc.freeze()
        if isinstance(queue, Fifo):
            times = list[tuple[int, int]]()
            for _ in range(picks):
                timed(queue.pick, times)
            figures |= percentiles("fifo_pick", times)
        else:
            start_ms = time.perf_counter()
            queue.state.next_task(A, NOW_MS)
            figures["first_pick_us"] = round((time.perf_counter() - start_ms) * 1e6, 1)
            figures |= work(queue, tasks, accounts, picks) | read_depths(queue)
        gc.unfreeze()
        del queue
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pools")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=50_000)
    parser.add_argument("--picks", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        figures = bench(path, options.tasks, options.accounts, options.picks)
    missed = 0
    for name, value in figures.items():
        goal = GOALS.get(name)
        verdict = "" if goal is None else ("ok" if goal[0](value) else "MISSED")
        missed += verdict == "MISSED"
        print(f"{name:28} {value:>14,} {'' if goal is None else goal[1]:>10} {verdict}")
    print(json.dumps(figures))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
