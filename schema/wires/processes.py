"""Processes: how ours look for garbage, and which one is meant by a pid.

A pid that was given to another one later is never mistaken for it: a process is known by its pid
together with its start (in the kernel's ticks since boot, so no step of the clock changes it) and
the boot.
"""

import gc
import time
from pathlib import Path
from typing import Final

import msgspec

COLLECTED_EVERY: Final = (50_000, 20, 10)
"""Objects of each generation; the default of 700 took up to 40 % of a busy process's CPU."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD: Final = 19  # of /proc/PID/stat, counted after the name: field 22 of the manual
_STATE_FIELD: Final = 0
_EXEC_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.001


def collect_rarely() -> None:
    """For the start of a process of ours: hardly any of its garbage is cyclic."""
    gc.freeze()
    gc.set_threshold(*COLLECTED_EVERY)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One process, now and for ever."""

    pid: int
    start_ticks: int
    boot: str


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


def environ_of(pid: int) -> dict[str, str]:
    """What a process was started with; empty for threads of the kernel.

    Whoever starts a process goes on as soon as its file is being executed, which is before the
    kernel shows its environment: a look at that moment finds none, so the moment is waited for.
    Raises OSError where it has ended, or is another user's.
    """
    place = Path(f"/proc/{pid}")
    until = time.monotonic() + _EXEC_SECONDS
    while _is_between(place) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    raw = (place / "environ").read_bytes()
    if not raw:  # the arguments are shown a moment before the environment
        time.sleep(_LOOK_SECONDS)
        raw = (place / "environ").read_bytes()
    pairs = (one.partition("=") for one in raw.decode(errors="surrogateescape").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def _is_between(place: Path) -> bool:
    """Whether it has left one program and does not show the next one's arguments yet."""
    try:
        (place / "exe").readlink()  # threads of the kernel have none
        return not (place / "cmdline").read_bytes()
    except OSError:
        return False
