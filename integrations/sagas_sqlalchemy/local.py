"""A transaction for local steps: a SQLAlchemy session that cannot end it, on a connection of psycopg 3.

What goes past the session is seen by its guard (`keeping.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from sagas.errors import SagaError
from sagas_sqlalchemy.held import Held, hold_back
from sagas_sqlalchemy.keeping import GUARD, Guard
from sagas_sqlalchemy.sources import Source

log = logging.getLogger("sagas.worker")

KEPT: Final = ("commit", "rollback", "close", "invalidate")  # of a connection
SWALLOWED: Final = (
    "the step returned although a statement of its own had failed, so its writes cannot be committed; "
    "let the error out of the step, or wrap the statement in session.begin_nested()"
)


class _Kept:
    """Put in front of the application's session class: what ends the transaction is ours alone."""

    _guard: Guard

    def commit(self) -> None:
        self._guard.check("session.commit()")
        super().commit()  # type: ignore[misc]

    def rollback(self) -> None:
        self._guard.check("session.rollback()")
        super().rollback()  # type: ignore[misc]

    def close(self) -> None:
        self._guard.check("session.close()")
        super().close()  # type: ignore[misc]

    def reset(self) -> None:
        self._guard.check("session.reset()")
        super().reset()  # type: ignore[misc]

    def invalidate(self) -> None:
        self._guard.check("session.invalidate()")
        super().invalidate()  # type: ignore[misc]

    def begin(self, nested: bool = False) -> Any:
        if not nested:
            self._guard.check("session.begin()")
        return super().begin(nested)  # type: ignore[misc]


_kept_classes: dict[type[Session], type[Session]] = {}


def _kept(session_class: type[Session]) -> type[Session]:
    if session_class not in _kept_classes:
        _kept_classes[session_class] = _made(session_class)
    return _kept_classes[session_class]


def _made(session_class: type[Session]) -> type[Session]:
    return type(session_class.__name__, (_Kept, session_class), {"__module__": session_class.__module__})


class SqlAlchemyLocal:
    """An open transaction; local steps run in savepoints of its session."""

    def __init__(self, connection: Connection, session: Session, guard: Guard) -> None:
        self._connection, self._session, self._guard = connection, session, guard
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        self._raw = raw  # SQLAlchemy lets go of it when it breaks
        self._held = Held(raw)
        self._hooks: list[Callable[[Session], object]] = []  # of bodies: for after the real commit
        self._dropped: list[object] = []  # kept alive: SQLAlchemy knows listeners by id() and would ignore the next

    @classmethod
    @contextmanager
    def begin(cls, connection: Connection, source: Source) -> Iterator[SqlAlchemyLocal]:
        """Open one on a fresh connection; commit when the block ends, roll back when it raises."""
        connection.begin()
        with cls._open(connection, source, "control_fully") as local:
            yield local
        if local._guard.has_set_for_good:
            connection.invalidate()  # or it would hold for the sagas that come next

    @classmethod
    @contextmanager
    def nested(cls, connection: Connection, source: Source) -> Iterator[SqlAlchemyLocal]:
        """Open one as a savepoint of the transaction that is open on a connection, for tests that never commit."""
        with cls._open(connection, source, "create_savepoint") as local:
            yield local

    @classmethod
    @contextmanager
    def _open(cls, connection: Connection, source: Source, mode: str) -> Iterator[SqlAlchemyLocal]:
        guard = Guard()
        guard.open = True
        hold_back(connection.dialect)
        made = _kept(source.session_class)
        session = made.__new__(made)
        session._guard = guard  # type: ignore[attr-defined]
        session.__init__(bind=connection, join_transaction_mode=mode, **source.options)  # type: ignore[misc]
        local = cls(connection, session, guard)
        unwatch = local._watch()
        try:
            session.connection()
            guard.open = False
            yield local
            guard.open = True
            session.commit()
        finally:
            guard.open = True
            local._held.drop()  # the end of the transaction is theirs as well
            session.close()
            if mode == "control_fully" and connection.in_transaction():
                connection.rollback()
            unwatch()
        local._run_hooks()

    def _watch(self) -> Callable[[], None]:
        """Also those who go to the connection itself. Returns what ends the watch: the connection may live on."""
        guard = self._guard
        watched: list[tuple[object, str, str]] = [(self._connection, "connection", name) for name in KEPT]
        watched += [(self._raw, "driver_connection", name) for name in ("commit", "rollback")]

        def kept(owner: object, what: str, name: str) -> Callable[[], object]:
            call: Callable[[], object] = getattr(owner, name)

            def only_ours() -> object:
                guard.check(f"{what}.{name}()")
                return call()

            return only_ours

        for owner, what, name in watched:  # not by an event: refused there, SQLAlchemy's own state is gone
            setattr(owner, name, kept(owner, what, name))
        setattr(self._connection, GUARD, guard)

        def unwatch() -> None:
            for owner, _, name in watched:
                delattr(owner, name)
            delattr(self._connection, GUARD)

        return unwatch

    @property
    def connection(self) -> psycopg.Connection[Any]:
        if self._session.in_nested_transaction():
            self._session.connection()  # the SAVEPOINT is sent only when the session is used
        return self._raw

    @property
    def session(self) -> Session:
        return self._session

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        before = list(self._listeners())
        nested = self._session.begin_nested()
        self._guard.offence = None
        try:
            yield
            if self._guard.offence is not None:
                raise self._guard.offence  # also when the body swallowed it
            if self._raw.info.transaction_status == TransactionStatus.INERROR:
                raise SagaError(SWALLOWED)  # now: a failed RELEASE would leave SQLAlchemy without its savepoint
            hooks = self._take_hooks(before)
            nested.commit()
            self._hooks += hooks
        except BaseException:
            self._dropped += self._take_hooks(before)
            if nested.is_active or self._session.get_nested_transaction() is not None:
                nested.rollback()
            raise
        finally:
            self._session.expunge_all()  # the next step reads what is stored, and no object of another's

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

    def hooks(self) -> int:
        return len(self._hooks) + self._guard.settings

    def _listeners(self) -> Any:
        return self._session.dispatch.after_commit

    def _take_hooks(self, before: list[Any]) -> list[Callable[[Session], object]]:
        """`after_commit` listeners that a body added: they would be called at the end of its savepoint already."""
        added = [each for each in self._listeners() if each not in before]
        for each in added:
            self._listeners().listeners.remove(each)
        return added

    def _run_hooks(self) -> None:
        for hook in self._hooks:
            try:
                hook(self._session)
            except Exception:
                log.exception("an after_commit listener of a local step failed; the step stays committed")
