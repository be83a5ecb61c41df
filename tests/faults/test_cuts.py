"""The connection to Postgres is cut at a statement: before it arrives there, or when it was done, before its answer.

In this process, through a proxy that waits for the words of the statement. What is known afterwards is what would be
if the process had died at some place, or as if nothing had been; see `route.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from sagas.points import Point
from sagas.testing.proxy import CutAt, Pass, Proxy
from tests.faults.conftest import default_database
from tests.faults.lives import Lives
from tests.faults.route import AnyPoint, Known, Place, Route, routes
from tests.faults.sampling import sampled
from tests.faults.scenario import LOCAL
from tests.faults.sight import wait_until
from tests.faults.test_points import check
from tests.settings import database_from_url

CLAIM, BEGIN, LOCK, RECORD = b"-- Take due rows", b"-- Begin:", b"-- A local step locks", b"-- Record decisions"
COMMIT = b"COMMIT"
OPEN = (
    "select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and backend_type = 'client backend' and state <> 'idle'"
)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A cut of the connection on which the next such statement is said.

    Attributes:
        route: how the saga is run.
        after: the statement is the next one after this place; None: the first one of all.
        words: how the statement begins.
        unheard: where a death amounts to the same, if the statement does not arrive; None: nothing has happened.
        done: the same, if its answer does not arrive.
    """

    route: Route
    after: Place | None
    words: bytes
    unheard: Place | None = None
    done: Place | None = None

    def __str__(self) -> str:
        words = self.words.decode().removeprefix("-- ").lower().replace(" ", "_").strip(":")
        return f"{self.route}-{self.after or 'start'}-{words}"


def cuts(route: Route) -> Iterator[Cut]:
    """At every statement of a route that changes something."""
    before: Place | None = None
    for work in route.chain:

        def at(point: AnyPoint, work: str = work) -> Place:
            return Place(point=point, work=work)

        found = at(Point.AFTER_BEGIN)
        if route.relayed:
            yield Cut(route=route, after=before, words=CLAIM)
            published = at(Point.AFTER_PUBLISH)
            yield Cut(route=route, after=published, words=BEGIN, unheard=published, done=found)
        elif before is None:
            yield Cut(route=route, after=None, words=BEGIN)
            yield Cut(route=route, after=found, words=COMMIT, done=at(Point.BEFORE_BODY))
        else:
            found = at(Point.BETWEEN_STEPS)
        recording, before = at(Point.BEFORE_RECORD), at(Point.AFTER_RECORD)
        if work in LOCAL:
            for after, words in ((found, LOCK), (recording, RECORD)):
                yield Cut(route=route, after=after, words=words, unheard=recording, done=recording)
            yield Cut(route=route, after=recording, words=COMMIT, unheard=recording, done=before)
        else:
            yield Cut(route=route, after=recording, words=RECORD)  # it is said again, or found in the log


CASES = [(cut, answered) for route in routes() for cut in cuts(route) for answered in (False, True)]


def _id(value: object) -> str:
    return ("done" if value else "unheard") if isinstance(value, bool) else str(value)


@pytest.fixture(scope="module")
def proxied(ground: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the database of this module, and the URL through it, which is Django's way, too."""
    where = database_from_url(ground)
    with Proxy(where["HOST"], int(where["PORT"])) as proxy:
        url = f"postgresql://{where['USER']}:{where['PASSWORD']}@127.0.0.1:{proxy.port}/{where['NAME']}"
        with default_database(url):
            yield proxy, url


@pytest.mark.parametrize(("cut", "answered"), sampled("test_cut", "cuts", CASES, 24), ids=_id)
def test_cut(cut: Cut, answered: bool, proxied: tuple[Proxy, str], new_lives: Callable[..., Lives]) -> None:
    """Nothing is lost and nothing happens twice, whether the statement was heard or not."""
    proxy, way = proxied

    def at(place: Place | None) -> None:
        if place == cut.after and not struck:
            proxy.fault = CutAt(words=cut.words, answered=answered)
            struck.append(place)

    struck: list[Place | None] = []
    lives = new_lives(cut.route, at=at, way=way)
    at(None)
    lives.live()
    assert struck and proxy.fault == Pass(), "nothing was cut"
    wait_until(lambda: not lives.fetch(OPEN), "Postgres to notice that a client has gone")
    lives.end_leases()
    lives.live()
    check(lives, cut.route.end(_known(cut, answered)))


def _known(cut: Cut, answered: bool) -> Known:
    like = cut.done if answered else cut.unheard
    return Known() if like is None else dict(cut.route.walk(Known()))[like]
