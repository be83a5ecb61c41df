"""What is done at a tick: look, decide, and in one statement start the sagas and move the schedule on.

No lock is held and no transaction is open while `input=` runs or this process stands still. Two relays may come to the
same conclusion at the same time; the revision of the row lets one of them act. And a tick is in the key of its saga, so
that it starts nothing twice even where a schedule was forgotten, or declared back and forth.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

import msgspec
import psycopg
from psycopg.rows import class_row

from sagas import clock, engine
from sagas.bare import BareCaller
from sagas.definition import OnExisting
from sagas.errors import InvalidInput, NotPossible
from sagas.failure import error_text
from sagas.requests import optional, text, to_start
from sagas.schedules.declaration import MAX_NAME, Schedule, schedules
from sagas.schedules.policy import Overlap, Plan, plan
from sagas.schedules.state import FAILED, noted
from sagas.schedules.table import PACKAGE, Connection, Row, declare, rows, unknown
from sagas.settings import Settings
from sagas_outbox.queries import query, run
from sagas_outbox.wake import NOTIFY

log = logging.getLogger("sagas.schedules")

UNSERVED: Final = 30.0  # seconds after which a due schedule that nobody serves as it stands is taken over
RETRY: Final = 30.0  # seconds until a schedule is looked at again with which something went wrong
TRIES: Final = 5  # of a run by hand, each of which a relay may come in before
MAX_REASON: Final = 500  # characters; it travels in the headers of the saga


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """A schedule that is to be looked at."""

    name: str
    fingerprint: str
    revision: int
    next_at: datetime
    note: str
    now: datetime
    late: float  # seconds
    open: UUID | None  # the run that it started last, while that has not ended
    cancelled: bool  # whether that was asked to be undone, where `Overlap.CANCEL` is said


class _Caller(BareCaller):
    """A worker's own connection, with the settings of its store."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        super().__init__(connection)
        self._settings = settings

    @property
    def settings(self) -> Settings:
        return self._settings


def seconds_left(connection: Connection, known: Sequence[Schedule[Any]]) -> float | None:
    """Seconds until the first of these schedules is to be looked at; None: never, as things stand."""
    given = {"names": [each.name for each in known], "now": clock.now()}
    found = run(connection, query(PACKAGE, "schedule_wait"), given).fetchone()
    return None if found is None else found[0]


def fire_due(connection: Connection, settings: Settings, known: Sequence[Schedule[Any]]) -> bool:
    """Do what is due. What goes wrong with one schedule does not keep the others.

    Args:
        connection: autocommit.
        settings: of the store.
        known: the schedules to look after, which are in the table.

    Returns:
        Whether there was anything to do, so that more may be due.

    Raises:
        psycopg.Error: the connection broke.
    """
    parameters = {"names": [each.name for each in known], "now": clock.now()}
    with psycopg.Cursor(connection, row_factory=class_row(Due)) as cursor:
        found = cursor.execute(query(PACKAGE, "schedule_due"), parameters).fetchall()
    by_name = {each.name: each for each in known}
    moved = False
    for due in found:
        try:
            moved |= _fire(connection, settings, by_name[due.name], due)
        except psycopg.errors.SerializationFailure:
            moved = True  # somebody else was quicker, where transactions are stricter than READ COMMITTED
        except Exception as problem:
            if connection.closed or connection.broken:
                raise
            log.exception("schedule %s could not start its saga; trying again in %d s", due.name, RETRY)
            error = error_text(problem)
            put_off = {
                "name": due.name, "revision": due.revision, "delay": RETRY, "now": clock.now(),
                "note": f"{FAILED}: {error.type}: {error.message}",
            }  # fmt: skip
            run(connection, query(PACKAGE, "schedule_retry"), put_off)
    return moved


def _fire(connection: Connection, settings: Settings, schedule: Schedule[Any], due: Due) -> bool:
    if due.fingerprint != schedule.fingerprint:
        # whoever declared it so will start it; but if nobody of those is left, it must not wait for ever
        return due.late >= UNSERVED and bool(declare(connection, schedule, replaces=True))
    made = plan(schedule.timing, schedule.policy, since=due.next_at, now=due.now, open=due.open is not None)
    made = replace(made, note=noted(due.note, made))
    requests = [
        _request(connection, settings, schedule, schedule.input(tick), schedule.key(tick)) for tick in made.start
    ]
    if _move(connection, due.name, due.revision, made, requests) is None:
        return True  # somebody else was quicker
    if made.note and made.note != due.note:
        log.warning("schedule %s: %s", due.name, made.note)
    asks = made.cancel and not due.cancelled and due.open is not None
    if asks:
        engine.request(
            None, "cancel", id=due.open, reason="its schedule is due again", actor=f"schedule:{due.name}",
            using=connection,
        )  # fmt: skip
    if (requests or asks) and settings.wake:
        connection.execute(NOTIFY)
    return True


