"""When the ticks of a schedule are. Pure: moments in, moments out, all of them in UTC.

Intervals are counted from 1970-01-01 00:00 UTC, so that all processes agree on them whenever they were started.

Cron expressions are about the clock on the wall. cronsim says which of its readings match, and knows nothing of time
zones; which moments those readings are is decided here, as Debian's cron does:

* A fixed time (neither minute nor hour begins with `*`) happens once for each reading that matches. One that the clock
  jumps over happens at the first moment after the jump; several that are jumped over, and one that stands right behind
  them, are one tick. One that the clock shows twice happens the first time.
* A repeated time (`*/15 * * * *`, `0 * * * *`) happens whenever the clock really shows it: not at all in an hour that
  is jumped over, and twice in an hour that comes twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT: Final = timedelta(microseconds=1)
MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)  # no zone changes its offset twice within one


class Timing(Protocol):
    """A rule for ticks."""

    def next(self, after: datetime) -> datetime | None:
        """The first tick after a moment, in UTC; None: there is none within 50 years."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Every:
    """Ticks at a fixed interval, whatever clocks on walls show."""

    interval: timedelta
    offset: timedelta = timedelta(0)

    def next(self, after: datetime) -> datetime | None:
        passed = after - EPOCH - self.offset
        return EPOCH + self.offset + (passed // self.interval + 1) * self.interval

    def __str__(self) -> str:
        return f"every {self.interval}" + (f" + {self.offset}" if self.offset else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cron:
    """Ticks whenever the clock on the wall matches an expression of five fields, which was checked."""

    expression: str
    zone: ZoneInfo

    @property
    def repeats(self) -> bool:
        """Whether it goes by every showing of the clock, and not by fixed times of the day."""
        minute, hour, *_ = self.expression.split()
        return minute.startswith("*") or hour.startswith("*")

    def next(self, after: datetime) -> datetime | None:
        after = after.astimezone(UTC)
        return self._next_showing(after) if self.repeats else self._next_time(after)

    def __str__(self) -> str:
        return self.expression

    def _next_time(self, after: datetime) -> datetime | None:
        for reading in CronSim(self.expression, _reading(after, self.zone)):
            moment = _first_moment(reading, self.zone)
            if moment > after:
                return moment
        return None

    def _next_showing(self, after: datetime) -> datetime | None:
        """Go from one change of the offset to the next: in between the clock on the wall runs like any other."""
        offset = _offset(after, self.zone)
        reading = after.replace(tzinfo=None) + offset
        while True:
            found = next(CronSim(self.expression, reading), None)
            if found is None:
                return None
            moment = (found - offset).replace(tzinfo=UTC)
            change = _change(self.zone, offset, after, moment)
            if change is None:
                return moment
            after, offset = change, _offset(change, self.zone)
            reading = change.replace(tzinfo=None) + offset - INSTANT  # the very first reading counts too


def ticks(timing: Timing, after: datetime, until: datetime | None = None) -> Iterator[datetime]:
    """Ticks after a moment, in order, up to and including `until`."""
    while (tick := timing.next(after)) is not None and (until is None or tick <= until):
        yield tick
        after = tick


def upcoming(timing: Timing, since: datetime, count: int) -> list[datetime]:
    """The first ticks at or after a moment."""
    return list(islice(ticks(timing, since - INSTANT), count))


def latest(timing: Timing, since: datetime, until: datetime, most: int) -> list[datetime]:
    """The last ticks between two moments, both included; the oldest first.

    What it costs depends on how many are wanted, not on how many there are: it looks back in growing windows.

    Args:
        timing: the rule.
        since: no tick before it.
        until: no tick after it.
        most: how many at most.
    """
    window, start = 2 * MINUTE, since - INSTANT
    while True:
        found = deque(ticks(timing, max(start, until - window), until), maxlen=most)
        if len(found) == most or until - window <= start:
            return list(found)
        window *= 4


def local(moment: datetime, zone: ZoneInfo) -> datetime:
    """A moment as the clock on the wall shows it, with a fixed offset.

    Not with the zone itself: Python calls two datetimes of different zones unequal when one of them is in an hour that
    comes twice, so that such a value could not be stored.
    """
    return moment.astimezone(timezone(_offset(moment, zone)))


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _reading(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _first_moment(reading: datetime, zone: ZoneInfo) -> datetime:
    """When the clock shows a reading for the first time, or is past it because it jumped."""
    while True:
        moment = reading.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if _reading(moment, zone) == reading:
            return moment
        reading += MINUTE


def _change(zone: ZoneInfo, offset: timedelta, after: datetime, until: datetime) -> datetime | None:
    """The first moment, after one that has this offset, with another one; None: there is none up to `until`."""
    known, probe = after, after
    while probe < until:
        known, probe = probe, min(probe + DAY, until)
        if _offset(probe, zone) != offset:
            break
    else:
        return None
    second = timedelta(seconds=1)
    low, high = (known - EPOCH) // second, -((EPOCH - probe) // second)
    while high - low > 1:
        middle = (low + high) // 2
        same = _offset(EPOCH + middle * second, zone) == offset
        low, high = (middle, high) if same else (low, middle)
    return EPOCH + high * second
