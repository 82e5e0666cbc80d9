"""`python -m tests.benchmarks.dispatch`: a backlog, slots that are freed, and who gets them when.

The processes are those that `cutlog up` starts. Rehearsals of a fraction of a second are submitted
faster than the slots of pool R can serve them; when that backlog stands the submissions end and the
counting begins, so that somebody waits whenever a slot is freed and the two cores dispatch, run and
store, but need not serve a rush at the door as well. For every freed slot of the counted seconds a
reader of committed records outside of the platform notes when `SlotFreed` and the next task's
`TaskStarted` arrive: the goal is held against the time between the two. The time from the append of
the runner's `FreeSlot` (LogAppendTime) is shown beside it: one decision and one transaction more.
The last line is JSON; the exit code tells whether the goal was reached.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
from rich.table import Table

from cutlog.installation import ROOT, Installation, Plan, RunnerPlan
from cutlog.show import console
from cutlog.stack.stack import PART_NAMES
from cutlog.up import Up, running
from schema.settings import Kafka, load, need
from tests.benchmarks.dispatch.pairs import Figures, figures_of
from tests.benchmarks.dispatch.reader import Reader
from tests.benchmarks.lifecycles.load import LoadPlan, LoadReport, Sampled

GOAL_P99_MS = 150.0
USERS, TENANTS = 400, 40
_AHEAD = 1.7
"""How much faster than the goal's rate it is submitted, until the backlog stands."""
_RATE_SHARE = 0.95
"""Of the goal's rate, below which nothing was shown."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="cutlog bench dispatch", description=__doc__)
    parser.add_argument("--rate", type=float, default=100, help="dispatches a second to be shown")
    parser.add_argument("--seconds", type=float, default=25, help="counted")
    parser.add_argument("--warm", type=float, default=40, help="before: a backlog")
    parser.add_argument("--slots", type=int, default=40)
    parser.add_argument("--work", type=float, default=0.2, help="seconds that a task takes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="cutlog-dispatch-") as folder:
        plan = Plan(runners=(RunnerPlan("R", options.slots),))
        installation = Installation(Path(folder), plan=plan, die_with_parent=True)
        with running(installation, lambda line: console.print(f"  {line}")) as up:
            found, report, spent = measure(up, options)
    show(found)
    console.print(f"CPU: {spent.ours:.2f} cores ours, {spent.others:.2f} of other processes")
    line: dict[str, Any] = {
        "bench": "dispatch",
        **found.summary(),
        "goal_p99_ms": GOAL_P99_MS,
        "slots": options.slots,
        "work_seconds": options.work,
        "refused": report.refused,
        "cores_ours": round(spent.ours, 2),
        "cores_of_others": round(spent.others, 2),
    }
    print(msgspec.json.encode(line).decode())
    shown = found.dispatches_per_s >= options.rate * _RATE_SHARE and found.waiting_min > 0
    return 0 if shown and found.task.p99 < GOAL_P99_MS else 1


class Cores(NamedTuple):
    """Processor time a second: a figure is worth what the machine had left for it."""

    ours: float
    others: float


def measure(up: Up, options: argparse.Namespace) -> tuple[Figures, LoadReport, Cores]:
    """Load, and read along; hands back what the counted seconds showed."""
    kafka: Kafka = need(load(up.installation.environ()), "kafka")
    reader = Reader(kafka)
    reader.start()
    plan = load_plan(up, options)
    path = up.installation.directory / "load.json"
    path.write_bytes(msgspec.json.encode(plan))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.lifecycles.load", str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    reports: list[LoadReport] = []
    listener = threading.Thread(target=_listen, args=(process, reports), daemon=True)
    listener.start()
    process.stdin.write(b"go\n")
    process.stdin.flush()
    time.sleep(options.warm)
    ours, busy, began = ours_so_far(up), busy_so_far(), time.time()
    time.sleep(options.seconds)
    ours, busy, ended = ours_so_far(up) - ours, busy_so_far() - busy, time.time()
    listener.join()
    process.wait()
    seconds = ended - began
    cores = Cores(ours / seconds, max(0.0, busy - ours) / seconds)
    return figures_of(reader.stop(), began * 1000, ended * 1000), reports[0], cores


def ours_so_far(up: Up) -> float:
    """CPU seconds of everything that the benchmark started, and of itself."""
    roots = [psutil.Process()]
    roots += [
        psutil.Process(pid) for name in PART_NAMES if (pid := up.installation.stack.pid(name))
    ]
    every = {one.pid: one for root in roots for one in (root, *root.children(recursive=True))}
    total = 0.0
    for one in every.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def busy_so_far() -> float:
    """CPU seconds of all cores, whoever used them."""
    times: dict[str, float] = psutil.cpu_times()._asdict()
    return sum(times.values()) - sum(
        times.get(name, 0.0) for name in ("idle", "iowait", "guest", "guest_nice")
    )


def load_plan(up: Up, options: argparse.Namespace) -> LoadPlan:
    """Much more than can be served, until the counting begins."""
    host, _, port = up.api_url.removeprefix("http://").partition(":")
    work = {"seconds": options.work, "steps": 1, "reports": 0, "no_op": True}
    return LoadPlan(
        host=host,
        port=int(port),
        tokens=[
            up.installation.token(f"user-{n}", tenant=f"tenant-{n % TENANTS}", tier="load")
            for n in range(USERS)
        ],
        rate=options.rate * _AHEAD,
        seconds=1.0,
        warm_seconds=options.warm - 2,
        run=f"dispatch-{time.time_ns()}",
        parameters=msgspec.json.encode(work).decode(),
    )


def _listen(process: subprocess.Popen[bytes], reports: list[LoadReport]) -> None:
    assert process.stdout is not None
    decoder = msgspec.json.Decoder(Sampled | LoadReport)
    for line in process.stdout:
        message = decoder.decode(line)
        if isinstance(message, LoadReport):
            reports.append(message)


def show(found: Figures) -> None:
    table = Table("from", "to", "P50 ms", "P99 ms", "max ms")
    for begin, end, times in (
        ("FreeSlot appended", "TaskStarted at the reader", found.whole),
        ("FreeSlot appended", "SlotFreed at the reader", found.pool),
        ("SlotFreed at the reader", "TaskStarted at the reader", found.task),
    ):
        table.add_row(begin, end, f"{times.p50:g}", f"{times.p99:g}", f"{times.most:g}")
    console.print(table)
    console.print(
        f"{found.counted} freed slots of the window had a waiter and were followed; "
        f"{found.unfollowed} were not; {found.dispatches_per_s:g} dispatches/s; "
        f"at least {found.waiting_min} tasks waited"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
