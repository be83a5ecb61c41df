"""The claim protocol's statements about outbox rows that know nothing of sagas.

A row has a `holder` (nobody, a relay, a worker), a `due_at` and a `token`. Whoever changes a row as its
owner names the token it saw; if the row has moved on, nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

from sagas_outbox.queries import query, run

PACKAGE = "sagas_outbox"
REQUESTS = 0  # the lane of what is not a step: in time before any backlog of work
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
PUBLISH_DOUBLINGS = 6  # the publish window grows to 64 times at most

Connection = psycopg.Connection[Any]
Held = tuple[int, int]  # id and token of an outbox row
Work = tuple[str | None, str | None, str | None]  # saga name, step and direction of an outbox row


class Claimed(NamedTuple):
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
    was_due: datetime | None = None  # before it was claimed

    @property
    def work(self) -> Work:
        """What it is to be run for."""
        return self.name, self.step, self.direction


class Lane(NamedTuple):
    """Work of one saga name and priority in a queue; or requests."""

    queue: str
    priority: int = 0
    lane: int = REQUESTS


@dataclass(slots=True)
class Ask:
    """How many rows to look for in one lane."""

    lane: Lane
    rows: int
    mark: datetime = LONG_AGO  # there is nothing before
    turn: int = 0  # of lanes that are alike, the lowest first
    found: int = 0  # how many there were; written by the claim
    taken: list[Claimed] = field(default_factory=list)  # for publishing; written by the claim
    share: float | None = None  # seconds of work that may be published of a lane that nobody has looked into


@dataclass(slots=True)
class Room:
    """How many rows to take from one queue, and from which lanes."""

    queue: str
    rows: int
    mark: datetime = LONG_AGO  # where no lanes are named
    asks: list[Ask] = field(default_factory=list)  # none: all lanes that there are
    by_turns: int = 0  # how many rows lanes are given by turns, whatever their priority
    put_off: bool = False  # rows were due that are not the first in line: look again; written by the claim


class Wants:
    """Rooms as the parameters of a statement."""

    def __init__(self, connection: Connection, rooms: Sequence[Room], now: datetime | None) -> None:
        lanes = list(_lanes(connection, now)) if any(not room.asks for room in rooms) else []
        named = [
            (number, room, room.asks or [Ask(lane, room.rows, room.mark) for lane in lanes if lane.queue == room.queue])
            for number, room in enumerate(rooms)
        ]
        self.asks = [(room, ask) for _, room, asks in named for ask in asks]
        self.parameters: dict[str, Any] = {
            "queues": [room.queue for room, _ in self.asks],
            "numbers": [number for number, _, asks in named for _ in asks],
            "priorities": [ask.lane.priority for _, ask in self.asks],
            "lanes": [ask.lane.lane for _, ask in self.asks],
            "asks": [ask.rows for _, ask in self.asks],
            "mosts": [room.rows for room, _ in self.asks],
            "spares": [room.by_turns for room, _ in self.asks],
            "turns": [ask.turn for _, ask in self.asks],
            "marks": [ask.mark for _, ask in self.asks],
            "now": now,
        }

    def take(self, nth_lane: int, found: int, place: int) -> bool:
        """Note what a row of the answer says of its lane, and return whether the row is to be taken."""
        room, ask = self.asks[nth_lane - 1]
        if not place:  # it is not the first in the line of its ordering key, and was put off
            room.put_off = True
            return False
        ask.found = found
        return True


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
    wants = Wants(connection, rooms, now)
    if not wants.asks:
        return []
    parameters = wants.parameters | {
        "holder": holder, "window": window, "begun": begun, "doublings": PUBLISH_DOUBLINGS
    }  # fmt: skip
    answer = run(connection, query(PACKAGE, "claim"), parameters).fetchall()
    claimed = []
    for *row, lane, found, place, _ in answer:
        if wants.take(lane, found, place):
            claimed.append(Claimed._make(row))
            wants.asks[lane - 1][1].taken.append(claimed[-1])
    return claimed


def lock_due(
    connection: Connection, rooms: Sequence[Room], *, begun: bool, now: datetime | None
) -> list[tuple[Held, int]]:
    """Lock due rows inside the open transaction: ((id, token), deliveries) of each."""
    return _lock(connection, "due", rooms, {"begun": begun}, now)


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
    return _lock(connection, "due_of", rooms, {"begun": begun, "work": list(work), "but": but}, now)


def _lock(
    connection: Connection, name: str, rooms: Sequence[Room], given: Mapping[str, Any], now: datetime | None
) -> list[tuple[Held, int]]:
    wants = Wants(connection, rooms, now)
    if not wants.asks:
        return []
    answer = run(connection, query(PACKAGE, name), {**wants.parameters, **given}).fetchall()
    return [
        ((id, token), deliveries)
        for id, token, deliveries, lane, found, place, _ in answer
        if wants.take(lane, found, place)
    ]


def lanes(connection: Connection, *, now: datetime | None) -> Mapping[Lane, tuple[float, datetime]]:
    """Every lane that has rows: seconds until its oldest is due (negative: overdue), and when that is."""
    return _lanes(connection, now)


def queues(connection: Connection, *, now: datetime | None) -> Mapping[str, tuple[float, datetime]]:
    """Every queue that has rows: seconds until its oldest is due (negative: overdue), and when that is."""
    oldest: dict[str, tuple[float, datetime]] = {}
    for lane, due in _lanes(connection, now).items():
        oldest[lane.queue] = min(due, oldest.get(lane.queue, due))
    return oldest


def _lanes(connection: Connection, now: datetime | None) -> Mapping[Lane, tuple[float, datetime]]:
    found = run(connection, query(PACKAGE, "queues"), {"now": now}).fetchall()
    return {Lane(queue, priority, lane): (due_in, due_at) for queue, priority, lane, due_in, due_at in found}


def heartbeat(
    connection: Connection, held: Sequence[Held], *, holder: str, lease: float, now: datetime | None
) -> set[int]:
    """Renew leases; returns the ids that are still ours. What is missing from it is lost."""
    parameters = _pairs(held) | {"holder": holder, "lease": lease, "now": now}
    return {row[0] for row in run(connection, query(PACKAGE, "heartbeat"), parameters)}


def hand_back(
    connection: Connection,
    held: Sequence[Held],
    *,
    delay: float = 0.0,
    holder: str | None = None,
    now: datetime | None,
) -> set[int]:
    """Give back rows whose body never started; returns the ids that were still ours.

    Args:
        connection: where to.
        held: id and token of each.
        delay: seconds until they are due.
        holder: who began them; None where that was a moment ago, on this connection.
        now: the present, where it is not the database's.
    """
    parameters = _pairs(held) | {"delay": delay, "holder": holder, "now": now}
    return {row[0] for row in run(connection, query(PACKAGE, "hand_back"), parameters)}


def release(
    connection: Connection, held: Sequence[Held], *, holder: str, delay: float, now: datetime | None
) -> set[int]:
    """Give up rows that were claimed for publishing and not published; they are due again after `delay` seconds."""
    parameters = _pairs(held) | {"due_ats": [None] * len(held), "holder": holder, "delay": delay, "now": now}
    return {row[0] for row in run(connection, query(PACKAGE, "release"), parameters)}


def put_back(connection: Connection, rows: Iterable[Claimed], *, holder: str, now: datetime | None) -> None:
    """Leave rows that were claimed for publishing as they were, in their place in the line."""
    rows = list(rows)
    parameters = _pairs([(row.id, row.token) for row in rows])
    parameters |= {"due_ats": [row.was_due for row in rows], "holder": holder, "delay": 0.0, "now": now}
    run(connection, query(PACKAGE, "release"), parameters)


def next_signals(connection: Connection, lines: Sequence[str], *, now: datetime | None) -> None:
    """Make the next signal of each ordering key due that waited for the one before it."""
    run(connection, query(PACKAGE, "next_signals"), {"lines": sorted(set(lines)), "now": now})


def note_progress(connection: Connection, held: Held, progress: str, *, holder: str) -> bool:
    """Keep how far the attempt at work has come, as JSON; returns whether its row is still held."""
    parameters = {"id": held[0], "token": held[1], "progress": progress, "holder": holder}
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
    "LONG_AGO", "REQUESTS", "Ask", "Claimed", "Connection", "Held", "Lane", "Room", "claim", "hand_back", "heartbeat",
    "lanes", "lock_due", "queues", "release", "unbegun",
]  # fmt: skip
