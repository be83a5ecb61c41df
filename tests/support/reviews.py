"""Sagas that wait for a review, and the sending of one."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from sagas.states import Status
from tests.shop.waiting import Review, Reviewed
from tests.support.stories import begin, drain, log_of

FINE = Review(True, "fine")


def send(value: Review = FINE, *, key: str = "a", **options: Any) -> bool:
    """Send a review in a transaction of its own."""
    with transaction.atomic():
        return Reviewed.review.send(value, key=key, **options)


def waiting(key: str = "a") -> Any:
    """A saga that waits for its review."""
    saga = begin(Reviewed, key)
    drain()
    assert log_of(saga)[-1] == "waiting review"
    return saga


def status(key: str = "a", saga: Any = Reviewed) -> Status:
    """Where a saga stands."""
    found: Status = saga.get(key=key).status
    return found
