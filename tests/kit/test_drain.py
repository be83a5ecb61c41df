"""`drain()` and `run()`: everything runs to its end in this process, or the test is told what did not, and why."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction

from sagas import ConfigurationError, LeaseLost
from sagas.states import Status
from sagas.testing import Kit, Unfinished
from sagas_django.models import OutboxRow
from tests.kit.sagas import Blind, Broken, Buy, Order, Seats, Slow
from tests.shop.models import Booking, Seat
from tests.support.stories import differences


@pytest.fixture(params=["db", "transactional_db"])
def kit(request: pytest.FixtureRequest) -> Kit:
    """The kit inside a test's transaction, and where everything commits."""
    request.getfixturevalue(request.param)
    found: Kit = request.getfixturevalue("sagas")
    return found


def test_everything_runs_in_this_thread(kit: Kit) -> None:
    """No thread, no second connection: the bodies see the test's own rows."""
    before, threads = set(threading.enumerate()), set[str]()

    def charge(run: Buy) -> str:
        threads.add(threading.current_thread().name)
        assert Booking.objects.filter(saga=run.key).exists()
        assert set(threading.enumerate()) <= before
        return "ch_1"

    kit.answers(Buy).charge.does(charge)
    with transaction.atomic():
        Buy.start(Order(1), key="a")
        Buy.start(Order(2), key="b")
    ran = kit.drain()
    assert [f"{each.key} {each}" for each in ran] == [
        "a reserve: succeeded", "a charge: succeeded", "a confirm: succeeded",
        "b reserve: succeeded", "b charge: succeeded", "b confirm: succeeded",
    ]  # fmt: skip
    assert threads == {threading.current_thread().name}
    assert {Buy.get(key=key).status for key in "ab"} == {Status.COMPLETED}
    assert kit.drain() == []


def test_it_works_inside_a_block_of_the_test(kit: Kit) -> None:
    """Started and drained in one transaction that then is rolled back."""
    kit.answers(Buy).charge.returns("ch_1")
    with transaction.atomic():
        assert kit.run(Buy, Order(1)).status == Status.COMPLETED
        transaction.set_rollback(True)
    assert not Booking.objects.exists()
    assert not OutboxRow.objects.exists()


def test_retries_are_not_waited_for(kit: Kit) -> None:
    """Backoffs of minutes take no time; the clock has moved as far as they are long."""
    kit.answers(Buy).charge.times_out(times=3).returns("ch_1")
    kit.answers(Buy).find_charge.undecided()
    before = kit.clock.now()
    run = kit.run(Buy, Order(1), key="a")
    assert run.status == Status.COMPLETED
    assert timedelta(minutes=5) < kit.clock.now() - before < timedelta(hours=1)
    assert run.finished_at == kit.clock.now()


def test_settling_is_not_waited_for(kit: Kit) -> None:
    """What was undone without knowing is looked at once more, a minute later."""
    charge = kit.answers(Blind).charge.times_out()
    charge.compensation.returns()
    run = kit.run(Blind, Order(1), key="a")
    assert run.status == Status.COMPENSATED
    assert [call.idempotency_key.partition(":")[2] for call in charge.compensation.calls] == [
        "charge:undo:0", "charge:undo:1"
    ]  # fmt: skip


@pytest.mark.parametrize("crashes", [1, 2])
def test_a_worker_that_dies_is_replaced(kit: Kit, crashes: int) -> None:
    """Its lease ends, another begins, and asks what became of the attempt first."""
    kit.answers(Buy).charge.crashes(times=crashes).returns("ch_2")
    asked = kit.answers(Buy).find_charge.returns("ch_1")
    run = kit.run(Buy, Order(1), key="a")
    assert run.status == Status.COMPLETED
    assert len(asked.calls) == 1
    assert Booking.objects.filter(saga="a", step="ch_1").exists()


def test_a_worker_that_dies_in_a_local_step(kit: Kit) -> None:
    """Its writes are rolled back, and the step is run again."""

    def die(run: Buy) -> None:
        Booking.objects.create(saga=run.key, step="half")
        raise LeaseLost("died")

    answers = kit.answers(Buy)
    answers.charge.returns("ch_1")
    answers.confirm.does(die, times=1).returns("confirmed")
    assert kit.run(Buy, Order(1), key="a").status == Status.COMPLETED
    assert [booking.step for booking in Booking.objects.all()] == ["reserve"]


