"""Any process may end at any instant: work goes on, once, and whoever listens hears it all."""

import random

import pytest

from tests.platform.installed import Platform
from tests.platform.restarts import run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_every_process_may_end_while_work_runs(platform: Platform) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    outcome = run(platform, rounds=2, seconds=6, seed=seed, tell=print)
    assert outcome.violations == []
    for name in platform.up.names:
        assert {outcome.ended[f"{what} {name}"] for what in ("SIGKILL", "SIGTERM")} == {1}
