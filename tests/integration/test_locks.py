"""Semantic locks on a real database: held from a step to the end of its saga, by one saga at a time."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from sagas import Refused, engine
from sagas.states import Status
from sagas.testing.moving import Clock
from tests.shop.locking import (
    Async,
    Awaits,
    AwaitsLocally,
    Blind,
    Crossing,
    Guest,
    Holds,
    HoldsLocally,
    Host,
    Odd,
    Returns,
    ReturnsLocally,
    Wanted,
)
from tests.shop.models import Booking
from tests.shop.waiting import Review
from tests.shop.world import World
from tests.support.stories import NO_WAIT, begin, bring_forward, drain, log_of, outbox
from tests.support.workers import begin_due, one_worker, run_batch, run_together

pytestmark = pytest.mark.usefixtures("shop")
ONE = Wanted(["account:7"])


def held() -> list[tuple[str, str]]:
    """Subject and key of the saga that holds it."""
    return _lines(waiting=False)


def waiting() -> list[tuple[str, str]]:
    """Subject and key of each saga that waits."""
    return _lines(waiting=True)


def _lines(*, waiting: bool) -> list[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "select l.subject, s.key from sagas_lock l join sagas_saga s on s.id = l.saga_id"
            " where l.waiting = %s order by l.subject, s.key",
            [waiting],
        )
        return list(cursor.fetchall())


def later(*ids: UUID) -> None:
    """Let sagas sleep for an hour, unless they are woken."""
    with connection.cursor() as cursor:
        cursor.execute(
            "update sagas_outbox set due_at = clock_timestamp() + interval '1 hour' where saga_id = any(%s)",
            [list(ids)],
        )


def review(saga: Any, key: str = "a") -> None:
    with transaction.atomic():
        saga.review.send(Review(True), key=key)


@pytest.mark.parametrize("saga", [Holds, HoldsLocally])
def test_held_from_the_step_to_the_end(saga: Any, world: World) -> None:
    """While the saga waits for its signal the subject is its own; with its end it is free."""
    begin(saga, input=ONE)
    drain()
    assert held() == [("account:7", "a")]
    review(saga)
    drain()
    assert saga.get(key="a").status == Status.COMPLETED
    assert held() == []


@pytest.mark.parametrize("saga", [Holds, HoldsLocally])
def test_another_saga_is_refused(saga: Any, world: World) -> None:
    """Without a wait at once: its body never begins, and it turns back."""
    begin(saga, "a", ONE)
    drain()
    world.calls.clear()
    other = begin(saga, "b", ONE)
    drain()
    assert saga.get(key="b").status == Status.COMPENSATED
    assert world.names == []
    assert "refused: semantic lock 'account:7' is held by saga test.hold" in saga.get(key="b").error
    assert "(key 'a')" in saga.get(key="b").error
    assert held() == [("account:7", "a")]
    assert "step_not_done" in " ".join(log_of(other))


def test_kept_through_retries_and_compensation(world: World) -> None:
    """It is the saga's: retries of the step, and the undo, need not take it again, and others stay out."""
    world.plan("charge", ConnectionError("gone"))
    begin(Holds, "a", ONE)
    drain()
    world.plan("refund", ConnectionError("gone"))
    with transaction.atomic():
        Holds.cancel(key="a", reason="changed their mind")
    run_together()
    run_together()
    assert held() == [("account:7", "a")]
    drain()
    assert Holds.get(key="a").status == Status.CANCELLED
    assert world.count() == {"charge": 2, "refund": 2}
    assert held() == []


def test_a_local_step_that_raises_holds_nothing(world: World) -> None:
    """It did not happen, nor did its lock."""
    seen: list[Any] = []

    def look(run: Any) -> None:
        seen.extend(held())
        raise ConnectionError("no")

    world.plan("book", look)
    begin(HoldsLocally, "a", ONE)
    run_together()
    assert seen == [("account:7", "a")]
    assert held() == []
    drain()
    assert held() == [("account:7", "a")]


@pytest.mark.parametrize("saga", [Awaits, AwaitsLocally])
def test_waiting_uses_no_attempt_and_no_thread(saga: Any, world: World) -> None:
    """A step with one attempt waits, again and again, and goes on when the holder has ended."""
    begin(Holds, "a", ONE)
    drain()
    run = begin(saga, "b", ONE)
    for _ in range(3):
        bring_forward()
        drain(skip=NO_WAIT)
    assert waiting() == [("account:7", "b")]
    assert saga.get(key="b").status == Status.RUNNING
    assert [line for line in log_of(run) if "blocked" in line] == [
        "step_blocked charge" if saga is Awaits else "step_blocked book"
    ]
    review(Holds)
    drain()
    assert saga.get(key="b").status == Status.COMPLETED
    assert held() == waiting() == []


