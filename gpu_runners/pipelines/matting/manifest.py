"""What a task of matting tells of each of its pictures: `manifest.json` beside the cut-outs."""

from enum import StrEnum
from pathlib import Path

import msgspec

from schema.scenes.matting import MattingParameters


class Kind(StrEnum):
    PICTURE = "picture"
    ANIMATION = "animation"
    FILM = "film"


class Status(StrEnum):
    MADE = "made"
    FAILED = "failed"


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One material: what became of it, or why nothing did."""

    name: str
    """Of the material, as the task names it."""
    status: Status
    seconds: float
    """Time of one thread."""
    kind: Kind | None = None
    """None: it turned out to be neither."""
    reason: str | None = None
    """Why it failed, for programs: one of the reasons for which an input is refused."""
    message: str | None = None
    """The same for people."""
    file: str | None = None
    """Name of the cut-out: a file of the result, or a member of its archive."""
    size: int = 0
    """Bytes of the cut-out."""
    sha256: str | None = None
    width: int = 0
    height: int = 0
    source_width: int = 0
    source_height: int = 0
    frames: int = 1
    refined: bool = False
    """Whether the edge was found in the picture's own pixels; else the network's mask stands."""
    covered: float = 0.0
    """Part of the canvas that the subject covers."""
    notes: tuple[str, ...] = ()
    """What was changed beside the ground, said to people."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    made: int
    failed: int
    archive: str | None
    """The file that holds the cut-outs; None: each is a file of the result."""
    parameters: MattingParameters
    pictures: tuple[Entry, ...]
    """In the order of the materials."""


def write(manifest: Manifest, path: Path) -> None:
    """As JSON that a person can read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
