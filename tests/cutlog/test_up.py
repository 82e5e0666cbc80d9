"""What ends is started again: at once if it ran well, more slowly the more often it fails."""

import threading
from pathlib import Path

import pytest

from cutlog import up
from cutlog.installation import Installation, Service
from cutlog.stack.stack import PART_NAMES

pytestmark = pytest.mark.integration


class Pauses(threading.Event):
    """Notes each pause instead of waiting, and is set after so many."""

    def __init__(self, many: int) -> None:
        super().__init__()
        self.chosen: list[float | None] = []
        self._many = many

    def wait(self, timeout: float | None = None) -> bool:
        self.chosen.append(timeout)
        if len(self.chosen) == self._many:
            self.set()
        return self.is_set()


def pauses_after(ends: int, directory: Path) -> list[float | None]:
    """How long a process that ends by itself so often is left alone, each time."""
    installation = Installation(directory)
    installation.prepare()
    service = Service("this-1", "this", {}, 1)
    keeper = up._Keeper(service, installation, {})  # pyright: ignore[reportPrivateUsage]
    keeper._stopping = pauses = Pauses(ends)  # pyright: ignore[reportPrivateUsage]
    keeper.start()
    assert keeper.await_stop(100)
    assert keeper.starts == ends
    return pauses.chosen


def test_what_ran_well_is_started_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "_STABLE_SECONDS", 0)
    assert pauses_after(5, tmp_path) == [0] * 5


def test_what_fails_again_and_again_is_left_more_and_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "_STABLE_SECONDS", 3600)
    assert pauses_after(7, tmp_path) == [0.2, 0.5, 1, 2, 5, 5, 5]


def test_a_part_that_ended_is_back_and_the_others_are_left_alone(tmp_path: Path) -> None:
    told: list[str] = []
    installation = Installation(tmp_path / "kept", die_with_parent=True)
    stack, keeping = installation.stack, up.Up(installation, told.append)
    try:
        stack.start()
        before = {part: stack.pid(part) for part in PART_NAMES}
        keeping.keep_parts()
        assert told == []
        stack.kill("valkey")
        keeping.keep_parts()
        after = {part: stack.pid(part) for part in PART_NAMES}
        assert stack.answers("valkey")
        assert [line.partition(";")[0] for line in told] == ["valkey had ended"]
        assert [part for part in PART_NAMES if after[part] != before[part]] == ["valkey"]
    finally:
        stack.stop()


def test_a_disk_without_room_is_told_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "ROOM_BYTES_MIN", 1 << 60)
    installation = Installation(tmp_path / "full")
    with pytest.raises(up.UpError, match=r"full has \d+ MB left on its disk"):
        up.Up(installation).start()
    assert not installation.stack.directory.exists()
