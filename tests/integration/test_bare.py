"""`using=` a psycopg connection without a framework around it, and Django's aliases where calls are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from psycopg.rows import dict_row

from sagas import ConfigurationError, InvalidInput, NotInTransaction, SagaNotFound, ports
from sagas.settings import Settings
from sagas.states import Status
from sagas_django.models import SagaRow
from sagas_django.store import DjangoStore
from tests.shop.models import Order
from tests.shop.sagas import Ordered, Trip
from tests.support.stories import drain, log_of


@pytest.fixture
def bare(shop: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as scripts have it."""
    with psycopg.connect(shop) as connection:
        yield connection


def test_a_saga_of_a_script_runs_like_any_other(bare: psycopg.Connection[Any]) -> None:
    """Started and cancelled without Django, run by the workers of the project."""
    run = Trip.start(Ordered(7), key="a", subject=("shop.Order", "7"), using=bare)
    bare.commit()
    drain()
    assert Trip.get(key="a", using=bare).status == Status.COMPLETED
    [saga] = SagaRow.objects.all()
    assert (saga.id, saga.subject_type, saga.subject_id) == (run.id, "shop.Order", "7")
    with bare.transaction():
        other = Trip.start(Ordered(8), key="b", using=bare)
        Trip.cancel(key="b", reason="changed my mind", using=bare)
    bare.commit()
    drain()
    assert log_of(other)[-1] == "cancelled"


def test_which_states_of_a_connection_will_do(bare: psycopg.Connection[Any]) -> None:
    """Autocommit without a transaction is refused, and so is a transaction that has failed, in words."""
    bare.autocommit = True
    with pytest.raises(NotInTransaction, match=r"no transaction is open on psycopg\.Connection to database"):
        Trip.start(Ordered(), key="a", using=bare)
    with bare.transaction():
        assert Trip.start(Ordered(), key="a", using=bare).created
    assert Trip.start(Ordered(), key="b", using=bare, own_transaction=True).created
    bare.autocommit = False
    with pytest.raises(psycopg.errors.DivisionByZero):
        bare.execute("select 1 / 0")
    with pytest.raises(NotInTransaction, match=r"has failed.*roll it back"):
        Trip.start(Ordered(), key="c", using=bare)
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        Trip.get(key="a", using=bare)
    bare.rollback()
    with pytest.raises(ZeroDivisionError), bare.transaction():  # noqa: PT012 - the transaction is the test
        Trip.start(Ordered(), key="c", using=bare)
        raise ZeroDivisionError
    with pytest.raises(SagaNotFound):
        Trip.get(key="c", using=bare)
    bare.close()
    with pytest.raises(NotInTransaction, match="closed or broken"):
        Trip.start(Ordered(), key="d", using=bare)
    assert {saga.key for saga in SagaRow.objects.all()} == {"a", "b"}


def test_whatever_cursors_the_connection_prefers(shop: str) -> None:
    """Rows as dicts and parameters bound by the client do not matter."""
    with psycopg.connect(shop, row_factory=dict_row, cursor_factory=psycopg.ClientCursor) as connection:  # type: ignore[arg-type]
        Trip.start(Ordered(), key="a'%s", using=connection)
        assert Trip.get(key="a'%s", using=connection).key == "a'%s"
        with connection.pipeline():
            assert Trip.start(Ordered(), key="piped", using=connection).created
        Trip.cancel(key="piped", reason="x", using=connection)


def test_subjects_without_models(bare: psycopg.Connection[Any]) -> None:
    """Type and id as text, and nothing else."""
    for wrong in ("shop.Order", ("shop.Order", 7), Order(pk=7), ["shop.Order"]):
        with pytest.raises(InvalidInput, match="not a model instance that psycopg"):
            Trip.start(Ordered(), subject=wrong, using=bare)


def test_settings_of_a_bare_connection(bare: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the stores of the process, where they agree; the defaults where there is none, or they differ."""
    monkeypatch.setattr(ports, "_stores", {"default": lambda: DjangoStore("default")})
    assert ports.caller(bare, call="start").settings.wake is False
    ports.register_store("other", lambda: DjangoStore("default"), owner="sagas_django")
    assert ports.caller(bare, call="start").settings.wake is False
    ports.register_store("third", lambda: SimpleNamespace(settings=Settings()), owner="sagas_django")
    assert ports.caller(bare, call="start").settings == Settings()
    monkeypatch.setattr(ports, "_stores", {})
    assert ports.caller(bare, call="start").settings == Settings()


# --- Django, awaited -------------------------------------------------------------------------------------------


def test_the_twins_join_the_transaction_of_djangos_thread(shop: str) -> None:
    """`astart()` works where Django's own async code would: in its thread for sync code, in whatever is open there."""

    async def view() -> None:
        with pytest.raises(NotInTransaction, match="no transaction is open on database 'default'"):
            await Trip.astart(Ordered(), key="a")
        block = transaction.atomic()
        await sync_to_async(block.__enter__)()
        order = await Order.objects.acreate(title="a")
        run = await Trip.astart(Ordered(7), key="a", subject=order)
        assert (await Trip.aget(key="a", using="default")).id == run.id
        await Trip.acancel(key="a", reason="x")
        await sync_to_async(block.__exit__)(None, None, None)
        block = transaction.atomic()
        await sync_to_async(block.__enter__)()
        await Trip.astart(Ordered(), key="b")
        problem = ValueError("the view fails")
        await sync_to_async(block.__exit__)(type(problem), problem, None)
        await sync_to_async(connections.close_all)()

    asyncio.run(view())
    [saga] = SagaRow.objects.all()
    assert (saga.key, saga.subject_type) == ("a", "shop.Order")


def test_awaited_bare_connections_run_side_by_side(shop: str) -> None:
    """Two transactions of one loop, one of which waits for the other's key."""

    async def one(key: str, entered: asyncio.Event | None = None) -> bool:
        async with await psycopg.AsyncConnection.connect(shop) as connection:
            run = await Trip.astart(Ordered(), key=key, using=connection)
            if entered:
                entered.set()
                await waits_for_a_lock(shop)
            await connection.commit()
            return run.created

    async def both() -> list[bool]:
        entered = asyncio.Event()
        first = asyncio.create_task(one("a", entered))
        await asyncio.wait_for(entered.wait(), 10)
        return await asyncio.wait_for(asyncio.gather(first, one("a")), 20)

    assert asyncio.run(both()) == [True, False]


async def waits_for_a_lock(url: str) -> None:
    """Return once somebody in this database waits for somebody else."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        async with asyncio.timeout(10):
            while True:
                found = await connection.execute(
                    "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
                )
                if found.rowcount:
                    return
                await asyncio.sleep(0.01)


def test_awaited_states(shop: str) -> None:
    """The same refusals as without waiting."""

    async def script() -> None:
        async with await psycopg.AsyncConnection.connect(shop, autocommit=True) as connection:
            with pytest.raises(NotInTransaction):
                await Trip.astart(Ordered(), key="a", using=connection)
            with pytest.raises(ConfigurationError, match=r"await Trip\.astart"):
                Trip.start(Ordered(), key="a", using=connection)
            async with connection.transaction():
                await Trip.astart(Ordered(), key="a", using=connection)
            assert (await Trip.aget(key="a", using=connection)).status == Status.RUNNING

    asyncio.run(script())
