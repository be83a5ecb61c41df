"""Where and how the explorer is called: kinds of tests, bounds, what it returns, and what it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import TestCase, TransactionTestCase

from sagas import COMPENSATE, ConfigurationError, NotDone, Saga, Unknown, external_step, step
from sagas.engine import SagaRun
from sagas.testing import ExplorationFailed, explore
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from tests.explore import planted
from tests.explore.bank import world
from tests.explore.right import ORDER, THRICE, Ordered, all_or_nothing
from tests.explore.test_planted import in_order
from tests.shop.models import Booking


class Booked(Saga[Ordered], name="explore.booked", version=1):
    """One local step and a pivot that is one."""

    @step
    def book(self) -> int:
        return Booking.objects.create(saga=self.key, step="book").pk

    @book.compensate
    def unbook(self, booking: int) -> None:
        Booking.objects.filter(pk=booking).delete()

    @step(pivot=True)
    def confirm(self) -> None:
        Booking.objects.create(saga=self.key, step="confirm")


class Guarded(Saga[Ordered], name="explore.guarded", version=1):
    """Two effects in one step, each guarded."""

    @external_step(retry=THRICE, on_unknown=COMPENSATE)
    def pay(self) -> str:
        payment = self.effect("charge", lambda key: world.bank.charge(self.input.price, key), returns=str)
        self.effect("mail", lambda key: world.mail(key), returns=type(None))
        return payment

    @pay.resolve
    def find(self) -> str | NotDone:
        done = [key for key in world.bank.payments if key.startswith(str(self.id))]
        return world.bank.find(done[0]) if done and world.mails else NotDone.NOT_DONE

    @pay.compensate(retry=THRICE)
    def refund(self, paid: str | Unknown) -> None:
        for payment in list(world.bank.payments.values()):
            world.bank.refund(payment.id, payment.key)


def left_behind() -> list[int]:
    """Rows of ours and of the test's."""
    return [model.objects.count() for model in (SagaRow, LogEntry, OutboxRow, Booking)]


def both_or_none(run: SagaRun) -> bool:
    """As local steps are."""
    return Booking.objects.count() == (2 if run.status == "completed" else 0)


class InTestCase(TestCase):
    """The test's own transaction."""

    def test_nothing_is_left(self) -> None:
        """A saga of the test's own is not touched."""
        mine = Booked.start(ORDER, key="mine")
        before = left_behind()
        found = explore(Booked, ORDER, invariant=both_or_none, key="order-7")
        assert len(found.stories) > 15
        assert left_behind() == before and Booked.get(key="mine").seq == mine.seq


class InTransactionTestCase(TransactionTestCase):
    """No transaction, as `django_db(transaction=True)`."""

    def test_nothing_is_left(self) -> None:
        """Not without a transaction of the test's either."""
        explore(Booked, ORDER, invariant=both_or_none)
        assert left_behind() == [0, 0, 0, 0] and not connection.in_atomic_block

    def test_stories_that_commit(self) -> None:
        """The user's own tables are for `reset`; ours are put back."""
        explore(Booked, ORDER, invariant=both_or_none, commit=True, reset=Booking.objects.all().delete)
        assert left_behind()[:3] == [0, 0, 0]


@pytest.mark.django_db
def test_guarded_effects() -> None:
    """A worker that dies between two effects is a story of its own, and none goes wrong."""
    found = explore(Guarded, ORDER, invariant=lambda run: run.status == "completed" or world.bank.kept == 0,
                    reset=world.reset)  # fmt: skip
    assert "pay: crash inside after effect" in {story.name for story in found.stories}


@pytest.mark.django_db
def test_one_story_again() -> None:
    """By its name; an unknown one is an error that lists the known ones."""
    name = "charge: cancel during + refund: error after"
    with pytest.raises(ExplorationFailed) as caught:
        explore(planted.UndoneTwice, ORDER, invariant=in_order, reset=world.reset, only=name)
    assert [story.name for story in caught.value.exploration.stories] == [name]
    with pytest.raises(ConfigurationError, match="no such story; there are: no fault; charge: error before"):
        explore(planted.UndoneTwice, ORDER, invariant=in_order, reset=world.reset, only="charge: sings")


@pytest.mark.django_db
def test_the_same_stories_each_time() -> None:
    """Nothing is left to chance."""

    def told() -> list[str]:
        found = explore(planted.KeySent, ORDER, invariant=in_order, reset=world.reset, raises=False)
        return [f"{story.name}\n{story}" for story in found.stories]

    assert told() == told()


@pytest.mark.django_db
def test_bounds() -> None:
    """What was not run is listed, and the text says so."""
    options: dict[str, Any] = {"invariant": in_order, "reset": world.reset, "raises": False}
    found = explore(planted.KeySent, ORDER, most=5, **options)
    assert len(found.stories) == 5 and found.left_out and "left out: most=5" in str(found)
    found = explore(planted.KeyIgnored, ORDER, stop_after=1, **options)
    assert len(found.failures) == 1 and found.stopped_by == "1 failed"
    assert explore(planted.KeySent, ORDER, within=0, **options).left_out == ["no fault"]


@pytest.mark.django_db
def test_a_saga_that_does_not_even_work() -> None:
    """One story is enough, and where the invariant has no message its line is shown."""

    def wrong(run: SagaRun) -> None:
        assert not Booking.objects.exists()

    found = explore(Booked, ORDER, invariant=wrong, raises=False)
    assert [story.name for story in found.stories] == ["no fault"] and found.failures
    found = explore(Booked, ORDER, invariant=lambda: "nothing is right", raises=False)
    assert "invariant failed: nothing is right" in str(found)
    assert all_or_nothing is not wrong


@pytest.mark.django_db
def test_a_world_that_nobody_puts_back() -> None:
    """What the invariant mentions is put back; where that cannot be done the user is asked."""
    world.reset()
    found = explore(planted.KeySent, ORDER, invariant=in_order)
    assert len(found.stories) > 30

    def only_one(run: SagaRun) -> None:
        assert len(hidden()) <= 1, "more than one parcel"

    def hidden() -> list[str]:
        return globals()["world"].shipped  # type: ignore[no-any-return]

    with pytest.raises(ConfigurationError, match="a reset= that puts it back"):
        explore(planted.KeySent, ORDER, invariant=only_one)
    world.reset()