def test_woken_when_it_is_free(world: World) -> None:
    """The one that has waited longest is due in the commit that ends the holder, however long it was to sleep."""
    begin(Holds, "a", ONE)
    drain()
    first, second = begin(Awaits, "b", ONE), begin(Awaits, "c", ONE)
    run_together()
    assert waiting() == [("account:7", "b"), ("account:7", "c")]
    later(first.id, second.id)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_lock set at = at - interval '1 minute' where saga_id = %s", [first.id])
    review(Holds)
    drain(skip=NO_WAIT)
    assert Awaits.get(key="b").status == Status.COMPLETED
    assert Awaits.get(key="c").status == Status.COMPLETED  # woken by the end of the other
    assert held() == []


@pytest.mark.parametrize("saga", [Returns, ReturnsLocally])
def test_woken_by_its_lock_and_by_its_line(saga: Any, world: World) -> None:
    """Whoever ends in the queue in which the next in its line waits for its lock makes that one due, and ends."""
    for key in "ab":
        with transaction.atomic():
            saga.start(ONE, key=key, ordering_key="customer:7")
        run_together()
    assert waiting() == [("account:7", "b")]
    later(saga.get(key="b").id)
    with connection.cursor() as cursor:
        cursor.execute("select step, queue from sagas_outbox where saga_id = %s", [saga.get(key="a").id])
        assert cursor.fetchall() == [("tell" if saga is Returns else "note", "left")]
    run_together()
    assert saga.get(key="a").status == Status.COMPLETED
    drain(skip=NO_WAIT)
    assert saga.get(key="b").status == Status.COMPLETED
    assert held() == waiting() == []


def test_the_wait_has_an_end(world: World, time_machine: Clock) -> None:
    """After ten minutes the step is refused, what came before it is undone."""
    begin(Holds, "a", ONE)
    drain()
    begin(AwaitsLocally, "b", ONE)
    drain(skip=NO_WAIT)
    time_machine.advance(timedelta(minutes=9))
    drain(skip=NO_WAIT)
    assert AwaitsLocally.get(key="b").status == Status.RUNNING
    time_machine.advance(timedelta(minutes=1, seconds=1))
    drain()
    assert AwaitsLocally.get(key="b").status == Status.COMPENSATED
    assert world.names == ["charge", "first", "unfirst"]
    assert waiting() == []
    assert held() == [("account:7", "a")]


def test_a_cancel_ends_the_wait(world: World) -> None:
    """At once."""
    begin(Holds, "a", ONE)
    drain()
    begin(Awaits, "b", ONE)
    run_together()
    with transaction.atomic():
        Awaits.cancel(key="b", reason="takes too long")
    drain(skip=NO_WAIT)
    assert Awaits.get(key="b").status == Status.CANCELLED
    assert waiting() == []


def test_opposite_orders_end_by_the_limit(world: World, time_machine: Clock) -> None:
    """Each has what the other wants: one of them gives up, and the other goes on."""
    begin(Crossing, "a", Wanted(["x", "y"]))
    begin(Crossing, "b", Wanted(["y", "x"]))
    run_together()
    drain(skip=NO_WAIT)
    assert held() == [("x", "a"), ("y", "b")]
    time_machine.advance(timedelta(seconds=61))
    drain()
    ends = {Crossing.get(key=key).status for key in "ab"}
    assert Status.COMPENSATED in ends
    assert ends <= {Status.COMPENSATED, Status.COMPLETED}
    assert held() == waiting() == []


def test_all_subjects_or_none(world: World) -> None:
    """A step takes all of its subjects together, so that it never sits on half of them."""
    begin(Holds, "a", Wanted(["b", "c"]))
    drain()
    begin(Holds, "b", Wanted(["a", "b"]))
    drain()
    assert held() == [("b", "a"), ("c", "a")]
    assert Holds.get(key="b").status == Status.COMPENSATED


def test_one_of_many_at_once(world: World) -> None:
    """Of ten sagas that come at the same moment one has it, and the others are refused."""
    for key in "abcdefghij":
        begin(Holds, key, ONE)
    drain(concurrency=4)
    ends = sorted(Holds.get(key=key).status for key in "abcdefghij")
    assert ends == [Status.COMPENSATED] * 9 + [Status.RUNNING]
    assert len(held()) == 1
    assert world.names == ["charge"]


def test_one_of_many_local_steps_in_one_transaction(world: World) -> None:
    """The same where they share a transaction."""
    for key in "abcde":
        begin(HoldsLocally, key, ONE)
    run_together()
    drain()
    ends = sorted(HoldsLocally.get(key=key).status for key in "abcde")
    assert ends == [Status.COMPENSATED] * 4 + [Status.RUNNING]
    assert Booking.objects.count() == 1
    assert len(held()) == 1


