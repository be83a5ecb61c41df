"""Local steps: one transaction with the log, in a session that cannot end it, on every driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, selectinload, sessionmaker

from sagas_sqlalchemy import Sagas, sagas_models
from tests.sqlalchemy.conftest import DRIVERS, EngineMaker, begin, drain, rows
from tests.sqlalchemy.shop import Base, Odd, Order, Placed, PlaceOrder, Told, told

RuntimeMaker = Callable[..., Sagas]


def place(engine: Engine, amount: int) -> Any:
    """Place an order of its own and start its saga."""
    with Session(engine) as session, session.begin():
        order = Order(amount=amount)
        session.add(order)
        session.flush()
        return PlaceOrder.start(Placed(order.id, amount), subject=order, using=session)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_saga_on_every_driver(
    driver: str, engine: Engine, make_engine: EngineMaker, make_runtime: RuntimeMaker, url: str
) -> None:
    """Whatever driver the application uses, its models work in local steps, and the money is taken once."""
    runtime = make_runtime(make_engine(driver))
    place(engine, 10)
    drain(runtime)
    assert rows(url, "select status from sagas_saga") == ["completed"]
    assert rows(url, "select amount from bank") == [10]
    assert len(rows(url, "select 1 from reservation")) == len(rows(url, "select 1 from note")) == 1


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_refused_order_is_undone(
    driver: str, engine: Engine, make_engine: EngineMaker, make_runtime: RuntimeMaker, url: str
) -> None:
    """What the bank refuses is compensated: nothing is left of the order but the order."""
    place(engine, 5000)
    drain(make_runtime(make_engine(driver)))
    assert rows(url, "select status from sagas_saga") == ["compensated"]
    assert rows(url, "select 1 from bank") == rows(url, "select 1 from reservation") == []


ENDING = ["session.commit", "session.rollback", "session.close", "session.begin", "connection.commit",
          "connection.rollback", "pooled commit", "raw commit", "raw rollback", "sql commit", "sql hidden commit",
          "sql commented commit", "sql rollback", "swallowed commit", "swallowed close"]  # fmt: skip


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("what", ENDING)
def test_a_body_cannot_end_the_transaction(what: str, alone: bool, engine: Engine, runtime: Sagas, url: str) -> None:
    """It gets an error that says what to do instead; nothing of the step is committed, its neighbours do not notice."""
    neighbours = [] if alone else [Told("note", "before"), Told("note", "after")]
    begin(engine, Odd, *neighbours[:1], Told(what, "lost"), *neighbours[1:])
    drain(runtime)
    (error,) = rows(url, "select data->'error'->>'message' from sagas_log where kind = 'step_failed'")
    assert "a local step must not call" in error and "commits together with its log entry" in error
    assert sorted(rows(url, "select text from note")) == sorted(each.text for each in neighbours)


@pytest.mark.parametrize("what", ["fails_in_flush", "leaves dirty", "swallows flush"])
def test_a_failed_flush_costs_its_own_step_only(what: str, engine: Engine, runtime: Sagas, url: str) -> None:
    """The neighbours in the same transaction are committed, and a swallowed error commits nothing by halves."""
    begin(engine, Odd, Told("note", "before"), Told(what, "lost"), Told("note", "after"))
    drain(runtime)
    assert sorted(rows(url, "select text from note")) == ["after", "before"]
    assert sorted(rows(url, "select status from sagas_saga")) == ["compensated", "completed", "completed"]


def test_a_body_may_use_savepoints(engine: Engine, runtime: Sagas, url: str) -> None:
    """What fails inside of its own savepoint can be recovered from."""
    begin(engine, Odd, Told("recovers", "kept"))
    drain(runtime)
    assert rows(url, "select text from note") == ["kept"]
    assert rows(url, "select data->'result' from sagas_log where kind = 'step_done'") == ["recovered"]


def test_commit_listeners_are_called_after_the_commit(
    engine: Engine, runtime: Sagas, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Once for each step that registered one, and never before what they speak of is there for others to see."""
    seen: list[list[str]] = []

    class Watching(list[str]):
        def append(self, text: str) -> None:
            seen.append(rows(url, f"select text from note where text = '{text}'"))
            super().append(text)

    watching = Watching()
    monkeypatch.setattr("tests.sqlalchemy.shop.told", watching)
    begin(engine, Odd, *(Told("hooked", text) for text in "abc"))
    drain(runtime)
    assert sorted(watching) == ["a", "b", "c"] and sorted(seen) == [["a"], ["b"], ["c"]]


def test_listeners_of_a_step_that_fails_are_forgotten(engine: Engine, runtime: Sagas, url: str) -> None:
    """What did not happen is not told."""
    begin(engine, Odd, Told("hooked", "same"))
    begin(engine, Odd, Told("note", "same"))
    drain(runtime)
    assert rows(url, "select text from note") == ["same"]
    assert told in ([], ["same"])


