"""Amounts: decimal strings outside, whole cents inside."""

from __future__ import annotations

import re
from decimal import Decimal

AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,2})?")


def to_cents(text: object) -> int:
    """Cents of an amount such as "19.90".

    Raises:
        ValueError: not a decimal string above 0 with at most two places.
    """
    if not isinstance(text, str) or not AMOUNT.fullmatch(text):
        raise ValueError(f'amount {text!r}: expected a decimal string such as "19.90"')
    cents = int(Decimal(text).scaleb(2))
    if cents == 0:
        raise ValueError(f"amount {text!r}: must be above 0")
    return cents


def to_text(cents: int) -> str:
    """The amount as a decimal string with two places."""
    return str(Decimal(cents).scaleb(-2).quantize(Decimal("0.01")))
