"""Runner processes of this machine that outlive whoever started them, and are found again.

Each has a file with its pid, its start (in the kernel's ticks since boot) and the boot: a pid that
was given to another process later is never mistaken for it. It also carries its name in its
environment, so that one is found whose starter was killed before it had written the file.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

import msgspec

from schema.ids import PoolId

MARK_DIRECTORY: Final = "CUTLOG_FLEET_DIRECTORY"
MARK_RUNNER: Final = "CUTLOG_FLEET_RUNNER"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD: Final = 19  # of /proc/PID/stat, counted after the name: field 22 of the manual
_STATE_FIELD: Final = 0
_MODULE: Final = "gpu_runners"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One process, now and for ever."""

    pid: int
    start_ticks: int
    boot: str


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down of one runner."""

    name: str
    pool_id: PoolId
    number: int
    process: Identity
    draining_since: float | None = None
    """Seconds since boot at which it was told to drain; None: it is to work."""


def identify(pid: int) -> Identity | None:
    """The process that has this pid now; None when there is none, or it has ended (a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[_STATE_FIELD] in "ZX":
        return None
    return Identity(pid=pid, start_ticks=int(fields[_START_FIELD]), boot=_BOOT.read_text().strip())


def is_alive(process: Identity) -> bool:
    return identify(process.pid) == process


def send(process: Identity, *signals: signal.Signals) -> None:
    """Signals to exactly this process, if it still runs."""
    for one in signals:
        if is_alive(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, one)


class Files:
    """The files of one executor's runners, in a folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, kept: Kept) -> None:
        """Whole or not at all."""
        path = self._path(kept.name)
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(kept))
        new.replace(path)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def read(self) -> dict[str, Kept]:
        """Every file; one that can't be read is as good as none: its runner carries its mark."""
        found: dict[str, Kept] = {}
        for path in sorted(self._directory.glob("*.json")):
            with contextlib.suppress(msgspec.DecodeError, OSError):
                kept = msgspec.json.decode(path.read_bytes(), type=Kept)
                found[kept.name] = kept
        return found

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def find_marked(directory: Path) -> dict[str, Identity]:
    """Living runners (not their workers) that were started from this folder, by name."""
    found: dict[str, Identity] = {}
    mark = f"{MARK_DIRECTORY}={directory}".encode()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environ = (place / "environ").read_bytes().split(b"\0")
            if mark not in environ:
                continue
            if (place / "cmdline").read_bytes().split(b"\0")[1:3] != [b"-m", _MODULE.encode()]:
                continue
            identity = identify(int(place.name))
            prefix = f"{MARK_RUNNER}=".encode()
            name = next((one[len(prefix) :] for one in environ if one.startswith(prefix)), b"")
            if identity is not None and name:
                found[name.decode()] = identity
    return found
