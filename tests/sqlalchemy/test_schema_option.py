"""`schema=`: everything of ours in a schema of its own, and nobody's `search_path` touched."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import ForeignKey, create_engine, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, selectinload

from sagas import Retry, Saga, step
from sagas.errors import ConfigurationError
from sagas.testing.servers import Postgres
from sagas_sqlalchemy import HasSagas, Sagas, sagas_tables
from sagas_sqlalchemy.testing import borrow
from tests.sqlalchemy.conftest import DRIVERS, drain, rows, with_driver

SCHEMA = 'Sa"ga s'  # a name that must be quoted
RuntimeMaker = Callable[..., Sagas]


class Base(DeclarativeBase):
    pass


sagas_tables(Base.metadata, schema=SCHEMA)


class Ticket(HasSagas, Base):
    __tablename__ = "ticket"
    id: Mapped[int] = mapped_column(primary_key=True)


class Seat(HasSagas, Base):
    __tablename__ = "seat"
    row: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)


class Stamp(Base):
    __tablename__ = "stamp"
    id: Mapped[int] = mapped_column(primary_key=True)
    ticket_id: Mapped[int] = mapped_column(ForeignKey("ticket.id"))
    path: Mapped[str]


class StampTicket(Saga[int], name="sa.stamp", version=1):
    @step(retry=Retry(max_attempts=1))
    def stamp(self) -> str:
        path: str = self.session.scalar(text("show search_path"))
        self.session.add(Stamp(ticket_id=self.input, path=path))
        return path

    @stamp.compensate
    def unstamp(self, path: str) -> None:
        pass


@pytest.fixture
def empty(postgres_server: Postgres) -> Iterator[str]:
    """URL of a database in which the tables are made in the schema."""
    name = f"sa_schema_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    engine = create_engine(with_driver(url, "psycopg"))
    Base.metadata.create_all(engine)
    engine.dispose()
    yield url
    postgres_server.drop_database(name)


def begin(url: str) -> Any:
    engine = create_engine(with_driver(url, "psycopg2"))
    with Session(engine) as session, session.begin():
        ticket = Ticket()
        session.add(ticket)
        session.flush()
        run = StampTicket.start(ticket.id, subject=ticket, using=session)
        assert session.scalar(text("show search_path")) == '"$user", public'
    engine.dispose()
    return run


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_saga_in_a_schema(driver: str, empty: str, make_runtime: RuntimeMaker) -> None:
    """Started, run and found there; the application's statements see its own path, with ours behind it."""
    from sqlalchemy.ext.asyncio import create_async_engine

    create = create_async_engine if driver in ("asyncpg", "psycopg_async") else create_engine
    engine: Any = create(with_driver(empty, driver))
    runtime = make_runtime(engine, metadata=Base.metadata)
    run = begin(empty)
    drain(runtime)
    assert rows(empty, "select path from stamp") == ['"$user", public, "Sa""ga s"']
    assert rows(empty, "select count(*) from pg_tables where tablename like 'sagas%' and schemaname = 'public'") == [0]
    look = create_engine(with_driver(empty, "psycopg"))
    with Session(look) as session:
        (ticket,) = session.scalars(select(Ticket).options(selectinload(Ticket.sagas)))
        assert [(saga.id, saga.status) for saga in ticket.sagas] == [(run.id, "completed")]
        assert StampTicket.get(id=run.id, using=session).status == "completed"
    look.dispose()
    if driver in ("psycopg", "psycopg2"):
        engine.dispose()


@pytest.mark.parametrize("path", ['"$user", public', "", '"Sa""ga s"'])
def test_the_path_of_a_test(empty: str, make_runtime: RuntimeMaker, path: str) -> None:
    """The connection that a test lends looks there too, once, however often it is lent; and again after a rollback."""
    engine = create_engine(with_driver(empty, "psycopg"))
    make_runtime(engine, metadata=Base.metadata)
    ours = path if path.endswith('"Sa""ga s"') else ", ".join(filter(None, (path, '"Sa""ga s"')))
    with engine.connect() as connection:
        connection.execute(text("select set_config('search_path', :path, true)"), {"path": path})
        with connection.begin_nested() as savepoint:
            store = borrow(connection)
            for _ in range(3):
                store.connect()
            assert connection.scalar(text("show search_path")) == ours
            savepoint.rollback()
        assert connection.scalar(text("show search_path")) == path
        store.connect()
        assert connection.scalar(text("show search_path")) == ours
    engine.dispose()


def test_tables_of_another_schema_in_the_way(empty: str, make_runtime: RuntimeMaker) -> None:
    """Where `search_path` leads to other tables of sagas, local steps would go to those: refused, in words."""
    with psycopg.connect(empty) as connection:
        connection.execute("create table sagas_outbox (id bigint)")
    engine = create_engine(with_driver(empty, "psycopg"))
    runtime = make_runtime(engine, metadata=Base.metadata)
    with pytest.raises(ConfigurationError, match="leads to tables of sagas in schema public, not in"), \
            runtime.store.local():  # fmt: skip
        pass
    engine.dispose()


def test_a_key_of_several_columns(empty: str, make_runtime: RuntimeMaker) -> None:
    """An object is found by all of it, quotes and all."""
    engine = create_engine(with_driver(empty, "psycopg"))
    make_runtime(engine, metadata=Base.metadata)
    with Session(engine) as session, session.begin():
        seats = [Seat(row='ä"\\ b', number=1), Seat(row='ä"\\ b', number=2)]
        session.add_all(seats)
        runs = [StampTicket.start(seat.number, subject=seat, using=session) for seat in seats]
    with Session(engine) as session:
        found = session.scalars(select(Seat).order_by(Seat.number).options(selectinload(Seat.sagas)))
        assert [[saga.id for saga in seat.sagas] for seat in found] == [[run.id] for run in runs]
    engine.dispose()


def test_a_key_whose_text_is_not_the_same() -> None:
    """Sagas could not be found by it: said when the mappers are configured."""

    class Other(DeclarativeBase):
        pass

    class Moment(HasSagas, Other):
        __tablename__ = "moment"
        at: Mapped[datetime] = mapped_column(primary_key=True)

    with pytest.raises(ConfigurationError, match=r"Moment\.sagas: .*HasSagas is for keys"):
        Other.registry.configure()
    Other.registry.dispose()


def test_one_metadata_one_schema() -> None:
    """Asked for another schema, the answer is where they are."""
    with pytest.raises(ConfigurationError, match="on this metadata already, in schema"):
        sagas_tables(Base.metadata, schema="elsewhere")
    assert sagas_tables(Base.metadata, schema=SCHEMA).saga.schema == SCHEMA
