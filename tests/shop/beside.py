"""Sagas whose steps run side by side."""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from sagas import COMPENSATE, Saga, external_step, step, wait_for
from tests.shop.models import Booking
from tests.shop.sagas import THRICE, Ordered
from tests.shop.waiting import Review
from tests.shop.world import world


class Journey(Saga[Ordered], name="test.journey", version=1):
    """Flight, hotel and car are booked side by side, the fare is asked for beside them; then all is paid."""

    @step(compensate=None)
    def open(self) -> int:
        return self.input.number

    @external_step(retry=THRICE, after=[open])
    def flight(self) -> str:
        return world.act("flight", self)

    @flight.compensate(retry=THRICE)
    def cancel_flight(self, booked: str) -> None:
        world.act("cancel_flight", self, booked)

    @step(retry=THRICE, after=[open])
    def hotel(self) -> int:
        world.act("hotel", self)
        return Booking.objects.create(saga=self.key, step="hotel").pk

    @hotel.compensate
    def cancel_hotel(self, booking: int) -> None:
        world.act("cancel_hotel", self, booking)
        Booking.objects.filter(pk=booking).delete()

    @external_step(retry=THRICE, after=[open])
    def car(self) -> str:
        return world.act("car", self)

    @car.compensate(retry=THRICE)
    def cancel_car(self, booked: str) -> None:
        world.act("cancel_car", self, booked)

    @step(retry=THRICE, after=[flight, hotel, car])
    def pay(self) -> list[str]:
        world.act("pay", self)
        return [self.flight.result, self.car.result]

    @pay.compensate
    def unpay(self, paid: list[str]) -> None:
        world.act("unpay", self, paid)


class Waits(Saga[Ordered], name="test.waits_beside", version=1):
    """Two approvals and a charge beside each other."""

    one = wait_for(Review, after=[])
    two = wait_for(Review, timeout=60, on_timeout=COMPENSATE, after=[])

    @external_step(retry=THRICE, after=[])
    def charge(self) -> str:
        return world.act("charge", self)

    @charge.compensate
    def refund(self, charge: str) -> None:
        world.act("refund", self, charge)

    @step(compensate=None, after=[one, two, charge])
    def done(self) -> str:
        return self.one.result.note + self.two.result.note
