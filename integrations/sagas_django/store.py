"""A Django database alias as a store of sagas, for workers and relays."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any

import psycopg
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from psycopg.sql import SQL, Identifier

from sagas.registry import registry
from sagas.settings import Settings
from sagas_django.conf import sagas_settings
from sagas_django.local import DjangoLocal
from sagas_outbox.link import LIMITS, cut, read_committed

log = logging.getLogger("sagas.worker")

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
        if self.settings.prepared:
            read_committed(connection)
        connection.prepare_threshold = 1 if self.settings.prepared else None
        return connection

    @contextmanager
    def local(self) -> Iterator[DjangoLocal]:
        wrapper = connections[self.name]
        _renew(wrapper)
        outermost = not wrapper.in_atomic_block
        try:
            with transaction.atomic(using=self.name), local_on(wrapper):
                self._bound()
                local = DjangoLocal(self.name)
                with local.kept_open():
                    yield local
                if outermost:
                    _tolerate_hooks(wrapper)
            if outermost:
                self.after_body()  # hooks have run
            if local.has_set_for_good and not connections[self.name].in_atomic_block:
                _discard(connections[self.name])  # or it would hold for the sagas that come next
        except psycopg.errors.ReadOnlySqlTransaction:  # a failover: the connection lives on and refuses every write
            _discard(connections[self.name])
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
        note_open()

    def after_body(self) -> None:
        for connection in _opened():
            if connection.in_atomic_block:
                if connection is not _thread.local and connection not in _thread.within:
                    _abandon(connection)
            elif connection.connection and connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
                _discard(connection)

    async def after_async_bodies(self) -> None:
        await sync_to_async(self._after_async_bodies)()  # in the thread in which the ORM of async code runs

    def _after_async_bodies(self) -> None:
        self.after_body()
        self.between()


class _Thread(threading.local):
    """Connections of a thread: `opened` may be open. Asked for every body: Django takes ten times as long to tell."""

    opened: set[BaseDatabaseWrapper] | None = None
    local: BaseDatabaseWrapper | None = None  # that local steps are under way on
    within: AbstractSet[BaseDatabaseWrapper] = frozenset()  # that were in a transaction before any body ran


_thread = _Thread()


def _opened() -> set[BaseDatabaseWrapper]:
    if _thread.opened is None:
        _thread.opened = set(connections.all(initialized_only=True))
    return _thread.opened


def note_open() -> None:
    """The transactions that are open now are somebody else's, such as a test's, and no body's to end."""
    _thread.within = {connection for connection in _opened() if connection.in_atomic_block}


@contextmanager
def local_on(wrapper: BaseDatabaseWrapper) -> Iterator[None]:
    """Local steps are under way on this connection: its transaction is not one that a body has left open."""
    before, _thread.local = _thread.local, wrapper
    try:
        yield
    finally:
        _thread.local = before


def _tolerate_hooks(wrapper: BaseDatabaseWrapper) -> None:
    """What runs after the commit undoes nothing: Django logs what such a function raises, and calls the others."""
    hooks: list[Any] = wrapper.run_on_commit  # (savepoints, function, robust); the stubs know of two
    hooks[:] = [(ids, function, True) for ids, function, _ in hooks]


def _discard(connection: BaseDatabaseWrapper) -> None:
    """Close a connection for good: Django's pool (`OPTIONS = {"pool": ...}`) would keep the session, and hand it out
    again with what was set in it."""
    raw = connection.connection
    if raw is not None and getattr(connection, "pool", None):
        raw.close()
    connection.close()


def _abandon(connection: BaseDatabaseWrapper) -> None:
    """End an `atomic` block that a body left open: later bodies of this thread would be part of it."""
    log.error("a body left an atomic block open on %r: what it wrote there is rolled back", connection.alias)
    # or Django would keep the closed connection until the block ends, also where the body has closed it already
    connection.in_atomic_block = connection.closed_in_transaction = False
    connection.close()
    connection.connection = None
    connection.atomic_blocks, connection.savepoint_ids, connection.needs_rollback = [], [], False


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
