"""`using=` every kind of session and connection: one transaction with the caller's own writes, whatever the driver."""

from __future__ import annotations

import asyncio
import traceback
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

import sagas_sqlalchemy  # noqa: F401 - makes SQLAlchemy known
from sagas import (
    ConfigurationError,
    InvalidInput,
    KeyConflict,
    NotInTransaction,
    OnExisting,
    SagaNotFound,
    StoreNotReady,
    engine,
    ports,
)
from sagas.states import Status
from sagas.testing import Kit
from sagas.testing.servers import Postgres
from sagas_sqlalchemy.callers import sqlalchemy_caller
from tests.sqlalchemy.ways import (
    AWAITED,
    BARE,
    BLOCKING,
    WITH_SQLALCHEMY,
    Deliver,
    Parcel,
    keys,
    rows,
    sqlalchemy_url,
    unit,
)

EVERY_WAY = WITH_SQLALCHEMY + BARE
SECRET = Parcel(note="MARKER")
ODD = "a:b ::c %s %% %(x)s $1 \\ ' \" \U0001f600 ü\u2028\t;--"


@pytest.fixture(scope="module")
def database(postgres_server: Postgres, template_database: str) -> Iterator[str]:
    name = f"callers_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name, template=template_database)
    postgres_server.drop_database(name)


@pytest.fixture
def url(database: str) -> str:
    """URL of a migrated database without sagas."""
    with psycopg.connect(database) as connection:
        connection.execute("set local sagas.pruning = 'on'")
        for table in ("outbox", "saga", "log", "dedupe"):
            connection.execute(f"delete from sagas_{table}")
        connection.execute("drop table if exists business")
        connection.execute("create table business (id int)")
    return database


@pytest.mark.parametrize("way", EVERY_WAY)
def test_both_or_neither(way: str, url: str) -> None:
    """The saga and the caller's own row are committed together, seen by the caller before, and by nobody else."""
    with unit(way, url) as caller:
        caller.sql("insert into business values (1)")
        run = caller.start(Parcel(7), key="kept", headers={"a": "b"})
        assert (run.created, run.status, run.key) == (True, Status.RUNNING, "kept")
        assert caller.get(key="kept").id == caller.get(id=run.id).id == run.id
        caller.cancel(key="kept", reason="changed my mind")
        assert keys(url) == []
        caller.do("commit")
        caller.sql("insert into business values (2)")
        caller.start(Parcel(8), key="gone")
        caller.do("rollback")
    assert (keys(url), rows(url, "select id from business")) == (["kept"], [(1,)])
    assert rows(url, "select kind from sagas_outbox order by kind") == [("cancel",), ("step",)]
    assert rows(url, "select data->'saga'->'input'->>'number' from sagas_log") == [("7",)]


@pytest.mark.parametrize("way", EVERY_WAY)
def test_a_transaction_that_nobody_commits_leaves_nothing(way: str, url: str) -> None:
    """`start()` commits nothing, whether the transaction was begun by hand or by the first statement."""
    with unit(way, url) as caller:
        assert caller.start(Parcel(), key="a").created
    assert keys(url) == []


@pytest.mark.parametrize("way", EVERY_WAY)
def test_a_key_that_is_taken(way: str, url: str) -> None:
    """The same input gives the same saga, another a conflict, and the transaction stays usable."""
    with unit(way, url) as caller:
        first = caller.start(Parcel(1), key="a")
        again = caller.start(Parcel(1), key="a")
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(KeyConflict, match="another input"):
            caller.start(Parcel(2), key="a")
        with pytest.raises(KeyConflict, match="RAISE"):
            caller.start(Parcel(1), key="a", on_existing=OnExisting.RAISE)
        with pytest.raises(SagaNotFound, match=r"no saga callers\.deliver with key 'b'"):
            caller.get(key="b")
        with pytest.raises(InvalidInput, match="NUL"):
            caller.start(Parcel(), key="a\x00")
        caller.sql("update sagas_saga set input_hash = 'of a release with fewer fields'")
        assert caller.start(Parcel(1), key="a").id == first.id
        caller.do("commit")
    assert keys(url) == ["a"]


