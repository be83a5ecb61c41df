"""Sagas that start others, under the kit: all of them run in the test, and each is looked at by its own class."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sagas import Refused, Saga, child_saga, external_step, wait_for
from sagas.testing import Kit
from sagas_django.models import SagaRow
from tests.kit.sagas import Review


@dataclass(frozen=True)
class Parts:
    """How many."""

    many: int = 3


class Part(Saga[Parts], name="kit.part", version=1):
    """The child."""

    @external_step
    def fetch(self) -> int:
        return self.input.many

    @fetch.compensate
    def put_back(self, got: int) -> None: ...


class Whole(Saga[Parts], name="kit.whole", version=1):
    """A child, one for each item, and a last step."""

    part = child_saga(Part, input=lambda self: self.input, result=Part.fetch)

    @external_step(for_each=lambda self: range(self.part.result))
    def polish(self, item: int) -> int:
        return item * self.input.many

    @polish.compensate
    def roughen(self, item: int, polished: int) -> None: ...

    @external_step(compensate=None)
    def join(self) -> list[int]:
        return self.polish.result


class Asks(Saga[Parts], name="kit.asks", version=1):
    """A child that waits for an answer."""

    review = wait_for(Review)


class Waits(Saga[Parts], name="kit.waits_for_child", version=1, deadline=timedelta(days=3)):
    """Its parent."""

    asks = child_saga(Asks, input=lambda self: self.input)


def test_the_whole_family_runs(sagas: Kit) -> None:
    """Children too, and their answers can be given like any."""
    sagas.answers(Part).fetch.returns(2)
    run = sagas.run(Whole, Parts(5), key="a")
    sagas.assert_status(run, "completed")
    assert SagaRow.objects.filter(parent=run.id, status="completed").count() == 3


def test_what_goes_wrong_in_a_child(sagas: Kit) -> None:
    """Turns its parent back."""
    sagas.answers(Part).fetch.raises(Refused("none left"))
    run = sagas.run(Whole, Parts(), key="a")
    sagas.assert_status(run, "compensated")


def test_a_child_that_waits(sagas: Kit) -> None:
    """Neither an error nor run past its time, unless the test moves the clock."""
    run = sagas.run(Waits, Parts(), key="a")
    sagas.assert_status(run, "running")
    sagas.clock.advance(timedelta(days=3))
    sagas.drain()
    sagas.assert_status(run, "compensated")
