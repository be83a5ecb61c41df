"""The saga that sees an order through: accept, reserve, take the money, ship, confirm."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db.models import F

from example_project.bank_client import BankClient
from example_project.shop.models import Order, Product, Reservation, Shipment
from sagas import COMPENSATE, UNKNOWN, NotDone, Refused, Retry, Saga, Unknown, external_step, step

NO_CARRIER_TO = frozenset({"Atlantis"})

bank = BankClient(settings.BANK_URL, timeout=settings.BANK_TIMEOUT)


@dataclass(frozen=True)
class OrderPlaced:
    """What the saga needs to know of an order."""

    order_id: UUID
    amount: Decimal


class PlaceOrder(Saga[OrderPlaced], name="shop.place_order", version=1):
    """Accept the order, reserve stock, take the money, ship, confirm."""

    @step
    def accept(self) -> None:
        """Start work on the order."""
        Order.objects.filter(pk=self.input.order_id).update(status=Order.Status.ACCEPTED)

    @accept.compensate
    def cancel_order(self, accepted: None) -> None:
        """Tell the customer that it came to nothing."""
        Order.objects.filter(pk=self.input.order_id).update(status=Order.Status.CANCELLED)

    @step
    def reserve(self) -> int:
        """Put the goods aside."""
        order = Order.objects.get(pk=self.input.order_id)
        in_stock = Product.objects.filter(pk=order.product_id, stock__gte=order.quantity)
        if not in_stock.update(stock=F("stock") - order.quantity):
            raise Refused(f"{order.product_id} is sold out")
        return Reservation.objects.create(order=order, product_id=order.product_id, quantity=order.quantity).pk

    @reserve.compensate
    def release(self, reservation_id: int) -> None:
        """Put the goods back on the shelf."""
        reservation = Reservation.objects.get(pk=reservation_id)
        Product.objects.filter(pk=reservation.product_id).update(stock=F("stock") + reservation.quantity)
        reservation.delete()

    @external_step(
        retry=Retry(max_attempts=8, first=1, factor=2, longest=300),
        timeout=30,
        queue="payments",
        key_ttl=timedelta(hours=24),  # how long the bank remembers our idempotency key
        settle_after=settings.CHARGE_SETTLE_AFTER,
        on_unknown=COMPENSATE,  # safe: the bank can void a key that it has not seen yet
    )
    def charge(self) -> str:
        """Take the money."""
        return bank.charge(self.input.amount, order=str(self.input.order_id), idempotency_key=self.idempotency_key)

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

    @step(pivot=True)
    def ship(self) -> None:
        """Hand over the parcel: from here on there is no way back."""
        destination = Order.objects.get(pk=self.input.order_id).destination
        if destination in NO_CARRIER_TO:
            raise Refused(f"no carrier goes to {destination}")
        Shipment.objects.create(order_id=self.input.order_id, paid_with=self.charge.result)

    @step
    def confirm(self) -> None:
        """Tell the customer."""
        Order.objects.filter(pk=self.input.order_id).update(status=Order.Status.CONFIRMED)
