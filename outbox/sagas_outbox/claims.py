"""The claim protocol's statements about outbox rows that know nothing of sagas.

A row has a `holder` (nobody, a relay, a worker), a `due_at` and a `token`. Whoever changes a row as its
owner names the token it saw; if the row has moved on, nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import class_row

from sagas_outbox.queries import query, run

PACKAGE = "sagas_outbox"
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
PUBLISH_DOUBLINGS = 6  # the publish window grows to 64 times at most

Connection = psycopg.Connection[Any]
Held = tuple[int, int]  # id and token of an outbox row


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that a relay may publish."""

    id: int
    token: int
    queue: str
    kind: str
    name: str | None  # of the saga
    step: str | None
    direction: str | None
    deliveries: int  # above 0: begun before, and its lease ended
    publishes: int


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows to take from one queue, and the due time before which there is nothing."""

    queue: str
    rows: int
    mark: datetime = LONG_AGO


def _wants(rooms: Sequence[Room]) -> dict[str, Any]:
    return {
        "queues": [room.queue for room in rooms],
        "rooms": [room.rows for room in rooms],
        "marks": [room.mark for room in rooms],
    }


def claim(
    connection: Connection, rooms: Sequence[Room], *, holder: str, window: float, begun: bool, now: datetime | None
) -> list[Claimed]:
    """Take due rows for publishing, oldest first.

    Args:
        connection: autocommit.
        rooms: how many from which queue.
        holder: the relay's name, beginning with ``relay:``.
        window: seconds until a row that nobody began may be published again.
        begun: also rows whose worker's lease ended.
        now: the time to go by; None: the database clock.
    """
    with psycopg.Cursor(connection, row_factory=class_row(Claimed)) as cursor:
        parameters = _wants(rooms) | {
            "holder": holder, "window": window, "begun": begun, "now": now, "doublings": PUBLISH_DOUBLINGS
        }  # fmt: skip
        return cursor.execute(query(PACKAGE, "claim"), parameters).fetchall()


def lock_due(
    connection: Connection, rooms: Sequence[Room], *, begun: bool, now: datetime | None
) -> list[tuple[Held, int]]:
    """Lock due rows inside the open transaction: ((id, token), deliveries) of each."""
    parameters = _wants(rooms) | {"begun": begun, "now": now}
    found = run(connection, query(PACKAGE, "due"), parameters).fetchall()
    return [((row[0], row[1]), row[2]) for row in found]


def lock_due_of(
    connection: Connection, rooms: Sequence[Room], *, work: Sequence[str], but: bool = False, begun: bool,
    now: datetime | None,
) -> list[tuple[Held, int]]:  # fmt: skip
    """Like `lock_due`, only rows of certain work.

    Args:
        connection: with an open transaction.
        rooms: how many from which queue.
        work: saga name, step and direction of each, with spaces between them.
        but: only the other rows instead.
        begun: also rows whose worker's lease ended.
        now: the time to go by; None: the database clock.
    """
    parameters = _wants(rooms) | {"begun": begun, "now": now, "work": list(work), "but": but}
    found = run(connection, query(PACKAGE, "due_of"), parameters).fetchall()
    return [((row[0], row[1]), row[2]) for row in found]


def queues(connection: Connection, *, now: datetime | None) -> Mapping[str, tuple[float, datetime]]:
    """Every queue that has rows: seconds until its oldest is due (negative: overdue), and when that is."""
    found = run(connection, query(PACKAGE, "queues"), {"now": now}).fetchall()
    return {queue: (due_in, due_at) for queue, due_in, due_at in found}


def heartbeat(
    connection: Connection, held: Sequence[Held], *, holder: str, lease: float, now: datetime | None
) -> set[int]:
    """Renew leases; returns the ids that are still ours. What is missing from it is lost."""
    parameters = _pairs(held) | {"holder": holder, "lease": lease, "now": now}
    return {row[0] for row in run(connection, query(PACKAGE, "heartbeat"), parameters)}


def hand_back(connection: Connection, held: Sequence[Held], *, delay: float = 0.0, now: datetime | None) -> set[int]:
    """Give back rows whose body never started; returns the ids that were still ours."""
    parameters = _pairs(held) | {"delay": delay, "now": now}
    return {row[0] for row in run(connection, query(PACKAGE, "hand_back"), parameters)}


def release(
    connection: Connection, held: Sequence[Held], *, holder: str, delay: float, now: datetime | None
) -> set[int]:
    """Give up rows that were claimed for publishing and not published; they are due again after `delay` seconds."""
    parameters = _pairs(held) | {"holder": holder, "delay": delay, "now": now}
    return {row[0] for row in run(connection, query(PACKAGE, "release"), parameters)}


def discard(connection: Connection, held: Sequence[Held]) -> None:
    """Delete rows that will never be of use."""
    run(connection, query(PACKAGE, "discard"), _pairs(held))


def note_progress(connection: Connection, held: Held, progress: str) -> bool:
    """Keep how far the attempt at work has come, as JSON; returns whether its row is still held."""
    parameters = {"id": held[0], "token": held[1], "progress": progress}
    return run(connection, query(PACKAGE, "note_progress"), parameters).rowcount > 0


def wait_for(connection: Connection, held: Sequence[Held], *, patience: float) -> bool:
    """Wait until nobody else locks these rows, and keep no lock oneself.

    Args:
        connection: in autocommit or in a transaction, which is left as it was.
        held: id and token of each.
        patience: seconds to wait at most.

    Returns:
        Whether any of them is worth another try: still under this token, and free.
    """
    try:
        with connection.transaction(force_rollback=True):
            limit = f"{int(patience * 1000)}ms"
            connection.execute("select set_config('lock_timeout', %s, true)", [limit])
            return bool(run(connection, query(PACKAGE, "wait_for"), _pairs(held)).fetchall())
    except psycopg.errors.LockNotAvailable:
        return False


def unbegun(connection: Connection, ids: Sequence[int], *, holder: str) -> set[int]:
    """Which of these published rows nobody has begun yet."""
    parameters = {"ids": list(ids), "holder": holder}
    return {row[0] for row in run(connection, query(PACKAGE, "unbegun"), parameters)}


def _pairs(held: Sequence[Held]) -> dict[str, Any]:
    return {"ids": [id for id, _ in held], "tokens": [token for _, token in held]}


__all__ = [
    "LONG_AGO", "Claimed", "Connection", "Held", "Room", "claim", "hand_back", "heartbeat", "lock_due",
    "queues", "release", "unbegun",
]  # fmt: skip
