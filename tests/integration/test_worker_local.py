"""Local steps: the user's writes, the log entry, the saga row and the outbox row commit together, once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from sagas import Refused
from sagas.local import LocalRunner
from sagas.states import Status
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.models import Booking, Seat
from tests.shop.sagas import Local, Locals, Trip
from tests.shop.world import World
from tests.support.stories import (
    Aside,
    begin,
    begin_many,
    drain,
    entries,
    expire_leases,
    log_of,
    outbox,
    second_connection,
)
from tests.support.workers import begin_due, one_worker, pooled, run_batch, run_together

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each transaction of local steps was begun with."""
    sizes: list[int] = []
    inner = LocalRunner._transaction

    def counted(self: LocalRunner, group: Any, *, shared: bool) -> Any:
        sizes.append(len(group))
        return inner(self, group, shared=shared)

    monkeypatch.setattr(LocalRunner, "_transaction", counted)
    return sizes


def bookings() -> dict[str, int]:
    counts: dict[str, int] = {}
    for booking in Booking.objects.all():
        counts[booking.saga] = counts.get(booking.saga, 0) + 1
    return counts


KEYS = [f"saga-{number:02}" for number in range(12)]


def test_a_group_shares_a_transaction(world: World, groups: list[int]) -> None:
    """Neighbours commit together, each with its own writes, log and state."""
    begin_many(Local, KEYS)
    run_together()
    assert groups == [12]
    assert bookings() == dict.fromkeys(KEYS, 1)
    with connection.cursor() as cursor:
        cursor.execute("select count(distinct xmin::text) from shop_booking")
        cursor.execute("select count(distinct xmin::text) from sagas_log where seq > 0")
        assert cursor.fetchone() == (1,)


def test_a_group_has_at_most_fifty(world: World, groups: list[int]) -> None:
    """120 steps in one message are 50, 50 and 20."""
    keys = [str(number) for number in range(120)]
    begin_many(Locals, keys)
    run_together()
    assert groups == [50, 50, 20]
    assert Booking.objects.count() == 120


def test_one_that_raises_does_not_harm_its_neighbours(world: World, groups: list[int]) -> None:
    """Its savepoint is rolled back; the others commit, and it is tried again later."""
    world.plan("body", ZeroDivisionError("mine"), saga=KEYS[5])
    world.plan("body", Refused("no"), saga=KEYS[7])
    begin_many(Local, KEYS)
    run_together()
    assert groups == [12]
    assert bookings() == {key: 1 for key in KEYS if key not in (KEYS[5], KEYS[7])}
    drain()
    assert bookings() == {key: 1 for key in KEYS if key != KEYS[7]}
    assert Local.get(key=KEYS[7]).status == Status.COMPENSATED
    assert world.count() == {"body": 13}


def test_an_integrity_error_rolls_back_one_body(world: World) -> None:
    """A violated constraint is the body's own failure, recorded as such."""

    def take(run: Any) -> None:
        Seat.objects.create(number=7)

    for key in KEYS[:3]:
        world.plan("body", take, take, take, saga=key)
    begin_many(Local, KEYS)
    run_together()
    drain()
    assert Seat.objects.count() == 1
    statuses = sorted(Local.get(key=key).status for key in KEYS[:3])
    assert statuses == [Status.COMPENSATED, Status.COMPENSATED, Status.COMPLETED]
    assert sum(bookings().values()) == 10
    failed = [entry for saga in SagaRow.objects.all() for entry in entries(saga.id) if entry.kind == "step_failed"]
    assert {entry.data["error"]["type"] for entry in failed} == {"django.db.utils.IntegrityError"}


@pytest.mark.parametrize("together", [True, False])
def test_a_swallowed_database_error_is_not_success(world: World, together: bool) -> None:
    """A body that catches its own query's error and returns has lost its writes: that is a failure, not "done"."""

    def swallow(run: Any) -> None:
        try:
            Seat.objects.create(number=7)
        except IntegrityError:
            pass
        else:
            raise AssertionError("the seat should be taken")

    Seat.objects.create(number=7)
    world.always("body", swallow, saga=KEYS[0])
    keys = KEYS if together else KEYS[:1]
    begin_many(Local, keys)
    run_together()
    drain()
    assert Local.get(key=KEYS[0]).status == Status.COMPENSATED
    assert bookings() == dict.fromkeys(keys[1:], 1)
    [run] = SagaRow.objects.filter(key=KEYS[0])
    assert "step_done body" not in log_of(run.id)
    assert "a query of its own had failed" in str([entry.data for entry in entries(run.id)])


def test_a_caught_error_in_a_savepoint_is_success(world: World) -> None:
    """Who wraps the query in `atomic()` may go on, as anywhere in Django."""

    def careful(run: Any) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            Seat.objects.create(number=7)
        Seat.objects.create(number=8)

    Seat.objects.create(number=7)
    world.plan("body", careful, saga=KEYS[0])
    begin_many(Local, KEYS[:2])
    run_together()
    assert set(Seat.objects.values_list("number", flat=True)) == {7, 8}
    assert bookings() == dict.fromkeys(KEYS[:2], 1)


