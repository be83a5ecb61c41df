"""`deadline=`: a saga turns back when its time is over, if it still can."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from sagas import DefinitionError, InvalidInput, Saga, step
from sagas.rebuild import rebuild
from sagas.states import Status
from sagas.testing.moving import Clock
from sagas_django.store import DjangoStore
from tests.shop.sagas import Ordered
from tests.shop.waiting import Hurried, Review, Reviewed
from tests.shop.world import World
from tests.support.stories import begin, differences, drain, entries, expire_leases, log_of, outbox
from tests.support.waiting import ask
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")
NO_WAIT, HOUR, MINUTE = timedelta(0), timedelta(hours=1), timedelta(minutes=1)


def start(saga: type[Saga[Any]] = Reviewed, **options: Any) -> Any:
    with transaction.atomic():
        return saga.start(Ordered(), key="a", **options)


def send(saga: Any = Hurried) -> None:
    with transaction.atomic():
        saga.review.send(Review(True), key="a")


def test_a_class_may_have_a_deadline(time_machine: Clock) -> None:
    """Counted from start(), on the database clock; the saga shows it, and its log has it for a rebuild."""
    time_machine.move_to(datetime(2031, 5, 1, 12, tzinfo=UTC))
    saga = begin(Hurried)
    assert Hurried.get(key="a").deadline == datetime(2031, 5, 1, 13, tzinfo=UTC)
    assert entries(saga)[0].data["deadline"] == datetime(2031, 5, 1, 13, tzinfo=UTC).timestamp()
    assert Reviewed.deadline is None


@pytest.mark.parametrize("deadline", [timedelta(hours=2), datetime(2031, 5, 1, 14, tzinfo=UTC)])
def test_start_may_say_another(deadline: Any, time_machine: Clock) -> None:
    """A length or a moment."""
    time_machine.move_to(datetime(2031, 5, 1, 12, tzinfo=UTC))
    start(Hurried, deadline=deadline)
    assert Hurried.get(key="a").deadline == datetime(2031, 5, 1, 14, tzinfo=UTC)


def test_while_waiting(time_machine: Clock, world: World) -> None:
    """The wait has no end of its own; the deadline ends it."""
    saga = begin(Hurried)
    drain()
    (row,) = outbox(saga)
    assert (row.step, row.holder) == ("review", None)
    time_machine.advance(HOUR - MINUTE)
    drain()
    assert log_of(saga)[-1] == "waiting review"
    time_machine.advance(MINUTE)
    drain()
    assert Hurried.get(key="a").status == Status.COMPENSATED
    assert Hurried.get(key="a").error == "its deadline has passed"
    assert world.names == ["charge", "refund"] and outbox(saga) == []


def test_a_pivot_in_doubt_goes_on(time_machine: Clock, world: World) -> None:
    """There may be no way back any more, so it is tried until that is known."""
    world.plan("ship", RuntimeError("down"), RuntimeError("down"), RuntimeError("down"), RuntimeError("down"))
    saga = start(Hurried, deadline=timedelta(seconds=100))
    drain()
    send()
    drain(skip=NO_WAIT)
    before = world.count()["ship"]
    time_machine.advance(timedelta(seconds=40))
    drain(skip=NO_WAIT)
    assert world.count()["ship"] > before
    time_machine.advance(timedelta(seconds=61))
    drain(skip=NO_WAIT)
    assert Hurried.get(key="a").status == Status.RUNNING
    assert "compensating" not in {line.split()[0] for line in log_of(saga)}


def test_a_step_before_the_pivot_that_backs_off_turns_back_at_the_deadline(time_machine: Clock, world: World) -> None:
    """What it did is in doubt and cannot be undone without its result: it is tried again to learn that."""
    world.plan("charge", RuntimeError("down"))
    saga = start(Hurried, deadline=timedelta(seconds=2))
    drain(skip=NO_WAIT)
    assert log_of(saga) == ["started", "step_failed charge"]
    time_machine.advance(timedelta(seconds=2))
    drain(skip=NO_WAIT)
    assert world.names == ["charge", "charge", "refund"]
    assert Hurried.get(key="a").status == Status.COMPENSATED


def test_after_the_pivot_it_is_nothing(time_machine: Clock, world: World) -> None:
    """There is no way back: it goes on, and its backoff is not cut short either."""
    world.plan("tell", RuntimeError("down"))
    saga = start(Hurried, deadline=MINUTE)
    send()
    drain(skip=NO_WAIT)
    assert log_of(saga)[-1] == "step_failed tell"
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set due_at = due_at + interval '10 minutes'")
    time_machine.advance(2 * MINUTE)
    drain(skip=NO_WAIT)
    assert world.count()["tell"] == 1
    time_machine.advance(10 * MINUTE)
    drain(skip=NO_WAIT)
    assert Hurried.get(key="a").status == Status.COMPLETED
    assert world.count()["refund"] == 0


def test_a_deadline_that_has_passed_before_the_first_step(time_machine: Clock, world: World) -> None:
    """Nothing was done, nothing is undone."""
    saga = begin(Hurried)
    time_machine.advance(HOUR)
    drain()
    assert Hurried.get(key="a").status == Status.COMPENSATED
    assert world.names == [] and outbox(saga) == []


def test_no_compensation_while_an_attempt_may_still_act(time_machine: Clock, world: World) -> None:
    """A body that runs past the deadline is waited for; its result is what is undone."""
    start(Hurried, deadline=timedelta(seconds=10))
    with one_worker() as slow, one_worker() as other:
        begun = begin_due(slow)
        time_machine.advance(timedelta(seconds=15))
        assert begin_due(other) == []
        run_batch(slow, begun)
    drain(skip=NO_WAIT)
    assert world.names == ["charge", "refund"]
    assert Hurried.get(key="a").status == Status.COMPENSATED


def test_a_worker_that_dies_across_the_deadline(time_machine: Clock, world: World) -> None:
    """What the dead attempt did is found out first, then it is undone."""
    start(Hurried, deadline=timedelta(seconds=10))
    with one_worker() as dies:
        begin_due(dies)
    time_machine.advance(HOUR)
    expire_leases()
    drain()
    assert world.names == ["charge", "refund"]
    assert Hurried.get(key="a").status == Status.COMPENSATED


def test_a_paused_saga_turns_back_when_it_is_resumed(time_machine: Clock, world: World) -> None:
    """A pause does not stop the clock, and nothing begins during it."""
    saga = begin(Hurried)
    drain()
    ask("pause", saga)
    drain(skip=NO_WAIT)
    time_machine.advance(2 * HOUR)
    drain(skip=NO_WAIT)
    assert Hurried.get(key="a").status == Status.RUNNING
    ask("resume", saga)
    drain(skip=NO_WAIT)
    assert Hurried.get(key="a").status == Status.COMPENSATED


def test_a_signal_before_the_deadline_is_begun_is_noted_and_the_saga_turns_back(
    time_machine: Clock, world: World
) -> None:
    """Time is over for the saga as a whole; the log has both."""
    saga = begin(Hurried)
    drain()
    time_machine.advance(HOUR)
    send()
    drain(skip=timedelta(seconds=1))
    assert "signalled review" in log_of(saga)
    assert Hurried.get(key="a").status == Status.COMPENSATED and world.count()["ship"] == 0


def test_a_deadline_survives_a_rebuild(time_machine: Clock, world: World) -> None:
    """It is in the log."""
    saga = begin(Hurried)
    drain()
    before = Hurried.get(key="a").deadline
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("delete from sagas_outbox")
        cursor.execute("delete from sagas_saga")
    with DjangoStore("default").connect() as store:
        assert [(each.changed, each.problem) for each in rebuild(store)] == [(True, "")]
    assert differences() == [] and Hurried.get(key="a").deadline == before
    drain(skip=NO_WAIT)
    time_machine.advance(HOUR)
    drain(skip=NO_WAIT)
    assert log_of(saga)[-1] == "compensated"


@pytest.mark.parametrize(
    "deadline", [timedelta(0), timedelta(seconds=-1), timedelta(days=4000), datetime(2031, 1, 1), 60, "1h", True]
)
def test_unusable_deadlines_are_refused(deadline: Any) -> None:
    """Of a call and of a class, each with the name of the argument."""
    with pytest.raises(InvalidInput, match="deadline") as caught:
        start(deadline=deadline)
    assert caught.value.path == "deadline"
    with pytest.raises(DefinitionError, match="deadline"):

        class Odd(Saga[Ordered], name="test.odd_deadline", version=1, deadline=deadline):
            @step(compensate=None)
            def one(self) -> None: ...
