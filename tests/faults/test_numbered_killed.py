"""Semantic locks, and steps side by side, on real processes: a worker is killed by SIGKILL, another takes over.

All points are tried in one process by `test_numbered_points.py`; these are to show that it tells the truth.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from sagas import Saga
from sagas.points import Point
from tests.faults.app.sagas import BesideOrder, LockedOrder, Ordered, insurance, parcel
from tests.faults.conftest import SceneMaker
from tests.faults.sampling import sampled
from tests.faults.scene import Scene, drain, kill
from tests.faults.sight import wait_until

HELD = "select subject from sagas_lock where not waiting order by 1"
DO = ("reserve:do", "charge:do")
POINTS = (Point.AFTER_LOCK, Point.BEFORE_BODY, Point.AFTER_BODY, Point.BEFORE_RECORD, Point.AFTER_RECORD)
BESIDE = ("reserve:do", "charge:do", "insure:do", "ship:do", "charge:undo", "reserve:undo")


@dataclass(frozen=True, kw_only=True)
class Killed:
    """A worker is killed at a point of one piece of work."""

    saga: type[Saga[Ordered]]
    point: Point
    work: str
    refuses: str = ""

    def __str__(self) -> str:
        return f"{self.saga.__name__}-{self.refuses or 'forward'}-{self.work}-{self.point.rpartition('.')[2]}"

    @property
    def held(self) -> list[str]:
        """What is locked when the worker stands there, as others see it: a local step has not committed."""
        if self.work == "reserve:do":
            return ["shelf"] if self.point is Point.AFTER_RECORD else []
        return ["shelf", "till"]


LOCKS = [Killed(saga=LockedOrder, point=point, work=work) for work in DO for point in POINTS]
SIDES = [
    Killed(saga=BesideOrder, point=point, work=work, refuses="" if work.endswith(":do") else "parcel")
    for work in BESIDE for point in POINTS[1:]
]  # fmt: skip
ONE_FAILS = [
    Killed(saga=BesideOrder, point=point, work=work, refuses="insurance")
    for work in ("charge:do", "insure:do", "reserve:do") for point in (Point.BEFORE_BODY, Point.BEFORE_RECORD)
]  # fmt: skip
ALWAYS = (Point.AFTER_LOCK, Point.BEFORE_RECORD)


def _always(case: tuple[Killed]) -> bool:
    return case[0].saga is LockedOrder and case[0].point in ALWAYS


CASES = sampled(
    "test_numbered_kill", "kills of locks and branches", [(each,) for each in (*LOCKS, *SIDES, *ONE_FAILS)],
    2,
    always=_always,
)  # fmt: skip


@pytest.mark.parametrize("scenario", CASES, ids=str)
def test_numbered_kill(scenario: Killed, outcome: Future[None]) -> None:
    """A lock is there if its step has begun to act, none is left in the end; each effect is there once, or undone."""
    outcome.result()


def play(scenario: Killed, new_scene: SceneMaker) -> None:
    with new_scene(scenario.saga) as scene:
        if scenario.refuses:
            scene.bank.script({"fault": "refuse", "order": f"{scene.order}/{scenario.refuses}"})
        scene.start()
        victim = scene.worker("victim", fault=f"{scenario.point}@{scenario.work}:pause")
        if not reached(scene, victim, scenario):
            return
        pid = scene.wait_for_hit(victim).pid
        if scenario.saga is LockedOrder:
            assert [subject for (subject,) in scene.fetch(HELD)] == scenario.held
        kill(pid, victim)
        if scenario.saga is LockedOrder:
            assert [subject for (subject,) in scene.fetch(HELD)] == scenario.held
        heir = scene.worker("heir")
        scene.wait_until_ended()
        drain(heir)
        _check(scenario, scene)


def reached(scene: Scene, victim: object, scenario: Killed) -> bool:
    """Whether the worker comes to the place: of branches that one beside them stops, some never begin."""
    marker = scene._marker
    if scenario.refuses != "insurance":
        return True
    wait_until(lambda: marker.exists() or scene.has_ended(), "the point, or the end")
    if marker.exists():
        return True
    _check(scenario, scene)
    return False


def _check(scenario: Killed, scene: Scene) -> None:
    assert scene.findings() == []
    assert scene.fetch("select 1 from sagas_lock") == []
    assert scene.fetch("select 1 from sagas_outbox") == []
    assert scene.status() == ("compensated" if scenario.refuses else "completed")
    ends = Counter(line for line in scene.kinds() if line[0] in ("step_done", "undo_done"))
    assert set(ends.values()) <= {1}, ends
    ledger = scene.bank.ledger()
    mine = {scene.order: "10.00", parcel(scene.order): "5.00"}
    mine |= {insurance(scene.order): "10.00"} if scenario.saga is BesideOrder else {}
    assert not ledger["duplicate_charges"].keys() & mine.keys()
    balance = {order: ledger["orders"].get(order, "0.00") for order in mine}
    assert balance == (dict.fromkeys(mine, "0.00") if scenario.refuses else mine)
    moved = Counter(what for (what,) in scene.fetch("select what from faults_movement"))
    assert moved in ([Counter(), Counter(reserve=1, release=1)] if scenario.refuses else [Counter(reserve=1)])
