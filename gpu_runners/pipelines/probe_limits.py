"""What a source may be at most; apart from `probe`, so that a runner needs no media library."""

import msgspec


class ProbeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are those of a laptop's runner."""

    seconds_min: float = 1.0
    seconds_max: float = 3_600.0
    pixels_max: int = 8192 * 4320
    """Pixels of one picture."""
    bytes_max: int = 20_000_000_000
