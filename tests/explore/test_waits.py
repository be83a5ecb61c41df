"""Sagas that wait for a signal: it comes, or never does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from sagas import COMPENSATE, Refused, Saga, external_step, wait_for
from sagas.engine import SagaRun
from sagas.testing import explore
from tests.explore.bank import world
from tests.explore.right import ORDER, THRICE, Ordered

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Review:
    """What a person says."""

    ok: bool


class Reviewed(Saga[Ordered], name="explore.reviewed", version=1):
    """Money, a look by a person, a parcel."""

    @external_step(retry=THRICE)
    def charge(self) -> str:
        return world.bank.charge(self.input.price, self.idempotency_key)

    @charge.compensate
    def refund(self, payment: str) -> None:
        world.bank.refund(payment, self.idempotency_key)

    review = wait_for(Review, timeout=timedelta(days=2), on_timeout=COMPENSATE)

    @external_step(pivot=True, retry=THRICE)
    def ship(self) -> None:
        if not self.review.result.ok:
            raise Refused("a person said no")
        world.ship(self.idempotency_key)


class Endless(Saga[Ordered], name="explore.endless", version=1):
    """A wait without an end."""

    review = wait_for(Review)


def in_order(run: SagaRun) -> None:
    """Both or neither."""
    assert bool(world.bank.kept) == bool(world.shipped) == (run.status == "completed")


def test_a_signal_comes_or_never_does() -> None:
    """Two days pass in no time."""
    found = explore(Reviewed, ORDER, invariant=in_order, reset=world.reset, signals={"review": Review(ok=True)})
    assert found.story("no fault").run.status == "completed"  # type: ignore[union-attr]
    never = found.story("review: never comes")
    assert never.run is not None and never.run.status == "compensated"
    assert "review never came" in str(never) and "refund('ch_1') ran" in str(never)


def test_without_a_signal() -> None:
    """The wait times out; one without an end is told as what it is."""
    found = explore(Reviewed, ORDER, invariant=in_order, reset=world.reset)
    assert found.story("no fault").run.status == "compensated"  # type: ignore[union-attr]
    found = explore(Endless, ORDER, reset=world.reset, raises=False)
    assert "it waits for review for ever; give explore() what comes: signals=" in str(found)
