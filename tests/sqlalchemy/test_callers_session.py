"""A session is left as it was: nothing is flushed, expired, begun or closed behind its user's back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sagas import ConfigurationError, InvalidInput, NotInTransaction, PayloadTooLarge
from sagas.testing.servers import Postgres
from sagas_sqlalchemy.alembic import upgrade
from sagas_sqlalchemy.callers import sqlalchemy_caller
from sagas_sqlalchemy.runtime import Sagas
from tests.sqlalchemy.ways import Deliver, Parcel, keys, rows, sqlalchemy_url


class Base(DeclarativeBase):
    metadata = MetaData()


class Customer(Base):
    __tablename__ = "callers_customer"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(default="")


class Order(Base):
    __tablename__ = "callers_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(default="")
    kind: Mapped[str] = mapped_column(default="order")
    customer_id: Mapped[int | None] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer | None] = relationship()
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "order"}  # noqa: RUF012


class Gift(Order):
    __mapper_args__ = {"polymorphic_identity": "gift"}  # noqa: RUF012


class Place(Base):
    __tablename__ = "callers_place"
    __saga_subject__ = "shop.Place"
    row: Mapped[str] = mapped_column(primary_key=True)
    seat: Mapped[uuid.UUID] = mapped_column(primary_key=True)


@pytest.fixture(scope="module")
def database(postgres_server: Postgres, template_database: str) -> Iterator[str]:
    name = f"callers_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name, template=template_database)
    with made(url) as engine:
        Base.metadata.create_all(engine)
    yield url
    postgres_server.drop_database(name)


@pytest.fixture
def url(database: str) -> str:
    """URL of a migrated database without sagas and orders."""
    with psycopg.connect(database) as connection:
        connection.execute("set local sagas.pruning = 'on'")
        for table in ("sagas_outbox", "sagas_saga", "sagas_log", "callers_order", "callers_customer", "callers_place"):
            connection.execute(f"delete from {table}".encode())
    return database


@contextmanager
def made(url: str, driver: str = "psycopg", **options: Any) -> Iterator[Engine]:
    engine = create_engine(sqlalchemy_url(url, driver), **options)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def sent(engine: Engine) -> Iterator[list[str]]:
    """The statements that go to the database meanwhile, COMMIT and the like among them."""
    found: list[str] = []
    heard: dict[str, Any] = {
        "before_cursor_execute": lambda *given: found.append(given[2]),
        "commit": lambda *_: found.append("COMMIT"), "rollback": lambda *_: found.append("ROLLBACK"),
        "savepoint": lambda *_: found.append("SAVEPOINT"),
    }  # fmt: skip
    for name, hear in heard.items():
        event.listen(engine, name, hear)
    yield found
    for name, hear in heard.items():
        event.remove(engine, name, hear)


def test_one_statement_and_nothing_else(url: str) -> None:
    """`start()` is one statement: pending, changed and expired objects stay what they are."""
    with made(url) as engine, Session(engine) as session:
        kept = Order(title="kept")
        session.add_all([kept, Order(title="other")])
        session.flush()
        kept.title = "changed"
        pending = Order(title="pending")
        session.add(pending)
        before = session.get_transaction()
        with sent(engine) as statements:
            Deliver.start(Parcel(), key="a", using=session)
        assert [each.split("(")[0] for each in statements] == ["select sagas_start_v1"]
        assert (pending in session.new, kept in session.dirty, "title" in vars(kept)) == (True, True, True)
        assert session.get_transaction() is before
        with sent(engine) as statements:
            Deliver.get(key="a", using=session)
            Deliver.cancel(key="a", reason="x", using=session)
        assert len(statements) == 3
        assert pending in session.new


def test_a_call_begins_what_a_statement_would(url: str) -> None:
    """A session that has not begun does so, as for any statement; one that must be begun by hand is refused."""
    with made(url) as engine, Session(engine) as session:
        Deliver.start(Parcel(), key="a", using=session)
        assert session.in_transaction()
        session.commit()
        assert not session.in_transaction()
    with made(url) as engine, Session(engine, autobegin=False) as session:
        with pytest.raises(NotInTransaction, match="no transaction is open on Session to database"):
            Deliver.start(Parcel(), key="b", using=session)
        assert not session.in_transaction()
        with session.begin():
            Deliver.start(Parcel(), key="b", using=session)
    assert keys(url) == ["a", "b"]


def test_savepoints(url: str) -> None:
    """A saga goes with the savepoint that it was started in."""
    with made(url) as engine, Session(engine) as session, session.begin():
        Deliver.start(Parcel(), key="outer", using=session)
        inner = session.begin_nested()
        Deliver.start(Parcel(), key="gone", using=session)
        inner.rollback()
        with session.begin_nested():
            Deliver.start(Parcel(), key="inner", using=session)
    assert keys(url) == ["inner", "outer"]


def test_a_pending_subject_gets_its_key_and_nothing_else_is_flushed(url: str) -> None:
    """The one exception: an order that is added but has no key yet is inserted, alone."""
    with made(url) as engine, Session(engine) as session, session.begin():
        order, other = Order(title="new"), Order(title="other")
        session.add_all([other, order])
        with sent(engine) as statements:
            Deliver.start(Parcel(), key="a", subject=order, using=session)
        assert [each.split("(")[0].strip() for each in statements] == [
            "INSERT INTO callers_order", "select sagas_start_v1"
        ]  # fmt: skip
        assert (other in session.new, order in session.new) == (True, False)
        again = Order(id=order.id + 100, title="has a key")
        session.add(again)
        Deliver.start(Parcel(), key="b", subject=again, using=session)
        assert again in session.new
        ids = order.id, again.id
    assert rows(url, "select subject_type, subject_id from sagas_saga order by key") == [
        ("Order", str(ids[0])), ("Order", str(ids[1]))
    ]  # fmt: skip


def test_a_refused_start_flushes_nothing(url: str) -> None:
    """Under AUTOCOMMIT a flush could not be taken back, so the refusal comes first."""
    with made(url, isolation_level="AUTOCOMMIT") as engine, Session(engine) as session:
        order = Order()
        session.add(order)
        with pytest.raises(NotInTransaction):
            Deliver.start(Parcel(), key="a", subject=order, using=session)
        assert order in session.new
    assert rows(url, "select from callers_order") == []


def test_an_expired_subject_is_not_loaded(url: str) -> None:
    """After a commit an instance knows who it is without asking the database."""
    with made(url) as engine, Session(engine) as session:
        order = Order()
        session.add(order)
        session.commit()
        with sent(engine) as statements:
            Deliver.start(Parcel(), subject=order, using=session)
        assert len(statements) == 1


def test_subjects_of_every_kind(url: str) -> None:
    """All classes of one inheritance tree share a name; a class may say its own; several key columns are a list."""
    seat = uuid.uuid4()
    with made(url) as engine, Session(engine) as session, session.begin():
        gift = Gift(id=7)
        place = Place(row='"ü"', seat=seat)
        session.add_all([gift, place])
        Deliver.start(Parcel(), key="gift", subject=gift, using=session)
        Deliver.start(Parcel(), key="place", subject=place, using=session.connection())
        for subject, words in (
            (Order(), "the Order has no primary key yet; add it to the session first"),
            (object(), "not a model instance"),
            (Order, "not a model instance"),
        ):
            with pytest.raises(InvalidInput, match=words):
                Deliver.start(Parcel(), subject=subject, using=session)
        with pytest.raises(InvalidInput, match="flush it first, or pass using= its session"):
            Deliver.start(Parcel(), subject=Order(), using=session.connection())
    assert rows(url, "select subject_type, subject_id from sagas_saga order by key") == [
        ("Order", "7"), ("shop.Place", f'["\\"ü\\"", "{seat}"]')
    ]  # fmt: skip


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_a_pending_subject_of_an_async_session(driver: str, url: str) -> None:
    """The same with a driver that is awaited."""

    async def place() -> int:
        engine = create_async_engine(sqlalchemy_url(url, driver))
        async with AsyncSession(engine) as session, session.begin():
            order = Order()
            session.add_all([order, Order(title="other")])
            await Deliver.astart(Parcel(), key="a", subject=order, using=session)
            assert len(session.new) == 1
            found = order.id
        await engine.dispose()
        return found

    number = asyncio.run(place())
    assert rows(url, "select subject_id from sagas_saga") == [(str(number),)]


def test_a_session_of_several_databases(url: str) -> None:
    """It has to be said where sagas are; the connection of that database says it."""
    with made(url) as engine, Session(binds={Order: engine}) as session, session.begin():
        with pytest.raises(ConfigurationError, match=r"using=session\.connection\(bind_arguments"):
            Deliver.start(Parcel(), key="a", using=session)
        there = session.connection(bind_arguments={"mapper": Order})
        Deliver.start(Parcel(), key="a", using=there)
    assert keys(url) == ["a"]


@pytest.mark.parametrize("mode", ["create_savepoint", "rollback_only"])
def test_a_session_in_somebody_elses_transaction(mode: Any, url: str) -> None:
    """The recipe for test suites: a saga is seen inside, and whoever owns the connection decides what stays."""
    with made(url) as engine, engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode=mode) as session:
            Deliver.start(Parcel(), key="a", using=session)
            session.commit()
            assert Deliver.get(key="a", using=connection).key == "a"
        outer.rollback()
    assert keys(url) == []


def test_serializable_transactions(url: str) -> None:
    """A concurrent start of one key raises the error that users of SERIALIZABLE retry on, in its usual wrapping."""
    with made(url, isolation_level="SERIALIZABLE") as engine, Session(engine) as one, Session(engine) as other:
        other.execute(text("select count(*) from sagas_saga"))
        Deliver.start(Parcel(), key="a", using=one)
        one.commit()
        with pytest.raises(OperationalError, match="could not serialize access"):
            Deliver.start(Parcel(), key="a", using=other)


def test_settings_and_schema_of_the_runtime(url: str) -> None:
    """The runtime object of the engine says how large an input may be, and in which schema the functions are."""

    class Operations:
        """As much of Alembic's `op` as migrations of ours use."""

        def get_context(self) -> Any:
            return type("Context", (), {"as_sql": False})

        def get_bind(self) -> Any:
            return connection

    schema = 'od"d:%s'
    with made(url) as engine:
        with engine.begin() as connection:
            upgrade(Operations(), to=1, schema=schema)
        runtime = Sagas(engine, schema=schema, settings={"max_payload": 200}, name=uuid.uuid4().hex)
        try:
            with Session(engine) as session, session.begin():
                assert sqlalchemy_caller(session).settings is runtime.settings  # type: ignore[union-attr]
                with pytest.raises(PayloadTooLarge):
                    Deliver.start(Parcel(note="x" * 200), using=session)
                run = Deliver.start(Parcel(), key="a", using=session)
                session.connection().exec_driver_sql("""update "od""d:%%s".sagas_saga set input_hash = ''""")
                assert Deliver.start(Parcel(), key="a", using=session).id == run.id
                Deliver.cancel(key="a", reason="x", using=session)
        finally:
            runtime.close()
    assert keys(url) == []
    assert rows(url, """select key from "od""d:%s".sagas_saga""") == [("a",)]
