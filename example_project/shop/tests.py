"""The shop's own tests: its saga under every single fault, with a bank in the memory of the test.

Run them with `manage.py test example_project.shop`. They need a Postgres, and neither the bank nor a broker.
"""

from __future__ import annotations

from decimal import Decimal
from unittest.mock import patch

from django.test import TestCase

from example_project.shop import sagas as shop
from example_project.shop.models import Order, Product, Reservation, Shipment
from example_project.shop.sagas import OrderPlaced, PlaceOrder
from sagas import COMPENSATE, NOT_DONE, UNKNOWN, NotDone, Refused, Unknown, external_step
from sagas.engine import SagaRun
from sagas.testing import explore, note

PRICE = Decimal("10.00")
SHIPPING = Decimal("2.50")


class Till:
    """What `BankClient` would do, without a bank: honours keys, refunds a charge once, refuses what is void."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """No charges."""
        self.charges: dict[str, Decimal] = {}  # by key
        self.refunds: dict[str, Decimal] = {}  # by key of the charge
        self.voided: set[str] = set()

    def charge(self, amount: Decimal, *, order: str, idempotency_key: str) -> str:
        """Take the money once for each key."""
        if idempotency_key in self.voided:
            raise Refused("this key is void")
        if idempotency_key not in self.charges:
            self.charges[idempotency_key] = amount
            note(f"the bank took {amount}")
        return f"ch_{list(self.charges).index(idempotency_key) + 1}"

    def find_charge(self, idempotency_key: str) -> str | NotDone:
        """What became of a charge."""
        if idempotency_key not in self.charges:
            return NOT_DONE
        return f"ch_{list(self.charges).index(idempotency_key) + 1}"

    def refund(self, charge_id: str, *, idempotency_key: str, amount: Decimal | None = None) -> None:
        """Pay a charge back, once."""
        self._pay_back(list(self.charges)[int(charge_id.removeprefix("ch_")) - 1], amount)

    def void(self, charge_key: str, *, idempotency_key: str) -> None:
        """Pay back what was or will be charged under a key."""
        self.voided.add(charge_key)
        if charge_key in self.charges:
            self._pay_back(charge_key, None)

    def _pay_back(self, charge_key: str, amount: Decimal | None) -> None:
        if charge_key not in self.refunds:
            self.refunds[charge_key] = self.charges[charge_key] if amount is None else amount
            note(f"the bank paid back {self.refunds[charge_key]} of {self.charges[charge_key]}")

    @property
    def kept(self) -> Decimal:
        """What the shop has of its customers' money."""
        return sum(self.charges.values(), Decimal(0)) - sum(self.refunds.values(), Decimal(0))


till = Till()


class ForgetsShipping(PlaceOrder, name="shop.tests.forgets_shipping", version=1):
    """A planted bug: the customer pays for shipping, and the refund forgets that."""

    @external_step(on_unknown=COMPENSATE)
    def charge(self) -> str:
        """Take the money for the goods and their shipping."""
        amount = self.input.amount + SHIPPING
        return till.charge(amount, order=str(self.input.order_id), idempotency_key=self.idempotency_key)

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        """Ask the bank what became of it."""
        return till.find_charge(self.idempotency_key)

    @charge.compensate
    def refund(self, charge_id: str | Unknown) -> None:
        """Give back the price of the goods."""
        if charge_id is UNKNOWN:
            till.void(self.charge.idempotency_key, idempotency_key=self.idempotency_key)
        else:
            till.refund(charge_id, idempotency_key=self.idempotency_key, amount=self.input.amount)


def ordered() -> OrderPlaced:
    """An order that nobody sees through yet."""
    product = Product.objects.create(sku="lamp", name="Lamp", price=PRICE, stock=3)
    order = Order.objects.create(product=product, total=PRICE)
    return OrderPlaced(order.id, order.total)


def all_or_nothing(run: SagaRun) -> None:
    """The customer has the goods and the shop the money, or both have what they had."""
    shipped = Shipment.objects.count()
    assert Product.objects.get().stock == 3 - Reservation.objects.count(), "goods are lost"
    assert shipped == Reservation.objects.count(), "goods are put aside for nobody"
    if shipped:
        assert till.kept >= PRICE, f"shipped, and the shop got {till.kept}"
        assert Order.objects.get().status == Order.Status.CONFIRMED, "shipped, and the customer was not told"
    else:
        assert till.kept == 0, f"nothing was shipped, and the shop kept {till.kept}"
        assert Order.objects.get().status != Order.Status.CONFIRMED, "confirmed, and nothing was shipped"


class OrdersExplored(TestCase):
    """`explore` on the shop."""

    def test_place_order_bears_every_fault(self) -> None:
        """Whatever goes wrong once: all of it, or nothing."""
        with patch.object(shop, "bank", till):
            explore(PlaceOrder, ordered, invariant=all_or_nothing, reset=till.reset)

    def test_a_refund_that_forgets_the_shipping_fee_is_found(self) -> None:
        """The story says which function it was, and how much it gave back."""
        found = explore(ForgetsShipping, ordered, invariant=all_or_nothing, reset=till.reset, raises=False)
        story = str(found)  # what a failing test shows
        assert "refund('ch_1') ran" in story
        assert "the bank paid back 10.00 of 12.50" in story
        assert "invariant failed: nothing was shipped, and the shop kept 2.50" in story
