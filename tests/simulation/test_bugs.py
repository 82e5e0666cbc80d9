"""The watch is seen to see: every bug that is planted on purpose is found by some seed."""

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.bugs import BUGS, broken
from tests.simulation.simulation import simulate

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]

SEEDS = range(1, 121)
"""Most are found by the first or the second."""
TASKS = 80


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Poison is logged with its traceback; here there is much of it, and it is wanted."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def found_by(bug: str) -> int | None:
    """The first seed that finds it."""
    for seed in SEEDS:
        with broken(bug):
            if simulate(seed, TASKS, violations_max=1).violations:
                return seed
    return None


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_on_purpose_is_found(bug: str) -> None:
    seed = found_by(bug)
    assert seed is not None, BUGS[bug].what
    print(f"{bug}: {BUGS[bug].what}: seed {seed}")


def test_without_a_bug_the_same_seeds_are_clean() -> None:
    assert [seed for seed in range(1, 7) if simulate(seed, TASKS).violations] == []
