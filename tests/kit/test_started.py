"""`assert_started` and the like see what the open transaction has started."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import transaction

from sagas.testing import Kit, assert_not_started, assert_started, started
from tests.kit.sagas import Buy, Order, Slow


def test_in_the_open_transaction(sagas: Kit) -> None:
    """With key and input, as dataclasses again."""
    with transaction.atomic():
        run = Buy.start(Order(7, Decimal("1.10")), key="order-7")
        found = sagas.assert_started(Buy, key="order-7", input=Order(7, Decimal("1.10")))
        assert (found.id, found.key, found.input) == (run.id, "order-7", Order(7, Decimal("1.10")))
        sagas.assert_not_started(Slow)
        transaction.set_rollback(True)
    sagas.assert_not_started(Buy)


def test_without_the_fixture(db: None) -> None:
    """The functions of `sagas.testing`."""
    Buy.start(Order(1), key="a")
    Buy.start(Order(2), key="b")
    assert [each.key for each in started(Buy)] == ["a", "b"]
    assert_started(Buy, times=2)
    assert_started(Buy, input=Order(2), times=1)
    assert_not_started(Buy, key="c")
    assert_not_started(Buy, key="a", input=Order(2))


def test_messages_list_what_was_started(sagas: Kit) -> None:
    """So that one sees what is different."""
    with pytest.raises(AssertionError, match=r"saga kit\.buy was not started; no saga kit\.buy was"):
        sagas.assert_started(Buy)
    Buy.start(Order(1), key="a")
    with pytest.raises(AssertionError, match=r"with key 'b' was not started; (?s:.*)key 'a' with Order\(number=1"):
        sagas.assert_started(Buy, key="b")
    with pytest.raises(AssertionError, match=r"with input Order\(number=2.* was not started"):
        sagas.assert_started(Buy, input=Order(2))
    with pytest.raises(AssertionError, match="was started 1 times, not 2"):
        sagas.assert_started(Buy, times=2)
    with pytest.raises(AssertionError, match="key 'a' was started"):
        sagas.assert_not_started(Buy, key="a")
    with pytest.raises(ValueError, match="assert_not_started"):
        sagas.assert_started(Buy, times=0)
