"""`start()` joins whatever transaction the caller has: both exist, or neither does."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from sagas import InvalidInput, NotInTransaction, SagaNotFound
from sagas.states import Status
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from tests.shop.models import Order
from tests.shop.sagas import Local, Ordered, Trip
from tests.shop.world import World
from tests.support.stories import begin, drain, entries, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")


def nothing_written() -> bool:
    return not any(model.objects.exists() for model in (SagaRow, LogEntry, OutboxRow))


def test_writes_saga_log_and_outbox_row() -> None:
    """The saga, its first log entry and its first outbox row are there at once, before any commit."""
    with transaction.atomic():
        run = Trip.start(Ordered(7), key="a", headers={"traceparent": "00-1"})
        assert (run.created, run.status, run.key, run.run, run.name, run.version) == (
            True, Status.RUNNING, "a", 1, "test.trip", 1
        )  # fmt: skip
        assert Trip.get(key="a").id == Trip.get(id=run.id).id == run.id
        [row] = outbox(run)
        assert (row.kind, row.step, row.direction, row.queue, row.token, row.holder) == (
            "step", "book", "do", "default", 0, None
        )  # fmt: skip
        [started] = entries(run)
        saga = {"key": "a", "name": "test.trip", "input": {"number": 7}, "version": 1, "run": 1}
        assert started.data["saga"] == {
            **saga, "headers": {"traceparent": "00-1"}, "definition": Trip.fingerprint()
        }  # fmt: skip


def test_outer_rollback_takes_the_saga_along() -> None:
    """A rolled back business transaction leaves no saga."""
    with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012 - the transaction is the test
        Order.objects.create(title="a")
        Trip.start(Ordered(), key="a")
        raise ZeroDivisionError
    assert nothing_written()
    with pytest.raises(SagaNotFound, match=r"'a'.*was its transaction committed"):
        Trip.get(key="a")


def test_savepoint_rollback_takes_the_saga_along() -> None:
    """A nested atomic block that is rolled back takes its saga along, and no other."""
    with transaction.atomic():
        kept = Trip.start(Ordered(), key="kept")
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012 - the transaction is the test
            Trip.start(Ordered(), key="gone")
            raise ZeroDivisionError
        again = Trip.start(Ordered(), key="gone")
    assert {row.id for row in SagaRow.objects.all()} == {kept.id, again.id}
    assert OutboxRow.objects.count() == 2


def test_nested_atomic_is_left_alone() -> None:
    """`start()` neither commits nor opens a transaction: the outer block still decides."""
    with transaction.atomic():
        with transaction.atomic():
            Trip.start(Ordered(), key="a")
        with connection.cursor() as cursor:
            cursor.execute("select pg_current_xact_id_if_assigned() is not null")
            assert cursor.fetchone() == (True,)
        transaction.set_rollback(True)
    assert nothing_written()


def test_same_connection_and_transaction_as_the_business_row() -> None:
    """Business row and outbox row come from one backend and one transaction."""
    with transaction.atomic():
        order = Order.objects.create(title="a")
        pid = connection.connection.info.backend_pid
        run = Trip.start(Ordered(), key="a", subject=order)
        assert connection.connection.info.backend_pid == pid
    with connection.cursor() as cursor:
        cursor.execute(
            "select distinct xmin from (select xmin::text from shop_order union all select xmin::text from sagas_saga"
            " union all select xmin::text from sagas_log union all select xmin::text from sagas_outbox) x"
        )
        assert len(cursor.fetchall()) == 1
    row = SagaRow.objects.get(pk=run.id)
    assert (row.subject_type, row.subject_id) == ("shop.Order", str(order.pk))


def test_any_alias(other_database: str, world: World) -> None:
    """`using=` names the database; its worker finds the saga there, and nothing is written elsewhere."""
    with transaction.atomic(using="other"):
        order = Order.objects.using("other").create(title="a")
        run = Local.start(Ordered(), key="a", using="other", subject=order)
    assert nothing_written()
    with pytest.raises(SagaNotFound, match="database 'default'"):
        Local.get(key="a")
    assert Local.get(key="a", using="other").id == run.id
    assert world.names == []


def test_transaction_on_another_alias_does_not_count(other_database: str) -> None:
    """A transaction elsewhere makes nothing durable here."""
    with transaction.atomic(), pytest.raises(NotInTransaction, match="'other'"):
        Local.start(Ordered(), key="a", using="other")


class Elsewhere:
    """A router that sends everything of sagas to another database."""

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return "elsewhere" if model._meta.app_label == "sagas" else None

    db_for_read = db_for_write


def test_a_router_does_not_part_a_saga_from_its_transaction(settings: Any) -> None:
    """Without `using=` a saga is where `atomic()` without `using=` is: routers are for models, and are not asked."""
    settings.DATABASE_ROUTERS = [Elsewhere()]
    with transaction.atomic():
        run = Trip.start(Ordered(), key="routed")
        assert Trip.get(key="routed").id == run.id
        assert SagaRow.objects.using("default").filter(key="routed").exists()


def test_outside_a_transaction_it_raises() -> None:
    """The commonest way to lose an order is refused, and nothing was written."""
    with pytest.raises(NotInTransaction, match=r"own_transaction=True"):
        Trip.start(Ordered(), key="a")
    assert nothing_written()


def test_own_transaction() -> None:
    """Without a business change the saga may have a transaction of its own, and is committed at once."""
    run = Trip.start(Ordered(), key="a", own_transaction=True)
    with psycopg.connect(**connection.get_connection_params()) as another:
        assert another.execute("select count(*) from sagas_saga").fetchone() == (1,)
    assert not connection.in_atomic_block
    assert Trip.get(id=run.id).status == "running"


def test_autocommit_off_counts_as_a_transaction() -> None:
    """Who has switched autocommit off has a transaction open, and ends it."""
    transaction.set_autocommit(False)
    try:
        Trip.start(Ordered(), key="a")
        transaction.rollback()
        Trip.start(Ordered(), key="b")
        Trip.cancel(key="b", reason="changed my mind")
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert [row.key for row in SagaRow.objects.all()] == ["b"]


def test_subject_must_be_saved_and_a_model() -> None:
    """A subject without a primary key, or of no model, is refused before anything is sent."""
    with transaction.atomic():
        with pytest.raises(InvalidInput, match="save it first"):
            Trip.start(Ordered(), key="a", subject=Order(title="unsaved"))
        with pytest.raises(InvalidInput, match="subject=int"):
            Trip.start(Ordered(), key="a", subject=7)
    assert nothing_written()


def test_one_round_trip_also_when_the_key_exists() -> None:
    """One statement starts a saga, and one finds that it exists."""
    with transaction.atomic():
        for created in (True, False):
            with CaptureQueriesContext(connection) as statements:
                run = Trip.start(Ordered(), key="a")
            assert run.created is created
            assert len(statements) == 1


def test_without_a_key_each_call_starts_one() -> None:
    """The key is then the saga's id."""
    with transaction.atomic():
        runs = [Trip.start(Ordered()) for _ in range(2)]
    assert [run.key for run in runs] == [str(run.id) for run in runs]
    assert len({run.id for run in runs}) == 2


