"""Runner processes of this machine that outlive whoever started them, and are found again.

Each has a file that says which process it is (`schema.wires.processes`). It also carries its name
in its environment, so that one is found whose starter was killed before it had written the file.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

import msgspec

from schema.ids import PoolId
from schema.wires.processes import Identity, environ_of, identify, is_alive

MARK_DIRECTORY: Final = "CUTLOG_FLEET_DIRECTORY"
MARK_RUNNER: Final = "CUTLOG_FLEET_RUNNER"
_MODULE: Final = "gpu_runners"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down of one runner."""

    name: str
    pool_id: PoolId
    number: int
    process: Identity
    draining_since: float | None = None
    """Seconds since boot at which it was told to drain; None: it is to work."""


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
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environ = environ_of(int(place.name))
            if environ.get(MARK_DIRECTORY) != str(directory):
                continue
            if (place / "cmdline").read_bytes().split(b"\0")[1:3] != [b"-m", _MODULE.encode()]:
                continue
            identity = identify(int(place.name))
            name = environ.get(MARK_RUNNER)
            if identity is not None and name:
                found[name] = identity
    return found
