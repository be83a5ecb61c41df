"""The kit with SQLAlchemy: a session that joins an external transaction, which is rolled back after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session

from sagas import ConfigurationError
from sagas.states import Status
from sagas.testing import Kit, Unfinished, since
from sagas_sqlalchemy import Sagas
from tests.sqlalchemy.conftest import engine, make_engine, make_runtime, rows, runtime, shop_template, url
from tests.sqlalchemy.shop import Note, Odd, Order, Placed, PlaceOrder, Reservation, Told, told

__all__ = ["engine", "make_engine", "make_runtime", "runtime", "shop_template", "url"]


@pytest.fixture
def session(engine: Engine, runtime: Sagas) -> Iterator[Session]:
    """The recipe of SQLAlchemy's documentation."""
    with engine.connect() as connection:
        transaction = connection.begin()
        with Session(bind=connection, join_transaction_mode="create_savepoint") as opened:
            yield opened
        transaction.rollback()


@pytest.fixture
def sagas_using(session: Session) -> Session:
    """What a project says in its own conftest."""
    return session


def test_a_saga_runs_to_its_end(session: Session, sagas: Kit, url: str) -> None:
    """On the connection of the session; what is not flushed yet is seen, and nothing is committed."""
    sagas.answers(PlaceOrder).charge.returns("ch_1")
    session.add(Order(id=7, amount=5))
    PlaceOrder.start(Placed(7, 5), key="order-7", using=session)
    sagas.assert_started(PlaceOrder, key="order-7", input=Placed(7, 5))
    ran = sagas.drain()
    assert [str(each) for each in ran] == ["reserve: succeeded", "charge: succeeded", "confirm: succeeded"]
    assert PlaceOrder.get(key="order-7", using=session).status == Status.COMPLETED
    assert session.scalars(select(Note.text)).all() == ["order 7 is paid by ch_1"]
    assert session.scalar(select(func.count()).select_from(Reservation)) == 1
    assert rows(url, "select count(*) from sagas_saga") == [0]
    assert rows(url, "select count(*) from note") == [0]


def test_what_is_undone_and_what_is_left(session: Session, sagas: Kit, url: str) -> None:
    """The session may commit and roll back as in the application, and goes on after that."""
    sagas.answers(PlaceOrder).charge.refuses("card declined")
    session.add(Order(id=7, amount=5))
    session.commit()
    assert sagas.run(PlaceOrder, Placed(7, 5), key="a").status == Status.COMPENSATED
    assert session.scalar(select(func.count()).select_from(Reservation)) == 0
    session.commit()
    session.add(Note(text="lost"))
    session.rollback()
    assert session.scalars(select(Note.text)).all() == []
    assert PlaceOrder.get(key="a", using=session).status == Status.COMPENSATED
    assert rows(url, "select count(*) from orders") == [0]


def test_a_step_that_fails(session: Session, sagas: Kit) -> None:
    """Its savepoint is rolled back, the session of the test goes on, and the story has the traceback."""
    assert sagas.run(Odd, Told("fails_in_flush"), key="a").status == Status.COMPENSATED
    assert "UniqueViolation" in sagas.story(Odd.get(key="a", using=session))
    assert sagas.run(Odd, Told("session.commit", "x"), key="b").status == Status.COMPENSATED
    assert "must not call session.commit()" in sagas.story(Odd.get(key="b", using=session))
    assert sagas.run(Odd, Told("note", "fine"), key="c").status == Status.COMPLETED
    assert session.scalars(select(Note.text)).all() == ["fine"]


@pytest.mark.parametrize("what", ["session.rollback", "connection.commit", "connection.rollback", "sql commit"])
def test_a_step_that_would_end_the_transaction(session: Session, sagas: Kit, url: str, what: str) -> None:
    """It is refused as in production, and the transaction of the test stays as it is."""
    session.add(Order(id=7, amount=5))
    assert sagas.run(Odd, Told(what, "x"), key="a").status == Status.COMPENSATED
    assert "a local step must not call" in sagas.story(Odd.get(key="a", using=session))
    session.add(Note(text="the test's own"))
    session.commit()
    assert session.scalars(select(Note.text)).all() == ["the test's own"]
    assert rows(url, "select count(*) from orders") == [0]


def test_hooks_of_a_step(session: Session, sagas: Kit) -> None:
    """They run when its savepoint is released, the nearest that there is to a commit."""
    assert sagas.run(Odd, Told("hooked", "later"), key="a").status == Status.COMPLETED
    assert told == ["later"]


