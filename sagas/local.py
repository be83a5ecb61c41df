"""Local steps: the user's writes, the log entry, the saga row and the outbox row commit together.

Several local steps may share a transaction, each in its savepoint. The outbox rows are locked first and
stay locked, so nobody can take a row over while its body runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from sagas.events import Answer, Failed, Succeeded
from sagas.points import Point, reached
from sagas.ports import LocalTransaction, Store
from sagas.recorder import Happened, Recorder, labels
from sagas.store import rows
from sagas.store.rows import Delivery
from sagas.takeover import Misplaced

log = logging.getLogger("sagas.worker")

Perform = Callable[[Delivery, object], Answer | Misplaced | None]
TRANSIENT = ("40001", "40P01", "55P03")  # serialization failure, deadlock, lock not available


class _Alone(Exception):
    """This group cannot share a transaction; nothing of it was committed. Run its steps one by one."""


class _RolledBack(Exception):
    """Carries what a body came to through the end of its savepoint, which is rolled back."""

    def __init__(self, outcome: Answer | Misplaced | None) -> None:
        self.outcome = outcome


@dataclass(slots=True)
class LocalRunner:
    """Runs local steps of one store."""

    store: Store
    recorder: Recorder
    perform: Perform

    def run(self, group: Sequence[Delivery]) -> list[Delivery]:
        """Run a group in one transaction, or each in its own where sharing fails; returns what to go on with."""
        if len(group) > 1:
            try:
                return self._transaction(group, shared=True)
            except _Alone as reason:
                log.info("%d local steps run one by one: %s", len(group), reason)
        continued: list[Delivery] = []
        for delivery in group:
            continued += self._transaction([delivery], shared=False)
        return continued

    def _transaction(self, group: Sequence[Delivery], *, shared: bool) -> list[Delivery]:
        committing = False
        try:
            with self.store.local() as transaction:
                happened = self._bodies(transaction, self._lock(transaction, group), shared=shared)
                continued = self.recorder.record_inside(transaction.connection, happened)
                committing = True
            reached(Point.AFTER_RECORD, labels(happened))
            return continued
        except _Alone:
            raise
        except Exception as problem:
            if committing:
                # Committed or not, the body must not run again here: the log knows, and so does the lease's end.
                log.exception("the commit of local steps failed; whether it happened shows when the leases end")
                return []
            if shared:
                raise _Alone(str(problem)) from problem
            log.exception("%s: rolled back; another worker takes over when the lease ends", group[0].label)
            return []

    def _lock(self, transaction: LocalTransaction, group: Sequence[Delivery]) -> list[Delivery]:
        held = [delivery.held for delivery in group]
        mine = rows.lock(transaction.connection, held)
        states = rows.load(transaction.connection, held)
        locked = [delivery for delivery in group if delivery.id in mine and delivery.id in states]
        for delivery in locked:
            delivery.state = states[delivery.id]
        return locked

    def _bodies(
        self, transaction: LocalTransaction, group: Sequence[Delivery], *, shared: bool
    ) -> list[Happened]:  # fmt: skip
        happened: list[Happened] = []
        for delivery in group:
            hooks = transaction.hooks()
            outcome = self._body(transaction, delivery, shared=shared)
            if shared and transaction.hooks() != hooks:
                raise _Alone(f"{delivery.label} registers commit hooks of its own")
            if outcome is not None:
                happened.append((delivery, outcome))
        return happened

    def _body(self, transaction: LocalTransaction, delivery: Delivery, *, shared: bool) -> Answer | Misplaced | None:
        outcome: Answer | Misplaced | None = None
        try:
            with transaction.savepoint():
                outcome = self.perform(delivery, transaction.session)
                if not isinstance(outcome, Succeeded):
                    raise _RolledBack(outcome)
        except _RolledBack as rolled_back:
            outcome = rolled_back.outcome
        except Exception as problem:  # the savepoint could not be released: the body's transaction is broken
            if shared:
                raise _Alone(str(problem)) from problem
            outcome = _failed(delivery, problem)
        if shared and isinstance(outcome, Failed) and (_is_transient(outcome) or transaction.connection.broken):
            raise _Alone(f"{delivery.label}: {outcome.error.message}")
        return outcome


def _failed(delivery: Delivery, problem: Exception) -> Failed:
    from sagas.failure import error_text

    assert delivery.attempt is not None
    return Failed(delivery.attempt, error_text(problem))


def _is_transient(failed: Failed) -> bool:
    kinds = tuple(psycopg.errors.lookup(state).__name__ for state in TRANSIENT)
    return any(kind in failed.error.traceback for kind in kinds)
