"""Processes that outlive whoever started them, and are never mistaken for others.

Whoever finds another process under a pid than the one that was noted (`schema.wires.processes`)
leaves it alone. Each also carries the folder of its stack in its environment: a starter that is
killed before it has written the pid down leaves a process that can still be found.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from schema.wires.processes import Identity, environ_of, identify, is_alive

MARK_STACK = "CUTLOG_STACK_DIRECTORY"
MARK_PART = "CUTLOG_STACK_PART"


def find_marked(directory: Path) -> dict[str, Identity]:
    """Processes of the stack in `directory`, by part; children of a part don't count."""
    found: dict[str, Identity] = {}
    marked: dict[int, str] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environ = environ_of(process.pid)
            if (
                environ.get(MARK_STACK) == str(directory)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                marked[process.pid] = environ[MARK_PART]
    for pid, part in marked.items():
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(pid).ppid()
            process_identity = identify(pid)
            if marked.get(parent) != part and process_identity is not None:
                found[part] = process_identity
    return found


def tree(process: Identity) -> list[psutil.Process]:
    """The process and everything below it, children first; empty when it is gone."""
    try:
        root = psutil.Process(process.pid)
        below = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [*below, root] if is_alive(process) else []


def signal_all(process: Identity, what: signal.Signals) -> None:
    """Send a signal to the process and everything below it."""
    for one in tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(what)


def end(process: Identity, politely: signal.Signals, patience_seconds: float) -> bool:
    """Ask it to end, then make it; returns whether it went by itself. Nothing is left after it."""
    everyone = tree(process)
    if not everyone:
        return True
    root = everyone[-1]
    for one in everyone:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGCONT)  # one that is stopped hears nothing else
    with contextlib.suppress(psutil.NoSuchProcess):
        root.send_signal(politely)
    left = _await_end(everyone, patience_seconds)
    _kill(left)
    return not left


def kill(process: Identity) -> None:
    """SIGKILL to the process and everything below it; returns when they are gone."""
    _kill(tree(process)[::-1])


def _kill(processes: list[psutil.Process]) -> None:
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    _await_end(processes, 10)


def _await_end(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that still live after that time. One that waits for its parent's word has ended."""
    until = time.monotonic() + seconds
    left = [one for one in processes if _runs(one)]
    while left and time.monotonic() < until:
        time.sleep(0.01)
        left = [one for one in left if _runs(one)]
    return left


def _runs(process: psutil.Process) -> bool:
    """False for a zombie too, once its last thread is gone: then it holds neither port nor file."""
    try:
        if process.is_running() and process.status() == psutil.STATUS_ZOMBIE:
            threads = Path(f"/proc/{process.pid}/task").iterdir()
            return len(list(threads)) > 1
        return process.is_running()
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return False


def spawn(
    arguments: list[str], *, directory: Path, part: str, environ: dict[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a part in a session of its own: the keys of the terminal are not for it."""
    marks = {MARK_STACK: str(directory), MARK_PART: part}
    with log.open("ab") as out:
        return subprocess.Popen(
            arguments,
            cwd="/",
            env={**_plain_environ(), **environ, **marks},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def watch_over(directory: Path) -> subprocess.Popen[bytes]:
    """Start a watcher of the processes marked with this folder; its input is the owner's life."""
    return subprocess.Popen(
        [sys.executable, "-m", "cutlog.stack.watcher", str(directory)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _plain_environ() -> dict[str, str]:
    """What a server needs of ours; settings that change servers (PG*, JAVA*, S3_*) stay out."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "USER")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"TZ": "UTC"}
