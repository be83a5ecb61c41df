"""What a body is told about the steps of its saga."""

from __future__ import annotations

from typing import Any

import pytest

from sagas import Refused
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")


def test_a_compensation_knows_the_key_of_its_step(world: World) -> None:
    """It has a key of its own, and can name to the other side the key of what it undoes."""
    keys: dict[str, tuple[str, str]] = {}

    def note(name: str) -> Any:
        def body(run: Any) -> str:
            keys[name] = (run.idempotency_key, run.charge.idempotency_key)
            return name

        return body

    world.plan("charge", note("charge"))
    world.plan("refund", note("refund"))
    world.plan("confirm", Refused("no"))
    begin(Trip)
    drain()
    own, of_the_step = keys["refund"]
    assert keys["charge"] == (of_the_step, of_the_step)
    assert own != of_the_step
