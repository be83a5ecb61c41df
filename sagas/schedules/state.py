"""Why a schedule does not do what one may expect, in words, for command lines and the admin."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Protocol

from sagas.schedules.declaration import Schedule, schedules
from sagas.schedules.policy import Plan
from sagas.wording import Wording

OVERDUE: Final = 60.0  # seconds
FAILED: Final = "could not start its saga"  # what the note of such a schedule begins with
THEN: Final = "; then "  # what became of its ticks since

PAUSED: Final = "paused by %(actor)s: %(reason)s"
NOT_DECLARED: Final = "not declared in this process: it waits for one that declares it"
OTHERWISE: Final = "declared otherwise in this process: the next relay that starts with this code changes it"
LATE: Final = "overdue: does a relay, or an embedded worker, run with its code?"
TEXTS: Final = (PAUSED, NOT_DECLARED, OTHERWISE, LATE)


def noted(before: str, made: Plan) -> str:
    """The note of a schedule with which something is done: a failure stays in it until a tick has started a saga."""
    if made.start or not before.startswith(FAILED):
        return made.note
    failure = before.partition(THEN)[0]
    return f"{failure}{THEN}{made.note}" if made.note else before


class ScheduleLine(Protocol):
    """What is known of a schedule from its row."""

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def next_at(self) -> datetime: ...
    @property
    def paused(self) -> bool: ...
    @property
    def actor(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def note(self) -> str: ...


def declared(row: ScheduleLine) -> Schedule[object] | None:
    """The declaration that a row was made from; None: this process has none, or another one."""
    found = schedules.find(row.name)
    return found if found is not None and found.fingerprint == row.fingerprint else None


def next_ticks(row: ScheduleLine, count: int) -> list[datetime]:
    """Its next ticks; where this process does not know when they are, what the row says, and nothing while paused."""
    if row.paused:
        return []
    schedule = declared(row)
    return [row.next_at][:count] if schedule is None else schedule.upcoming(row.next_at, count)


def remarks(row: ScheduleLine, late: float, words: Wording) -> Iterator[str]:
    """What there is to say about it; nothing when all is well.

    Args:
        row: of the table.
        late: seconds since it should have been looked at.
        words: how to put it.
    """
    if row.paused:
        yield words.say(PAUSED, {"actor": row.actor, "reason": row.reason})
    if schedules.find(row.name) is None:
        yield words.say(NOT_DECLARED, {})
    elif declared(row) is None:
        yield words.say(OTHERWISE, {})
    if late > OVERDUE and not row.paused:
        yield words.say(LATE, {})
    if row.note:
        yield row.note
