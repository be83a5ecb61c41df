"""The wake-up comes after the commit that counts, on the connection that goes back to its pool, and never otherwise."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, MetaData, NullPool, create_engine, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import sagas_sqlalchemy
from sagas.testing.servers import Postgres, postgres
from sagas_outbox.wake import Throttle
from sagas_sqlalchemy import wake
from tests.sqlalchemy.ways import WITH_SQLALCHEMY, Deliver, Parcel, keys, rows, sqlalchemy_url, unit

Heard = Callable[[], int]

WAITING = (
    "select pid from pg_locks where locktype = 'advisory' and not granted"
    " and database = (select oid from pg_database where datname = current_database())"
)


@pytest.fixture(scope="module")
def database(postgres_server: Postgres, template_database: str) -> Iterator[str]:
    name = f"callers_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name, template=template_database)
    with psycopg.connect(url) as connection:
        connection.execute("create table late (id int primary key deferrable initially deferred)")
        connection.execute("insert into late values (1)")
    yield url
    postgres_server.drop_database(name)


@pytest.fixture
def url(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a migrated database; hints are not throttled."""
    monkeypatch.setattr(Throttle, "allows", lambda self: True)
    with psycopg.connect(database) as connection:
        connection.execute("set local sagas.pruning = 'on'")
        for table in ("outbox", "saga", "log"):
            connection.execute(f"delete from sagas_{table}".encode())
    return database


@pytest.fixture(scope="module")
def two_phases() -> Iterator[str]:
    """URL of a database with our tables, whose server takes prepared transactions."""
    with postgres(private=True, fsync=False) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("alter system set max_prepared_transactions = 5")
        server.restart()
        url = server.create_database("prepared")
        metadata = MetaData()
        sagas_sqlalchemy.sagas_tables(metadata)
        with made(url) as engine:
            metadata.create_all(engine)
        yield url


@pytest.fixture
def heard(url: str) -> Iterator[Heard]:
    """How many hints there were since it was last asked."""
    with ear_of(url) as heard:
        yield heard


@contextmanager
def ear_of(url: str) -> Iterator[Heard]:
    with psycopg.connect(url, autocommit=True) as ear:
        ear.execute("LISTEN sagas_wake")

        def count() -> int:
            with psycopg.connect(url, autocommit=True) as mouth:
                mouth.execute("NOTIFY sagas_wake, 'end'")  # notifications come in the order of commits
            for before, notice in enumerate(ear.notifies(timeout=10)):
                if notice.payload == "end":
                    return before
            raise AssertionError("nothing is heard at all")

        yield count


@contextmanager
def made(url: str, driver: str = "psycopg", **options: Any) -> Iterator[Engine]:
    engine = create_engine(sqlalchemy_url(url, driver), **options)
    try:
        yield engine
    finally:
        engine.dispose()


@pytest.mark.parametrize("way", WITH_SQLALCHEMY)
def test_after_the_commit_and_not_after_a_rollback(way: str, url: str, heard: Heard) -> None:
    """Once for each commit when the connection is given back; a rollback, or nothing at all, sends none."""
    with unit(way, url) as caller:
        close = "remove" if "scoped" in way else "close"
        caller.start(Parcel(), key="a")
        assert heard() == 0
        caller.do("commit")
        assert heard() == ("Connection" not in way)
        caller.start(Parcel(), key="b")
        caller.do("rollback")
        caller.start(Parcel(), key="c")
        caller.do(close)
        assert heard() == ("Connection" in way)
    assert keys(url) == ["a"]


@pytest.mark.parametrize("way", WITH_SQLALCHEMY)
def test_for_a_cancel_too(way: str, url: str, heard: Heard) -> None:
    """A request is work like any other."""
    with unit(way, url) as caller:
        caller.start(Parcel(), key="a")
        caller.do("commit")
    assert heard() == 1
    with unit(way, url) as caller:
        caller.cancel(key="a", reason="x")
        caller.do("commit")
    assert heard() == 1


