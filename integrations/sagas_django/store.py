"""A Django database alias as a store of sagas, for workers and relays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import psycopg
from asgiref.sync import sync_to_async
from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Identifier

from sagas.endings import ending, outlasts, setting
from sagas.errors import ConfigurationError, SagaError
from sagas.looking import looking, shown_to
from sagas.opening import LOST, Opening
from sagas.registry import registry
from sagas.settings import Settings
from sagas_django.conf import sagas_settings
from sagas_outbox.link import LIMITS, cut

SWALLOWED = (
    "the step returned although a query of its own had failed, so its writes cannot be committed; "
    "let the error out of the step, or wrap the query in atomic()"
)
DJANGO_ONLY = ("cursor_factory", "context", "assume_role", "pool", "server_side_binding", "isolation_level")


class DjangoStore:
    """The sagas of one alias."""

    def __init__(self, alias: str) -> None:
        self.name = alias

    @property
    def settings(self) -> Settings:
        return sagas_settings()

    def connect(self) -> psycopg.Connection[Any]:
        given = connections[self.name].get_connection_params()
        parameters = {name: value for name, value in given.items() if name not in DJANGO_ONLY}
        connection = psycopg.connect(**(LIMITS | parameters), autocommit=True)
        if role := connections[self.name].settings_dict["OPTIONS"].get("assume_role"):
            connection.execute(SQL("set role {}").format(Identifier(role)))
        connection.prepare_threshold = 1 if self.settings.prepared else None
        return connection

    @contextmanager
    def local(self) -> Iterator[DjangoLocal]:
        _renew(connections[self.name])
        try:
            with transaction.atomic(using=self.name):
                self._bound()
                local = DjangoLocal(self.name)
                with local.kept_open():
                    yield local
            if local.has_set_for_good and not connections[self.name].in_atomic_block:
                connections[self.name].close()  # or it would hold for the sagas that come next
        except psycopg.errors.ReadOnlySqlTransaction:  # a failover: the connection lives on and refuses every write
            connections[self.name].close()
            raise

    def _bound(self) -> None:
        """A worker that is frozen in a local step holds its rows; the server ends its transaction after a while."""
        settings = self.settings
        longest = max((timeout for timeout in self._timeouts() if timeout), default=0.0)
        seconds = max(settings.timeout, longest) + settings.grace + settings.lease
        with connections[self.name].cursor() as cursor:
            cursor.execute(
                "select set_config('idle_in_transaction_session_timeout', %s, true)", [f"{int(seconds * 1000)}ms"]
            )  # fmt: skip

    @staticmethod
    def _timeouts() -> Iterator[float | None]:
        for definition in registry.definitions():
            for step in definition.plan.steps:
                yield step.timeout
                yield step.undo.timeout if step.undo else None

    def between(self) -> None:
        for connection in connections.all(initialized_only=True):
            connection.close_if_unusable_or_obsolete()
            _renew(connection)

    def after_body(self) -> None:
        for connection in _opened():
            ours = connection.in_atomic_block  # of local steps, or of a test
            if not ours and connection.connection and connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
                connection.close()

    async def after_async_bodies(self) -> None:
        await sync_to_async(self._after_async_bodies)()  # in the thread in which the ORM of async code runs

    def _after_async_bodies(self) -> None:
        self.after_body()
        self.between()


class _Thread(threading.local):
    """Connections of a thread that may be open. Done for every body: Django takes ten times as long to tell."""

    opened: set[BaseDatabaseWrapper] | None = None


_thread = _Thread()


def _opened() -> set[BaseDatabaseWrapper]:
    if _thread.opened is None:
        _thread.opened = set(connections.all(initialized_only=True))
    return _thread.opened


@receiver(connection_created)
def _note(connection: BaseDatabaseWrapper, **_: Any) -> None:
    _opened().add(connection)


def _renew(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that has ended: a local step that meets it would have to wait for its lease to end."""
    if _was_cut(connection):
        connection.close()


def _was_cut(connection: BaseDatabaseWrapper) -> bool:
    """Whether an idle connection has ended meanwhile: something came in that nobody asked for."""
    raw = connection.connection
    if not isinstance(raw, psycopg.Connection) or raw.closed or connection.in_atomic_block:
        return False
    return cut(raw) and not connection.is_usable()


