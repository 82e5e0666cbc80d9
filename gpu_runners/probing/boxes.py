"""The index of an MP4 or QuickTime file, read box by box: what it names, and whether it is locked.

Nothing that it names is ever opened (the reader follows no reference); a film whose pictures stand
in another file is told so instead of being called damaged.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpu_runners.probing.verdicts import RefusedError
from schema.refusals import MaterialRefusal

_INDEX_BYTES_MAX: Final = 256 << 20
_DEPTH_MAX: Final = 8
_HEAD: Final = 8
_PARENTS: Final = frozenset({b"moov", b"trak", b"mdia", b"minf", b"dinf", b"rmra", b"rmda"})
_LOCKED: Final = (b"encv", b"enca")


def refuse_boxes(path: Path, size: int) -> None:
    """Refuse references to other files, and locked films. Raises RefusedError."""
    index = _index(path, size)
    if b"sinf" in index and any(mark in index for mark in _LOCKED):
        raise RefusedError(
            MaterialRefusal.ENCRYPTED, "The film is encrypted: it was bought or rented."
        )
    for kind, content in _walk(index, 0):
        if kind in (b"rdrf", b"rmvc") or (kind == b"dref" and _names_a_file(content)):
            raise RefusedError(
                MaterialRefusal.NAMES_OTHERS,
                "The film's pictures or sound stand in another file, which it names.",
            )


def _index(path: Path, size: int) -> bytes:
    """The content of its outermost index; empty where there is none."""
    at = 0
    with path.open("rb") as file:
        while at + _HEAD <= size:
            file.seek(at)
            head = file.read(16)
            length, start = int.from_bytes(head[:4], "big"), _HEAD
            if length == 1:
                length, start = int.from_bytes(head[8:16], "big"), 16
            if length == 0:
                length = size - at
            if length < start:
                break
            if head[4:8] == b"moov":
                if length > _INDEX_BYTES_MAX:
                    raise RefusedError(
                        MaterialRefusal.PROBE_LIMIT, f"The film's index alone has {length} bytes."
                    )
                file.seek(at + start)
                return file.read(length - start)
            at += length
    return b""


def _walk(data: bytes, depth: int) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + _HEAD <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + _HEAD]
        if length < _HEAD:
            return
        content = data[at + _HEAD : at + length]
        yield kind, content
        if kind in _PARENTS and depth < _DEPTH_MAX:
            yield from _walk(content, depth + 1)
        at += length


def _names_a_file(content: bytes) -> bool:
    """Whether any entry of a list of references is not this file itself (flag 1)."""
    return any(
        entry[:4] != b"\0\0\0\1" and len(entry) > 4  # noqa: PLR2004 - more than its flags
        for _, entry in _walk(content[8:], _DEPTH_MAX)
    )
