"""Sagas that go on as another run of themselves, and two versions of one."""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from sagas import ContinueAs, Saga, external_step, step, wait_for
from tests.shop.sagas import THRICE, Ordered
from tests.shop.waiting import Review
from tests.shop.world import world


class Poll(Saga[Ordered], name="test.poll", version=1):
    """Looks once a run, until it has looked often enough."""

    @external_step(retry=THRICE, compensate=None)
    def look(self) -> str:
        return world.act("look", self, self.input.number)

    @step(compensate=None)
    def again(self) -> str | ContinueAs:
        return "enough" if self.input.number >= 3 else ContinueAs(Ordered(self.input.number + 1))


class Subscription(Saga[Ordered], name="test.subscription", version=1):
    """Takes one signal a run."""

    renewal = wait_for(Review)

    @external_step(retry=THRICE, compensate=None)
    def again(self) -> ContinueAs:
        world.act("renewed", self, self.renewal.result.note)
        return ContinueAs(Ordered(self.input.number + 1))
