"""What the steps did."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction

from tests.support.stories import drain

SILENT = 8
FORBIDDEN = 9


class CarrierRefuses(Exception):
    """The carrier says no."""


def charge(order_id: int, key: str) -> str:
    return f"ch-{order_id}"


def refund(paid: str) -> None:
    refunded.append(paid)


def ship(order_id: int, paid: str, key: str) -> str:
    if order_id == SILENT:
        raise TimeoutError("no answer")
    if order_id == FORBIDDEN:
        raise CarrierRefuses("not to that country")
    return f"shipped, {paid}"


def recall(order_id: int) -> None:
    recalled.append(order_id)


refunded: list[str] = []
recalled: list[int] = []


def afterwards(names: dict[str, Any]) -> None:
    """One is shipped, one parks without a refund, one is refunded; and one is recalled although nobody knows."""
    saga, undone, ordered = names["ShipOrder"], names["ShipOrRecall"], names["Ordered"]
    with transaction.atomic():
        for number in (7, SILENT, FORBIDDEN):
            saga.start(ordered(number), key=f"order-{number}")
        undone.start(ordered(SILENT), key="order")
    drain(skip=timedelta(minutes=5))  # what was undone without knowing is looked at once more after a minute
    assert [saga.get(key=f"order-{number}").status for number in (7, SILENT, FORBIDDEN)] == [
        "completed", "parked", "compensated",
    ]  # fmt: skip
    assert refunded == [f"ch-{FORBIDDEN}"]
    assert (undone.get(key="order").status, set(recalled)) == ("compensated", {SILENT})
