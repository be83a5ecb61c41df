"""A worker is killed with SIGKILL at a named point; what it leaves is looked at; another ends the saga.

The scenarios run several at a time (see `running` in conftest.py); each test waits for its own.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from sagas.points import Point
from tests.faults.app.sagas import parcel
from tests.faults.conftest import SceneMaker
from tests.faults.sampling import sampled
from tests.faults.scenario import AFTER_EFFECT, BEFORE_EFFECT, LOCAL, QUEUES, Scenario, scenarios
from tests.faults.scene import Scene, drain, kill
from tests.faults.sight import View


def _always(case: tuple[Scenario]) -> bool:
    """Every place of an external step and its undo, and those of other work that are not like these."""
    work, place = case[0].work, case[0].place
    if case[0].asked:
        return work == "charge:do" and place in (BEFORE_EFFECT, AFTER_EFFECT, Point.BEFORE_RECORD)
    return work.startswith("charge") or (work in LOCAL and place in (Point.AFTER_BODY, Point.AFTER_RECORD))


CASES = sampled("test_kill", "kills", [(each,) for each in scenarios()], 2, always=_always)


@pytest.mark.parametrize("scenario", CASES, ids=str)
def test_kill(scenario: Scenario, outcome: Future[None]) -> None:
    """Whatever is killed wherever: each step once in the log, each effect once at the bank, nothing left over."""
    outcome.result()


def play(scenario: Scenario, new_scene: SceneMaker) -> None:
    with new_scene(scenario.saga) as scene:
        _prepare_bank(scenario, scene)
        scene.start()
        _die(scenario, scene)
        _recover(scenario, scene)
        view = scene.view()
        if scenario.place == BEFORE_EFFECT and scenario.settled_by_asking:
            view = _without_undecided(view)
        assert view == scenario.at_end()
        assert scene.findings() == []
        assert scene.money() == scenario.money()
        assert scene.seen() == scenario.seen_by_bank()


def _prepare_bank(scenario: Scenario, scene: Scene) -> None:
    order = parcel(scene.order) if scenario.work == "ship:do" else scene.order
    if scenario.asked:
        scene.bank.script(
            {"fault": "ignore_keys", "order": scene.order}, {"fault": "ignore_keys", "order": parcel(scene.order)}
        )  # fmt: skip
    if scenario.back:
        scene.bank.script({"fault": "refuse", "order": parcel(scene.order)})
    if scenario.held:
        on = "refund" if scenario.work == "charge:undo" else "charge"
        when = "after" if scenario.place == AFTER_EFFECT else "before"
        scene.bank.script({"fault": "hold", "on": on, "order": order, "when": when})


def _die(scenario: Scenario, scene: Scene) -> None:
    """Bring a worker to the place, see that the database is as it should be, kill it, and see that nothing changed."""
    if scenario.place is Point.AFTER_BEGIN and scenario.recorded:
        _run_up_to(scenario, scene)
    if scenario.held:
        worker = scene.worker("victim")
        arrival = scene.wait_for_arrival()
        pid = int(arrival["client"])
        assert arrival["landed"] == (scenario.place == AFTER_EFFECT)
    else:
        worker = scene.worker("victim", fault=f"{scenario.place}@{scenario.work}:pause")
        pid = scene.wait_for_hit(worker).pid
    assert scene.view() == scenario.at_death()
    kill(pid, worker)
    assert scene.view() == scenario.at_death()


def _run_up_to(scenario: Scenario, scene: Scene) -> None:
    """A step that goes on from another is begun by its commit; only where it comes first is there a begin."""
    queues = [f"--queue={QUEUES[work]}" for work in scenario.chain[: scenario.recorded]]
    assert scene.worker("before", *queues, "--until-idle").wait(15) == 0


def _recover(scenario: Scenario, scene: Scene) -> None:
    worker = scene.worker("heir")
    if scenario.place == BEFORE_EFFECT and scenario.settled_by_asking:
        # The dead worker's request is still under way: the bank cannot say, and must be asked again.
        scene.wait_for_line("step_undecided", scenario.work.partition(":")[0])
        scene.release()
    scene.wait_until_ended()
    scene.release()
    drain(worker)


def _without_undecided(view: View) -> View:
    """How often the bank was asked while it could not say is not for us to say; that it was, is seen already."""
    return replace(view, log=[line for line in view.log if line.kind != "step_undecided"])
