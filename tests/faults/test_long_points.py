"""A saga that waits, sleeps, chooses and goes on as another run: a process dies at every point, signals come at any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.faults.app.sagas import KeyedOrder
from tests.faults.long_lives import LongLives
from tests.faults.route import Route
from tests.faults.sampling import sampled

NewLong = Callable[..., LongLives]
MOST = {False: 50, True: 79}  # places that a life comes by, embedded and relayed; a few more or less on a busy machine
AT = {relayed: range(1, most + 1) for relayed, most in MOST.items()}
SINGLES = [(relayed, place) for relayed, places in AT.items() for place in places]
PAIRS = [  # some; there are ten times as many
    (relayed, first, second) for relayed, first in SINGLES[::2] for second in AT[relayed][first % 7 :: 7]
]  # fmt: skip


@pytest.fixture
def new_long(ground: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewLong]:
    """Starts a saga in this process; afterwards the database is empty again."""
    with ExitStack() as stack:

        def make(relayed: bool, **options: Any) -> LongLives:
            route = Route(saga=KeyedOrder, back=False, relayed=relayed)
            lives = LongLives(url=ground, route=route, **options)
            stack.callback(lives.disconnect)
            stack.callback(lives.empty)
            monkeypatch.setattr("tests.faults.app.sagas.bank", lives.till)
            lives.start()
            return lives

        yield make


@pytest.mark.parametrize("relayed", MOST)
def test_nobody_dies(relayed: bool, new_long: NewLong) -> None:
    """Two runs, each with its own signal; and the places are about as many as the cases below suppose."""
    lives = new_long(relayed)
    lives.live()
    lives.check()
    assert abs(len(lives.trace) - MOST[relayed]) <= 5, [str(place) for place in lives.trace]


@pytest.mark.parametrize(("relayed", "number"), sampled("test_single_long", "long singles", SINGLES, 24))
def test_single_long(relayed: bool, number: int, new_long: NewLong) -> None:
    """A process dies at any point of a wait, a sleep, a condition or the start of the next run: all is done once."""
    lives = new_long(relayed)
    assert lives.dies_at(number) or number > MOST[relayed] - 5
    lives.end()
    lives.check()


@pytest.mark.parametrize(("relayed", "first", "second"), sampled("test_pair_long", "long pairs", PAIRS, 12))
def test_pair_long(relayed: bool, first: int, second: int, new_long: NewLong) -> None:
    """A process dies anywhere, and so does the one that takes over, unless it has ended before."""
    lives = new_long(relayed)
    lives.dies_at(first)
    lives.dies_at(second)
    lives.end()
    lives.check()


@pytest.mark.parametrize(("relayed", "first", "second"), sampled("test_signals_long", "signals", PAIRS, 16))
def test_signals_long(relayed: bool, first: int, second: int, new_long: NewLong) -> None:
    """Two signals come at any two moments of a life, while others hold rows, and a process dies after the second."""
    lives = new_long(relayed, sends_at=sorted((first, second)))
    lives.dies_at(second + 1)
    lives.end()
    lives.check()


@pytest.mark.parametrize("number", AT[True][::11])
def test_the_broker_forgets_everything(number: int, new_long: NewLong) -> None:
    """Redis is wiped at any point: signals, waits, sleeps and the next run are rows, and come again."""
    lives = new_long(True, sends_at=(0, number), wiped_at=number)
    lives.end()
    lives.check()
