"""An order that starts a saga of its own for the stock, and one for each letter; all in one queue."""

from __future__ import annotations

from sagas import Refused, Saga, child_saga, external_step, step
from tests.faults.app import sagas as orders
from tests.faults.app.models import Movement
from tests.faults.app.sagas import OFTEN, PRICE, Leg, put_aside, put_back, queue

LETTERS = 3
STOCK = queue("stock")


class Stock(Saga[Leg], name="faults.stock", version=1):
    """The child."""

    @step(queue=STOCK)
    def reserve(self) -> int:
        return put_aside(self.input.order)

    @reserve.compensate(queue=STOCK)
    def release(self, reservation: int) -> None:
        put_back(self.input.order, reservation)


class FamilyOrder(Saga[Leg], name="faults.family_order", version=1):
    """Stock by a child, letters by a saga each, then a last step that may refuse (number 1)."""

    @step(queue=STOCK, compensate=None)
    def open(self) -> None:
        Movement.objects.create(order=self.input.order, what="open")

    stock = child_saga(Stock, input=lambda self: self.input, result=Stock.reserve)

    @external_step(for_each=lambda self: range(LETTERS), concurrency=2, queue=STOCK, retry=OFTEN)
    def letter(self, item: int) -> str:
        order = f"{self.input.order}/letter-{item}"
        return orders.bank.charge(PRICE, order=order, idempotency_key=self.idempotency_key)

    @letter.compensate(retry=OFTEN)
    def take_back(self, item: int, charge_id: str) -> None:
        orders.bank.refund(charge_id, idempotency_key=self.idempotency_key)

    @step(queue=STOCK, compensate=None)
    def close(self) -> None:
        if self.input.number:
            raise Refused("the lid does not fit")
        Movement.objects.create(order=self.input.order, what=f"close {self.stock.result} {len(self.letter.result)}")
