"""Rounding of money and credits: integers in micros, halves away from zero, nothing in floats.

Amounts and durations are never negative here, so away from zero is up.
"""

MICROS = 1_000_000
PPM = 1_000_000
"""A share of one in millionths: the form in which shares are multiplied."""


def times_ms(rate_micros_a_second: int, duration_ms: int) -> int:
    """A rate in micros a second over a duration in ms, in micros, half a micro rounded up."""
    return (rate_micros_a_second * duration_ms + 500) // 1000


def share_micros(amount_micros: int, share_ppm: int) -> int:
    """A share (0..PPM) of an amount, in micros, half a micro rounded up."""
    return (amount_micros * share_ppm + PPM // 2) // PPM


def in_credits(micros: int) -> str:
    """An amount as people read it: `12.5`, without trailing zeros."""
    sign, amount = ("-", -micros) if micros < 0 else ("", micros)
    whole, rest = divmod(amount, MICROS)
    return f"{sign}{whole}.{rest:06d}".rstrip("0") if rest else f"{sign}{whole}"
