"""Fixtures of the tests that run sagas in this process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from sagas.testing.moving import Clock
from sagas.testing.servers import Postgres
from tests.settings import database_from_url
from tests.shop import world as outside
from tests.shop.world import World
from tests.support.backup import Backup

EMPTY = """
set local sagas.pruning = 'on';
delete from sagas_outbox; delete from sagas_saga; delete from sagas_log; delete from sagas_dedupe;
delete from sagas_pace; delete from sagas_tombstone; delete from sagas_archive; delete from sagas_tally;
delete from sagas_lock; delete from sagas_signal; delete from sagas_pause; delete from sagas_slot;
delete from sagas_queue; delete from sagas_process; delete from sagas_schedule;
delete from shop_order; delete from shop_booking; delete from shop_seat;
delete from django_admin_log; delete from auth_user_user_permissions; delete from auth_user_groups;
delete from auth_user
"""


@pytest.fixture
def world() -> Iterator[World]:
    """The world outside, fresh."""
    outside.world.reset()
    yield outside.world
    outside.world.reset()


@pytest.fixture
def quiet(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No wake-ups (workers end when idle, nobody has to listen meanwhile), and always half of the backoff."""
    settings.SAGAS = {"WAKE": False}
    monkeypatch.setattr("sagas.perform.random", SimpleNamespace(random=lambda: 0.5))


@pytest.fixture
def time_machine(shop: str) -> Iterator[Clock]:
    """Moves the time that sagas of this process go by."""
    from django.db import connection

    def read() -> datetime:
        with connection.cursor() as cursor:
            cursor.execute("select clock_timestamp()")
            found: datetime = cursor.fetchone()[0]
            return found

    clock = Clock(read)
    yield clock
    clock.reset()


@contextmanager
def database_alias(alias: str, entry: dict[str, Any]) -> Iterator[str]:
    """Let an alias mean this database for a while, also in threads that begin meanwhile."""
    from django.db import connections

    from sagas import ports
    from sagas_django.store import DjangoStore

    before = (connections.databases[alias], connections[alias]) if alias in connections else None
    connections.databases[alias] = entry
    connections.configure_settings(connections.databases)
    if before:
        del connections[alias]
    known = alias in ports._stores
    ports.register_store(alias, lambda: DjangoStore(alias), owner="sagas_django")
    _forget_in_async_thread(alias)
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias]
        _forget_in_async_thread(alias)
        if before:
            connections.databases[alias], connections[alias] = before
        else:
            del connections.databases[alias]
        if not known:
            ports.unregister_store(alias)


def _forget_in_async_thread(alias: str) -> None:
    """The thread in which Django's async calls do their work keeps connections too, to the database of before."""
    from asgiref.sync import SyncToAsync
    from django.db import connections

    def forget() -> None:
        if hasattr(connections._connections, alias):
            connections[alias].close()
            del connections[alias]

    SyncToAsync.single_thread_executor.submit(forget).result(10)


@pytest.fixture(scope="session")
def shop_url(postgres_server: Postgres, template_database: str) -> Iterator[str]:
    """URL of a migrated database that the tests of this folder share, one after the other."""
    name = f"sagas_shop_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name, template=template_database)
    postgres_server.drop_database(name)


@pytest.fixture
def shop(shop_url: str, django_db_blocker: DjangoDbBlocker, world: World, quiet: None) -> Iterator[str]:
    """The alias "default" is a real, empty database without a transaction around the test.

    Like `django_db(transaction=True)`, but cleaned by deleting rows, which takes a hundredth of a flush.
    """
    with django_db_blocker.unblock(), database_alias("default", database_from_url(shop_url)) as alias:
        yield shop_url
        _empty(alias)


def _empty(alias: str) -> None:
    from django.db import connections, transaction

    connections[alias].close()  # whatever a test left open on it
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("set local lock_timeout = '5s'")
        cursor.execute(EMPTY)


@pytest.fixture
def other_database(shop: str, fresh_database: str) -> Iterator[str]:
    """A second alias, "other": a migrated database of its own that only this test uses."""
    with database_alias("other", database_from_url(fresh_database)) as alias:
        yield alias


@pytest.fixture
def backup(shop: str) -> Iterator[type[Backup]]:
    """Makes a backup of the database."""
    from django.db import connection

    yield Backup
    with connection.cursor() as cursor:
        cursor.execute("drop schema if exists before cascade")
