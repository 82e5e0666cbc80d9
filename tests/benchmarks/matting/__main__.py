"""Pictures a second of the scene `matting` beside `rembg p`, with the same network.

`python -m tests.benchmarks.matting --rembg PROGRAM [--pictures N] [--modes refined,plain]` prints
one line of JSON. Both start fresh, read a folder of 1024 x 1024 PNGs and write PNGs; the one after
the other. Refined is ours with `refine` against `rembg p -a`, plain is ours without against
`rembg p` (ours still frees the colours of the ground, which that doesn't). The exit code tells
whether each ratio is at least 2.

rembg is a rival, no part of any of our sets: give it an environment of its own,
`python -m venv DIR && DIR/bin/pip install "rembg[cpu,cli]"`, and name `DIR/bin/rembg`. It takes the
network from the same file as we do.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.matting.ours import MODELS
from tests.support.hairy import hairy, write

GOAL = 2.0
_MODEL = "u2netp"
_DISTINCT = 10
"""So many pictures differ; the rest are copies: drawing takes longer than cutting out."""


class Spent:
    """What a child process took, of the clock and of the processors."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(
            command,
            check=True,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def figures(self, pictures: int) -> dict[str, float]:
        return {
            "seconds": round(self.seconds, 2),
            "pictures_per_second": round(pictures / self.seconds, 3),
            "cpu_seconds_per_picture": round(self.cpu_seconds / pictures, 3),
        }


def draw(folder: Path, pictures: int) -> None:
    """The pictures to cut out."""
    folder.mkdir()
    for number in range(pictures):
        path = folder / f"{number:03d}.png"
        if number < _DISTINCT:
            write(hairy(number).picture, path)
        else:
            shutil.copy(folder / f"{number % _DISTINCT:03d}.png", path)


def measure(rembg: str, mode: str, source: Path, scratch: Path, pictures: int) -> dict[str, object]:
    """Ours, then theirs, on the same pictures."""
    ours_out, theirs_out = scratch / f"ours-{mode}", scratch / f"theirs-{mode}"
    ours_out.mkdir()
    theirs_out.mkdir()
    ours = Spent(
        [sys.executable, "-m", "tests.benchmarks.matting.ours", str(source), str(ours_out), mode]
    )
    options = ["-a"] if mode == "refined" else []
    # Both ways in which its releases look for the file.
    home = scratch / "rembg"
    for place in (home, home / "models" / _MODEL):
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(MODELS / f"{_MODEL}.onnx", place)
    theirs = Spent(
        [rembg, "p", "-m", _MODEL, *options, str(source), str(theirs_out)],
        {"U2NET_HOME": str(home), "REMBG_HOME": str(home)},
    )
    written = len(list(theirs_out.glob("*.png")))
    if written != pictures:
        raise SystemExit(f"rembg wrote {written} of {pictures} pictures")
    return {
        "ours": ours.figures(pictures),
        "rembg": theirs.figures(pictures),
        "ratio": round(theirs.seconds / ours.seconds, 2),
        "cpu_ratio": round(theirs.cpu_seconds / ours.cpu_seconds, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Pictures a second of the scene `matting` beside `rembg p`."
    )
    parser.add_argument(
        "--rembg", required=True, help="the rival's program, in its own environment"
    )
    parser.add_argument("--pictures", type=int, default=50)
    parser.add_argument("--modes", default="refined,plain")
    arguments = parser.parse_args()
    modes = arguments.modes.split(",")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        draw(scratch / "in", arguments.pictures)
        ratios = {
            mode: measure(arguments.rembg, mode, scratch / "in", scratch, arguments.pictures)
            for mode in modes
        }
    reached = all(float(str(figures["ratio"])) >= GOAL for figures in ratios.values())
    print(json.dumps({"pictures": arguments.pictures, "goal": GOAL, "reached": reached, **ratios}))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
