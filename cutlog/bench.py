"""Starts a benchmark of `tests/benchmarks` as a process of its own; its last line is JSON."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from cutlog.installation import ROOT

BENCHMARKS: Final = {
    "engine": "tests.benchmarks.engine",
    "lifecycles": "tests.benchmarks.lifecycles",
    "faults": "tests.benchmarks.faults",
    "pools": "tests.benchmarks.pools",
    "dispatch": "tests.benchmarks.dispatch",
    "autocut": "tests.benchmarks.autocut",
    "matting": "tests.benchmarks.matting",
    "uploads": "tests.benchmarks.uploads",
}
_NEEDED: Final = {"lifecycles": "procrastinate"}
"""What only developers install: the rival."""


def run(name: str, options: Sequence[str]) -> int:
    """Run one to its end; its exit code."""
    module = BENCHMARKS.get(name)
    if module is None:
        print(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    needed = _NEEDED.get(name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        print(f"{name} needs {needed}: `make setup-dev` brings it", file=sys.stderr)
        return 2
    return subprocess.run(
        [sys.executable, "-m", module, *options], cwd=ROOT, check=False
    ).returncode
