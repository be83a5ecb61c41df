"""Pause and resume of one saga, and cancel while it waits: requests that workers apply."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from sagas import pauses
from sagas.pauses import Scope
from sagas.rebuild import rebuild
from sagas.states import Status
from sagas.store import rows
from sagas.testing.moving import Clock
from sagas_django.models import OutboxRow
from sagas_django.store import DjangoStore
from tests.shop.sagas import Trip
from tests.shop.waiting import Hurried, LastWord, Review, Reviewed, Sleeper
from tests.shop.world import World
from tests.support.stories import (
    Aside,
    begin,
    differences,
    drain,
    entries,
    expire_leases,
    log_of,
    outbox,
    second_connection,
)
from tests.support.waiting import ask, wait_until_blocked
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")
NO_WAIT, HOUR = timedelta(0), timedelta(hours=1)


def send(note: str = "fine") -> None:
    with transaction.atomic():
        Reviewed.review.send(Review(True, note), key="a")


# --- pause and resume ---


def test_a_paused_saga_begins_nothing(time_machine: Clock, world: World) -> None:
    """Whatever is due; it is shown as paused, with who and why in its log; resume goes on at once."""
    saga = begin(Trip)
    ask("pause", saga, reason="look at this first")
    drain(skip=NO_WAIT)
    found = Trip.get(key="a")
    assert (found.status, found.paused, world.names) == (Status.RUNNING, True, [])
    time_machine.advance(HOUR)
    drain(skip=NO_WAIT)
    assert world.names == []
    ask("resume", saga)
    drain(skip=NO_WAIT)
    assert Trip.get(key="a").status == Status.COMPLETED and not Trip.get(key="a").paused
    assert [(entry.data["actor"], entry.data["reason"]) for entry in entries(saga) if entry.kind == "paused"] == [
        ("ann", "look at this first")
    ]


def test_what_runs_is_finished_and_recorded(world: World) -> None:
    """And no step begins after it."""
    saga = begin(Trip)

    def meanwhile(_: Any) -> str:
        Aside(lambda: (ask("pause", saga), _apply())).join()
        return "charged"

    world.plan("charge", meanwhile)
    drain()
    assert world.names == ["book", "charge"]
    assert log_of(saga)[-2:] == ["paused", "step_done charge"]
    assert Trip.get(key="a").paused
    ask("resume", saga)
    drain(skip=NO_WAIT)
    assert world.names == ["book", "charge", "confirm"]


def _apply() -> None:
    with one_worker() as other:
        run_batch(other, begin_due(other))


def test_the_worker_that_runs_it_stops_before_the_next_step(world: World) -> None:
    """A pause that is committed, though not applied yet, is enough: nothing begins before it."""
    saga = begin(Trip)
    world.plan("charge", lambda run: (Aside(lambda: ask("pause", saga)).join(), "charged")[1])
    drain()
    assert world.names == ["book", "charge"] and Trip.get(key="a").paused


def test_compensation_can_be_paused(world: World) -> None:
    """Undoing stops as well, and goes on."""
    saga = begin(Trip)
    world.plan("charge", lambda run: (Aside(lambda: (ask("cancel", saga), ask("pause", saga))).join(), "ok")[1])
    drain()
    assert world.names == ["book", "charge"]
    ask("resume", saga)
    drain(skip=NO_WAIT)
    assert Trip.get(key="a").status == Status.CANCELLED
    assert world.names[2:] == ["refund", "unbook"]


def test_timers_pass_quietly_while_paused(time_machine: Clock, world: World) -> None:
    """The end of a sleep and of a wait are kept, and seen to when the saga is resumed."""
    asleep, waits = begin(Sleeper, "s"), begin(Reviewed, "a")
    drain()
    ask("pause", asleep)
    ask("pause", waits)
    drain(skip=NO_WAIT)
    time_machine.advance(timedelta(days=3))
    drain(skip=NO_WAIT)
    assert (log_of(asleep)[-1], log_of(waits)[-1]) == ("paused", "paused")
    ask("resume", asleep)
    ask("resume", waits)
    drain(skip=NO_WAIT)
    assert (Sleeper.get(key="s").status, Reviewed.get(key="a").status) == (Status.COMPLETED, Status.COMPENSATED)


def test_a_signal_to_a_paused_saga_is_kept(world: World) -> None:
    """Resume takes it at once."""
    saga = begin(Reviewed)
    drain()
    ask("pause", saga)
    drain(skip=NO_WAIT)
    send()
    drain(skip=NO_WAIT)
    assert log_of(saga)[-2:] == ["paused", "signalled review"]
    ask("resume", saga)
    drain(skip=NO_WAIT)
    assert Reviewed.get(key="a").status == Status.COMPLETED
    assert outbox(saga) == []


def test_a_resume_that_completes_a_saga_leaves_no_row(world: World) -> None:
    """The signal it waited for last is there already."""
    saga = begin(LastWord)
    drain()
    ask("pause", saga)
    with transaction.atomic():
        LastWord.word.send("over", key="a")
    drain(skip=NO_WAIT)
    ask("resume", saga)
    drain(skip=NO_WAIT)
    assert log_of(saga)[-2:] == ["step_done word", "completed"]
    assert OutboxRow.objects.count() == 0


def test_a_signal_that_completes_a_saga_leaves_no_row(world: World) -> None:
    """The row of the wait goes with the decision."""
    saga = begin(LastWord)
    drain()
    with transaction.atomic():
        LastWord.word.send("over", key="a")
    drain(skip=NO_WAIT)
    assert log_of(saga)[-1] == "completed"
    assert OutboxRow.objects.count() == 0


def test_a_signal_that_completes_a_saga_whose_row_is_held(world: World) -> None:
    """Whoever holds it finds nothing to do and lets it go."""
    saga = begin(LastWord)
    with one_worker() as at_wait, one_worker() as other:
        begun = begin_due(at_wait)
        with transaction.atomic():
            LastWord.word.send("over", key="a")
        run_batch(other, begin_due(other))
        assert log_of(saga)[-1] == "completed" and len(outbox(saga)) == 1
        run_batch(at_wait, begun)
    assert OutboxRow.objects.count() == 0 and differences() == []


def test_a_resume_while_a_worker_puts_the_row_off(world: World) -> None:
    """It has begun the row, and seen that the saga is paused; the resume comes before it gives the row back."""
    saga = begin(Reviewed)
    ask("pause", saga)
    drain(skip=NO_WAIT)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set due_at = clock_timestamp()")
    from sagas import reception
    from sagas.store import rows

    held: list[Any] = []

    def meanwhile(store: Any, paused: Any, **options: Any) -> None:
        held.append(paused)
        Aside(lambda: (ask("resume", saga), _apply())).join()
        hold_up(store, paused, **options)

    hold_up = rows.hold_up
    with pytest.MonkeyPatch.context() as patch, DjangoStore("default").connect() as store, one_worker() as worker:
        patch.setattr(reception.rows, "hold_up", meanwhile)
        ids = [(row.pk, row.token) for row in outbox(saga)]
        assert worker.begin(store, ids, published=False) == []
    assert len(held) == 1
    drain(skip=timedelta(seconds=1))
    assert log_of(saga)[-1] == "waiting review"


def test_a_resume_while_a_worker_has_the_saga_locked(world: World) -> None:
    """A pause and a resume are requests like any other: they wait for nobody and are not forgotten."""
    saga = begin(Reviewed)
    ask("pause", saga)
    drain(skip=NO_WAIT)
    with second_connection(autocommit=False) as holder:
        holder.execute("select from sagas_saga where id = %s for update", [saga.id])
        holder.execute("select from sagas_outbox where saga_id = %s for update", [saga.id])
        ask("resume", saga)
        holder.commit()
    drain(skip=NO_WAIT)
    assert log_of(saga)[-1] == "waiting review"


def test_pause_twice_and_resume_twice(world: World) -> None:
    """The log says so, and nothing else comes of it."""
    saga = begin(Reviewed)
    for kind in ("pause", "pause", "resume", "resume"):
        ask(kind, saga)
    drain(skip=timedelta(seconds=1))
    assert log_of(saga)[1:5] == ["paused", "paused", "resumed", "resumed"]
    assert log_of(saga)[-1] == "waiting review"


def test_a_paused_saga_is_rebuilt_as_paused(world: World) -> None:
    """From its log alone; it goes on only when it is resumed."""
    saga = begin(Hurried)
    drain()
    ask("pause", saga)
    drain(skip=NO_WAIT)
    before = Hurried.get(key="a")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("delete from sagas_outbox")
        cursor.execute("delete from sagas_saga")
    with DjangoStore("default").connect() as store:
        assert [(each.changed, each.problem) for each in rebuild(store)] == [(True, "")]
    drain(skip=NO_WAIT)
    after = Hurried.get(key="a")
    assert (after.paused, after.deadline, after.status) == (True, before.deadline, before.status)
    ask("resume", saga)
    with transaction.atomic():
        Hurried.review.send(Review(True), key="a")
    drain(skip=NO_WAIT)
    assert Hurried.get(key="a").status == Status.COMPLETED


# --- cancel while it waits ---


def test_a_cancel_while_it_waits_turns_back(world: World) -> None:
    """At once, not when the wait is over."""
    saga = begin(Reviewed)
    drain()
    with transaction.atomic():
        Reviewed.cancel(key="a", reason="changed my mind")
    drain(skip=NO_WAIT)
    assert Reviewed.get(key="a").status == Status.CANCELLED
    assert world.names == ["charge", "refund"] and outbox(saga) == []


def test_a_cancel_and_a_signal_in_one_transaction(world: World) -> None:
    """What was asked for first counts first."""
    begin(Reviewed)
    drain()
    with transaction.atomic():
        Reviewed.cancel(key="a", reason="changed my mind")
        Reviewed.review.send(Review(True), key="a")
    drain(skip=timedelta(seconds=1))
    assert Reviewed.get(key="a").status == Status.CANCELLED
    assert world.names == ["charge", "refund"]


def test_no_compensation_while_an_attempt_may_still_act(time_machine: Clock, world: World) -> None:
    """A cancel waits for the worker that has begun a step, and for the end of its lease if it says nothing."""
    saga = begin(Reviewed)
    with one_worker() as frozen, one_worker() as other:
        begin_due(frozen)  # charge, perhaps at this very moment
        with transaction.atomic():
            Reviewed.cancel(key="a", reason="changed my mind")
        run_batch(other, begin_due(other))
        time_machine.advance(timedelta(seconds=5))
        assert begin_due(other) == []
        assert log_of(saga) == ["started", "cancel_requested"]
    expire_leases()
    time_machine.advance(HOUR)
    drain()
    assert log_of(saga)[2:4] != [] and world.names in (["charge", "refund"], [])


@pytest.mark.parametrize("scope", [Scope.QUEUE, Scope.DEFINITION])
def test_what_is_put_off_while_a_pause_ends_is_woken(scope: Scope) -> None:
    """Whoever resumes waits for it, and does not leave it asleep until somebody looks at it again."""
    begin(Trip)
    name = "default" if scope is Scope.QUEUE else "test.trip"
    with DjangoStore("default").connect() as raw, DjangoStore("default").connect() as other:
        pauses.pause(raw, scope, name, version=0, actor="ann", reason="test")
        held = raw.execute("select id, token from sagas_outbox").fetchall()
        thread = threading.Thread(target=pauses.resume, args=(other, scope, name))
        with raw.transaction():
            rows.hold_up(raw, held, delay=300, soon=1, now=None)
            thread.start()
            wait_until_blocked(1)
        thread.join(10)
        assert raw.execute("select due_at <= clock_timestamp() from sagas_outbox").fetchall() == [(True,)]
