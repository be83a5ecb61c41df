"""What came above on the page; its model is one of an app that forgets it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.test.utils import isolate_apps

from sagas import Saga, step, wait_for
from tests.shop.models import Order as ShopOrder

__all__ = ["transaction"]

MODULE = "tests.shop.docs_django"


class Orders:
    """`Order.objects` with a total, which the shop of the tests has not."""

    def create(self, *_: Any) -> ShopOrder:
        order = ShopOrder.objects.create(pk=7, title="lamp")
        order.total = Decimal("12.50")
        return order


class Order:
    objects = Orders()


@dataclass(frozen=True)
class OrderPlaced:
    order_id: int
    total: Decimal


class PlaceOrder(Saga[OrderPlaced], name="docs.django_place_order", version=1):
    go = wait_for(bool)

    @step(pivot=True)
    def confirm(self) -> None: ...


@contextmanager
def around() -> Iterator[None]:
    """Models of the page are of a registry of their own."""
    before = dict(admin.site._registry)
    with isolate_apps("tests.shop"):
        yield
    admin.site._registry = before
