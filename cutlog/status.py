"""What runs, whether it is ready, and how far behind it is: asked of the processes themselves."""

from typing import NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

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
    return lines


def table(lines: list[Line]) -> Table:
    """The lines for a person."""
    shown = Table("part", "pid", "ready", "", box=None, header_style="dim")
    for line in lines:
        mark = "[green]yes[/]" if line.ready else "[red]no[/]"
        shown.add_row(line.name, str(line.pid or "-"), mark, line.told)
    return shown


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
