"""What the new code adds."""

from __future__ import annotations

from sagas import NOT_DONE, NotDone, Saga, external_step
from tests.deploys.app import bank
from tests.deploys.app.sagas import Purchase


class BuyInsured(Saga[Purchase], name="deploys.buy", version=2):
    """The same with one more step, in a queue that old workers serve too."""

    @external_step(queue="payments")
    def charge(self) -> str:
        return bank.move(self.idempotency_key)

    @charge.compensate
    def refund(self, charge: str) -> None:
        bank.move(self.idempotency_key)

    @external_step(queue="payments", compensate=None)
    def insure(self) -> str:
        return bank.move(self.idempotency_key)

    @external_step(queue="parcels", pivot=True)
    def ship(self) -> str:
        return bank.send(self.idempotency_key)

    @ship.resolve
    def find_parcel(self) -> str | NotDone:
        return bank.sent(self.idempotency_key) or NOT_DONE
