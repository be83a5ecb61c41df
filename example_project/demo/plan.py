"""Which orders are placed, what is in store for each, and how it must end: the same for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

CATALOGUE = {
    "tea": "4.35",
    "coffee": "7.80",
    "kettle": "39.99",
    "cup": "12.05",
    "pot": "24.50",
    "honey": "6.66",
    "mill": "89.90",
    "tray": "18.01",
}
SOLD_OUT = "unicorn"
CITIES = ("Utrecht", "Lyon", "Porto", "Graz")
NOWHERE = "Atlantis"  # the shop finds no carrier, after it took the money
FEWEST = 50  # orders with which every trouble happens and each blow finds enough to hit


class Trouble(StrEnum):
    """What may be in store for an order."""

    REFUSED = "a refused card"
    FAILS_BEFORE = "500, nothing charged"
    FAILS_AFTER = "500, charged nonetheless"
    SLOW = "a slow answer"
    LATE = "an answer after the shop's patience"
    LOST_REPLY = "a lost reply"
    HELD = "the death of the worker that charged"
    SOLD_OUT = "an empty shelf"
    UNDELIVERABLE = "no carrier, after it was paid"
    REFUND_FAILS = "no carrier, and 500 to the refund"


SHARES = {  # of all orders
    Trouble.REFUSED: 0.08,
    Trouble.FAILS_BEFORE: 0.07,
    Trouble.FAILS_AFTER: 0.05,
    Trouble.SLOW: 0.06,
    Trouble.LATE: 0.01,
    Trouble.LOST_REPLY: 0.06,
    Trouble.SOLD_OUT: 0.03,
    Trouble.UNDELIVERABLE: 0.03,
    Trouble.REFUND_FAILS: 0.02,
}
BANK: dict[Trouble, dict[str, Any]] = {  # what the bank does to it
    Trouble.REFUSED: {"fault": "refuse"},
    Trouble.FAILS_BEFORE: {"fault": "error", "when": "before"},
    Trouble.FAILS_AFTER: {"fault": "error", "when": "after"},
    Trouble.SLOW: {"fault": "slow", "seconds": 0.5},
    Trouble.LATE: {"fault": "slow", "seconds": 5.0},
    Trouble.LOST_REPLY: {"fault": "lose_reply"},
    Trouble.HELD: {"fault": "hold"},
    Trouble.REFUND_FAILS: {"fault": "error", "when": "after", "on": "refund"},
}
UNDELIVERABLE = frozenset({Trouble.UNDELIVERABLE, Trouble.REFUND_FAILS})
COMES_TO_NOTHING = UNDELIVERABLE | {Trouble.REFUSED, Trouble.SOLD_OUT}


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedOrder:
    """One order to place."""

    order_id: UUID
    sku: str
    quantity: int
    city: str
    trouble: Trouble | None = None

    @property
    def fault(self) -> dict[str, Any] | None:
        """What the bank is told to do to this order."""
        fault = BANK.get(self.trouble) if self.trouble else None
        return fault and fault | {"order": str(self.order_id)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All orders, in two parts: the second has the one whose charge is held."""

    first: tuple[PlannedOrder, ...]
    second: tuple[PlannedOrder, ...]

    @property
    def orders(self) -> tuple[PlannedOrder, ...]:
        """Every order in the order of placing."""
        return self.first + self.second

    @property
    def held(self) -> PlannedOrder:
        """The order whose worker is to be killed."""
        return next(order for order in self.second if order.trouble is Trouble.HELD)

    @property
    def faults(self) -> list[dict[str, Any]]:
        """The bank's script."""
        return [order.fault for order in self.orders if order.fault is not None]

    @property
    def troubles(self) -> Counter[Trouble]:
        """How many orders meet which trouble."""
        return Counter(order.trouble for order in self.orders if order.trouble)

    @property
    def ends(self) -> dict[str, int]:
        """How many sagas must end in which state."""
        undone = sum(order.trouble in COMES_TO_NOTHING for order in self.orders)
        return {"compensated": undone, "completed": len(self.orders) - undone}


def make_plan(*, orders: int, seed: int) -> Plan:
    """Plan some orders.

    Args:
        orders: how many in all; at least `FEWEST`.
        seed: the same seed plans the same orders.

    Raises:
        ValueError: too few orders.
    """
    if orders < FEWEST:
        raise ValueError(f"{orders} orders are too few to show anything; at least {FEWEST}")
    rng = random.Random(seed)
    troubles: list[Trouble | None] = [
        trouble for trouble, share in SHARES.items() for _ in range(max(1, round(share * orders)))
    ]
    troubles += [None] * (orders - 1 - len(troubles))
    rng.shuffle(troubles)
    first = orders * 3 // 10
    troubles.insert(first + 5, Trouble.HELD)  # a few places into the second part: other charges are under way beside it
    planned = tuple(_plan_one(rng, trouble) for trouble in troubles)
    return Plan(first=planned[:first], second=planned[first:])


def _plan_one(rng: random.Random, trouble: Trouble | None) -> PlannedOrder:
    return PlannedOrder(
        order_id=UUID(int=rng.getrandbits(128), version=4),
        sku=SOLD_OUT if trouble is Trouble.SOLD_OUT else rng.choice(list(CATALOGUE)),
        quantity=rng.randint(1, 4),
        city=NOWHERE if trouble in UNDELIVERABLE else rng.choice(CITIES),
        trouble=trouble,
    )
