"""Sagas with one bug each, and the same sagas mended. What each gets wrong is the docstring of its class."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sagas import COMPENSATE, NOT_DONE, UNKNOWN, NotDone, Refused, Retry, Saga, Step, Unknown, external_step, step
from tests.explore.bank import world
from tests.explore.right import FEE, THRICE, Ordered


def shipping() -> Step[Any, None]:
    """What most of them end with: the pivot."""

    @external_step(pivot=True, retry=THRICE)
    def ship(self: Saga[Ordered]) -> None:
        world.ship(self.idempotency_key)

    return ship


class FeeForgotten(Saga[Ordered], name="explore.fee", version=1):
    """The refund forgets the shipping fee."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price + FEE, self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key, self.input.price)

    ship = shipping()


class FeeReturned(Saga[Ordered], name="explore.fee_mended", version=1):
    """All of it."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price + FEE, self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key, self.input.price + FEE)

    ship = shipping()


class UndoneTwice(Saga[Ordered], name="explore.twice", version=1):
    """The compensation sends the money back each time it is called."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.pay_out(self.input.price)

    ship = shipping()


class UndoneOnce(Saga[Ordered], name="explore.twice_mended", version=1):
    """Once for each key."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.pay_out(self.input.price, self.idempotency_key)

    ship = shipping()


class KeyIgnored(Saga[Ordered], name="explore.key", version=1):
    """The step makes a key of its own for each attempt."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, uuid4().hex)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class KeySent(Saga[Ordered], name="explore.key_mended", version=1):
    """The framework's key."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class Denied(Saga[Ordered], name="explore.denied", version=1):
    """The `resolve` says NOT_DONE of a charge that happened."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return world.bank.find(f"charge {self.idempotency_key}")

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class Admitted(Saga[Ordered], name="explore.denied_mended", version=1):
    """It looks under the right key."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return world.bank.find(self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class UnknownUnheard(Saga[Ordered], name="explore.unknown", version=1):
    """The compensation takes UNKNOWN for a payment."""

    @external_step(retry=THRICE, on_unknown=COMPENSATE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str | Unknown) -> None:
        world.bank.refund(payment.upper().lower(), self.idempotency_key)  # type: ignore[union-attr]

    ship = shipping()


class UnknownIgnored(Saga[Ordered], name="explore.unknown_ignored", version=1):
    """The compensation does nothing about UNKNOWN, though the money may have been taken."""

    @external_step(retry=THRICE, on_unknown=COMPENSATE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str | Unknown) -> None:
        if payment is not UNKNOWN:
            world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class UnknownVoided(Saga[Ordered], name="explore.unknown_mended", version=1):
    """Whatever was or will be taken under the key is paid back."""

    @external_step(retry=THRICE, on_unknown=COMPENSATE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str | Unknown) -> None:
        if payment is UNKNOWN:
            world.bank.cancel(self.charge.idempotency_key, self.idempotency_key)
        else:
            world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


last_payment = ""


class Remembered(Saga[Ordered], name="explore.memory", version=1):
    """One step keeps in a module variable what another one needs."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        global last_payment
        last_payment = world.bank.charge(self.input.price, self.idempotency_key)
        return last_payment

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str) -> None:
        if last_payment:
            world.bank.refund(last_payment, self.idempotency_key)

    ship = shipping()


payments: dict[str, str] = {}


