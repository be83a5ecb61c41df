"""The saga that sees an order through: accept, take the money, hear from the bank, have it approved, ship."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

from example_project.bank_client import BankClient
from example_project.fastapi_shop.models import Order
from sagas import COMPENSATE, UNKNOWN, NotDone, Refused, Retry, Saga, Unknown, external_step, step, wait_for

bank = BankClient(os.environ.get("BANK_URL", "http://127.0.0.1:8001"))


@dataclass(frozen=True)
class OrderPlaced:
    """What the saga needs to know of an order."""

    order_id: UUID
    total: Decimal


@dataclass(frozen=True)
class Settled:
    """The bank's webhook: the money has arrived."""

    event: str


@dataclass(frozen=True)
class Approval:
    """What somebody in the office said."""

    ok: bool
    by: str


class PlaceOrder(Saga[OrderPlaced], name="fastapi_shop.place_order", version=1):
    """Accept, charge, wait for the bank's webhook and for an approval, ship."""

    @step
    def accept(self) -> None:
        """Start work on the order. Local steps are plain functions, also in an asynchronous application."""
        self.session.get_one(Order, self.input.order_id).status = "accepted"

    @accept.compensate
    def cancel_order(self, accepted: None) -> None:
        """Tell the customer that it came to nothing."""
        self.session.get_one(Order, self.input.order_id).status = "cancelled"

    @external_step(
        retry=Retry(max_attempts=8, first=1, factor=2, longest=300),
        timeout=30,
        key_ttl=timedelta(hours=24),  # how long the bank remembers our idempotency key
        on_unknown=COMPENSATE,  # safe: the bank can void a key that it has not seen yet
    )
    def charge(self) -> str:
        """Take the money."""
        return bank.charge(self.input.total, order=str(self.input.order_id), idempotency_key=self.idempotency_key)

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        """Ask the bank what became of it."""
        return bank.find_charge(self.idempotency_key)

    @charge.compensate
    def refund(self, charge_id: str | Unknown) -> None:
        """Give the money back, or see to it that it is never taken."""
        if charge_id is UNKNOWN:
            bank.void(self.charge.idempotency_key, idempotency_key=self.idempotency_key)
        else:
            bank.refund(charge_id, idempotency_key=self.idempotency_key)

    settled = wait_for(Settled, timeout=timedelta(days=1), on_timeout=COMPENSATE)
    approval = wait_for(Approval, timeout=timedelta(days=2), on_timeout=COMPENSATE)

    @step(pivot=True)
    def ship(self) -> None:
        """Hand over the parcel: from here on there is no way back."""
        if not self.approval.result.ok:
            raise Refused(f"not approved by {self.approval.result.by}")
        self.session.get_one(Order, self.input.order_id).status = "shipped"
