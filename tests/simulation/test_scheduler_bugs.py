"""The watch of the fast simulation is seen to see: every bug of the scheduler is found."""

import pytest

from tests.simulation.scheduler import play
from tests.simulation.scheduler_bugs import BUGS, broken

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]

SEEDS = range(1, 61)
"""Most are found by the first or the second."""


def found_by(bug: str) -> int | None:
    """The first seed that finds it."""
    for seed in SEEDS:
        with broken(bug):
            if play(seed).violations:
                return seed
    return None


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_the_scheduler_is_found(bug: str) -> None:
    seed = found_by(bug)
    assert seed is not None, BUGS[bug].what
    print(f"{bug}: {BUGS[bug].what}: seed {seed}")
