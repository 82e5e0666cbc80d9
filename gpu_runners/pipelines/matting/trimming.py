"""Freed memory goes back to the system: two threads with pictures of all sizes scatter it."""

import ctypes
import functools
from collections.abc import Callable

EVERY_PICTURES = 8


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """`malloc_trim` of the C library; None, where it has none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def trim() -> None:
    """Give back whole pages that nobody uses; a few milliseconds."""
    if (call := _trim()) is not None:
        call(0)
