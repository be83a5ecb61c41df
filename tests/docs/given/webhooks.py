"""A bank, and its webhook, called twice and too early."""

from __future__ import annotations

import json
from typing import Any

from django.db import transaction
from django.test import RequestFactory

from tests.support.stories import drain


class Bank:
    def request(self, cents: int, key: str) -> str:
        return f"payment-{key}"

    def withdraw(self, payment: str) -> None: ...

    def signed(self, request: Any) -> bool:
        return True


bank = Bank()


def afterwards(names: dict[str, Any]) -> None:
    """The webhook was faster than the order, and came twice."""
    event = {"id": "evt_1", "order": 7, "ok": True, "reference": "r1"}
    request = RequestFactory().post("/bank", json.dumps(event), content_type="application/json")
    assert [names["bank_webhook"](request).status_code for _ in range(2)] == [200, 200]
    with transaction.atomic():
        names["Pay"].start(names["Ordered"](7, 100), key="order-7")
    drain()
    assert names["Pay"].get(key="order-7").status == "completed"
