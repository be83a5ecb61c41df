"""What a database, its settings and its administrators can do to sagas: nothing is lost, nothing happens twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction

from sagas import hooks
from sagas.embedded import Embedded
from sagas.events import Kind
from sagas.states import Status
from sagas_django.store import DjangoStore
from tests.cases.conftest import Mailbox, deliver, publish_due, relaying, sql, until_quiet, wait_until
from tests.shop.models import Booking, Order
from tests.shop.sagas import Externals, Local, Locals, Ordered, Trip
from tests.shop.world import World
from tests.support.stories import Aside, begin, begin_many, drain, expire_leases, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")


@contextmanager
def database_set(**settings: str) -> Iterator[None]:
    """Settings that an administrator gives the whole database; all connections are new ones meanwhile."""
    name = connection.settings_dict["NAME"]
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as admin:
        for setting, value in settings.items():
            admin.execute(f'alter database "{name}" set {setting} = {value}')
        connections.close_all()
        try:
            yield
        finally:
            admin.execute(f'alter database "{name}" reset all')
            connections.close_all()


@contextmanager
def failing(table: str, event: str, code: str, times: int) -> Iterator[None]:
    """Writes to a table fail so often with this error of Postgres; a sequence counts, so that no rollback resets it."""
    sql("create sequence beyond_faults")
    sql(
        "create function beyond_fault() returns trigger language plpgsql as $$ begin"
        f" if nextval('beyond_faults') <= {times} then raise exception 'as if' using errcode = '{code}'; end if;"
        " return new; end $$"
    )
    sql(f"create trigger beyond_fault before {event} on {table} for each row execute function beyond_fault()")
    try:
        yield
    finally:
        sql(f"drop trigger beyond_fault on {table}")
        sql("drop function beyond_fault")
        sql("drop sequence beyond_faults")


def order() -> None:
    """A business change, and its saga."""
    with transaction.atomic():
        Order.objects.create(title="a")
        Trip.start(Ordered(), key="a")


FAULTS = {
    "disk_full": "53100", "out_of_memory": "53200", "too_many_connections": "53300", "statement_timeout": "57014",
    "lock_timeout": "55P03", "serialization": "40001", "deadlock": "40P01", "internal": "XX000", "io_error": "58030",
    "read_only": "25006", "corrupted": "XX001",
}  # fmt: skip


USUAL = ("disk_full", "serialization")  # the others in the long run
EACH = [pytest.param(code, id=name, marks=() if name in USUAL else pytest.mark.full) for name, code in FAULTS.items()]


@pytest.mark.parametrize("code", EACH)
def test_postgres_fails_while_a_step_is_recorded(world: World, code: str) -> None:
    """The disk is full, a lock is not to be had, a statement takes too long: each for a while, whenever something is
    recorded. The charge is made once, whatever it takes to write that down, and the local writes are there once."""
    begin_many(Trip, ["a", "b", "c"])
    with failing("sagas_log", "insert", code, times=4):
        for _ in range(6):
            drain(check=False)
            expire_leases()
    drain()
    assert {Trip.get(key=key).status for key in "abc"} == {Status.COMPLETED}
    assert Booking.objects.count() == 6
    assert len({call.key for call in world.of("charge")}) == 3
    assert world.count()["refund"] == 0


@pytest.mark.full
@pytest.mark.parametrize("code", ["53100", "57014", "40001", "XX000"])
def test_postgres_fails_while_rows_are_begun(world: World, code: str) -> None:
    """The same where work is claimed and begun: nobody's attempts are used up, and everybody ends."""
    begin_many(Trip, ["a", "b", "c"])
    with failing("sagas_outbox", "update", code, times=3):
        worker = Embedded(DjangoStore("default"), concurrency=1)
        running = Aside(worker.run)
        try:
            wait_until(lambda: not sql("select 1 from sagas_saga where finished_at is null"), "all have ended")
        finally:
            worker.stop()
            running.join()
    drain()
    assert world.count() == {"book": 3, "charge": 3, "confirm": 3}


