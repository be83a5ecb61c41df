"""The saga that bears everything."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from sagas import COMPENSATE, UNKNOWN, NotDone, Retry, Saga, Unknown, external_step, step
from sagas.engine import SagaRun
from tests.explore.bank import world
from tests.shop.models import Booking

THRICE = Retry(max_attempts=3)
FEE = Decimal("2.50")


@dataclass(frozen=True)
class Ordered:
    """What is ordered."""

    number: int = 7
    price: Decimal = Decimal("10.00")


ORDER = Ordered()


class Right(Saga[Ordered], name="explore.right", version=1):
    """Local, external with every help, external pivot, local."""

    @step
    def book(self) -> int:
        return Booking.objects.create(saga=self.key, step="book").pk

    @book.compensate
    def unbook(self, booking: int) -> None:
        Booking.objects.filter(pk=booking).delete()

    @external_step(retry=THRICE)
    def reserve(self) -> str:
        return world.reserve(str(self.id))

    @reserve.resolve
    def find_reservation(self) -> str | NotDone:
        return str(self.id) if str(self.id) in world.reserved else NotDone.NOT_DONE

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        world.reserved.pop(who, None)

    @external_step(retry=THRICE, on_unknown=COMPENSATE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price + FEE, self.idempotency_key)

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return world.bank.find(self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str | Unknown) -> None:
        if payment is UNKNOWN:
            world.bank.cancel(self.charge.idempotency_key, self.idempotency_key)
        else:
            world.bank.refund(payment, self.idempotency_key)

    @external_step(pivot=True, retry=THRICE)
    def ship(self) -> None:
        world.ship(self.idempotency_key)

    @step(retry=THRICE)
    def confirm(self) -> None:
        Booking.objects.create(saga=self.key, step="confirm")


def all_or_nothing(run: SagaRun) -> None:
    """Paid, shipped and booked, or none of it; and what is somebody else's is untouched."""
    steps = sorted(Booking.objects.values_list("step", flat=True))
    if run.status == "completed":
        assert (world.bank.kept, len(world.shipped), steps) == (Decimal("12.50"), 1, ["book", "confirm"])
        assert len(world.reserved) == 2
    else:
        assert (world.bank.kept, len(world.shipped), steps) == (0, 0, []), f"{world.bank.kept} was kept"
        assert list(world.reserved) == ["somebody else"]
