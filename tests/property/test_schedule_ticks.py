"""When schedules tick, against a clock on the wall that is watched minute by minute, around changes of its offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagas.schedules.timing import INSTANT, MINUTE, Cron, Every, Timing, latest, ticks

ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Santiago", "Asia/Beirut",
    "Antarctica/Troll", "Africa/Casablanca", "Pacific/Apia", "Asia/Kathmandu", "UTC",
)  # fmt: skip
HOURS_LOOKED_AT = 60
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # minutes are looked at one by one


@cache
def changes(zone: str) -> list[datetime]:
    """The hours in which a zone changed its offset, in years with all sorts of it; else one without any."""
    where, found = ZoneInfo(zone), []
    for year in (2011, 2026, 2027):  # in 2011 Apia left out a day
        hour = datetime(year, 1, 1, tzinfo=UTC)
        while hour.year == year:
            later = hour + timedelta(hours=1)
            if hour.astimezone(where).utcoffset() != later.astimezone(where).utcoffset():
                found.append(hour)
            hour = later
    return found or [datetime(2026, 3, 29, tzinfo=UTC)]


@st.composite
def fields(draw: st.DrawFn, lowest: int, highest: int, starred_to: int | None = None) -> tuple[str, frozenset[int]]:
    """A field of an expression, and the values that it stands for; a star may stand for more than is named."""
    values, everything = range(lowest, highest + 1), range(lowest, (starred_to or highest) + 1)
    kind = draw(st.sampled_from(["one", "some", "range", "all", "step"]))
    if kind == "all":
        return "*", frozenset(everything)
    if kind == "step":
        step = draw(st.integers(1, len(values)))
        return f"*/{step}", frozenset(everything[::step])
    if kind == "some":
        some = sorted(draw(st.sets(st.sampled_from(values), min_size=1, max_size=4)))
        return ",".join(map(str, some)), frozenset(some)
    first = draw(st.sampled_from(values))
    if kind == "one":
        return str(first), frozenset([first])
    last = draw(st.integers(first, highest))
    return f"{first}-{last}", frozenset(range(first, last + 1))


class Watched:
    """An expression in a zone, and every tick of a stretch of time, found by looking at each minute.

    Args:
        parts: its five fields, each with its values.
        zone: whose clock it is about.
        start: of the stretch.
    """

    def __init__(self, parts: list[tuple[str, frozenset[int]]], zone: str, start: datetime) -> None:
        self.values = [values for _, values in parts]
        self.cron = Cron(expression=" ".join(text for text, _ in parts), zone=ZoneInfo(zone))
        self.both = parts[2][0].startswith("*") or parts[4][0].startswith("*")
        self.start, self.end = start, start + timedelta(hours=HOURS_LOOKED_AT)

    def __repr__(self) -> str:
        return f"{self.cron.expression!r} in {self.cron.zone} from {self.start}"

    @cached_property
    def found(self) -> list[datetime]:
        """Its ticks, in order."""
        return [tick for tick in self._ticks() if self.start < tick <= self.end]

    def matches(self, reading: datetime) -> bool:
        minute, hour, day, month, weekday = self.values
        of_month, of_week = reading.day in day, reading.isoweekday() % 7 in {each % 7 for each in weekday}
        return (
            reading.minute in minute and reading.hour in hour and reading.month in month
            and (of_month and of_week if self.both else of_month or of_week)
        )  # fmt: skip

    def _ticks(self) -> Iterator[datetime]:
        moment = self.start - timedelta(days=2)
        shown = self.reading(moment)  # the furthest that the clock has come
        while moment < self.end:
            moment += MINUTE
            reading = self.reading(moment)
            if self.cron.repeats:
                if self.matches(reading):
                    yield moment
            elif any(self.matches(shown + n * MINUTE) for n in range(1, (reading - shown) // MINUTE + 1)):
                yield moment
            shown = max(shown, reading)

    def reading(self, moment: datetime) -> datetime:
        return moment.astimezone(self.cron.zone).replace(tzinfo=None, fold=0)


@st.composite
def watched(draw: st.DrawFn) -> Watched:
    zone = draw(st.sampled_from(ZONES))
    start = draw(st.sampled_from(changes(zone))) - timedelta(minutes=draw(st.integers(0, 48 * 60)))
    rarely = st.integers(0, 4).map(lambda number: number == 0)
    always = [("*", frozenset(range(lowest, highest + 1))) for lowest, highest in ((1, 31), (1, 12), (0, 6))]
    rest = draw(st.tuples(fields(1, 28, starred_to=31), fields(1, 12), fields(0, 6))) if draw(rarely) else always
    return Watched([draw(fields(0, 59)), draw(fields(0, 23)), *rest], zone, start)


@settings(UNHURRIED, max_examples=40)
@given(watched(), st.data())
def test_ticks_are_those_of_the_clock_on_the_wall(watched: Watched, data: st.DataObject) -> None:
    """A fixed time once a day, also where it is jumped over or comes twice; others whenever the clock shows them.

    And the next tick depends on nothing but the moment, whichever it is, so that all relays agree.
    """
    assert list(ticks(watched.cron, watched.start, watched.end)) == watched.found
    after = watched.start + timedelta(seconds=data.draw(st.floats(0, HOURS_LOOKED_AT * 3600)))
    place = bisect_right(watched.found, after)
    following = watched.cron.next(after)
    assert following is not None and following > after
    assert following == watched.found[place] if place < len(watched.found) else following > watched.end


@settings(UNHURRIED, max_examples=25)
@given(watched(), st.integers(1, 5), st.data())
def test_the_latest_ticks_are_found_from_the_end(watched: Watched, most: int, data: st.DataObject) -> None:
    """However much was missed, the newest are the newest, and none is from before the moment that counts."""
    since = watched.start + timedelta(minutes=data.draw(st.integers(1, HOURS_LOOKED_AT * 60)))
    until = since + timedelta(seconds=data.draw(st.integers(0, int((watched.end - since).total_seconds()))))
    there = [tick for tick in watched.found if since <= tick <= until]
    assert latest(watched.cron, since, until, most) == there[-most:]


def steps(timing: Timing, after: datetime, count: int) -> list[datetime]:
    found = []
    for _ in range(count):
        tick = timing.next(after)
        assert tick is not None
        found.append(tick)
        after = tick
    return found


@settings(UNHURRIED)
@given(
    st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=400)),
    st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.floats(0, 0.999),
)
def test_intervals_are_counted_from_one_moment(interval: timedelta, after: datetime, part: float) -> None:
    """Whoever counts, and from whenever: the ticks are the same, evenly apart, to the microsecond."""
    every = Every(interval=interval, offset=interval * part)
    first, second = steps(every, after, 2)
    assert after < first <= after + interval
    assert second - first == interval
    assert every.next(first - INSTANT) == first
    assert (first - datetime(1970, 1, 1, tzinfo=UTC) - every.offset) % interval == timedelta(0)
    assert latest(every, after + INSTANT, second, 1) == [second]
