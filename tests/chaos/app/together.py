"""Orders whose steps run side by side, that have children and items, and that hold what others want."""

from __future__ import annotations

from sagas import Saga, Unknown, child_saga, external_step, semantic_lock, step
from tests.chaos.app.models import Account
from tests.chaos.app.money import ANY, GOODS, OFTEN, POSTAGE, PRICE, WORD, Placed, book, give_back, pay, write

ITEMS = 3
ACCOUNTS = 2


class Beside(Saga[Placed], name="chaos.beside", version=1):
    """Goods, money and postage side by side; the books are closed when all three are there."""

    @step(retry=OFTEN, max_deliveries=ANY, after=[])
    def reserve(self) -> str:
        write(self.input.order, "reserve", GOODS)
        return self.input.order

    @reserve.compensate(retry=OFTEN)
    def release(self, order: str) -> None:
        write(order, "release", -GOODS)

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1, after=[])
    def charge(self) -> str:
        return pay(self, PRICE)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: str | Unknown) -> None:
        give_back(self, paid, "charge")

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1, queue="shop", after=[])
    def ship(self) -> str:
        return pay(self, POSTAGE, "/parcel")

    @ship.compensate(retry=OFTEN)
    def unship(self, paid: str | Unknown) -> None:
        give_back(self, paid, "ship")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None, after=[reserve, charge, ship])
    def close(self) -> None:
        book(self.input.order, whole=PRICE, parcel=POSTAGE)


class Payment(Saga[Placed], name="chaos.payment", version=1):
    """A child of `Family`."""

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1)
    def charge(self) -> str:
        return pay(self, PRICE)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: str | Unknown) -> None:
        give_back(self, paid, "charge")


class Family(Saga[Placed], name="chaos.family", version=1):
    """A child that pays, items that are posted, and a last step that may be declined when all of it is done."""

    payment = child_saga(Payment, input=lambda self: self.input, result=Payment.charge)

    @external_step(
        for_each=lambda self: range(ITEMS), concurrency=2, retry=OFTEN, max_deliveries=ANY, settle_after=1
    )  # fmt: skip
    def post(self, item: int) -> str:
        return pay(self, WORD, f"/{item}")

    @post.compensate(retry=OFTEN)
    def recall(self, item: int, paid: str) -> None:
        give_back(self, paid, "post")

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1)
    def ship(self) -> str:
        return pay(self, POSTAGE, "/parcel")

    @ship.compensate(retry=OFTEN)
    def unship(self, paid: str | Unknown) -> None:
        give_back(self, paid, "ship")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def close(self) -> None:
        book(self.input.order, whole=PRICE, parcel=POSTAGE, **{str(item): WORD for item in range(ITEMS)})


class Locked(Saga[Placed], name="chaos.locked", version=1):
    """Reads a balance, pays, and writes the balance that it read and one more: nobody else may come between."""

    @step(
        retry=OFTEN,
        max_deliveries=ANY,
        compensate=None,
        lock=semantic_lock(lambda self: f"account:{self.input.number % ACCOUNTS}", wait=3600),
    )
    def read(self) -> int:
        name = f"account:{self.input.number % ACCOUNTS}"
        return int(Account.objects.get_or_create(name=name)[0].balance)

    @external_step(retry=OFTEN, max_deliveries=ANY, settle_after=1)
    def charge(self) -> str:
        return pay(self, PRICE)

    @charge.compensate(retry=OFTEN)
    def refund(self, paid: str | Unknown) -> None:
        give_back(self, paid, "charge")

    @step(retry=OFTEN, max_deliveries=ANY, compensate=None)
    def add(self) -> None:
        name = f"account:{self.input.number % ACCOUNTS}"
        Account.objects.filter(name=name).update(balance=self.read.result + 1)
        book(self.input.order, whole=PRICE)
