"""The world outside of the sagas that are explored: a bank, a shelf and a carrier, in the memory of the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from sagas import NOT_DONE, NotDone, Refused
from sagas.testing import note


@dataclass
class Payment:
    """Money that was taken."""

    id: str
    key: str
    amount: Decimal
    back: Decimal = Decimal(0)


@dataclass
class Bank:
    """Honours idempotency keys, as a good bank does."""

    payments: dict[str, Payment] = field(default_factory=dict)  # by key
    refunds: dict[str, Decimal] = field(default_factory=dict)  # by key
    void: set[str] = field(default_factory=set)  # keys under which nothing may happen any more
    paid_out: Decimal = Decimal(0)

    def charge(self, amount: Decimal, key: str) -> str:
        """Take money once for each key."""
        if key in self.void:
            raise Refused("voided")
        if key not in self.payments:
            self.payments[key] = Payment(id=f"ch_{len(self.payments) + 1}", key=key, amount=amount)
            note(f"the bank took {amount}")
        return self.payments[key].id

    def find(self, key: str) -> str | NotDone:
        """What became of a key."""
        return self.payments[key].id if key in self.payments else NOT_DONE

    def refund(self, payment: str, key: str, amount: Decimal | None = None) -> None:
        """Pay back once for each key, and never more than was taken."""
        [found] = [each for each in self.payments.values() if each.id == payment]
        if key in self.refunds or found.back == found.amount:
            return
        self.refunds[key] = found.amount if amount is None else amount
        found.back += self.refunds[key]
        note(f"the bank paid back {self.refunds[key]} of {found.amount}")

    def cancel(self, charge_key: str, key: str) -> None:
        """Pay back what was taken under a key, and take nothing under it any more."""
        self.void.add(charge_key)
        if (found := self.payments.get(charge_key)) is not None and found.back < found.amount:
            self.refund(found.id, key)

    def pay_out(self, amount: Decimal, key: str | None = None) -> None:
        """Send the customer money, once for each key; without a key each time."""
        if key is None or key not in self.refunds:
            self.refunds[key or f"transfer {len(self.refunds)}"] = amount
            self.paid_out += amount
            note(f"the bank sent the customer {amount}")

    @property
    def kept(self) -> Decimal:
        """What customers have paid and not been given back."""
        return sum((each.amount - each.back for each in self.payments.values()), Decimal(0)) - self.paid_out


class World:
    """Everything outside of the database."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As it was in the beginning: somebody else has a reservation."""
        self.bank = Bank()
        self.reserved: dict[str, str] = {"somebody else": "sku"}  # by who reserved
        self.shipped: list[str] = []
        self.mails: list[str] = []

    def reserve(self, who: str) -> str:
        """Put goods aside, once for each who."""
        self.reserved[who] = "sku"
        return who

    def mail(self, key: str) -> None:
        """Write to the customer, once for each key."""
        if key not in self.mails:
            self.mails.append(key)

    def ship(self, key: str) -> None:
        """Send a parcel, once for each key."""
        if key not in self.shipped:
            self.shipped.append(key)


world = World()
