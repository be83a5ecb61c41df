"""One database of a SQLAlchemy application as a store of sagas, for workers and relays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from sqlalchemy import Connection, Engine, create_engine

from sagas.errors import ConfigurationError
from sagas.registry import registry
from sagas.settings import Settings
from sagas_outbox.link import LIMITS, cut, read_committed
from sagas_sqlalchemy import ddl
from sagas_sqlalchemy.connecting import PSYCOPG, connection_parameters, creator_of
from sagas_sqlalchemy.local import SqlAlchemyLocal

if TYPE_CHECKING:
    from sagas_sqlalchemy.runtime import Sagas

PATH: Final = """
select set_config('search_path', concat_ws(', ', nullif(path, ''), ours), true)
from (select current_setting('search_path') as path, %s::text as ours) as given
where right(', ' || path, length(', ' || ours)) <> ', ' || ours
"""
BOUND: Final = "select set_config('idle_in_transaction_session_timeout', %s, true)"
WHERE: Final = "select relnamespace::regnamespace::text from pg_class where oid = to_regclass('sagas_outbox')"
STALE: Final = 20  # ended connections that may be in the pool after a restart of the server


class SqlAlchemyStore:
    """The sagas behind one runtime."""

    def __init__(self, runtime: Sagas, connect: Callable[[], psycopg.Connection[Any]] | None) -> None:
        self.name = runtime.name
        self._runtime, self._given = runtime, connect
        self._made: Engine | None = None  # of ours, where the application's engine is none of psycopg 3
        self._making = threading.Lock()
        self._checked = False

    @property
    def settings(self) -> Settings:
        return self._runtime.settings

    def connect(self) -> psycopg.Connection[Any]:
        connection = self._open()
        try:
            connection.autocommit = True
            if self.settings.prepared:
                read_committed(connection)
            connection.prepare_threshold = 1 if self.settings.prepared else None
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self) -> psycopg.Connection[Any]:
        """A connection with `search_path` at our tables, and at nothing else if they have a schema of their own."""
        schema = self._runtime.schema
        if self._given is not None:
            return self._searching(self._given(), schema)
        parameters = connection_parameters(self._runtime.engine, self._runtime.connect_args)
        if parameters is None:
            return self._searching(creator_of(self._runtime.engine)(), schema)
        if schema is not None:  # said while connecting: a pooler that would forget it refuses
            path = ddl.quoted(schema).replace("\\", "\\\\").replace(" ", "\\ ")
            parameters["options"] = f"{parameters.get('options') or ''} -c search_path={path}".strip()
        return psycopg.connect(**(LIMITS | parameters))

    @staticmethod
    def _searching(connection: psycopg.Connection[Any], schema: str | None) -> psycopg.Connection[Any]:
        if schema is not None:
            connection.execute(psycopg.sql.SQL("set search_path to {}").format(psycopg.sql.Identifier(schema)))
            connection.commit()
        return connection

    @contextmanager
    def local(self) -> Iterator[SqlAlchemyLocal]:
        with self._connection() as connection, SqlAlchemyLocal.begin(connection, self._runtime.source) as transaction:
            self._prepare(transaction.connection)
            yield transaction
        transaction.run_hooks()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        connection = self.engine.connect()
        for _ in range(STALE):
            if not cut(_raw(connection)):
                break
            connection.invalidate()
            connection.close()
            connection = self.engine.connect()
        with connection:
            if _raw(connection).autocommit:  # the engine's isolation level is AUTOCOMMIT, which makes no transaction
                connection.execution_options(isolation_level="READ COMMITTED")
            yield connection

    @property
    def engine(self) -> Engine:
        """The engine of local steps: the application's own, or one like it on psycopg 3."""
        theirs = self._runtime.engine
        if theirs.dialect.driver == PSYCOPG and not theirs.dialect.is_async:
            return theirs
        with self._making:
            if self._made is None:
                made = create_engine(
                    "postgresql+psycopg://", creator=self._plain, pool_size=5, max_overflow=-1, pool_use_lifo=True,
                    json_serializer=getattr(theirs.dialect, "_json_serializer", None),
                    json_deserializer=getattr(theirs.dialect, "_json_deserializer", None),
                )  # fmt: skip
                self._made = made.execution_options(**theirs.get_execution_options())
            return self._made

    def _plain(self) -> psycopg.Connection[Any]:
        """A connection for the application's own statements: its `search_path`, its transactions."""
        if self._given is not None:
            connection = self._given()
        else:
            parameters = connection_parameters(self._runtime.engine, self._runtime.connect_args)
            if parameters is None:
                return creator_of(self._runtime.engine)()  # refuses, and says why
            connection = psycopg.connect(**(LIMITS | parameters))
        connection.prepare_threshold = 5 if self.settings.prepared else None
        return connection

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """A worker that is frozen in a local step holds its rows; the server ends its transaction after a while.

        Our tables are found after everything that the application's own names mean.
        """
        cursor = psycopg.Cursor(connection)
        cursor.execute(BOUND, [f"{int(self._longest() * 1000)}ms"])
        schema = self._runtime.schema
        if schema is None:
            return
        cursor.execute(PATH, [ddl.quoted(schema)])
        if not self._checked:
            (found,) = cursor.execute(WHERE).fetchone() or (None,)
            if found is not None and found.strip('"').replace('""', '"') != schema:
                raise ConfigurationError(
                    f"{self._runtime!r}: the application's search_path leads to tables of sagas in schema {found}, not "
                    f"in {schema!r}: drop those, or take {found} out of the search_path"
                )
            self._checked = True

    def _longest(self) -> float:
        timeouts = [each for definition in registry.definitions() for step in definition.plan.steps
                    for each in (step.timeout, step.undo.timeout if step.undo else None)]  # fmt: skip
        longest = max((each for each in timeouts if each), default=0.0)
        return max(self.settings.timeout, longest) + self.settings.grace + self.settings.lease

    def between(self) -> None:
        self.after_body()

    def after_body(self) -> None:
        scoped = self._runtime.source.scoped
        if scoped is not None and scoped.registry.has():
            with suppress(Exception):  # of a connection that broke; it is not used again
                scoped.remove()

    def close(self) -> None:
        """Close what is ours."""
        made, self._made = self._made, None
        if made is not None:
            made.dispose()

    def forget(self) -> None:
        """After a fork: what is open is the parent's."""
        made, self._made, self._making = self._made, None, threading.Lock()
        if made is not None:
            made.dispose(close=False)


def _raw(connection: Connection) -> psycopg.Connection[Any]:
    raw = connection.connection.driver_connection
    if not isinstance(raw, psycopg.Connection):
        connection.close()
        raise ConfigurationError(
            f"local steps need a connection of psycopg 3; {connection.engine!r} gives {type(raw)!r}"
        )
    return raw