def test_start_on_a_full_disk_fails_the_order_too() -> None:
    """`start()` cannot write its log entry: the error reaches the caller as the driver says it, and nothing stays."""
    with failing("sagas_log", "insert", "53100", times=1), pytest.raises(OperationalError, match="as if"):
        order()
    assert (Order.objects.count(), sql("select count(*) from sagas_saga")) == (0, [(0,)])
    assert begin(Trip).created


@pytest.mark.full
@pytest.mark.parametrize("isolation", ["'repeatable read'", "'serializable'"])
def test_a_database_whose_transactions_are_stricter(world: World, isolation: str) -> None:
    """An administrator sets `default_transaction_isolation`. Workers and relays meet serialization failures where
    they compete; everything ends once, and no attempt of an external step is burnt."""
    begin_many(Trip, [str(number) for number in range(6)])
    with database_set(default_transaction_isolation=isolation):
        workers = [Embedded(DjangoStore("default"), concurrency=3) for _ in range(2)]
        running = [Aside(worker.run) for worker in workers]
        try:
            wait_until(lambda: not sql("select 1 from sagas_saga where finished_at is null"), "all have ended")
        finally:
            for worker in workers:
                worker.stop()
            for each in running:
                each.join()
    assert {status for (status,) in sql("select status from sagas_saga")} == {Status.COMPLETED}
    assert world.count()["charge"] == 6
    assert Booking.objects.count() == 12


def test_a_database_of_another_place(world: World) -> None:
    """A time zone of half hours, intervals as in SQL, no digits of floats: what
    the engine reads and writes does not depend on how a session writes it."""
    with database_set(
        timezone="'America/St_Johns'", intervalstyle="'sql_standard'",
        extra_float_digits="0", standard_conforming_strings="on", bytea_output="'escape'", lc_numeric="'C'",
    ):  # fmt: skip
        world.plan("charge", ConnectionError("no answer"))
        run = begin(Trip)
        box = Mailbox()
        with relaying(box) as relay:
            until_quiet(relay, box)
        found = Trip.get(key="a")
        assert found.status == Status.COMPLETED
        assert found.created_at is not None and found.finished_at is not None
        assert 0 <= (found.finished_at - found.created_at).total_seconds() < 60
    assert log_of(run).count("step_failed charge") == 1
    assert world.count() == {"book": 1, "charge": 2, "confirm": 1}


def test_idle_transactions_are_ended_by_the_server(world: World) -> None:
    """`idle_in_transaction_session_timeout` ends the transaction of a local step whose body computes for long. It did
    not happen, its neighbours in the same transaction are run again alone, and the next attempt succeeds."""
    with database_set(idle_in_transaction_session_timeout="'200ms'"):
        begin_many(Local, ["a", "slow", "c"])
        world.plan("body", lambda run: time.sleep(0.6), saga="slow")
        for _ in range(4):
            drain(check=False)
            expire_leases()
    drain()
    assert {Local.get(key=key).status for key in ("a", "slow", "c")} == {Status.COMPLETED}
    assert sorted(Booking.objects.values_list("saga", flat=True)) == ["a", "c", "slow"]


def test_statements_of_a_body_are_cancelled_by_the_server(world: World) -> None:
    """`statement_timeout` of the database hits a slow query of one local step: that step failed, and nobody else."""
    with database_set(statement_timeout="'300ms'"):
        begin_many(Local, ["a", "slow", "c"])

        def slow(run: Any) -> None:
            with connection.cursor() as cursor:
                cursor.execute("select pg_sleep(2)")

        world.plan("body", slow, slow, saga="slow")
        drain(check=False)
    drain()
    assert {Local.get(key=key).status for key in ("a", "slow", "c")} == {Status.COMPLETED}
    assert sorted(Booking.objects.values_list("saga", flat=True)) == ["a", "c", "slow"]


@pytest.mark.full
def test_lock_timeout_of_the_database(world: World, settings: Any) -> None:
    """Another session keeps a saga's row for longer than `lock_timeout`: nothing is burnt, it is recorded later."""
    settings.SAGAS = {"LEASE": 2.0, "HEARTBEAT": 0.5, "WAKE": False}
    begin(Externals)
    with database_set(lock_timeout="'100ms'"), psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("select 1 from sagas_saga for update")
        drain(check=False)
        other.rollback()
        expire_leases()
        drain()
    assert Externals.get(key="a").status == Status.COMPLETED


