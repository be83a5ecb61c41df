"""`async def` bodies in the testing kit and the explorer: one at a time, on the connection of the test."""

from __future__ import annotations

import asyncio
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from sagas import NOT_DONE, NotDone, Retry, Saga, external_step
from sagas.registry import registry
from sagas.testing import Kit, explore
from tests.shop import world as outside
from tests.shop.awaiting import Asked, Blocking, Effects, Mixed
from tests.shop.models import Booking
from tests.shop.world import World
from tests.support.stories import entries

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world() -> Iterator[World]:
    """The world outside, fresh."""
    outside.world.reset()
    yield outside.world
    outside.world.reset()


@pytest.fixture(params=["db", "transactional_db"])
def kit(request: pytest.FixtureRequest, world: World) -> Kit:
    """The kit inside a test's transaction, and where everything commits."""
    request.getfixturevalue(request.param)
    found: Kit = request.getfixturevalue("sagas")
    return found


def test_both_kinds_run_to_the_end(kit: Kit, world: World) -> None:
    """`run` awaits what is to be awaited; the ORM of async code sees the rows of the test."""
    assert kit.run(Mixed, Asked()).status == "completed"
    assert world.names == ["charge", "tell", "ship"]
    kit.answers(Mixed).ship.refuses("no")
    assert kit.run(Mixed, Asked()).status == "compensated"
    assert Booking.objects.count() == 2  # of the first


def test_answers_in_place_of_async_bodies(kit: Kit) -> None:
    """Answers are plain values, errors, or functions of either kind."""

    async def ships(run: Saga[Any]) -> str:
        await asyncio.sleep(0)
        return "by sea"

    told = kit.answers(Mixed)
    told.charge.times_out().returns("ch_1")
    told.charge.resolve.returns(NOT_DONE)
    told.tell.crashes().returns()
    told.ship.does(ships)
    assert kit.run(Mixed, Asked()).status == "completed"
    assert (len(told.charge.calls), len(told.charge.resolve.calls), len(told.tell.calls)) == (2, 1, 2)


def test_effects_and_progress(kit: Kit, world: World) -> None:
    """`aeffect` and `aheartbeat` write on the connection of the test; what would block in production is refused."""
    world.plan("end", ConnectionError("no reply"))
    assert kit.run(Effects, Asked()).status == "completed"
    assert [call.argument for call in world.of("begin")] == [None, {"paid": 2}]
    assert len(world.of("charge")) == 2
    run = kit.run(Blocking, Asked())
    [said] = [entry.data["result"] for entry in entries(run) if entry.kind == "step_done"]
    assert "await self.aeffect(...)" in said


def test_the_page_in_docs(kit: Kit) -> None:
    """The example of docs/async.md runs, and turns back, as it is printed there."""
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "async.md").read_text(), re.DOTALL)
    carrier = SimpleNamespace(label=AsyncMock(return_value="L-1"), find=AsyncMock(), void=AsyncMock())
    module = types.ModuleType("tests.kit.page_async")
    module.carrier = carrier  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        exec(compile(code, "docs/async.md", "exec"), vars(module))
        ship, shipment = module.Ship, module.Shipment("here")
        assert kit.run(ship, shipment).status == "completed"
        carrier.label.side_effect = [ConnectionError("no reply")]
        carrier.find.return_value = "L-2"
        kit.answers(ship).note.raises(ValueError("no"))
        assert kit.run(ship, shipment).status == "compensated"
        carrier.void.assert_awaited_once_with("L-2")
    finally:
        del sys.modules[module.__name__]
        registry._sagas.pop(("docs.ship", 1), None)


class Far:
    """A bank far away, which honours keys."""

    def __init__(self) -> None:
        self.charged: set[str] = set()

    def reset(self) -> None:
        self.charged.clear()

    async def charge(self, key: str) -> str:
        await asyncio.sleep(0)
        self.charged.add(key)
        await asyncio.sleep(0)
        return key

    async def find(self, key: str) -> str | NotDone:
        await asyncio.sleep(0)
        return key if key in self.charged else NOT_DONE


far = Far()


@dataclass(frozen=True)
class Nothing:
    """No input."""


class Careless(Saga[Nothing], name="awaiting.careless", version=1):
    """Charges under another key in each attempt."""

    @external_step(retry=Retry(max_attempts=3, first=1), compensate=None)
    async def charge(self) -> str:
        return await far.charge(f"{self.idempotency_key}/{self.attempt}")


class Careful(Saga[Nothing], name="awaiting.careful", version=1):
    """Always uses its one key."""

    @external_step(retry=Retry(max_attempts=3, first=1), compensate=None)
    async def charge(self) -> str:
        return await far.charge(self.idempotency_key)

    @charge.resolve
    async def find_charge(self) -> str | NotDone:
        return await far.find(self.idempotency_key)


def charged_once(*_: object) -> None:
    assert len(far.charged) <= 1, f"charged {far.charged}"


@pytest.mark.django_db
def test_the_explorer_finds_faults_of_async_bodies() -> None:
    """Also those that strike inside, as an awaited call returns."""
    with pytest.raises(AssertionError, match="charge"):
        explore(Careless, Nothing(), invariant=charged_once, reset=far.reset)
    names = [story.name for story in explore(Careful, Nothing(), invariant=charged_once, reset=far.reset).stories]
    assert any("outcome unknown" in name for name in names)
    assert any("Far.charge" in name for name in names), names
