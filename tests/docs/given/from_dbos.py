"""What the steps did."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from tests.support.stories import drain


def charge(order_id: int, key: str) -> str:
    return f"ch-{order_id}"


def refund(paid: str) -> None: ...


def ship(order_id: int, paid: str) -> str:
    return f"shipped, {paid}"


def afterwards(names: dict[str, Any]) -> None:
    """It is shipped."""
    with transaction.atomic():
        names["ShipOrder"].start(names["Ordered"](7), key="order-7")
    drain()
    assert names["ShipOrder"].get(key="order-7").status == "completed"
