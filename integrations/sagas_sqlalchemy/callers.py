"""Sessions and connections of SQLAlchemy as places where sagas are started, sync and async.

The statement goes through the connection that the session has, or gets, for its transaction. The session itself is
asked for nothing: it neither flushes nor expires, and what it does at its commit is its own business.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final, LiteralString, TypeVar

from sqlalchemy import Connection, Engine, Text, TextClause, bindparam, text
from sqlalchemy.exc import DBAPIError, UnboundExecutionError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sagas.errors import ConfigurationError
from sagas.ports import Caller, Work, drive, not_ready, settings_in_force
from sagas.settings import Settings
from sagas_sqlalchemy import wake
from sagas_sqlalchemy.ddl import quoted
from sagas_sqlalchemy.runtime import Sagas, runtime_of
from sagas_sqlalchemy.subjects import subject_of

T = TypeVar("T")

POSTGRES: Final = "postgresql"
REMEDY: Final = "run sagas_sqlalchemy.alembic.upgrade(op, to=...) in a migration, or metadata.create_all()"

NOT_OPEN: Final = {
    Engine: "a Session or Connection", AsyncEngine: "an AsyncSession or AsyncConnection",
    sessionmaker: "a Session", async_sessionmaker: "an AsyncSession", Sagas: "a session or connection",
}  # fmt: skip

RunSync = Callable[[Callable[[Any], T]], Awaitable[T]]


class _Caller:
    """What sessions and connections share. `bind` is what they would work on, known without connecting."""

    blocks, awaits = True, False

    def __init__(self, bind: Engine | Connection, kind: type, run_sync: RunSync[Any] | None = None) -> None:
        if bind.dialect.name != POSTGRES:
            raise ConfigurationError(
                f"using={kind.__name__}: sagas need Postgres, this one is for {bind.dialect.name}; "
                f"pass using= a session or connection to a Postgres database"
            )
        self.name = f"{kind.__name__} to database {bind.engine.url.database!r}"
        self._engine, self._run_sync = bind.engine, run_sync
        self.blocks, self.awaits = run_sync is None, run_sync is not None

    @property
    def runtime(self) -> Sagas | None:
        """The runtime object of the application, if it made one."""
        return runtime_of(self._engine)

    @property
    def settings(self) -> Settings:
        runtime = self.runtime
        return settings_in_force() if runtime is None else runtime.settings

    @property
    def session(self) -> Session | None:
        """The session, if there is one."""
        return None

    def connection(self) -> Connection:
        """The connection, with the transaction that the caller's next statement would be part of."""
        raise NotImplementedError

    def run(self, work: Work[T]) -> T:
        return drive(work, self._fetch)

    async def arun(self, work: Work[T]) -> T:
        assert self._run_sync is not None
        found: T = await self._run_sync(lambda _: self.run(work))
        return found

    def in_transaction(self) -> bool:
        """All but AUTOCOMMIT: SQLAlchemy opens a transaction by itself, and it is up to the caller to commit it."""
        return not _autocommits(self.connection())

    def wake_after_commit(self) -> None:
        if self.settings.wake:
            connection = self.connection()
            wake.wake_after_commit(connection, autocommit=_autocommits(connection))

    def subject(self, subject: object) -> tuple[str, str] | None:
        return subject_of(subject, self.session)

    def _fetch(self, sql: LiteralString, argument: str) -> str | None:
        runtime = self.runtime
        statement = _statement(sql, None if runtime is None else runtime.schema)
        try:
            found: str | None = self.connection().execute(statement, {"argument": argument}).scalar()
        except DBAPIError as problem:
            problem.hide_parameters = True  # they hold an input, and this may end in a log
            state = getattr(problem.orig, "sqlstate", None) or getattr(problem.orig, "pgcode", None)
            explained = not_ready(state, self.name, REMEDY, problem)
            if explained is None:
                raise
            raise explained from None
        return found


class ConnectionCaller(_Caller):
    """A `Connection`, or the one inside of an `AsyncConnection`."""

    def __init__(self, connection: Connection, kind: type, run_sync: RunSync[Any] | None = None) -> None:
        super().__init__(connection, kind, run_sync)
        self._connection = connection

    def connection(self) -> Connection:
        return self._connection


class SessionCaller(_Caller):
    """A `Session`, or the one inside of an `AsyncSession`."""

    def __init__(self, session: Session, kind: type, run_sync: RunSync[Any] | None = None) -> None:
        super().__init__(_bind(session), kind, run_sync)
        self._session = session

    @property
    def session(self) -> Session:
        return self._session

    def connection(self) -> Connection:
        return self._session.connection()

    def in_transaction(self) -> bool:
        if not (self._session.in_transaction() or self._session.autobegin):
            return False
        return super().in_transaction()


def _bind(session: Session) -> Engine | Connection:
    try:
        return session.get_bind()
    except UnboundExecutionError as problem:
        raise ConfigurationError(
            f"using={type(session).__name__}: it is bound to no database, or to several and does not say where sagas "
            f"are; pass using=session.connection(bind_arguments={{'mapper': YourModel}}) of that database"
        ) from problem


def _autocommits(connection: Connection) -> bool:
    """Whether each statement is committed by itself, by whatever way the driver was told to."""
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


@cache
def _statement(sql: LiteralString, schema: str | None) -> TextClause:
    """A statement of ours with its one parameter as text, so that no driver has to guess a type."""
    bound = sql.replace("%s", ":argument")
    if schema is not None:
        place = quoted(schema).replace(":", r"\:") + "."
        bound = re.sub(r"\bsagas_\w+", lambda name: place + name[0], bound)
    return text(bound).bindparams(bindparam("argument", type_=Text()))


def sqlalchemy_caller(using: Any) -> Caller | None:
    """The caller for a session or connection of SQLAlchemy; a scoped one stands for the session of this scope.

    Raises:
        ConfigurationError: it is not for a Postgres database.
    """
    if isinstance(using, scoped_session | async_scoped_session):
        using = using()
    if isinstance(using, Session):
        return SessionCaller(using, type(using))
    if isinstance(using, Connection):
        return ConnectionCaller(using, type(using))
    if isinstance(using, AsyncSession):
        return SessionCaller(using.sync_session, type(using), using.run_sync)
    if isinstance(using, AsyncConnection):
        return ConnectionCaller(_started(using), type(using), using.run_sync)
    for kind, instead in NOT_OPEN.items():
        if isinstance(using, kind):
            raise ConfigurationError(f"using={kind.__name__}: it has no transaction; pass {instead} that has one")
    return None


def _started(connection: AsyncConnection) -> Connection:
    if connection.sync_connection is None:
        raise ConfigurationError("using=AsyncConnection: it is not connected yet, or closed; `await` it first")
    return connection.sync_connection
