"""What an upload sends again over a line that is cut again and again.

`python -m tests.benchmarks.uploads [--megabytes N] [--cuts N] [--seed N]` uploads a picture of
noise to an installation of its own, all connections being reset at so many random places, then
another, the places being even; beside them what a single PUT would have sent, had each cut meant
to begin anew. The last line is JSON; the exit code tells whether each sent less than a tenth again
and the file arrived whole.
"""

import argparse
import hashlib
import json
import math
import random
import sys
import tempfile
from pathlib import Path

from tests.support.bad_lines import Shop, open_shop
from tests.support.pictures import noise_png

GOAL = 0.1
_MEGABYTE = 1_000_000
_BYTES_A_PIXEL = 3


def main(options: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="cutlog bench uploads", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args(options)
    side = math.isqrt(given.megabytes * _MEGABYTE // _BYTES_A_PIXEL)
    with tempfile.TemporaryDirectory() as folder, open_shop(Path(folder)) as shop:
        figures = {
            kind: _upload(shop, Path(folder) / f"{kind}.png", side, _places(given, kind))
            for kind in ("random", "even")
        }
    reached = all(one["again"] < GOAL and one["whole"] for one in figures.values())
    print(json.dumps({"cuts": given.cuts, "goal": GOAL, "reached": reached, **figures}))
    return 0 if reached else 1


def _places(given: argparse.Namespace, kind: str) -> list[float]:
    """Where the line is cut, as shares of the file."""
    if kind == "even":
        return [(number + 1) / (given.cuts + 1) for number in range(given.cuts)]
    return sorted(random.Random(given.seed).random() for _ in range(given.cuts))


def _upload(shop: Shop, file: Path, side: int, places: list[float]) -> dict[str, float | bool]:
    content = noise_png(side, side)
    file.write_bytes(content)
    size, digest = len(content), hashlib.sha256(content).hexdigest()
    del content
    before, cuts = shop.line.sent, len(shop.line.lost_by_cuts)
    shop.line.cut_at(*(int(place * size) for place in places))
    with shop.client("ann") as client:
        found = client.await_material(client.upload(file))
    sent = shop.line.sent - before
    return {
        "bytes": size,
        "sent": sent,
        "again": round(sent / size - 1, 4),
        "cuts": len(shop.line.lost_by_cuts) - cuts,
        "whole": (found["status"], found["sha256"]) == ("READY", digest),
        "again_of_one_put": round(sum(places), 2),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
