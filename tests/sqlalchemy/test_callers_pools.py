"""Callers on every kind of pool, on connections that are cut off or cancelled, and what is left on the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, NullPool, StaticPool, text
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sagas.errors import NotInTransaction
from sagas_outbox.wake import Throttle
from sagas_sqlalchemy import Sagas
from tests.sqlalchemy.conftest import EngineMaker, drain, rows
from tests.sqlalchemy.shop import Order, Placed, PlaceOrder
from tests.sqlalchemy.test_callers_wake import ear_of
from tests.sqlalchemy.ways import Deliver, Parcel, keys

RuntimeMaker = Callable[..., Sagas]

OTHERS = "select state from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
BLOCKED = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
POOLS: list[dict[str, Any]] = [
    {"poolclass": NullPool}, {"poolclass": StaticPool}, {"pool_pre_ping": True, "pool_size": 1, "max_overflow": 0},
    {"pool_size": 1, "max_overflow": 0, "pool_reset_on_return": "commit"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_throttle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "allows", lambda self: True)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("options", POOLS, ids=lambda each: "-".join(map(str, each)))
def test_pools(
    options: dict[str, Any], driver: str, make_engine: EngineMaker, make_runtime: RuntimeMaker, url: str
) -> None:
    """Start, hint and local steps are the same on each, and nothing stays in a transaction."""
    engine = make_engine(driver, **options)
    runtime = make_runtime(engine)
    with ear_of(url) as heard:
        with Session(engine) as session, session.begin():
            order = Order(amount=5)
            session.add(order)
            session.flush()
            PlaceOrder.start(Placed(order.id, 5), key="kept", using=session)
        with Session(engine) as session:
            PlaceOrder.start(Placed(1, 5), key="gone", using=session)
            session.rollback()
        runtime.settings = type(runtime.settings)()  # with hints, which the fixture leaves out
        with Session(engine) as session, session.begin():
            Deliver.start(Parcel(), key="told", using=session)
        assert heard() == 1
    drain(runtime)
    assert keys(url) == ["kept", "told"]
    assert rows(url, "select distinct status from sagas_saga") == ["completed"]
    assert "idle in transaction" not in rows(url, OTHERS)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_an_engine_in_autocommit_by_option(driver: str, make_engine: EngineMaker, url: str) -> None:
    """It is refused unless one says so, and the engine whose pool it shares keeps its transactions."""
    engine = make_engine(driver, pool_size=1, max_overflow=0)
    at_once = engine.execution_options(isolation_level="AUTOCOMMIT")
    with ear_of(url) as heard:
        with Session(at_once) as session, pytest.raises(NotInTransaction):
            Deliver.start(Parcel(), key="a", using=session)
        assert heard() == 0
        with Session(at_once) as session:
            Deliver.start(Parcel(), key="a", using=session, own_transaction=True)
        assert heard() == 1
        with Session(engine) as session:
            Deliver.start(Parcel(), key="b", using=session)
        assert heard() == 0
    assert keys(url) == ["a"]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_connection_that_was_invalidated(driver: str, make_engine: EngineMaker, url: str) -> None:
    """Rolling it back works as without sagas: nothing connects anew for that, and nothing is raised."""
    engine = make_engine(driver, pool_size=1, max_overflow=0)
    with ear_of(url) as heard:
        with engine.connect() as connection:
            transaction = connection.begin()
            Deliver.start(Parcel(), key="a", using=connection)
            connection.invalidate()
            with pytest.raises(PendingRollbackError):
                connection.execute(text("select 1"))
            transaction.rollback()
            assert connection.invalidated
            with connection.begin():
                Deliver.start(Parcel(), key="b", using=connection)
        with engine.connect() as connection:
            connection.begin()
            connection.invalidate()
        assert heard() == 1
    assert keys(url) == ["b"]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg_async"])
def test_a_task_that_is_cancelled_while_it_starts(driver: str, make_engine: EngineMaker, url: str) -> None:
    """In the middle of the statement: no saga, no connection that is missed, no transaction that stays open."""

    async def start(engine: Any) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await Deliver.astart(Parcel(), key="a", using=session)

    async def request(holder: psycopg.Connection[Any]) -> None:
        engine = make_engine(driver, pool_size=1, max_overflow=0, pool_timeout=5)
        task = asyncio.create_task(start(engine))
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(rows, url, BLOCKED):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert engine.pool.checkedout() == 0
        holder.rollback()
        await start(engine)
        await engine.dispose()

    with psycopg.connect(url) as holder:
        Deliver.start(Parcel(), key="a", using=holder)
        asyncio.run(request(holder))
    assert keys(url) == ["a"]
    assert rows(url, "select count(*) from sagas_log") == [1]


def test_commits_of_other_engines_are_none_of_ours(engine: Engine, url: str) -> None:
    """A connection without a saga on it is committed and given back without a hint."""
    with ear_of(url) as heard:
        with engine.begin() as connection:
            connection.execute(text("insert into note (id, text) values (gen_random_uuid(), 'x')"))
        assert heard() == 0
