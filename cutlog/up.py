"""Runs an installation: starts the parts, then our processes, and starts again what ends.

A process that has a doubt ends by itself; bringing it back at once makes that safe and quick. The
processes outlive a killed supervisor (people's tasks go on); the next start ends them first.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

import httpx

from cutlog.installation import ROOT, Installation, Service
from cutlog.stack import processes
from cutlog.stack.part import PartError
from cutlog.stack.stack import PART_NAMES
from schema.wires.processes import Identity, identify

_BACKOFF_SECONDS: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
_STABLE_SECONDS: Final = 20
_STOP_SECONDS: Final = 20
_READY_SECONDS: Final = 90
_POLL_SECONDS: Final = 0.1
_LOG_BYTES_MAX: Final = 32 << 20


ROOM_BYTES_MIN: Final = 500 << 20
"""An installation that nobody used yet takes 100 MB; the rest is for what it is given."""


class UpError(Exception):
    """The installation can't be brought up; the message says which part and shows its log's end."""


class _Keeper:
    """Keeps one process running, in a thread of its own, until it is told to stop."""

    def __init__(
        self, service: Service, installation: Installation, environ: dict[str, str]
    ) -> None:
        self.service = service
        self.log = installation.logs / f"{service.name}.log"
        self.starts = 0
        self._directory = installation.directory
        self._environ = environ | service.environ
        self._module = installation.plan.modules.get(service.module, service.module)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name=service.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def send(self, what: signal.Signals) -> None:
        """A signal to the process itself (not to what it started)."""
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(what)

    def ask_to_stop(self) -> None:
        self._stopping.set()
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)

    def await_stop(self, seconds: float) -> bool:
        """Whether it went by itself; afterwards nothing of it is left."""
        self._thread.join(seconds)
        willing = not self._thread.is_alive()
        child = self._child
        if child is not None:
            identity = identify(child.pid)
            if identity is not None:
                processes.kill(identity)
        self._thread.join(_STOP_SECONDS)
        return willing

    def problem(self) -> str | None:
        """Why the process is not ready, in its own words if it answers; None: it is."""
        if self.pid is None:
            return "it does not run"
        try:
            answer = httpx.get(f"{self.service.url}/readyz", timeout=2)
        except httpx.HTTPError as error:
            return f"it does not answer ({type(error).__name__})"
        return None if answer.status_code == HTTPStatus.OK else answer.text[:300]

    def tail(self, size: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def _keep(self) -> None:
        fast_ends = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            self._child = child = self._spawn()
            self.starts += 1
            if self._stopping.is_set():
                child.terminate()
            child.wait()
            fast_ends = 0 if time.monotonic() - began > _STABLE_SECONDS else fast_ends + 1
            self._stopping.wait(_BACKOFF_SECONDS[min(fast_ends, len(_BACKOFF_SECONDS) - 1)])

    def _spawn(self) -> subprocess.Popen[bytes]:
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES_MAX:
            self.log.rename(self.log.with_suffix(".log.1"))
        marks = {
            processes.MARK_STACK: str(self._directory),
            processes.MARK_PART: self.service.name,
        }
        with self.log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", self._module],
                cwd=ROOT,
                env={**_inherited(), **self._environ, **marks},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


class Up:
    """An installation at work. `start` returns when everything is ready."""

    def __init__(
        self, installation: Installation, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.installation = installation
        self._tell = tell
        self._keepers: dict[str, _Keeper] = {}
        self._watcher: subprocess.Popen[bytes] | None = None

    def start(self, ending: threading.Event | None = None) -> None:
        """Bring everything up; raises UpError or PartError, and leaves nothing running then.

        Setting `ending` gives up waiting: whoever set it stops everything next.
        """
        installation = self.installation
        installation.prepare()
        free = shutil.disk_usage(installation.directory).free
        if free < ROOM_BYTES_MIN:
            raise UpError(
                f"{installation.directory} has {free >> 20} MB left on its disk; at least "
                f"{ROOM_BYTES_MIN >> 20} MB are needed: Kafka and Postgres end without room"
            )
        if left := processes.find_marked(installation.directory):
            self._tell(f"ending what a killed `up` left: {', '.join(sorted(left))}")
        end_leftovers(installation)
        if installation.die_with_parent:
            self._watcher = processes.watch_over(installation.directory)
        try:
            took = installation.stack.start()
            parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items())
            self._tell(f"parts are up: {parts}")
            environ = installation.environ()
            for service in installation.services(installation.settle_ports()):
                keeper = _Keeper(service, installation, environ)
                self._keepers[service.name] = keeper
                keeper.start()
            self.await_ready(ending=ending)
        except BaseException:
            self.stop()
            raise

    def await_ready(
        self, seconds: float = _READY_SECONDS, *, ending: threading.Event | None = None
    ) -> None:
        """Until every process is ready; raises UpError with the log of the one that is not."""
        until = time.monotonic() + seconds
        waiting = dict(self._keepers)
        while waiting and not (ending is not None and ending.is_set()):
            for name, keeper in list(waiting.items()):
                if keeper.problem() is None:
                    self._tell(f"{name} is ready")
                    del waiting[name]
            if waiting and time.monotonic() > until:
                name, keeper = next(iter(waiting.items()))
                message = (
                    f"{name} is not ready: {keeper.problem()}; the end of {keeper.log}:\n"
                    f"{keeper.tail()}"
                )
                raise UpError(message)
            if waiting:
                time.sleep(_POLL_SECONDS)  # a process has no other way to tell

    def stop(self, *, stack: bool = True) -> None:
        """End the processes in good order, then the parts (unless `stack` is False)."""
        for kinds in (("api",), ("runner", "scaling", "prober"), ("projector",), ("processor",)):
            some = [k for name, k in self._keepers.items() if name.startswith(kinds)]
            for keeper in some:
                keeper.ask_to_stop()
            with ThreadPoolExecutor(max(1, len(some))) as pool:
                for stopping in [pool.submit(k.await_stop, _STOP_SECONDS) for k in some]:
                    stopping.result()
        self._keepers.clear()
        if self.installation.plan.scaled:
            end_leftovers(self.installation)  # runners whose executor had no time for them
        if self._watcher is not None:
            self._watcher.communicate(b"ended", timeout=_STOP_SECONDS)
            self._watcher = None
        if stack:
            self.installation.stack.stop()

    def keep_parts(self) -> None:
        """Start again the parts of the stack that have ended; one that can't is told, not raised.

        Not done by itself: drills that kill a part say when it comes back.
        """
        stack = self.installation.stack
        for part in PART_NAMES:
            if stack.pid(part) is None:
                try:
                    seconds = stack.restart(part)
                except PartError as error:
                    why = str(error).partition("\n")[0].removesuffix(":")
                    self._tell(f"{part} ended and does not come back: {why}")
                else:
                    self._tell(f"{part} had ended; it is back after {seconds:.1f} s")

    @property
    def names(self) -> list[str]:
        return list(self._keepers)

    @property
    def api_url(self) -> str:
        return self._keepers["api"].service.url

    def service(self, name: str) -> Service:
        return self._keepers[name].service

    def pid(self, name: str) -> int | None:
        return self._keepers[name].pid

    def starts(self, name: str) -> int:
        """How often this process was started."""
        return self._keepers[name].starts

    def ready(self, name: str) -> bool:
        return self._keepers[name].problem() is None

    def send(self, name: str, what: signal.Signals) -> None:
        """A signal to one process; one that ends is started again."""
        self._keepers[name].send(what)


@contextmanager
def running(
    installation: Installation, tell: Callable[[str], None] = lambda _: None
) -> Generator[Up]:
    """An installation that is up inside the block and gone after it."""
    up = Up(installation, tell)
    up.start()
    try:
        yield up
    finally:
        up.stop()


def end_leftovers(installation: Installation) -> list[str]:
    """End the processes of this installation that a killed supervisor left; their names."""
    left: dict[str, Identity] = processes.find_marked(installation.directory)
    for process in left.values():
        processes.end(process, signal.SIGTERM, _STOP_SECONDS)
    return sorted(left)


def _inherited() -> dict[str, str]:
    """Our environment without settings of another installation."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CUTLOG_")} | {
        "PYTHONUNBUFFERED": "1",
        "TZ": "UTC",
    }
