"""Any process may end at any instant: work goes on, once, and whoever listens hears it all.

Here each is ended once, by one of two signals; `python -m tests.platform.restarts` goes on and on.
"""

import random

import pytest

from tests.platform.installed import Platform
from tests.platform.restarts import run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_each_process_may_end_while_work_runs(platform: Platform) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    outcome = run(platform, rounds=1, seconds=5, seed=seed, tell=print)
    assert outcome.violations == []
    assert sorted(key.split()[1] for key in outcome.ended) == sorted(platform.up.names)
    assert {key.split()[0] for key in outcome.ended} == {"SIGKILL", "SIGTERM"}
