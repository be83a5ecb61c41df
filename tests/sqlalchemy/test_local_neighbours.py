"""What a body leaves behind (listeners, settings, tables) is not its neighbours', nor the application's."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from sagas_sqlalchemy import Sagas
from sagas_sqlalchemy.inbox import inbox
from tests.sqlalchemy.conftest import Plan, begin, drain, rows
from tests.sqlalchemy.groups import group, noted
from tests.sqlalchemy.shop import Note, Odd, Told, note


def test_a_listener_of_a_body_that_failed_is_not_in_the_way(
    engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """The same function, registered by a later body on the same session, is called."""
    sent: list[int] = []

    def mail(session: Any) -> None:
        sent.append(1)

    def bad(self: Odd) -> None:
        event.listen(self.session, "after_commit", mail)
        raise ZeroDivisionError

    def good(self: Odd) -> str:
        event.listen(self.session, "after_commit", mail)
        return note(self)

    plan("bad", bad)
    plan("good", good)
    group(engine, Told("bad", "a"), Told("good", "b"), Told("good", "c"))
    drain(runtime)
    assert noted(url) == ["b", "c"] and sent == [1, 1]


def test_a_listener_of_the_class(engine: Engine, runtime: Sagas, url: str, plan: Plan) -> None:
    """A module that is first imported in a body may put `after_commit` listeners on `Session`."""

    def heard(session: Any) -> None: ...

    def body(self: Odd) -> str:
        if not event.contains(Session, "after_commit", heard):
            event.listen(Session, "after_commit", heard)
        return note(self)

    plan("body", body)
    begin(engine, Odd, Told("body", "own"))
    try:
        drain(runtime)
    finally:
        event.remove(Session, "after_commit", heard)
    assert rows(url, "select data->'error'->>'message' from sagas_log where kind = 'step_failed'") == []
    assert noted(url) == ["own"]


def test_other_listeners_of_a_body(
    engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan, free: None
) -> None:
    """`before_commit` on the session of a body is about that body, once."""

    def body(self: Odd) -> str:
        event.listen(self.session, "before_commit", lambda session: session.add(Note(text="audit")))
        return note(self)

    plan("body", body)
    group(engine, Told("body", "own"), Told("counted", "one"), Told("counted", "two"))
    drain(runtime)
    assert noted(url).count("audit") == 1


def test_the_error_of_a_connection_that_is_cut(engine: Engine, runtime: Sagas, plan: Plan) -> None:
    """It is SQLAlchemy's, not a TypeError of ours."""
    seen: list[BaseException] = []

    def body(self: Odd) -> None:
        try:
            self.session.execute(text("select pg_terminate_backend(pg_backend_pid())"))
        except BaseException as problem:
            seen.append(problem)
            raise

    plan("body", body)
    begin(engine, Odd, Told("body", "own"))
    drain(runtime, rounds=2)
    assert isinstance(seen[0], OperationalError)


@pytest.mark.parametrize("name", ["commit", "wait"])
def test_what_the_application_put_on_its_connections(
    name: str, engine: Engine, runtime: Sagas, url: str, called: Counter[str]
) -> None:
    """An attribute of the instance (tracing puts such there) is still there afterwards."""

    @event.listens_for(engine, "connect")
    def traced(connection: Any, record: Any) -> None:
        call = getattr(connection, name)
        setattr(connection, name, lambda *given, **named: call(*given, **named))

    group(engine, Told("counted", "one"), Told("counted", "two"))
    drain(runtime)
    with engine.connect() as connection:
        assert name in vars(connection.connection.driver_connection)


def test_autobegin_false(engine: Engine, make_runtime: Any, url: str, called: Counter[str]) -> None:
    """A factory with `autobegin=False` is one for local steps too."""
    begin(engine, Odd, Told("counted", "own"))
    drain(make_runtime(sessionmaker(engine, autobegin=False)))
    assert noted(url) == ["own"]


def test_a_handler_of_messages_that_commits(engine: Engine, runtime: Sagas, url: str) -> None:
    """Refused, or whole: not the note of the message with half of what it does."""

    @inbox(engine)
    def handle(session: Session, what: str) -> None:
        session.add(Note(text="first half"))
        session.commit()
        session.add(Note(text="second half"))

    message = uuid.uuid4()
    for _ in range(2):
        try:
            handle.take(message, "x")
        except Exception:
            continue
    assert noted(url) in ([], ["first half", "second half"])


def test_neighbours_of_a_step_with_hooks(
    engine: Engine, make_runtime: Any, url: str, called: Counter[str], plan: Plan
) -> None:
    """Once seen to register a hook, a step runs alone, and costs its neighbours nothing from then on."""
    runtime = make_runtime(engine, settings={"wake": False, "local_group": 6})

    def body(self: Odd) -> str:
        event.listen(self.session, "after_commit", lambda session: None)
        return note(self)

    plan("body", body)
    told = [
        Told("counted", f"{turn}{number}") if number < 5 else Told("body", turn)
        for turn in "xyz"
        for number in range(6)
    ]
    group(engine, *told)
    drain(runtime)
    assert sum(called.values()) == 16 + 5


@pytest.fixture
def deferred(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "create table parent (id int primary key);"
            "create table child (id int primary key, parent int references parent deferrable initially deferred)"
        )


def test_constraints_of_a_neighbour(
    engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan, deferred: None
) -> None:
    """`set constraints` of one body does not hold for the next."""

    def legal(self: Odd) -> str:
        self.session.execute(text("insert into child values (1, 1)"))
        self.session.execute(text("insert into parent values (1)"))
        return note(self)

    plan("sets", lambda self: self.session.execute(text("set constraints all immediate")) and note(self))
    plan("legal", legal)
    group(engine, Told("sets", "one"), Told("legal", "two"))
    drain(runtime)
    assert noted(url) == ["one", "two"]


def test_a_temporary_table_of_each_body(
    engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """`on commit drop` works in a group as it does alone."""

    def body(self: Odd) -> str:
        self.session.execute(text("create temp table basket (text text) on commit drop"))
        return note(self)

    plan("body", body)
    group(engine, *(Told("body", each) for each in "abc"))
    drain(runtime)
    assert noted(url) == ["a", "b", "c"]


def test_a_refused_commit_that_is_checked(engine: Engine, runtime: Sagas, url: str, plan: Plan, deferred: None) -> None:
    """When the commit was refused once, what the body has not flushed is flushed before constraints are looked at."""
    tries: list[int] = []

    def body(self: Odd) -> str:
        tries.append(1)
        if len(tries) == 1:
            self.session.execute(text("insert into child values (1, 99)"))  # refused at COMMIT
        else:

            @event.listens_for(self.session, "before_flush", once=True)
            def legal(session: Session, *_: Any) -> None:
                session.execute(text("insert into child values (1, 1)"))
                session.execute(text("insert into parent values (1)"))

        return note(self)

    plan("body", body)
    begin(engine, Odd, Told("body", "own"))
    drain(runtime)
    assert noted(url) == ["own"]


def test_a_hook_that_writes(engine: Engine, runtime: Sagas, url: str, plan: Plan) -> None:
    """`after_commit` cannot write: SQLAlchemy says so; here it seems to go well, and is lost."""
    problems: list[BaseException] = []

    def hook(session: Session) -> None:
        try:
            session.add(Note(text="by the hook"))
            session.flush()
        except Exception as problem:
            problems.append(problem)

    def body(self: Odd) -> str:
        event.listen(self.session, "after_commit", hook)
        return note(self)

    plan("body", body)
    begin(engine, Odd, Told("body", "own"))
    drain(runtime)
    assert problems or "by the hook" in noted(url)
