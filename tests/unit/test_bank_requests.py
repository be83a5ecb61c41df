"""What the example's bank accepts as a request, and how its script of faults is read."""

from __future__ import annotations

from decimal import Decimal

import pytest

from example_project.bank.faults import Kind, Rule, Script, When
from example_project.bank.ledger import Answer, Ledger, Memory
from example_project.bank.money import to_cents, to_text

KEEPS_KEYS = Memory(key_ttl=60)


@pytest.mark.parametrize(
    ("text", "cents"), [("0.01", 1), ("5", 500), ("1.5", 150), ("999999999999.99", 99999999999999)]
)
def test_amounts_become_cents_and_text_again(text: str, cents: int) -> None:
    """No float comes near an amount."""
    assert to_cents(text) == cents
    assert Decimal(to_text(cents)) == Decimal(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.234", "1e2", "٣", " 1", "1\n", "", None, 1, 1.5, "9" * 13])
def test_what_is_no_amount(text: object) -> None:
    """Refused with a message that shows it."""
    with pytest.raises(ValueError, match="amount"):
        to_cents(text)


def test_faults_have_usual_values() -> None:
    """A fault strikes once an order; a refusal and a standing fault always; a lost reply after the effect."""
    assert Rule.from_json({"fault": "error"}) == Rule(fault=Kind.ERROR, times=1)
    assert Rule.from_json({"fault": "refuse"}).times is None
    assert Rule.from_json({"fault": "ignore_keys"}).times is None
    assert Rule.from_json({"fault": "lose_reply"}).when is When.AFTER


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"fault": "flood"},
        {"fault": "error", "whem": "after"},
        {"fault": "error", "when": "during"},
        {"fault": "error", "on": "loan"},
        {"fault": "error", "proportion": 1.1},
        {"fault": "error", "times": 0},
        {"fault": "slow", "seconds": -1},
        {"fault": "refuse", "on": "refund"},
        {"fault": "refuse", "when": "after"},
    ],
)
def test_wrong_faults_are_refused(given: dict[str, object]) -> None:
    """A fault that would never strike as meant is an error, not a silent nothing."""
    with pytest.raises(ValueError, match=r"."):
        Rule.from_json(given)


def test_the_first_rule_with_strikes_left_strikes() -> None:
    """Rules queue up: one failure, then one slow answer, then peace; other orders are left alone."""
    script = Script()
    script.add(Rule(fault=Kind.ERROR, order="a", times=1))
    script.add(Rule(fault=Kind.SLOW, order="a", times=1))
    struck = [script.strike("charge", "a") for _ in range(3)]
    assert [rule and rule.fault for rule in struck] == [Kind.ERROR, Kind.SLOW, None]
    assert script.strike("charge", "b") is None
    assert script.strike("refund", "a") is None


def test_a_share_is_the_same_set_for_the_same_seed() -> None:
    """Which orders are struck depends on seed and order only; about the share that was asked for."""
    rule = Rule(fault=Kind.ERROR, proportion=0.25, seed=3)
    orders = [f"order-{number}" for number in range(1000)]
    chosen = {order for order in orders if rule.matches("charge", order)}
    assert chosen == {order for order in reversed(orders) if rule.matches("charge", order)}
    assert 200 < len(chosen) < 300
    assert chosen != {o for o in orders if Rule(fault=Kind.ERROR, proportion=0.25, seed=4).matches("charge", o)}


def test_effect_and_remembered_answer_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bank that fails between the two has done neither."""
    ledger = Ledger()

    def fail(*_: object) -> None:
        raise OSError("no paper")

    with monkeypatch.context() as patched:
        patched.setattr("example_project.bank.ledger._remember", fail)
        with pytest.raises(OSError, match="no paper"):
            ledger.charge(key="k", order="o", cents=100, memory=KEEPS_KEYS)
    assert ledger.find("k")["ids"] == []
    expected = Answer(status=201, body={"id": "ch_1", "order": "o", "amount": "1.00"})
    assert ledger.charge(key="k", order="o", cents=100, memory=KEEPS_KEYS) == expected
    ledger.close()


def test_a_void_key_stays_void_after_its_answer_was_forgotten() -> None:
    """A refunded charge cannot come back when its key has expired."""
    ledger = Ledger()
    ledger.charge(key="k", order="o", cents=100, memory=KEEPS_KEYS)
    ledger.refund_charge(charge_id="ch_1", key="r")
    assert ledger.charge(key="k", order="o", cents=100, memory=Memory(key_ttl=0)).status == 410
    ledger.close()
