"""`Schedule`: which saga starts when, declared beside the saga, and checked there and then."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from types import CodeType, FrameType
from typing import Any, Final, Generic, TypeVar
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim

from sagas import codec, ports
from sagas.definition import Saga
from sagas.errors import DefinitionError, InvalidInput
from sagas.requests import text
from sagas.schedules.policy import CatchUp, Overlap, Policy
from sagas.schedules.timing import INSTANT, Cron, Every, Timing, local, ticks, upcoming
from sagas_outbox.encoding import briefly

I = TypeVar("I")  # noqa: E741 - the input, as in Saga

DEFAULT: Final = "default"  # the store of those that name none
MAX_NAME: Final = 200  # characters; a tick is written behind it, and both are the key of a saga
SHORTEST: Final = timedelta(seconds=1)
LONGEST: Final = timedelta(days=3660)
MOST: Final = 1000  # runs that are started in one statement
EXAMPLE: Final = datetime(2026, 1, 1, tzinfo=UTC)  # an input is made for the first tick after it, to see if it fits
ALIASES: Final = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip


class Schedule(Generic[I]):
    """Starts a saga at every tick, exactly once however many relays and workers there are.

    Make it at module level, beside the saga; relays and embedded workers put it into the table when they start.

    Args:
        saga: the class to start.
        cron: when, as five fields: minute, hour, day of the month, month, day of the week. Or
        every: how often, at least one second, counted from 1970-01-01 00:00 UTC.
        offset: with `every`: how much later than that.
        timezone: whose clock `cron` is about, such as "Europe/Berlin"; `input` sees its ticks by that clock.
        input: of the saga; or what makes it from the tick, an aware datetime. Such a function is called in the relay,
            and once, with an example, when the schedule is declared: it should need nothing but the tick.
        catch_up: what becomes of ticks that were missed because nothing ran for more than a minute.
        most: with `CatchUp.ALL`: how many ticks are made up for, the newest ones.
        overlap: what becomes of a tick while the run before it is open.
        name: of the schedule, unique; None: that of the saga.
        store: where its sagas are started: a Django alias, or the name of a `Sagas` runtime. None: "default", or the
            only store that the process has.

    Raises:
        DefinitionError: something of this is wrong.
    """

    def __init__(
        self,
        saga: type[Saga[I]],
        *,
        cron: str | None = None,
        every: timedelta | None = None,
        offset: timedelta = timedelta(0),
        timezone: str = "UTC",
        input: I | Callable[[datetime], I],
        catch_up: CatchUp = CatchUp.LAST,
        most: int = 100,
        overlap: Overlap = Overlap.ALLOW,
        name: str | None = None,
        store: str | None = None,
    ) -> None:
        if not (isinstance(saga, type) and issubclass(saga, Saga) and hasattr(saga, "saga_name")):
            raise DefinitionError(f"Schedule({briefly(saga)}, ...): a Saga class with a name and a version comes first")
        self.saga, self.store = saga, store
        self._make: Callable[[datetime], Any] = input if callable(input) else lambda tick: input
        self.name = saga.saga_name if name is None else name
        frame = sys._getframe(1)
        self._place = (frame.f_globals.get("__name__"), frame.f_lineno)
        self._loaded = _loaded(frame)
        with _told(self):
            text(self.name, "name", MAX_NAME)
            if store is not None:
                text(store, "store", MAX_NAME)
            self.zone = _zone(timezone)
            self.timing = _timing(cron, every, offset, self.zone)
            self.policy = _policy(catch_up, overlap, most)
            self.check_input(codec.DEFAULT_LIMIT)
        schedules.add(self)

    def __repr__(self) -> str:
        return f"<Schedule {self.name!r} of {self.saga.saga_name}: {self.timing}>"

    @property
    def fingerprint(self) -> str:
        """A hash (16 hex digits) of everything about it but its input; another one in the table: it was changed."""
        parts = (
            self.saga.saga_name, self.saga.saga_version, self.timing, self.zone, self.policy.catch_up,
            self.policy.most, self.policy.overlap,
        )  # fmt: skip
        return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]

    def ticks(self, after: datetime, until: datetime | None = None) -> Iterator[datetime]:
        """Its ticks after a moment, up to and including `until`, by the clock of its time zone; for ever if None."""
        return (self.local(tick) for tick in ticks(self.timing, after.astimezone(UTC), until))

    def upcoming(self, since: datetime, count: int) -> list[datetime]:
        """The first ticks at or after a moment, by the clock of its time zone."""
        return [self.local(tick) for tick in upcoming(self.timing, since.astimezone(UTC), count)]

    def local(self, moment: datetime) -> datetime:
        """A moment by the clock of its time zone, with the offset of then."""
        return local(moment, self.zone)

    def key(self, tick: datetime) -> str:
        """The key of the saga that a tick starts."""
        return f"{self.name}@{self.local(tick).isoformat()}"

    def input(self, tick: datetime) -> I:
        """What the saga of a tick is given."""
        made: I = self._make(self.local(tick))
        return made

    def _is_again(self, known: Schedule[Any]) -> bool:
        """Whether it is another one of this name declared anew, its module being loaded again."""
        return known._place == self._place and known._loaded is not self._loaded

    def check_input(self, limit: int) -> None:
        """See that an input can be stored, with an example tick.

        Raises:
            DefinitionError: it cannot.
        """
        example = self.timing.next(EXAMPLE) or EXAMPLE
        try:
            self.saga._complete()
        except DefinitionError:
            return  # types that come later: relays and workers load them, and then check again
        try:
            codec.encode(self.input(example), declared=self.saga.input_type, limit=limit, of=f"schedule {self.name!r}")
        except Exception as problem:
            raise DefinitionError(
                f"input for the tick {self.local(example).isoformat()}: {type(problem).__name__}: {problem}; input= is "
                f"what {self.saga.__name__} is started with, or a function of the tick that makes it"
            ) from problem


class Schedules:
    """The schedules this process knows, by name."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule[Any]] = {}

    def add(self, schedule: Schedule[Any]) -> None:
        """Enter one.

        Raises:
            DefinitionError: another one has its name.
        """
        known = self._schedules.get(schedule.name)
        if known is not None and not schedule._is_again(known):
            module, line = known._place
            raise DefinitionError(
                f"schedule {schedule.name!r} of {schedule.saga.__name__}: {module}, line {line} has one of this name "
                f"already; give one of the two another name="
            )
        self._schedules[schedule.name] = schedule

    def get(self, name: str) -> Schedule[Any]:
        """The schedule of a name.

        Raises:
            InvalidInput: this process declares none.
        """
        if name not in self._schedules:
            close = get_close_matches(name, self._schedules, n=1)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"it declares {', '.join(sorted(self._schedules)) or 'none'}"
            )
            raise InvalidInput(f"schedule {name!r} is not declared in this process; {hint}", path="schedule")
        return self._schedules[name]

    def find(self, name: str) -> Schedule[Any] | None:
        """The schedule of a name; None: this process declares none."""
        return self._schedules.get(name)

    def all(self) -> list[Schedule[Any]]:
        """All of them, by name."""
        return [self._schedules[name] for name in sorted(self._schedules)]

    def of(self, store: str) -> list[Schedule[Any]]:
        """Those that start their sagas in a store, by name.

        Raises:
            DefinitionError: some do not say in which store, and the process has several, none of them "default".
        """
        known = ports.store_names()
        home = store if not known or known == [store] else DEFAULT
        homeless = [each.name for each in self.all() if each.store is None]
        if homeless and len(known) > 1 and DEFAULT not in known:
            raise DefinitionError(
                f"schedules {', '.join(homeless)}: this process has the stores {', '.join(known)}; say store= of each, "
                f"or every one of them would start it"
            )
        return [each for each in self.all() if (each.store or home) == store]

    def discard(self, name: str) -> None:
        """Forget one; for tests."""
        self._schedules.pop(name, None)


