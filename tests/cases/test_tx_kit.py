"""Incidents of tests that wait for a commit, as seen from the testing kit inside Django's `TestCase`."""

from __future__ import annotations

from django.db import connection, transaction
from django.test import TestCase

from sagas.states import Status
from sagas.testing import answers, drain
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.kit.sagas import Buy, Order
from tests.shop.models import Booking


class InTestCase(TestCase):
    """A transaction around each test, which never commits."""

    def test_tx13_the_kit_runs_what_the_tests_transaction_has(self) -> None:
        """`drain()` runs the sagas whose rows the test sees, to their end, without a commit hook being run; not the
        one that went with its inner block, nor the hooks of a body that failed."""
        hooks: list[str] = []

        def confirm(run: Buy) -> str:
            transaction.on_commit(lambda: hooks.append(f"{run.key} {run.attempt}"))
            if run.attempt == 1:
                raise ConnectionError
            return "confirmed"

        answers(Buy).charge.returns("ch_1")
        answers(Buy).confirm.does(confirm)
        with self.captureOnCommitCallbacks() as captured:
            with transaction.atomic():
                Buy.start(Order(1), key="rolled back")
                transaction.on_commit(lambda: hooks.append("rolled back"))
                transaction.set_rollback(True)
            Buy.start(Order(2), key="a")
            ran = drain()
            assert str(ran[0]) == "reserve: succeeded"
            assert Buy.get(key="a").status == Status.COMPLETED
        assert [saga.key for saga in SagaRow.objects.all()] == ["a"]
        assert set(Booking.objects.values_list("saga", flat=True)) == {"a"}
        assert len(answers(Buy).charge.calls) == 1
        assert not OutboxRow.objects.exists()
        assert hooks == []
        for hook in captured:
            hook()
        assert hooks == ["a 2"]
        assert connection.in_atomic_block and not connection.needs_rollback
        with DjangoStore("default").connect() as other:
            assert other.execute("select count(*) from sagas_saga").fetchone() == (0,)
