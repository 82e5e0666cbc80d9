"""Nothing is lost, done twice or over-spent, whatever is killed or stopped."""

from pathlib import Path

import pytest

from tests.faults.harness import EACH_ONCE, run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

TASKS_MIN = 10_000


def test_every_part_may_fail_and_the_sums_are_right(tmp_path: Path) -> None:
    outcome = run(tmp_path, EACH_ONCE, rate=100, tell=print, at_least=TASKS_MIN)
    print(outcome.ledger())
    assert outcome.proof.violations == []
    assert outcome.load.unanswered == 0
    assert outcome.proof.sums["tasks"] >= TASKS_MIN
    assert outcome.proof.sums["objects"] >= TASKS_MIN // 20, "too few tasks stored a file"
    assert outcome.load.refused["quota_exhausted"] > 0, "the scarce tier never ran out"
    assert sum(outcome.faults.values()) == len(EACH_ONCE)
