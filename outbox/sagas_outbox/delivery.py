"""The statements of relays about plain messages. Each is about any number of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import namedtuple_row

from sagas_outbox.publishers import Message
from sagas_outbox.queries import query, run

Connection = psycopg.Connection[Any]

PACKAGE = "sagas_outbox"
SOON = 0.05  # seconds at least until a message is looked at again that is behind another of its key
HELD, DUE, DEAD = 1.0, 5.0, 3600.0  # and at most: that one is being sent, or could be, or is dead
DEAD_SOON = 60.0  # at least behind a dead one, and at most what has not been behind any
MOST_BYTES = 16 * 1024 * 1024  # of payloads in one claim, and one message more
MOST_ERROR = 1000  # characters


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """A message that a relay has claimed."""

    id: int
    token: int
    failures: int  # so far
    message: Message


@dataclass(frozen=True, slots=True)
class Room:
    """How many messages to take for one destination, and the due time before which there are none."""

    destination: str
    messages: int
    mark: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsent:
    """What becomes of a message that was not sent."""

    taken: Taken
    counts: bool  # as a failure of its own
    dead: bool
    delay: float  # seconds until it is due again
    error: str


def destinations(connection: Connection, *, now: datetime | None) -> Mapping[str, tuple[float, datetime]]:
    """Every destination with waiting messages: seconds until its oldest is due, and when that is."""
    found = run(connection, query(PACKAGE, "destinations"), {"now": now}).fetchall()
    return {destination: (due_in, due_at) for destination, due_in, due_at in found}


def claim(
    connection: Connection, rooms: Sequence[Room], *, holder: str, lease: float, now: datetime | None
) -> tuple[list[Taken], int]:
    """Take due messages for sending, in the order of their ids; and how many were put off behind others of their keys.

    It may be fewer than there is room for, if they are large.

    Args:
        connection: autocommit.
        rooms: how many for which destination.
        holder: the relay's name.
        lease: seconds until another relay may take them.
        now: the time to go by; None: the database clock.
    """
    parameters = {
        "destinations": [room.destination for room in rooms], "rooms": [room.messages for room in rooms],
        "marks": [room.mark for room in rooms], "holder": holder, "lease": lease, "now": now,
        "soon": SOON, "held": HELD, "due": DUE, "dead": DEAD, "dead_soon": DEAD_SOON, "bytes": MOST_BYTES,
    }  # fmt: skip
    with psycopg.Cursor(connection, row_factory=namedtuple_row) as cursor:
        found: list[Any] = cursor.execute(query(PACKAGE, "claim_messages"), parameters).fetchall()
    put_off = found.pop(0).token if found and found[0].id == 0 else 0
    return [_taken(row) for row in found], put_off


def _taken(row: Any) -> Taken:
    message = Message(
        id=row.message_id, destination=row.destination, body=row.payload, key=row.ordering_key,
        options=json.loads(row.options) if row.options else {}, headers=json.loads(row.headers) if row.headers else {},
        published_at=row.created_at,
    )  # fmt: skip
    return Taken(id=row.id, token=row.token, failures=row.failures, message=message)


def renew(connection: Connection, taken: Iterable[Taken], *, lease: float, now: datetime | None) -> None:
    """Keep messages that are being sent for `lease` seconds more, as far as they are still ours."""
    run(connection, query(PACKAGE, "renew_messages"), _pairs(taken) | {"lease": lease, "now": now})


def settle_sent(connection: Connection, sent: Collection[Taken], *, keep: bool, now: datetime | None) -> set[int]:
    """Note down that messages were sent; returns the ids of those that were still ours."""
    parameters = _pairs(sent) | {"keep": keep, "now": now}
    return {row[0] for row in run(connection, query(PACKAGE, "settle_sent"), parameters)}


def settle_unsent(connection: Connection, unsent: Sequence[Unsent], *, now: datetime | None) -> set[int]:
    """Note down that messages were not sent; returns the ids of those that were still ours."""
    parameters = _pairs(each.taken for each in unsent) | {
        "counts": [each.counts for each in unsent], "dead": [each.dead for each in unsent],
        "delays": [float(each.delay) for each in unsent], "errors": [_storable(each.error) for each in unsent],
        "now": now,
    }  # fmt: skip
    return {row[0] for row in run(connection, query(PACKAGE, "settle_unsent"), parameters)}


def prune_messages(connection: Connection, *, keep: float, most: int, now: datetime | None) -> int:
    """Delete sent messages that were kept for `keep` seconds, at most so many; returns how many."""
    return run(connection, query(PACKAGE, "prune_messages"), {"keep": keep, "most": most, "now": now}).rowcount


def prune_inbox(connection: Connection, *, keep: float, most: int, now: datetime | None) -> int:
    """Forget messages that were taken more than `keep` seconds ago, at most so many; returns how many."""
    return run(connection, query(PACKAGE, "prune_inbox"), {"keep": keep, "most": most, "now": now}).rowcount


def replay(connection: Connection, ids: Iterable[UUID] | None, *, now: datetime | None = None) -> set[UUID]:
    """Have dead messages sent again; None: all of them. Returns the ids of those that were dead."""
    return _dead("replay_messages", connection, ids, now)


def drop(connection: Connection, ids: Iterable[UUID] | None, *, now: datetime | None = None) -> set[UUID]:
    """Give dead messages up; None: all of them. Returns the ids of those that were dead."""
    return _dead("drop_messages", connection, ids, now)


def _dead(name: str, connection: Connection, ids: Iterable[UUID] | None, now: datetime | None) -> set[UUID]:
    parameters = {"ids": [str(id) for id in ids or ()], "every": ids is None, "now": now}
    return {row[0] for row in run(connection, query(PACKAGE, name), parameters)}


def _pairs(taken: Iterable[Taken]) -> dict[str, Any]:
    held = [(each.id, each.token) for each in taken]
    return {"ids": [id for id, _ in held], "tokens": [token for _, token in held]}


def _storable(text: str) -> str:
    return text[:MOST_ERROR].encode("utf-8", "replace").decode().replace("\x00", "\\0")
