"""What the kernel tells of a process, and when."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from schema.wires.processes import Identity, environ_of, identify, is_alive

_STARTS = 300
"""One look in 30 finds no environment yet, where nothing waits for it."""


@contextmanager
def waiting(environ: dict[str, str]) -> Generator[int]:
    """A process that does nothing, and its pid."""
    with subprocess.Popen(["/bin/cat"], env=environ, stdin=subprocess.PIPE) as process:
        yield process.pid


def test_the_environment_of_a_process_is_there_as_soon_as_it_is_started() -> None:
    told = []
    for number in range(_STARTS):
        with waiting({"NUMBER": f"{number}=é"}) as pid:
            told.append(environ_of(pid).get("NUMBER"))
    assert told == [f"{number}=é" for number in range(_STARTS)]


def test_one_that_was_given_no_environment_has_none() -> None:
    with waiting({}) as pid:
        assert environ_of(pid) == {}


def test_one_that_has_ended_has_none_to_tell() -> None:
    """It keeps its pid until its parent has heard of its end."""
    with waiting({"NUMBER": "1"}) as pid:
        process = identify(pid)
        assert process is not None
        psutil.Process(pid).kill()
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{pid}").exists()
        assert not is_alive(process)
        with pytest.raises(ProcessLookupError):
            environ_of(pid)
    with pytest.raises(FileNotFoundError):
        environ_of(pid)


def test_a_pid_that_belongs_to_another_one_by_now_is_not_that_process() -> None:
    us = identify(os.getpid())
    assert us is not None
    assert is_alive(us)
    before = Identity(pid=us.pid, start_ticks=us.start_ticks - 1, boot=us.boot)
    assert not is_alive(before)
