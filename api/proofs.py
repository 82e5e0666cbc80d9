"""Proof that a caller holds a file that is stored already: then it need not be sent again.

Whoever knows a digest does not hold the file. So the answer depends on bytes from a place in the
file that nobody knows before he is asked, and on a nonce, so that no answer is good twice. Nothing
is kept of a challenge: it is derived from who asks, the content and the time, and not from what
the caller may choose, like a name.
"""

import hashlib
import hmac
import time
from typing import Final, NamedTuple

from schema.ids import UserId
from schema.wires.objects import ObjectStore

LENGTH_BYTES: Final = 1 << 20
_WINDOW_SECONDS: Final = 600
"""Long: who guesses gets few places to guess at."""


class Challenge(NamedTuple):
    """What is asked for: sha256 of `nonce` and these bytes of the file."""

    nonce: str
    offset: int
    length: int


class Proofs:
    """Asks and checks. `secret` is one of the installation: all its instances ask the same."""

    def __init__(self, secret: str) -> None:
        key = hashlib.blake2b(secret.encode()).digest()
        self._key = hashlib.blake2b(b"proofs", key=key).digest()

    def challenge(self, user_id: UserId, key: str, size: int) -> Challenge:
        """What to ask this user now about a stored object of so many bytes."""
        return self._of_window(user_id, key, size, _window())

    async def holds(
        self, objects: ObjectStore, key: str, user_id: UserId, size: int, told: str
    ) -> bool:
        """Whether somebody who says this holds the object; raises ObjectMissingError.

        What was asked in the window before may be answered too.
        """
        now = _window()
        for window in (now, now - 1):
            asked = self._of_window(user_id, key, size, window)
            content = await objects.read_range(key, asked.offset, asked.length)
            if hmac.compare_digest(told, answer_of(asked.nonce, content)):
                return True
        return False

    def _of_window(self, user_id: UserId, key: str, size: int, window: int) -> Challenge:
        asked = f"{user_id}\x1f{key}\x1f{size}\x1f{window}".encode()
        drawn = hmac.new(self._key, asked, hashlib.sha512).digest()
        length = min(size, LENGTH_BYTES)
        offset = int.from_bytes(drawn[32:48], "big") % (size - length + 1)
        return Challenge(drawn[:32].hex(), offset, length)


def answer_of(nonce: str, content: bytes) -> str:
    """The right answer of who holds these bytes."""
    return hashlib.sha256(nonce.encode() + content).hexdigest()


def _window() -> int:
    return int(time.time()) // _WINDOW_SECONDS
