"""The roles, and running tests of other folders under them: `pytest -p tests.security.as_roles tests/integration/...`.

Callers are then `sagas_application`, connections of workers and local steps `sagas_worker`. What a test itself looks
at or breaks is still done by the owner of the tables.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

ROLES = (
    "sagas_application", "sagas_worker", "sagas_relay", "sagas_operator", "sagas_repairer", "sagas_pruner",
    "sagas_reader",
)  # fmt: skip
FOR_BODIES = """do $$ declare each record; begin
    for each in select c.oid::regclass as name from pg_class c
            where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace and c.relname not like 'sagas\\_%' loop
        execute format('grant all on table %s to sagas_application, sagas_worker', each.name);
    end loop;
    for each in select c.oid::regclass as name from pg_class c
            where c.relkind = 'S' and c.relnamespace = 'public'::regnamespace and c.relname not like 'sagas\\_%' loop
        execute format('grant all on sequence %s to sagas_application, sagas_worker', each.name);
    end loop;
end $$"""  # the application's own tables are its own matter

_inside = threading.local()  # whether this thread has taken on a role


def forget_roles(owner: psycopg.Connection[Any]) -> None:
    """Take back what was granted in this database. The roles are the server's: other databases may use them."""
    for role in ROLES:
        owner.execute(f"drop owned by {role}")


@pytest.fixture(scope="session", autouse=True)
def _everywhere(request: pytest.FixtureRequest, postgres_server: Any) -> Iterator[None]:
    """Every database that a test is given has the roles, and everybody connects as one of them."""
    from sagas.store.schema_files import roles_sql
    from sagas_django.caller import DjangoCaller
    from sagas_django.store import DjangoStore

    template = postgres_server.url(request.getfixturevalue("template_database"))
    with psycopg.connect(template, autocommit=True) as owner:
        owner.execute(roles_sql())
        owner.execute(FOR_BODIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DjangoCaller, "fetch", _as_application(DjangoCaller.fetch))
        patch.setattr(DjangoStore, "connect", _as_worker(DjangoStore.connect))
        patch.setattr(DjangoStore, "local", _local_as_worker(DjangoStore.local))
        yield


def _as_application(fetch: Any) -> Any:
    def fetch_as(caller: Any, sql: Any, argument: str) -> Any:
        if getattr(_inside, "role", ""):
            return fetch(caller, sql, argument)
        with caller.connection.cursor() as cursor:
            cursor.execute("set role sagas_application")
        try:
            return fetch(caller, sql, argument)
        finally:
            if not _broken(caller.connection):  # else its rollback takes the role back
                with caller.connection.cursor() as cursor:
                    cursor.execute("reset role")

    return fetch_as


def _broken(wrapper: Any) -> bool:
    raw = wrapper.connection
    return raw is None or raw.closed or raw.info.transaction_status == psycopg.pq.TransactionStatus.INERROR


def _as_worker(connect: Any) -> Any:
    def connect_as(store: Any) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = connect(store)
        connection.execute("set role sagas_worker")
        return connection

    return connect_as


def _local_as_worker(local: Any) -> Any:
    @contextmanager
    def local_as(store: Any) -> Iterator[Any]:
        with local(store) as opened:
            opened.connection.execute("set local role sagas_worker")
            _inside.role = "sagas_worker"
            try:
                yield opened
            finally:
                _inside.role = ""

    return local_as
