"""Sagas that wait for a signal: neither an error nor run past their time, unless the test moves the clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sagas.states import Status
from sagas.testing import Kit, WrongAnswer
from tests.kit.sagas import Order, Review, Reviewed
from tests.shop.models import Booking


def test_a_signal(sagas: Kit) -> None:
    """The saga comes to its wait and stays there; the signal takes it on."""
    sagas.answers(Reviewed).ship.returns("tracking")
    before = sagas.clock.now()
    assert sagas.run(Reviewed, Order(1), key="a").status == Status.RUNNING
    assert sagas.drain() == []
    assert sagas.clock.now() - before < timedelta(days=1)
    Reviewed.review.send(Review(ok=True), key="a")
    sagas.drain()
    sagas.assert_status(Reviewed.get(key="a"), "completed")


def test_two_days_without_a_signal(sagas: Kit) -> None:
    """In milliseconds."""
    run = sagas.run(Reviewed, Order(1), key="a")
    sagas.clock.advance(timedelta(days=2) - timedelta(minutes=1))
    sagas.drain()
    sagas.assert_status(run, "running")
    sagas.clock.advance(timedelta(minutes=1))
    sagas.drain()
    sagas.assert_status(run, "compensated")
    assert not Booking.objects.exists()


def test_a_signal_that_comes_first(sagas: Kit) -> None:
    """It is kept until the saga comes to its wait."""
    sagas.answers(Reviewed).ship.returns("tracking")
    run = Reviewed.start(Order(1), key="a")
    Reviewed.review.send(Review(ok=True), key="a")
    sagas.drain()
    sagas.assert_status(run, "completed")


def test_a_wait_has_no_answers(sagas: Kit) -> None:
    """It gets a signal."""
    with pytest.raises(WrongAnswer, match="send it a signal"):
        _ = sagas.answers(Reviewed).review
