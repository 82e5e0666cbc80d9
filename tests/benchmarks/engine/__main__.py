"""Engine against stock Faust, side by side, the same job on the same broker, in one run.

After a drain of each that nobody counts (the broker compiles itself warm) they take turns; medians
are told, and the median of the ratios within a turn, since a shared machine is not equally fast
from one minute to the next.

`python -m tests.benchmarks.engine [--broker HOST:PORT]` prints a table and one line of JSON; the
exit code tells whether every goal was reached. Without `--broker` it starts a local stack.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from statistics import median

from tests.benchmarks.engine import measure
from tests.support.stack import running_stack

Figures = dict[str, float]

TURNS = 3
"""That are counted."""

GOALS: list[tuple[str, Callable[[Figures], bool], str]] = [
    ("commands_per_s", lambda f: f["commands_per_s"] >= 50_000, ">= 50,000"),
    ("times_stock", lambda f: f["times_stock"] >= 20, ">= 20"),
    ("task_commands_per_s", lambda f: f["task_commands_per_s"] >= 20_000, ">= 20,000"),
    ("recovery_records_per_s", lambda f: f["recovery_records_per_s"] >= 200_000, ">= 200,000"),
    ("hop_p50_ms", lambda f: f["hop_p50_ms"] <= 10, "<= 10"),
    ("hop_p99_ms", lambda f: f["hop_p99_ms"] <= 40, "<= 40"),
    ("failover_kill_s", lambda f: f["failover_kill_s"] <= 8, "<= 8"),
    ("rolling_sigterm_s", lambda f: f["rolling_sigterm_s"] <= 2, "<= 2"),
]


async def bench(broker: str, *, quick: bool) -> Figures:
    figures: Figures = {}
    scale = 0.3 if quick else 1.0
    figures |= await side_by_side(broker, scale)
    tasks = await measure.drain_tasks(broker, int(40_000 * scale))
    figures["task_commands_per_s"] = round(tasks.per_second)
    figures["task_command_cpu_us"] = round(tasks.cpu_us, 1)
    many = await measure.drain(broker, "engine", int(400_000 * scale), keys=50_000)
    figures["commands_per_s_50k_keys"] = round(many.per_second)
    records, seconds = await measure.recovery(broker, many.prefix)
    figures["recovery_records"] = records
    figures["recovery_records_per_s"] = round(records / seconds)
    for rate in (104, 1_000):
        p50, p99 = await measure.hop(broker, rate, seconds=10 if quick else 20)
        suffix = "" if rate == 104 else f"_at_{rate}"
        figures[f"hop_p50_ms{suffix}"] = round(p50, 1)
        figures[f"hop_p99_ms{suffix}"] = round(p99, 1)
    figures |= await measure.outages(broker)
    return figures


async def side_by_side(broker: str, scale: float) -> Figures:
    """Engine and stock in turns, the first of which only warms the broker up."""
    turns: list[tuple[measure.Drained, measure.Drained]] = []
    for _ in range(1 + TURNS):
        ours = await measure.drain(broker, "engine", int(400_000 * scale), keys=500)
        stock = await measure.drain(broker, "stock", int(16_000 * scale), keys=500)
        turns.append((ours, stock))
    del turns[0]
    return {
        "commands_per_s": round(median(ours.per_second for ours, _ in turns)),
        "command_cpu_us": round(median(ours.cpu_us for ours, _ in turns), 1),
        "stock_commands_per_s": round(median(stock.per_second for _, stock in turns)),
        "stock_command_cpu_us": round(median(stock.cpu_us for _, stock in turns), 1),
        "times_stock": round(median(a.per_second / b.per_second for a, b in turns), 1),
    }


def report(figures: Figures) -> int:
    goals = {name: (reached, text) for name, reached, text in GOALS}
    missed = 0
    for name, value in figures.items():
        goal = goals.get(name)
        verdict = "" if goal is None else ("ok" if goal[0](figures) else "MISSED")
        missed += verdict == "MISSED"
        print(f"{name:28} {value:>12,} {'' if goal is None else goal[1]:>12} {verdict}")
    print(json.dumps({"bench": "engine", **figures, "missed": missed}), flush=True)
    return min(1, missed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.engine")
    parser.add_argument("--broker", help="host:port of a running one")
    parser.add_argument("--quick", action="store_true", help="a third of the work")
    options = parser.parse_args()
    if options.broker:
        return report(asyncio.run(bench(options.broker, quick=options.quick)))
    with running_stack() as stack:
        broker = stack.environ()["CUTLOG_KAFKA_BROKERS"]
        return report(asyncio.run(bench(broker, quick=options.quick)))


if __name__ == "__main__":
    sys.exit(main())
