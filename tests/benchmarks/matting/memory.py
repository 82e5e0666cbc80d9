"""Memory of a worker that cuts out picture after picture.

`python -m tests.benchmarks.matting.memory [--pictures N]` gives one worker tasks of 500 pictures of
eight sizes and prints one line of JSON. The exit code tells whether the memory resident in the last
quarter is at most 32 MiB above that in the second, by the lowest of each: what is at work comes and
goes. `kept_mib` is what it would be above it if each picture were kept; with fewer than a hundred
pictures that is too little to be told from the noise.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from gpu_runners.pipelines.matting import Matting
from gpu_runners.pipelines.pipeline import Progress, Work
from schema.scenes.matting import PICTURES_MAX
from tests.benchmarks.matting.ours import MODELS
from tests.support.hairy import hairy, write

GROWTH_MIB_MAX = 32.0
PICTURES_MIN = 100
_SIDES = (320, 420, 520, 620, 720, 820, 920, 1020)
_PICTURE_MIB = sum(side * side * 3 for side in _SIDES) / len(_SIDES) / 2**20


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
    if count < PICTURES_MIN:
        parser.error(f"at least {PICTURES_MIN} pictures")
    with tempfile.TemporaryDirectory() as folder:
        seen = watch(count, Path(folder))
    quarter = len(seen) // 4
    early, late = min(seen[quarter : 2 * quarter]), min(seen[-quarter:])
    flat = late - early <= GROWTH_MIB_MAX
    figures = {
        "early_mib": round(early, 1),
        "late_mib": round(late, 1),
        "max_mib": round(max(seen), 1),
        "kept_mib": round(count / 2 * _PICTURE_MIB, 1),
    }
    print(json.dumps({"pictures": count, "flat": flat, **figures}))
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
