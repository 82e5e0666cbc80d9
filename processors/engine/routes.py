"""Where a record goes: the declared outputs, their partitions, and the hash that Kafka uses."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from processors.engine.errors import UndeclaredTopicError

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995


@lru_cache(maxsize=65_536)
def murmur2(key: bytes) -> int:
    """Kafka's default hash of a key (not negative); the last keys are remembered."""
    length = len(key)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(key[at : at + 4], "little") * _M) & _MASK
        k ^= k >> 24
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if whole != length:
        h = ((h ^ int.from_bytes(key[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return (h ^ (h >> 15)) & 0x7FFFFFFF


class Routes:
    """Number of partitions of each topic that may be written."""

    __slots__ = ("_partitions",)

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = dict(partitions)

    def partition(self, topic: str, key: bytes | None, wanted: int | None) -> int:
        """The partition of a record; raises UndeclaredTopicError."""
        count = self._partitions.get(topic)
        if count is None:
            raise UndeclaredTopicError(f"{topic} is not a declared output")
        if wanted is not None:
            if 0 <= wanted < count:
                return wanted
            raise UndeclaredTopicError(f"{topic} has no partition {wanted}")
        if key is None:
            raise UndeclaredTopicError(f"a record without key to {topic} needs a partition")
        return murmur2(key) % count