@pytest.mark.parametrize("number", [2**53 + 1, pytest.param(2**62, marks=pytest.mark.full)])
def test_numbers_of_rows_past_what_floats_hold(world: World, number: int) -> None:
    """The outbox has handed out very many numbers: each row is still itself in messages and statements."""
    [(before,)] = sql("select last_value from sagas_outbox_id_seq")
    sql(f"select setval('sagas_outbox_id_seq', {number})")
    try:
        begin_many(Trip, ["a", "b"])
        box = Mailbox()
        with relaying(box) as relay:
            letters = publish_due(relay, box)
            assert {id for letter in letters for id, _ in letter.rows} <= {number + 1, number + 2}
            deliver(*letters, goes_on=True)
            until_quiet(relay, box)
    finally:
        sql(f"select setval('sagas_outbox_id_seq', {before})")
    assert {Trip.get(key=key).status for key in "ab"} == {Status.COMPLETED}
    assert world.count() == {"book": 2, "charge": 2, "confirm": 2}


def test_a_sequence_that_has_come_to_its_end() -> None:
    """No number is left for a row: `start()` says so to the caller, and the order fails with it. It is not lost."""
    [(before,)] = sql("select last_value from sagas_outbox_id_seq")
    sql(f"select setval('sagas_outbox_id_seq', {2**63 - 1})")
    try:
        with pytest.raises(DatabaseError, match="sequence"):
            order()
    finally:
        sql(f"select setval('sagas_outbox_id_seq', {before})")
    assert Order.objects.count() == 0
    assert begin(Trip).created


def test_callers_who_start_the_same_keys_in_opposite_order() -> None:
    """Two business transactions, two keys, in opposite order: Postgres ends one of them, whose caller is told and
    tries again; each key has one saga."""
    opened = psycopg.connect(**connection.get_connection_params())
    with opened:
        Trip.start(Ordered(), key="a", using=opened)

        def other() -> None:
            with transaction.atomic():
                Trip.start(Ordered(), key="b")
                Trip.start(Ordered(), key="a")

        aside = Aside(other)
        wait_until(lambda: sql("select 1 from pg_locks where not granted"), "the other one waits")
        lost = 0
        try:
            Trip.start(Ordered(), key="b", using=opened)
            opened.commit()
        except psycopg.errors.DeadlockDetected:
            opened.rollback()
            lost += 1
        try:
            aside.join()
        except OperationalError as problem:
            lost += "deadlock" in str(problem)
    assert lost == 1
    for key in "ab":
        begin(Trip, key)
    assert sorted(sql("select key, count(*) from sagas_saga group by 1")) == [("a", 1), ("b", 1)]


def test_a_default_schema_that_leads_elsewhere(world: World) -> None:
    """Somebody sets `search_path` to another schema: `start()` says where our tables are not, and so does a worker;
    when it is set back, everything goes on."""
    from sagas import StoreNotReady

    begin(Locals)
    sql("create schema beyond")
    try:
        with database_set(search_path="'beyond'"), pytest.raises(StoreNotReady, match="search_path"):
            begin(Trip, "b")
    finally:
        sql("drop schema beyond")
    drain()
    assert Locals.get(key="a").status == Status.COMPLETED
    assert not outbox(Locals.get(key="a"))


def test_what_could_not_be_recorded_is_told_to_nobody(world: World) -> None:
    """Hooks hear of what is in the log, and of nothing else."""
    found: list[hooks.Happening] = []
    hear = found.append
    hooks.on(Kind.STEP_DONE, Kind.COMPLETED, name=Externals.saga_name)(hear)
    try:
        saga = begin(Externals)
        with failing("sagas_log", "insert", "XX000", 2):  # the batch, and then the decision alone
            drain(check=False)
            assert log_of(saga) == ["started"]
            expire_leases()
            drain()
        hooks.drain()
    finally:
        hooks.off(hear)
    assert [each.kind.value for each in found] == [line.split()[0] for line in log_of(saga)[1:]]
