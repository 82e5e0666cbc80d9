"""`python -m processors.simulation SCENARIO --seed N`: play it, tell it; the last line is JSON."""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from processors.simulation import report
from processors.simulation.play import Play
from processors.simulation.scenarios import NAMES, scenario


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m processors.simulation")
    parser.add_argument("scenario", choices=NAMES)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--factor", type=float, default=5.0, help="of the festival, up to 10")
    parser.add_argument("--faults", type=float, default=1.0, help="how often; 0: none")
    parser.add_argument("--out", type=Path, default=Path(".cutlog/simulations"))
    given = parser.parse_args(words)
    if not 1 <= given.factor <= 10:  # noqa: PLR2004
        parser.error("--factor is 1 to 10")
    played = Play(scenario(given.scenario, given.factor), given.seed, given.faults).run()
    console = Console(width=150 if not sys.stdout.isatty() else None)
    for line in report.about(played):
        console.print(line, highlight=False)
    console.print(report.lanes_table(played))
    console.print(report.pools_table(played))
    path = report.write_page(played, given.out)
    console.print(f"{path}", highlight=False)
    for violation in played.violations:
        console.print(f"! {violation}", style="red", markup=False)
    if played.violations:
        again = f"python -m processors.simulation {given.scenario} --seed {given.seed}"
        console.print(f"again: {again}", highlight=False)
    print(json.dumps(report.summary(played)))  # noqa: T201 - the figures, for whoever reads them
    return 1 if played.violations else 0


if __name__ == "__main__":
    sys.exit(main())
