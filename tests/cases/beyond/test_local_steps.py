"""What bodies of local steps do to the transaction that they share with the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from sagas import Retry, Saga, step
from sagas.states import Status
from sagas.testing.proxy import BlackHole, Proxy
from sagas.worker import Worker
from sagas_django.store import DjangoStore
from tests.cases.conftest import Gate, sql, wait_until
from tests.shop.models import Booking, Seat
from tests.shop.sagas import Local, Locals, Ordered
from tests.shop.world import World, world
from tests.support.stories import NO_WAIT, Aside, begin, begin_many, drain, expire_leases, log_of, outbox
from tests.support.workers import begin_due, living_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def parents(shop: str) -> Iterator[None]:
    """Two tables of the application with a foreign key as Django makes them: it is looked at when it commits."""
    sql("create table beyond_parent (id int primary key)")
    sql("create table beyond_child (id int references beyond_parent deferrable initially deferred)")
    yield
    sql("drop table beyond_child, beyond_parent")


def orphan(run: Any) -> None:
    """Insert a row whose parent does not exist."""
    with connection.cursor() as cursor:
        cursor.execute("insert into beyond_child values (7)")


@pytest.mark.usefixtures("parents")
def test_a_foreign_key_that_fails_when_it_commits(world: World) -> None:
    """Django's foreign keys are looked at when a transaction commits, so that no body sees the error. It is that
    step's failure all the same, with its text and its retries; neighbours in the same transaction are done."""
    world.always("body", orphan, saga="bad")
    begin_many(Local, ["a", "bad", "c"])
    drain(skip=NO_WAIT)
    assert {Local.get(key=key).status for key in "ac"} == {Status.COMPLETED}
    drain()
    bad = Local.get(key="bad")
    assert bad.status in (Status.COMPENSATED, Status.PARKED)
    assert "beyond_child" in bad.error
    assert log_of(bad).count("step_failed body") == 3
    assert sorted(Booking.objects.values_list("saga", flat=True)) == ["a", "c"]


@pytest.mark.usefixtures("parents")
def test_a_foreign_key_that_is_right_the_next_time(world: World) -> None:
    """The parent comes while the step is retried: then it is done, once."""
    world.plan("body", orphan, orphan, orphan, orphan, saga="late")
    run = begin(Local, "late")
    drain(skip=NO_WAIT)
    assert log_of(run)[-1] == "step_failed body"
    sql("insert into beyond_parent values (7)")
    drain()
    assert Local.get(key="late").status == Status.COMPLETED
    assert sql("select count(*) from beyond_child") == [(1,)]
    assert Booking.objects.count() == 1


def swallow(run: Any) -> None:
    """An error in a block that Django marks the whole transaction for, and which the body swallows."""
    try:
        with transaction.atomic(savepoint=False):
            raise ValueError("no matter")
    except ValueError:
        pass


def give_up_quietly(run: Any) -> None:
    """Django's own way to roll back without an error."""
    transaction.set_rollback(True)


def swallow_database_error(run: Any) -> None:
    """A statement fails, and the body goes on as if nothing had been."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1 / 0")
    except DatabaseError:
        pass


def close(run: Any) -> None:
    """What `close_old_connections()` and some middleware do."""
    connection.close()


@pytest.mark.parametrize("harm", [swallow, give_up_quietly, swallow_database_error, close])
@pytest.mark.parametrize(
    "beside", [["a", "bad", "c"], pytest.param(["bad"], marks=pytest.mark.full)], ids=["shared", "alone"]
)
def test_a_body_whose_writes_are_rolled_back_did_not_happen(world: World, harm: Any, beside: list[str]) -> None:
    """A body returns as if all were well, but what it wrote is rolled back. It never counts as done without its
    writes; neighbours are not harmed, and the next attempt does it."""
    world.plan("body", *[harm] * 2, saga="bad")
    begin_many(Local, beside)
    for _ in range(6):
        drain(check=False)
        expire_leases()
    drain()
    stands = dict(sql("select key, status from sagas_saga"))
    assert {stands[key] for key in beside if key != "bad"} <= {Status.COMPLETED}
    written = sorted(Booking.objects.values_list("saga", flat=True))
    assert written == [key for key in beside if stands[key] == Status.COMPLETED]


class Wanders(Saga[Ordered], name="beyond.wanders", version=1):
    """A tenant's schema is chosen in a body, and never given back."""

    @step(compensate=None, retry=Retry(max_attempts=2, first=1))
    def one(self) -> None:
        world.act("one", self)
        with connection.cursor() as cursor:
            cursor.execute("set search_path = nowhere")

    @step(compensate=None)
    def two(self) -> None: ...


