"""Many seeds of the fast simulation, faults on: nothing that must hold is ever broken."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from processors.simulation.play import Played
from tests.simulation.scheduler import TASKS, play

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]

SEEDS = range(1, 141)
_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def played() -> list[tuple[int, list[str], Counter[str]]]:
    """Of each seed what was found and what happened; the rest would fill the memory."""
    return [_told(play(seed)) for seed in SEEDS]


def _told(one: Played) -> tuple[int, list[str], Counter[str]]:
    counts = Counter(one.watch.counts)
    counts.update({f"fleet:{name}": count for name, count in one.fleet.counts.items()})
    counts.update(crashes=one.crashes, tasks=one.tasks)
    counts.update(outages=bool(one.scenario.outages), skewed=one.scenario.skewed)
    return one.seed, one.violations, counts


def test_whatever_fails_the_scheduler_keeps_its_word(
    played: list[tuple[int, list[str], Counter[str]]],
) -> None:
    for seed, violations, _ in played:
        if violations:
            print(f"python -m tests.simulation --scheduler --seed {seed}")
            print("\n".join(f"  {words}" for words in violations))
    assert [seed for seed, violations, _ in played if violations] == []


def test_the_seeds_of_the_scheduler_see_everything_happen(
    played: list[tuple[int, list[str], Counter[str]]],
) -> None:
    """A simulation in which nothing goes wrong would prove nothing."""
    seen = Counter[str]()
    for _, _, counts in played:
        seen.update(counts)
    wanted = [
        *("succeeded", "failed", "canceled", "expired", "preempted", "moved"),
        *("breaker opened", "breaker half open", "breaker closed", "outages", "skewed"),
        *(f"requeued:{cause}" for cause in ("preempted", "spot", "drained", "lease_expired")),
        *(f"fleet:{what}" for what in ("killed", "paused", "drained", "spot")),
    ]
    assert [name for name in wanted if seen[name] < 5] == []
    assert seen["crashes"] > len(SEEDS)
    assert seen["tasks"] >= len(SEEDS) * TASKS


def test_a_seed_of_the_fast_simulation_is_the_same_in_another_process() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--scheduler", "--seed", "3"],
        cwd=_ROOT,
        env={"PYTHONHASHSEED": "12345", "PATH": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    here = play(3)
    assert here.violations == []
    assert f"{here.commands} commands, {here.virtual_seconds:.0f} virtual s" in told.stdout
