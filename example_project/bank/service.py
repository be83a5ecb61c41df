"""What one request goes through: arrive, suffer faults, take effect, suffer faults, answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from example_project.bank.faults import Kind, Rule, Script, When
from example_project.bank.inflight import Arrival, InFlight
from example_project.bank.ledger import Answer, Ledger, Memory
from example_project.bank.money import to_cents, to_text


class LostReply(Exception):
    """The connection is to be closed without an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who asks, from the request's headers."""

    key: str  # Idempotency-Key
    client: str  # X-Client


class Bank:
    """The bank behind its HTTP face.

    Args:
        ledger: its store.
        key_ttl: seconds for which it honours idempotency keys.
        longest_wait: seconds after which a hang, a hold or a slow answer ends by itself.
    """

    def __init__(self, ledger: Ledger, *, key_ttl: float, longest_wait: float) -> None:
        self.script = Script()
        self.in_flight = InFlight(longest_wait=longest_wait)
        self._ledger = ledger
        self._key_ttl = key_ttl

    def charge(self, caller: Caller, *, amount: object, order: str) -> Answer:
        """Take `amount` for an order.

        Raises:
            ValueError: no such amount.
            LostReply: a fault says so.
        """
        cents = to_cents(amount)
        memory = self._memory(order)
        self._ledger.sight(caller.key, "charge")
        with self.in_flight.arrive(kind="charge", order=order, key=caller.key, client=caller.client) as arrival:
            rule = self.script.strike("charge", order)
            if rule is not None and rule.fault is Kind.REFUSE:
                return self._ledger.refuse(key=caller.key, order=order, cents=cents, memory=memory)
            return self._process(
                arrival, rule, lambda: self._ledger.charge(key=caller.key, order=order, cents=cents, memory=memory)
            )

    def refund(self, caller: Caller, *, charge_id: str | None, charge_key: str | None) -> Answer:
        """Pay back one charge, or all that was and will be charged under a key.

        Raises:
            LostReply: a fault says so.
        """
        order = self._order_of(charge_id, charge_key)
        self._ledger.sight(caller.key, "refund")
        with self.in_flight.arrive(kind="refund", order=order, key=caller.key, client=caller.client) as arrival:
            rule = self.script.strike("refund", order)
            if charge_id is not None:
                found = charge_id
                return self._process(arrival, rule, lambda: self._ledger.refund_charge(charge_id=found, key=caller.key))
            assert charge_key is not None
            return self._process(arrival, rule, lambda: self._ledger.refund_key(charge_key=charge_key, key=caller.key))

    def find(self, key: str) -> dict[str, Any]:
        """What became of a charge: `done`, `in_flight` or `absent`."""
        # First the register, then the ledger: the other way round a charge that lands in between is seen in neither.
        may_still_land = self.in_flight.has_charge(key)
        found = self._ledger.find(key)
        state = "done" if found["ids"] else "in_flight" if may_still_land else "absent"
        return {"key": key, "state": state, "id": next(iter(found["ids"]), None), **found}

    def statement(self) -> dict[str, Any]:
        """Balances, entries, keys and duplicates, all of one moment, and what is in flight."""
        entries, sightings, void_keys = self._ledger.snapshot()
        charges = Counter(row["order_ref"] for row in entries if row["kind"] == "charge")
        net: Counter[str] = Counter()
        for row in entries:
            net[row["order_ref"]] += row["cents"] if row["kind"] == "charge" else -row["cents"]
        return {
            "balances": {"shop": to_text(net.total()), "customers": to_text(-net.total())},
            "orders": {order: to_text(cents) for order, cents in sorted(net.items())},
            "entries": [_entry(row) for row in entries],
            "keys": {row["key"]: {"kind": row["kind"], "seen": row["times"]} for row in sightings},
            "void_keys": void_keys,
            "duplicate_charges": {order: times for order, times in sorted(charges.items()) if times > 1},
            "in_flight": self.in_flight.report(),
        }

    def behave(self) -> None:
        """Drop the script and release whatever waits."""
        self.script.clear()
        self.in_flight.release()

    def _process(self, arrival: Arrival, rule: Rule | None, effect: Callable[[], Answer]) -> Answer:
        trouble = self._suffer(arrival, rule, When.BEFORE)
        if trouble is not None:
            return trouble
        answer = effect()
        arrival.landed = True
        return self._suffer(arrival, rule, When.AFTER) or answer

    def _suffer(self, arrival: Arrival, rule: Rule | None, when: When) -> Answer | None:
        """Do what the fault does on this side of the effect; returns the answer it gives in place of the real one."""
        if rule is None or rule.when is not when:
            return None
        match rule.fault:
            case Kind.ERROR:
                return Answer(status=500, body={"error": "the bank is having a bad day"})
            case Kind.SLOW:
                self.in_flight.wait(arrival, rule.fault, rule.seconds)
            case Kind.HOLD:
                self.in_flight.wait(arrival, rule.fault)
            case Kind.HANG:
                self.in_flight.wait(arrival, rule.fault)
                raise LostReply
            case Kind.LOSE_REPLY:
                raise LostReply
        return None

    def _memory(self, order: str) -> Memory:
        forget = self.script.standing(Kind.FORGET_KEYS, order)
        ignore = self.script.standing(Kind.IGNORE_KEYS, order)
        key_ttl = 0.0 if ignore else min(self._key_ttl, forget.seconds) if forget else self._key_ttl
        return Memory(key_ttl=key_ttl, tombstones=self.script.standing(Kind.IGNORE_TOMBSTONES, order) is None)

    def _order_of(self, charge_id: str | None, charge_key: str | None) -> str:
        if charge_id is None and charge_key is not None:
            charge_id = next(iter(self._ledger.find(charge_key)["ids"]), None)
        return (charge_id and self._ledger.order_of_charge(charge_id)) or ""


def _entry(row: Any) -> dict[str, Any]:
    prefix = "ch" if row["kind"] == "charge" else "re"
    return {
        "id": f"{prefix}_{row['id']}",
        "kind": row["kind"],
        "order": row["order_ref"],
        "key": row["key"],
        "amount": to_text(row["cents"]),
        "refunds": row["refunds"] and f"ch_{row['refunds']}",
    }
