"""A bank in this process, with the manners of `example_project.bank`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from sagas import NOT_DONE, NotDone, Refused
from tests.faults.route import Bank


@dataclass(kw_only=True)
class Till:
    """Takes money and gives it back.

    Args:
        keys: whether it honours idempotency keys of charges.
        reached: told about each effect before and after it happens, by the end of its key, such as charge:do.
    """

    keys: bool = True
    reached: Callable[[Bank, str], None] = lambda point, work: None
    refused: set[str] = field(default_factory=set)  # orders
    charges: list[tuple[str, str, Decimal]] = field(default_factory=list)  # key, order, amount
    refunded: set[str] = field(default_factory=set)  # keys of charges
    asked: Counter[str] = field(default_factory=Counter)  # by work

    def charge(self, amount: Decimal, *, order: str, idempotency_key: str) -> str:
        self._arrives(idempotency_key)
        if order in self.refused:
            raise Refused("card declined")
        known = [key for key, *_ in self.charges if key == idempotency_key]
        if not (self.keys and known):
            self.charges.append((idempotency_key, order, amount))
        self.reached(Bank.AFTER_EFFECT, _work(idempotency_key))
        return idempotency_key

    def find_charge(self, idempotency_key: str) -> str | NotDone:
        known = any(key == idempotency_key for key, *_ in self.charges)
        return idempotency_key if known else NOT_DONE

    def refund(self, charge_id: str, *, idempotency_key: str) -> None:
        self._arrives(idempotency_key)
        self.refunded.add(charge_id)
        self.reached(Bank.AFTER_EFFECT, _work(idempotency_key))

    def void(self, charge_key: str, *, idempotency_key: str) -> None:
        raise AssertionError(f"{charge_key} is known to have happened, and is paid back as unknown")

    def _arrives(self, key: str) -> None:
        self.asked[_work(key)] += 1
        self.reached(Bank.BEFORE_EFFECT, _work(key))

    def balance(self) -> dict[str, Decimal]:
        """What was taken and not given back, by order."""
        balance: dict[str, Decimal] = {}
        for key, order, amount in self.charges:
            balance[order] = balance.get(order, Decimal(0)) + amount
            if key in self.refunded:
                balance[order] -= amount
        return balance


def _work(key: str) -> str:
    return key.split(":", 1)[1].removesuffix(":0")