@pytest.mark.parametrize("way", WITH_SQLALCHEMY)
def test_savepoints(way: str, url: str, heard: Heard) -> None:
    """A released savepoint is no commit; what was rolled back with one sends no hint; its neighbours still do."""

    def nested() -> Any:
        begun = caller.using.begin_nested()
        return caller.wait(begun)

    with unit(way, url) as caller:
        inner = nested()
        caller.start(Parcel(), key="released")
        caller.wait(inner.commit())
        assert heard() == 0
        caller.do("rollback")
        outer = nested()
        inner = nested()
        caller.start(Parcel(), key="gone with the outer one")
        caller.wait(inner.commit())
        caller.wait(outer.rollback())
        caller.do("commit")
    assert heard() == 0
    with unit(way, url) as caller:
        inner = nested()
        caller.start(Parcel(), key="kept")
        caller.wait(inner.commit())
        inner = nested()
        caller.start(Parcel(), key="gone")
        caller.wait(inner.rollback())
        caller.do("commit")
    assert heard() == 1
    assert keys(url) == ["kept"]


@pytest.mark.parametrize("way", ["psycopg Session", "asyncpg AsyncSession", "psycopg2 Connection"])
def test_a_commit_that_fails(way: str, url: str, heard: Heard) -> None:
    """A constraint that is checked at the commit takes the saga along, and no hint goes out."""
    with unit(way, url) as caller:
        caller.start(Parcel(), key="a")
        caller.sql("insert into late values (1)")
        with pytest.raises(IntegrityError):
            caller.do("commit")
        caller.do("rollback")
    assert (heard(), keys(url)) == (0, [])


def test_autocommit(url: str, heard: Heard) -> None:
    """What is committed at once is told when the connection goes back."""
    with made(url, isolation_level="AUTOCOMMIT") as engine, Session(engine) as session:
        Deliver.start(Parcel(), own_transaction=True, using=session)
    assert heard() == 1


def test_a_pool_of_one_connection(url: str, heard: Heard) -> None:
    """No second connection is taken for the hint, and the one it went out on is as it was."""
    with made(url, pool_size=1, max_overflow=0, pool_timeout=1) as engine:
        for key in ("a", "b"):
            with Session(engine) as session, session.begin():
                backend = session.scalar(text("select pg_backend_pid()"))
                Deliver.start(Parcel(), key=key, using=session)
            assert heard() == 1
        with engine.connect() as connection:
            assert connection.scalar(text("select pg_backend_pid()")) == backend
            assert connection.connection.dbapi_connection.autocommit is False  # type: ignore[union-attr]
            connection.rollback()
    with made(url, poolclass=NullPool) as engine:
        with Session(engine) as session, session.begin():
            Deliver.start(Parcel(), key="c", using=session)
        assert heard() == 1


def test_an_engine_that_lives_on(url: str, heard: Heard) -> None:
    """Also after `dispose()`, through an engine with other options, and on a connection that is older than all that."""
    with made(url) as engine:
        old = engine.connect()
        with Session(engine) as session, session.begin():
            Deliver.start(Parcel(), key="a", using=session)
        assert heard() == 1
        with old:
            Deliver.start(Parcel(), key="b", using=old)
            old.commit()
        assert heard() == 1
        engine.dispose()
        serializable = engine.execution_options(isolation_level="SERIALIZABLE")
        for bind in (engine, serializable):
            with Session(bind) as session, session.begin():
                Deliver.start(Parcel(), using=session)
            assert heard() == 1


def test_somebody_elses_transaction(url: str, heard: Heard) -> None:
    """A session that joined a transaction commits nothing of it, so nothing is told when that is rolled back."""
    with made(url) as engine, engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            Deliver.start(Parcel(), key="a", using=session)
            session.commit()
        outer.rollback()
    assert (heard(), keys(url)) == (0, [])


