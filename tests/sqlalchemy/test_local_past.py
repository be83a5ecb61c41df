"""Bodies that go past their session: what they write is theirs, and is there when their step is done, or not at all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event, insert, text
from sqlalchemy.orm import Session, sessionmaker

from sagas_sqlalchemy import Sagas
from tests.sqlalchemy.conftest import Plan, begin, drain, rows
from tests.sqlalchemy.groups import group, noted, raw
from tests.sqlalchemy.shop import Note, Odd, Told, note

INSERT = "insert into note (id, text) values (gen_random_uuid(), %s)"


def test_a_session_class_that_routes(
    engine: Engine, make_engine: Any, make_runtime: Any, url: str, called: Counter[str], free: None
) -> None:
    """A session class with `get_bind()` (replicas: SQLAlchemy's own recipe) writes in the transaction of the log."""
    other = make_engine()

    class Routing(Session):
        def get_bind(self, mapper: Any = None, clause: Any = None, **named: Any) -> Any:
            return other

    begin(engine, Odd, Told("counted", "own"))
    runtime = make_runtime(sessionmaker(engine, class_=Routing))
    drain(runtime)
    assert noted(url) == ["own"]
    assert rows(url, "select status from sagas_saga") == ["completed"]


def alone_or_not(engine: Engine, alone: bool) -> None:
    """Start one saga, or one before another in a group."""
    if alone:
        begin(engine, Odd, Told("body", "own"))
    else:
        group(engine, Told("body", "own"), Told("counted", "after"))


def in_pool(engine: Engine) -> int:
    """In what transaction the next user finds itself."""
    with engine.connect() as connection:
        raw: Any = connection.connection.driver_connection
        return int(raw.info.transaction_status)


def root_of_connection(self: Odd) -> None:
    self.session.connection().get_transaction().commit()


def root_of_session(self: Odd) -> None:
    self.session.get_transaction().commit()


@pytest.mark.parametrize("call", [root_of_connection, root_of_session])
def test_a_refused_commit_leaves_no_open_transaction_in_the_pool(
    call: Any, engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan, free: None
) -> None:
    """What was rolled back is not committed by whoever gets the connection next."""

    def body(self: Odd) -> None:
        note(self)
        self.session.flush()
        call(self)

    plan("body", body)
    group(engine, Told("counted", "before"), Told("body", "own"), Told("counted", "after"))
    drain(runtime)
    assert in_pool(engine) == psycopg.pq.TransactionStatus.IDLE
    assert noted(url) == ["after", "before"]


def test_a_commit_listener_that_raises(engine: Engine, runtime: Sagas, url: str, called: Counter[str]) -> None:
    """The same with nothing but a listener on the application's engine; locks of ours stay in the pool."""
    calls: list[int] = []

    @event.listens_for(engine, "commit")
    def listener(connection: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("listener")

    begin(engine, Odd, Told("counted", "own"))
    drain(runtime)
    assert in_pool(engine) == psycopg.pq.TransactionStatus.IDLE


def by_bind(self: Odd) -> None:
    self.session.get_bind().execute(insert(Note).values(text=self.input.text))


def by_session_on_bind(self: Odd) -> None:
    with Session(self.session.get_bind()) as session, session.begin():
        session.add(Note(text=self.input.text))


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("writes", [by_bind, by_session_on_bind])
def test_what_goes_to_the_bind_of_the_session(
    writes: Any, alone: bool, engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """A body that fails leaves nothing, also where it writes through `session.get_bind()` first."""

    def body(self: Odd) -> None:
        writes(self)
        raise ZeroDivisionError

    plan("body", body)
    alone_or_not(engine, alone)
    drain(runtime)
    assert "own" not in noted(url)


def test_a_tenant_of_a_body_is_not_its_neighbours(
    engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """`schema_translate_map`, set for the connection, holds for the body that set it."""
    with engine.begin() as connection:
        connection.exec_driver_sql("create schema tenant; create table tenant.note (like public.note including all)")

    def body(self: Odd) -> str:
        self.session.connection().execution_options(schema_translate_map={None: "tenant"})
        return note(self)

    plan("body", body)
    group(engine, Told("body", "own"), Told("counted", "one"), Told("counted", "two"))
    drain(runtime)
    assert rows(url, "select text from tenant.note") == ["own"]
    assert noted(url) == ["one", "two"]


def test_options_of_the_connection_of_a_session(engine: Engine, runtime: Sagas, url: str, plan: Plan) -> None:
    """SQLAlchemy's own recipe for tenants works in a body as it does in a session of the application, or is refused."""
    with engine.begin() as connection:
        connection.exec_driver_sql("create schema tenant; create table tenant.note (like public.note including all)")

    def body(self: Odd) -> str:
        self.session.connection(execution_options={"schema_translate_map": {None: "tenant"}})
        return note(self)

    plan("body", body)
    begin(engine, Odd, Told("body", "own"))
    drain(runtime)
    assert noted(url) == []


@pytest.mark.parametrize("what", ["info", "autoflush"])
def test_what_a_body_sets_on_its_session(
    what: str, engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """The next body's session is as the factory makes it."""
    seen: list[Any] = []

    def sets(self: Odd) -> str:
        if what == "info":
            self.session.info["tenant"] = "mine"
        else:
            self.session.autoflush = False
        return note(self)

    def looks(self: Odd) -> str:
        seen.append((self.session.info.get("tenant"), self.session.autoflush))
        return note(self)

    plan("sets", sets)
    plan("looks", looks)
    group(engine, Told("sets", "one"), Told("looks", "two"))
    drain(runtime)
    assert seen == [(None, True)]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("how", ["session", "connection", "raises after it", "control_fully"])
def test_a_body_cannot_end_its_own_savepoint(
    how: str, alone: bool, engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """A step that failed has written nothing."""

    def body(self: Odd) -> None:
        note(self)
        self.session.flush()
        if how == "connection":
            self.session.connection().get_nested_transaction().commit()
        elif how == "control_fully":
            with Session(self.session.connection(), join_transaction_mode="control_fully") as session, session.begin():
                session.execute(text("select 1"))
        else:
            self.session.get_nested_transaction().commit()
        if how == "raises after it":
            raise ZeroDivisionError

    plan("body", body)
    alone_or_not(engine, alone)
    drain(runtime)
    failed = rows(url, "select 1 from sagas_log where kind = 'step_failed'")
    assert not failed or "own" not in noted(url)


@pytest.mark.parametrize("alone", [True, False])
def test_what_is_written_past_a_failed_flush(
    alone: bool, engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """SQLAlchemy has rolled the savepoint back already, and does not do it again at the end of the body."""

    def body(self: Odd) -> None:
        connection = raw(self)
        self.session.add_all([Note(text="twice"), Note(text="twice")])
        try:
            self.session.flush()
        except Exception:
            connection.execute(INSERT, ["left behind"])
            raise

    plan("body", body)
    alone_or_not(engine, alone)
    drain(runtime)
    assert "left behind" not in noted(url)


@pytest.mark.parametrize("statement", ["commit", "rollback"])
def test_a_commit_by_a_cursor_of_the_driver(
    statement: str, engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan, free: None
) -> None:
    """It is refused as `driver_connection.commit()` is."""

    def body(self: Odd) -> None:
        note(self)
        self.session.flush()
        raw(self).execute(statement)

    plan("body", body)
    group(engine, Told("counted", "before"), Told("body", "own"), Told("counted", "after"))
    drain(runtime)
    assert noted(url) == ["after", "before"]
    assert not rows(url, "select 1 from sagas_saga where status = 'running'")