@pytest.mark.parametrize("way", EVERY_WAY)
def test_any_text_goes_through_any_driver(way: str, url: str) -> None:
    """Colons, percent signs and quotes are data, however a driver writes its parameters."""
    with unit(way, url) as caller:
        caller.start(Parcel(note=ODD), key=ODD, headers={ODD: ODD})
        assert caller.get(key=ODD).key == ODD
        caller.cancel(key=ODD, reason=ODD)
        caller.do("commit")
    assert rows(url, "select data->'saga'->'input'->>'note' from sagas_log") == [(ODD,)]
    assert rows(url, "select payload->>'reason' from sagas_outbox where kind = 'cancel'") == [(ODD,)]


@pytest.mark.parametrize("way", WITH_SQLALCHEMY)
def test_autocommit_is_no_transaction(way: str, url: str) -> None:
    """Where each statement commits by itself, `start()` refuses, unless that is what the caller wants."""
    with unit(way, url, isolation_level="AUTOCOMMIT") as caller:
        with pytest.raises(NotInTransaction, match=r"no transaction is open on .*own_transaction=True"):
            caller.start(Parcel(), key="a")
        assert caller.start(Parcel(), key="b", own_transaction=True).created
        assert keys(url) == ["b"]
        caller.cancel(key="b", reason="asked for")
    assert rows(url, "select kind from sagas_outbox order by kind") == [("cancel",), ("step",)]


def logged(problem: BaseException) -> str:
    """What a web server writes down of an error."""
    return "".join(traceback.format_exception(problem))