def test_a_connection_that_broke(url: str, heard: Heard) -> None:
    """The server ends it before the commit: an error for the caller, no hint, and the pool goes on."""
    with made(url) as engine:
        with Session(engine) as session:
            Deliver.start(Parcel(), key="a", using=session)
            rows(url, "select pg_terminate_backend(%s)", session.scalar(text("select pg_backend_pid()")))
            with pytest.raises(OperationalError):
                session.commit()
        assert heard() == 0
        with Session(engine) as session, session.begin():
            Deliver.start(Parcel(), key="b", using=session)
    assert (heard(), keys(url)) == (1, ["b"])


def test_without_hints(url: str, heard: Heard) -> None:
    """`wake=False` sends none."""
    with made(url) as engine:
        runtime = sagas_sqlalchemy.Sagas(engine, settings={"wake": False}, name=uuid.uuid4().hex)
        try:
            with Session(engine) as session, session.begin():
                Deliver.start(Parcel(), key="a", using=session)
        finally:
            runtime.close()
    assert (heard(), keys(url)) == (0, ["a"])


def test_a_cancelled_task(url: str, heard: Heard) -> None:
    """A task that is cancelled before its commit leaves neither a saga nor a hint nor a connection."""

    async def view(engine: Any, started: asyncio.Event) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await Deliver.astart(Parcel(), key="a", using=session)
            started.set()
            await asyncio.Event().wait()

    async def request() -> None:
        engine, started = (
            create_async_engine(sqlalchemy_url(url, "asyncpg"), pool_size=1, max_overflow=0),
            asyncio.Event(),
        )
        task = asyncio.create_task(view(engine, started))
        await asyncio.wait_for(started.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        await engine.dispose()

    asyncio.run(request())
    assert (heard(), keys(url)) == (0, [])


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_task_that_is_cancelled_while_it_tells(driver: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its commit, too: it is cancelled, the saga stays, and the pool gets its connection back."""
    monkeypatch.setattr(wake, "NOTIFY", "select pg_advisory_lock(77)")  # takes as long as the test wants

    async def view(engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session:
            await Deliver.astart(Parcel(), key="a", using=session)
            await session.commit()
            await asyncio.Event().wait()

    async def request() -> None:
        engine = create_async_engine(sqlalchemy_url(url, driver), pool_size=1, max_overflow=0, pool_timeout=5)
        task = asyncio.create_task(view(engine))
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(rows, url, WAITING):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with engine.connect() as connection:
            assert await connection.scalar(text("select count(*) from sagas_saga")) == 1
        await engine.dispose()

    with psycopg.connect(url, autocommit=True) as keeper:
        keeper.execute("select pg_advisory_lock(77)")
        asyncio.run(request())


def test_a_pool_that_resets_nothing(url: str, heard: Heard) -> None:
    """A connection that comes back with a transaction still open cannot tell; the pool replaces it."""
    with made(url, pool_reset_on_return=None) as engine:
        connection = engine.connect()
        Deliver.start(Parcel(), key="a", using=connection)
        connection.commit()
        connection.connection.cursor().execute("select 1")
        connection.close()
        assert heard() == 0
        with Session(engine) as session, session.begin():
            Deliver.start(Parcel(), key="b", using=session)
        assert heard() == 1
    assert keys(url) == ["a", "b"]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_two_phases(driver: str, two_phases: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepared transaction is no commit yet; the second phase decides about the saga, and about the hint."""
    monkeypatch.setattr(Throttle, "allows", lambda self: True)
    with ear_of(two_phases) as heard, made(two_phases, driver) as engine:
        with Session(engine, twophase=True) as session:
            Deliver.start(Parcel(), key=f"{driver} committed", using=session)
            session.prepare()
            assert (heard(), keys(two_phases).count(f"{driver} committed")) == (0, 0)
            session.commit()
            assert (heard(), keys(two_phases).count(f"{driver} committed")) == (1, 1)
            Deliver.start(Parcel(), key=f"{driver} rolled back", using=session)
            session.prepare()
            session.rollback()
            Deliver.start(Parcel(), key=f"{driver} given up", using=session)
        assert heard() == 0
    assert [key for key in keys(two_phases) if key.startswith(f"{driver} ")] == [f"{driver} committed"]
