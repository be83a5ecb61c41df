"""Every way of the product to the database in this process, led through a user who has no more than a role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import psycopg
import pytest

from tests.security.children import start_as
from tests.security.taking import aliases_as, asking, become, being, give_back, present, spoilt
from tests.security.users import COMMANDS, OPERATOR, WEB, WORKER, prepare_url, seen


def patch_all(patch: pytest.MonkeyPatch) -> None:
    """Let everybody connect as one of the users, until the patch is undone."""
    from django.test.client import ClientHandler

    from sagas import bare
    from sagas.testing.draining import Drain
    from sagas.testing.processes import ProcessGroup
    from sagas.worker import Worker
    from sagas_django.caller import DjangoCaller
    from sagas_django.store import DjangoStore
    from sagas_sqlalchemy.callers import _Caller
    from sagas_sqlalchemy.store import SqlAlchemyStore

    for target, name, change in (
        (DjangoCaller, "fetch", _django_caller), (DjangoStore, "connect", _connect), (DjangoStore, "local", _local),
        (SqlAlchemyStore, "connect", _connect), (SqlAlchemyStore, "local", _local), (_Caller, "_fetch", _alchemy),
        (bare.BareCaller, "_fetch", _bare), (bare.AsyncBareCaller, "_fetch", _async_bare), (Drain, "run", _drain),
        (Worker, "__init__", _worker), (ClientHandler, "get_response", _page), (ProcessGroup, "start", start_as),
    ):  # fmt: skip
        patch.setattr(target, name, change(getattr(target, name)))
    for module in ("sagas.cli.commands", "sagas_django.management.commands.sagas"):
        found = import_module(module)
        patch.setattr(found, "carry_out", _command(found.carry_out))


def _connect(connect: Any) -> Any:
    def connect_as(store: Any) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = connect(store)
        if user := asking(store):
            become(connection, user)
        return connection

    return connect_as


def _worker(make: Any) -> Any:
    def made(worker: Any, store: Any, *given: Any, **named: Any) -> None:
        if type(store).__name__ == "DjangoStore":  # it is this worker's own
            with suppress(AttributeError):
                store.of_user = WORKER
        make(worker, store, *given, **named)

    return made


def _local(local: Any) -> Any:
    @contextmanager
    def local_as(store: Any) -> Iterator[Any]:
        with local(store) as opened:
            become(opened.connection, WORKER, local=True)
            with being(WORKER):
                yield opened

    return local_as


def _django_caller(fetch: Any) -> Any:
    def fetch_as(caller: Any, sql: Any, argument: str) -> Any:
        raw = caller.connection.connection
        if present() or getattr(raw, "of_user", ""):
            return fetch(caller, sql, argument)
        caller.connection.ensure_connection()
        raw = caller.connection.connection
        if not isinstance(raw, psycopg.Connection) or spoilt(raw):
            return fetch(caller, sql, argument)
        with caller.connection.wrap_database_errors:
            become(raw, WEB)
        try:
            return fetch(caller, sql, argument)
        finally:
            give_back(raw)

    return fetch_as


def _alchemy(fetch: Any) -> Any:
    from sqlalchemy.exc import SQLAlchemyError

    def fetch_as(caller: Any, sql: Any, argument: str) -> Any:
        if present():
            return fetch(caller, sql, argument)
        schema = caller.runtime.schema if caller.runtime else None
        prepare_url(caller._engine.url.render_as_string(hide_password=False), schema)
        with suppress(SQLAlchemyError):  # a transaction that has failed
            caller.connection().exec_driver_sql(f"set role {WEB}")
            seen[WEB] += 1
        try:
            return fetch(caller, sql, argument)
        finally:
            with suppress(SQLAlchemyError):
                caller.connection().exec_driver_sql("reset role")

    return fetch_as


def _bare(fetch: Any) -> Any:
    def fetch_as(caller: Any, sql: Any, argument: str) -> Any:
        raw = caller._connection
        if present() or hasattr(raw, "of_user") or spoilt(raw):
            return fetch(caller, sql, argument)
        become(raw, WEB)
        try:
            return fetch(caller, sql, argument)
        finally:
            give_back(raw)

    return fetch_as


def _async_bare(fetch: Any) -> Any:
    async def fetch_as(caller: Any, sql: Any, argument: str) -> Any:
        raw = caller._connection
        if spoilt(raw):
            return await fetch(caller, sql, argument)
        await raw.execute(f"set role {WEB}")
        seen[WEB] += 1
        try:
            return await fetch(caller, sql, argument)
        finally:
            if not spoilt(raw):
                await raw.execute("reset role")

    return fetch_as


def _drain(run: Any) -> Any:
    """The kit works on the test's own connection."""

    def run_as(drain: Any) -> Any:
        lent = drain.store.connect()
        raw = lent._lent
        become(raw, WORKER)
        try:
            with being(WORKER):
                return run(drain)
        finally:
            give_back(raw)

    return run_as


def _command(carry_out: Any) -> Any:
    def carry_out_as(command: Any, desk: Any, given: Any, **rest: Any) -> Any:
        alias = given.get("database")
        with aliases_as(COMMANDS.get(command.name, OPERATOR), *([alias] if alias in _aliases() else [])):
            return carry_out(command, desk, given, **rest)

    return carry_out_as


def _aliases() -> list[str]:
    """The aliases that there are."""
    from django.db import connections

    return list(connections)


def _page(get_response: Any) -> Any:
    """Pages of the admin, asked for by Django's test client."""

    def get_response_as(handler: Any, request: Any) -> Any:
        with aliases_as(OPERATOR, *_aliases()):
            return get_response(handler, request)

    return get_response_as
