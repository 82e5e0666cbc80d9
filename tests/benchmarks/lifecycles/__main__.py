"""`python -m tests.benchmarks.lifecycles`: load on a whole installation, then the rival, a table.

The processes are those that `cutlog up` starts; the rehearsal is a no-op and stores nothing. The
last line is JSON.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import psutil
from rich.table import Table

from cutlog.installation import ROOT, Installation, Plan, RunnerPlan
from cutlog.show import console
from cutlog.stack.stack import PART_NAMES
from cutlog.up import Up, running
from schema.ids import shard_of
from tests.benchmarks.lifecycles.load import LoadPlan, LoadReport, Sampled
from tests.benchmarks.lifecycles.rival import procrastinate_jobs_per_second

USERS, TENANTS = 1_000, 200
_POLL_SECONDS = 0.03
_ROW_SECONDS_MAX = 30


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="cutlog bench lifecycles", description=__doc__)
    parser.add_argument("--rates", default="104,700", help="lifecycles a second, one after another")
    parser.add_argument("--seconds", type=float, default=30, help="counted, for each rate")
    parser.add_argument(
        "--warm", type=float, default=20, help="before each rate; twice as long first"
    )
    parser.add_argument("--slots", type=int, default=2_000)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--no-rival", action="store_true", help="without Procrastinate")
    options = parser.parse_args(arguments)
    rates = [float(rate) for rate in options.rates.split(",")]
    with tempfile.TemporaryDirectory(prefix="cutlog-bench-") as folder:
        plan = Plan(runners=(RunnerPlan("R", options.slots),))
        installation = Installation(Path(folder), plan=plan, die_with_parent=True)
        with running(installation, lambda line: console.print(f"  {line}")) as up:
            results = [
                measure(up, rate, options.seconds, options.warm * (2 if not n else 1), options)
                for n, rate in enumerate(rates)
            ]
            rival = (
                None
                if options.no_rival
                else asyncio.run(
                    procrastinate_jobs_per_second(installation.environ()["CUTLOG_POSTGRES_DSN"])
                )
            )
    best = results[-1]
    show(results, rival)
    line: dict[str, Any] = {
        **best,
        "rates": results,
        "procrastinate_jobs_per_s": rival,
        "ratio_to_procrastinate": rival and round(best["lifecycles_per_s"] / rival, 1),
    }
    print(msgspec.json.encode(line).decode())
    return 0 if all(not result["refused"] for result in results) else 1


def measure(
    up: Up, rate: float, seconds: float, warm: float, options: argparse.Namespace
) -> dict[str, Any]:
    """One rate: latencies from the due instant, CPU of each process for a lifecycle."""
    url = up.api_url.removeprefix("http://")
    host, _, port = url.partition(":")
    plan = LoadPlan(
        host=host,
        port=int(port),
        tokens=[
            up.installation.token(f"user-{n}", tenant=f"tenant-{n % TENANTS}", tier="load")
            for n in range(USERS)
        ],
        rate=rate,
        seconds=seconds,
        warm_seconds=warm,
        connections=options.connections,
        run=f"{rate:g}-{time.time_ns()}",
    )
    path = up.installation.directory / f"load-{rate:g}.json"
    path.write_bytes(msgspec.json.encode(plan))
    load = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.lifecycles.load", str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert load.stdin is not None
    parts = {name: pid for name in PART_NAMES if (pid := up.installation.stack.pid(name))}
    ours = {name: pid for name in up.names if (pid := up.pid(name))}
    trees = {name: psutil.Process(pid) for name, pid in (parts | ours).items()}
    trees["load"] = psutil.Process(load.pid)
    waiter = RowWaiter(up.installation.environ()["CUTLOG_POSTGRES_DSN"])
    waiter.start()
    reader = threading.Thread(target=waiter.read, args=(load,), daemon=True)
    reader.start()
    load.stdin.write(b"go\n")
    load.stdin.flush()
    time.sleep(warm)
    before, busy_before = {name: _cpu(tree) for name, tree in trees.items()}, _busy()
    time.sleep(seconds)
    after = {name: _cpu(tree) for name, tree in trees.items()}
    busy = (_busy() - busy_before) / (seconds * (psutil.cpu_count() or 1))
    reader.join()
    load.wait()
    report = waiter.report
    assert report is not None
    succeeded = waiter.finish()
    count = max(1, len(report.latencies_ms))
    return {
        "rate": rate,
        "lifecycles_per_s": round(count / seconds, 1),
        "submit_p50_ms": _quantile(report.latencies_ms, 0.50),
        "submit_p99_ms": _quantile(report.latencies_ms, 0.99),
        "succeeded_p50_ms": _quantile(succeeded, 0.50),
        "succeeded_p99_ms": _quantile(succeeded, 0.99),
        "sampled_rows": len(succeeded),
        "missing_rows": waiter.missing,
        "refused": report.refused,
        "cpu_busy": round(busy, 3),
        "cpu_us_per_lifecycle": {
            name: round((after[name] - before[name]) / count * 1e6) for name in trees
        },
    }


class RowWaiter:
    """Waits for the SUCCEEDED rows of sampled tasks, as any reader of the database sees them."""

    def __init__(self, dsn: str) -> None:
        self.report: LoadReport | None = None
        self.missing = 0
        self._dsn = dsn
        self._due: dict[str, float] = {}
        self._latencies: list[float] = []
        self._told_all = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._poll()), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def read(self, load: subprocess.Popen[bytes]) -> None:
        """Listen to the load until its report."""
        assert load.stdout is not None
        decoder = msgspec.json.Decoder(Sampled | LoadReport)
        for line in load.stdout:
            message = decoder.decode(line)
            if isinstance(message, Sampled):
                self._due[message.task_id] = message.due
            else:
                self.report = message
        self._told_all.set()

    def finish(self) -> list[float]:
        """From due instant to visible row, in ms, sorted."""
        self._thread.join()
        self.missing = len(self._due)
        return sorted(self._latencies)

    async def _poll(self) -> None:
        connection = await asyncpg.connect(
            self._dsn, server_settings={"plan_cache_mode": "force_generic_plan"}
        )
        give_up = 0.0
        while True:
            if self._told_all.is_set():
                give_up = give_up or time.monotonic() + _ROW_SECONDS_MAX
                if not self._due or time.monotonic() > give_up:
                    break
            waiting = list(self._due)
            if waiting:
                rows = await connection.fetch(
                    "SELECT t.task_id FROM unnest($1::int[], $2::text[]) AS w (shard, task_id)"
                    " CROSS JOIN LATERAL (SELECT task_id, status FROM tasks"
                    " WHERE tasks.shard = w.shard AND tasks.task_id = w.task_id OFFSET 0) AS t"
                    " WHERE t.status = 'SUCCEEDED'",
                    [shard_of(task_id) for task_id in waiting],
                    waiting,
                )
                now = time.monotonic()
                for row in rows:
                    due = self._due.pop(row["task_id"], None)
                    if due is not None:
                        self._latencies.append((now - due) * 1000)
            await asyncio.sleep(_POLL_SECONDS)
        await connection.close()


def show(results: list[dict[str, Any]], rival: float | None) -> None:
    table = Table(
        "rate/s",
        "done/s",
        "submit P50/P99 ms",
        "row P50/P99 ms",
        "both cores busy",
        "µs CPU a lifecycle",
    )
    for result in results:
        cpu = result["cpu_us_per_lifecycle"]
        table.add_row(
            f"{result['rate']:g}",
            f"{result['lifecycles_per_s']:g}",
            f"{result['submit_p50_ms']:.0f} / {result['submit_p99_ms']:.0f}",
            f"{result['succeeded_p50_ms']:.0f} / {result['succeeded_p99_ms']:.0f}",
            f"{result['cpu_busy']:.0%}",
            ", ".join(f"{name} {us}" for name, us in cpu.items()) + f" = {sum(cpu.values())}",
        )
    console.print(table)
    if rival is not None:
        console.print(f"Procrastinate, no-op jobs (defer, run, finish): {rival:.0f} a second")


def _cpu(process: psutil.Process) -> float:
    """CPU seconds of a process and everything below it, ended children included."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _busy() -> float:
    times: dict[str, float] = psutil.cpu_times()._asdict()
    return sum(times.values()) - sum(
        times.get(name, 0.0) for name in ("idle", "iowait", "guest", "guest_nice")
    )


def _quantile(values: list[float], share: float) -> float:
    if not values:
        return float("nan")
    return round(values[min(len(values) - 1, int(len(values) * share))], 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