@pytest.mark.parametrize("make", [sessionmaker, scoped_session, async_sessionmaker])
def test_sessions_are_those_of_the_application(
    make: Any, make_engine: EngineMaker, engine: Engine, make_runtime: RuntimeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session class and options of one's own are used in local steps, also those of an async factory."""

    class OurSession(Session):
        pass

    seen: list[Any] = []
    monkeypatch.setitem(
        __import__("tests.sqlalchemy.shop", fromlist=["ODD"]).ODD, "look", lambda self: seen.append(self.session)
    )
    if make is async_sessionmaker:
        source: Any = async_sessionmaker(make_engine("asyncpg"), sync_session_class=OurSession, info={"mine": 1})
    else:
        source = sessionmaker(engine, class_=OurSession, info={"mine": 1})
        source = scoped_session(source) if make is scoped_session else source
    begin(engine, Odd, Told("look"))
    drain(make_runtime(source))
    (session,) = seen
    assert isinstance(session, OurSession) and session.info["mine"] == 1


def test_an_autocommit_engine_still_has_transactions(
    engine: Engine, make_engine: EngineMaker, make_runtime: RuntimeMaker, url: str
) -> None:
    """Local steps are all or nothing, whatever isolation level the application's engine is set to."""
    begin(engine, Odd, Told("session.commit", "lost"), Told("note", "kept"))
    drain(make_runtime(make_engine(isolation_level="AUTOCOMMIT")))
    assert rows(url, "select text from note") == ["kept"]


def test_a_connection_lost_in_a_body(engine: Engine, runtime: Sagas, url: str) -> None:
    """Its neighbours run one by one, and so does it; nothing is written twice, nothing is lost."""
    begin(engine, Odd, Told("note", "before"), Told("dies once", "mine"), Told("note", "after"))
    drain(runtime)
    assert sorted(rows(url, "select text from note")) == ["after", "before", "mine"]
    assert rows(url, "select distinct status from sagas_saga") == ["completed"]


def test_ended_connections_are_replaced(engine: Engine, runtime: Sagas, url: str) -> None:
    """A pool whose connections the server has ended costs no step an attempt."""
    with engine.connect(), engine.connect():
        pass
    rows(url, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
              " and datname = current_database()")  # fmt: skip
    other = create_engine(engine.url)
    begin(other, Odd, Told("note", "kept"))
    other.dispose()
    drain(runtime)
    assert rows(url, "select text from note") == ["kept"]
    assert rows(url, "select 1 from sagas_log where kind = 'step_failed'") == []


def test_an_object_has_its_sagas(engine: Engine, runtime: Sagas) -> None:
    """`order.sagas` are the sagas started with it as subject, newest first, and those of no other."""
    first, second = place(engine, 1), place(engine, 2)
    with Session(engine) as session, session.begin():
        order = session.scalars(select(Order).where(Order.amount == 1)).one()
        again = PlaceOrder.start(Placed(order.id, 7), subject=order, using=session)
    with Session(engine) as session:
        orders = session.scalars(select(Order).order_by(Order.id).options(selectinload(Order.sagas))).all()
        assert [[saga.id for saga in order.sagas] for order in orders] == [[again.id, first.id], [second.id]]
        assert session.scalars(select(Order).where(Order.sagas.any(id=second.id))).one().amount == 2
        lazy = session.get_one(Order, orders[0].id, populate_existing=True)
        session.expire(lazy)
        assert lazy.sagas[0].status == "running" and lazy.sagas[0].key


def test_an_object_has_its_sagas_in_async_sessions(engine: Engine, make_engine: EngineMaker, runtime: Sagas) -> None:
    """Loaded with the object, as everything is there."""
    run, made = place(engine, 1), make_engine("asyncpg")

    async def look() -> list[Any]:
        async with AsyncSession(made) as session:
            order = (await session.scalars(select(Order).options(selectinload(Order.sagas)))).one()
            found = [saga.id for saga in order.sagas]
        await made.dispose()
        return found

    assert asyncio.run(look()) == [run.id]


def test_mapped_rows_are_read_only(engine: Engine, runtime: Sagas) -> None:
    """A saga changes through the engine, never by editing its row."""
    place(engine, 1)
    models = sagas_models(Base)
    with Session(engine) as session:
        saga = session.scalars(select(models.saga)).one()
        saga.status = "completed"
        with pytest.raises(TypeError, match="SagaRow is read-only"):
            session.flush()
    with Session(engine) as session:
        session.delete(session.scalars(select(models.outbox)).one())
        with pytest.raises(TypeError, match="OutboxRow is read-only"):
            session.flush()
