"""Steps side by side: either may be first, one may be under way while the other ends, and both may go wrong."""

from __future__ import annotations

import pytest

from sagas.testing import explore
from tests.explore.bank import world
from tests.explore.planted import SideBySide
from tests.explore.right import ORDER
from tests.explore.test_planted import in_order

pytestmark = pytest.mark.django_db


def told(only: str) -> list[str]:
    """The moments of one story, which goes well."""
    found = explore(SideBySide, ORDER, invariant=in_order, reset=world.reset, only=only)
    (story,) = found.stories
    return [moment.text for moment in story.moments]


def test_the_second_comes_first() -> None:
    """Nothing but chance decides who begins."""
    lines = told("reserve: before what runs beside it")
    assert lines[0] == "reserve began before what runs beside it"
    assert [line.split()[0] for line in lines[1:4]] == ["reserve", "charge", "ship"]


def test_one_is_under_way_while_the_other_fails() -> None:
    """It began before the other was refused, happens after that, and is undone."""
    lines = told("charge: under way while the others run + reserve: refused")
    assert lines[0] == "charge was under way, and what runs beside it went on"
    assert lines[1].startswith("reserve refused")
    assert lines[2].startswith("charge ran and returned")
    assert any(line.startswith("refund(") for line in lines[3:])
    assert lines[-1] == "the saga ended: compensated"


def test_both_go_wrong() -> None:
    """The one that is refused turns the saga back, and what nobody can tell of the other is undone as unknown."""
    lines = told("charge: error after, every time + reserve: refused")
    assert any(line.startswith("reserve refused") for line in lines)
    assert any(line.startswith("refund(") for line in lines)
    assert lines[-1] == "the saga ended: compensated"
