"""`python -m tests.benchmarks.faults --minutes N`; the last line is JSON."""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from cutlog.show import console
from tests.faults.harness import EACH_ONCE, Fault, run

_SECONDS_A_FAULT = 11
"""On average, with the pause after it; only to size the run."""


def main(arguments: list[str]) -> int:
    """Run, print the ledger of faults and sums."""
    parser = argparse.ArgumentParser(prog="cutlog bench faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--rate", type=float, default=150, help="submissions a second")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args(arguments)
    count = max(len(EACH_ONCE), int(options.minutes * 60 / _SECONDS_A_FAULT))
    faults = list(_schedule(count, options.seed))
    console.print(f"seed {options.seed}: {count} faults under {options.rate:g} submissions/s")
    with tempfile.TemporaryDirectory(prefix="cutlog-faults-") as folder:
        outcome = run(
            Path(folder), faults, rate=options.rate, tell=lambda line: console.print(f"  {line}")
        )
    console.print(outcome.ledger())
    line = {
        "faults": sum(outcome.faults.values()),
        "violations": len(outcome.proof.violations),
        "seed": options.seed,
        "seconds": round(outcome.seconds, 1),
        "unanswered": outcome.load.unanswered,
        "broken_answers": outcome.load.broken.total(),
        **outcome.proof.sums,
    }
    print(msgspec.json.encode(line).decode())
    load = outcome.load
    return 0 if not (outcome.proof.violations or load.unanswered or load.broken) else 1


def _schedule(count: int, seed: int) -> Iterator[Fault]:
    """Every fault once a round, each round in another order."""
    chance = random.Random(seed)
    every: Sequence[Fault] = EACH_ONCE
    for number in range(count):
        turn = number % len(every)
        if turn == 0:
            every = chance.sample(EACH_ONCE, len(EACH_ONCE))
        yield every[turn]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
