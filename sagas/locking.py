"""Taking, showing and giving up what `semantic_lock` declares: rows of `sagas_lock`.

An external step takes its subjects on the guard's connection, fenced by its outbox row: a worker that has lost its
lease takes nothing, and none is taken for a saga that has ended. A local step takes them in its own transaction, so
that they are held only if the step happened. `record.sql` gives them up with the entry that ends the saga.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import psycopg

from sagas import clock, errors
from sagas.locks import check_subject
from sagas.store.rows import Connection, Delivery
from sagas_outbox.queries import query, run

PACKAGE: Final = "sagas.store"
log = logging.getLogger("sagas.operate")


class Blocker(msgspec.Struct, frozen=True):
    """What stands in the way of a step that is to take its subjects."""

    subject: str
    saga_id: UUID | None = None  # who holds it; None: a saga is about to take it, in a transaction that has not ended
    name: str | None = None
    key: str | None = None
    step: str | None = None
    since: float | None = None  # epoch seconds

    @property
    def held(self) -> bool:
        """Whether it is known who holds it."""
        return self.saga_id is not None

    def __str__(self) -> str:
        if self.since is None:
            return f"semantic lock {self.subject!r} is just being taken by another saga"
        since = datetime.fromtimestamp(self.since, UTC).isoformat(" ", "seconds")
        return (
            f"semantic lock {self.subject!r} is held by saga {self.name} {self.saga_id} (key {self.key!r}), "
            f"step {self.step!r}, since {since}"
        )


class _Answer(msgspec.Struct, frozen=True):
    ours: bool  # False: the row has been taken over, or the saga has ended
    blocked: Blocker | None = None


class Holding(NamedTuple):
    """A saga that holds a subject, or waits for it."""

    subject: str
    waiting: bool
    saga_id: UUID
    name: str | None  # None: there is no such saga
    key: str | None
    status: str | None
    step: str
    at: datetime
    ended: bool  # or gone


def take(
    connection: Connection, delivery: Delivery, step: str, subjects: tuple[str, ...], *, fenced: bool
) -> Blocker | None:  # fmt: skip
    """Take all subjects for a saga, or none; returns what stands in the way.

    Args:
        connection: in autocommit, or in the transaction of a local step that has locked its outbox row.
        delivery: the attempt.
        step: its step.
        subjects: what to take.
        fenced: whether to look first whether the row is still held.

    Raises:
        LeaseLost: it is not, or the saga has ended.
    """
    now = clock.now()
    wanted = {
        "saga_id": delivery.saga_id, "id": delivery.id, "token": delivery.token, "step": step, "subjects": subjects,
        "fenced": fenced, "now": now and now.isoformat(),
    }  # fmt: skip
    row = run(connection, query(PACKAGE, "lock_take"), {"request": msgspec.json.encode(wanted).decode()}).fetchone()
    assert row is not None
    answer = msgspec.json.decode(row[0], type=_Answer)
    if not answer.ours:
        raise errors.LeaseLost(
            f"{delivery.label}: another worker has taken over, or the saga has ended, and nothing is locked for it"
        )
    return answer.blocked


def wait(connection: Connection, delivery: Delivery, step: str, subject: str) -> None:
    """Note that a step waits for a subject, so that it is woken, and operators see it."""
    parameters = {"saga_id": delivery.saga_id, "step": step, "subject": subject, "now": clock.now()}
    run(connection, query(PACKAGE, "lock_wait"), parameters)


def release(connection: psycopg.Connection[Any], subject: str, *, actor: str, reason: str) -> Holding:
    """Free a subject that was left behind: its saga has ended, or is gone.

    Args:
        connection: in autocommit.
        subject: it.
        actor: who asks.
        reason: why; logged.

    Raises:
        InvalidInput: no subject.
        NotPossible: nobody holds it, or a saga that has not ended.
    """
    check_subject(subject)
    with connection.transaction():
        found = [Holding(*row) for row in run(connection, query(PACKAGE, "lock_of"), {"subject": subject})]
        if not found:
            raise errors.NotPossible(f"semantic lock {subject!r}: nobody holds it")
        (holding,) = found
        if not holding.ended:
            raise errors.NotPossible(
                f"semantic lock {subject!r} is held by saga {holding.name} {holding.saga_id} (key {holding.key!r}), "
                f"which has not ended; it is freed when that saga ends: retry, cancel, or, if it is parked, abort it"
            )
        run(connection, query(PACKAGE, "lock_free"), {"saga_id": holding.saga_id, "now": clock.now()})
    log.warning("semantic lock %r of saga %s was released by %s: %s", subject, holding.saga_id, actor or "?", reason)
    return holding
