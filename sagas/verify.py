"""Comparing every saga with its log: the log is the truth, rows are its shadow.

Workers may go on meanwhile: rows and logs are read in one snapshot. Logs come a few entries at a time, since a batch of
sagas may have more of them than fits into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from sagas import machine
from sagas.errors import UnknownSaga
from sagas.events import Entry
from sagas.fold import fold
from sagas.registry import registry
from sagas.states import State
from sagas.store.rows import entry_of, state_of
from sagas_outbox.queries import query, run

PACKAGE = "sagas.store"
BATCH = 500  # sagas in one snapshot
LINES = 50  # of a log at a time
SNAPSHOT = "set transaction isolation level repeatable read, read only"
FIRST = UUID(int=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One saga whose rows do not agree with its log."""

    saga_id: UUID
    name: str
    key: str
    problem: str

    def __str__(self) -> str:
        return f"saga {self.name} {self.saga_id} (key {self.key!r}): {self.problem}"


def verify(connection: psycopg.Connection[Any], ids: Sequence[UUID] | None = None) -> Iterator[Finding | int]:
    """Fold every log and compare it with the saga row and the outbox rows.

    Args:
        connection: autocommit, or in a transaction that alone writes to these sagas; may be a replica.
        ids: only these sagas; None: all.

    Yields:
        A `Finding` for each difference, and after each batch the number of sagas looked at so far.
    """
    last, seen = FIRST, 0
    while True:
        sagas, findings = _batch(connection, last, ids)
        if not sagas:
            yield from _orphans(connection, ids)
            yield from _locks_left(connection, ids)
            return
        yield from findings
        last, seen = sagas[-1], seen + len(sagas)
        yield seen


def _batch(
    connection: psycopg.Connection[Any], after: UUID, ids: Sequence[UUID] | None
) -> tuple[list[UUID], list[Finding]]:
    """The next sagas, and what is wrong with them."""
    parameters = {"after": after, "limit": BATCH, "ids": None if ids is None else list(ids)}
    with snapshot(connection):
        sagas = run(connection, query(PACKAGE, "verify"), parameters, row_factory=dict_row).fetchall()
        findings = [each for saga, log in with_logs(connection, sagas) for each in _compare(saga, log)]
        return [saga["id"] for saga in sagas], findings


@contextmanager
def snapshot(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """A transaction in which all that is read is of one moment, unless it is a part of another one."""
    alone = connection.info.transaction_status is TransactionStatus.IDLE
    with connection.transaction():
        if alone:
            connection.execute(SNAPSHOT)
        yield


def with_logs(
    connection: psycopg.Connection[Any], sagas: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], list[tuple[Any, ...]]]]:
    """Each saga and the lines of its log, one log in memory at a time.

    Args:
        connection: in a transaction.
        sagas: in order of their ids.
    """
    with psycopg.ServerCursor(connection, "sagas_logs", row_factory=tuple_row) as cursor:
        cursor.itersize = LINES
        lines = cursor.execute(query(PACKAGE, "logs"), {"ids": [saga["id"] for saga in sagas]}) if sagas else ()
        yield from _beside(sagas, lines)


def _beside(
    sagas: Sequence[dict[str, Any]], lines: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[dict[str, Any], list[tuple[Any, ...]]]]:
    """Each saga and the lines of its log; both come in order of ids."""
    logs = groupby(lines, key=itemgetter(0))
    saga_id, log = next(logs, (None, iter(())))
    for saga in sagas:
        if saga["id"] != saga_id:
            yield saga, []
            continue
        yield saga, [line[1:] for line in log]
        saga_id, log = next(logs, (None, iter(())))


def _orphans(connection: psycopg.Connection[Any], ids: Sequence[UUID] | None) -> Iterator[Finding]:
    for saga_id, name, key in run(connection, query(PACKAGE, "orphans"), {"ids": None if ids is None else list(ids)}):
        yield Finding(
            saga_id=saga_id, name=str(name), key=str(key), problem="has a log but no row; run `sagas rebuild` on it"
        )  # fmt: skip


def _locks_left(connection: psycopg.Connection[Any], ids: Sequence[UUID] | None) -> Iterator[Finding]:
    found = run(connection, query(PACKAGE, "lock_left"), {"ids": None if ids is None else list(ids)})
    for subject, saga_id, name, key, gone in found:
        what = "is gone" if gone else "has ended"
        problem = f"it {what} and semantic lock {subject!r} is still in its name; `sagas unlock` frees it"
        yield Finding(saga_id=saga_id, name=str(name), key=str(key), problem=problem)


def _compare(saga: dict[str, Any], lines: list[tuple[Any, ...]]) -> Iterator[Finding]:
    def finding(problem: str) -> Finding:
        return Finding(saga_id=saga["id"], name=saga["name"], key=saga["key"], problem=problem)

    try:
        entries: list[Entry] = [entry_of(*line) for line in lines]
        folded, stored = fold(entries), state_of(saga)
    except (ValueError, msgspec.MsgspecError) as problem:
        yield finding(f"cannot be read: {problem}")
        return
    for field in State.__struct_fields__:
        if getattr(folded, field) != getattr(stored, field):
            yield finding(f"{field} is {getattr(stored, field)!r}, its log says {getattr(folded, field)!r}")
    yield from map(finding, _rows(saga, folded))


def _rows(saga: dict[str, Any], state: State) -> Iterator[str]:
    """A saga that is neither finished nor parked has work in the outbox, and any other has none."""
    wanted: list[tuple[str, str]] = []
    if not machine.at_rest(state):  # else its class may be gone from the code
        try:
            plan = registry.get(saga["name"], saga["version"]).plan
        except UnknownSaga as problem:
            yield str(problem)
            return
        wanted = sorted((row.step, row.direction.value) for row in machine.rows(plan, state))
    found = sorted(zip(saga["row_steps"] or (), saga["row_directions"] or (), strict=True))
    if wanted != found:
        yield f"the outbox holds {found}, its state calls for {wanted}; run `sagas rebuild` on it"
