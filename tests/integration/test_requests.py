"""Requests from outside: cancel, retry, abort. Callers only insert a row; workers apply it."""

from __future__ import annotations

import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sagas import InvalidInput, Refused, SagaNotFound, Undecided, engine
from sagas.embedded import Embedded
from sagas.states import Status
from sagas_django.models import LogEntry, OutboxRow
from sagas_django.store import DjangoStore
from tests.shop.models import Booking, Order
from tests.shop.sagas import Asked, Charge, Local, Ordered, Pivoted, Queues, Trip
from tests.shop.world import World
from tests.support.stories import NO_WAIT, Aside, begin, drain, entries, log_of, outbox, second_connection

pytestmark = pytest.mark.usefixtures("shop")


@pytest.mark.parametrize("concurrency", [1, 4])
def test_cancel_before_anything_ran(world: World, concurrency: int) -> None:
    """A cancel that was committed before the first step began: nothing runs at all."""
    with transaction.atomic():
        run = Trip.start(Ordered(), key="a")
        Trip.cancel(key="a", reason="changed my mind")
    drain(concurrency=concurrency)
    assert Trip.get(key="a").status == Status.CANCELLED
    assert (world.names, Booking.objects.count()) == ([], 0)
    assert log_of(run) == ["started", "cancel_requested", "compensating book", "cancelled"]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_cancel_of_a_saga_that_stood_in_a_long_queue(world: World, concurrency: int) -> None:
    """Its work has been due for long, and is found in one batch with the cancel: nothing runs all the same."""
    run = begin(Trip)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set due_at = clock_timestamp() - interval '1 hour'")
    Trip.cancel(key="a", reason="changed my mind")
    drain(concurrency=concurrency)
    assert (Trip.get(key="a").status, world.names) == (Status.CANCELLED, [])
    assert log_of(run) == ["started", "cancel_requested", "compensating book", "cancelled"]


def test_cancel_goes_to_the_queue_of_the_work(world: World) -> None:
    """Whoever can run the saga's work can apply the cancel: it does not wait for a queue that nobody serves."""
    begin(Queues)
    Embedded(DjangoStore("default"), queues=["left"], concurrency=1).run(until_idle=True)
    Queues.cancel(key="a", reason="changed my mind")
    assert {row.queue for row in OutboxRow.objects.all()} == {"right"}
    Embedded(DjangoStore("default"), queues=["right"], concurrency=1).run(until_idle=True)
    assert (Queues.get(key="a").status, world.names) == (Status.CANCELLED, ["left"])


def test_cancel_between_attempts(world: World) -> None:
    """A saga that waits for a retry turns back at once; what was done is undone, in reverse order."""
    world.plan("confirm", ValueError("later"), lambda run: Trip.cancel(key="a", reason="enough"))
    world.plan("confirm", ValueError("later"))
    run = begin(Trip)
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED  # a cancel that its own step rolled back never was
    assert "cancel_requested" not in log_of(run)


def test_cancel_while_a_body_runs(world: World) -> None:
    """The running body ends in peace: its result is recorded, then it is compensated with that result."""
    running, go_on = threading.Event(), threading.Event()

    def slow(run: object) -> str:
        running.set()
        assert go_on.wait(10)
        return "charge-7"

    world.plan("charge", slow)
    run = begin(Trip)
    worker = Aside(drain)
    assert running.wait(10)
    with transaction.atomic():
        Trip.cancel(key="a", reason="changed my mind")
    drain_requests()
    assert "cancel_requested" in log_of(run)
    go_on.set()
    worker.join()
    assert Trip.get(key="a").status == Status.CANCELLED
    assert world.names == ["book", "charge", "refund", "unbook"]
    assert world.of("refund")[0].argument == "charge-7"
    assert log_of(run)[-7:] == [
        "step_done book", "cancel_requested", "step_done charge", "compensating",
        "undo_done charge", "undo_done book", "cancelled",
    ]  # fmt: skip


def drain_requests() -> None:
    """Let a second worker apply what waits, beside the one whose body runs."""
    drain(check=False)


def test_cancel_after_the_end(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A saga that is finished absorbs it: nothing is undone, no row is left behind, and the worker's log says so."""
    run = begin(Trip)
    drain()
    before = log_of(run)
    Trip.cancel(key="a", reason="too late")
    drain()
    assert (Trip.get(key="a").status, log_of(run), outbox(run)) == (Status.COMPLETED, before, [])
    (line,) = [each.getMessage() for each in caplog.records if each.name == "sagas.worker"]
    assert line == f"saga test.trip {run.id} (key 'a'), cancel: the saga has ended, the cancel comes too late"


def test_cancel_after_the_pivot(world: World) -> None:
    """After the pivot a cancel is logged and otherwise ignored."""
    world.plan("invoice", *[ValueError("later")] * 2)
    run = begin(Pivoted)
    drain(skip=NO_WAIT)
    Pivoted.cancel(key="a", reason="too late")
    drain()
    saga = Pivoted.get(key="a")
    assert (saga.status, saga.cancel_requested) == (Status.COMPLETED, False)
    [cancelled] = [entry for entry in entries(run) if entry.kind == "cancel_requested"]
    assert cancelled.data["ignored"] is True
    assert "unbook" not in world.names


def test_cancel_twice(world: World) -> None:
    """Asking twice undoes once."""
    world.plan("charge", ValueError("later"))
    begin(Charge)
    drain(skip=NO_WAIT)
    for _ in range(2):
        Charge.cancel(key="a", reason="enough")
    drain()
    assert world.of("unbook") == world.of("unbook")[:1]


def test_cancel_of_an_unknown_outcome_waits_for_an_answer(world: World) -> None:
    """A step that can only be undone given its result is tried again first, to learn it, then undone."""
    world.plan("charge", ConnectionError("no reply"))
    begin(Charge)
    drain(skip=NO_WAIT)
    Charge.cancel(key="a", reason="enough")
    drain()
    assert world.names == ["charge", "charge", "refund", "unbook"]
    assert world.of("refund")[0].argument == "charge-2"
    assert Charge.get(key="a").status == Status.CANCELLED


def test_cancel_survives_a_restart(world: World) -> None:
    """A request is a row: workers that end between any two rounds lose none."""
    world.plan("unbook", ConnectionError("later"), ConnectionError("later"))
    begin(Trip)
    world.plan("charge", Refused("declined"))
    drain()
    assert Trip.get(key="a").status == Status.COMPENSATED
    assert world.count()["unbook"] == 3


def test_callers_only_insert() -> None:
    """A cancel is one look and one insert; it locks neither the saga nor its work."""
    run = begin(Trip)
    with transaction.atomic():
        with CaptureQueriesContext(connection) as statements:
            Trip.cancel(key="a", reason="changed my mind")
        assert len(statements) == 2
        with second_connection() as other:
            other.execute("select from sagas_saga for update nowait")
            other.execute("select from sagas_outbox where kind = 'step' for update nowait")
    assert [row.kind for row in outbox(run)] == ["step", "cancel"]


def test_a_long_business_transaction_blocks_no_worker(world: World) -> None:
    """Workers run a saga to its end while a business transaction holds a cancel of it uncommitted."""
    begin(Trip)
    with transaction.atomic():
        Order.objects.create(title="a")
        Trip.start(Ordered(), key="a")
        Trip.cancel(key="a", reason="long transaction")
        Aside(drain).join()
        assert Trip.get(key="a").status == Status.COMPLETED
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED


def test_a_rolled_back_cancel_never_was(world: World) -> None:
    """A cancel is part of the caller's transaction."""
    begin(Trip)
    with transaction.atomic():
        Trip.cancel(key="a", reason="changed my mind")
        transaction.set_rollback(True)
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED


def test_cancel_needs_a_saga_and_a_reason() -> None:
    """A wrong key and an empty or unstorable reason are said at once, and the transaction stays usable."""
    begin(Trip)
    with transaction.atomic():
        with pytest.raises(SagaNotFound):
            Trip.cancel(key="b", reason="whatever")
        for reason in ("", "a\x00b", "a\ud800b", "x" * 2001, None):
            with pytest.raises(InvalidInput, match="reason"):
                Trip.cancel(key="a", reason=reason)  # type: ignore[arg-type]
        Order.objects.create(title="still works")
    assert not OutboxRow.objects.filter(kind="cancel").exists()
    assert Order.objects.exists()


# --- parked sagas ----------------------------------------------------------------------------------------------


def parked(world: World) -> None:
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    begin(Charge)
    drain()
    assert Charge.get(key="a").status == Status.PARKED
    assert world.count() == {"charge": 3}


def test_retry_command_resumes_a_parked_saga(world: World) -> None:
    """`sagas retry` opens a new budget of attempts under the same idempotency key."""
    parked(world)
    call_command("sagas", "retry", "test.charge:a", reason="the bank is back")
    drain()
    assert Charge.get(key="a").status == Status.COMPLETED
    assert len({call.key for call in world.of("charge")}) == 1
    [retried] = LogEntry.objects.filter(kind="retried")
    assert (retried.data["reason"], retried.data["actor"][:4]) == ("the bank is back", "cli:")


def test_retry_that_fails_parks_again(world: World) -> None:
    """The new budget ends like the first."""
    parked(world)
    world.plan("charge", *[ConnectionError("no reply")] * 9)
    call_command("sagas", "retry", "test.charge:a", reason="hope")
    drain()
    assert (Charge.get(key="a").status, world.count()["charge"]) == (Status.PARKED, 6)


def test_cancel_of_a_parked_saga_never_tries_its_step_again(world: World) -> None:
    """A customer's cancel is no operator's retry: an undo that needs the result waits until a person has learnt it."""
    parked(world)
    call_command("sagas", "cancel", "test.charge:a", reason="the customer left")
    drain()
    assert (Charge.get(key="a").status, world.names) == (Status.PARKED, ["charge"] * 3)
    call_command("sagas", "retry", "test.charge:a", reason="asked the bank: the key is safe")
    drain()
    assert Charge.get(key="a").status == Status.CANCELLED
    assert world.names == ["charge"] * 4 + ["refund", "unbook"]


def test_cancel_of_a_parked_saga_asks_what_became_of_its_step(world: World) -> None:
    """What `resolve` finds is undone, and the saga ends."""
    world.plan("charge", *[ConnectionError("no reply")] * 10)
    world.plan("find", *[Undecided("later")] * 100)
    begin(Asked)
    drain()
    assert Asked.get(key="a").status == Status.PARKED
    tried = world.count()["charge"]
    world.reset()
    world.plan("find", "charge-7")
    Asked.cancel(key="a", reason="the customer left")
    drain()
    assert Asked.get(key="a").status == Status.CANCELLED
    assert (tried > 0, world.names) == (True, ["find", "refund"])
    assert [call.argument for call in world.of("refund")] == ["charge-7"]


def test_abort_closes_a_parked_saga(world: World) -> None:
    """`sagas abort` ends it as it is, with a reason, and undoes nothing."""
    parked(world)
    call_command("sagas", "abort", "test.charge:a", reason="settled by phone")
    drain()
    saga = Charge.get(key="a")
    assert (saga.status, saga.error, saga.finished_at is not None) == (Status.ABORTED, "settled by phone", True)
    assert world.count() == {"charge": 3}


def test_abort_of_a_running_saga_is_ignored(world: World) -> None:
    """Only what is parked can be closed by hand; the command says so, and a request that comes anyway does nothing."""
    run = begin(Local)
    with pytest.raises(
        CommandError, match="is running, where this changes nothing; possible now: retry, cancel, pause"
    ):
        call_command("sagas", "abort", "test.local:a", reason="by mistake")
    engine.request(None, "abort", id=run.id, reason="by mistake")
    drain()
    assert Local.get(key="a").status == Status.COMPLETED


def test_retry_makes_a_waiting_step_due(world: World) -> None:
    """`sagas retry` of a saga that waits for its backoff tries at once."""
    world.plan("charge", ConnectionError("no reply"))
    run = begin(Asked)
    world.plan("find", ConnectionError("no reply"))
    drain(skip=NO_WAIT)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set due_at = due_at + interval '1 hour'")
    drain()
    assert Asked.get(key="a").status == Status.RUNNING
    call_command("sagas", "retry", str(run.id), reason="now")
    drain()
    assert Asked.get(key="a").status == Status.COMPLETED


def test_commands_say_what_is_missing() -> None:
    """An unknown saga, and text that names none, are told apart."""
    with pytest.raises(CommandError, match=r"no saga test.charge with key 'b'"):
        call_command("sagas", "cancel", "test.charge:b", reason="x")
    with pytest.raises(CommandError, match="neither a saga's id nor name:key"):
        call_command("sagas", "show", "nonsense")
