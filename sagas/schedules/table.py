"""The rows of schedules: what relays, operators and the admin do to them, each in one statement.

Whoever changes a row raises its `revision`; who starts sagas compares it. So a relay that was stopped between looking
and starting finds that others have gone on, that the schedule was paused, or changed, and does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from sagas import clock
from sagas.errors import InvalidInput
from sagas.requests import MAX_REASON, optional, text
from sagas.schedules.declaration import MAX_NAME, Schedule, schedules
from sagas_outbox.queries import query, run

log = logging.getLogger("sagas.schedules")

PACKAGE = "sagas.store"
Connection = psycopg.Connection[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A schedule as it stands in the table."""

    name: str
    saga: str
    version: int
    timing: str
    timezone: str
    catch_up: str
    overlap: str
    fingerprint: str  # of the declaration it was made from
    revision: int
    next_at: datetime  # ticks from here on are still to come
    look_at: datetime
    last_at: datetime | None  # the last tick that was settled
    last_key: str | None  # of the saga started last, by a tick or by hand
    last_started_at: datetime | None
    note: str  # why a tick started nothing
    paused: bool
    actor: str  # who paused it
    reason: str
    declared_at: datetime
    now: datetime
    late: float  # seconds since it should have been looked at
    last_saga: UUID | None
    last_status: str | None
    open: bool  # whether that saga has not ended


def declare(connection: Connection, schedule: Schedule[Any], *, replaces: bool = False) -> str:
    """Put a schedule into the table; returns "new", "changed", or nothing.

    Args:
        connection: autocommit.
        schedule: as this process declares it.
        replaces: whether it also takes the place of one with a newer version of the saga.
    """
    given = {
        "name": schedule.name, "saga": schedule.saga.saga_name, "version": schedule.saga.saga_version,
        "timing": str(schedule.timing), "timezone": str(schedule.zone), "catch_up": schedule.policy.catch_up.value,
        "overlap": schedule.policy.overlap.value, "fingerprint": schedule.fingerprint, "replaces": replaces,
        "now": clock.now(),
    }  # fmt: skip
    found = run(connection, query(PACKAGE, "schedule_declare"), given).fetchone()
    if found is None:
        return ""
    became = "new" if found[0] else "changed"
    log.info("schedule %s of saga %s is %s: %s (%s)", schedule.name, given["saga"], became, given["timing"],
             given["timezone"])  # fmt: skip
    return became


def rows(connection: Connection, name: str | None = None) -> list[Row]:
    """All schedules in the table, by name, or the one of a name."""
    with psycopg.Cursor(connection, row_factory=class_row(Row)) as cursor:
        return cursor.execute(query(PACKAGE, "schedules"), {"name": name, "now": clock.now()}).fetchall()


def pause(connection: Connection, name: str, *, actor: str = "", reason: str) -> None:
    """Let a schedule start nothing until `resume`; a second time changes the reason only.

    Args:
        connection: autocommit.
        name: of the schedule.
        actor: who.
        reason: why.

    Raises:
        InvalidInput: there is none of this name, or no reason.
    """
    text(name, "schedule", MAX_NAME), optional(actor, "actor", MAX_REASON)
    if isinstance(reason, str) and not reason.strip():
        raise InvalidInput("reason: say why, for those who find it paused", path="reason")
    text(reason, "reason", MAX_REASON)
    parameters = {"name": name, "actor": actor, "reason": reason}
    if run(connection, query(PACKAGE, "schedule_pause"), parameters).rowcount == 0:
        raise InvalidInput(unknown(connection, name), path="schedule")


def resume(connection: Connection, name: str) -> bool:
    """Let it go on from now on: ticks of the pause are not made up for. Returns whether it was paused.

    Raises:
        InvalidInput: there is none of this name.
    """
    text(name, "schedule", MAX_NAME)
    if run(connection, query(PACKAGE, "schedule_resume"), {"name": name, "now": clock.now()}).rowcount:
        return True
    if not rows(connection, name):
        raise InvalidInput(unknown(connection, name), path="schedule")
    return False


def forget(connection: Connection, name: str) -> None:
    """Take a schedule out of the table that no code declares any more. Sagas that it started stay.

    Raises:
        InvalidInput: there is none of this name, or this process declares it.
    """
    if schedules.find(text(name, "schedule", MAX_NAME)) is not None:
        raise InvalidInput(
            f"schedule {name!r} is declared in this process, so the next relay would bring it back: take it out of the "
            f"code first, or pause it",
            path="schedule",
        )
    if run(connection, query(PACKAGE, "schedule_forget"), {"name": name}).rowcount == 0:
        raise InvalidInput(unknown(connection, name), path="schedule")


def unknown(connection: Connection, name: str) -> str:
    """What to say where the table has no schedule of a name."""
    there: Iterable[str] = (each.name for each in rows(connection))
    hint = "; relays and embedded workers put it there when they start" if schedules.find(name) else ""
    return f"no schedule {name!r} is in the table; there are: {', '.join(there) or 'none'}{hint}"
