"""Windows of quotas: every instant lies in exactly one of a kind, in every zone."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.events import Window
from schema.windows import (
    EPOCH,
    day_window,
    minute_window,
    month_window,
    to_ms,
    windows_at,
)

HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)
ZONES = [
    "UTC",
    "Asia/Shanghai",
    "Asia/Kolkata",  # half an hour
    "Asia/Kathmandu",  # three quarters
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",  # midnight comes twice in autumn
    "America/Sao_Paulo",  # midnight was skipped in spring, until 2019
    "America/St_Johns",  # put back at 00:01, until 2011: yesterday comes again
    "Pacific/Apia",  # had no 30 December 2011
    "Pacific/Kiritimati",  # UTC+14
    "Australia/Lord_Howe",  # half an hour of summer time
    "Africa/Casablanca",
    "Asia/Pyongyang",
]
instants = st.datetimes(
    min_value=datetime(1980, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def test_a_month_begins_at_midnight_of_its_zone() -> None:
    assert month_window(utc(2026, 2, 28, 15, 59, 59), "Asia/Shanghai") == Window(
        start=utc(2026, 1, 31, 16), end=utc(2026, 2, 28, 16)
    )
    assert month_window(utc(2026, 2, 28, 16), "Asia/Shanghai") == Window(
        start=utc(2026, 2, 28, 16), end=utc(2026, 3, 31, 16)
    )


def test_december_is_followed_by_january() -> None:
    assert month_window(utc(2026, 12, 31, 23, 59, 59), "UTC") == Window(
        start=utc(2026, 12, 1), end=utc(2027, 1, 1)
    )


def test_a_leap_day_is_of_february() -> None:
    assert month_window(utc(2028, 2, 29, 12), "UTC").end == utc(2028, 3, 1)


@pytest.mark.parametrize(
    ("at", "zone", "start", "hours"),
    [
        (utc(2026, 3, 29, 12), "Europe/Berlin", utc(2026, 3, 28, 23), 23),
        (utc(2026, 10, 25, 12), "Europe/Berlin", utc(2026, 10, 24, 22), 25),
        (utc(2026, 3, 8, 12), "America/New_York", utc(2026, 3, 8, 5), 23),
        (utc(2026, 11, 1, 12), "America/New_York", utc(2026, 11, 1, 4), 25),
        (utc(2026, 4, 4, 15), "Australia/Lord_Howe", utc(2026, 4, 4, 13), 24.5),
        # Midnight did not exist: the day began at one.
        (utc(2018, 11, 4, 12), "America/Sao_Paulo", utc(2018, 11, 4, 3), 23),
        # Midnight came twice: the day began at the first.
        (utc(2026, 11, 1, 12), "America/Havana", utc(2026, 11, 1, 4), 25),
        # The day before the one that was skipped, and the day after.
        (utc(2011, 12, 30, 9), "Pacific/Apia", utc(2011, 12, 29, 10), 24),
        (utc(2011, 12, 30, 10), "Pacific/Apia", utc(2011, 12, 30, 10), 24),
        # The wall showed 5 November again, in a sixth that had begun a minute before.
        (utc(2010, 11, 7, 2, 45), "America/St_Johns", utc(2010, 11, 7, 2, 30), 25),
    ],
)
def test_a_day_is_as_long_as_its_zone_makes_it(
    at: datetime, zone: str, start: datetime, hours: float
) -> None:
    window = day_window(at, zone)
    assert window == Window(start=start, end=start + hours * HOUR)


@given(at=instants, zone=st.sampled_from(ZONES))
def test_every_instant_lies_in_its_windows_and_they_nest(at: datetime, zone: str) -> None:
    windows = windows_at(at, zone)
    for window in (windows.month, windows.day, windows.minute):
        assert window.start <= at < window.end
    assert windows.month.start <= windows.day.start <= windows.minute.start
    assert windows.minute.end <= windows.day.end <= windows.month.end
    assert windows.month_ms == to_ms(windows.month.start)


def _minute_window(at: datetime, _zone: str) -> Window:
    return minute_window(at)


@given(at=instants, zone=st.sampled_from(ZONES))
def test_every_instant_of_a_window_has_that_window(at: datetime, zone: str) -> None:
    windows = windows_at(at, zone)
    for window, of in (
        (windows.month, month_window),
        (windows.day, day_window),
        (windows.minute, _minute_window),
    ):
        assert of(window.start, zone) == window
        assert of(window.end - MILLISECOND, zone) == window
        assert of(window.end, zone).start == window.end
        assert of(window.start - MILLISECOND, zone).end == window.start


@given(at=instants, zone=st.sampled_from(ZONES))
def test_the_windows_of_an_instant_are_those_of_its_minute(at: datetime, zone: str) -> None:
    windows = windows_at(at, zone)
    assert windows.day == day_window(at, zone)
    assert windows.month == month_window(at, zone)
    assert windows.minute == minute_window(at)


@pytest.mark.parametrize("zone", ZONES)
def test_the_days_of_forty_years_follow_each_other(zone: str) -> None:
    at, days = utc(1995, 1, 1), []
    while at < utc(2035, 1, 1):
        days.append(day_window(at, zone))
        at = days[-1].end
    assert all(one.end == following.start for one, following in pairwise(days))
    wall = [day.start.astimezone(ZoneInfo(zone)).date() for day in days]
    assert all(one < following for one, following in pairwise(wall))


def test_every_zone_has_windows_today() -> None:
    at = utc(2026, 3, 29, 1, 30)
    for zone in sorted(available_timezones()):
        windows = windows_at(at, zone)
        assert windows.day.start <= at < windows.day.end


def test_milliseconds_are_exact() -> None:
    assert to_ms(EPOCH) == 0
    assert to_ms(utc(2026, 3, 29) + 7 * MILLISECOND) == 1_774_742_400_007
