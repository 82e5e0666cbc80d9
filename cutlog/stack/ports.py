"""Free ports that stay the same over restarts.

They are taken from below the range that the kernel gives to outgoing connections: a client that
knocks at a part that is down for a moment would otherwise sometimes be given that very port, hold
it, and keep the part from coming back (or even connect to itself).
"""

import random
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from cutlog.stack.part import HOST, PartError

_LOWEST = 15_000
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
    for name in names:
        if name not in assigned:
            assigned[name] = _pick(taken)
            taken.add(assigned[name])
    return assigned


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
