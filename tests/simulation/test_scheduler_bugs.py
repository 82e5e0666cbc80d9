"""The watch of the fast simulation is seen to see: every bug of the scheduler is found."""

import pytest

from tests.simulation.scheduler import play
from tests.simulation.scheduler_bugs import BUGS, broken

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]

SEEDS = range(1, 61)
"""Most are found by the first or the second."""


def found_by(bug: str) -> tuple[int, str] | None:
    """The first seed that finds it, and what it says."""
    for seed in SEEDS:
        with broken(bug):
            violations = play(seed).violations
        if violations:
            return seed, violations[0]
    return None


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_the_scheduler_is_found(bug: str) -> None:
    found = found_by(bug)
    assert found is not None, BUGS[bug].what
    print(f"{bug}: {BUGS[bug].what}: seed {found[0]}, {found[1]}")
