"""Making saga and outbox rows again from the log alone, after they were lost or damaged.

The log is the truth. What cannot be known from it is assumed to be the worst: a body that was perhaps under way is
in doubt, so it is asked about or undone as unknown, never taken for "did not happen"; it may have begun as soon as the
saga came to it, and that is the age of its key. Requests that no worker had applied yet (a cancel still in the outbox)
are lost with the outbox.

Run it while no worker runs the sagas concerned; a saga whose rows agree with its log is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from msgspec import Raw
from psycopg.rows import dict_row

from sagas import codec, machine
from sagas.errors import UnknownSaga
from sagas.events import Entry, Rebuild, Work
from sagas.fold import evolve, fold
from sagas.head import Head, read_head
from sagas.plan import Plan
from sagas.registry import registry
from sagas.states import State, Status
from sagas.store.rows import Connection, entry_of, state_of
from sagas_outbox.queries import query, run

PACKAGE = "sagas.store"
BATCH = 500
FIRST = UUID(int=0)
NO_STEPS = Plan(name="", version=0, steps=())  # enough for a saga that calls for no work; its class may be gone


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """What became of one saga."""

    saga_id: UUID
    label: str  # how messages name it
    changed: bool
    problem: str = ""  # why it could not be rebuilt; nothing of it was changed then


def rebuild(connection: Connection, ids: Sequence[UUID] | None = None) -> Iterator[Rebuilt]:
    """Make the rows of sagas what their logs say, one transaction for each.

    Args:
        connection: autocommit.
        ids: only these sagas; None: every saga that has a log.

    Yields:
        One `Rebuilt` for each saga.
    """
    last = FIRST
    missing = set(ids or ())
    while True:
        parameters = {"after": last, "limit": BATCH, "ids": None if ids is None else list(ids)}
        found = run(connection, query(PACKAGE, "rebuild_logs"), parameters).fetchall()
        if not found:
            for saga_id in sorted(missing):
                yield Rebuilt(saga_id=saga_id, label=f"saga {saga_id}", changed=False, problem="it has no log")
            return
        for (saga_id,) in found:
            missing.discard(saga_id)
            yield _rebuild(connection, saga_id)
        last = found[-1][0]


def _rebuild(connection: Connection, saga_id: UUID) -> Rebuilt:
    label = f"saga {saga_id}"
    try:
        with connection.transaction():
            run(connection, query(PACKAGE, "rebuild_lock"), {"id": saga_id})  # before the log is read
            entries = [entry_of(*line[1:]) for line in run(connection, query(PACKAGE, "logs"), {"ids": [saga_id]})]
            state, head = fold(entries), _head(entries)
            label = f"saga {head.name} {saga_id} (key {head.key!r})"
            plan = NO_STEPS if machine.at_rest(state) else registry.get(head.name, head.version).plan
            if _agrees(connection, saga_id, state, plan):
                return Rebuilt(saga_id=saga_id, label=label, changed=False)
            begun = None if machine.at_rest(state) else _came_to(connection, saga_id, plan, entries)
            _write(connection, saga_id, head, plan, state, Rebuild(first_begun_at=begun))
            return Rebuilt(saga_id=saga_id, label=label, changed=True)
    except (
        ValueError,
        KeyError,
        msgspec.MsgspecError,
        UnknownSaga,
        psycopg.IntegrityError,
        psycopg.DataError,
    ) as problem:
        return Rebuilt(saga_id=saga_id, label=label, changed=False, problem=str(problem))


def _head(entries: Sequence[Entry]) -> Head:
    raw = entries[0].data.saga
    if not isinstance(raw, Raw):
        raise ValueError("entry 0 does not say what the saga is")
    return read_head(raw)


def _agrees(connection: Connection, saga_id: UUID, state: State, plan: Plan) -> bool:
    """Whether the rows are there and say what the log says."""
    with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
        parameters = {"after": FIRST, "limit": 1, "ids": [saga_id]}
        row = cursor.execute(query(PACKAGE, "verify"), parameters).fetchone()
    try:
        if row is None or state_of(row) != state:
            return False
    except (ValueError, msgspec.MsgspecError):  # it cannot even be read
        return False
    wanted = sorted((each.step, each.direction.value) for each in machine.rows(plan, state))
    return wanted == sorted(zip(row["row_steps"] or (), row["row_directions"] or (), strict=True))


def _came_to(connection: Connection, saga_id: UUID, plan: Plan, entries: Sequence[Entry]) -> float | None:
    """When the saga came to the oldest work that it calls for, in epoch seconds: none of that was begun before."""
    state, since = State(Status.RUNNING, -1), dict[Work, float]()
    times = run(connection, query(PACKAGE, "rebuild_times"), {"id": saga_id})
    for entry, (at,) in zip(entries, times, strict=True):
        state = evolve(state, entry)
        since = {work: since.get(work, at) for work in machine.frontier(plan, state)}
    return min(since.values(), default=None)


def _write(connection: Connection, saga_id: UUID, head: Head, plan: Plan, state: State, event: Rebuild) -> None:
    decision = machine.decide(plan, state, event)
    for entry in decision.entries:
        run(
            connection, query(PACKAGE, "rebuild_entries"),
            {
                "saga_id": saga_id, "seq": entry.seq, "kind": entry.kind.value, "step": entry.step,
                "attempt": entry.attempt, "data": msgspec.json.encode(entry.data).decode(),
            },
        )  # fmt: skip
    run(connection, query(PACKAGE, "rebuild_saga"), _saga(saga_id, head, decision.state))
    run(connection, query(PACKAGE, "rebuild_clear"), {"id": saga_id})
    for row in machine.rows(plan, decision.state):
        run(
            connection, query(PACKAGE, "rebuild_row"),
            {
                "saga_id": saga_id, "step": row.step, "direction": row.direction.value, "queue": row.queue,
                "delay": float(row.delay), "failures": row.failures, "first_begun": row.first_begun_at,
                "priority": row.priority,
            },
        )  # fmt: skip


def _saga(saga_id: UUID, head: Head, state: State) -> dict[str, Any]:
    return {
        "id": saga_id, "name": head.name, "version": head.version, "key": head.key, "run": head.run,
        "status": state.status.value, "seq": state.seq,
        "input_hash": head.root or head.hash or codec.fingerprint(bytes(head.input)),
        "steps": msgspec.json.encode(state.steps).decode(), "cancel_requested": state.cancel_requested,
        "parked_from": state.parked_from and state.parked_from.value, "error": state.error,
        "subject_type": head.subject_type, "subject_id": head.subject_id,
        "parent": head.parent, "parent_step": head.parent_step or None,
        "paused": state.paused, "failing": state.failing, "deadline": state.deadline, "definition": head.definition,
        "priority": head.priority, "ordering_key": head.ordering_key,
        "headers": msgspec.json.encode(head.headers).decode(), "finished": machine.finished(state),
    }  # fmt: skip
