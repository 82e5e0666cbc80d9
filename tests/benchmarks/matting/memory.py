"""Memory of a worker that cuts out picture after picture.

`python -m tests.benchmarks.matting.memory [--pictures N]` gives one worker tasks of 500 pictures of
eight sizes and prints one line of JSON. The exit code tells whether the last tenth of the pictures
left at most 16 MiB more resident than the second tenth, by the lowest of each: what is at work
comes and goes.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from gpu_runners.pipelines.matting import Matting
from gpu_runners.pipelines.matting.parameters import PICTURES_MAX
from gpu_runners.pipelines.pipeline import Progress, Work
from tests.benchmarks.matting.ours import MODELS
from tests.support.hairy import hairy, write

GROWTH_MIB_MAX = 16.0
_SIDES = (200, 256, 300, 360, 420, 480, 520, 600)


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def watch(count: int, scratch: Path) -> list[float]:
    """Resident memory at each report, as `count` pictures are cut out."""
    pictures = [
        write(hairy(number, side).picture, scratch / f"{number}.png")
        for number, side in enumerate(_SIDES)
    ]
    matting = Matting(models_directory=MODELS)
    seen: list[float] = []

    def report(_: Progress) -> None:
        seen.append(resident_mib())

    for first in range(0, count, PICTURES_MAX):
        out = scratch / "out"
        out.mkdir()
        numbers = range(first, min(count, first + PICTURES_MAX))
        work = Work(
            task_id=f"task-{first}",
            token=1,
            scene="matting",
            parameters={"format": "webp"},
            inputs={f"m{number}": pictures[number % len(pictures)] for number in numbers},
            directory=out,
        )
        matting.run(work, report)
        shutil.rmtree(out)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory of a worker of the scene `matting`.")
    parser.add_argument("--pictures", type=int, default=1_000)
    count = int(parser.parse_args().pictures)
    with tempfile.TemporaryDirectory() as folder:
        seen = watch(count, Path(folder))
    tenth = max(1, len(seen) // 10)
    early, late = min(seen[tenth : 2 * tenth]), min(seen[-tenth:])
    flat = late - early <= GROWTH_MIB_MAX
    figures = {"early_mib": round(early, 1), "late_mib": round(late, 1), "max_mib": max(seen)}
    print(json.dumps({"pictures": count, "flat": flat, **figures}))
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
