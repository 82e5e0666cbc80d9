"""Nothing is lost, done twice or over-spent, whatever is killed or stopped."""

from pathlib import Path

import pytest

from tests.faults.harness import EACH_ONCE, IN_PAIRS, run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

TASKS_MIN = 10_000


def test_every_part_may_fail_and_the_sums_are_right(tmp_path: Path) -> None:
    outcome = run(tmp_path, IN_PAIRS, rate=120, tell=print, at_least=TASKS_MIN, at_once=2)
    print(outcome.ledger())
    assert outcome.proof.violations == []
    assert outcome.load.unanswered == 0
    assert not outcome.load.broken
    assert outcome.proof.sums["tasks"] >= TASKS_MIN
    assert outcome.proof.sums["objects"] >= TASKS_MIN // 20, "too few tasks stored a file"
    assert outcome.load.refused["quota_exhausted"] > 0, "the scarce tier never ran out"
    assert set(outcome.faults) == {f"{fault.kind} {fault.target}" for fault in EACH_ONCE}