def test_a_parked_saga_is_an_error_with_its_story(kit: Kit) -> None:
    """Which saga, which step, why, and the traceback of the user's own code."""
    with pytest.raises(Unfinished) as caught:
        kit.run(Broken, Order(3), key="a")
    text = str(caught.value)
    assert "saga kit.broken" in text and "(key 'a') is parked" in text
    assert "divide" in text and "ZeroDivisionError" in text
    assert "return self.input.number // nothing" in text  # the line of the user's own code
    assert "tests/kit/sagas.py" in text
    assert '"number":3' in text.replace(" ", "")
    assert "check=False" in text
    assert caught.value.sagas == (Broken.get(key="a").id,)
    assert caught.value.ran and isinstance(caught.value, AssertionError)


def test_a_commit_that_is_refused_is_told(transactional_db: None, sagas: Kit) -> None:
    """What the step wrote was rolled back with it, and its error is in the log, and in the message."""

    def write(run: Buy) -> str:
        with connection.cursor() as cursor:
            cursor.execute("create temporary table parent (id integer primary key) on commit drop")
            cursor.execute("create temporary table child (id integer references parent deferrable initially deferred)"
                           " on commit drop")  # fmt: skip
            cursor.execute("insert into child values (7)")
        return "confirmed"

    sagas.answers(Buy).charge.returns("ch_1")
    sagas.answers(Buy).confirm.does(write)
    with pytest.raises(Unfinished, match=r"step failed: confirm(?s:.*)ForeignKeyViolation(?s:.*)Key \(id\)"):
        sagas.run(Buy, Order(1), key="a")


def test_a_commit_that_fails_is_told(transactional_db: None, sagas: Kit) -> None:
    """No log has it: what was rolled back wrote none. The message has it all the same."""

    def write(run: Buy) -> str:
        with connection.cursor() as cursor:
            cursor.execute("create temporary table child (id integer) on commit drop")
            cursor.execute("create function pg_temp.broken() returns trigger language plpgsql as"
                           " $$ begin raise 'a page is broken' using errcode = 'XX001'; end $$")  # fmt: skip
            cursor.execute("create constraint trigger broken after insert on child deferrable initially deferred"
                           " for each row execute function pg_temp.broken()")  # fmt: skip
            cursor.execute("insert into child values (7)")
        return "confirmed"

    sagas.answers(Buy).charge.returns("ch_1")
    sagas.answers(Buy).confirm.does(write)
    failed = r"logged meanwhile:(?s:.*)the commit of local steps failed(?s:.*)a page is broken"
    with pytest.raises(Unfinished, match=failed):
        sagas.run(Buy, Order(1), key="a")


def test_what_is_due_later_is_an_error_too(kit: Kit) -> None:
    """With how long it would take, and what to do."""
    kit.answers(Slow).call.times_out()
    with pytest.raises(Unfinished, match=r"left: call:do, due in 2 d(?s:.*)clock\.advance"):
        kit.run(Slow, Order(1), key="a")
    assert Slow.get(key="a").status == Status.RUNNING


def test_it_is_bounded(kit: Kit) -> None:
    """A saga that goes on and on ends the test, not the patience."""
    kit.answers(Slow).call.times_out()
    Slow.start(Order(1), key="a", own_transaction=True)
    with pytest.raises(Unfinished, match="still work after 2 moves"):
        kit.drain(skip=timedelta(days=30), moves=2)


def test_a_saga_that_nobody_knows(kit: Kit) -> None:
    """It is put off a few times, others run, and the message says what is missing."""
    run = Slow.start(Order(1), key="a", own_transaction=True)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_saga set version = 9 where id = %s", [run.id])
    kit.answers(Buy).charge.returns("ch_1")
    Buy.start(Order(1), key="b", own_transaction=True)
    with pytest.raises(Unfinished, match="version 9 is not registered"):
        kit.drain()
    assert Buy.get(key="b").status == Status.COMPLETED


def test_a_failed_statement_in_an_external_step(kit: Kit) -> None:
    """With and without a transaction around it the saga goes on as in production."""
    Seat.objects.create(number=3)
    assert kit.run(Seats, Order(3), key="a", check=False).status == Status.PARKED
    assert "IntegrityError" in kit.story(Seats.get(key="a"))
    assert kit.run(Seats, Order(4), key="b").status == Status.COMPLETED


def test_sagas_agree_with_their_logs(transactional_db: None, sagas: Kit) -> None:
    """What the kit leaves behind is what workers leave behind."""
    sagas.answers(Buy).charge.crashes().times_out().refuses("no")
    sagas.answers(Buy).find_charge.undecided()
    sagas.run(Buy, Order(1), check=False)
    sagas.answers(Blind).charge.times_out()
    sagas.answers(Blind).refund.returns()
    sagas.run(Blind, Order(1))
    assert differences() == []


def test_unknown_connections_are_refused(db: None) -> None:
    """With the words of `start()`."""
    with pytest.raises(ConfigurationError, match="neither a Django"):
        Kit(object()).drain()
