"""A group of local steps sets a savepoint with the first statement of each body, whatever that statement is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import DataError, ProgrammingError, connection, transaction
from psycopg import sql

from sagas import Saga, step
from sagas.states import Status
from tests.shop.models import Booking, Seat
from tests.shop.sagas import THRICE, Ordered
from tests.shop.world import World
from tests.shop.world import world as the_world
from tests.support.stories import begin_many
from tests.support.workers import run_together

pytestmark = pytest.mark.usefixtures("shop")

KEYS = ["a", "b", "c"]
INSERT = "insert into shop_seat (number) values (%s)"


class First(Saga[Ordered], name="test.first_statement", version=1):
    """One local step that begins with what the test says."""

    @step(retry=THRICE, compensate=None)
    def body(self) -> None:
        the_world.act("body", self)
        Booking.objects.create(saga=self.key, step="body")


def raw(run: Any) -> None:
    """Past Django, on psycopg's own cursor."""
    connection.connection.execute(INSERT, [7])


def raw_pipeline(run: Any) -> None:
    with connection.connection.pipeline():
        connection.connection.execute(INSERT, [7])


def raw_transaction(run: Any) -> None:
    with connection.connection.transaction():
        connection.connection.execute(INSERT, [7])


def many(run: Any) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(INSERT, [[7], [8]])


def composed(run: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("insert into {} (number) values (7)").format(sql.Identifier("shop_seat")))


def copied(run: Any) -> None:
    with connection.cursor() as cursor, cursor.copy("copy shop_seat (number) from stdin") as copy:
        copy.write_row([7])


def several(run: Any) -> None:
    """What comes back is of the body's own statements, one after the other."""
    with connection.cursor() as cursor:
        cursor.execute("insert into shop_seat (number) values (7); select 8, 9")
        assert cursor.rowcount == 1
        assert cursor.nextset()
        assert cursor.fetchall() == [(8, 9)]
        assert not cursor.nextset()


def nested(run: Any) -> None:
    with transaction.atomic():
        Seat.objects.create(number=7)


def iterated(run: Any) -> None:
    """A cursor on the server's side."""
    assert all(booking.saga for booking in Booking.objects.iterator(chunk_size=1))
    Seat.objects.create(number=7)


def watched(run: Any) -> None:
    """A wrapper of the body's own sees what the body sends."""
    seen: list[str] = []

    def watch(execute: Any, text: str, *rest: Any) -> Any:
        seen.append(text)
        return execute(text, *rest)

    with connection.execute_wrapper(watch):
        Seat.objects.create(number=7)
    assert len(seen) == 1 and seen[0].startswith("INSERT")


def plain(run: Any) -> None:
    seat = Seat.objects.create(number=7)
    assert seat.pk is not None and Seat.objects.get(pk=seat.pk).number == 7


FIRST = [raw, raw_pipeline, raw_transaction, many, composed, copied, several, nested, iterated, watched, plain]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("fails", [False, True])
def test_whatever_a_body_begins_with(world: World, first: Callable[[Any], None], fails: bool) -> None:
    """It commits with its step, or is undone alone; neighbours are called once, and notice nothing."""

    def body(run: Any) -> None:
        first(run)
        if fails:
            raise ZeroDivisionError

    world.plan("body", body, saga="b")
    begin_many(First, KEYS)
    run_together()
    assert Seat.objects.filter(number=7).count() == (0 if fails else 1)
    done = [key for key in KEYS if not fails or key != "b"]
    assert sorted(Booking.objects.values_list("saga", flat=True)) == done
    assert {First.get(key=key).status for key in done} == {Status.COMPLETED}
    assert world.count() == {"body": 3}


