"""What a stack remembers in its folder: ports, secrets, and the processes that it started."""

import secrets
from pathlib import Path

import msgspec

from cutlog.stack.part import Secrets
from schema.wires.processes import Identity


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Written whole, by rename; readable by its owner only."""

    ports: dict[str, int] = {}
    processes: dict[str, Identity] = {}
    secrets: Secrets


def load(directory: Path) -> State:
    """The state that was kept, or that of a new stack."""
    path = _path(directory)
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=State)
    made = Secrets(
        postgres_password=secrets.token_urlsafe(24),
        valkey_password=secrets.token_urlsafe(24),
        s3_access_key=secrets.token_hex(10),
        s3_secret_key=secrets.token_urlsafe(30),
    )
    return State(secrets=made)


def save(directory: Path, state: State) -> None:
    new = directory / "stack.json.new"
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
    new.rename(_path(directory))


def _path(directory: Path) -> Path:
    return directory / "stack.json"
