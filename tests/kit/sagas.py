"""The sagas of the tests of the kit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from sagas import COMPENSATE, NotDone, Retry, Saga, Unknown, external_step, step, wait_for
from tests.shop.models import Booking, Seat


@dataclass(frozen=True)
class Order:
    """What is bought."""

    number: int
    amount: Decimal = Decimal("9.50")


class Bank:
    """The other side, which no test may reach."""

    def charge(self, key: str) -> str:
        raise AssertionError("a test has called the real bank")


bank = Bank()


class Buy(Saga[Order], name="kit.buy", version=1):
    """Reserve, charge, ship."""

    @step
    def reserve(self) -> int:
        return Booking.objects.create(saga=self.key, step="reserve").pk

    @reserve.compensate
    def release(self, booking: int) -> None:
        Booking.objects.filter(pk=booking).delete()

    @external_step(retry=Retry(max_attempts=4, first=60), key_ttl=timedelta(hours=24))
    def charge(self) -> str:
        return bank.charge(self.idempotency_key)

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return bank.charge(self.idempotency_key)

    @charge.compensate
    def refund(self, charge: str) -> None:
        bank.charge(self.idempotency_key)

    @step(pivot=True)
    def confirm(self) -> str:
        Booking.objects.create(saga=self.key, step=self.charge.result)
        return f"{self.input.number} paid with {self.charge.result}"


class Slow(Saga[Order], name="kit.slow", version=1):
    """Tried again after two days, under a key that is remembered for three."""

    @external_step(
        retry=Retry(max_attempts=5, first=2 * 86400, longest=2 * 86400), key_ttl=timedelta(days=3), compensate=None
    )
    def call(self) -> str:
        return bank.charge(self.idempotency_key)


class Blind(Saga[Order], name="kit.blind", version=1):
    """Undone without knowing, and looked at once more a minute later."""

    @external_step(retry=Retry(max_attempts=1), on_unknown=COMPENSATE, settle_after=60)
    def charge(self) -> str:
        return bank.charge(self.idempotency_key)

    @charge.compensate
    def refund(self, charge: str | Unknown) -> None:
        bank.charge(self.idempotency_key)


class Seats(Saga[Order], name="kit.seats", version=1):
    """Writes with an external step and with effects; whether that works is up to the test."""

    @external_step(retry=Retry(max_attempts=2), compensate=None)
    def take(self) -> int:
        paid = self.effect("pay", lambda key: f"paid:{key}", returns=str)
        Booking.objects.create(saga=self.key, step=paid.partition(":")[0])
        return Seat.objects.create(number=self.input.number).pk

    @step(compensate=None)
    def note(self) -> None:
        Booking.objects.create(saga=self.key, step="note")


class Broken(Saga[Order], name="kit.broken", version=1):
    """Has a fault where there is no way back."""

    @step(pivot=True)
    def decide(self) -> None: ...

    @step(retry=Retry(max_attempts=2))
    def divide(self) -> int:
        nothing = self.input.number - self.input.number
        return self.input.number // nothing


@dataclass(frozen=True)
class Review:
    """What a person says."""

    ok: bool


class Reviewed(Saga[Order], name="kit.reviewed", version=1):
    """Waits two days for a person."""

    @step
    def reserve(self) -> int:
        return Booking.objects.create(saga=self.key, step="reserve").pk

    @reserve.compensate
    def release(self, booking: int) -> None:
        Booking.objects.filter(pk=booking).delete()

    review = wait_for(Review, timeout=timedelta(days=2), on_timeout=COMPENSATE)

    @external_step(pivot=True)
    def ship(self) -> str:
        return bank.charge(self.idempotency_key)