def test_being_taken_in_an_open_transaction(world: World) -> None:
    """A local step that has taken it and not committed is no holder yet: even who does not wait looks again, without
    a thread that is held up."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(run: Any) -> str:
        inside.set()
        assert go_on.wait(20)
        raise Refused("after all not")

    world.plan("book", slow)
    begin(HoldsLocally, "a", ONE)
    with one_worker() as worker:
        begun = begin_due(worker)
        thread = threading.Thread(target=run_batch, args=(worker, begun))
        thread.start()
        assert inside.wait(20)
        begin(Holds, "b", ONE)
        run_together()
        assert Holds.get(key="b").status == Status.RUNNING
        assert world.count()["charge"] == 0
        go_on.set()
        thread.join(20)
    drain()
    assert world.count()["charge"] == 1
    assert held() == [("account:7", "b")]


def test_a_worker_that_lost_its_lease_takes_nothing(world: World) -> None:
    """It wakes after another has taken over, and even after the saga has ended: no lock is left."""
    begin(Holds, "a", ONE)
    with one_worker() as sleeper:
        begun = begin_due(sleeper)
        with connection.cursor() as cursor:
            cursor.execute("update sagas_outbox set due_at = clock_timestamp() - interval '1 second'")
        world.always("charge", ConnectionError("no"))
        drain()
        assert Holds.get(key="a").parked_from == Status.RUNNING
        with transaction.atomic():
            engine.request("test.holds", "abort", key="a", reason="enough")
        drain()
        assert held() == []
        bodies = world.count()["charge"]
        run_batch(sleeper, begun)
    assert held() == []
    assert world.count()["charge"] == bodies


def test_a_saga_that_a_late_answer_reopens(world: World) -> None:
    """It gave up its lock with its end: it sees to what was late without it, and leaves the new holder alone."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(run: Any) -> str:
        inside.set()
        assert go_on.wait(30)
        return "late"

    world.plan("charge", slow)
    begin(Blind, "a", ONE)
    with one_worker() as sleeper:
        thread = threading.Thread(target=run_batch, args=(sleeper, begin_due(sleeper)))
        thread.start()
        assert inside.wait(20)
        with connection.cursor() as cursor:
            cursor.execute("update sagas_outbox set due_at = clock_timestamp() - interval '1 second'")
        drain(skip=timedelta(minutes=3))
        assert Blind.get(key="a").status == Status.COMPENSATED
        begin(Holds, "b", ONE)
        drain()
        assert held() == [("account:7", "b")]
        go_on.set()
        thread.join(20)
    drain(skip=timedelta(minutes=3))
    assert Blind.get(key="a").status == Status.COMPENSATED
    assert world.of("refund")[-1].argument == "late"
    assert held() == [("account:7", "b")]
    assert Holds.get(key="b").status == Status.RUNNING


def test_many_in_line(world: World) -> None:
    """Sagas that want two of three subjects each, on several workers: one after the other, and no attempt is lost."""
    inside: set[str] = set()
    guard = threading.Lock()

    def alone(run: Any) -> str:
        with guard:
            assert not inside.intersection(run.input.subjects), "two bodies at once under one lock"
            inside.update(run.input.subjects)
        with guard:
            inside.difference_update(run.input.subjects)
        return "done"

    world.always("charge", alone)
    pairs = (["x", "y"], ["z", "y"], ["x", "z"])
    for number in range(24):
        begin(Awaits, f"{number}", Wanted(pairs[number % 3]))
    drain(concurrency=4)
    assert {Awaits.get(key=f"{number}").status for number in range(24)} == {Status.COMPLETED}
    assert world.count() == {"charge": 24}
    assert held() == waiting() == []


def test_an_abort_frees_it(world: World) -> None:
    """A person closes the saga as it is, and others may have what it held."""
    world.plan("charge", *[ConnectionError("gone")] * 3)
    begin(Holds, "a", ONE)
    drain()
    assert Holds.get(key="a").status == Status.PARKED
    assert held() == [("account:7", "a")]
    with transaction.atomic():
        engine.request("test.holds", "abort", key="a", reason="settled by telephone")
    drain()
    assert held() == []


def test_a_child_uses_what_its_parent_holds(world: World) -> None:
    """It is no obstacle, and stays the parent's; others, children too, are kept out."""
    begin(Host, "a", ONE)
    drain()
    assert world.names == ["hold", "charge"]
    assert held() == [("account:7", "a")]
    begin(Guest, "b", ONE)
    drain()
    assert Guest.get(key="b").status == Status.COMPENSATED
    review(Host)
    drain()
    assert Host.get(key="a").status == Status.COMPLETED
    assert held() == []


def test_an_async_body_takes_it_too(world: World) -> None:
    """In a thread, so that the event loop goes on."""
    begin(Holds, "a", ONE)
    drain()
    begin(Async, "b", ONE)
    drain(skip=NO_WAIT)
    assert waiting() == [("account:7", "b")]
    review(Holds)
    drain()
    assert Async.get(key="b").status == Status.COMPLETED
    assert held() == []


@pytest.mark.parametrize("subject", ["", "a\x00b", 7, ["x"] * 0, KeyError("nothing like that")])
def test_a_subject_that_cannot_be(subject: Any, world: World) -> None:
    """The step fails before anything of it has begun, so that its outcome is known."""
    world.always("ask", subject)
    run = begin(Odd, "a", ONE)
    drain()
    assert Odd.get(key="a").status == Status.COMPENSATED
    assert world.count()["charge"] == 0
    assert [line for line in log_of(run) if line.startswith("step_")] == [
        "step_failed charge",
        "step_failed charge",
        "step_not_done charge",
    ]
    assert not outbox(run)
