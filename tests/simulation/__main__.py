"""`python -m tests.simulation --seed N`: a seed again, with all that happened in it."""

import argparse
import contextlib
import logging
import sys
import time

from tests.simulation.simulation import TASKS, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--tasks", type=int, default=TASKS, help="submissions in each")
    parser.add_argument("--bug", default="", help="broken on purpose; see tests/simulation/bugs.py")
    parser.add_argument("--scheduler", action="store_true", help="the fast one, of the scheduler")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.scheduler:
        return scheduler(range(given.seed, given.seed + given.seeds), given.bug)
    failed = 0
    for seed in range(given.seed, given.seed + given.seeds):
        began = time.perf_counter()
        if given.bug:
            from tests.simulation.bugs import broken  # noqa: PLC0415 - only where it is wanted

            with broken(given.bug):
                outcome = simulate(seed, given.tasks)
        else:
            outcome = simulate(seed, given.tasks)
        failed += bool(outcome.violations)
        counts = " ".join(f"{name}={count}" for name, count in sorted(outcome.counts.items()))
        print(
            f"seed {seed}: {len(outcome.violations)} violations, {outcome.seconds:.0f} virtual s "
            f"in {time.perf_counter() - began:.2f} s, log {outcome.digest}\n  {counts}"
        )
        for note in outcome.notes:
            print(f"  {note}")
        for violation in outcome.violations:
            print(f"  ! {violation}")
    return 1 if failed else 0


def scheduler(seeds: range, bug: str) -> int:
    """Seeds of the fast simulation again; the exit code says if all was well."""
    from tests.simulation.scheduler import play  # noqa: PLC0415 - only where it is wanted
    from tests.simulation.scheduler_bugs import broken  # noqa: PLC0415

    failed = 0
    for seed in seeds:
        with broken(bug) if bug else contextlib.nullcontext():
            played = play(seed)
        failed += bool(played.violations)
        print(
            f"seed {seed}: {len(played.violations)} violations, {played.tasks} tasks, "
            f"{played.commands} commands, {played.virtual_seconds:.0f} virtual s"
        )
        for violation in played.violations:
            print(f"  ! {violation}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
