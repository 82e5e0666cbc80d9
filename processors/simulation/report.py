"""What a run is told as: a table for the terminal, a page with plots, one line of JSON.

The page is one file without scripts or fonts from elsewhere: it can be mailed and kept.
"""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from processors.simulation import policies
from processors.simulation.figures import BUCKET_MS, percentile
from processors.simulation.play import Played
from processors.simulation.scenarios import DAWN_HOUR, PEAK_HOUR, clock
from schema.words import Lane

_HOUR_MS: Final = 3_600_000
_COLOURS: Final = {"p0": "#c0392b", "p1": "#2471a3", "p2": "#7d8a2e", "fifo": "#888888"}
_WIDTH, _HEIGHT, _LEFT, _TOP = 860, 210, 62, 24


def summary(played: Played) -> dict[str, Any]:
    """The figures of the last line."""
    figures, rival = played.figures, played.rival
    errors = [error for lane in Lane for error in figures.accepted_errors[lane]]
    refused = [error for lane in Lane for error in figures.refused_errors[lane]]
    told: dict[str, Any] = {"scenario": played.scenario.name, "seed": played.seed}
    for lane in Lane:
        told[f"{lane}_wait_p95_s"] = round(figures.p95(lane), 1)
    for lane in Lane:
        told[f"fifo_{lane}_wait_p95_s"] = round(rival.p95(lane), 1)
    told |= {
        "festival_p1_wait_p95_s": _festive_p95(played, Lane.P1),
        "asked": {str(lane): figures.asked_of(lane) for lane in Lane},
        "refused": {str(lane): figures.refused_of(lane) for lane in Lane},
        "estimate_error_median": _median(errors),
        "estimate_error_median_refused": _median(refused),
        "estimate_error_median_refused_p1": _median(figures.refused_errors[Lane.P1]),
        "utilisation": round(figures.utilisation(), 3),
        "utilisation_peak": _peak(played),
        "fifo_utilisation": round(rival.utilisation, 3),
        "cost": round(figures.cost()),
        "card_hours": round(figures.card_hours(), 1),
        "burnt_card_hours": round(burnt_hours(played), 1),
        "preempted": played.watch.counts.get("preempted", 0),
        "moved": played.watch.counts.get("moved", 0),
        "expired": played.watch.counts.get("expired", 0),
        "failed": played.watch.counts.get("failed", 0),
        "violations": len(played.violations),
        "tasks": played.tasks,
        "commands": played.commands,
        "tasks_per_minute": round(played.tasks / played.wall_seconds * 60),
        "tasks_per_cpu_minute": round(played.tasks / played.cpu_seconds * 60),
    }
    if figures.greedy_waits:
        told["greedy_wait_p95_s"] = round(percentile(figures.greedy_waits, 0.95), 1)
    return told


def _median(errors: Sequence[float]) -> float | None:
    return round(percentile(errors, 0.5), 3) if errors else None


def _festive_p95(played: Played, lane: Lane) -> float | None:
    """Of those who came in the hours of the festival and were let in."""
    festival = played.scenario.festival
    if festival is None:
        return None
    span = range(festival.from_second * 1_000, festival.to_second * 1_000)
    waits = [
        wait
        for (_, each), some in played.figures.waits.items()
        if each == lane
        for at, wait in some
        if at in span
    ]
    return round(percentile(waits, 0.95), 1)


def _peak(played: Played) -> float:
    """Use of the cards in the festival's hours, or in the six around the peak of the day."""
    festival = played.scenario.festival
    if festival is not None:
        span = (festival.from_second * 1_000, festival.to_second * 1_000)
    else:
        middle = min(clock(PEAK_HOUR) * 1_000, played.scenario.seconds * 500)
        span = (max(middle - 3 * _HOUR_MS, 0), middle + 3 * _HOUR_MS)
    return round(played.figures.utilisation(*span), 3)


def burnt_hours(played: Played) -> float:
    """Slot time of which nothing came, in card hours of the pools that it was of (as slots)."""
    return sum(played.watch.card.burnt.values()) / _HOUR_MS


