"""The session or connection of a test as a store of sagas, also inside an external transaction that never commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection

from sagas import ports
from sagas.errors import ConfigurationError
from sagas.settings import Settings
from sagas.testing.borrowed import CALL, lend, sheltered
from sagas_sqlalchemy import ddl
from sagas_sqlalchemy.callers import ConnectionCaller, SessionCaller
from sagas_sqlalchemy.local import SqlAlchemyLocal
from sagas_sqlalchemy.sources import Source
from sagas_sqlalchemy.store import PATH


class BorrowedSqlAlchemyStore:
    """What a test gave as `using=`. Everything is written in the transaction that is open there.

    Args:
        caller: the session or connection.
    """

    def __init__(self, caller: ConnectionCaller | SessionCaller) -> None:
        self._caller = caller

    @property
    def name(self) -> str:
        return self._caller.name

    @property
    def settings(self) -> Settings:
        return self._caller.settings

    def connect(self) -> psycopg.Connection[Any]:
        connection = lend(self._raw())
        runtime = self._caller.runtime
        if runtime is not None and runtime.schema is not None:
            psycopg.Cursor(connection).execute(PATH, [ddl.quoted(runtime.schema)])
        return connection

    @contextmanager
    def local(self) -> Iterator[SqlAlchemyLocal]:
        with SqlAlchemyLocal.nested(self._caller.connection(), self.source) as transaction:
            yield transaction

    def between(self) -> None:
        """The connection is the test's: whether it is stale is not ours to say."""

    def after_body(self) -> None:
        """A scoped session may well be the one of the test."""

    @contextmanager
    def shelter(self) -> Iterator[None]:
        with sheltered(self._raw()):
            yield

    def _connection(self) -> Connection:
        return self._caller.connection()

    def _raw(self) -> psycopg.Connection[Any]:
        raw = self._connection().connection.driver_connection
        if not isinstance(raw, psycopg.Connection):
            raise ConfigurationError(
                f"{CALL}(): {self.name} is used through {type(raw).__module__.partition('.')[0]}, and workers need "
                f"psycopg 3; let the tests' engine be create_engine('postgresql+psycopg://...')"
            )
        return raw

    @property
    def source(self) -> Source:
        """How local steps make their sessions."""
        runtime = self._caller.runtime
        if runtime is None:
            raise ConfigurationError(
                f"{CALL}(): there is no Sagas(...) runtime for {self.name}, which says how local steps make their "
                f"sessions; import the module that makes it, or make one for the tests' engine"
            )
        return runtime.source


def borrow(using: Any) -> BorrowedSqlAlchemyStore:
    """The store of a `Session` or `Connection`; what the session has not flushed yet, it flushes.

    Raises:
        ConfigurationError: its driver is not psycopg 3, or there is no runtime for its database.
    """
    caller = ports.caller(using, call=CALL)
    assert isinstance(caller, ConnectionCaller | SessionCaller)
    store = BorrowedSqlAlchemyStore(caller)
    store.connect()
    assert store.source  # now, and not in the middle of a step
    if caller.session is not None:
        caller.session.flush()  # a commit would, and workers see nothing before
    return store
