"""When a saga is stuck: said here once, for the command line, the admin, `doctor` and the metrics.

A saga is stuck when it has not ended, is not parked, nobody has paused it, and one of these holds:

no_work    it has no row in the outbox at all, so nothing will ever happen (`sagas rebuild` makes its rows again);
overdue    work of it that waits for nothing has been due for longer than `stuck_after`, and nobody has taken it;
quiet      work of it that waits for nothing has brought no log entry for longer than the step's own limits explain
           (all deliveries it may have with their timeouts, grace and leases, its longest backoff), and `stuck_after`
           more.

A step that waits for a signal, a time, its children or a semantic lock waits for something, until its time has come; so
does one whose undo waits until its children are undone.
Who is not the first in the line of its ordering key waits for that one: if the first is stuck, it alone is named. Who
waits for a place in a queue at its limit waits for whoever is at work there.
`stuck` is the rule; `stuck.sql` is the same rule for all sagas of a database, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from sagas.definition import Saga
from sagas.plan import StepPlan
from sagas.retry import Retry
from sagas.settings import Settings


class Stuck(StrEnum):
    """Why a saga is stuck."""

    NO_WORK = "no_work"
    OVERDUE = "overdue"
    QUIET = "quiet"


REMEDIES: Final[Mapping[Stuck, str]] = {
    Stuck.NO_WORK: "it has no work in the outbox: run `sagas rebuild` on it",
    Stuck.OVERDUE: "its work is due and nobody takes it: do a relay and a worker of its queue run?",
    Stuck.QUIET: "nothing came of its work for longer than its limits explain: look at its workers and their logs",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenSaga:
    """What the rule asks about a saga. Times are epoch seconds, by the database clock."""

    updated_at: float  # of its last log entry
    finished: bool = False
    parked: bool = False
    paused: bool = False  # itself, or its definition
    waits: Mapping[str, float | None] = field(default_factory=dict)  # steps that wait -> until when; None: no end,
    # for a signal, a time, children (also until they are undone), or a semantic lock


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What the rule asks about an outbox row."""

    step: str | None  # None: a request
    due_at: float
    first_begun_at: float | None = None
    paused: bool = False  # its queue
    behind: bool = False  # it is not the first in the line of its ordering key, or its queue is at its limit


def stuck(
    saga: OpenSaga, rows: Sequence[Work], *, now: float, after: float, limits: Mapping[str, float], other: float
) -> Stuck | None:
    """The rule.

    Args:
        saga: how it stands.
        rows: its rows in the outbox.
        now: epoch seconds, database clock.
        after: setting `stuck_after`.
        limits: seconds for which a step may be without a log entry, by its name.
        other: the same for steps that this process does not know.

    Returns:
        Why it is stuck; None: it is not.
    """
    if saga.finished or saga.parked or saga.paused:
        return None
    if not rows:
        return Stuck.NO_WORK
    found: set[Stuck] = set()
    for row in rows:
        waits = row.step is not None and row.step in saga.waits
        until = saga.waits[row.step] if waits and row.step is not None else None
        if row.paused or row.behind or (waits and (until is None or until > now)):
            continue
        if row.due_at < now - after:
            found.add(Stuck.OVERDUE)
        since = max(saga.updated_at, row.first_begun_at or 0.0, until or 0.0)
        if row.step is not None and since < now - after - limits.get(row.step, other):
            found.add(Stuck.QUIET)
    return next((each for each in (Stuck.OVERDUE, Stuck.QUIET) if each in found), None)


def limit(step: StepPlan, settings: Settings) -> float:
    """Seconds for which a step may be without a log entry: every delivery that it may have comes to nothing, after
    the longest time that the engine itself may put it off."""

    def quiet(retry: Retry, timeout: float | None) -> float:
        each = (timeout or settings.timeout) + settings.grace + settings.lease
        return step.max_deliveries * each + retry.longest

    undo = quiet(step.undo.retry, step.undo.timeout) + step.settle_after if step.undo else 0.0
    return max(quiet(step.retry, step.timeout), undo)


def limits(definitions: Iterable[type[Saga[Any]]], settings: Settings) -> dict[str, Any]:
    """The parameters of `stuck.sql` that this process's definitions give.

    Args:
        definitions: all that it knows.
        settings: of the store.
    """
    lines = [
        (each.saga_name, each.saga_version, step.name, limit(step, settings))
        for each in definitions
        for step in each.plan.steps
    ]
    return {
        "names": [line[0] for line in lines], "versions": [line[1] for line in lines],
        "steps": [line[2] for line in lines], "seconds": [line[3] for line in lines],
        "other": settings.timeout + settings.grace + settings.lease, "after": settings.stuck_after,
    }  # fmt: skip
