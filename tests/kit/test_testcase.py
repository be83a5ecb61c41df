"""The kit inside Django's `TestCase`, whose transaction never commits, without a fixture of pytest."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test import TestCase

from sagas import KeyConflict, hooks
from sagas.states import Status
from sagas.testing import SagasMixin, Unfinished, answers, assert_started, clock, drain, explore, run_saga, since
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.signals import saga_completed
from sagas_django.store import DjangoStore
from tests.kit.sagas import Buy, Order, Seats, Slow, bank
from tests.shop.models import Booking, Seat


class InTestCase(TestCase):
    """Functions of `sagas.testing`; what they change is put back by the plugin."""

    @classmethod
    def setUpTestData(cls) -> None:
        Buy.start(Order(1), key="shared")

    def test_a_saga_runs_to_its_end(self) -> None:
        """Local and external steps run on the test's own connection, and nothing of it is committed."""
        answers(Buy).charge.returns("ch_1")
        run = run_saga(Buy, Order(7), key="a")
        assert run.status == Status.COMPLETED
        assert sorted(Booking.objects.values_list("saga", "step")) == [("a", "ch_1"), ("a", "reserve")]
        with DjangoStore("default").connect() as other:
            assert other.execute("select count(*) from sagas_saga").fetchone() == (0,)
            assert other.execute("select count(*) from shop_booking").fetchone() == (0,)
        assert connection.in_atomic_block and not connection.needs_rollback

    def test_run_saga_leaves_others_alone(self) -> None:
        """What the class has set up waits for `drain()`."""
        answers(Buy).charge.returns("ch_1")
        run_saga(Buy, Order(7), key="a")
        assert {row.saga_id for row in OutboxRow.objects.all()} == {Buy.get(key="shared").id}
        drain()
        assert not OutboxRow.objects.exists()

    def test_each_test_begins_without_the_others(self) -> None:
        """What another test ran is gone, its clock and answers too."""
        assert [row.key for row in SagaRow.objects.all()] == ["shared"]
        assert not clock.moved
        with pytest.raises(AssertionError, match="the real bank"):
            bank.charge("")
        assert Buy.charge.body.__module__ == "tests.kit.sagas" and not hasattr(Buy.charge.body, "__wrapped__")

    def test_a_refusal_is_compensated(self) -> None:
        """The steps before it are undone."""
        answers(Buy).charge.refuses("card declined")
        assert run_saga(Buy, Order(7), key="a").status == Status.COMPENSATED
        assert not Booking.objects.exists()

    def test_a_failed_statement_in_an_external_step(self) -> None:
        """It has no transaction in production: the one of the test survives, the step is tried again."""
        Seat.objects.create(number=3)
        run = run_saga(Seats, Order(3), key="a", check=False)
        assert run.status == Status.PARKED
        assert Seat.objects.count() == 1
        assert not connection.needs_rollback
        assert run_saga(Seats, Order(4), key="b").status == Status.COMPLETED
        assert {booking.step for booking in Booking.objects.filter(saga="b")} == {"paid", "note"}

    def test_a_savepoint_of_the_test_takes_everything_along(self) -> None:
        """Also what the engine wrote."""
        answers(Buy).charge.returns("ch_1")
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
            run_saga(Buy, Order(7), key="a")
            raise ZeroDivisionError
        assert not SagaRow.objects.filter(key="a").exists()
        assert not Booking.objects.exists()

    def test_conflict_leaves_the_test_usable(self) -> None:
        """As without the kit."""
        with pytest.raises(KeyConflict):
            run_saga(Buy, Order(2), key="shared")
        assert_started(Buy, key="shared")

    def test_commit_hooks_of_a_local_step(self) -> None:
        """They wait for a commit, as everywhere in a TestCase; those of a step that fails are dropped."""
        sent: list[str] = []

        def confirm(run: Buy) -> str:
            transaction.on_commit(lambda: sent.append(f"mail {run.attempt}"))
            if run.attempt == 1:
                raise ConnectionError
            return "confirmed"

        answers(Buy).charge.returns("ch_1")
        answers(Buy).confirm.does(confirm)
        with self.captureOnCommitCallbacks(execute=True):
            run_saga(Buy, Order(7), key="a")
            assert sent == []
        assert sent == ["mail 2"]

    def test_a_cancel_is_applied(self) -> None:
        """Requests are rows, and are run like them."""
        answers(Buy).charge.returns("ch_1")
        Buy.cancel(key="shared", reason="changed my mind")
        ran = drain()
        assert Buy.get(key="shared").status == Status.CANCELLED
        assert str(ran[0]) == "cancel: applied"

    def test_two_days_take_no_time(self) -> None:
        """A retry that is due in two days is run by moving the clock."""
        answers(Slow).call.times_out().returns("done")
        run_saga(Slow, Order(1), key="a", skip=timedelta(0), check=False)
        assert Slow.get(key="a").status == Status.RUNNING
        drain(skip=timedelta(0), check=False, only=[Slow.get(key="a")])
        assert len(answers(Slow).call.calls) == 1
        clock.advance(timedelta(days=2))
        drain(skip=timedelta(0), only=[Slow.get(key="a")])
        assert Slow.get(key="a").status == Status.COMPLETED

    def test_what_is_parked_is_told(self) -> None:
        """With saga, step and reason."""
        answers(Seats).take.raises(ValueError("no such seat"))
        with pytest.raises(Unfinished, match=r"kit\.seats .* \(key 'a'\) is parked(?s:.*)ValueError: no such seat"):
            run_saga(Seats, Order(4), key="a")


