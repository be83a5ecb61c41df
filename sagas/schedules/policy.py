"""What becomes of the ticks of a schedule that are due: a pure function of what its row says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sagas.schedules.timing import DAY, INSTANT, Timing, latest

LATE: Final = timedelta(seconds=60)  # a tick that is found later than this was missed
HELD: Final = timedelta(seconds=2)  # between two looks at whether the run before has ended


class CatchUp(StrEnum):
    """What becomes of ticks that were missed, because no relay was there for more than a minute."""

    NONE = "none"  # they are left out
    LAST = "last"  # the newest of them is made up for
    ALL = "all"  # all of them are, up to `most`, the oldest first


class Overlap(StrEnum):
    """What becomes of a tick while the run that the schedule started last is open (parked ones are)."""

    ALLOW = "allow"  # it starts a run all the same
    SKIP = "skip"  # it is left out
    QUEUE = "queue"  # it waits until that run has ended
    CANCEL = "cancel"  # that run is asked to be undone, once, and the tick waits until it has ended


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What a schedule says about ticks that come late or too early."""

    catch_up: CatchUp
    overlap: Overlap
    most: int  # ticks that are made up for at once


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to do about a schedule now."""

    start: tuple[datetime, ...] = ()  # a run for each of these ticks
    last: datetime | None = None  # the last tick that this settles
    next_at: datetime  # ticks from here on are still to come
    look_at: datetime  # when to look again
    cancel: bool = False  # the run that is open is to be undone
    note: str = ""  # why a tick has started nothing


def plan(timing: Timing, policy: Policy, *, since: datetime, now: datetime, open: bool) -> Plan:
    """What to do about the ticks of a schedule from `since` up to `now`.

    Args:
        timing: when its ticks are.
        policy: what it says about late ones.
        since: ticks before it are settled.
        now: by the clock of the database.
        open: whether the run that it started last has not ended.
    """
    due = _due(timing, policy, since, now)
    following = timing.next(now) or now + DAY
    left_out = _left_out(timing, since, due[0] if due else following, now)
    if not due:
        return Plan(next_at=following, look_at=following, note=left_out)
    if not open or policy.overlap is Overlap.ALLOW:
        together = len(due) if policy.overlap is Overlap.ALLOW else 1
        rest = due[together] if len(due) > together else following
        return Plan(start=tuple(due[:together]), last=due[together - 1], next_at=rest, look_at=rest, note=left_out)
    if policy.overlap is Overlap.SKIP:
        note = f"{_said(due[-1])} was skipped: the run before it was open"
        return Plan(last=due[-1], next_at=following, look_at=following, note=note)
    return Plan(
        next_at=due[0], look_at=now + HELD, cancel=policy.overlap is Overlap.CANCEL,
        note=f"{_said(due[0])} waits for the run before it to end",
    )  # fmt: skip


def _due(timing: Timing, policy: Policy, since: datetime, now: datetime) -> list[datetime]:
    """The ticks to be started, oldest first."""
    if policy.catch_up is CatchUp.ALL:
        return latest(timing, since, now, policy.most)
    if policy.catch_up is CatchUp.NONE:
        since = max(since, now - LATE)
    return latest(timing, since, now, 1)


def _left_out(timing: Timing, since: datetime, kept: datetime, now: datetime) -> str:
    first = timing.next(since - INSTANT)
    if first is None or first >= kept or first > now:
        return ""
    return f"ticks from {_said(first)} on were missed, and left out"


def _said(tick: datetime) -> str:
    return f"{tick:%Y-%m-%d %H:%M:%S} UTC"
