"""The table of a gallery: a line for each film that was made, as text and as JSON."""

from pathlib import Path
from typing import Any

import msgspec

from tests.gallery.looking import SILENT_LUFS, FilmMeasured

_HEAD = (
    f"{'name':34} {'size':>9} {'seconds':>8} {'LUFS':>7} {'apart':>7} {'held':>5} "
    f"{'flick':>5} {'bars':>8}  faults"
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one order."""

    name: str
    scene: str
    card_seconds: float | None = None
    films: tuple[FilmMeasured, ...] = ()
    files: tuple[str, ...] = ()
    facts: dict[str, Any] = {}
    faults: tuple[str, ...] = ()


def write(rows: list[Row], out: Path) -> None:
    """Write `gallery.txt` and `gallery.json`, and print the former."""
    lines = [_HEAD, *(line for row in rows for line in _lines(row))]
    wrong = sum(bool(row.faults) for row in rows)
    lines.append(f"\n{len(rows)} orders, {wrong} with faults")
    text = "\n".join(lines) + "\n"
    (out / "gallery.txt").write_text(text)
    (out / "gallery.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    print(text)


def _lines(row: Row) -> list[str]:
    told = "; ".join(row.faults) or "-"
    if not row.films:
        return [f"{row.name:34} {len(row.files):>9} files {'':47}{told}"]
    return [f"{row.name:34} {_measures(film)}  {told}" for film in row.films]


def _measures(film: FilmMeasured) -> str:
    silent = film.lufs is not None and film.lufs < SILENT_LUFS
    lufs = "none" if film.lufs is None else "silent" if silent else f"{film.lufs:.1f}"
    apart = "-" if film.apart_seconds is None else f"{film.apart_seconds * 1000:.0f} ms"
    size, bars = f"{film.width}x{film.height}", f"{film.bars[0]}+{film.bars[1]}"
    return (
        f"{size:>9} {film.seconds:>8.2f} {lufs:>7} {apart:>7} {len(film.held):>5} "
        f"{film.flicker:>5.1f} {bars:>8}"
    )
