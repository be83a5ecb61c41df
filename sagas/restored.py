"""After the database has gone back in time: a failover to a replica that lagged, or a restore from a backup.

Commits that were made since then have never happened here, while what steps did outside has. Two things follow.

- Ids of outbox rows are given out again. A message that the broker still holds, or a worker that lived through it, may
  name a row of the lost history by an id and a token that now fit another one. So every row gets a new id, above all
  that any history can have used.
- The log does not know of attempts that were begun and recorded in the lost history. So whatever an open saga is still
  to do outside is in doubt: in its turn it is treated like an attempt whose worker died. See `sagas.reconcile` for
  finding out from the other side.

Best before any relay or worker runs on the database. Where they do already, since it failed over by itself, it is as
good for whatever they have not come to; what they are at work on is taken over like that of a frozen worker. Doing it
twice does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg
from psycopg.rows import dict_row

from sagas import machine
from sagas.errors import NotPossible, UnknownSaga
from sagas.events import Doubt, Work
from sagas.registry import registry
from sagas.store.rows import Connection, state_of
from sagas_outbox.queries import query, run

PACKAGE: Final = "sagas.store"
BATCH: Final = 500
FIRST: Final = UUID(int=0)
TRIES: Final = 5  # at a saga that workers move on meanwhile
MOMENT: Final = 500  # milliseconds that callers may wait behind us, and that they have in between
PATIENCE: Final = 60.0  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Renewed:
    """How much was given new ids."""

    rows: int  # of the outbox
    messages: int  # that were not sent, or are dead


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubted:
    """What is in doubt about one saga."""

    saga_id: UUID
    label: str  # how messages name it
    work: tuple[str, ...] = ()  # step and direction of each
    problem: str = ""  # why it could not be said; nothing was changed then


def renew(connection: Connection) -> Renewed:
    """Give every outbox row and every message that is not sent a new id, in one transaction.

    It needs the tables for itself. Whoever starts sagas waits behind it, so it asks for a moment only, again and again.

    Args:
        connection: autocommit; of a role that may change the sequences.

    Raises:
        NotPossible: a transaction that writes to them stayed open all the time.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with connection.transaction():
                connection.execute(f"set local lock_timeout = '{MOMENT}ms'")
                run(connection, query(PACKAGE, "restored_lock"), {})
                row = run(connection, query(PACKAGE, "restored_renew"), {}).fetchone()
                assert row is not None
                return Renewed(rows=row[0], messages=row[1])
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() > end:
                raise NotPossible(
                    f"nothing was changed: for {PATIENCE:g} s some transaction that has written to sagas_outbox or "
                    f"sagas_message was open; find it in pg_stat_activity, or by `sagas doctor`, end it, and try again"
                ) from None
            time.sleep(MOMENT / 1000)


def until(connection: Connection, *, since: datetime | None = None) -> float | None:
    """The last moment from before the database went back in time, in epoch seconds: nothing that was lost is older.

    Args:
        connection: autocommit.
        since: that moment, or an earlier one; None: as far as the database knows, which is too late where callers have
            written to it since.

    Returns:
        Never later than the last write; None if there is none.
    """
    (found,) = run(connection, query(PACKAGE, "restored_until"), {"since": since}).fetchone() or (None,)
    return found


def doubt(connection: Connection, *, until: float | None, actor: str, reason: str) -> Iterator[Doubted]:
    """Say in the log of every open saga that the database has gone back in time, and what is in doubt by that.

    Args:
        connection: autocommit.
        until: whatever was lost was begun then or later; the age of its idempotency key is counted from then.
        actor: who says so.
        reason: why; stored in the log.

    Yields:
        One `Doubted` for each saga.
    """
    last = FIRST
    while found := _open(connection, after=last):
        for row in found:
            yield _doubt(connection, row, Doubt(first_begun_at=until, actor=actor, reason=reason))
        last = found[-1]["id"]


def doubt_work(connection: Connection, saga_id: UUID, work: Work, *, actor: str, reason: str) -> Doubted:
    """Say that this work of one saga may have been done. See `doubt`."""
    found = _open(connection, ids=[saga_id])
    if not found:
        return Doubted(saga_id=saga_id, label=f"saga {saga_id}", problem="it has ended")
    return _doubt(connection, found[0], Doubt((work,), actor=actor, reason=reason))


def _open(connection: Connection, *, after: UUID = FIRST, ids: Sequence[UUID] | None = None) -> list[dict[str, Any]]:
    parameters = {"after": after, "limit": BATCH, "ids": None if ids is None else list(ids)}
    return run(connection, query(PACKAGE, "doubt_open"), parameters, row_factory=dict_row).fetchall()


def _doubt(connection: Connection, row: dict[str, Any], event: Doubt) -> Doubted:
    saga_id, label = row["id"], f"saga {row['name']} {row['id']} (key {row['key']!r})"
    try:
        plan = registry.get(row["name"], row["version"]).plan
        for _ in range(TRIES):
            before = state_of(row)
            decision = machine.decide(plan, before, event)
            parameters = {
                "id": saga_id, "seq": before.seq, "new_seq": decision.state.seq,
                "steps": msgspec.json.encode(decision.state.steps).decode(),
                "seqs": [entry.seq for entry in decision.entries],
                "kinds": [entry.kind.value for entry in decision.entries],
                "steps_of": [entry.step for entry in decision.entries],
                "data": [msgspec.json.encode(entry.data).decode() for entry in decision.entries],
            }  # fmt: skip
            if run(connection, query(PACKAGE, "doubt_saga"), parameters).fetchall():
                work = [f"{entry.step}:{entry.data.direction}" for entry in decision.entries if entry.step]
                return Doubted(saga_id=saga_id, label=label, work=tuple(work))
            found = _open(connection, ids=[saga_id])
            if not found:
                return Doubted(saga_id=saga_id, label=label, problem="it has ended meanwhile")
            row = found[0]
    except (ValueError, UnknownSaga, msgspec.MsgspecError) as problem:
        return Doubted(saga_id=saga_id, label=label, problem=str(problem))
    return Doubted(saga_id=saga_id, label=label, problem="workers move it on all the time; stop them first")
