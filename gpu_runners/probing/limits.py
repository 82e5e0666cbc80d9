"""What one probe may take, and what a material may be at most, in this installation."""

import msgspec


class MaterialLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Beyond these nobody's material is taken; what a tier takes is held against it elsewhere."""

    bytes_max: int = 50_000_000_000
    seconds_max: float = 6 * 3_600.0
    film_pixels_max: int = 8192 * 4320
    picture_pixels_max: int = 210_000_000
    """The cameras of phones reach 200 million."""
    picture_frames_max: int = 3_000
    frames_max: int = 2_000_000
    frame_rate_max: float = 1_000.0
    """Slow motion of phones is taken with 960 pictures a second."""
    bit_rate_max: int = 3_000_000_000
    """In a second; uncompressed high definition is about half of it."""
    streams_max: int = 64
    decoded_pixels_max: int = 20_000_000_000
    """What is decoded whole, about five minutes of 1080p; of the rest a key frame a second."""
    decoded_seconds_max: float = 100.0
    """CPU seconds after which that begins all the same; well under `ProcessLimits.cpu_seconds`."""


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the process that looks at one file."""

    memory_bytes: int = 3 << 30
    """Address space."""
    cpu_seconds: int = 300
    wall_seconds: float = 900.0
    file_bytes: int = 1 << 20
    """Of each file that it might write."""
    open_files: int = 32
