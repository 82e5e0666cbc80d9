"""Card time as accounts share it: what an account has had, halved with each half-life.

Instead of halving what everybody has had, what is had later counts more: the unit doubles with each
half-life (an *epoch* of the served clock) and grows in a straight line within it. So the order of
two accounts changes only when one of them is charged, and it can stand in a heap. Whole numbers
only: a rebuilt order is the same to the last bit.
"""

from typing import Final, NamedTuple

SCALE: Final = 1024
"""One millisecond of an account of weight 1."""
FORGET_AFTER: Final = 10
"""Half-lives after which an account that had nothing more counts as new."""
FREE_TASKS: Final = 8
"""So much of late is everybody's: accounts that had less are served as they come."""
_MANTISSA_BITS: Final = 48


class Share(NamedTuple):
    """What an account has had: `value` in the unit of `epoch`."""

    epoch: int
    value: int

    @property
    def place(self) -> tuple[int, int]:
        """To be compared: the less an account has had, the lower."""
        if not self.value:
            return (0, 0)
        bits = self.value.bit_length()
        shift = _MANTISSA_BITS - bits
        mantissa = self.value << shift if shift >= 0 else self.value >> -shift
        return (self.epoch + bits, mantissa)


NOTHING: Final = Share(0, 0)


def amount(ms: int, weight: int) -> int:
    """Card time as it is charged: twice the weight, half the charge."""
    return ms * SCALE // weight


def floor(expected_ms: int, at_ms: int, half_life_ms: int) -> tuple[int, int]:
    """The place of a share of `FREE_TASKS` tasks at an instant; lower ones count as this.

    It grows with time: of two accounts that had little, the one whose task came first is lower.
    """
    units = amount(FREE_TASKS * expected_ms, 1)
    return Share(*_grown(units, at_ms, half_life_ms)).place


def charged(share: Share, units: int, served_ms: int, half_life_ms: int) -> Share:
    """After a charge at this instant of the served clock."""
    epoch, grown = _grown(units, served_ms, half_life_ms)
    if share.epoch > epoch:  # no clock runs backwards: a half-life that changed
        return Share(share.epoch, share.value + (grown >> (share.epoch - epoch)))
    return Share(epoch, (share.value >> (epoch - share.epoch)) + grown)


def returned(share: Share, units: int, charged_ms: int, half_life_ms: int) -> Share:
    """As if it had not been charged at that instant; rounding never makes it less than nothing."""
    epoch, grown = _grown(units, charged_ms, half_life_ms)
    if share.epoch >= epoch:
        return Share(share.epoch, max(share.value - (grown >> (share.epoch - epoch)), 0))
    return share


def _grown(units: int, served_ms: int, half_life_ms: int) -> tuple[int, int]:
    epoch, rest = divmod(served_ms, half_life_ms)
    return epoch, units * (half_life_ms + rest) // half_life_ms
