"""A group of local steps sends a savepoint with what each body sends first, whatever that is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Engine, insert, select, text
from sqlalchemy.exc import DBAPIError

from sagas.looking import LOOK
from sagas_sqlalchemy import Sagas
from sagas_sqlalchemy.held import KNOWN, hold_back
from sagas_sqlalchemy.keeping import GUARD
from tests.sqlalchemy.conftest import Plan, begin, drain, rows
from tests.sqlalchemy.groups import raw
from tests.sqlalchemy.shop import Note, Odd, Told, note

INSERT = "insert into note (id, text) values (gen_random_uuid(), %s)"


def adds(self: Odd) -> None:
    note(self)


def flushes(self: Odd) -> None:
    note(self)
    self.session.flush()


def asks(self: Odd) -> None:
    assert self.session.scalar(select(Note).where(Note.text == self.input.text)) is None
    note(self)


def core(self: Odd) -> None:
    self.session.execute(insert(Note).values(text=self.input.text))


def many(self: Odd) -> None:
    self.session.execute(insert(Note), [{"text": self.input.text}, {"text": f"{self.input.text} too"}])


def driver(self: Odd) -> None:
    self.session.connection().exec_driver_sql(INSERT, (self.input.text,))


def past_it(self: Odd) -> None:
    raw(self).execute(INSERT, [self.input.text])


def pipeline(self: Odd) -> None:
    with raw(self).pipeline():
        raw(self).execute(INSERT, [self.input.text])


def transaction(self: Odd) -> None:
    with raw(self).transaction():
        raw(self).execute(INSERT, [self.input.text])


def copied(self: Odd) -> None:
    with raw(self).cursor() as cursor, cursor.copy("copy note (id, text) from stdin") as copy:
        copy.write_row([uuid4(), self.input.text])


def nested(self: Odd) -> None:
    with self.session.begin_nested():
        note(self)


def nested_twice(self: Odd) -> None:
    """What the inner savepoint took back is gone, the rest stays."""
    with self.session.begin_nested():
        note(self)
        inner = self.session.begin_nested()
        self.session.add(Note(text="taken back"))
        self.session.flush()
        inner.rollback()


def nothing_nested(self: Odd) -> None:
    """A savepoint in which nothing is sent."""
    self.session.begin_nested().rollback()
    with self.session.begin_nested():
        pass
    note(self)


Body = Callable[[Odd], object]
FIRST = [adds, flushes, asks, core, many, driver, past_it, pipeline, transaction, copied, nested, nested_twice,
         nothing_nested]  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("first", FIRST)
def test_whatever_a_body_begins_with(
    first: Body, fails: bool, engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """It commits with its step, or is undone alone; neighbours are called once, and notice nothing."""

    def body(self: Odd) -> str:
        called["own"] += 1
        first(self)
        if fails:
            raise ZeroDivisionError
        return "fine"

    plan("body", body)
    begin(engine, Odd, Told("counted", "before"), Told("body", "own"), Told("counted", "after"))
    drain(runtime)
    noted = [each for each in rows(url, "select text from note order by text") if each != "own too"]
    assert noted == (["after", "before"] if fails else ["after", "before", "own"])
    assert called == {"before": 1, "own": 1, "after": 1}
    assert sorted(rows(url, "select status from sagas_saga")) == (
        ["compensated", "completed", "completed"] if fails else ["completed"] * 3
    )


def undefined(self: Odd) -> None:
    self.session.execute(text("select no_such_column from note"))


def unfit(self: Odd) -> None:
    """Refused by the driver, and never sent."""
    self.session.connection().exec_driver_sql("select %s, %s", (1,))


def caught(self: Odd) -> None:
    """The same, and the body goes on."""
    with pytest.raises(DBAPIError):
        unfit(self)
    note(self)
    raise ZeroDivisionError


def caught_by_hand(self: Odd) -> None:
    """The server's error is caught where no savepoint of the body's own was set."""
    with pytest.raises(psycopg.errors.DivisionByZero):
        raw(self).execute("select 1 / 0")


def caught_by_session(self: Odd) -> None:
    with pytest.raises(DBAPIError):
        undefined(self)


@pytest.mark.parametrize("first", [undefined, unfit, caught, caught_by_hand, caught_by_session])
def test_a_first_statement_that_fails(
    first: Body, engine: Engine, runtime: Sagas, url: str, called: Counter[str], plan: Plan
) -> None:
    """It is the failure of its own body; the others commit once, and later bodies have savepoints as before."""
    plan("body", lambda self: first(self) or "fine")
    plan("fails", lambda self: note(self) and 1 / 0)
    begin(engine, Odd, Told("counted", "before"), Told("body", "own"), Told("fails", "too"), Told("counted", "after"))
    drain(runtime)
    assert sorted(rows(url, "select text from note")) == ["after", "before"]
    assert called == {"before": 1, "after": 1}
    assert sorted(rows(url, "select status from sagas_saga")) == ["compensated"] * 2 + ["completed"] * 2


def test_two_round_trips_for_a_body(
    engine: Engine, runtime: Sagas, monkeypatch: pytest.MonkeyPatch, url: str, plan: Plan
) -> None:
    """The end of one savepoint and the beginning of the next, and the body's insert; a body without one has none."""
    trips: list[int] = []
    wait = psycopg.Connection.wait

    def counted(connection: psycopg.Connection[Any], *arguments: Any, **named: Any) -> Any:
        if hasattr(connection, LOOK):  # that of local steps; the others beat by the clock
            trips.append(1)
        return wait(connection, *arguments, **named)

    def spent(what: str, count: int) -> int:
        begin(engine, Odd, *(Told(what, f"{what} {number} of {count}") for number in range(count)))
        trips.clear()
        drain(runtime)
        return len(trips)

    monkeypatch.setattr(psycopg.Connection, "wait", counted)
    plan("nothing", lambda self: "fine")
    spent("note", 2)
    assert spent("note", 30) - spent("note", 20) == 20
    assert spent("nothing", 30) == spent("nothing", 20)
    assert len(rows(url, "select 1 from note")) == 52


def test_threads_that_begin_at_once_change_a_dialect_once() -> None:
    """A savepoint that is rolled back is sent once, and released once, however many workers met the engine first."""
    sent: list[str] = []
    meeting = threading.Barrier(8)

    class Dialect:
        def do_savepoint(self, connection: Any, name: str) -> None: ...

        def do_release_savepoint(self, connection: Any, name: str) -> None: ...

        def do_rollback_to_savepoint(self, connection: Any, name: str) -> None:
            sent.append(name)

        def __getattribute__(self, name: str) -> Any:
            if name == KNOWN and threading.current_thread().name not in met:
                met.add(threading.current_thread().name)
                meeting.wait(5)  # all of them look before any of them changes it
                raise AttributeError(name)
            return object.__getattribute__(self, name)

    met: set[str] = set()
    dialect: Any = Dialect()
    threads = [threading.Thread(target=hold_back, args=(dialect,), name=str(number)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    held: list[str] = []
    guard = SimpleNamespace(savepoint=None, held=SimpleNamespace(take_back=lambda name: False, hold=held.append))
    dialect.do_rollback_to_savepoint(SimpleNamespace(**{GUARD: guard}), "a")
    assert (sent, held) == (["a"], ["RELEASE SAVEPOINT a"])
