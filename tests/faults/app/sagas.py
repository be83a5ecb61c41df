"""An order in three steps, each in a queue of its own so that a test can let a worker do just one of them.

Both sagas do the same and differ in how the unknown is found out: `KeyedOrder` sends the request again
and trusts the bank's idempotency keys, `AskedOrder` asks the bank and needs no keys to be honoured.
The parcel is paid at the same bank, under an order of its own: shipping is an external effect too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from example_project.bank_client import BankClient
from sagas import (
    UNKNOWN,
    ContinueAs,
    NotDone,
    Retry,
    Saga,
    Skip,
    Unknown,
    external_step,
    semantic_lock,
    sleep,
    step,
    wait_for,
)
from tests.faults.app.models import Movement, Reservation

PRICE = Decimal("10.00")
POSTAGE = Decimal("5.00")
OFTEN = Retry(max_attempts=20, first=0.2, factor=1.2, longest=0.5)

ONE_QUEUE = os.environ.get("FAULTS_ONE_QUEUE")

bank = BankClient(os.environ.get("BANK_URL", "http://127.0.0.1:1"), timeout=60)


def queue(name: str) -> str:
    """The queue of a step: its own, or where a test says so one for all, so that workers go on from step to step."""
    return ONE_QUEUE or name


def parcel(order: str) -> str:
    """The order at the bank under which the postage of an order is paid."""
    return f"{order}/parcel"


def insurance(order: str) -> str:
    """The order at the bank under which the insurance of an order is paid."""
    return f"{order}/insurance"


@dataclass(frozen=True)
class Ordered:
    """What is ordered."""

    order: str


def put_aside(order: str) -> int:
    Movement.objects.create(order=order, what="reserve")
    reservation: int = Reservation.objects.create(order=order).pk
    return reservation


def put_back(order: str, reservation: int) -> None:
    Movement.objects.create(order=order, what="release")
    Reservation.objects.filter(pk=reservation).delete()


def give_back(run: Saga[Any], charge_id: str | Unknown) -> None:
    if charge_id is UNKNOWN:
        bank.void(f"{run.id}:charge:do:0", idempotency_key=run.idempotency_key)
    else:
        bank.refund(str(charge_id), idempotency_key=run.idempotency_key)


class KeyedOrder(Saga[Ordered], name="faults.keyed_order", version=1):
    """The bank honours keys; whatever is unknown is requested again."""

    @step(queue=queue("stock"))
    def reserve(self) -> int:
        return put_aside(self.input.order)

    @reserve.compensate(queue=queue("stock-back"))
    def release(self, reservation: int) -> None:
        put_back(self.input.order, reservation)

    @external_step(queue=queue("payments"), retry=OFTEN)
    def charge(self) -> str:
        return bank.charge(PRICE, order=self.input.order, idempotency_key=self.idempotency_key)

    @charge.compensate(queue=queue("payments-back"), retry=OFTEN)
    def refund(self, charge_id: str | Unknown) -> None:
        give_back(self, charge_id)

    @external_step(queue=queue("shipping"), retry=OFTEN, pivot=True)
    def ship(self) -> str:
        return bank.charge(POSTAGE, order=parcel(self.input.order), idempotency_key=self.idempotency_key)


class AskedOrder(Saga[Ordered], name="faults.asked_order", version=1):
    """The bank may ignore keys; whatever is unknown is asked about."""

    @step(queue=queue("stock"))
    def reserve(self) -> int:
        return put_aside(self.input.order)

    @reserve.compensate(queue=queue("stock-back"))
    def release(self, reservation: int) -> None:
        put_back(self.input.order, reservation)

    @external_step(queue=queue("payments"), retry=OFTEN)
    def charge(self) -> str:
        return bank.charge(PRICE, order=self.input.order, idempotency_key=self.idempotency_key)

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return bank.find_charge(self.idempotency_key)

    @charge.compensate(queue=queue("payments-back"), retry=OFTEN)
    def refund(self, charge_id: str | Unknown) -> None:
        give_back(self, charge_id)

    @external_step(queue=queue("shipping"), retry=OFTEN, pivot=True)
    def ship(self) -> str:
        return bank.charge(POSTAGE, order=parcel(self.input.order), idempotency_key=self.idempotency_key)

    @ship.resolve
    def find_parcel(self) -> str | NotDone:
        return bank.find_charge(self.idempotency_key)


@dataclass(frozen=True)
class Leg:
    """What is ordered, and the how manieth time it is."""

    order: str
    number: int = 0


@dataclass(frozen=True)
class Approval:
    """Somebody agrees."""

    note: str


class LongOrder(Saga[Leg], name="faults.long_order", version=1):
    """Everything that waits or chooses: a signal, a time, a condition; and the order comes again once."""

    @step(queue=queue("stock"))
    def reserve(self) -> int:
        return put_aside(self.input.order)

    @reserve.compensate(queue=queue("stock-back"))
    def release(self, reservation: int) -> None:
        put_back(self.input.order, reservation)

    approval = wait_for(Approval)
    night = sleep(0)

    @external_step(queue=queue("payments"), retry=OFTEN, when=lambda self: self.input.number == 0 or Skip("paid"))
    def charge(self) -> str:
        return bank.charge(PRICE, order=self.input.order, idempotency_key=self.idempotency_key)

    @charge.compensate(queue=queue("payments-back"), retry=OFTEN)
    def refund(self, charge_id: str) -> None:
        give_back(self, charge_id)

    @step(compensate=None, queue=queue("shipping"))
    def again(self) -> str | ContinueAs:
        Movement.objects.create(order=self.input.order, what=f"again {self.approval.result.note}")
        return ContinueAs(Leg(self.input.order, 1)) if self.input.number == 0 else "enough"


class LockedOrder(Saga[Ordered], name="faults.locked_order", version=1):
    """Holds the shelf from its first step, the till from its second, to its end. Others wait meanwhile."""

    @step(queue=queue("stock"), retry=OFTEN, lock=semantic_lock("shelf", wait=3600))
    def reserve(self) -> int:
        return put_aside(self.input.order)

    @reserve.compensate(queue=queue("stock-back"))
    def release(self, reservation: int) -> None:
        put_back(self.input.order, reservation)

    @external_step(queue=queue("payments"), retry=OFTEN, lock=semantic_lock("till", wait=3600))
    def charge(self) -> str:
        return bank.charge(PRICE, order=self.input.order, idempotency_key=self.idempotency_key)

    @charge.compensate(queue=queue("payments-back"), retry=OFTEN)
    def refund(self, charge_id: str) -> None:
        give_back(self, charge_id)

    @external_step(queue=queue("shipping"), retry=OFTEN)
    def ship(self) -> str:
        return bank.charge(POSTAGE, order=parcel(self.input.order), idempotency_key=self.idempotency_key)

    @ship.compensate(queue=queue("payments-back"), retry=OFTEN)
    def unship(self, charge_id: str | Unknown) -> None:
        give_back(self, charge_id)


class BesideOrder(Saga[Ordered], name="faults.beside_order", version=1):
    """Goods, money and insurance side by side; shipping when all three have come to their end."""

    @step(queue=queue("stock"), after=[])
    def reserve(self) -> int:
        return put_aside(self.input.order)

    @reserve.compensate(queue=queue("stock-back"))
    def release(self, reservation: int) -> None:
        put_back(self.input.order, reservation)

    @external_step(queue=queue("payments"), retry=OFTEN, after=[])
    def charge(self) -> str:
        return bank.charge(PRICE, order=self.input.order, idempotency_key=self.idempotency_key)

    @charge.compensate(queue=queue("payments-back"), retry=OFTEN)
    def refund(self, charge_id: str) -> None:
        give_back(self, charge_id)

    @external_step(queue=queue("payments"), retry=OFTEN, after=[], settle_after=2)
    def insure(self) -> str:
        return bank.charge(PRICE, order=insurance(self.input.order), idempotency_key=self.idempotency_key)

    @insure.compensate(queue=queue("payments-back"), retry=OFTEN)
    def uninsure(self, charge_id: str | Unknown) -> None:
        give_back(self, charge_id)

    @external_step(queue=queue("shipping"), retry=OFTEN, after=[reserve, charge, insure])
    def ship(self) -> str:
        return bank.charge(POSTAGE, order=parcel(self.input.order), idempotency_key=self.idempotency_key)

    @ship.compensate(queue=queue("payments-back"), retry=OFTEN)
    def unship(self, charge_id: str | Unknown) -> None:
        give_back(self, charge_id)
