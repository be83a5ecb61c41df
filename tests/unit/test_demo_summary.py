"""The demo's verdict: each promise is a line, and a single broken one fails the demo."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from example_project.demo.blows import Blow
from example_project.demo.plan import COMES_TO_NOTHING, FEWEST, make_plan
from example_project.demo.summary import Books, Line, all_kept, render, summarize

PLAN = make_plan(orders=FEWEST, seed=1)
PAID = {str(order.order_id): Decimal("10.00") for order in PLAN.orders if order.trouble not in COMES_TO_NOTHING}
TOTAL = sum(PAID.values(), Decimal(0))
RELAY = Blow(name="the relay was killed", detail="2 rows", sagas=frozenset({uuid4(), uuid4()}))


def ledger(**changes: Any) -> dict[str, Any]:
    """A bank's statement that agrees with `PAID`."""
    return {
        "balances": {"shop": str(TOTAL), "customers": str(-TOTAL)},
        "orders": {order: str(amount) for order, amount in PAID.items()} | {"undone": "0.00"},
        "entries": [{"kind": "charge"}, {"kind": "refund"}],
        "keys": {"a": {"kind": "charge", "seen": 2}, "b": {"kind": "charge", "seen": 1}},
        "duplicate_charges": {},
        **changes,
    }


def facts(**changes: Any) -> dict[str, Any]:
    """Everything as promised, but for the changes."""
    struck = [str(order.order_id) for order in PLAN.orders if order.fault]
    return {
        "plan": PLAN,
        "seconds": 10.0,
        "states": dict(PLAN.ends),
        "parked": 0,
        "verified": f"some warning\n{FEWEST} sagas verified, 0 problems\n",
        "faults": [{"orders": [order]} for order in struck],
        "ledger": ledger(),
        "books": Books(paid=PAID, open_orders=0, goods_add_up=True),
        "recovered": [(RELAY, 2)],
        "shortened": ["SAGAS['LEASE'] = 3.0 s (shop: 30.0 s)"],
        **changes,
    }


def broken(lines: list[Line]) -> list[str]:
    """Labels of the promises that were not kept."""
    return [line.label for line in lines if line.kept is False]


def test_all_promises_kept() -> None:
    """Nothing is marked, and the numbers that were promised are there."""
    lines = summarize(**facts())
    assert broken(lines) == []
    assert all_kept(lines)
    text = render(lines)
    assert f"{FEWEST}, ended as planned: yes" in text
    assert f"{FEWEST / 10:.1f} sagas/s" in text
    assert f"yes (shop {TOTAL}, bank {TOTAL})" in text
    assert "2 of 2 deliveries (2 rows)" in text
    assert "SAGAS['LEASE'] = 3.0 s (shop: 30.0 s)" in text
    assert "NO" not in text


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"states": PLAN.ends | {"completed": 1}}, "sagas"),
        ({"states": PLAN.ends | {"aborted": 1}}, "sagas"),
        ({"parked": 1}, "parked"),
        ({"ledger": ledger(duplicate_charges={"x": 2})}, "duplicate charges"),
        ({"ledger": ledger(keys={"b": {"kind": "charge", "seen": 1}})}, "repeated keys the bank saw"),
        ({"ledger": ledger(entries=[])}, "charges paid back"),
        ({"ledger": ledger(balances={"shop": str(TOTAL + Decimal("0.01"))})}, "shop and bank ledger equal to the cent"),
        ({"ledger": ledger(orders={})}, "shop and bank ledger equal to the cent"),
        ({"books": Books(paid=PAID, open_orders=0, goods_add_up=False)}, "stock adds up"),
        ({"books": Books(paid=PAID, open_orders=1, goods_add_up=True)}, "orders left open"),
        ({"verified": "1 problems, listed above"}, "saga logs"),
        ({"recovered": [(RELAY, 1)]}, "recovered after the relay was killed"),
        (
            {"recovered": [(Blow(name="the relay was killed", detail="", sagas=frozenset()), 0)]},
            "recovered after the relay was killed",
        ),
    ],
)
def test_one_broken_promise_fails_the_demo(changes: dict[str, Any], label: str) -> None:
    """Whichever it is, it is marked."""
    lines = summarize(**facts(**changes))
    assert broken(lines) == [label]
    assert not all_kept(lines)
    assert f"  NO  {label}" in render(lines)


def test_a_planned_trouble_that_did_not_happen_fails_the_demo() -> None:
    """The bank says whom it struck."""
    spared = next(order for order in PLAN.orders if order.fault)
    struck = [str(order.order_id) for order in PLAN.orders if order.fault and order is not spared]
    lines = summarize(**facts(faults=[{"orders": struck}]))
    assert broken(lines) == [f"met {spared.trouble}"]
