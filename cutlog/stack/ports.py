"""Free ports that stay the same over restarts.

They are taken from below the range that the kernel gives to outgoing connections: a client that
knocks at a part that is down for a moment would otherwise sometimes be given that very port, hold
it, and keep the part from coming back (or even connect to itself).

Seconds pass before a part listens on what it was given. Stacks that start side by side would now
and then be given the same port: a file of the user, shared by all of them, tells what was given
lately.
"""

import fcntl
import os
import random
import socket
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cutlog.stack.part import HOST, PartError

_LOWEST = 15_000
_GIVEN_SECONDS = 600
"""More than any part takes until it listens."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Whether we could listen there now; connections that linger from before don't count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def assign(
    names: Iterable[str],
    *,
    wanted: Mapping[str, int],
    kept: Mapping[str, int],
    in_use: Iterable[str] = (),
) -> dict[str, int]:
    """A port for each name: what the caller wants, else what it had before, else a free one.

    `in_use` are the names whose part still runs; their ports are busy with good reason.
    """
    busy = set(in_use)
    assigned: dict[str, int] = {}
    for name in names:
        if name in wanted:
            if name not in busy and not is_free(wanted[name]):
                raise PartError(
                    f"port {wanted[name]} ({name}) is taken by another program, or needs more "
                    "rights than we have: choose another"
                )
            assigned[name] = wanted[name]
        elif name in kept and (name in busy or is_free(kept[name])):
            assigned[name] = kept[name]
    taken = set(assigned.values()) | set(wanted.values()) | set(kept.values())
    missing = [name for name in names if name not in assigned]
    if missing:
        with _given_lately() as given:
            for name in missing:
                assigned[name] = port = _pick(taken | given.keys())
                given[port] = time.monotonic()
    return assigned


@contextmanager
def _given_lately() -> Generator[dict[int, float]]:
    """Ports with the time since boot at which somebody got them; what is added is kept.

    Nothing is known and nothing kept where that file can't be opened: ports are given all the same.
    """
    path = Path(tempfile.gettempdir()) / f"cutlog-ports-{os.getuid()}.json"
    try:
        place = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield {}
        return
    with os.fdopen(place, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            given = msgspec.json.decode(file.read(), type=dict[int, float])
        except msgspec.DecodeError:  # new, or its writer was killed
            given = {}
        now = time.monotonic()
        given = {port: at for port, at in given.items() if 0 <= now - at < _GIVEN_SECONDS}
        yield given
        file.seek(0)
        file.truncate()
        file.write(msgspec.json.encode(given))


def _pick(taken: set[int]) -> int:
    highest = 32_000
    if _EPHEMERAL.exists():
        highest = int(_EPHEMERAL.read_text().split()[0]) - 1
    low, high = (_LOWEST, highest) if highest > _LOWEST + 1000 else (20_000, 60_000)
    chance = random.SystemRandom()
    for _ in range(1000):
        port = chance.randint(low, high)
        if port not in taken and is_free(port):
            return port
    raise PartError(f"no free port between {low} and {high}")
