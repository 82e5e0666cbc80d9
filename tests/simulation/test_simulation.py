"""Many seeds, each a whole flow with faults: nothing that must hold is ever broken."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.simulation import Outcome, simulate

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]

SEEDS = range(1, 81)
_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [simulate(seed) for seed in SEEDS]


def test_whatever_fails_nothing_that_must_hold_is_broken(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.violations]
    for outcome in failed:
        print(f"python -m tests.simulation --seed {outcome.seed}")
        print("\n".join(f"  {words}" for words in outcome.violations))
    assert [outcome.seed for outcome in failed] == []


def test_the_proof_that_knows_nothing_of_us_finds_the_same(outcomes: list[Outcome]) -> None:
    assert [outcome.seed for outcome in outcomes if outcome.proof.violations] == []
    sums = Counter[str]()
    for outcome in outcomes:
        sums.update(outcome.proof.sums)
    assert sums["reservations_open"] == 0
    assert sums["accepted"] == sums["tasks"] > len(SEEDS) * 80


def test_the_seeds_together_see_everything_happen(outcomes: list[Outcome]) -> None:
    """A simulation in which nothing goes wrong would prove nothing."""
    seen, notes = Counter[str](), Counter[str]()
    for outcome in outcomes:
        seen.update(outcome.counts)
        notes.update(note.rpartition(" s: ")[2] for note in outcome.notes)
    ends = ["SUCCEEDED", "FAILED", "CANCELED", "EXPIRED"]
    losses = ["lease_expired", "runner_replaced", "not_accepted", "drained", "backstop"]
    failures = ["network", "out_of_memory", "store", "time_limit", "crashed"]
    refused = ["rate_exceeded", "day_exhausted", "contract_exhausted", "idempotency_conflict"]
    wanted = [
        *ends,
        *(f"requeued:{cause}" for cause in (*losses, *failures)),
        *(f"refused:{reason}" for reason in refused),
    ]
    assert [name for name in wanted if seen[name] < 5] == []
    assert seen["never_stored"] > 2
    assert seen["crashes"] > 2 * len(SEEDS)
    assert seen["dead_letters"] > 2 * len(SEEDS)
    assert seen["poison"] > len(SEEDS)
    assert seen["incarnations"] > 20 * len(SEEDS)
    assert notes["all processors are away for 30 minutes"] > 5
    assert notes["the broker's clock jumps ahead by 10 minutes"] > 5


def test_a_seed_is_the_same_byte_for_byte_in_another_process() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "3", "--tasks", "40"],
        cwd=_ROOT,
        env={"PYTHONHASHSEED": "12345", "PATH": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    here = simulate(3, 40)
    assert here.violations == []
    assert f"log {here.digest}" in told.stdout
