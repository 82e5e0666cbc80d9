"""`make check`: every tool and every test, in parts that each have a budget of time.

`python -m tests.check [PART...]` runs the named parts, or all. A part that takes twice its budget
is stopped and counts as failed. The last line sums the tests up, and the exit code tells the truth.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
# A test with several marks runs in the first of these parts.
MARKED = ("faults", "simulation", "media", "cost", "replay", "integration")
_NO_TESTS = 5  # pytest's exit code
_SUITE = re.compile(
    r'<testsuite [^>]*?errors="(\d+)" failures="(\d+)" skipped="(\d+)" tests="(\d+)"'
)


@dataclass
class Outcome:
    """What became of one part."""

    part: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""


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
    """One run of pytest over the tests that belong to this part."""
    outcome = Outcome(part)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}"]
        command += ["-m", expression(part)]
        run = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        try:
            code = run.wait(timeout=BUDGETS[part] * 120)
        except subprocess.TimeoutExpired:
            outcome.failed, outcome.note = 1, "stopped at twice its budget"
            return outcome
        finally:
            if run.poll() is None:  # also when we are interrupted; its stack sees it and ends
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        found = _SUITE.search(results.read_text()) if results.exists() else None
    if code == _NO_TESTS:
        outcome.note = "none yet"
        return outcome
    if found is not None:
        errors, failures, skipped, total = map(int, found.groups())
        outcome.failed, outcome.skipped = errors + failures, skipped
        outcome.passed = max(0, total - errors - failures - skipped)
    if code and not outcome.failed:
        outcome.failed, outcome.note = 1, f"pytest ended with {code}"
    return outcome


def expression(part: str) -> str:
    """The `-m` of pytest for a part, so that each test belongs to exactly one."""
    if part == "units":
        return " and ".join(f"not {mark}" for mark in MARKED)
    earlier = MARKED[: MARKED.index(part)]
    return " and ".join([part, *(f"not {mark}" for mark in earlier)])


def report(outcomes: list[Outcome]) -> int:
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
