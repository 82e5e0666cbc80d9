"""Words out of faces: captions that would stand on one move below it, or above.

Captions that are shown together move together, so that a title and the line under it stay a pair.
"""

from collections.abc import Sequence

import msgspec

_GAP = 0.02
"""Between a face and words, and between words and the edge, by the canvas' height."""
_EDGE = 0.03


class Rectangle(msgspec.Struct, frozen=True, kw_only=True):
    """A place on the canvas in pixels, and the frames for which something stands there."""

    left: float
    top: float
    right: float
    bottom: float
    start_frame: int
    end_frame: int

    def meets(self, other: "Rectangle") -> bool:
        return (
            self.together(other)
            and self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def together(self, other: "Rectangle") -> bool:
        """Whether there is a frame in which both are shown."""
        return self.start_frame < other.end_frame and other.start_frame < self.end_frame


def shifts(
    words: Sequence[Rectangle], heads: Sequence[Rectangle], height: int, bars: float
) -> list[int]:
    """By how many pixels each caption goes down (up: negative) so that none stands on a face.

    Where there is no room beside faces, they cover as little of them as they can. `bars` is the
    part of the canvas that is black at its top and at its bottom.
    """
    found = [0] * len(words)
    for group in _groups(words):
        standing = [words[i] for i in group]
        met = [head for head in heads if any(one.meets(head) for one in standing)]
        if not met:
            continue
        top, bottom = min(one.top for one in standing), max(one.bottom for one in standing)
        down = max(head.bottom for head in met) + _GAP * height - top
        up = min(head.top for head in met) - _GAP * height - bottom
        low, high = (bars + _EDGE) * height - top, (1 - bars - _EDGE) * height - bottom
        ways = [0.0, *(min(max(shift, low), high) for shift in (down, up) if low <= high)]
        best = min(ways, key=lambda shift: (_covered(standing, met, shift), abs(shift)))
        for i in group:
            found[i] = round(best)
    return found


def _covered(words: Sequence[Rectangle], heads: Sequence[Rectangle], shift: float) -> float:
    """How much of faces is behind words that have gone down by so much, in pixels of height."""
    return sum(
        max(0.0, min(one.bottom + shift, head.bottom) - max(one.top + shift, head.top))
        for one in words
        for head in heads
        if one.together(head)
    )


def _groups(words: Sequence[Rectangle]) -> list[list[int]]:
    """Numbers of captions that are shown together, directly or by way of others."""
    groups: list[list[int]] = []
    for i, one in enumerate(words):
        near = [group for group in groups if any(words[j].together(one) for j in group)]
        groups = [group for group in groups if group not in near]
        groups.append(sorted([i, *(j for group in near for j in group)]))
    return groups
