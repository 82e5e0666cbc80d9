"""Starts the simulation of the processors as a process of its own; its last line is JSON."""

import subprocess
import sys
from collections.abc import Sequence

from cutlog.installation import ROOT


def run(scenario: str, options: Sequence[str]) -> int:
    """Play one to its end; its exit code, 1 where something that must hold did not.

    Ctrl-C ends us, and we end it: it has a session of its own and shows no stack of its own.
    """
    return subprocess.run(
        [sys.executable, "-m", "processors.simulation", scenario, *options],
        cwd=ROOT,
        check=False,
        start_new_session=True,
    ).returncode