def test_commit_hooks_make_a_body_run_alone(world: World, groups: list[int]) -> None:
    """A body that registers commit hooks runs in a transaction of its own; its hooks run once, after the commit."""

    def hook(run: Any) -> None:
        def committed() -> None:
            assert not connection.in_atomic_block
            with second_connection() as other:
                seen = other.execute("select count(*) from shop_booking where saga = %s", [run.key]).fetchone()
            world.notes.append(f"{run.key} {seen}")

        transaction.on_commit(committed)

    for key in KEYS[3:5]:
        world.plan("body", hook, hook, saga=key)
    begin_many(Local, KEYS)
    run_together()
    assert groups[0] == 12
    assert set(groups[1:]) == {1}
    assert world.notes == [f"{key} (1,)" for key in KEYS[3:5]]
    assert bookings() == dict.fromkeys(KEYS, 1)


def test_hooks_of_a_failed_body_never_run(world: World) -> None:
    """A rolled back savepoint takes its commit hooks along."""

    def bad(run: Any) -> None:
        transaction.on_commit(lambda: world.notes.append("committed"))
        raise ZeroDivisionError

    world.plan("body", bad, bad, bad, saga=KEYS[0])
    begin_many(Local, KEYS[:3])
    run_together()
    drain()
    assert world.notes == []
    assert bookings() == dict.fromkeys(KEYS[1:3], 1)


def test_a_failing_hook_costs_nothing(world: World) -> None:
    """The step is committed when a hook raises: it is not run again, and the saga goes on."""
    world.plan("body", lambda run: transaction.on_commit(lambda: 1 / 0))
    begin_many(Local, KEYS[:1])
    drain()
    assert bookings() == {KEYS[0]: 1}
    assert Local.get(key=KEYS[0]).status == Status.COMPLETED


def test_durable_atomic_is_a_clear_error(world: World) -> None:
    """`atomic(durable=True)` cannot keep its promise inside a local step, and says so."""

    def durable(run: Any) -> None:
        with transaction.atomic(durable=True):
            Seat.objects.create(number=7)

    world.always("body", durable)
    begin(Local)
    drain()
    assert Local.get(key="a").status == Status.COMPENSATED
    assert "durable atomic block cannot be nested" in Local.get(key="a").error
    assert Seat.objects.count() == 0


def test_manual_commit_is_refused(world: World) -> None:
    """A body cannot commit halfway."""
    world.always("body", lambda run: transaction.commit())
    begin(Local)
    drain()
    assert Local.get(key="a").status == Status.COMPENSATED
    assert Booking.objects.count() == 0


def fail_with(state: str) -> Callable[[Any], None]:
    def body(run: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"do $$ begin raise exception 'made up' using errcode = '{state}'; end $$")

    return body


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03"])
def test_transient_errors_run_the_group_singly(world: World, groups: list[int], state: str) -> None:
    """Deadlock and serialization failure roll everybody back; then each runs alone, and each writes once."""
    world.plan("body", fail_with(state), saga=KEYS[2])
    begin_many(Local, KEYS[:4])
    run_together()
    assert groups == [4, 1, 1, 1, 1]
    assert bookings() == dict.fromkeys(KEYS[:4], 1)
    assert {Local.get(key=key).status for key in KEYS[:4]} == {Status.COMPLETED}


def test_a_real_deadlock(world: World) -> None:
    """Two bodies that lock each other's rows: Postgres ends one, both sagas finish, each writes once."""
    barrier = threading.Barrier(2, timeout=10)
    first, second = Seat.objects.create(number=1), Seat.objects.create(number=2)

    def crossing(one: Seat, two: Seat, wait: bool) -> Callable[[Any], None]:
        def body(run: Any) -> None:
            Seat.objects.filter(pk=one.pk).update(number=one.number + 10)
            if wait:
                barrier.wait()
            Seat.objects.filter(pk=two.pk).update(number=two.number + 10)

        return body

    world.plan("body", crossing(first, second, True), *[crossing(first, second, False)] * 2, saga="a")
    world.plan("body", crossing(second, first, True), *[crossing(second, first, False)] * 2, saga="b")
    begin_many(Local, ["a", "b"])
    drain(concurrency=2)
    assert bookings() == {"a": 1, "b": 1}
    assert {Local.get(key=key).status for key in "ab"} == {Status.COMPLETED}