schedules = Schedules()


def _loaded(frame: FrameType) -> CodeType:
    """The code of a module that is being loaded, which is another object each time."""
    while frame.f_code.co_flags & inspect.CO_NEWLOCALS and frame.f_back is not None:  # a function
        frame = frame.f_back
    return frame.f_code


class _told:
    """Puts in front of what is wrong which schedule it is about."""

    def __init__(self, schedule: Schedule[Any]) -> None:
        self.schedule = schedule

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, DefinitionError | InvalidInput):
            of = self.schedule.saga.__name__
            raise DefinitionError(f"schedule {briefly(self.schedule.name)} of {of}: {problem}") from problem


def _timing(cron: Any, every: Any, offset: Any, zone: ZoneInfo) -> Timing:
    if (cron is None) == (every is None):
        raise DefinitionError('give either cron="0 6 * * *" or every=timedelta(minutes=15)')
    if every is None:
        if offset:
            raise DefinitionError("offset= goes with every=; with cron= say it in the expression")
        return _cron(cron, zone)
    if not isinstance(every, timedelta) or not SHORTEST <= every <= LONGEST:
        raise DefinitionError(f"every={briefly(every)}: a timedelta of at least 1 second and at most ten years")
    if not isinstance(offset, timedelta) or not timedelta(0) <= offset < every:
        raise DefinitionError(
            f"offset={briefly(offset)}: a timedelta of at least 0 and less than every={briefly(every)}"
        )
    return Every(interval=every, offset=offset)


def _cron(expression: Any, zone: ZoneInfo) -> Cron:
    if not isinstance(expression, str):
        raise DefinitionError(
            f"cron={briefly(expression)}: a text such as '0 6 * * *', not {type(expression).__name__}"
        )
    if expression.strip().lower() in ALIASES:
        raise DefinitionError(f"cron={briefly(expression)}: write {ALIASES[expression.strip().lower()]!r}")
    if len(expression.split()) != 5:
        raise DefinitionError(
            f"cron={briefly(expression)}: {len(expression.split())} fields instead of five: minute, hour, day of the "
            f"month, month, day of the week; what is to happen every few seconds says every=timedelta(seconds=...)"
        )
    try:
        CronSim(expression, datetime(2026, 1, 1))
    except Exception as problem:  # its own, or what its parser trips over
        raise DefinitionError(
            f"cron={briefly(expression)}: {str(problem) or 'cannot be read'}; the fields are minute (0-59), hour "
            f"(0-23), day of the month (1-31, L), month (1-12, JAN), day of the week (0-7, MON, MON#1)"
        ) from problem
    found = Cron(expression=" ".join(expression.upper().split()), zone=zone)
    if found.next(EXAMPLE - INSTANT) is None:
        raise DefinitionError(f"cron={briefly(expression)}: there is no such day in the next 50 years")
    return found


def _zone(name: Any) -> ZoneInfo:
    if not isinstance(name, str):
        raise DefinitionError(f"timezone={briefly(name)}: there is no such time zone; they are texts like 'UTC'")
    try:
        return ZoneInfo(name)
    except Exception as problem:  # of many kinds: no text, no such file, a directory, a path that leads out
        known = available_timezones()
        close = get_close_matches(name[:100], known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "zones are called like 'Europe/Berlin' or 'UTC'"
        hint = hint if known else "this machine knows none: pip install tzdata"
        raise DefinitionError(f"timezone={briefly(name)}: there is no such time zone; {hint}") from problem


def _policy(catch_up: Any, overlap: Any, most: Any) -> Policy:
    if not isinstance(catch_up, CatchUp):
        raise DefinitionError(
            f"catch_up={briefly(catch_up)}: one of {', '.join(map(str, CatchUp.__members__))} of CatchUp"
        )
    if not isinstance(overlap, Overlap):
        raise DefinitionError(
            f"overlap={briefly(overlap)}: one of {', '.join(map(str, Overlap.__members__))} of Overlap"
        )
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST:
        raise DefinitionError(f"most={briefly(most)}: a whole number from 1 to {MOST}")
    if catch_up is CatchUp.ALL and overlap in (Overlap.SKIP, Overlap.CANCEL):
        raise DefinitionError(
            f"Overlap.{overlap.name} would undo what CatchUp.ALL makes up for: use CatchUp.LAST, or Overlap.QUEUE, "
            f"which starts one after the other"
        )
    if catch_up is CatchUp.NONE and overlap in (Overlap.QUEUE, Overlap.CANCEL):
        raise DefinitionError(
            f"Overlap.{overlap.name} lets ticks wait, and CatchUp.NONE leaves out those that waited for a minute: use "
            f"CatchUp.LAST, or Overlap.SKIP"
        )
    return Policy(catch_up=catch_up, overlap=overlap, most=most)
