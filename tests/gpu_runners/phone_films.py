"""Films as phones tag them: an encoder's film, with boxes added or renamed in its index."""

import struct

_TRACK_PARENTS = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
_ENTRIES = 8
"""Bytes of a list of codings before its first one."""


def _boxes(data: bytes) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    at = 0
    while at + 8 <= len(data):
        length = struct.unpack_from(">I", data, at)[0]
        found.append((data[at + 4 : at + 8], data[at + 8 : at + length]))
        at += length
    return found


def _box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content) + 8) + kind + content


def _index(film: bytes) -> tuple[bytes, bytes]:
    """What stands before the index, and its content. It has to be the last box."""
    at = film.rindex(b"moov") - 4
    return film[:at], film[at + 8 :]


def with_tracks(film: bytes, change: dict[int, dict[bytes, bytes]]) -> bytes:
    """A film whose tracks, by number, have four-letter words replaced by others."""
    before, content = _index(film)
    made: list[bytes] = []
    number = 0
    for kind, inside in _boxes(content):
        track = inside
        if kind == b"trak":
            for old, new in change.get(number, {}).items():
                assert old in track, (number, old)
                track = track.replace(old, new, 1)
            number += 1
        made.append(_box(kind, track))
    return before + _box(b"moov", b"".join(made))


def with_dolby_vision(film: bytes) -> bytes:
    """Profile 8.4, as iPhones write it: HLG, with a record of Dolby's beside the decoder's own."""
    record = _box(b"dvvC", b"\x01\x00\x10\x2d\x40" + bytes(19))
    before, content = _index(film)
    return before + _box(b"moov", _beside(content, record))


def _beside(content: bytes, record: bytes) -> bytes:
    """The record after `hvcC`, wherever in this index that stands."""
    made: list[bytes] = []
    for kind, inside in _boxes(content):
        changed = inside
        if kind in _TRACK_PARENTS:
            changed = _beside(inside, record)
        elif kind == b"stsd" and b"hvcC" in inside:
            entry = inside[_ENTRIES + 8 :] + record
            changed = inside[:_ENTRIES] + _box(inside[_ENTRIES + 4 : _ENTRIES + 8], entry)
        made.append(_box(kind, changed))
    return b"".join(made)
