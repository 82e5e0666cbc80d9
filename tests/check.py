"""`make check`: every tool and every test, in parts that each have a budget of time.

`python -m tests.check [PART...]` runs the named parts, or all. A part that takes twice its budget
is stopped and counts as failed. The last lines say what fell and sum the tests up, and the exit
code tells the truth.

Two runs on the same tree agree: the order of the tests follows one seed, and the examples of the
property tests always are the same (tests/conftest.py). `CHECK_SEED=2` is another order;
`CHECK_SEED=random` draws order and examples anew, to look for what nobody thought of.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PACKAGES = ("schema", "commands", "processors", "projections", "gpu_runners", "api", "cutlog")
# Minutes; "set-up" is what came before us.
BUDGETS = {
    "set-up": 6,
    "static": 3,
    "units": 5,
    "simulation": 6,
    "integration": 8,
    "faults": 5,
    "media": 9,
    "cost": 5,
    "replay": 5,
}
# Tests below each of the folders and all others run side by side, each on a stack of its own: what
# they do most is to wait for processes, and for time to pass.
SIDE_BY_SIDE = {
    "integration": ("tests/platform", "tests/api", "tests/gpu_runners"),
    "faults": ("tests/faults",),
}
# A test with several marks runs in the first of these parts.
MARKED = ("faults", "simulation", "media", "cost", "replay", "integration")
_NO_TESTS = 5  # pytest's exit code
SEED = os.environ.get("CHECK_SEED", "1")
_FALL_LINES_MAX = 12


@dataclass
class Outcome:
    """What became of one part."""

    part: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""
    falls: list[str] = field(default_factory=list)
    """Name and reason of each test that fell."""


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(BUDGETS)
    if unknown:
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(BUDGETS)}")
        return 2
    outcomes: list[Outcome] = []
    if not wanted:
        outcomes.append(Outcome("set-up", float(os.environ.get("CHECK_SETUP_SECONDS", "0"))))
    for part, minutes in BUDGETS.items():
        if part != "set-up" and (not wanted or part in wanted):
            print(f"\n== {part} (budget {minutes} min)", flush=True)
            began = time.monotonic()
            outcome = check_statics() if part == "static" else run_tests(part)
            outcome.seconds = time.monotonic() - began
            outcomes.append(outcome)
    return report(outcomes)


def check_statics() -> Outcome:
    """All tools, two at a time; the output of those that complain."""
    ours = [name for name in (*PACKAGES, "tests") if (ROOT / name).is_dir()]
    tools = {
        "ruff format": ["ruff", "format", "--check", "."],
        "ruff check": ["ruff", "check", "."],
        "mypy": ["mypy", *ours],
        "basedpyright": ["basedpyright", *ours],
        "import-linter": ["lint-imports", "--no-cache"],
    }
    outcome = Outcome("static")

    def run(name: str) -> tuple[str, int, str]:
        tool, *arguments = tools[name]
        try:
            done = subprocess.run(
                [str(BIN / tool), *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=BUDGETS["static"] * 120,
            )
        except subprocess.TimeoutExpired:
            return name, 1, "took too long"
        return name, done.returncode, done.stdout

    with ThreadPoolExecutor(2) as pool:
        for name, code, output in pool.map(run, tools):
            print(f"{name}: {'fine' if code == 0 else f'complains ({code})'}", flush=True)
            if code:
                outcome.failed += 1
                print(output.rstrip())
            else:
                outcome.passed += 1
    outcome.note = f"{outcome.passed} of {len(tools)} tools content"
    return outcome


def run_tests(part: str) -> Outcome:
    """The tests that belong to this part, in one run of pytest or in some side by side."""
    outcome = Outcome(part)
    apart = SIDE_BY_SIDE.get(part, ())
    sides = [*([folder] for folder in apart), [f"--ignore={folder}" for folder in apart]]
    with tempfile.TemporaryDirectory() as folder:
        runs = [Run(part, Path(folder), number, more) for number, more in enumerate(sides)]
        until = time.monotonic() + BUDGETS[part] * 120
        try:
            for run in runs:
                run.process.wait(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            outcome.failed, outcome.note = 1, "stopped at twice its budget"
        finally:
            for run in runs:
                run.end()
        for run in runs:
            run.tell(outcome)
    if not (outcome.passed or outcome.failed or outcome.skipped):
        outcome.note = "none yet"
    return outcome


class Run:
    """One pytest; the first of a part prints as it goes, the others when all are over."""

    def __init__(self, part: str, folder: Path, number: int, more: list[str]) -> None:
        self._results = folder / f"results-{number}.xml"
        self._output = folder / f"output-{number}.txt" if number else None
        command = [sys.executable, "-m", "pytest", "-q", "--durations=10", *more]
        command += [f"--junitxml={self._results}", "-m", expression(part)]
        if SEED != "random":
            command += [f"--randomly-seed={SEED}"]
        with ExitStack() as stack:
            out = None if self._output is None else stack.enter_context(self._output.open("wb"))
            self.process = subprocess.Popen(
                command, cwd=ROOT, start_new_session=True, stdout=out, stderr=out
            )

    def end(self) -> None:
        """Also when we are interrupted; its stack sees it and ends."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def tell(self, outcome: Outcome) -> None:
        """Print what was kept, and add what became of it."""
        if self._output is not None:
            print(self._output.read_text(errors="replace").rstrip(), flush=True)
        code = self.process.returncode
        if self._results.exists():
            read_results(self._results, outcome)
        if code not in {0, _NO_TESTS} and not outcome.failed:
            outcome.failed, outcome.note = 1, f"pytest ended with {code}"


def read_results(results: Path, outcome: Outcome) -> None:
    """Count what a run of pytest wrote down about itself, and keep the reasons of what fell."""
    for case in ET.parse(results).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it
        reasons = [*case.findall("failure"), *case.findall("error")]
        if reasons:
            name = f"{case.get('classname', '')}::{case.get('name')}"
            said = (reasons[0].get("message") or reasons[0].text or "").strip().splitlines()
            outcome.falls.append("\n    ".join([name, *said[:_FALL_LINES_MAX]]))
            outcome.failed += 1
        elif case.find("skipped") is not None:
            outcome.skipped += 1
        else:
            outcome.passed += 1


def expression(part: str) -> str:
    """The `-m` of pytest for a part, so that each test belongs to exactly one."""
    if part == "units":
        return " and ".join(f"not {mark}" for mark in MARKED)
    earlier = MARKED[: MARKED.index(part)]
    return " and ".join([part, *(f"not {mark}" for mark in earlier)])


def report(outcomes: list[Outcome]) -> int:
    for one in outcomes:
        for fall in one.falls:
            print(f"\n{one.part}: {fall}")
    print(f"\n{'part':<12} {'used':>8} {'budget':>7} {'passed':>7} {'failed':>7} {'skipped':>8}")
    for one in outcomes:
        late = "over budget; " if one.seconds > BUDGETS[one.part] * 60 else ""
        print(
            f"{one.part:<12} {one.seconds:>6.0f} s {BUDGETS[one.part]:>3} min "
            f"{one.passed:>7} {one.failed:>7} {one.skipped:>8}  {late}{one.note}".rstrip()
        )
    tests = [one for one in outcomes if one.part != "static"]
    failed = sum(one.failed for one in outcomes)
    print(
        f"\n{sum(one.passed for one in tests)} passed, {failed} failed, "
        f"{sum(one.skipped for one in tests)} skipped in "
        f"{sum(one.seconds for one in outcomes):.0f}s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
