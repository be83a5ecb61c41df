"""Messages twice, late and long after, and workers that come back to life: a message or a token is used up once.

In this process; see `lives.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from sagas.points import Point, listen
from sagas.store.rows import Delivery
from sagas_outbox.link import Link
from tests.faults.lives import KeepingStore, Lives, begin_due, new_worker
from tests.faults.route import Known, Place, Route, routes
from tests.faults.sampling import sampled
from tests.faults.scenario import LOCAL
from tests.faults.sight import Line
from tests.faults.test_points import SINGLES, case_id, check, check_money
from tests.support.stories import Aside

GHOSTS = sampled("test_ghosts", "singles with ghosts", [single for single in SINGLES if single[0].relayed], 16)
NewLives = Callable[..., Lives]


@pytest.mark.parametrize(("route", "place", "known"), GHOSTS, ids=case_id)
def test_ghosts(route: Route, place: Place, known: Known, new_lives: NewLives) -> None:
    """Each message comes twice, between all that there ever were, and a process dies: nothing is done twice."""
    lives = new_lives(route, haunted=True)
    lives.live(until=place)
    lives.live()
    assert lives.trace == [place for place, _ in route.walk(known)]
    check(lives, route.end(known))
    _deliver_everything_again(lives)


def _deliver_everything_again(lives: Lives) -> None:
    before = lives.dump()
    store = KeepingStore(lives.url, prepared=True)
    with new_worker(store, goes_on=True) as worker, closing(Link(store.connect)) as link:
        assert lives.broker.ever
        begun = [message for message in lives.broker.ever if lives.deliver(worker, link, message)]
    assert begun == []
    assert lives.dump() == before


@pytest.mark.parametrize("route", [route for route in routes() if route.relayed], ids=str)
def test_copies_at_every_place(route: Route, new_lives: NewLives) -> None:
    """Wherever a worker stands, every message that there ever was comes to another one: it begins nothing."""

    def at(place: Place) -> None:
        if place.point not in (Point.AFTER_CLAIM, Point.AFTER_PUBLISH):
            Aside(lambda: begun.extend(_begin(lives))).join()

    def _begin(lives: Lives) -> list[object]:
        store = KeepingStore(lives.url, prepared=True)
        with new_worker(store, goes_on=True) as other, closing(store.connect()) as connection:
            return [each for message in lives.broker.ever for each in other.begin(connection, message, published=True)]

    begun: list[object] = []
    lives = new_lives(route, at=at)
    lives.live()
    assert begun == []
    check(lives, route.end(Known()))


def _is_locked(route: Route, place: Place) -> bool:
    """Whether the row is locked there, so that nobody can take it over."""
    if place.point is Point.AFTER_BEGIN:
        return not route.relayed
    return place.work in LOCAL and place.point in (Point.BEFORE_BODY, Point.AFTER_BODY, Point.BEFORE_RECORD)


# What it says of an effect that was undone meanwhile; the undo is done once more.
LOOKED_AT_AGAIN = ["late_answer", "settling", "settle_done", "compensated"]
REVIVALS = [single for single in SINGLES if single[1].point not in (Point.AFTER_CLAIM, Point.AFTER_PUBLISH)]


@pytest.mark.parametrize(("route", "place", "known"), sampled("test_revival", "revivals", REVIVALS, 20), ids=case_id)
def test_revival(route: Route, place: Place, known: Known, new_lives: NewLives) -> None:
    """A worker stands still anywhere for so long that others end its saga, and then goes on: nothing is done twice.

    The bank honours keys: a worker that does not know that it was taken over asks it again.
    """

    def at(here: Place) -> None:
        if here == place:
            lives.at = lambda place: None
            lives.end_leases()
            Aside(lambda: _live(lives.as_heir())).join()
            listen(lives._reached)
            before.extend(lives.view().log)

    before: list[Line] = []
    lives = new_lives(route, at=at)
    lives.till.keys = True
    lives.live()
    after = lives.view()
    if _is_locked(route, place):
        check(lives, route.end(Known()))
        return
    end = route.end(known)
    assert before == list(end.log)
    assert after.log[: len(before)] == before
    assert [line.kind for line in after.log[len(before) :]] in ([], LOOKED_AT_AGAIN)
    assert (after.outbox, after.status, lives.findings()) == ([], before[-1].kind, [])
    check_money(lives, end)


HELD = [single for single in REVIVALS if not _is_locked(*single[:2]) and single[0].end(single[2]) != single[2]]


@pytest.mark.parametrize(("route", "place", "known"), sampled("test_fence", "fences", HELD, 20), ids=case_id)
def test_fence(route: Route, place: Place, known: Known, new_lives: NewLives) -> None:
    """A worker goes on after another has begun its work, and before that one has recorded it: it records nothing."""

    def at(here: Place) -> None:
        if here == place:
            lives.end_leases()
            with heirs.store.connect() as connection:
                begun.extend(begin_due(heirs, connection))
            before.extend(lives.dump()[:3])

    before: list[object] = []
    begun: list[Delivery] = []
    lives = new_lives(route, at=at)
    lives.till.keys = True
    with new_worker(KeepingStore(lives.url, prepared=True), goes_on=False) as heirs:
        lives.live()
        assert len(begun) == 1
        assert lives.dump()[:3] == before, "saga, log or outbox were changed"
        heirs.run(heirs.take_up(begun))
    _live(lives.as_heir())
    view, end = lives.view(), route.end(known)
    kinds = [(line.kind, line.step) for line in view.log]
    assert kinds[: len(end.log)] == [(line.kind, line.step) for line in end.log]
    assert [kind for kind, _ in kinds[len(end.log) :]] in ([], LOOKED_AT_AGAIN)
    assert (view.outbox, view.status, lives.findings()) == ([], end.log[-1].kind, [])
    check_money(lives, end)


def _live(lives: Lives) -> None:
    lives.live()
    lives.disconnect()
