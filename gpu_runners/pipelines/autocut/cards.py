"""What of a kept range is a title card, and how much of the picture it needs.

A camera's window would cut the lettering where it is wider than the window: such a range is shown
whole. Where it fits, the window stands still around it.
"""

from itertools import pairwise
from typing import Final

import msgspec

from gpu_runners.pipelines.autocut.lettering import Box, CardLook
from gpu_runners.pipelines.faces import Look

_LETTERED_MIN: Final = 0.1
"""Part of the looks at a range that see lettering: it comes and goes, and may take its time."""
_PLAIN_MIN: Final = 0.75
"""Part of the looks that see plain ground beside it: the rest is how it fades."""
_BREATH: Final = 0.05
"""Part of the picture that is left free on both sides of the lettering."""
_FACE_SECONDS: Final = 0.2
_SAME_MIN: Final = 0.5
"""Of the narrower of two lines, that both must share to be the same, a look later."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the picture's side that a card needs."""

    low: float
    high: float
    level_rim: bool
    """Whether its upper and lower rim are plain ground all through."""
    upright_rim: bool

    @property
    def share(self) -> float:
        return self.high - self.low

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


def find_card(
    cards: tuple[CardLook, ...],
    faces: tuple[Look, ...],
    start: float,
    end: float,
    *,
    across: bool,
) -> Card | None:
    """The card that these seconds of the source show, if they show one and hardly else."""
    within = [look for look in cards if start - 1e-6 <= look.at < end]
    lettered = [look for look in within if look.plain and look.lines]
    plain = [look for look in within if look.plain]
    enough = max(min(2, len(within)), _LETTERED_MIN * len(within))
    if not lettered or len(lettered) < enough or len(plain) < _PLAIN_MIN * len(within):
        return None
    if len(within) > 1 and not _stands(lettered):
        return None
    seen = {look.at for look in faces if look.faces}
    if any(abs(at - look.at) < _FACE_SECONDS for at in seen for look in lettered):
        return None
    boxes = [look.ink for look in plain if look.ink is not None]
    boxes += [line for look in lettered for line in look.lines]
    low = min(box.along(across=across)[0] for box in boxes)
    high = max(box.along(across=across)[1] for box in boxes)
    return Card(
        low=max(0.0, low - _BREATH),
        high=min(1.0, high + _BREATH),
        level_rim=all(look.level_rim for look in plain) and len(plain) == len(within),
        upright_rim=all(look.upright_rim for look in plain) and len(plain) == len(within),
    )


def _stands(lettered: list[CardLook]) -> bool:
    """Whether lettering is seen where it was the look before: it may roll, not jump about."""
    return any(
        _same(one, other)
        for before, after in pairwise(lettered)
        for one in before.lines
        for other in after.lines
    )


def _same(one: Box, other: Box) -> bool:
    shared = min(one.right, other.right) - max(one.left, other.left)
    return shared >= _SAME_MIN * min(one.right - one.left, other.right - other.left)
