"""What ends is started again: at once if it ran well, more slowly the more often it fails."""

import time
from pathlib import Path

import pytest

from cutlog import up
from cutlog.installation import Installation, Service

pytestmark = pytest.mark.integration


def starts_in(seconds: float, directory: Path) -> int:
    """How often a process that ends by itself at once is started in that time."""
    installation = Installation(directory)
    installation.prepare()
    service = Service("this-1", "this", {}, 1)
    keeper = up._Keeper(service, installation, {})  # pyright: ignore[reportPrivateUsage]
    keeper.start()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            time.sleep(0.05)  # what is counted is what happens in this time
        return keeper.starts
    finally:
        keeper.ask_to_stop()
        keeper.await_stop(10)


def test_what_ran_well_is_started_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "_STABLE_SECONDS", 0)
    assert starts_in(4, tmp_path) >= 5


def test_what_fails_again_and_again_is_left_more_and_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "_STABLE_SECONDS", 3600)
    assert 2 <= starts_in(4, tmp_path) <= 5
