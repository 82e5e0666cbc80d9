"""What runs, whether it is ready, how far behind it is, and whether the objectives are kept.

The processes are asked themselves; waits, use and failures are told by the api (`GET /v1/pools`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.markup import escape
from rich.table import Table

from cutlog.client import Client, Refused
from cutlog.installation import Installation
from cutlog.stack import processes
from cutlog.stack.stack import PART_NAMES

_LAG_FAMILIES = ("engine_lag_records", "cutlog_projection_lag_records")


class Line(NamedTuple):
    """One part or process."""

    name: str
    pid: int | None
    ready: bool
    told: str
    """Why it is not ready, or how far behind it is."""


def look(installation: Installation) -> list[Line]:
    """Every part of the stack and every process of ours, whether it runs or not."""
    lines: list[Line] = []
    for part in PART_NAMES:
        pid = installation.stack.pid(part)
        answers = pid is not None and installation.stack.answers(part)
        told = "" if answers else "does not run" if pid is None else "does not answer"
        lines.append(Line(part, pid, answers, told))
    living = processes.find_marked(installation.directory)
    ports = installation.ports()
    if not ports:
        return lines
    for service in installation.services(ports):
        process = living.get(service.name)
        if process is None:
            lines.append(Line(service.name, None, ready=False, told="does not run"))
            continue
        ready, told = _ask(service.url)
        lines.append(Line(service.name, process.pid, ready, told))
    known = {line.name for line in lines}
    for name, process in sorted(living.items()):
        if name not in known:
            lines.append(Line(name, process.pid, ready=True, told="as its pool asked for"))
    return lines


def table(lines: list[Line]) -> Table:
    """The lines for a person."""
    shown = Table("part", "pid", "ready", "", box=None, header_style="dim")
    for line in lines:
        mark = "[green]yes[/]" if line.ready else "[red]no[/]"
        shown.add_row(line.name, str(line.pid or "-"), mark, escape(line.told))
    return shown


def pools(installation: Installation) -> list[dict[str, Any]]:
    """The pools as the api tells them; none while it does not."""
    port = installation.ports().get("api")
    if port is None:
        return []
    token = installation.token("status", tenant="", tier="pro", scope="")
    try:
        with Client(f"http://127.0.0.1:{port}", token) as client:
            found: list[dict[str, Any]] = client.pools()["pools"]
    except (httpx.HTTPError, Refused):
        return []
    return found


def lanes_table(found: Iterable[Mapping[str, Any]]) -> Table:
    """What waits in each lane and how long, and the estimate that a new task would be told."""
    shown = Table(
        "pool", "lane", "waiting", "comes", "P50", "P95", "oldest", "told", "",
        box=None, header_style="dim",
    )  # fmt: skip
    for pool in found:
        p95 = {
            objective["lane"]: objective
            for objective in pool["objectives"]
            if objective["name"] == "wait_p95_seconds"
        }
        for lane in pool["lanes"]:
            objective = p95.get(lane["lane"])
            shown.add_row(
                pool["pool_id"],
                lane["lane"],
                str(lane["waiting"]),
                f"{lane['arrivals_per_second']:.2f}/s",
                _seconds(lane["wait_p50_seconds"]),
                _coloured(_seconds(lane["wait_p95_seconds"]), objective and objective["kept"]),
                _seconds(lane["oldest_wait_seconds"]),
                _seconds(lane["estimated_wait_seconds"]),
                "[yellow]paused[/]" if lane["paused"] else "",
            )
    return shown


def objectives_table(found: Iterable[Mapping[str, Any]]) -> Table:
    """Each figure of the last ten minutes against its bounds; what is not known is left out."""
    shown = Table("objective", "pool", "", "is", "shall be", "", box=None, header_style="dim")
    for pool in found:
        for one in pool["objectives"]:
            if one["value"] is None:
                continue
            mark = "[green]kept[/]" if one["kept"] else "[red]missed[/]"
            shown.add_row(
                _plain(one["name"].removesuffix("_seconds")),
                pool["pool_id"],
                one["lane"] or "",
                _coloured(_figure(one["name"], one["value"]), one["kept"]),
                _bounds(one),
                mark,
            )
    return shown


def remarks(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """What somebody should know: paused lanes, breakers that are not closed, cards wanted."""
    told: list[str] = []
    for pool in found:
        name = pool["pool_id"]
        told += [
            f"pool {name}: lane {lane['lane']} is paused ({lane['paused_why']})"
            for lane in pool["lanes"]
            if lane["paused"]
        ]
        told += [
            f"pool {name}: the breaker of {breaker['scene']} is {_plain(breaker['state'])} since "
            f"{breaker['since']}"
            for breaker in pool["breakers"]
            if breaker["state"] != "closed"
        ]
        if pool["cards_wanted"] is not None:
            told.append(
                f"pool {name}: {_counted(pool['cards_wanted'], 'card')} wanted, "
                f"{_counted(pool['slots'], 'slot')} ready"
            )
    return told


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _coloured(text: str, kept: bool | None) -> str:  # noqa: FBT001 - of a figure
    return text if kept is None else f"[{'green' if kept else 'red'}]{text}[/]"


def _bounds(objective: Mapping[str, Any]) -> str:
    low, high = objective["low"], objective["high"]
    if low is None:
        return f"at most {_figure(objective['name'], high)}"
    return f"{_figure(objective['name'], low)} to {_figure(objective['name'], high)}"


def _figure(name: str, value: float) -> str:
    if name.endswith("_seconds"):
        return _seconds(value)
    return f"{value * 100:.1f} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _ask(url: str) -> tuple[bool, str]:
    try:
        ready = httpx.get(f"{url}/readyz", timeout=3)
        metrics = httpx.get(f"{url}/metrics", timeout=3).text
    except httpx.HTTPError as error:
        return False, f"does not answer ({type(error).__name__})"
    if ready.is_error:
        return False, ready.text[:200]
    lags = [
        sample.value
        for family in text_string_to_metric_families(metrics)
        if family.name in _LAG_FAMILIES
        for sample in family.samples
    ]
    return True, f"lag {sum(lags):.0f} records" if lags else ""
