"""The script of faults: which order is struck by what, and how often.

A rule names one order, or a seeded share of all orders, or (with neither) every order. The share is drawn from a hash
of seed and order, so the same orders are struck whatever order they arrive in. The first rule of the script that
matches and still has strikes left for that order is the one that strikes.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What can go wrong."""

    REFUSE = "refuse"  # 402, and remembered as the key's answer
    ERROR = "error"  # 500
    SLOW = "slow"  # the answer comes `seconds` late
    HANG = "hang"  # no answer at all; the connection ends after the bank's longest wait
    LOSE_REPLY = "lose_reply"  # the connection is closed in place of an answer
    HOLD = "hold"  # stays in flight until it is released
    FORGET_KEYS = "forget_keys"  # keys are honoured for `seconds` only
    IGNORE_KEYS = "ignore_keys"
    IGNORE_TOMBSTONES = "ignore_tombstones"


STANDING = frozenset({Kind.FORGET_KEYS, Kind.IGNORE_KEYS, Kind.IGNORE_TOMBSTONES})
EVERY_TIME = STANDING | {Kind.REFUSE}


class When(StrEnum):
    """On which side of the effect a fault strikes."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One line of the script.

    Raises:
        ValueError: a value is out of range; the message names it.
    """

    fault: Kind
    on: str = "charge"  # or "refund"
    order: str | None = None  # None: any order
    proportion: float = 1.0  # share of the orders that is struck
    seed: int = 0
    when: When = When.BEFORE
    seconds: float = 0.0  # for slow and forget_keys
    times: int | None = None  # strikes per order; None: always

    def __post_init__(self) -> None:
        if self.on not in ("charge", "refund"):
            raise ValueError(f'on={self.on!r}: "charge" or "refund"')
        if not 0 <= self.proportion <= 1:
            raise ValueError(f"proportion={self.proportion!r}: from 0 to 1")
        if not 0 <= self.seconds < 86_400:
            raise ValueError(f"seconds={self.seconds!r}: from 0 to a day")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times!r}: at least 1, or null for always")
        if self.fault is Kind.REFUSE and (self.on, self.when) != ("charge", When.BEFORE):
            raise ValueError("refuse: only for a charge, and only before the effect")

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Rule:
        """A rule from a request; what is left out gets the fault's usual value.

        Raises:
            ValueError: an unknown fault, an unknown field, or a value out of range.
            TypeError: a value of the wrong type.
        """
        if unknown := given.keys() - {field.name for field in fields(cls)}:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        kind = Kind(given.get("fault", ""))
        usual: dict[str, Any] = {"times": None if kind in EVERY_TIME else 1}
        if kind is Kind.LOSE_REPLY:
            usual["when"] = When.AFTER
        values = usual | dict(given) | {"fault": kind}
        return cls(**values | {"when": When(values.get("when", When.BEFORE))})

    def matches(self, on: str, order: str) -> bool:
        """Whether this rule is about such a request for such an order."""
        return self.on == on and self.order in (None, order) and self._draw(order) < self.proportion

    def _draw(self, order: str) -> float:
        digest = hashlib.sha256(f"{self.seed}:{order}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


class Script:
    """The rules in force and how often each has struck."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._strikes: list[Counter[str]] = []

    def add(self, rule: Rule) -> int:
        """Append a rule; returns its number."""
        with self._lock:
            self._rules.append(rule)
            self._strikes.append(Counter())
            return len(self._rules) - 1

    def clear(self) -> None:
        """Behave from now on."""
        with self._lock:
            self._rules.clear()
            self._strikes.clear()

    def strike(self, on: str, order: str) -> Rule | None:
        """The fault that this request is to suffer; counted as a strike."""
        with self._lock:
            for rule, strikes in zip(self._rules, self._strikes, strict=True):
                has_left = rule.times is None or strikes[order] < rule.times
                if rule.fault not in STANDING and has_left and rule.matches(on, order):
                    strikes[order] += 1
                    return rule
        return None

    def standing(self, kind: Kind, order: str) -> Rule | None:
        """The first standing rule of that kind for charges of an order."""
        with self._lock:
            return next((rule for rule in self._rules if rule.fault is kind and rule.matches("charge", order)), None)

    def report(self) -> list[dict[str, Any]]:
        """Each rule with the number of strikes and the orders it struck."""
        with self._lock:
            return [
                {field.name: getattr(rule, field.name) for field in fields(rule)}
                | {"id": number, "strikes": strikes.total(), "orders": sorted(strikes)}
                for number, (rule, strikes) in enumerate(zip(self._rules, self._strikes, strict=True))
            ]
