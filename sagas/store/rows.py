"""Sagas as rows: what begin loads, and what a decision writes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from msgspec import Raw
from psycopg.rows import dict_row

from sagas.events import Attempt, Children, Decision, Direction, Entry, Facts, Kind
from sagas.fold import UNTOUCHED, track_of
from sagas.logs import Label
from sagas.payloads import LARGE, request_text
from sagas.reader import Reader
from sagas.states import State, Status, StepState
from sagas.store.columns import plain, rare
from sagas.takeover import NOTHING, Memory
from sagas_outbox import claims
from sagas_outbox.claims import Held
from sagas_outbox.queries import query, run

PACKAGE = "sagas.store"
PATIENCE = 2.0  # seconds to wait for a row that another locks; claims and heartbeats do so for a moment
Connection = psycopg.Connection[Any]

_steps = msgspec.json.Decoder(dict[str, StepState])
_facts = msgspec.json.Decoder(Facts)


class Delivery(msgspec.Struct, kw_only=True, eq=False):
    """One begun outbox row and the saga it belongs to, as this worker last saw it."""

    id: int
    token: int
    kind: str
    queue: str
    saga_id: UUID
    name: str
    version: int
    key: str
    state: State
    attempt: Attempt | None  # None: a request, such as a cancel
    payload: str | None = None  # of a request
    history: dict[int, bytes | None] = msgspec.field(default_factory=dict)  # seq -> data of entry 0 and of done steps
    reader: Reader = msgspec.field(default_factory=lambda: Reader(facts_of))
    memory: Memory = NOTHING
    asked: bool = False  # a request of its saga, such as a cancel, waits to be applied
    definition: str = ""  # fingerprint of the steps it was started with
    held_up: bool = False  # its saga, its definition or its queue is paused
    early: bool = False  # a signal that has to wait for another that was sent before it
    progress: Raw | None = None  # what an earlier attempt said of how far it had come
    children: Children | None = None  # how they stand, where the row says that one has ended
    late: Raw | None = None  # when undoing: an answer of the step that came after it was given up
    begun_at: float  # this process's monotonic clock, before the statement that began it
    leased_at: float = 0.0  # the same, before the one that began its lease
    misfit: str = ""  # what of its payloads today's types cannot read
    tied: bool = True  # others learn of what becomes of it: a parent, or the next in the line of its ordering key

    @property
    def held(self) -> Held:
        return self.id, self.token

    @property
    def heavy(self) -> bool:
        """Whether some payload of its saga is so large that it is loaded only when asked for."""
        return None in self.history.values()

    @property
    def label(self) -> Label:
        """How messages name it."""
        work = f"{self.attempt.step}:{self.attempt.direction}" if self.attempt else self.kind
        step = self.attempt.step if self.attempt else ""
        return Label.of(id=self.saga_id, name=self.name, key=self.key, step=step, work=work)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A begun row that cannot be read."""

    held: Held
    problem: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A begun signal whose saga does not exist yet."""

    held: Held
    age: float  # seconds since it was sent
    what: str  # what it says, for messages


def begin(
    connection: Connection, held: Sequence[Held], *, holder: str, lease: float, published: bool, now: datetime | None
) -> list[Delivery | Damaged | Kept]:
    """Take rows over by id and token, in one statement for all of them.

    Args:
        connection: where; in autocommit, or in the transaction that locked the rows.
        held: id and token of each row, from a message or from `lock_due`.
        holder: this worker's name, beginning with ``worker:``.
        lease: seconds until another worker may take over.
        published: they come from a message of a relay; else they must be due.
        now: the time to go by; None: the database clock.

    Returns:
        What was begun; rows that are gone, taken, moved on or locked for long are simply missing.
    """
    begun = _begin(connection, held, holder=holder, lease=lease, published=published, now=now)
    missing = {*held} - {(each.held[0], each.held[1] - 1) for each in begun}
    if missing and claims.wait_for(connection, sorted(missing), patience=PATIENCE):
        begun += _begin(connection, sorted(missing), holder=holder, lease=lease, published=published, now=now)
    return begun


def _begin(
    connection: Connection, held: Sequence[Held], *, holder: str, lease: float, published: bool, now: datetime | None
) -> list[Delivery | Damaged | Kept]:
    parameters = {
        "held": msgspec.json.encode(held).decode(), "holder": holder, "lease": lease, "published": published,
        "now": now, "large": LARGE,
    }  # fmt: skip
    began = time.monotonic()
    found = run(connection, query(PACKAGE, "begin"), parameters, row_factory=dict_row)
    return [_delivery(row, began) for row in found]


def _delivery(row: dict[str, Any], began: float) -> Delivery | Damaged | Kept:
    if row["kind"] == "signal" and row["saga_id"] is None:
        return Kept(
            (row["id"], row["token"]), row["now"] - (row["asked_at"] or row["now"]), request_text(row["payload"])
        )
    try:
        state = state_of(row)
        return Delivery(
            id=row["id"], token=row["token"], kind=row["kind"], queue=row["queue"], saga_id=row["saga_id"],
            name=row["name"], version=row["version"], key=row["key"], state=state,
            attempt=_attempt(row, state), payload=row["payload"], memory=_memory(row), begun_at=began, leased_at=began,
            tied=row["tied"], late=_raw(row["late_response"]), asked=row["asked"], definition=row["definition"],
            held_up=row["held_up"] or row["paused"], early=row["early"], progress=_raw(row["progress"]),
            history={s: e and e.encode() for s, e in zip(row["history_seqs"] or (), row["history"] or (), strict=True)},
        )  # fmt: skip
    except (ValueError, TypeError, msgspec.MsgspecError) as problem:
        return Damaged((row["id"], row["token"]), f"saga {row['saga_id']}: {problem}")


def state_of(row: dict[str, Any]) -> State:
    """The state that a saga row holds.

    Raises:
        ValueError: there is no row, or its status is not in the closed list.
        msgspec.MsgspecError: its steps cannot be read.
    """
    if row["status"] is None:
        raise ValueError("there is no such saga")
    return State(
        status=Status(row["status"]), seq=row["seq"], steps=_steps.decode(row["steps"]),
        cancel_requested=row["cancel_requested"], error=row["error"], paused=row["paused"], failing=row["failing"],
        deadline=row["deadline"],
        parked_from=None if row["parked_from"] is None else Status(row["parked_from"]),
    )  # fmt: skip


def _attempt(row: dict[str, Any], state: State) -> Attempt | None:
    """The attempt a row stands for; of its first begin the row may know, or the saga, or both."""
    if row["step"] is None:
        return None
    direction = Direction(row["direction"])
    known = (row["first_begun_at"], track_of(state.steps.get(row["step"], UNTOUCHED), direction).first_begun_at)
    return Attempt(
        step=row["step"], direction=direction, deliveries=row["deliveries"],
        first_begun_at=min((each for each in known if each is not None), default=None), now=row["now"],
    )  # fmt: skip


def _memory(row: dict[str, Any]) -> Memory:
    return Memory(row["memory_state"] == "closed", _raw(row["memory_response"]))


def _raw(text: str | None) -> Raw | None:
    return None if text is None else Raw(text.encode())


def load(connection: Connection, held: Sequence[Held], *, holder: str) -> dict[Held, State]:
    """The sagas of rows that are still ours, by row id and token, as they stand now."""
    parameters = {"ids": [id for id, _ in held], "tokens": [token for _, token in held], "holder": holder}
    with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
        found = cursor.execute(query(PACKAGE, "load"), parameters)
        return {(row["id"], row["token"]): state_of(row) for row in found}


def lock(connection: Connection, held: Sequence[Held]) -> set[int]:
    """Lock rows for the open transaction; returns the ids that are still ours and not locked by another for long."""

    def attempt(wanted: Sequence[Held]) -> set[int]:
        parameters = {"ids": [id for id, _ in wanted], "tokens": [token for _, token in wanted]}
        return {row[0] for row in run(connection, query(PACKAGE, "lock"), parameters)}

    locked = attempt(held)
    missing = [each for each in held if each[0] not in locked]
    if missing and claims.wait_for(connection, missing, patience=PATIENCE):
        locked |= attempt(missing)
    return locked


def hold_up(connection: Connection, held: Sequence[Held], *, delay: float, soon: float, now: datetime | None) -> None:
    """Put paused work off by `delay` seconds; by `soon` where it is not paused any more, or perhaps not."""
    parameters = {
        "ids": [id for id, _ in held], "tokens": [token for _, token in held], "delay": delay, "soon": soon, "now": now,
    }  # fmt: skip
    run(connection, query(PACKAGE, "hold_up"), parameters)


def give_up(connection: Connection, kept: Kept) -> None:
    """Delete a signal whose saga never came, where it is still as it was begun, and what knows that it was sent."""
    run(connection, query(PACKAGE, "give_up"), {"id": kept.held[0], "token": kept.held[1]})


class Recording(msgspec.Struct, eq=False):
    """A decision about a delivery, ready to be written."""

    delivery: Delivery
    decision: Decision
    finished: bool  # whether the saga ends here
    goes_on: bool  # this worker continues with the next step at once
    frees: bool = False  # the saga may hold semantic locks, which are free when it ends
    renews: bool = True  # its lease, if it goes on; else what is left of it has to do


def record(
    connection: Connection, batch: Sequence[Recording], *, holder: str, lease: float, now: datetime | None
) -> dict[int, bool]:
    """Write decisions in one statement; returns the row ids of those that were written, whole, and of each whether
    this worker goes on with it.

    A decision whose row or saga has moved on, or is locked, is left out. No two of one saga may be in a batch.
    """
    if not batch:
        return {}
    columns, more = plain(batch), rare(batch)
    name = "record" if any(more.values()) or any(r.delivery.tied for r in batch) else "record_plain"
    columns |= more if name == "record" else {}
    parameters: dict[str, Any] = {name: msgspec.json.encode(column).decode() for name, column in columns.items()}
    parameters |= {"holder": holder, "lease": lease, "now": now, "renews": any(r.renews for r in batch)}
    return {id: goes_on for id, goes_on, *_ in run(connection, query(PACKAGE, name), parameters)}


def recorded(connection: Connection, batch: Sequence[Recording], *, holder: str) -> dict[int, bool]:
    """After a lost acknowledgement: the row ids of those that are in the log under their own token, and of each
    whether this worker goes on with it.

    A decision without entries leaves no trace in the log; whether its row is still ours says enough.
    """
    last = [(r.delivery, r.decision.entries[-1]) for r in batch if r.decision.entries]
    parameters = {
        "ids": [delivery.id for delivery, _ in last], "tokens": [delivery.token for delivery, _ in last],
        "saga_ids": [delivery.saga_id for delivery, _ in last], "new_seqs": [entry.seq for _, entry in last],
        "kinds": [entry.kind.value for _, entry in last], "steps": [entry.step for _, entry in last],
        "holder": holder,
    }  # fmt: skip
    return dict(run(connection, query(PACKAGE, "recorded"), parameters).fetchall())


def remember(connection: Connection, delivery: Delivery, key: str, response: Raw | None) -> None:
    """Keep an answer in the dedupe table that came too late to be recorded, and tell a saga that has turned back.

    Without a response: it happened, but what came back cannot be stored.
    """
    assert delivery.attempt is not None
    parameters = {
        "key": key, "saga_id": delivery.saga_id, "token": delivery.token,
        "response": None if response is None else bytes(response).decode(),
        "queue": delivery.queue, "step": delivery.attempt.step,
    }  # fmt: skip
    run(connection, query(PACKAGE, "remember"), parameters)


def entry_of(seq: int, kind: str, step: str | None, attempt: int, data: str | bytes) -> Entry:
    """A stored log line.

    Raises:
        ValueError: its kind is not in the closed list.
        msgspec.MsgspecError: its data cannot be read.
    """
    return Entry(seq, Kind(kind), step, attempt, _facts.decode(data))


def facts_of(data: bytes) -> Facts:
    """What one stored log line says."""
    return _facts.decode(data)


def paces(connection: Connection) -> dict[tuple[str, str, str], float]:
    """How long bodies take: mean seconds by (saga name, step, direction)."""
    return {
        (name, step, direction): mean for name, step, direction, mean in run(connection, query(PACKAGE, "paces"), {})
    }


def save_paces(connection: Connection, means: Mapping[tuple[str, str, str], float]) -> None:
    """Tell relays how long bodies take: mean seconds by (saga name, step, direction)."""
    parameters = {
        "names": [name for name, _, _ in means], "steps": [step for _, step, _ in means],
        "directions": [direction for _, _, direction in means], "means": list(means.values()),
    }  # fmt: skip
    run(connection, query(PACKAGE, "pace"), parameters)


def facts_bytes(entry: Entry) -> bytes:
    """The data of a log line as it is stored."""
    return msgspec.json.encode(entry.data)


def is_result(entry: Entry) -> bool:
    """Whether a log line may hold a step's result."""
    return entry.kind is Kind.STEP_DONE or entry.kind is Kind.SIGNALLED
