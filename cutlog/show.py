"""How tasks, events and amounts are shown to people: progress bars, timelines, tables."""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from cutlog.client import StreamEvent
from schema.money import in_credits

_PIPE_COLUMNS: Final = 160


def _columns() -> int | None:
    """None: as wide as the terminal. No screen bounds a line that goes into a pipe or a file."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS


console: Final = Console(highlight=False, width=_columns())
_PROGRESS: Final = "progress"
_MESSAGE_MAX: Final = 400


@contextmanager
def upload_bar(name: str, size: int) -> Generator[Callable[[int], None]]:
    """A bar of bytes; hands out a function that is told how many more were sent."""
    with Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        bar = progress.add_task(f"upload {escape(name)}", total=size)

        def tell(count: int) -> None:
            progress.update(bar, advance=count)

        yield tell


def follow(events: Iterable[StreamEvent]) -> list[StreamEvent]:
    """Show a task's stream as one bar until its end; the stored events, in order."""
    stored: list[StreamEvent] = []
    with Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[phase]}"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        bar = progress.add_task("waiting", total=100, phase="")
        for event in events:
            if event.id:
                stored.append(event)
            percent = event.data.get("percent")
            if percent is not None:
                progress.update(bar, completed=float(percent))
            if event.name == _PROGRESS:
                progress.update(bar, description="running", phase=str(event.data.get("phase", "")))
                continue
            progress.update(bar, description=short_name(event.name), phase="")
            if event.name == "task.succeeded.v1":
                progress.update(bar, completed=100)
    return stored


def timeline(events: Iterable[StreamEvent]) -> Table:
    """When each event happened, and how long after the first."""
    table = Table("at", "after", "event", box=None, pad_edge=False, header_style="dim")
    table.add_column("what", overflow="fold")  # names of files are long and have no spaces
    first: datetime | None = None
    for event in events:
        at = datetime.fromisoformat(str(event.data["at"]))
        first = first or at
        after = f"+{(at - first).total_seconds():.2f} s"
        table.add_row(f"{at:%H:%M:%S.%f}"[:-3], after, short_name(event.name), _told(event.data))
    return table


def short_name(wire_name: str) -> str:
    """`task.progressed.v1` as people read it: `progressed`."""
    return wire_name.removeprefix("task.").rpartition(".v")[0] or wire_name


def materials(found: Iterable[Mapping[str, Any]]) -> Table:
    """What was uploaded, a line each where there is room: ids are whole, since people copy them."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("material", "status", "size"):
        table.add_column(name, no_wrap=True)
    for name in ("what", "name", "uploaded"):
        table.add_column(name, overflow="fold")
    for one in found:
        table.add_row(
            one["material_id"],
            _coloured_status(one["status"]),
            decimal(one["size"] or 0),
            _facts(one["facts"], whole=False) or one["reason"] or "",
            escape(one["name"] or ""),
            to_the_minute(one["created_at"]),
        )
    return table


def material(found: Mapping[str, Any]) -> Table:
    """One material: what it is, or why it cannot be used and what to do about it."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    told = {
        "material": found["material_id"],
        "status": _coloured_status(found["status"]),
        "name": escape(found["name"] or ""),
        "size": f"{found['size'] or 0:,} bytes",
        "is": _facts(found["facts"]),
        "refused": found["reason"],
        "because": escape(found["detail"] or ""),
        "advice": found["advice"],
    }
    for name, value in told.items():
        if value:
            table.add_row(name, value)
    return table


def _coloured_status(status: str) -> str:
    colour = {"READY": "green", "REFUSED": "red", "ABORTED": "red"}.get(status, "yellow")
    return f"[{colour}]{status}[/]"


def _facts(facts: Mapping[str, Any] | None, *, whole: bool = True) -> str:
    """What a file is, in a line (`whole`: how it is packed, too); empty: nobody looked yet."""
    if facts is None:
        return ""
    told = [facts["kind"], *([facts["container"]] if whole else [])]
    if facts["width"]:
        told.append(f"{facts['width']}x{facts['height']}")
    if facts["duration_ms"]:
        told.append(f"{facts['duration_ms'] / 1000:.2f} s")
    if whole:
        told += [name for name in (facts["video_codec"], facts["audio_codec"]) if name]
    return escape(", ".join(told))


def to_the_minute(instant: str) -> str:
    """A time of the api, short enough for a table (it is in UTC)."""
    return instant[:16].replace("T", " ")


def tasks(found: Iterable[Mapping[str, Any]]) -> Table:
    """Tasks, a line each; on 80 columns their ids are whole, since people copy them."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("task", "scene", "lane", "status"):
        table.add_column(name, no_wrap=True)
    table.add_column("created (UTC)")
    for one in found:
        table.add_row(
            one["task_id"],
            one["scene"],
            one["lane"],
            one["status"],
            to_the_minute(one["created_at"]),
        )
    return table


def fetched(path: Path) -> None:
    """Say that a file was fetched, in one line however long its name is."""
    console.print(f"{path}  {path.stat().st_size:,} bytes", soft_wrap=True, markup=False)


def quotas(found: dict[str, Any]) -> Table:
    """What is left, by scene."""
    table = Table(
        "scene", "this minute", "today", "credits this month", box=None, header_style="dim"
    )
    for scene in found["scenes"]:
        month = scene["month"]
        table.add_row(
            scene["scene"],
            f"{scene['minute']['remaining']} of {scene['minute']['limit']}",
            f"{scene['day']['remaining']} of {scene['day']['limit']}",
            f"{in_credits(month['remaining_micros'])} of {in_credits(month['limit_micros'])}",
        )
    return table


def _told(data: dict[str, Any]) -> str:
    """The fields of an event that a person asks for."""
    plain = (
        "token", "percent", "pool_id", "lane", "runner_id", "failure", "loss", "cause", "reason",
    )  # fmt: skip
    told = [f"{field.removesuffix('_id')} {data[field]}" for field in plain if data.get(field)]
    if data.get("lower_spec"):
        told.append("with less")
    told += [
        f"{field.removesuffix('_micros')} {in_credits(data[field])} credits"
        for field in ("reserved_micros", "charge_micros")
        if field in data
    ]
    if data.get("card_ms"):
        measured = "" if data.get("card_measured", True) else "at most "
        told.append(f"card {measured}{data['card_ms'] / 1000:.2f} s")
    if data.get("files"):
        told.append(", ".join(f"{file['name']} {file['size']:,} B" for file in data["files"]))
    if data.get("message"):
        told.append(str(data["message"])[:_MESSAGE_MAX])
    return escape(", ".join(told))
