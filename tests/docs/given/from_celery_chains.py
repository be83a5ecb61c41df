"""The tasks that the chain had."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from tests.support.stories import drain


class CardDeclined(Exception):
    """The bank says no."""


def reserve(order_id: int) -> int:
    return order_id


def release(reservation: int) -> None:
    released.append(reservation)


def charge(order_id: int, key: str) -> str:
    if order_id == 2:
        raise CardDeclined("no money")
    return f"ch-{order_id}"


def refund(charge: str) -> None: ...


def ship(order_id: int, charge: str, key: str) -> str:
    return f"shipped {charge}"


released: list[int] = []


def afterwards(names: dict[str, Any]) -> None:
    """One is shipped, one is turned back."""
    saga, ordered = names["ShipOrder"], names["Ordered"]
    with transaction.atomic():
        for number in (1, 2):
            saga.start(ordered(number), key=f"order-{number}")
    drain()
    assert [saga.get(key=f"order-{number}").status for number in (1, 2)] == ["completed", "compensated"]
    assert released == [2]
