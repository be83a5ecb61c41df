"""Functions that return what they were to do and do not do it: an `await` was forgotten, an error is not raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sagas import NOT_DONE, NotDone, Refused, Retry, Saga, external_step, step
from sagas.states import Status
from tests.shop.sagas import Ordered
from tests.shop.world import World, world
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")

ONCE = Retry(max_attempts=1)


async def asked() -> None:
    """Asks the bank for the refund, if somebody awaits it."""
    world.notes.append("asked")


def paged() -> Any:
    """Asks the bank for the refund, if somebody goes through it."""
    world.notes.append("paged")
    yield


class Careless(Saga[Ordered], name="beyond.careless", version=1):
    """Its refund returns whatever the test says."""

    @external_step
    def charge(self) -> str:
        return "c1"

    @charge.compensate(retry=ONCE)
    def refund(self, charge: str) -> None:
        return world.act("refund", self)  # type: ignore[no-any-return]

    @step(compensate=None)
    def last(self) -> None:
        raise Refused("no")


class Inquiring(Saga[Ordered], name="beyond.inquiring", version=1):
    """Its refund is in doubt, and the look-up of it returns whatever the test says."""

    @external_step
    def charge(self) -> str:
        return "c1"

    @charge.compensate(retry=ONCE)
    def refund(self, charge: str) -> None:
        world.act("refund", self)

    @refund.resolve
    def find_refund(self, charge: str) -> NotDone | None:
        return world.act("find", self)  # type: ignore[no-any-return]

    @step(compensate=None)
    def last(self) -> None:
        raise Refused("no")


@pytest.mark.parametrize(
    "returned",
    [asked, paged, lambda: Refused("it said no"), lambda: NOT_DONE],
    ids=["coroutine", "yield", "error", "not-done"],
)
def test_a_refund_that_was_never_asked_for(world: World, returned: Callable[[], Any]) -> None:
    """`return bank.arefund(...)` without `await`, a `yield`, an error returned and not raised: the money has not gone
    back, so the saga is not called compensated. It waits for a person, and says why."""
    world.always("refund", lambda run: returned())
    begin(Careless)
    drain()
    found = Careless.get(key="a")
    assert found.status is Status.PARKED
    assert "compensation of step 'charge' returned" in found.error


def test_a_refund_whose_look_up_was_never_made(world: World) -> None:
    """The refund is in doubt, and `resolve` returns a coroutine: that is no answer, and nothing counts as undone."""
    world.plan("refund", ConnectionError("no answer"))
    world.always("find", lambda run: asked())
    begin(Inquiring)
    drain()
    assert Inquiring.get(key="a").status is Status.PARKED


def test_what_the_bank_said_to_a_refund_does_no_harm(world: World) -> None:
    """`return bank.refund(...)`: whatever else a compensation returns is let pass."""
    world.always("refund", lambda run: {"ok": False})
    begin(Careless)
    drain()
    assert Careless.get(key="a").status is Status.COMPENSATED


class Awaits(Saga[Ordered], name="beyond.awaits", version=1):
    """Its condition asks, and nobody waits for the answer."""

    @external_step(compensate=None, when=lambda self: asked(), retry=ONCE)  # type: ignore
    def charge(self) -> None:
        world.act("charge", self)


def test_a_condition_that_nobody_awaited(world: World) -> None:
    """A coroutine is true, whatever its answer would have been: the step does not run because of it."""
    begin(Awaits)
    drain()
    assert world.count()["charge"] == 0
    assert "returned a coroutine that nobody ran" in Awaits.get(key="a").error
