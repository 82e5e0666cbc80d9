"""The tracks of a Matroska or WebM file, read element by element: whether they are locked.

What is encrypted in them are the pictures alone, so that a reader opens the file and finds every
one of them damaged.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpu_runners.probing.verdicts import RefusedError
from schema.refusals import MaterialRefusal

_SEGMENT: Final = 0x18538067
_TRACKS: Final = 0x1654AE6B
_TRACK: Final = 0xAE
_ENCODINGS: Final = 0x6D80
_ENCODING: Final = 0x6240
_ENCODING_TYPE: Final = 0x5033
_ENCRYPTION: Final = 0x5035
_IS_ENCRYPTION: Final = 1
_KIND: Final = 0x83
_SHOWN: Final = (1, 2)
"""Kinds of tracks that a film needs: pictures and sound. Words may be locked for all we care."""

_HEAD_BYTES: Final = 12
_TRACKS_BYTES_MAX: Final = 4 << 20
_ELEMENTS_MAX: Final = 100_000


class _Head(NamedTuple):
    """Which element it is, and where its content lies."""

    kind: int
    start: int
    length: int | None
    """None: it goes on until something else begins."""


def refuse_locked_tracks(path: Path, size: int) -> None:
    """Refuse a film whose pictures or sound are encrypted. Raises RefusedError."""
    for track in _children(_tracks(path, size), _TRACK):
        kinds = list(_children(track, _KIND))
        if kinds and int.from_bytes(kinds[0]) not in _SHOWN:
            continue
        for encodings in _children(track, _ENCODINGS):
            if any(_is_locked(encoding) for encoding in _children(encodings, _ENCODING)):
                raise RefusedError(
                    MaterialRefusal.ENCRYPTED, "The film is encrypted: its tracks say so."
                )


def _is_locked(encoding: bytes) -> bool:
    kinds = [int.from_bytes(kind) for kind in _children(encoding, _ENCODING_TYPE)]
    return _IS_ENCRYPTION in kinds or any(True for _ in _children(encoding, _ENCRYPTION))


def _tracks(path: Path, size: int) -> bytes:
    """The content of the list of tracks; empty where none is found."""
    at = 0
    with path.open("rb") as file:
        for _ in range(_ELEMENTS_MAX):
            file.seek(at)
            head = _head(file.read(_HEAD_BYTES), 0)
            if head is None:
                break
            start = at + head.start
            if head.kind == _SEGMENT:
                at = start
                continue
            if head.length is None or start + head.length > size:
                break
            if head.kind == _TRACKS:
                file.seek(start)
                return file.read(min(head.length, _TRACKS_BYTES_MAX))
            at = start + head.length
    return b""


def _children(data: bytes, kind: int) -> Iterator[bytes]:
    """The contents of the elements of a kind that stand in another's content."""
    at = 0
    while (head := _head(data, at)) is not None and head.length is not None:
        at = head.start + head.length
        if head.kind == kind:
            yield data[head.start : at]


def _head(data: bytes, at: int) -> _Head | None:
    """The element that begins there, if one does."""
    kind_end = at + _width(data, at)
    end = kind_end + _width(data, kind_end)
    if not at < kind_end < end <= len(data):
        return None
    bits = 7 * (end - kind_end)
    length = int.from_bytes(data[kind_end:end]) & ((1 << bits) - 1)
    unknown = length == (1 << bits) - 1
    return _Head(int.from_bytes(data[at:kind_end]), end, None if unknown else length)


def _width(data: bytes, at: int) -> int:
    """Of a number whose first byte says how long it is; 0: that is none."""
    first = data[at] if at < len(data) else 0
    return 9 - first.bit_length() if first else 0