def test_the_clock(session: Session, sagas: Kit) -> None:
    """Moved, it reaches statements of the session too."""
    moment = sagas.clock.advance(timedelta(days=400))
    sagas.answers(PlaceOrder).charge.times_out()
    session.add(Order(id=7, amount=5))
    with pytest.raises(Unfinished, match="left: charge:do"):
        sagas.run(PlaceOrder, Placed(7, 5), key="a", skip=timedelta(0))
    assert PlaceOrder.get(key="a", using=session).created_at == moment


def test_a_connection(engine: Engine, runtime: Sagas, url: str) -> None:
    """Without a session around it."""
    with engine.connect() as connection, connection.begin() as transaction:
        kit = Kit(connection)
        assert kit.run(Odd, Told("note", "fine")).status == Status.COMPLETED
        transaction.rollback()
    assert rows(url, "select count(*) from note") == [0]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the test began when all that it starts has been there for long."""
    monkeypatch.setattr(since, "_began", UUID(int=since.began().int + (3_600_000 << 80)))


def test_sagas_of_somebody_else_are_left_alone(
    session: Session, sagas: Kit, engine: Engine, url: str, later: None
) -> None:
    """In a database that is not empty nothing is run, answers or not."""
    with Session(engine) as another, another.begin():
        for number in range(7):
            PlaceOrder.start(Placed(number, 5), key=f"order-{number}", using=another)
    run = Odd.start(Told("note", "mine"), key="mine", using=session)
    sagas.answers(PlaceOrder).charge.returns("ch_1")
    before = rows(url, "select (o.*)::text from sagas_outbox o order by id")
    with pytest.raises(ConfigurationError, match=r"7 open sagas .* before this test .*place_order:order-0, .*2 more\. "
                       r"Use an empty database for tests"):  # fmt: skip
        sagas.drain()
    assert rows(url, "select (o.*)::text from sagas_outbox o order by id") == before
    assert Odd.get(id=run.id, using=session).status == Status.RUNNING
    assert [each.key for each in sagas.drain(only=[run])] == ["mine"]
    assert sagas.run(Odd, Told("note", "too"), key="too").status == Status.COMPLETED


def test_what_the_test_began_in_its_own_transaction(session: Session, sagas: Kit, later: None) -> None:
    """A fixture of a wider scope may have started it: it is seen by nobody else, so it is not somebody else's."""
    run = Odd.start(Told("note", "mine"), key="mine", using=session)
    sagas.drain()
    sagas.assert_status(run, Status.COMPLETED)


def test_what_the_test_has_committed(engine: Engine, runtime: Sagas, url: str) -> None:
    """As an application does when one of its endpoints is called: another connection, and then the kit."""
    with Session(engine) as request, request.begin():
        Odd.start(Told("note", "mine"), key="mine", using=request)
    with Session(engine) as look:
        assert [str(each) for each in Kit(look).drain()] == ["go: succeeded"]
        look.commit()
    assert rows(url, "select status from sagas_saga") == ["completed"]


def test_other_drivers_are_refused(make_engine: Callable[..., Any], make_runtime: Any) -> None:
    """With what to change."""
    engine = make_engine("psycopg2")
    make_runtime(engine)
    with Session(engine) as session, pytest.raises(ConfigurationError, match=r"through psycopg2.*postgresql\+psycopg:"):
        Kit(session).drain()


@pytest.mark.parametrize("kind", [AsyncSession, lambda engine: async_scoped_session(async_sessionmaker(engine), int)])
def test_asynchronous_sessions_are_refused(make_engine: Callable[..., Any], kind: Callable[..., Any]) -> None:
    """The kit runs in the thread of the test; whatever it is asked, it says what to give it instead."""
    kit = Kit(kind(make_engine("asyncpg")))
    for call in (kit.drain, lambda: kit.run(PlaceOrder, Placed(7, 5)), lambda: kit.started(PlaceOrder)):
        with pytest.raises(ConfigurationError, match=r"is asynchronous.*return a session of psycopg 3 beside it"):
            call()


def test_without_a_runtime(engine: Engine) -> None:
    """Local steps would not know how sessions are made."""
    with Session(engine) as session, pytest.raises(ConfigurationError, match=r"no Sagas\(\.\.\.\) runtime"):
        Kit(session).drain()