def test_get_wants_one_of_key_and_id() -> None:
    """Asking for nothing, or for two things, is a mistake of the caller's."""
    with pytest.raises(TypeError, match="either key= or id="):
        Trip.get()
    with pytest.raises(InvalidInput, match="a UUID, not str"):
        Trip.get(id="7")  # type: ignore[arg-type]


@pytest.mark.parametrize("before", [True, False])
def test_failing_commit_hooks_do_no_harm(before: bool, world: World) -> None:
    """A commit hook of the user's that raises, before ours or after it, costs no saga."""

    def bad() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012 - the transaction is the test
        if before:
            transaction.on_commit(bad)
        Local.start(Ordered(), key="a")
        if not before:
            transaction.on_commit(bad)
    drain()
    assert Local.get(key="a").status == Status.COMPLETED
    assert world.names == ["body"]


def test_wake_never_raises(settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The hint after commit may fail; the business transaction was committed and nobody hears of it."""
    from sagas_django.caller import DjangoCaller

    def broken(self: DjangoCaller) -> None:
        raise psycopg.OperationalError("the connection is gone")

    monkeypatch.setattr(DjangoCaller, "wake", broken)
    with caplog.at_level(logging.ERROR, "django.db.backends.base"):
        run = begin(Trip)
    assert log_of(run) == ["started"]
    assert "the connection is gone" in caplog.text


def test_wake_is_sent_after_commit_and_never_inside(settings: Any) -> None:
    """A listener hears of a committed saga, and the business transaction has no NOTIFY in it."""
    settings.SAGAS = {}
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as ear:
        ear.execute("listen sagas_wake")
        with CaptureQueriesContext(connection) as statements:
            begin(Trip)
        texts = [each["sql"] for each in statements]
        assert [text for text in texts if text.startswith("NOTIFY")] == texts[-1:]
        assert "COMMIT" in texts[-2]
        assert len(list(ear.notifies(timeout=5, stop_after=1))) == 1


def test_wake_without_a_transaction_of_ones_own(settings: Any) -> None:
    """A saga started in autocommit is announced as well."""
    settings.SAGAS = {}
    from sagas_django import caller

    caller._throttle = caller.Throttle(0)
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as ear:
        ear.execute("listen sagas_wake")
        Trip.start(Ordered(), key="a", own_transaction=True)
        assert len(list(ear.notifies(timeout=5, stop_after=1))) == 1
    caller._throttle = caller.Throttle()


def test_a_closed_connection_is_opened_as_django_does() -> None:
    """`start()` works on a connection that Django has not opened yet."""
    connections["default"].close()
    assert begin(Trip).created