@pytest.mark.parametrize("way", EVERY_WAY)
def test_a_database_without_our_tables(way: str, postgres_server: Postgres) -> None:
    """The error says what is missing and what to run, and in no log that it ends in does it tell the input."""
    name = f"callers_{uuid.uuid4().hex[:12]}"
    empty = postgres_server.create_database(name)
    try:
        with unit(way, empty) as caller, pytest.raises(StoreNotReady, match="lacks the tables of sagas: run") as found:
            caller.start(SECRET, key="a")
    finally:
        postgres_server.drop_database(name)
    assert "MARKER" not in logged(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize("way", WITH_SQLALCHEMY)
def test_other_errors_tell_no_input_either(way: str, url: str) -> None:
    """SQLAlchemy ends its errors with the parameters; those of `start()` are what it was given, and stay out."""
    with unit(way, url) as caller:
        with pytest.raises(DBAPIError):
            caller.sql("select 1/0")
        with pytest.raises(DBAPIError, match="current transaction is aborted") as found:
            caller.start(SECRET, key=SECRET.note)
    assert "MARKER" not in logged(found.value)


@pytest.mark.parametrize("way", EVERY_WAY)
def test_a_read_only_database(way: str, url: str) -> None:
    """A replica, or a primary after a failover, is named as such."""
    with unit(way, url) as caller:
        caller.sql("set transaction read only")
        with pytest.raises(StoreNotReady, match=r"is read-only .*connect to the primary") as found:
            caller.start(SECRET, key="a")
    assert "MARKER" not in logged(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize("way", [*AWAITED, "bare AsyncConnection"])
def test_a_sync_call_names_its_twin(way: str, url: str) -> None:
    """Given something to be awaited, the error says what to write."""
    with unit(way, url) as caller:
        for call, twin in (
            (lambda: Deliver.start(Parcel(), using=caller.using), r"await Deliver\.astart"),
            (lambda: Deliver.get(key="a", using=caller.using), r"await Deliver\.aget"),
            (lambda: Deliver.cancel(key="a", reason="x", using=caller.using), r"await Deliver\.acancel"),
            (lambda: engine.request(None, "cancel", key="a", reason="x", using=caller.using), "await arequest"),
        ):
            with pytest.raises(ConfigurationError, match=rf"is asynchronous; write `{twin}\(\.\.\.\)`"):
                call()


@pytest.mark.parametrize("way", [*BLOCKING, "bare Connection"])
def test_a_twin_does_not_hold_up_the_event_loop(way: str, url: str) -> None:
    """Given something that blocks, it refuses before any statement is sent."""
    with (
        unit(way, url) as caller,
        pytest.raises(
            ConfigurationError, match=r"Deliver\.astart\(\): .* would hold up the event loop; call Deliver\."
        ),
    ):
        asyncio.run(Deliver.astart(Parcel(), using=caller.using))


@pytest.mark.parametrize("way", ["asyncpg AsyncSession", "psycopg AsyncSession"])
def test_sync_code_inside_of_run_sync(way: str, url: str) -> None:
    """Code that `run_sync` calls uses the plain calls on the session that it is given."""

    def business(session: Session) -> Any:
        return Deliver.start(Parcel(), key="a", using=session)

    with unit(way, url) as caller:
        assert caller.wait(caller.using.run_sync(business)).created
        caller.do("commit")
    assert keys(url) == ["a"]


@pytest.mark.parametrize("way", [*AWAITED, "bare AsyncConnection"])
def test_requests_have_twins_too(way: str, url: str) -> None:
    """What operators ask for can be awaited as well."""
    with unit(way, url) as caller:
        run = caller.start(Parcel(), key="a")
        asked = caller.wait(engine.arequest(None, "retry", id=run.id, reason="x", actor="me", using=caller.using))
        assert asked.id == run.id == caller.wait(engine.afind(None, id=run.id, using=caller.using)).id
        caller.do("commit")
    assert rows(url, "select payload->>'actor' from sagas_outbox where kind = 'retry'") == [("me",)]


@pytest.mark.parametrize("kind", [Session, Connection])
def test_only_postgres(kind: type) -> None:
    """A session of another database is refused without connecting."""
    other = create_engine("sqlite://")
    with Session(other) if kind is Session else other.connect() as using:
        with pytest.raises(ConfigurationError, match="need Postgres, this one is for sqlite"):
            Deliver.start(Parcel(), using=using)
        assert not using.in_transaction()
    other.dispose()


def test_what_has_no_transaction(url: str) -> None:
    """An engine, an async connection that is not open, and anything else are refused in words."""
    plain = create_engine(sqlalchemy_url(url))
    with pytest.raises(ConfigurationError, match="using=Engine: it has no transaction"):
        Deliver.start(Parcel(), using=plain)
    engine = create_async_engine(sqlalchemy_url(url))
    for using, name in ((engine, "AsyncEngine"), (async_sessionmaker(engine), "async_sessionmaker")):
        with pytest.raises(ConfigurationError, match=f"using={name}: it has no transaction; pass an AsyncSession"):
            asyncio.run(Deliver.astart(Parcel(), using=using))
    with pytest.raises(ConfigurationError, match="neither a Django database alias nor a session or connection"):
        Deliver.start(Parcel(), using=object())
    connection = create_async_engine(sqlalchemy_url(url)).connect()
    with pytest.raises(ConfigurationError, match="not connected yet"):
        asyncio.run(Deliver.astart(Parcel(), using=connection))


def test_where_using_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Django there is no default: what to pass is said in words of SQLAlchemy."""
    monkeypatch.setattr(ports, "_adapters", [sqlalchemy_caller])
    calls: list[tuple[str, Any]] = [
        (r"Deliver\.start", lambda: Deliver.start(Parcel())),
        (r"Deliver\.astart", lambda: asyncio.run(Deliver.astart(Parcel()))),
    ]
    for name, call in calls:
        with pytest.raises(ConfigurationError, match=rf"^{name}\(\): pass using= .* using=self\.session$"):
            call()
    with pytest.raises(ConfigurationError, match=r"^fixture sagas_using .*; override this fixture"):
        Kit().drain()


def test_concurrent_async_sessions(url: str) -> None:
    """Twenty tasks of one loop start one saga of one key."""

    async def one(maker: Any) -> bool:
        async with AsyncSession(maker) as session, session.begin():
            return bool((await Deliver.astart(Parcel(), key="a", using=session)).created)

    async def all_of_them() -> list[bool]:
        maker = create_async_engine(sqlalchemy_url(url, "asyncpg"), pool_size=5)
        try:
            return await asyncio.gather(*[one(maker) for _ in range(20)])
        finally:
            await maker.dispose()

    assert sorted(asyncio.run(all_of_them())) == [False] * 19 + [True]


@pytest.mark.parametrize("way", EVERY_WAY)
def test_results_through_any_driver(way: str, url: str) -> None:
    """The statement of `results_of` fits every driver; nothing has run here, so that there are none."""
    with unit(way, url) as caller:
        run = caller.start(Parcel(), key="a")
        read = Deliver.carry.aresults_of if caller.awaited else Deliver.carry.results_of
        assert caller.wait(read([run.id], using=caller.using)) == {}