class DjangoLocal:
    """An open `atomic` block; local steps run in nested ones."""

    session = None

    def __init__(self, alias: str) -> None:
        self._wrapper = connections[alias]
        self._alias = alias
        self._before: str | None = None  # the savepoint of the body before, not released yet
        self._settings = 0  # that bodies have made in the session
        self.has_set_for_good = False

    @property
    def connection(self) -> psycopg.Connection[Any]:
        raw = self._wrapper.connection
        if not isinstance(raw, psycopg.Connection):
            raise ConfigurationError(
                f"database {self._alias!r} is used through {type(raw).__module__}; workers need psycopg 3: "
                f"pip install 'psycopg[binary]' in the worker's environment"
            )
        return raw

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Nobody ends the transaction past Django meanwhile: that would take along the writes of other bodies."""
        raw: Any = self.connection
        before = raw.cursor_factory
        raw.commit = raw.rollback = _refused
        raw.cursor_factory = looking(before)
        try:
            yield
        finally:
            raw.cursor_factory = before
            for name in ("commit", "rollback"):
                raw.__dict__.pop(name, None)

    @contextmanager
    def _sends_along(self, opening: Opening) -> Iterator[None]:
        """As `execute_wrapper`, which takes away the last one: a body may have added one, and leave it there."""
        wrappers, along = self._wrapper.execute_wrappers, partial(_takes_along, opening)
        wrappers.append(along)
        try:
            yield
        finally:
            if along in wrappers:
                wrappers.remove(along)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        with transaction.atomic(using=self._alias), shown_to(self.connection, self._look_at):
            yield
            if self._wrapper.needs_rollback:
                raise transaction.TransactionManagementError(SWALLOWED)

    @contextmanager
    def joined(self) -> Iterator[None]:
        wrapper = self._wrapper
        wrapper.savepoint_state += 1
        name = f"sagas_x{wrapper.savepoint_state}"
        release = () if self._before is None else (wrapper.ops.savepoint_commit_sql(self._before),)
        opening = Opening(self.connection, *release, wrapper.ops.savepoint_create_sql(name))
        wrapper.savepoint_ids.append(name)
        try:
            with shown_to(self.connection, self._look_at), self._sends_along(opening):
                yield
            opening.close()
            if wrapper.needs_rollback or opening.state != TransactionStatus.INTRANS:
                raise transaction.TransactionManagementError(SWALLOWED)
            opening.check()
        except BaseException:
            opening.close()
            self._undo(opening, name)
            raise
        finally:
            wrapper.savepoint_ids.pop()
            if opening.sent:
                self._before = name

    def release(self) -> None:
        if self._before is not None:
            self._wrapper.savepoint_commit(self._before)
            self._before = None

    def _undo(self, opening: Opening, name: str) -> None:
        """As the end of a nested `atomic` block does it; raises where it cannot be done."""
        wrapper = self._wrapper
        if wrapper.closed_in_transaction:
            raise SagaError(LOST)
        opening.check()
        wrapper.needs_rollback = False
        if opening.sent:
            try:
                wrapper.savepoint_rollback(name)
            except Error as problem:
                raise SagaError(f"{LOST}: {problem}") from problem
        else:
            wrapper.run_on_commit = [each for each in wrapper.run_on_commit if name not in each[0]]

    def hooks(self) -> int:
        return len(self._wrapper.run_on_commit) + self._settings

    def _look_at(self, sql: str) -> None:
        """Django refuses `commit()` in a body. By SQL it would take along the writes of those who share the
        transaction."""
        if found := ending(sql):
            raise ConfigurationError(
                f"a local step must not run {found!r}: what it writes commits together with its "
                f"log entry when it returns; to undo it all, raise"
            )
        if found := setting(sql):
            self._settings += 1
            self.has_set_for_good |= outlasts(found)


def _refused() -> NoReturn:
    raise ConfigurationError(
        "a local step must not call commit() or rollback() of its connection: what it writes commits together with "
        "its log entry when it returns; to undo it all, raise"
    )


def _takes_along(opening: Opening, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Send the savepoint of a body together with its first statement, where the cursor can do that."""
    cursor = context["cursor"].cursor
    if (
        opening.sent
        or many
        or not isinstance(sql, str)
        or not sql.strip()
        or not _sends_as_is(context["connection"], cursor, opening)
    ):
        return execute(sql, params, many, context)  # psycopg calls the opening before it sends anything
    before = opening.take()
    try:
        found = execute(f"{before};\n{sql}", params, many, context)
    except BaseException:
        opening.failed()
        raise
    for _ in opening.statements:
        cursor.nextset()
    opening.done()
    return found


def _sends_as_is(wrapper: BaseDatabaseWrapper, cursor: Any, opening: Opening) -> bool:
    """Whether a cursor may send several statements, and no wrapper of the body's own comes to see what we add."""
    last: Any = wrapper.execute_wrappers[-1]
    return isinstance(cursor, psycopg.ClientCursor) and isinstance(last, partial) and last.args == (opening,)
