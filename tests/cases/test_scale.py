"""Incidents that only many writers see."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sagas_django.models import SagaRow
from tests.shop.models import Order
from tests.shop.sagas import Ordered, Trip
from tests.support.stories import Aside, second_connection

pytestmark = pytest.mark.usefixtures("shop")
WRITERS, EACH = 8, 10


@pytest.mark.parametrize("wake", [True, False])
def test_sc01_a_business_transaction_takes_no_global_lock(wake: bool, settings: Any) -> None:
    """No NOTIFY is pending when a business transaction commits, for that takes a lock of the whole server: the hint is
    a statement of its own afterwards, from nothing but our callers, few of them, and none when it is off."""
    settings.SAGAS = {"WAKE": wake}
    with transaction.atomic(), CaptureQueriesContext(connection) as sent:
        Order.objects.create(title="a")
        Trip.start(Ordered(), key="captured")
    inside = [each["sql"].lower() for each in sent.captured_queries]
    assert not any("notify" in sql for sql in inside)
    with second_connection() as listener:
        functions = listener.execute(
            "select prosrc from pg_proc where proname like 'sagas%%' and prosrc ~* 'notify'"
        ).fetchall()  # fmt: skip
        assert functions == []
        listener.execute("listen sagas_wake")
        start = threading.Barrier(WRITERS)

        def write(number: int) -> None:
            start.wait(20)
            for each in range(EACH):
                with transaction.atomic():
                    Order.objects.create(title="a")
                    Trip.start(Ordered(each), key=f"{number}-{each}")

        for each in [Aside(lambda number=number: write(number)) for number in range(WRITERS)]:  # type: ignore[misc]
            each.join()
        heard = list(listener.notifies(timeout=0.5 if wake else 0.1, stop_after=1 if wake else None))
    assert SagaRow.objects.count() == WRITERS * EACH + 1
    assert bool(heard) is wake
