"""Proof that a caller holds a file that is stored already: then it need not be sent again.

Whoever knows a digest does not hold the file. So the answer depends on bytes from a place in the
file that nobody knows before he is asked, and on a nonce, so that no answer is good twice. Nothing
is kept of a challenge: it is derived from who asks, the content and the time, and not from what
the caller may choose, like a name.

Who answers wrong again and again guesses: for the time of a few challenges he is asked nothing more
about that content, and sends it like one that nobody has.
"""

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from schema.ids import UserId
from schema.wires.objects import ObjectStore

LENGTH_BYTES: Final = 1 << 20
_WINDOW_SECONDS: Final = 600
"""Long: who guesses gets few places to guess at."""
WRONG_MAX: Final = 3
"""Wrong answers of one user about one content, through this instance."""
_WRONG_SECONDS: Final = 3_600
"""From the last one on; then they are forgotten."""
_WRONG_KEPT: Final = 50_000
"""Of the users' and contents that wrong answers are remembered of; the oldest are forgotten."""


class Proof(StrEnum):
    """What an answer was."""

    RIGHT = "right"
    WRONG = "wrong"
    SPENT = "spent"
    """Not looked at: too many before it were wrong."""


class _Wrong(NamedTuple):
    """Wrong answers about one content, and when the last one came (monotonic)."""

    answers: int
    at: float


class Challenge(NamedTuple):
    """What is asked for: sha256 of `nonce` and these bytes of the file."""

    nonce: str
    offset: int
    length: int


class Proofs:
    """Asks and checks. `secret` is one of the installation: all its instances ask the same."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.monotonic) -> None:
        key = hashlib.blake2b(secret.encode()).digest()
        self._key = hashlib.blake2b(b"proofs", key=key).digest()
        self._clock = clock
        self._wrong: OrderedDict[tuple[UserId, str], _Wrong] = OrderedDict()

    def challenge(self, user_id: UserId, key: str, size: int) -> Challenge:
        """What to ask this user now about a stored object of so many bytes."""
        return self._of_window(user_id, key, size, _window())

    def may_try(self, user_id: UserId, key: str) -> bool:
        """Whether an answer of this user about this object would be looked at."""
        wrong = self._wrong.get((user_id, key))
        if wrong is None:
            return True
        if self._clock() - wrong.at < _WRONG_SECONDS:
            return wrong.answers < WRONG_MAX
        del self._wrong[user_id, key]
        return True

    async def check(
        self, objects: ObjectStore, key: str, user_id: UserId, size: int, told: str
    ) -> Proof:
        """Whether somebody who says this holds the object; raises ObjectMissingError.

        What was asked in the window before may be answered too.
        """
        if not self.may_try(user_id, key):
            return Proof.SPENT
        # Wrong until it is found to be right: who asks many times at once gets no more tries.
        self._count(user_id, key, 1)
        try:
            right = await self._is_right(objects, key, user_id, size, told)
        except BaseException:
            self._count(user_id, key, -1)  # it was not looked at
            raise
        if right:
            self._wrong.pop((user_id, key), None)
        return Proof.RIGHT if right else Proof.WRONG

    def _count(self, user_id: UserId, key: str, step: int) -> None:
        before = self._wrong.pop((user_id, key), None)
        answers = step + (before.answers if before else 0)
        if answers > 0:
            self._wrong[user_id, key] = _Wrong(answers, self._clock())
        while len(self._wrong) > _WRONG_KEPT:
            self._wrong.popitem(last=False)

    async def _is_right(
        self, objects: ObjectStore, key: str, user_id: UserId, size: int, told: str
    ) -> bool:
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
