"""The rules for clocks that change, one by one, as they are in the documentation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import perf_counter
from zoneinfo import ZoneInfo

import pytest

from sagas.schedules.timing import Cron, Every, latest, local, ticks, upcoming

SPRING, AUTUMN = datetime(2027, 3, 28, tzinfo=UTC), datetime(2027, 10, 31, tzinfo=UTC)  # in Berlin at 01:00 UTC


def shown(expression: str, day: datetime, zone: str = "Europe/Berlin", hours: int = 30) -> list[str]:
    """The ticks of a day by the clock of the zone, from one hour before midnight UTC."""
    cron, since = Cron(expression=expression, zone=ZoneInfo(zone)), day - timedelta(hours=3)
    return [
        local(tick, cron.zone).strftime("%d %H:%M%z")[:-2]
        for tick in ticks(cron, since, since + timedelta(hours=hours))
    ]


@pytest.mark.parametrize(
    ("expression", "spring", "autumn"),
    [
        ("30 2 * * *", ["28 03:00+02"], ["31 02:30+02"]),  # jumped over: right after; twice: the first time
        ("0,30 2 * * *", ["28 03:00+02"], ["31 02:00+02", "31 02:30+02"]),  # both are jumped over: one tick
        ("0 2,3 * * *", ["28 03:00+02"], ["31 02:00+02", "31 03:00+01"]),  # so are one that is, and one behind it
        ("30 3 * * *", ["28 03:30+02"], ["31 03:30+01"]),
        ("0 */2 * * *", ["28 00:00+01", "28 04:00+02"], ["31 00:00+02", "31 02:00+02", "31 02:00+01", "31 04:00+01"]),
        ("*/30 2 * * *", [], ["31 02:00+02", "31 02:30+02", "31 02:00+01", "31 02:30+01"]),
    ],
)
def test_in_the_nights_when_the_clock_changes(expression: str, spring: list[str], autumn: list[str]) -> None:
    """A fixed time happens once; what repeats goes by what the clock shows, which may be never or twice."""
    hour = 8  # until 05:00 UTC
    assert shown(expression, SPRING, hours=hour)[: len(spring)] == spring
    assert [tick for tick in shown(expression, AUTUMN, hours=hour) if tick < "31 05"] == autumn


def test_a_midnight_that_is_jumped_over() -> None:
    """In Cairo the clock goes from 23:59 to 01:00: a daily job at midnight is not left out."""
    assert shown("0 0 * * *", datetime(2026, 4, 24, tzinfo=UTC), "Africa/Cairo", 6) == ["24 01:00+03"]


def test_half_an_hour_is_jumped_over() -> None:
    """On Lord Howe Island: from 02:00 to 02:30, and back again, without losing a minute of what is not jumped over."""
    day = datetime(2026, 10, 3, 15, tzinfo=UTC)
    assert shown("*/10 2 * * *", day, "Australia/Lord_Howe", 6) == ["04 02:30+11", "04 02:40+11", "04 02:50+11"]
    assert shown("15 2 * * *", day, "Australia/Lord_Howe", 6) == ["04 02:30+11"]


def test_intervals_know_no_clock_on_the_wall() -> None:
    """Every six hours is every six hours, also in nights of 23 or 25 hours."""
    every = Every(interval=timedelta(hours=6), offset=timedelta(minutes=5))
    found = upcoming(every, AUTUMN, 4)
    assert [f"{tick:%H:%M}" for tick in found] == ["00:05", "06:05", "12:05", "18:05"]


def test_a_year_of_missed_seconds_costs_nothing() -> None:
    """What was missed is not counted through: neither half a million minutes nor 30 million seconds."""
    now = datetime(2027, 1, 1, tzinfo=UTC)
    began = perf_counter()
    every = Every(interval=timedelta(seconds=1))
    assert latest(every, now - timedelta(days=365), now, 1) == [now]
    minutely = Cron(expression="* * * * *", zone=ZoneInfo("Europe/Berlin"))
    assert latest(minutely, now - timedelta(days=365), now, 3)[-1] == now
    yearly = Cron(expression="0 0 29 2 *", zone=ZoneInfo("Europe/Berlin"))
    assert latest(yearly, now - timedelta(days=3650), now, 1) == [datetime(2024, 2, 28, 23, tzinfo=UTC)]
    assert perf_counter() - began < 5  # as it is it takes a hundredth of that


def test_a_tick_in_an_hour_that_comes_twice_can_be_stored() -> None:
    """It has a fixed offset: Python calls a datetime of such an hour, with its zone, unequal to itself elsewhere."""
    from sagas import codec

    cron = Cron(expression="30 2 * * *", zone=ZoneInfo("Europe/Berlin"))
    (tick,) = upcoming(cron, AUTUMN, 1)
    at = local(tick, cron.zone)
    assert codec.decode(codec.encode(at, declared=datetime), datetime) == at
    assert at.isoformat() == "2027-10-31T02:30:00+02:00"
