"""A saga that bears everything is told to bear everything."""

from __future__ import annotations

import pytest

from sagas.testing import explore
from tests.explore.bank import world
from tests.explore.right import ORDER, Right, all_or_nothing


@pytest.mark.django_db
def test_nothing_wrong() -> None:
    """Every fault at every place, and nothing to report."""
    found = explore(Right, ORDER, invariant=all_or_nothing, reset=world.reset)
    names = [story.name for story in found.stories]
    assert len(names) > 100 and len(set(names)) == len(names) and not found.left_out
    assert {
        "no fault",
        "book: crash after",
        "reserve: late, as it is being undone",
        "charge: outcome unknown",
        "charge: delivered twice",
        "charge: error before + find_charge: cannot say, every time",
        "charge: cancel during + refund: error after",
        "charge: outcome unknown + refund (last look): crash after",
        "ship: refused",
        "confirm: error before, every time",
    } <= set(names)
