"""Engine against stock Faust, side by side, the same job on the same broker, in one run.

`python -m tests.benchmarks.engine [--broker HOST:PORT]` prints a table and one line of JSON; the
exit code tells whether every goal was reached. Without `--broker` it starts a local stack.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable

from tests.benchmarks.engine import measure
from tests.support.stack import running_stack

Figures = dict[str, float]

GOALS: list[tuple[str, Callable[[Figures], bool], str]] = [
    ("commands_per_s", lambda f: f["commands_per_s"] >= 50_000, ">= 50,000"),
    ("times_stock", lambda f: f["times_stock"] >= 20, ">= 20"),
    ("recovery_records_per_s", lambda f: f["recovery_records_per_s"] >= 200_000, ">= 200,000"),
    ("hop_p50_ms", lambda f: f["hop_p50_ms"] <= 10, "<= 10"),
    ("hop_p99_ms", lambda f: f["hop_p99_ms"] <= 40, "<= 40"),
    ("failover_kill_s", lambda f: f["failover_kill_s"] <= 8, "<= 8"),
    ("rolling_sigterm_s", lambda f: f["rolling_sigterm_s"] <= 2, "<= 2"),
]


async def bench(broker: str, *, quick: bool) -> Figures:
    figures: Figures = {}
    scale = 0.3 if quick else 1.0
    few = await measure.drain(broker, "engine", int(400_000 * scale), keys=500)
    figures["commands_per_s"] = round(few.per_second)
    figures["command_cpu_us"] = round(few.cpu_us, 1)
    stock = await measure.drain(broker, "stock", int(16_000 * scale), keys=500)
    figures["stock_commands_per_s"] = round(stock.per_second)
    figures["stock_command_cpu_us"] = round(stock.cpu_us, 1)
    figures["times_stock"] = round(few.per_second / stock.per_second, 1)
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
