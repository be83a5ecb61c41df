"""The application before and after a deploy: version 1 is in both, version 2 and its step in the new code only."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sagas import NOT_DONE, NotDone, Saga, external_step, step
from tests.deploys.app import bank


@dataclass(frozen=True)
class Purchase:
    """What is bought."""

    number: int = 0


class Buy(Saga[Purchase], name="deploys.buy", version=1):
    """Pay, then have it sent."""

    @external_step(queue="payments")
    def charge(self) -> str:
        return bank.move(self.idempotency_key)

    @charge.compensate
    def refund(self, charge: str) -> None:
        bank.move(self.idempotency_key)

    @step(queue="books", compensate=None)
    def note(self) -> str:
        return f"charged {self.charge.result}"

    @external_step(queue="parcels", pivot=True)
    def ship(self) -> str:
        return bank.send(self.idempotency_key)

    @ship.resolve
    def find_parcel(self) -> str | NotDone:
        return bank.sent(self.idempotency_key) or NOT_DONE


if os.environ.get("DEPLOYS_CODE") == "new":
    from tests.deploys.app import newer  # noqa: F401
