"""A saga with a child and one for each of three letters: a process dies at every point, forward and on the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.faults.app.sagas import KeyedOrder
from tests.faults.family_lives import FamilyLives
from tests.faults.route import Route
from tests.faults.sampling import sampled

NewFamily = Callable[..., FamilyLives]
MOST = {(False, False): 58, (False, True): 85, (True, False): 77, (True, True): 132}  # places by (relayed, back)
SINGLES = [(relayed, back, number) for (relayed, back), most in MOST.items() for number in range(1, most + 1)]
PAIRS = [
    (relayed, back, first, second)
    for relayed, back, first in SINGLES[::3]
    for second in range(1 + first % 9, MOST[relayed, back] + 1, 9)
]
ROOM = 12  # on a busy machine rows are begun together or apart


@pytest.fixture
def new_family(ground: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewFamily]:
    """Starts a saga in this process; afterwards the database is empty again."""
    with ExitStack() as stack:

        def make(relayed: bool, back: bool) -> FamilyLives:
            route = Route(saga=KeyedOrder, back=False, relayed=relayed)
            lives = FamilyLives(url=ground, route=route, back=back)
            stack.callback(lives.disconnect)
            stack.callback(lives.empty)
            monkeypatch.setattr("tests.faults.app.sagas.bank", lives.till)
            lives.start()
            return lives

        yield make


@pytest.mark.parametrize(("relayed", "back"), MOST)
def test_nobody_dies(relayed: bool, back: bool, new_family: NewFamily) -> None:
    """All of it happens once; and the places are about as many as the cases below suppose."""
    lives = new_family(relayed, back)
    lives.live()
    lives.check()
    assert abs(len(lives.trace) - MOST[relayed, back]) <= ROOM, len(lives.trace)


@pytest.mark.parametrize(("relayed", "back", "number"), sampled("test_single_family", "family singles", SINGLES, 24))
def test_single_family(relayed: bool, back: bool, number: int, new_family: NewFamily) -> None:
    """A process dies at any point of a parent or its children: no end is lost, and nothing is started twice."""
    lives = new_family(relayed, back)
    lives.dies_at(number)
    lives.end()
    lives.check()


@pytest.mark.parametrize(("relayed", "back", "first", "second"), sampled("test_pair_family", "family pairs", PAIRS, 6))
def test_pair_family(relayed: bool, back: bool, first: int, second: int, new_family: NewFamily) -> None:
    """A process dies anywhere, and so does the one that takes over, unless it has ended before."""
    lives = new_family(relayed, back)
    lives.dies_at(first)
    lives.dies_at(second)
    lives.end()
    lives.check()