def test_a_body_that_changes_where_tables_are_looked_for(world: World) -> None:
    """`set search_path` in a body hides our own tables from the statement that records it. The step is rolled back
    and, in the end, waits for a person; its neighbours and the next batch find the tables again."""
    begin_many(Locals, ["a", "c"])
    begin(Wanders, "odd")
    begin_many(Locals, ["d"])
    for _ in range(8):
        drain(check=False)
        expire_leases()
    assert {Locals.get(key=key).status for key in "acd"} == {Status.COMPLETED}
    odd = Wanders.get(key="odd")
    assert odd.status in (Status.PARKED, Status.COMPLETED), (odd, outbox(odd))
    begin(Locals, "later")
    drain(check=False)
    assert Locals.get(key="later").status == Status.COMPLETED


def test_two_local_steps_that_break_the_same_constraint(world: World) -> None:
    """Two sagas in one transaction write the same unique value: one is done, the other failed, and is retried."""
    world.plan("body", lambda run: Seat.objects.create(number=7), saga="a")
    world.plan("body", lambda run: Seat.objects.create(number=7), saga="b")
    begin_many(Local, ["a", "b"])
    drain()
    assert {Local.get(key=key).status for key in "ab"} == {Status.COMPLETED}
    assert (Seat.objects.count(), Booking.objects.count()) == (1, 2)


class Direct(DjangoStore):
    """A store whose own connections get through, wherever those of the application lead."""

    def __init__(self, url: str) -> None:
        super().__init__("default")
        self._url = url

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._url, autocommit=True)


@pytest.mark.parametrize("ends", [False, True])
def test_a_connection_of_the_application_that_is_cut_off(
    world: World, shop: str, settings: Any, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    """A local step hangs outside of its body, where nothing of the application waits for an answer. After the timeout
    and the grace that is told, or ends a prefork child, and its lease is no longer renewed: when the server has given
    up, another worker takes over."""
    ended: list[str] = []
    gate, pids = Gate(), [0]

    def at_gate(run: Any) -> None:
        pids.extend(sql("select pg_backend_pid()")[0])
        gate(run)

    world.plan("body", at_gate)
    saga = begin(Local)
    where = connection.settings_dict
    numbers = {"timeout": 0.2, "grace": 0.2, "lease": 1.0, "heartbeat": 0.2}

    def work(worker: Worker, through: Proxy) -> None:
        connection.settings_dict = {**where, "HOST": "127.0.0.1", "PORT": through.port}  # of this thread
        run_batch(worker, begin_due(worker))

    with (
        Proxy(where["HOST"], int(where["PORT"])) as proxy,
        living_worker(settings, store=Direct(shop), end_process=ended.append, ends=ends, **numbers) as worker,
    ):
        hanging = Aside(lambda: work(worker, proxy))
        try:
            gate.wait()
            proxy.fault = BlackHole()
            gate.opened.set()
            told = "the transaction outlived its timeout"
            wait_until(lambda: told in "".join(ended) + caplog.text, "somebody to say so")
            assert bool(ended) is ends
            if not ends:
                sql("select pg_terminate_backend(%s)", pids[-1])
                wait_until(lambda: begin_due(worker), "the end of the lease")
        finally:
            gate.opened.set()
            proxy.close()
            hanging.join()
    expire_leases()
    drain()
    assert log_of(saga) == ["started", "step_done body", "completed"]
    assert Booking.objects.count() == 1