def test_a_lost_connection_in_a_body(world: World, groups: list[int]) -> None:
    """A body whose connection breaks takes nobody along: all are rolled back and run singly."""

    def cut(run: Any) -> None:
        with second_connection() as other:
            other.execute("select pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
        Seat.objects.count()

    world.plan("body", cut, saga=KEYS[1])
    begin_many(Local, KEYS[:3])
    Aside(run_together).join()
    connections.close_all()
    drain()
    assert bookings() == dict.fromkeys(KEYS[:3], 1)
    assert {Local.get(key=key).status for key in KEYS[:3]} == {Status.COMPLETED}


def test_a_lost_connection_of_a_body_alone(world: World) -> None:
    """Alone as well: it was rolled back, the lease ends, and the step runs again."""

    def cut(run: Any) -> None:
        with second_connection() as other:
            other.execute("select pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
        Seat.objects.count()

    world.plan("body", cut)
    begin(Local)
    drain()
    expire_leases()
    drain()
    assert bookings() == {"a": 1}
    assert Local.get(key="a").status == Status.COMPLETED


def test_the_outbox_row_is_locked_while_the_body_runs(world: World) -> None:
    """Nobody can take a local step over while its transaction is open, whatever its lease says."""

    def look(run: Any) -> None:
        with second_connection() as other:
            assert other.execute("select count(*) from sagas_outbox").fetchone() == (1,)
            locked = "select from sagas_outbox for update skip locked"
            assert other.execute(locked).fetchall() == []

    world.plan("body", look)
    begin(Local)
    drain()
    assert (Local.get(key="a").status, world.count()) == (Status.COMPLETED, {"body": 1})


def test_a_constant_number_of_statements_for_a_group(world: World) -> None:
    """Twelve local steps take as many engine statements as two; SAVEPOINT, RELEASE and the bodies' own apart."""

    def engine(keys: list[str]) -> int:
        begin_many(Locals, keys)
        with CaptureQueriesContext(connection) as statements:
            run_together()
        texts = [each["sql"] for each in statements]
        return len([text for text in texts if "SAVEPOINT" not in text and "shop_booking" not in text])

    assert engine(KEYS[:2]) == engine([key + "+" for key in KEYS])


def test_nothing_of_a_saga_that_moved_on_is_run(world: World) -> None:
    """A local step whose row was taken over between begin and lock does not run."""
    run = begin(Local)
    with one_worker() as worker:
        begun = begin_due(worker)
        with second_connection() as other:
            other.execute("update sagas_outbox set token = token + 1")
        run_batch(worker, begun)
    assert world.names == []
    assert log_of(run) == ["started"]
    assert len(outbox(run)) == 1


@pytest.mark.parametrize("many", [1, 3])
def test_an_error_after_the_commit_never_runs_a_body_again(
    world: World, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """The commit arrived, its acknowledgement did not: the log knows, and nobody writes twice."""
    inner, cut = DjangoStore.local, [True]

    @contextmanager
    def local(self: DjangoStore) -> Iterator[Any]:
        with inner(self) as opened:
            yield opened
        if cut.pop() if cut else False:
            raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(DjangoStore, "local", local)
    begin_many(Local, KEYS[:many])
    run_together()
    assert bookings() == dict.fromkeys(KEYS[:many], 1)
    expire_leases()
    drain()
    assert bookings() == dict.fromkeys(KEYS[:many], 1)
    assert {Local.get(key=key).status for key in KEYS[:many]} == {Status.COMPLETED}
    assert world.count() == {"body": many}


@pytest.mark.parametrize("many", [1, 3])
def test_a_commit_that_never_arrived_runs_again(world: World, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """The connection broke at the commit: everything was rolled back, and is done by whoever takes over."""
    inner, cut = DjangoStore.local, [True]

    @contextmanager
    def local(self: DjangoStore) -> Iterator[Any]:
        with inner(self) as opened:
            yield opened
            if cut.pop() if cut else False:
                with second_connection() as other:
                    other.execute("select pg_terminate_backend(%s)", [opened.connection.info.backend_pid])

    monkeypatch.setattr(DjangoStore, "local", local)
    begin_many(Local, KEYS[:many])
    Aside(run_together).join()
    assert bookings() == {}
    expire_leases()
    drain()
    assert bookings() == dict.fromkeys(KEYS[:many], 1)
    assert {Local.get(key=key).status for key in KEYS[:many]} == {Status.COMPLETED}


def test_a_pooled_connection_that_turned_read_only_is_replaced() -> None:
    """Not given back to Django's pool, which would hand it out again."""
    saga = begin(Trip)
    with pooled():
        with connection.cursor() as cursor:
            cursor.execute("set default_transaction_read_only = on")
        run_together()
        expire_leases()
        run_together()
        assert "step_done book" in log_of(saga)


def test_a_connection_that_turned_read_only_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover a kept connection may live on and refuse every write: it costs one lease, not the saga."""
    begin(Trip)
    connection.close()
    with monkeypatch.context() as kept:
        kept.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
        with connection.cursor() as cursor:
            cursor.execute("set default_transaction_read_only = on")
        run_together()
    assert [row.deliveries for row in OutboxRow.objects.all()] == [1]
    expire_leases()
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED
