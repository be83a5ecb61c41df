"""Pairs of points again, on real processes: two workers, one after the other, die by SIGKILL.

All pairs are tried in one process by `test_points.py`; these, drawn by the seed, are to show that it tells the truth.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from sagas.points import Point
from tests.faults.app.sagas import parcel
from tests.faults.conftest import SceneMaker
from tests.faults.route import Bank, Known, Place, Route
from tests.faults.sampling import drawn, sampled
from tests.faults.scene import Scene, drain
from tests.faults.sight import TERMINAL, wait_until
from tests.faults.test_points import PAIRS

FULL, BY_DEFAULT = 60, 3


@dataclass(frozen=True, kw_only=True)
class Deaths:
    """Where the first and the second worker die, and what is known then."""

    route: Route
    first: Place
    second: Place
    known: Known

    def __str__(self) -> str:
        return f"{self.route}-{self.first}-{self.second}"


def _is_killable(case: tuple[Route, Place, Place, Known]) -> bool:
    """Real relays are in `test_celery_kills.py`; requests that the bank holds in `test_kills.py`."""
    route, first, second, _ = case
    return not (route.relayed or isinstance(first.point, Bank) or isinstance(second.point, Bank))


CHOSEN = drawn("real", [case for case in PAIRS if _is_killable(case)], FULL)
DEATHS = [
    (Deaths(route=route, first=first, second=second, known=known),) for route, first, second, known in CHOSEN
]  # fmt: skip


@pytest.mark.parametrize("scenario", sampled("test_pair_killed", "pairs killed", DEATHS, BY_DEFAULT), ids=str)
def test_pair_killed(scenario: Deaths, outcome: Future[None]) -> None:
    """Whoever is killed wherever, twice: each step once in the log, each effect once at the bank, nothing left over."""
    outcome.result()


def play(scenario: Deaths, new_scene: SceneMaker) -> None:
    route, end = scenario.route, scenario.route.end(scenario.known)
    with new_scene(route.saga) as scene:
        if route.back:
            scene.bank.script({"fault": "refuse", "order": parcel(scene.order)})
        scene.start()
        for number, place in enumerate((scenario.first, scenario.second), 1):
            _die(scene, f"victim-{number}", place)
        heir = scene.worker("heir")
        wait_until(lambda: scene.status() in (*TERMINAL, "parked"), "the end")
        drain(heir)
        view = scene.view()
        assert view.log == list(end.log)
        assert (view.outbox, scene.findings()) == ([], [])
        assert scene.seen() == {work: end.asked.count(work) for work in end.asked}
        assert scene.money() == _money(route, end)


def _die(scene: Scene, name: str, place: Place) -> None:
    """A worker kills itself at the place."""
    victim = scene.worker(name, fault=f"{place.point}@{place.work}#{place.time}:kill")
    assert scene.wait_for_hit(victim).point is Point(place.point)
    assert victim.wait(10) == -9


def _money(route: Route, end: Known) -> dict[str, str]:
    if end.parked:
        return {"order": "10.00"}
    return {"order": "0.00"} if route.back else {"order": "10.00", "parcel": "5.00"}
