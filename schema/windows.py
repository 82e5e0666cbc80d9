"""Quota windows: half-open spans of the policy's zone, computed once from an instant.

Days and months begin at midnight of the zone, minutes at the same instant everywhere. A day that
skips its midnight begins when the clocks jump; one that has two begins at the first. So windows of
a kind follow each other without gap or overlap, and every minute lies within one day, every day
within one month. Instants are computed once a minute and zone, then remembered.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from schema.events import Window
from schema.message import Instant

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)


class Windows(NamedTuple):
    """The windows that an instant lies in."""

    month: Window
    day: Window
    minute: Window
    month_ms: int
    """The start of the month as milliseconds since 1970: its name in keys."""


def to_ms(at: Instant) -> int:
    """An instant as whole milliseconds since 1970."""
    return (at - EPOCH) // _MILLISECOND


def windows_at(at: Instant, timezone: str) -> Windows:
    """The month, day and minute of `at` in the zone; raises ZoneInfoNotFoundError for no zone."""
    return _windows_of_minute(int(at.timestamp() // 60), timezone)


def minute_window(at: Instant) -> Window:
    """The UTC minute of `at`."""
    start = at.astimezone(UTC).replace(second=0, microsecond=0)
    return Window(start=start, end=start + _MINUTE)


def day_window(at: Instant, timezone: str) -> Window:
    """The calendar day of `at` in the zone: mostly 24 hours long."""
    return _window(at, ZoneInfo(timezone), lambda day: day, lambda day: day + _DAY)


def month_window(at: Instant, timezone: str) -> Window:
    """The calendar month of `at` in the zone."""
    return _window(at, ZoneInfo(timezone), _first, _first_of_next)


@lru_cache(maxsize=256)
def _windows_of_minute(minute: int, timezone: str) -> Windows:
    at = EPOCH + minute * _MINUTE
    month = month_window(at, timezone)
    return Windows(
        month=month,
        day=day_window(at, timezone),
        minute=minute_window(at),
        month_ms=to_ms(month.start),
    )


def _window(
    at: Instant, zone: ZoneInfo, first: Callable[[date], date], following: Callable[[date], date]
) -> Window:
    start = first(at.astimezone(zone).date())
    end = following(start)
    if _midnight(end, zone) <= at:
        # Clocks put back over midnight show yesterday again, in a window that has begun.
        start, end = end, following(end)
    return Window(start=_midnight(start, zone), end=_midnight(end, zone))


def _first(day: date) -> date:
    return day.replace(day=1)


def _first_of_next(first: date) -> date:
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)


def _midnight(day: date, zone: ZoneInfo) -> Instant:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
