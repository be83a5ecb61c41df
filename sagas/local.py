"""Local steps: the user's writes, the log entry, the saga row and the outbox row commit together.

Several local steps may share a transaction, each in its savepoint. The outbox rows are locked first and
stay locked, so nobody can take a row over while its body runs.

The price of sharing: what a body locks stays locked until the last one is done. Steps that update the same few
rows deadlock that way, so a step that was in a deadlock runs alone for a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from sagas import locking
from sagas.alarms import committed
from sagas.events import Answer, Blocked, Failed, Succeeded
from sagas.points import Point, reached
from sagas.ports import LocalTransaction, Store
from sagas.recorder import Happened, Recorder, labels
from sagas.store import rows
from sagas.store.rows import Delivery, Recording
from sagas.takeover import Misplaced

log = logging.getLogger("sagas.worker")

Perform = Callable[[Delivery, LocalTransaction], Answer | Misplaced | None]
TRANSIENT = ("40001", "40P01", "55P03")  # serialization failure, deadlock, lock not available
CONSTRAINT, ROLLED_BACK = "23", "40"  # classes of errors: at COMMIT a deferred constraint; a serialization failure
UNSURE = "40003"  # the one of them that does not say whether it happened
PAUSE = 0.02  # seconds between tries, growing with each
TRIES = 5  # of a step that is alone in its transaction, while the commit is refused
APART = 60.0  # seconds for which a step that met such an error in a group runs alone


class _Alone(Exception):
    """This group cannot share a transaction; nothing of it was committed. Run its steps one by one.

    Args:
        reason: why.
        contended: the step that got into the way of another transaction.
    """

    def __init__(self, reason: str, contended: Delivery | None = None) -> None:
        super().__init__(reason)
        self.contended = contended


class _Refused(Exception):
    """Postgres refused the commit of a single step: it did not happen, and may be run again at once."""


class _RolledBack(Exception):
    """Carries what a body came to through the end of its savepoint, which is rolled back."""

    def __init__(self, outcome: Answer | Misplaced | None) -> None:
        self.outcome = outcome


@dataclass(slots=True)
class Apart:
    """The steps of one process that are not to share a transaction for now."""

    until: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def keep(self, delivery: Delivery) -> None:
        """From now on, and for `APART` seconds, run this step alone."""
        self.until[_subject(delivery)] = time.monotonic() + APART

    def holds(self, delivery: Delivery) -> bool:
        """Whether this step is to run alone."""
        return time.monotonic() < self.until.get(_subject(delivery), 0.0)


@dataclass(slots=True)
class LocalRunner:
    """Runs local steps of one store."""

    store: Store
    recorder: Recorder
    perform: Perform
    apart: Apart = field(default_factory=Apart)
    checked: bool = False  # deferred constraints are looked at when a body has ended

    def run(self, group: Sequence[Delivery]) -> list[Delivery]:
        """Run a group in one transaction, or each in its own where sharing fails; returns what to go on with."""
        together: list[Delivery] = []
        alone: list[Delivery] = []
        for delivery in group:
            (alone if self.apart.holds(delivery) else together).append(delivery)
        continued: list[Delivery] = []
        if len(together) > 1:
            try:
                continued += self._transaction(together, shared=True)
                together = []
            except _Alone as reason:
                log.info("%d local steps run one by one: %s", len(together), reason)
                if reason.contended is not None:
                    self.apart.keep(reason.contended)
        for delivery in together + alone:
            continued += self._single(delivery)
        return continued

    def _single(self, delivery: Delivery) -> list[Delivery]:
        """One step in a transaction of its own. What its commit would be refused for is looked at in good time, and is
        an error of its body then; what others were in the way of may go well the next time."""
        for attempt in range(TRIES):
            try:
                self.checked = attempt > 0
                return self._transaction([delivery], shared=False)
            except _Refused as refused:
                time.sleep(PAUSE * attempt)
                log.info("%s: its commit was refused, it is run again: %s", delivery.label, refused)
        log.error("%s: its commit was refused again and again; another worker takes over", delivery.label)
        return []

    def _transaction(self, group: Sequence[Delivery], *, shared: bool) -> list[Delivery]:
        committing = False
        written: list[Recording] = []
        try:
            with self.store.local() as transaction:
                happened = self._bodies(transaction, self._lock(transaction, group), shared=shared)
                with self._prepared(transaction.connection) as connection:
                    continued = self.recorder.record_inside(connection, happened, written)
                committing = True
            committed(written, self.recorder.tally)
            reached(Point.AFTER_RECORD, labels(happened))
            return continued
        except _Alone:
            raise
        except Exception as problem:
            rolled_back = _rolled_back(problem, (CONSTRAINT, ROLLED_BACK) if committing else (ROLLED_BACK,))
            if committing and not rolled_back:
                # Committed or not, the body must not run again here: the log knows, and so does the lease's end.
                log.exception("the commit of local steps failed; whether it happened shows when the leases end")
                return []
            if shared:
                raise _Alone(str(problem)) from problem
            if rolled_back:
                raise _Refused(str(problem)) from problem
            log.exception("%s: rolled back; another worker takes over when the lease ends", group[0].label)
            return []

    @staticmethod
    def _savepoint(transaction: LocalTransaction, *, shared: bool) -> AbstractContextManager[None]:
        joined = getattr(transaction, "joined", None) if shared else None  # of `Joining`
        return transaction.savepoint() if joined is None else joined()

    @contextmanager
    def _prepared(self, connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
        """Our own statements are long and always the same; whether the application's are prepared is its own affair."""
        before = connection.prepare_threshold
        connection.prepare_threshold = 1 if self.store.settings.prepared else None
        try:
            yield connection
        finally:
            connection.prepare_threshold = before

    def _lock(self, transaction: LocalTransaction, group: Sequence[Delivery]) -> list[Delivery]:
        held = [delivery.held for delivery in group]
        with self._prepared(transaction.connection) as connection:
            mine = rows.lock(connection, held)
            states = rows.load(connection, held, holder=self.recorder.holder)
        locked = [delivery for delivery in group if delivery.id in mine and delivery.held in states]
        for delivery in locked:
            delivery.state = states[delivery.held]
        return locked

    def _bodies(
        self, transaction: LocalTransaction, group: Sequence[Delivery], *, shared: bool
    ) -> list[Happened]:  # fmt: skip
        happened: list[Happened] = []
        for delivery in group:
            hooks = transaction.hooks()
            outcome = self._body(transaction, delivery, shared=shared)
            if shared and transaction.hooks() != hooks:
                raise _Alone(
                    f"{delivery.label} registers commit hooks of its own, or sets something in the session",
                    contended=delivery,
                )
            if outcome is not None:
                happened.append((delivery, outcome))
        if shared and (release := getattr(transaction, "release", None)):
            release()
        return happened

    def _body(self, transaction: LocalTransaction, delivery: Delivery, *, shared: bool) -> Answer | Misplaced | None:
        outcome: Answer | Misplaced | None = None
        try:
            with self._savepoint(transaction, shared=shared):
                outcome = self.perform(delivery, transaction)
                if not isinstance(outcome, Succeeded):
                    raise _RolledBack(outcome)
                if self.checked:
                    if settle := getattr(transaction, "settle", None):  # of `Joining`
                        settle()
                    transaction.connection.execute("set constraints all immediate")
        except _RolledBack as rolled_back:
            outcome = rolled_back.outcome
        except Exception as problem:  # the savepoint could not be released: the body's transaction is broken
            if shared:
                raise _Alone(str(problem)) from problem
            assert delivery.attempt is not None
            outcome = Failed(delivery.attempt, delivery.reader.error_text(problem))
        if isinstance(outcome, Blocked) and outcome.wait:
            locking.wait(transaction.connection, delivery, outcome.attempt.step, outcome.subject)
        if shared and isinstance(outcome, Failed):
            if transaction.connection.broken:
                raise _Alone(f"{delivery.label}: {outcome.error.message}")
            if _is_transient(outcome):
                raise _Alone(f"{delivery.label}: {outcome.error.message}", contended=delivery)
        return outcome


def _rolled_back(problem: BaseException | None, classes: tuple[str, ...]) -> bool:
    """Whether Postgres says of a transaction that it did not happen, for one of these reasons; the error may be wrapped
    in one of the application's library."""
    while problem is not None:
        state = getattr(problem, "sqlstate", None)
        if state is not None:
            return state[:2] in classes and state != UNSURE
        problem = problem.__cause__
    return False


def _is_transient(failed: Failed) -> bool:
    kinds = tuple(psycopg.errors.lookup(state).__name__ for state in TRANSIENT)
    return any(kind in failed.error.traceback for kind in kinds)


def _subject(delivery: Delivery) -> tuple[str, str, str]:
    assert delivery.attempt is not None
    return delivery.name, delivery.attempt.step, delivery.attempt.direction.value
