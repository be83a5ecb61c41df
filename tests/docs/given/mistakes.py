"""What the mistakes are made with."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.db import connection, transaction
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import sagas_sqlalchemy
from sagas import Retry, Saga, external_step, registry, step
from sagas.settings import Settings
from sagas.testing import Kit
from tests.shop.models import Order
from tests.support.stories import drain

__all__ = [
    "AsyncSession",
    "Bill",
    "Order",
    "PayBill",
    "PlaceOrder",
    "Placed",
    "Retry",
    "Saga",
    "Settings",
    "connection",
    "create_async_engine",
    "create_engine",
    "drain",
    "external_step",
    "registry",
    "sagas",
    "sagas_sqlalchemy",
    "step",
    "transaction",
]  # fmt: skip


sagas = Kit()


@dataclass(frozen=True)
class Placed:
    order_id: int


class PlaceOrder(Saga[Placed], name="mistakes.place_order", version=1):
    @step(pivot=True)
    def confirm(self) -> None: ...


@dataclass(frozen=True)
class Bill:
    amount: Decimal


class PayBill(Saga[Bill], name="mistakes.pay_bill", version=1):
    @step(pivot=True)
    def pay(self) -> None: ...
