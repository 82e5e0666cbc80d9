"""What every part of the local stack has to say about itself.

A part is one server from a package (Kafka, Postgres, Valkey, S3). It is stateless: where it lives
and how it is reached comes in as a `Place`, and all that it keeps stands in that place's folder.
"""

import importlib.util
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

HOST = "127.0.0.1"


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """Made once for a stack and kept with its state; none has a default."""

    postgres_password: str
    valkey_password: str
    s3_access_key: str
    s3_secret_key: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one part lives."""

    directory: Path  # the part's own folder; it exists
    ports: Mapping[str, int]  # of the whole stack, by name
    secrets: Secrets
    cache: Path  # downloads, shared by all stacks of a checkout


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a part's process is started."""

    arguments: list[str]
    environ: dict[str, str] = {}


class PartError(Exception):
    """A part could not be prepared, started or stopped; the message holds the end of its log."""


class Part(Protocol):
    """One server of the stack."""

    name: str
    ports: tuple[str, ...]  # the names of the ports that it listens on
    stop_signal: signal.Signals  # what it takes as "end in good order"

    def prepare(self, place: Place) -> None:
        """Lay out the folder before a start. Done again after a crash in the middle of it."""
        ...

    def launch(self, place: Place) -> Launch: ...

    def answers(self, place: Place) -> bool:
        """Whether the part serves its clients, told by a real request."""
        ...


def package_folder(name: str) -> Path:
    """Where a package lies that only its files are wanted of; nothing of it is run."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise PartError(f"{name} is not installed: run `make setup`")
    return Path(found.origin).parent


def run_once(arguments: list[str], *, what: str, stdin: str | None = None) -> None:
    """Run a preparing command to its end; its output is only shown when it fails."""
    done = subprocess.run(
        arguments,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise PartError(f"{what} failed ({done.returncode}):\n{done.stdout[-2000:]}")


def fresh(directory: Path) -> Path:
    """That folder, empty."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    return directory


@contextmanager
def scratch(directory: Path) -> Generator[Path]:
    """A new folder in `directory` to prepare something in, that is then renamed to its place.

    It has a name that nobody had before: a preparation whose starter was killed may still write to
    its own folder for a moment. Such leftovers are dropped.
    """
    for left in directory.glob("new-*"):
        shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix="new-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write_private(path: Path, text: str) -> Path:
    """Write a file that only its owner reads (it holds a secret)."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
    return path
