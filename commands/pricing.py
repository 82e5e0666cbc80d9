"""What a task costs its account: reserved before it runs, charged when it ended. Integers only.

The price is frozen into the task when it is reserved, so every function takes it as it was then.
Whatever a task does, its charge never exceeds what was reserved for it.
"""

import math

from schema.money import PPM, share_micros, times_ms
from schema.policy import Price

MS_PER_SECOND = 1000


def estimate_micros(price: Price, card_seconds_claimed: float | None) -> int:
    """What is reserved: the base and the card time that the input claims, at most the maximum.

    None, and what is no number or beyond the maximum, is the maximum. A part of a millisecond is a
    whole one, so that an estimate is never below its claim.
    """
    seconds_max = price.card_seconds_max
    if card_seconds_claimed is None or not card_seconds_claimed < seconds_max:
        return price.base_micros + price.card_second_micros * seconds_max
    claimed_ms = math.ceil(max(card_seconds_claimed, 0.0) * MS_PER_SECOND)
    return price.base_micros + times_ms(price.card_second_micros, claimed_ms)


def charge_micros(price: Price, card_ms: int, reserved_micros: int) -> int:
    """What a task that succeeded costs: the base and the card time used, at most the reserved."""
    used = price.base_micros + times_ms(price.card_second_micros, card_ms)
    return min(used, reserved_micros)


def cancel_charge_micros(price: Price, ran_ms: int, reserved_micros: int) -> int:
    """What a task canceled while RUNNING costs: its share of the base and the time that it ran.

    `ran_ms` is log time since the attempt started; a cancellation of anything else costs nothing.
    """
    base = share_micros(price.base_micros, round(price.cancel_share_base * PPM))
    return min(base + times_ms(price.card_second_micros, ran_ms), reserved_micros)