def about(played: Played) -> list[str]:
    """What was played, in words."""
    need = policies.cards_at_peak()
    have = policies.cards_in_all()
    return [
        (
            f"{played.tasks:,} tasks, a film of {policies.mean_card_seconds():.1f} card-seconds in "
            f"the mean; the peak of a usual day would keep {need:.1f} cards busy, there are {have} "
            f"({have / need:.0%})"
        ),
        (
            f"{played.commands:,} commands in {played.virtual_seconds / 3600:.1f} virtual hours, "
            f"{played.wall_seconds:.1f} s ({played.cpu_seconds:.1f} s of one core)"
        ),
        "faults: "
        + ", ".join(f"{name} {count}" for name, count in played.fleet.counts.items())
        + f", processor crashes {played.crashes}",
    ]


def lanes_table(played: Played) -> Table:
    """A line for each lane, and beside it what first come first served makes of it."""
    figures, rival = played.figures, played.rival
    table = Table(box=None, header_style="dim", title=None)
    for name in ("lane", "asked", "refused", "wait P50", "wait P95"):
        table.add_column(name, justify="left" if name == "lane" else "right")
    for pool in policies.CARDS:
        if pool != "C-spot":
            table.add_column(f"P95 {pool}", justify="right")
    for name in ("estimate", "if refused", "fifo P50", "fifo P95"):
        table.add_column(name, justify="right")
    for lane in Lane:
        waits = figures.lane_waits(lane)
        table.add_row(
            lane,
            f"{figures.asked_of(lane):,}",
            f"{figures.refused_of(lane):,}",
            seconds(percentile(waits, 0.5)),
            seconds(percentile(waits, 0.95)),
            *(
                seconds(figures.p95(lane, pool)) if figures.lane_waits(lane, pool) else "-"
                for pool in policies.CARDS
                if pool != "C-spot"
            ),
            _share(_median(figures.accepted_errors[lane])),
            _share(_median(figures.refused_errors[lane])),
            seconds(percentile((wait for _, wait in rival.waits[lane]), 0.5)),
            seconds(rival.p95(lane)),
        )
    return table


def pools_table(played: Played) -> Table:
    figures = played.figures
    table = Table(box=None, header_style="dim")
    names = ("pool", "card", "cards", "slots", "p0+p1 at peak", "all at peak", "used", "cost")
    for name in names:
        table.add_column(name, justify="left" if name in {"pool", "card"} else "right")
    better = policies.demand_by_pool((Lane.P0, Lane.P1))
    everybody = policies.demand_by_pool()
    for pool, cards in policies.CARDS.items():
        there = sum(figures.there[pool]) / cards.slots_per_card / _HOUR_MS
        table.add_row(
            pool,
            cards.kind,
            str(cards.number),
            str(cards.number * cards.slots_per_card),
            f"{better[pool]:.1f}",
            f"{everybody[pool]:.1f}",
            f"{figures.utilisation(pool_id=pool):.0%}",
            f"{there * cards.dollar_hour:,.0f}",
        )
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"±{value:.0%}"


def seconds(value: float) -> str:
    """For a person."""
    if value < 100:  # noqa: PLR2004
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7_200 else f"{value / 3600:.1f} h"  # noqa: PLR2004


# --- the page -------------------------------------------------------------------------------------


