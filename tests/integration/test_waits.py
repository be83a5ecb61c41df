"""Waits and sleeps: what ends them, what they cost, and that nothing can be lost between two of anything."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from sagas import Saga
from sagas.rebuild import rebuild
from sagas.states import Status
from sagas.store import rows
from sagas.testing.moving import Clock
from sagas_django.models import OutboxRow
from sagas_django.store import DjangoStore
from tests.shop.sagas import Ordered
from tests.shop.waiting import Patient, Questioned, Review, Reviewed, Sleeper
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
from tests.support.waiting import ask
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")
HOUR, NO_WAIT = timedelta(hours=1), timedelta(0)


def send(ok: bool = True, note: str = "fine", key: str = "a", **options: Any) -> bool:
    with transaction.atomic():
        return Reviewed.review.send(Review(ok, note), key=key, **options)


def status(saga: type[Saga[Any]] = Reviewed) -> Status:
    return saga.get(key="a").status


def due_in(saga: Any) -> float:
    """Seconds until the one row of a saga is due."""
    (row,) = outbox(saga)
    with connection.cursor() as cursor:
        cursor.execute("select extract(epoch from due_at - clock_timestamp())::float8 from sagas_outbox where id = %s",
                       [row.pk])  # fmt: skip
        return float(cursor.fetchone()[0])


def test_a_saga_waits_for_its_signal_and_goes_on(world: World) -> None:
    """While it waits it is one row that is due when the wait times out."""
    saga = begin(Reviewed)
    drain()
    (row,) = outbox(saga)
    assert (row.step, row.holder, row.deliveries) == ("review", None, 0)
    assert 172_700 < due_in(saga) <= 172_800
    assert log_of(saga) == ["started", "step_done charge", "waiting review"]
    assert send()
    drain()
    assert status() == Status.COMPLETED
    assert log_of(saga) == [
        "started", "step_done charge", "waiting review", "signalled review", "step_done review", "step_done ship",
        "completed",
    ]  # fmt: skip
    assert [call.argument for call in world.calls if call.name == "ship"] == ["fine"]
    assert outbox(saga) == []


# --- timeouts ---


def test_on_timeout_compensate_turns_back(time_machine: Clock, world: World) -> None:
    """After the time that was declared, not before."""
    saga = begin(Reviewed)
    drain()
    time_machine.advance(timedelta(days=2) - HOUR)
    drain()
    assert status() == Status.RUNNING
    time_machine.advance(HOUR)
    drain()
    assert status() == Status.COMPENSATED
    assert Reviewed.get(key="a").error == "no signal came in time"
    assert world.names == ["charge", "refund"]
    assert outbox(saga) == []


def test_on_timeout_skip_goes_on_without(time_machine: Clock, world: World) -> None:
    """A wait without a timeout has none."""
    saga = begin(Patient)
    drain()
    time_machine.advance(timedelta(days=3000))
    drain()
    assert status(Patient) == Status.RUNNING
    with transaction.atomic():
        Patient.first.send(Review(True, "late"), key="a")
    drain()
    time_machine.advance(timedelta(minutes=2))
    drain()
    assert status(Patient) == Status.COMPLETED
    assert entries(saga)[-2].data["result"] == ["late", "-"]


def test_on_timeout_park_waits_for_a_person(time_machine: Clock) -> None:
    """Who may have it wait anew, for the whole time."""
    saga = begin(Questioned)
    drain()
    time_machine.advance(timedelta(minutes=1))
    drain()
    assert status(Questioned) == Status.PARKED and outbox(saga) == []
    ask("retry", saga)
    drain()
    assert status(Questioned) == Status.RUNNING
    time_machine.advance(timedelta(seconds=59))
    drain()
    assert status(Questioned) == Status.RUNNING
    time_machine.advance(timedelta(seconds=2))
    drain()
    assert status(Questioned) == Status.PARKED


def test_a_signal_that_was_sent_before_the_timeout_is_begun_wins(time_machine: Clock, world: World) -> None:
    """However late the worker is that finds both."""
    begin(Reviewed)
    drain()
    time_machine.advance(timedelta(days=2))
    send()
    drain()
    assert status() == Status.COMPLETED


def test_it_wins_also_when_no_worker_has_run_for_a_day(time_machine: Clock, world: World) -> None:
    """The customer was in time; that we were not is none of their business."""
    begin(Reviewed)
    drain()
    time_machine.advance(timedelta(days=1))
    send()
    time_machine.advance(timedelta(days=2))
    drain()
    assert status() == Status.COMPLETED


def test_a_cancel_is_applied_first_also_when_no_worker_has_run_for_a_day(time_machine: Clock, world: World) -> None:
    """What was cancelled before it began does not begin."""
    begin(Reviewed)
    with transaction.atomic():
        Reviewed.cancel(key="a", reason="changed my mind")
    time_machine.advance(timedelta(days=1))
    with one_worker(goes_on=True) as worker:
        while begun := begin_due(worker):
            run_batch(worker, begun)
            time_machine.advance(timedelta(seconds=1))
    assert (status(), world.names) == (Status.CANCELLED, [])


def test_a_timeout_that_has_begun_and_a_signal_that_comes_then(time_machine: Clock, world: World) -> None:
    """One of them wins, and the log says which: what is decided second sees what was decided first."""
    saga = begin(Reviewed)
    drain()
    time_machine.advance(timedelta(days=2))
    with one_worker() as timing_out, one_worker() as signalling:
        begun = begin_due(timing_out)
        send()
        arrived = begin_due(signalling)
        run_batch(signalling, arrived)
        run_batch(timing_out, begun)
    drain()
    assert status() == Status.COMPLETED
    assert "signalled review" in log_of(saga) and world.names == ["charge", "ship"]


# --- no wake-up is lost ---


def test_a_signal_while_the_saga_row_is_locked(world: World) -> None:
    """A transaction of somebody else that holds the saga's rows delays workers only, and nothing is forgotten."""
    saga = begin(Reviewed)
    drain()
    with second_connection(autocommit=False) as holder:
        holder.execute("select from sagas_outbox where saga_id = %s for update", [saga.id])
        holder.execute("select from sagas_saga where id = %s for update", [saga.id])
        assert send()  # does not wait
        worker = Aside(lambda: drain(skip=NO_WAIT, check=False))
        _until_begun("signal")
        holder.commit()
        worker.join(40)
    drain()
    assert status() == Status.COMPLETED
    assert outbox(saga) == []


def test_a_signal_while_the_wait_is_being_begun(world: World) -> None:
    """The worker that has come to the wait holds its row and knows nothing of the signal; it learns when it records."""
    saga = begin(Reviewed)
    with one_worker() as slow, one_worker() as other:
        run_batch(slow, begin_due(slow))  # charge
        at_wait = begin_due(slow)
        assert [each.attempt and each.attempt.step for each in at_wait] == ["review"]
        send()
        run_batch(other, begin_due(other))
        run_batch(slow, at_wait)
    drain(skip=NO_WAIT)
    assert status() == Status.COMPLETED
    assert outbox(saga) == []


def test_a_signal_while_the_row_of_the_wait_is_locked(world: World) -> None:
    """A row that somebody has locked cannot be woken, so nothing is recorded before it can: else it would sleep on."""
    saga = begin(Reviewed)
    drain()
    written: list[dict[int, bool]] = []
    record = rows.record

    def recorded(*arguments: Any, **options: Any) -> dict[int, bool]:
        written.append(record(*arguments, **options))
        locker.rollback()
        return written[-1]

    with second_connection(autocommit=False) as locker, one_worker() as worker:
        locker.execute("select from sagas_outbox where saga_id = %s for update", [saga.id])
        send()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows, "record", recorded)
            run_batch(worker, begin_due(worker))
    assert written[0] == {} and len(written) > 1
    drain(skip=NO_WAIT)
    assert status() == Status.COMPLETED
    assert outbox(saga) == []


def _until_begun(kind: str) -> None:
    from tests.relay.plant import wait_until

    with second_connection() as look:
        query = "select count(*) from sagas_outbox where kind = %s and deliveries > 0"
        wait_until(lambda: (look.execute(query, [kind]).fetchone() or (0,))[0], f"a {kind} to be begun", 20)


# --- crashes ---


@pytest.mark.parametrize("kind", ["step", "signal"])
def test_a_worker_that_dies_over_a_wait_or_a_signal(kind: str, world: World) -> None:
    """Begun and not recorded is as if it had not been begun: no outcome is in doubt, nothing is doubled."""
    saga = begin(Reviewed)
    with one_worker() as dies:
        run_batch(dies, begin_due(dies))  # charge
        if kind == "signal":
            run_batch(dies, begin_due(dies))  # to the wait
            send()
        for _ in range(3):
            assert [each.kind for each in begin_due(dies)] == [kind]
            expire_leases()
    drain(skip=NO_WAIT)
    if kind == "step":
        assert log_of(saga)[-1] == "waiting review"
        send()
        drain(skip=NO_WAIT)
    assert status() == Status.COMPLETED
    assert log_of(saga).count("signalled review") == 1
    assert world.names == ["charge", "ship"]


def test_a_worker_that_was_taken_over_from_does_not_count_a_signal_twice(world: World) -> None:
    """It wakes up after another has applied what it had begun, and writes nothing."""
    saga = begin(Reviewed)
    drain()
    send()
    with one_worker() as frozen:
        begun = begin_due(frozen)
        expire_leases()
        drain()
        assert status() == Status.COMPLETED
        before = log_of(saga)
        run_batch(frozen, begun)
    assert log_of(saga) == before and OutboxRow.objects.count() == 0


def test_two_workers_at_one_timeout_count_it_once(time_machine: Clock, world: World) -> None:
    """The first loses its lease over it, the second is the one that turns the saga back."""
    saga = begin(Reviewed)
    drain()
    time_machine.advance(timedelta(days=2))
    with one_worker() as frozen, one_worker() as next_one:
        begun = begin_due(frozen)
        time_machine.advance(HOUR)
        again = begin_due(next_one)
        run_batch(next_one, again)
        run_batch(frozen, begun)
    drain()
    assert log_of(saga).count("compensating review") == 1
    assert world.count()["refund"] == 1


# --- from the log alone ---


def test_waiting_sagas_are_rebuilt_from_their_logs(time_machine: Clock, world: World) -> None:
    """Rows are gone; waits, signals that arrived early, and the time a wait ends are in the log."""
    first, second, third = begin(Reviewed, "a"), begin(Patient, "b"), begin(Sleeper, "c", Ordered(3))
    with transaction.atomic():
        Patient.second.send(Review(True, "early"), key="b")
    drain()
    before = {row.saga_id: (row.step, row.queue) for row in OutboxRow.objects.all()}
    states = [Reviewed.get(key="a"), Patient.get(key="b"), Sleeper.get(key="c")]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("delete from sagas_outbox")
        cursor.execute("delete from sagas_saga")
    with DjangoStore("default").connect() as store:
        assert [(each.changed, each.problem) for each in rebuild(store)] == [(True, "")] * 3
    assert differences() == []
    drain(skip=NO_WAIT)
    assert {row.saga_id: (row.step, row.queue) for row in OutboxRow.objects.all()} == before
    for was, now in zip(states, (Reviewed.get(key="a"), Patient.get(key="b"), Sleeper.get(key="c")), strict=True):
        assert was.steps is not None and now.steps is not None
        assert {n: (s.status, s.until, s.signals) for n, s in now.steps.items()} == {
            n: (s.status, s.until, s.signals) for n, s in was.steps.items()
        }
    send()
    with transaction.atomic():
        Patient.first.send(Review(True, "now"), key="b")
    time_machine.advance(HOUR)
    drain()
    assert log_of(third)[-1] == "waiting longer"
    time_machine.advance(4 * HOUR)
    drain()
    assert {each: log_of(each)[-1] for each in (first.id, second.id, third.id)} == dict.fromkeys(
        (first.id, second.id, third.id), "completed"
    )