class Cached(Saga[Ordered], name="explore.cache", version=1):
    """The same in a dictionary."""

    @external_step(retry=THRICE)
    def charge(self) -> None:
        payments[str(self.id)] = world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, charged: None) -> None:
        if payment := payments.get(str(self.id)):
            world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class RefusedAfter(Saga[Ordered], name="explore.refused", version=1):
    """No answer in time is taken for a no."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        try:
            return world.bank.charge(self.input.price, self.idempotency_key)
        except Exception as problem:
            raise Refused("the bank does not answer") from problem

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class Reserved(Saga[Ordered], name="explore.others", version=1):
    """The compensation releases the first reservation that it finds."""

    @external_step(retry=THRICE)
    def reserve(self) -> str:
        return world.reserve(str(self.id))

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        if len(world.reserved) > 1:
            world.reserved.pop(next(iter(world.reserved)))

    ship = shipping()


class ReservedOwn(Saga[Ordered], name="explore.others_mended", version=1):
    """It releases its own."""

    @external_step(retry=THRICE)
    def reserve(self) -> str:
        return world.reserve(str(self.id))

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        world.reserved.pop(who, None)

    ship = shipping()


class OrderMatters(Saga[Ordered], name="explore.order", version=1):
    """The undo of the first step needs the result of the second, which may never have happened."""

    @external_step(retry=THRICE)
    def reserve(self) -> str:
        return world.reserve(str(self.id))

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        world.mail(f"{self.charge.result} is void")
        world.reserved.pop(who, None)

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class TakenAway(Saga[Ordered], name="explore.taken", version=1):
    """The undo of the second step needs what only the undo of the first one makes."""

    @external_step(retry=THRICE)
    def reserve(self) -> str:
        return world.reserve(str(self.id))

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        world.reserved.pop(who, None)

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str) -> None:
        if str(self.id) not in world.reserved:
            world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class OrderFree(Saga[Ordered], name="explore.order_mended", version=1):
    """Each undo goes by the result of its own step."""

    @external_step(retry=THRICE)
    def reserve(self) -> str:
        return world.reserve(str(self.id))

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        world.reserved.pop(who, None)

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class NotSoLocal(Saga[Ordered], name="explore.local", version=1):
    """A local step calls the bank, which is not rolled back with it."""

    @step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, f"{self.id} {self.attempt}")

    @charge.compensate(external=True, retry=THRICE)
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    ship = shipping()


class HalfDone(Saga[Ordered], name="explore.half", version=1):
    """A step of two effects takes the first one for both."""

    @external_step(compensate=None, pivot=True, retry=THRICE)
    def charge(self) -> str:
        found = world.bank.find(self.idempotency_key)
        if found is not NOT_DONE:
            return str(found)
        payment = world.bank.charge(self.input.price, self.idempotency_key)
        world.mail(self.idempotency_key)
        world.ship(self.idempotency_key)
        return payment


class WhollyDone(Saga[Ordered], name="explore.half_mended", version=1):
    """Each effect under a key of its own."""

    @external_step(compensate=None, pivot=True, retry=Retry(max_attempts=5))
    def charge(self) -> str:
        payment = world.bank.charge(self.input.price, self.idempotency_key)
        world.mail(self.idempotency_key)
        world.ship(self.idempotency_key)
        return payment


class BorrowedResult(Saga[Ordered], name="explore.borrowed", version=1):
    """One of two steps side by side reads what the other one returned, which may not have begun."""

    @external_step(retry=THRICE, after=[])
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    @external_step(retry=THRICE, after=[])
    def reserve(self) -> str:
        world.mail(f"paid by {self.charge.result}")
        return world.reserve(str(self.id))

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        world.reserved.pop(who, None)

    @external_step(pivot=True, retry=THRICE, after=[charge, reserve])
    def ship(self) -> None:
        world.ship(self.idempotency_key)


class OnlyTogether(Saga[Ordered], name="explore.together", version=1):
    """The undo of one of two steps side by side takes the other one for done, which may have been refused meanwhile."""

    @external_step(retry=THRICE, on_unknown=COMPENSATE, after=[])
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str | Unknown) -> None:
        if payment is not UNKNOWN:
            world.bank.refund(payment, self.idempotency_key)
        elif self.reserve.status in ("done", "undone"):
            world.bank.cancel(self.charge.idempotency_key, self.idempotency_key)

    @external_step(retry=THRICE, after=[])
    def reserve(self) -> str:
        return world.reserve(str(self.id))

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        world.reserved.pop(who, None)

    @external_step(pivot=True, retry=THRICE, after=[charge, reserve])
    def ship(self) -> None:
        world.ship(self.idempotency_key)


class SideBySide(Saga[Ordered], name="explore.beside_mended", version=1):
    """Neither knows of the other."""

    @external_step(retry=THRICE, on_unknown=COMPENSATE, after=[])
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate(retry=THRICE)
    def refund(self, payment: str | Unknown) -> None:
        if payment is UNKNOWN:
            world.bank.cancel(self.charge.idempotency_key, self.idempotency_key)
        else:
            world.bank.refund(payment, self.idempotency_key)

    @external_step(retry=THRICE, after=[])
    def reserve(self) -> str:
        return world.reserve(str(self.id))

    @reserve.compensate(retry=THRICE)
    def release(self, who: str) -> None:
        world.reserved.pop(who, None)

    @external_step(pivot=True, retry=THRICE, after=[charge, reserve])
    def ship(self) -> None:
        world.ship(self.idempotency_key)