def write_page(played: Played, folder: Path) -> Path:
    """One HTML file; hands back where it lies."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{played.scenario.name}-{played.seed}.html"
    path.write_text(page(played), encoding="utf-8")
    return path


def page(played: Played) -> str:
    figures, told = played.figures, summary(played)
    fifo = [
        percentile(values, 0.95)
        for values in _by_bucket(played.rival.waits[Lane.P0], figures.horizon_ms)
    ]
    waits = {f"{lane}": figures.over_time(lane) for lane in Lane} | {"fifo": fifo}
    refused = {f"{lane}": figures.refused_over_time(lane) for lane in Lane}
    used = figures.used_over_time()
    costs = {
        pool: [
            sum(figures.there[pool][hour * 6 : hour * 6 + 6])
            / cards.slots_per_card
            / _HOUR_MS
            * cards.dollar_hour
            for hour in range(figures.horizon_ms // _HOUR_MS)
        ]
        for pool, cards in policies.CARDS.items()
    }
    cost = [sum(hour) for hour in zip(*costs.values(), strict=True)]
    plots = [
        _plot("Wait, P95 of those who came then (s; log scale)", waits, log=True),
        _plot("Refused at the door, share of who asked", refused, high=1.0),
        _plot("Use of the cards", {"p1": used}, high=1.0),
        _plot("Cost of the cards that were there, by hour", {"p2": cost}, step_minutes=60),
    ]
    rows = "".join(
        f"<tr><td>{html.escape(str(name))}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in told.items()
    )
    words = "".join(f"<p>{html.escape(line)}</p>" for line in about(played))
    bad = "".join(f"<li>{html.escape(line)}</li>" for line in played.violations)
    title = f"{played.scenario.name}, seed {played.seed}"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{title}</title><style>body{{font:14px system-ui,sans-serif;margin:2em;"
        "max-width:900px}td{padding:1px 14px 1px 0}svg text{font:11px system-ui,sans-serif}"
        f"</style><h1>{title}</h1>{words}{''.join(plots)}<ul>{bad}</ul><table>{rows}</table></html>"
    )


def _by_bucket(waits: Sequence[tuple[int, float]], horizon_ms: int) -> list[list[float]]:
    buckets: list[list[float]] = [[] for _ in range(horizon_ms // BUCKET_MS)]
    for at, wait in waits:
        if at < horizon_ms:
            buckets[at // BUCKET_MS].append(wait)
    return buckets


def _plot(
    title: str,
    lines: Mapping[str, Sequence[float]],
    *,
    high: float | None = None,
    log: bool = False,
    step_minutes: int = BUCKET_MS // 60_000,
) -> str:
    """Lines over the hours of the day."""
    top = max((max(line, default=0.0) for line in lines.values()), default=0.0)
    top = max(top, 1.0) if high is None else high
    marks = [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0] if log else [top / 2, top]
    marks = [mark for mark in marks if mark <= top * 1.001]

    def y(value: float) -> float:
        share = _log_share(value, top) if log else min(value / top, 1.0)
        return _TOP + _HEIGHT * (1 - share)

    parts = [f"<text x='{_LEFT}' y='14' font-weight='bold'>{html.escape(title)}</text>"]
    parts.extend(
        f"<line x1='{_LEFT}' x2='{_WIDTH}' y1='{y(mark):.1f}' y2='{y(mark):.1f}' "
        f"stroke='#ddd'/><text x='4' y='{y(mark) + 4:.1f}'>{mark:g}</text>"
        for mark in marks
    )
    count = max((len(line) for line in lines.values()), default=1)
    wide = (_WIDTH - _LEFT) / max(count - 1, 1)
    for index in range(0, count, max(180 // step_minutes, 1)):
        hour = (DAWN_HOUR + index * step_minutes / 60) % 24
        parts.append(
            f"<text x='{_LEFT + index * wide:.1f}' y='{_TOP + _HEIGHT + 14}'>{hour:02.0f}:00</text>"
        )
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS.get(name, "#444")
        points = " ".join(
            f"{_LEFT + index * wide:.1f},{y(value):.1f}" for index, value in enumerate(line)
        )
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colour}'/>")
        if len(lines) > 1:
            parts.append(
                f"<text x='{_WIDTH - 190 + number * 46}' y='14' fill='{colour}'>{name}</text>"
            )
    return f"<svg width='{_WIDTH}' height='{_TOP + _HEIGHT + 22}'>{''.join(parts)}</svg>"


def _log_share(value: float, top: float) -> float:
    from math import log1p  # noqa: PLC0415

    return min(log1p(max(value, 0.0)) / log1p(top), 1.0)