def _request(
    connection: Connection, settings: Settings, schedule: Schedule[Any], input: Any, key: str, **headers: str
) -> dict[str, Any]:
    request, _ = to_start(
        _Caller(connection, settings), schedule.saga, input, key=key, subject=None, on_existing=OnExisting.RETURN,
        headers={"schedule": schedule.name, **headers}, deadline=schedule.saga.deadline,
    )  # fmt: skip
    now = clock.now()
    return request if now is None else {**request, "now": now}


def _move(
    connection: Connection, name: str, revision: int, made: Plan | None, requests: Sequence[dict[str, Any]],
    note: str = "",
) -> list[dict[str, Any]] | None:  # fmt: skip
    """The compare-and-set; returns what came of each start, or None where the row has moved on."""
    given = {
        "name": name, "revision": revision, "note": made.note if made else note, "now": clock.now(),
        "next_at": made.next_at if made else None, "look_at": made.look_at if made else None,
        "last_at": made.last if made else None, "last_key": requests[-1]["key"] if requests else None,
        "starts": msgspec.json.encode(requests).decode(),
    }  # fmt: skip
    found = run(connection, query(PACKAGE, "schedule_fire"), given).fetchone()
    if found is None:
        return None
    answers: list[dict[str, Any]] = found[0]
    for answer, request in zip(answers, requests, strict=True):
        if answer["created"]:
            log.info("schedule %s started saga %s %s", name, answer["id"], request["key"])
        else:
            log.warning("schedule %s: saga %s was there already (%s)", name, request["key"], answer["status"])
    return answers


def run_now(
    connection: Connection, settings: Settings, name: str, *, reason: str, actor: str = "", nonce: UUID | None = None
) -> tuple[UUID, str]:
    """Start the saga of a schedule now, also of one that is paused; its ticks stay as they are.

    Args:
        connection: autocommit.
        settings: of the store.
        name: of the schedule, which this process has to declare.
        reason: why; in the headers of the saga.
        actor: who asks; there too.
        nonce: the same one starts one saga only.

    Returns:
        Id and key of the saga.

    Raises:
        InvalidInput: this process does not declare it, there is no reason, or its input cannot be made.
        NotPossible: its last run is open, and it says that its runs do not overlap.
    """
    schedule = schedules.get(text(name, "schedule", MAX_NAME))
    text(reason, "reason", MAX_REASON), optional(actor, "actor", MAX_REASON)
    key = f"{name}@run-{nonce or uuid4()}"
    for _ in range(TRIES):
        row = _row(connection, schedule)
        if row.last_key == key and row.last_saga:
            return row.last_saga, key
        if row.open and schedule.policy.overlap is not Overlap.ALLOW:
            raise NotPossible(
                f"schedule {name}: its last run is open (saga {row.last_key}, {row.last_saga}), and overlap is "
                f"{row.overlap}: let it end, or cancel it, and run the schedule then"
            )
        request = _request(connection, settings, schedule, _input(schedule, row.now), key, reason=reason, actor=actor)
        answers = _move(connection, name, row.revision, None, [request], note=row.note)
        if answers is not None:
            if settings.wake:
                connection.execute(NOTIFY)
            return UUID(answers[0]["id"]), key
    raise NotPossible(f"schedule {name} changed {TRIES} times meanwhile; ask again")


def _input(schedule: Schedule[Any], now: datetime) -> Any:
    try:
        return schedule.input(now)
    except Exception as problem:
        error = error_text(problem)
        said = f"schedule {schedule.name}: input= raised {error.type}: {error.message}"
        raise InvalidInput(said, path="input") from problem


def _row(connection: Connection, schedule: Schedule[Any]) -> Row:
    found = rows(connection, schedule.name)
    if not found:
        raise InvalidInput(unknown(connection, schedule.name), path="schedule")
    return found[0]