def execute(statement: Any, parameters: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def undefined(run: Any) -> None:
    execute("select no_such_column from shop_seat")


def syntax(run: Any) -> None:
    """Refused before the savepoint is set that came with it."""
    execute("selec 1")


def unfit(run: Any) -> None:
    """Refused by psycopg, and never sent."""
    execute("select %s, %s", [1])


def caught(run: Any) -> None:
    """The same, and the body goes on."""
    with pytest.raises(ProgrammingError):
        unfit(run)
    Seat.objects.create(number=7)
    raise ZeroDivisionError


def caught_by_hand(run: Any) -> None:
    """The server's error is caught where no savepoint of the body's own was set."""
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.connection.execute("select 1 / 0")


def too_long(run: Any) -> None:
    with pytest.raises(DataError):
        execute("select 'x'::text::int")


def commits(run: Any) -> None:
    """Past Django, which would not let it; so would `with connection.connection`."""
    execute(INSERT, [7])
    connection.connection.commit()


def rolls_back(run: Any) -> None:
    connection.connection.rollback()
    Seat.objects.create(number=7)


def composed_commit(run: Any) -> None:
    execute(INSERT, [7])
    execute(sql.SQL("commit"))


def commit_of_bytes(run: Any) -> None:
    execute(INSERT, [7])
    execute(b"commit")


def commit_by_hand(run: Any) -> None:
    """By psycopg's own cursor."""
    execute(INSERT, [7])
    connection.connection.cursor().execute("commit")


BROKEN = [undefined, syntax, unfit, caught, caught_by_hand, too_long, commits, rolls_back, composed_commit,
          commit_of_bytes, commit_by_hand]  # fmt: skip


@pytest.mark.parametrize("first", BROKEN)
def test_a_first_statement_that_fails(world: World, first: Callable[[Any], None]) -> None:
    """It is the failure of its own body; the others commit once, and later bodies have savepoints as before."""
    world.always("body", first, saga="b")
    world.plan("body", lambda run: 1 / 0, saga="c")
    begin_many(First, [*KEYS, "d"])
    run_together()
    assert Seat.objects.count() == 0
    assert First.get(key="a").status == First.get(key="d").status == Status.COMPLETED
    assert sorted(Booking.objects.values_list("saga", flat=True)) in (["a", "d"], ["a", "c", "d"])
    run = First.get(key="b")
    assert run.status != Status.COMPLETED


@pytest.mark.parametrize("asks", [False, True])
def test_a_body_that_leaves_a_wrapper_behind(world: World, asks: bool) -> None:
    """Such as one that measures: it stays, sees what follows, and what follows goes on as before."""
    seen: list[str] = []

    def measure(call: Any, text: str, *rest: Any) -> Any:
        seen.append(text)
        return call(text, *rest)

    def installs(run: Any) -> None:
        connection.execute_wrappers.append(measure)
        if asks:
            Seat.objects.create(number=7)

    world.plan("body", installs, saga="b")
    begin_many(First, KEYS)
    try:
        run_together()
        begin_many(First, ["d", "e"])
        run_together()
        assert connection.execute_wrappers == [measure]
    finally:
        connection.execute_wrappers.clear()
    assert any(text.startswith("INSERT") for text in seen) and world.count() == {"body": 5}
    assert {First.get(key=key).status for key in [*KEYS, "d", "e"]} == {Status.COMPLETED}


def test_a_body_whose_wrapper_adds_a_setting(world: World) -> None:
    """As those do that note who changes a row: it is not said of the bodies of others."""
    noted: dict[str, str] = {}

    def adds(call: Any, text: str, parameters: Any, many: bool, context: Any) -> Any:
        answer = call(f"set local app.who = 'b'; {text}", parameters, many, context)
        context["cursor"].nextset()
        return answer

    def notes(run: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select current_setting('app.who', true)")
            noted[run.key] = cursor.fetchone()[0] or ""

    def says(run: Any) -> None:
        with connection.execute_wrapper(adds):
            Seat.objects.create(number=7)

    world.always("body", notes)
    world.always("body", says, saga="b")
    begin_many(First, KEYS)
    run_together()
    assert noted == {"a": "", "c": ""}
    assert {First.get(key=key).status for key in KEYS} == {Status.COMPLETED}
    assert Seat.objects.filter(number=7).count() == 1
