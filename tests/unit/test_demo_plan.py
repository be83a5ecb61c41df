"""What the demo plans: the same orders each time, and every trouble among them."""

from __future__ import annotations

import pytest

from example_project.bank.faults import Rule
from example_project.demo.plan import COMES_TO_NOTHING, FEWEST, NOWHERE, SHARES, SOLD_OUT, Trouble, make_plan

SIZES = (FEWEST, 60, 200, 1000)


def test_the_same_seed_plans_the_same_orders() -> None:
    """Whoever sees a demo fail can repeat it."""
    assert make_plan(orders=200, seed=7) == make_plan(orders=200, seed=7)
    assert make_plan(orders=200, seed=7) != make_plan(orders=200, seed=8)


@pytest.mark.parametrize("orders", SIZES)
def test_every_trouble_happens(orders: int) -> None:
    """Also in a small demo; the shares are those of all orders."""
    plan = make_plan(orders=orders, seed=3)
    assert len({order.order_id for order in plan.orders}) == orders
    assert set(plan.troubles) == set(Trouble)
    assert all(abs(plan.troubles[trouble] - share * orders) <= 1 for trouble, share in SHARES.items())
    assert plan.troubles.total() < orders * 0.6


@pytest.mark.parametrize("orders", SIZES)
def test_one_charge_is_held_while_others_are_under_way(orders: int) -> None:
    """It is neither in the part that is placed before workers run, nor the last one."""
    plan = make_plan(orders=orders, seed=3)
    assert plan.troubles[Trouble.HELD] == 1
    assert plan.held in plan.second[3:-3]
    assert len(plan.first) >= 12  # of which 10 must be in Redis when it is wiped


def test_the_bank_understands_the_script() -> None:
    """One fault for each order that is to meet one at the bank."""
    plan = make_plan(orders=200, seed=7)
    rules = [Rule.from_json(fault) for fault in plan.faults]
    assert {rule.order for rule in rules} == {str(order.order_id) for order in plan.orders if order.fault}
    assert plan.held.fault == {"fault": "hold", "order": str(plan.held.order_id)}


def test_how_sagas_must_end() -> None:
    """What cannot be paid, bought or delivered is undone; everything else arrives in spite of its trouble."""
    plan = make_plan(orders=200, seed=7)
    undone = [order for order in plan.orders if order.trouble in COMES_TO_NOTHING]
    assert plan.ends == {"compensated": len(undone), "completed": 200 - len(undone)}
    assert {order.trouble for order in undone if order.sku == SOLD_OUT} == {Trouble.SOLD_OUT}
    assert {order.trouble for order in undone if order.city == NOWHERE} == {
        Trouble.UNDELIVERABLE,
        Trouble.REFUND_FAILS,
    }


def test_too_few_orders_are_refused() -> None:
    """A demo that cannot show everything is none."""
    with pytest.raises(ValueError, match=f"at least {FEWEST}"):
        make_plan(orders=FEWEST - 1, seed=1)
