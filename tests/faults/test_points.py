"""Every place and every pair of places where a process may die, in this process; see `lives.py` and `route.py`.

The sample that runs by default is drawn by `SAGAS_SEED`, which the summary names; `make faults` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from sagas.points import Point
from tests.faults.lives import Lives
from tests.faults.route import Known, Place, Route, routes
from tests.faults.sampling import sampled

SINGLES = [(route, place, known) for route in routes() for place, known in route.walk(Known())]
PAIRS = [
    (route, first, second, known) for route, first, between in SINGLES for second, known in route.walk(between)
]  # fmt: skip


def case_id(value: object) -> str:
    """The part of a test's id that a parameter makes."""
    return "." if isinstance(value, Known) else str(value)


def check(lives: Lives, known: Known) -> None:
    """The log is exactly as known, every effect is at the bank once or undone, and nothing is left over."""
    view = lives.view()
    assert view.log == list(known.log)
    assert (view.outbox, lives.findings()) == ([], [])
    assert view.status == known.log[-1].kind
    done = {(line.step, line.kind) for line in known.log}
    assert view.dedupe == ({"charge:do": "closed"} if ("ship", "compensating") in done else {})
    undone = [("reserve", "undo_done")] if ("reserve", "undo_done") in done else []
    assert view.movements == ["reserve", "release"][: 1 + len(undone)]
    assert view.reservations == 1 - len(undone)
    assert dict(lives.till.asked) == {work: known.asked.count(work) for work in known.asked}
    check_money(lives, known)


def check_money(lives: Lives, known: Known) -> None:
    """Nothing was charged twice, and what is undone was paid back."""
    assert len(lives.till.charges) == len(known.landed & {"charge:do", "ship:do"}), "charged twice"
    assert len(lives.till.refunded) == len(known.landed & {"charge:undo"})
    balance = Decimal(10) if known.parked else Decimal(0) if lives.route.back else Decimal(15)
    assert sum(lives.till.balance().values()) == balance


@pytest.mark.parametrize("route", routes(), ids=str)
def test_nobody_dies(route: Route, new_lives: Callable[..., Lives]) -> None:
    """A life comes by exactly the places that the route names, in this order: so none is left out."""
    lives = new_lives(route)
    lives.live()
    assert lives.trace == [place for place, _ in route.walk(Known())]
    check(lives, route.end(Known()))


def test_every_point_is_a_place() -> None:
    """A point that no route comes by is a point where nothing has been tried."""
    elsewhere = {Point.AFTER_LOCK} | {each for each in Point if each.startswith("messages.")}  # tests of their own
    of_sagas = set(Point) - elsewhere
    assert {place.point for _, place, _ in SINGLES} >= of_sagas


@pytest.mark.parametrize(("route", "place", "known"), sampled("test_single", "singles", SINGLES, 100), ids=case_id)
def test_single(route: Route, place: Place, known: Known, new_lives: Callable[..., Lives]) -> None:
    """A process dies anywhere: the next one comes by just what is left to do, and ends it."""
    lives = new_lives(route)
    lives.live(until=place)
    lives.live()
    assert lives.trace == [place for place, _ in route.walk(known)]
    check(lives, route.end(known))


@pytest.mark.parametrize(("route", "first", "second", "known"), sampled("test_pair", "pairs", PAIRS, 40), ids=case_id)
def test_pair(route: Route, first: Place, second: Place, known: Known, new_lives: Callable[..., Lives]) -> None:
    """A process dies anywhere, and so does the one that takes over: the third ends it."""
    lives = new_lives(route)
    lives.live(until=first)
    lives.live(until=second)
    lives.live()
    assert lives.trace == [place for place, _ in route.walk(known)]
    check(lives, route.end(known))
