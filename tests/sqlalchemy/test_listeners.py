"""What listens to SQLAlchemy's events is there once, however many engines and connections come and go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Pool, create_engine, event
from sqlalchemy.event import registry
from sqlalchemy.event.attr import _ClsLevelDispatch
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sagas.errors import ConfigurationError
from sagas_sqlalchemy import Sagas
from sagas_sqlalchemy.connecting import connection_parameters
from sagas_sqlalchemy.keeping import Guard
from sagas_sqlalchemy.testing import borrow
from tests.sqlalchemy.conftest import DRIVERS, EngineMaker, drain, rows
from tests.sqlalchemy.shop import Odd, Order, Placed, PlaceOrder, Told
from tests.sqlalchemy.ways import Deliver, Parcel

RuntimeMaker = Callable[..., Sagas]

OPEN = "select pid from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
STARTS = 200


def listeners() -> list[Any]:
    """Where functions of ours listen to engines, connections and pools, as SQLAlchemy's registry has it."""
    return [
        owner()
        for owner, kept in registry._collection_to_key.copy().items()  # at once: a collection of garbage may change it
        for listener in kept
        if getattr(listener(), "__module__", "").removeprefix("sagas_sqlalchemy.") in ("wake", "local", "connecting")
    ]


async def _start(engine: AsyncEngine) -> None:
    for _ in range(STARTS):
        async with AsyncSession(engine) as session, session.begin():
            await Deliver.astart(Parcel(), using=session)
    await engine.dispose()


@pytest.mark.parametrize("driver", DRIVERS)
def test_they_do_not_accumulate(driver: str, make_engine: EngineMaker, make_runtime: RuntimeMaker, url: str) -> None:
    """Only on classes, as many after many starts as before; no connection is left out, or in a transaction."""
    before = len(listeners())
    engine = make_engine(driver, pool_size=1, max_overflow=0)
    runtime = make_runtime(engine, settings={"wake": True})
    plain = runtime.engine
    connection_parameters(plain, {})
    if isinstance(engine, AsyncEngine):
        asyncio.run(_start(engine))
    else:
        for _ in range(STARTS):
            with Session(engine) as session, session.begin():
                Deliver.start(Parcel(), using=session)
    assert plain.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert rows(url, OPEN) == []
    assert rows(url, "select count(*) from sagas_saga") == [STARTS]
    found = listeners()
    assert len(found) == before > 0
    assert all(isinstance(owner, _ClsLevelDispatch) for owner in found)


def test_local_steps_leave_nothing_on_a_connection(
    engine: Engine, make_runtime: RuntimeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens to the single connection, and one that lives on after a test's transaction is as it was."""
    listened: list[Any] = []
    original = event.listen

    def listen(target: Any, *rest: Any, **options: Any) -> None:
        if isinstance(target, Connection | Engine | Pool):
            listened.append(target)
        original(target, *rest, **options)

    monkeypatch.setattr(event, "listen", listen)
    runtime = make_runtime(engine)
    with Session(engine) as session, session.begin():
        order = Order(amount=5)
        session.add(order)
        session.flush()
        PlaceOrder.start(Placed(order.id, 5), using=session)
    drain(runtime)
    with engine.connect() as connection:
        before = dict(connection.__dict__)
        with borrow(connection).local() as local, local.savepoint():
            assert local.session is not None
            assert local.session.connection() is connection
        assert set(connection.__dict__) == set(before)
        connection.rollback()
    assert listened == []


def test_asking_an_engine_disturbs_nobody_who_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may ask how to connect while another thread is in the middle of connecting, in a slow listener."""
    engine = create_engine("postgresql+psycopg://user@/shop?host=/nowhere")
    inside, go_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    @event.listens_for(engine, "do_connect")
    def slow(*_: Any) -> None:
        if threading.current_thread() is thread:
            inside.set()
            assert go_on.wait(30)

    def connect() -> None:
        try:
            engine.connect()
        except BaseException as problem:
            failures.append(problem)

    thread = threading.Thread(target=connect)
    thread.start()
    assert inside.wait(30)
    found = connection_parameters(engine, {})
    go_on.set()
    thread.join(30)
    assert found is not None and found["host"] == "/nowhere"
    assert [type(each).__name__ for each in failures] == ["OperationalError"], failures


@pytest.mark.parametrize("text", ["leaves dirty", "sql commit", "connection.commit"])
def test_the_guard_stays_on_engines_with_options(
    text: str, engine: Engine, make_runtime: RuntimeMaker, url: str
) -> None:
    """An engine that shares another's pool, in AUTOCOMMIT at that: a local step that fails leaves nothing behind."""
    runtime = make_runtime(engine.execution_options(isolation_level="AUTOCOMMIT"))
    with Session(engine) as session, session.begin():
        Odd.start(Told(text, "x"), using=session)
    drain(runtime)
    assert rows(url, "select count(*) from note") == [0]
    assert rows(url, OPEN) == []


@pytest.mark.parametrize(
    ("statement", "ends"),
    [
        ("select 1; commit", True),
        ("/* a; b */ -- c\n COMMIT", True),
        ("rollback to savepoint a; rollback", True),
        ("select 1;;end", True),
        ("rollback to savepoint a", False),
        ("insert into note (text) values ('a; commit')", False),
        ("do $$ begin perform 1; end $$", False),
        ("do $a$ begin commit; end $a$; select 'begin'", False),  # Postgres itself refuses this one
        ("update orders set begin = 1 -- ; commit", False),
        ("select commit from started", False),
        ("select 1 as \"it's\"; commit; select 'x'", True),
        (r"select E'don\'t; commit'", False),
        ("rollback work to savepoint a", False),
        ("rollback work", True),
        ("-- x\rcommit", True),
        ("/* /* */ ' */; commit; select '", True),
        ("/* /* a */ b; commit */ select 1", False),
        ("select a$b$c from t; commit; select x$b$ from t", True),
        ("prepare/**/transaction 'x'", True),
        ("rollback /* all of it */ to savepoint a", False),
        ("select $q$;commit$q$", False),
    ],
)
def test_which_statements_end_a_transaction(statement: str, ends: bool) -> None:
    """Wherever it stands among several, and not where it is only quoted or part of a function."""
    guard = Guard()
    guard.savepoint = "that of a body"
    refused = pytest.raises(ConfigurationError) if ends else nullcontext()
    with refused:
        guard.look_at(statement)
    assert (guard.offence is not None) is ends
