"""What bodies do: at the bank, which shares no transaction with us, and in our own books."""

from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from example_project.bank_client import BankClient
from sagas import FOREVER, UNKNOWN, Retry, Unknown
from tests.chaos.app.models import Line

PRICE, POSTAGE, WORD = 1000, 500, 1  # cents
GOODS = 7  # cents; what is put aside is worth that in our books
OFTEN = Retry(max_attempts=FOREVER, first=0.1, factor=1.4, longest=0.8)
ANY = 1000  # begins: in this weather every step is met by many deaths that are not its fault

bank = BankClient(os.environ.get("BANK_URL", "http://127.0.0.1:1"), timeout=1.5)


@dataclass(frozen=True)
class Placed:
    """What is ordered."""

    order: str
    number: int = 0


def pay(run: Any, cents: int, what: str = "", *, key: str | None = None) -> str:
    """Pay for a part of the order at the bank."""
    amount = Decimal(cents) / 100
    return bank.charge(amount, order=run.input.order + what, idempotency_key=key or run.idempotency_key)


def give_back(run: Any, paid: str | Unknown, step: str) -> None:
    """Pay it back; what nobody knows of is made void, for when it still lands."""
    if paid is UNKNOWN:
        bank.void(f"{run.id}:{step}:do:0", idempotency_key=run.idempotency_key)
    else:
        bank.refund(str(paid), idempotency_key=run.idempotency_key)


def write(order: str, what: str, cents: int = 0) -> None:
    """One line in our books, in the transaction of the step."""
    Line.objects.create(order=order, what=what, cents=cents)


def book(order: str, **parts: int) -> None:
    """What the bank was asked to take for each part of an order, in our books."""
    for part, cents in parts.items():
        write(order if part == "whole" else f"{order}/{part}", "paid", cents)
