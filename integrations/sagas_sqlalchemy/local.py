"""A transaction for local steps, on a connection of psycopg 3: each body has a session of its own, in a savepoint.

The session cannot end the transaction (`kept.py`), nor can what goes past it (`keeping.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Transaction
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sagas.errors import SagaError
from sagas_sqlalchemy.held import Held, hold_back
from sagas_sqlalchemy.keeping import Guard, guarded
from sagas_sqlalchemy.kept import kept_session
from sagas_sqlalchemy.sources import Source

log = logging.getLogger("sagas.worker")

SWALLOWED: Final = (
    "the step returned although a statement of its own had failed, so its writes cannot be committed; "
    "let the error out of the step, or wrap the statement in session.begin_nested()"
)
Hook = Callable[[Session], object]


class SqlAlchemyLocal:
    """An open transaction; local steps run in savepoints of it."""

    def __init__(self, connection: Connection, source: Source) -> None:
        self._connection, self._source, self._guard = connection, source, Guard()
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        self._raw = raw  # SQLAlchemy lets go of it when it breaks
        self._held = Held(raw)
        self._session: Session | None = None  # of the body that runs
        self._hooks: list[tuple[Hook, Session]] = []  # of bodies: for after the real commit

    @classmethod
    @contextmanager
    def begin(cls, connection: Connection, source: Source) -> Iterator[SqlAlchemyLocal]:
        """Open one on a fresh connection; commit when the block ends, roll back when it raises."""
        local = cls(connection, source)
        try:
            with local._opened(connection.begin()):
                yield local
        except (psycopg.errors.ReadOnlySqlTransaction, DBAPIError) as error:
            if isinstance(getattr(error, "orig", error), psycopg.errors.ReadOnlySqlTransaction):
                connection.invalidate()  # a failover: the session lives on and refuses every write
            raise
        finally:
            if not local._raw.closed and local._raw.info.transaction_status != TransactionStatus.IDLE:
                local._raw.rollback()  # SQLAlchemy takes it for ended, and would give it to the next as it is
        if local._guard.has_set_for_good:
            connection.invalidate()  # or it would hold for the sagas that come next

    @classmethod
    @contextmanager
    def nested(cls, connection: Connection, source: Source) -> Iterator[SqlAlchemyLocal]:
        """Open one as a savepoint of the transaction that is open on a connection, for tests that never commit."""
        local = cls(connection, source)
        with local._opened(connection.begin_nested()):
            yield local
        local.run_hooks()

    @contextmanager
    def _opened(self, transaction: Transaction) -> Iterator[None]:
        hold_back(self._connection.dialect)
        with guarded(self._connection, self._raw, self._guard):
            try:
                yield
                self._guard.open = True
                transaction.commit()
            finally:
                self._guard.open = True
                self._held.drop()  # the end of the transaction is theirs as well
                if transaction.is_active:
                    transaction.rollback()

    @property
    def connection(self) -> psycopg.Connection[Any]:
        return self._raw

    @property
    def session(self) -> Session | None:
        return self._session

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        guard = self._guard
        session = kept_session(self._source, guard, self._connection, join_transaction_mode="create_savepoint")
        theirs = list(_listeners(session))  # of the application's class
        mine = session.connection().get_nested_transaction()
        assert mine is not None
        self._session, guard.savepoint, guard.offence = session, guard.opened, None
        name = guard.savepoint
        try:
            yield
            if guard.offence is not None:
                raise guard.offence  # also when the body swallowed it
            if self._raw.info.transaction_status == TransactionStatus.INERROR:
                raise SagaError(SWALLOWED)  # now: a failed RELEASE would leave SQLAlchemy without its savepoint
            hooks = _taken(session, theirs)
            with self._ours():
                session.commit()
            self._hooks += [(hook, session) for hook in hooks]
        except BaseException:
            ended = not mine.is_active  # by a flush that failed; what was written since then is there
            try:
                with self._ours():
                    session.rollback()
            finally:
                if ended and not self._raw.closed:
                    self._raw.execute(f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")
            raise
        finally:
            self._session = None
            with self._ours():
                session.close()  # the next step reads what is stored, and no object of another's

    @contextmanager
    def _ours(self) -> Iterator[None]:
        guard = self._guard
        guard.open, guard.savepoint = True, None
        try:
            yield
        finally:
            guard.open = False

    @contextmanager
    def joined(self) -> Iterator[None]:
        self._guard.held = self._held
        try:
            with self.savepoint():
                yield
        finally:
            self._guard.held = None

    def release(self) -> None:
        """What is held back is sent with whatever is sent next."""

    def settle(self) -> None:
        """Send what the session of a body only holds yet."""
        if self._session is not None:
            self._session.flush()

    def hooks(self) -> int:
        return len(self._hooks) + self._guard.settings

    def run_hooks(self) -> None:
        """Call what bodies have registered for after the commit; their sessions are of no more use."""
        for hook, session in self._hooks:
            try:
                hook(session)
            except Exception:
                log.exception("an after_commit listener of a local step failed; the step stays committed")


def _listeners(session: Session) -> Any:
    return session.dispatch.after_commit.listeners


def _taken(session: Session, theirs: list[Any]) -> list[Hook]:
    """`after_commit` listeners that a body added: they would be called at the end of its savepoint already."""
    added = [each for each in _listeners(session) if each not in theirs]
    for each in added:
        _listeners(session).remove(each)
    return added