class Told(TestCase):
    """Signals and hooks, whose receivers write."""

    def setUp(self) -> None:
        super().setUp()
        self.told: list[str] = []
        self.follows = True
        saga_completed.connect(self.completed)
        hooks.on("completed")(self.fails)
        self.addCleanup(hooks.off, self.fails)
        self.addCleanup(saga_completed.disconnect, self.completed)

    def completed(self, happening: hooks.Happening, **_: object) -> None:
        self.told.append(f"{happening.kind} {Buy.get(key=happening.key).status} in {threading.current_thread().name}")
        Booking.objects.create(saga=happening.key, step="told")
        if self.follows:
            Buy.start(Order(8), key="follows")

    def fails(self, happening: hooks.Happening) -> None:
        if happening.key == "a":
            Seat.objects.create(number=3)
            Seat.objects.create(number=3)

    def test_they_are_told_in_the_test(self) -> None:
        """In its thread and transaction, where nobody else sees what they write; one that fails does no harm."""
        answers(Buy).charge.returns("ch_1")
        with self.assertLogs("sagas.hooks", logging.ERROR) as logged:
            run_saga(Buy, Order(7), key="a")
        assert self.told == [f"completed completed in {threading.current_thread().name}"]
        assert "fails failed, told that saga kit.buy" in logged.output[0]
        assert connection.in_atomic_block and not connection.needs_rollback and not Seat.objects.exists()
        assert Booking.objects.filter(step="told").count() == 1
        with DjangoStore("default").connect() as other:
            assert other.execute("select count(*) from shop_booking").fetchone() == (0,)
        drain()
        assert Buy.get(key="follows").status == Status.COMPLETED

    def test_they_are_told_in_a_story(self) -> None:
        """Each is undone with the story."""
        answers(Buy).charge.returns("ch_1")
        self.follows = False
        explore(Buy, Order(7), key="b", only="no fault")
        assert set(self.told) == {f"completed completed in {threading.current_thread().name}"}
        assert not Booking.objects.exists()
        with DjangoStore("default").connect() as other:
            assert other.execute("select count(*) from shop_booking").fetchone() == (0,)


class Prepared(TestCase):
    """A base class of somebody's tests."""

    def setUp(self) -> None:
        super().setUp()
        self.saga = Buy.start(Order(1), key="prepared")
        self.addCleanup(lambda: answers(Buy).charge.returns("ch_1"))


class WithMixinBefore(SagasMixin, Prepared):
    """What other base classes prepare is the test's as well."""

    def test_what_they_start_is_not_somebody_elses(self) -> None:
        """The test begins before they do, and is reset after all that they clean up."""
        assert since.began() < self.saga.id
        self.doCleanups()
        assert not hasattr(Buy.charge.body, "__wrapped__")


class WithMixin(SagasMixin, TestCase):
    """For runners that are not pytest: the kit as an attribute."""

    def test_the_kit_is_there(self) -> None:
        """Bound to the default database."""
        self.sagas.answers(Buy).charge.returns("ch_1")
        self.sagas.clock.advance(timedelta(days=1))
        assert self.sagas.run(Buy, Order(7)).status == Status.COMPLETED

    def test_it_is_reset(self) -> None:
        """By a clean-up, not only by the plugin."""
        self.sagas.answers(Buy).charge.returns("ch_1")
        self.doCleanups()
        assert not hasattr(Buy.charge.body, "__wrapped__")
