"""A bank."""

from __future__ import annotations

from decimal import Decimal
from typing import Any


class Bank:
    def pay(self, amount: Decimal, key: str) -> str:
        return f"{amount} paid, {key}"


bank = Bank()


def afterwards(names: dict[str, Any]) -> None:
    """Both were paid."""
    assert names["PayClaim"].get(key="claim-1").status == "completed"
    assert names["PaySmallClaim"].get(key="claim-2").status == "completed"
