"""A bank, and what `reconcile --json` said."""

from __future__ import annotations

import json
from typing import Any

KEY = "0199a1c4-7c1e-7b4a-9d53-1c2f5f0a7d11:charge:do:0"
FOUND = [
    {"verdict": "vanished", "direction": "do", "key": KEY, "reference": "ch_7"},
    {"verdict": "behind", "direction": "do", "key": KEY + "1", "reference": "ch_8"},
]
said_by_reconcile = json.dumps({"ok": False, "data": {"found": FOUND}})


class Bank:
    def __init__(self) -> None:
        self.refunded: list[str] = []

    def refund(self, reference: str, *, idempotency_key: str) -> str:
        self.refunded.append(reference)
        return f"re-{reference}"


bank = Bank()


def afterwards(names: dict[str, Any]) -> None:
    """Only what vanished was given back, and once."""
    names["undo_orphans"](said_by_reconcile)
    assert names["bank"].refunded == ["ch_7"]
    assert names["UndoOrphan"].get(key=KEY).status == "completed"
