"""Sagas in Django's own `TestCase`, which wraps every test in a transaction that never commits."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from sagas import KeyConflict, SagaNotFound
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from tests.shop.models import Order
from tests.shop.sagas import Ordered, Trip


class InTestCase(TestCase):
    """Nothing here depends on a commit."""

    @classmethod
    def setUpTestData(cls) -> None:
        cls.shared = Trip.start(Ordered(), key="shared").id

    def test_start_and_get(self) -> None:
        """A saga is there as soon as `start()` returns; the transaction is the test's."""
        order = Order.objects.create(title="a")
        run = Trip.start(Ordered(7), key="a", subject=order)
        assert Trip.get(key="a").id == run.id
        assert OutboxRow.objects.filter(saga_id=run.id).count() == 1
        assert LogEntry.objects.filter(saga_id=run.id).count() == 1

    def test_each_test_begins_without_the_others(self) -> None:
        """What one test started is gone in the next; what the class set up is there."""
        with pytest.raises(SagaNotFound):
            Trip.get(key="a")
        assert Trip.get(key="shared").id == self.shared

    def test_conflict_leaves_the_test_usable(self) -> None:
        """A refused `start()` does not break the test's transaction."""
        with pytest.raises(KeyConflict):
            Trip.start(Ordered(99), key="shared")
        Trip.cancel(key="shared", reason="enough")
        assert OutboxRow.objects.filter(kind="cancel").count() == 1

    def test_savepoint_rollback(self) -> None:
        """A nested block that fails takes its saga along."""
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012 - the transaction is the test
            Trip.start(Ordered(), key="b")
            raise ZeroDivisionError
        assert not SagaRow.objects.filter(key="b").exists()

    def test_commit_hooks_run_or_not(self) -> None:
        """The wake-up is a commit hook: it may be captured and run, and nothing rests on it."""
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            Trip.start(Ordered(), key="c")
        assert len(callbacks) == 1
        assert not connection.needs_rollback


class InTransactionTestCase(TransactionTestCase):
    """Django's flush between tests truncates our tables, the append-only log among them."""

    def test_flush_1(self) -> None:
        """One of two tests that would disturb each other."""
        self.start()

    def test_flush_2(self) -> None:
        """The other."""
        self.start()

    def start(self) -> None:
        assert LogEntry.objects.count() == 0
        with transaction.atomic():
            assert Trip.start(Ordered(), key="a").created
