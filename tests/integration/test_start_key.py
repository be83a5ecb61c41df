"""Business keys: one saga for each, whoever asks, however often, and whoever was there first."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from sagas import KeyConflict, OnExisting, Refused
from sagas.retention import Old, prune
from sagas.states import Status
from sagas.testing.processes import ProcessGroup
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.models import Order
from tests.shop.sagas import After, Before, Charge, Grown1, Grown2, Local, Ordered, Trip
from tests.shop.world import World
from tests.support.stories import begin, drain, outbox, second_connection

pytestmark = pytest.mark.usefixtures("shop")


def test_same_input_gives_the_same_saga() -> None:
    """RETURN: asking twice starts one saga; the second answer says that it was there."""
    first = begin(Trip, "a", Ordered(7))
    second = begin(Trip, "a", Ordered(7))
    assert (second.id, second.created, first.created) == (first.id, False, True)
    assert SagaRow.objects.count() == OutboxRow.objects.count() == 1


def test_other_input_is_a_conflict() -> None:
    """RETURN: the same key for something else raises, names the saga, and leaves the transaction usable."""
    first = begin(Trip, "a", Ordered(7))
    with transaction.atomic():
        with pytest.raises(KeyConflict, match=rf"test.trip.*'a'.*{first.id}.*another input"):
            Trip.start(Ordered(8), key="a")
        Order.objects.create(title="still works")
    assert Order.objects.count() == 1


def test_an_added_field_with_a_default_is_the_same_input() -> None:
    """A release that adds a field still finds the sagas of the one before, and vice versa."""
    first = begin(Grown1, "a", Before(7))
    second = begin(Grown2, "a", After(7))
    assert (second.id, second.version, second.created) == (first.id, 1, False)
    with pytest.raises(KeyConflict):
        begin(Grown2, "a", After(7, gift=True))
    newer = begin(Grown2, "b", After(7))
    assert begin(Grown1, "b", Before(7)).id == newer.id


def test_the_key_is_unique_per_saga_name() -> None:
    """Another saga may use the same key."""
    assert begin(Trip, "a").id != begin(Local, "a").id


def test_raise() -> None:
    """RAISE: an existing key is an error, whatever the input."""
    begin(Trip, "a")
    with transaction.atomic(), pytest.raises(KeyConflict, match=r"on_existing=OnExisting\.RAISE"):
        Trip.start(Ordered(), key="a", on_existing=OnExisting.RAISE)


def again(key: str = "a", number: int = 0) -> tuple[bool, int]:
    with transaction.atomic():
        run = Charge.start(Ordered(number), key=key, on_existing=OnExisting.NEW_IF_COMPENSATED)
    return run.created, run.run


def test_new_run_after_compensated(world: World) -> None:
    """NEW_IF_COMPENSATED: once undone, the key may be used again, with any input; `get()` gives the new run."""
    assert again() == (True, 1)
    assert again() == (False, 1)
    world.plan("charge", Refused("declined"))
    drain()
    assert Charge.get(key="a").status == Status.COMPENSATED
    assert again(number=8) == (True, 2)
    assert (Charge.get(key="a").run, Charge.get(key="a").status) == (2, Status.RUNNING)
    drain()
    assert again(number=8) == (False, 2)
    with pytest.raises(KeyConflict):
        again(number=9)
    assert Charge.get(key="a").status == Status.COMPLETED


def test_new_run_after_cancelled() -> None:
    """NEW_IF_COMPENSATED: cancelled is compensated on request."""
    begin(Charge)
    Charge.cancel(key="a", reason="no longer wanted")
    drain()
    assert Charge.get(key="a").status == Status.CANCELLED
    assert again() == (True, 2)


@pytest.mark.parametrize("on_existing", [OnExisting.RETURN, OnExisting.RAISE])
def test_no_new_run_unless_asked_for(on_existing: OnExisting) -> None:
    """Without NEW_IF_COMPENSATED an undone saga keeps its key."""
    begin(Charge)
    Charge.cancel(key="a", reason="no longer wanted")
    drain()
    with transaction.atomic():
        if on_existing is OnExisting.RAISE:
            with pytest.raises(KeyConflict):
                Charge.start(Ordered(), key="a", on_existing=on_existing)
        else:
            assert not Charge.start(Ordered(), key="a", on_existing=on_existing).created


def test_a_rolled_back_key_is_free() -> None:
    """A key that was never committed is not taken."""
    with transaction.atomic():
        Trip.start(Ordered(1), key="a")
        transaction.set_rollback(True)
    assert begin(Trip, "a", Ordered(2)).created


def test_conflicts_cost_no_second_statement() -> None:
    """One round trip for RAISE and for a new run as well; only a doubt about the input takes another."""
    begin(Charge)
    Charge.cancel(key="a", reason="no longer wanted")
    drain()
    with transaction.atomic():
        with CaptureQueriesContext(connection) as statements, pytest.raises(KeyConflict):
            Charge.start(Ordered(), key="a", on_existing=OnExisting.RAISE)
        assert len(statements) == 1
        with CaptureQueriesContext(connection) as statements:
            Charge.start(Ordered(5), key="a", on_existing=OnExisting.NEW_IF_COMPENSATED)
        assert len(statements) == 1


def test_twenty_processes_start_one_saga(fresh_database: str, process_group: ProcessGroup) -> None:
    """Twenty concurrent starts of one key, the first of them rolled back: one saga, created by one of the others."""
    program = process_group.python(
        "-m", "tests.support.start_many",
        env={"DATABASE_URL": fresh_database, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert program.wait(60) == 0, program.output()
    first, *others = json.loads(program.output().splitlines()[-1])
    assert len({each["process"] for each in [first, *others]}) == 20
    assert first["created"]
    assert [each["created"] for each in others].count(True) == 1
    assert len({each["id"] for each in others} - {first["id"]}) == 1
    with psycopg.connect(fresh_database) as database:
        rows = database.execute("select s.id, o.saga_id from sagas_saga s full join sagas_outbox o on true").fetchall()
        assert [tuple(map(str, row)) for row in rows] == [(others[0]["id"], others[0]["id"])]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_duplicate_in_a_stricter_transaction_is_retryable(level: str) -> None:
    """A key committed by another since the snapshot raises the usual error, which the usual retry mends."""

    def try_it() -> bool:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"set transaction isolation level {level}")
            Order.objects.count()  # takes the snapshot
            commit_elsewhere()
            return Trip.start(Ordered(), key="a").created

    def commit_elsewhere() -> None:
        if copy:
            with second_connection() as other:
                other.execute(copy.pop())

    copy = [committed_start("a")]
    with pytest.raises(OperationalError) as raised:
        try_it()
    assert isinstance(raised.value.__cause__, psycopg.errors.SerializationFailure)
    assert try_it() is False


def test_a_key_pruned_since_the_snapshot_is_not_free() -> None:
    """The row is gone by then, and the key that it left behind cannot be seen yet: nobody may start it again."""
    begin(Trip, "a")
    drain()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("update sagas_saga set finished_at = finished_at - interval '1 year'")

    def try_it() -> bool:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("set transaction isolation level repeatable read")
            Order.objects.count()  # takes the snapshot
            with DjangoStore("default").connect() as other:
                list(prune(other, Old(age=3600, archive=True)))
            return Trip.start(Ordered(), key="a").created

    with pytest.raises(OperationalError, match=r"test\.trip with key a was pruned meanwhile") as raised:
        try_it()
    assert isinstance(raised.value.__cause__, psycopg.errors.SerializationFailure)
    assert try_it() is False


def committed_start(key: str) -> str:
    """The statement with which another process would start the same saga."""
    with CaptureQueriesContext(connection) as statements, transaction.atomic():
        Trip.start(Ordered(), key=key)
        transaction.set_rollback(True)
    [statement] = [each["sql"] for each in statements if "sagas_start_v1" in each["sql"]]
    return str(statement)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_stricter_transactions_start_sagas(level: str) -> None:
    """`start()` works inside the caller's REPEATABLE READ or SERIALIZABLE transaction."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"set transaction isolation level {level}")
        assert Trip.start(Ordered(), key="a").created
        assert not Trip.start(Ordered(), key="a").created
    assert len(outbox(Trip.get(key="a"))) == 1


def test_a_duplicate_waits_for_the_first() -> None:
    """A key that another transaction holds is waited for, as for any unique value; `lock_timeout` bounds it."""
    copy = committed_start("a")
    with second_connection(autocommit=False) as other:
        other.execute(copy)
        with pytest.raises(DatabaseError, match="lock timeout"), transaction.atomic():  # noqa: PT012 - the transaction is the test
            with connection.cursor() as cursor:
                cursor.execute("set local lock_timeout = '50ms'")
            Trip.start(Ordered(), key="a")
    assert begin(Trip).created
