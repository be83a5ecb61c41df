"""Semantic locks, and steps side by side: a process dies at every point, in this process, one life after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.faults.app.sagas import BesideOrder, LockedOrder
from tests.faults.numbered_lives import BesideLives, LockLives, NumberedLives
from tests.faults.route import Route
from tests.faults.sampling import sampled

New = Callable[..., NumberedLives]
KINDS = {"locks": (LockLives, LockedOrder), "beside": (BesideLives, BesideOrder)}
MOST = {  # places that lives come by: what is refused, embedded, relayed; who waits may look once more, or less
    ("locks", "", False): 42, ("locks", "", True): 61,
    ("locks", "parcel", False): 62, ("locks", "parcel", True): 102,
    ("beside", "", False): 24, ("beside", "", True): 32,
    ("beside", "parcel", False): 41, ("beside", "parcel", True): 60,
    ("beside", "insurance", False): 20, ("beside", "insurance", True): 28,
}  # fmt: skip
SINGLES = [(*case, number) for case, most in MOST.items() for number in range(1, most + 1)]
PAIRS = [
    (*case, first, second)
    for case, most in MOST.items()
    for first in range(1, most + 1, 4)
    for second in range(1 + first % 11, most + 1, 11)
]


@pytest.fixture
def new(ground: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[New]:
    """Starts sagas in this process; afterwards the database is empty again."""
    with ExitStack() as stack:

        def make(kind: str, refuses: str, relayed: bool, **options: Any) -> NumberedLives:
            of, saga = KINDS[kind]
            lives = of(url=ground, route=Route(saga=saga, back=False, relayed=relayed), refuses=refuses, **options)
            stack.callback(lives.disconnect)
            stack.callback(lives.empty)
            monkeypatch.setattr("tests.faults.app.sagas.bank", lives.till)
            lives.start()
            return lives

        yield make


@pytest.mark.parametrize(("kind", "refuses", "relayed"), MOST)
def test_nobody_dies(kind: str, refuses: str, relayed: bool, new: New) -> None:
    """All is done, or undone; and the places are about as many as the cases below suppose."""
    come_by: list[object] = []
    lives = new(kind, refuses, relayed, at=come_by.append)
    lives.end()
    lives.check()
    assert 0.7 < len(come_by) / MOST[kind, refuses, relayed] < 1.5, (len(come_by), [str(place) for place in come_by])


@pytest.mark.parametrize(
    ("kind", "refuses", "relayed", "number"), sampled("test_single_numbered", "numbered singles", SINGLES, 18)
)
def test_single_numbered(kind: str, refuses: str, relayed: bool, number: int, new: New) -> None:
    """A process dies at any point while others wait for its lock, or beside its other step: all is done once, no body
    runs without its lock, and no lock outlives its saga."""
    lives = new(kind, refuses, relayed)
    lives.dies_at(number)
    lives.end()
    lives.check()


@pytest.mark.parametrize(
    ("kind", "refuses", "relayed", "first", "second"), sampled("test_pair_numbered", "numbered pairs", PAIRS, 6)
)
def test_pair_numbered(kind: str, refuses: str, relayed: bool, first: int, second: int, new: New) -> None:
    """A process dies anywhere, and so does the one that takes over, unless it has ended before."""
    lives = new(kind, refuses, relayed)
    lives.dies_at(first)
    lives.dies_at(second)
    lives.end()
    lives.check()
