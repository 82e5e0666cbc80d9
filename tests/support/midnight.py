"""Midnight, when what is counted by the day (or month) begins anew."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_CLEAR_SECONDS: Final = 90


def seconds_to_wait(now: datetime) -> float:
    """How long until a test that counts by the day may begin."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    left = (midnight - now).total_seconds()
    return left + 1 if left <= _CLEAR_SECONDS else 0.0


def keep_clear_of_midnight() -> None:
    """Let a day that is about to end be over, so that none begins in the middle of a test."""
    seconds = seconds_to_wait(datetime.now(UTC))
    if seconds:
        time.sleep(seconds)  # the day itself
