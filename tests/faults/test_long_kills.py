"""SIGKILL of real workers over a signal, a sleep, a condition and the start of the next run."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tests.faults.app.sagas import Approval, KeyedOrder, Leg, LongOrder
from tests.faults.conftest import SceneMaker
from tests.faults.scene import drain, kill
from tests.faults.sight import wait_until

PLACES = (
    "worker.before_record@request", "worker.after_record@request", "worker.before_record@approval:do",
    "worker.after_record@night:do", "worker.after_record@charge:do", "worker.after_body@charge:do",
    "worker.before_record@again:do", "worker.after_record@again:do",
)  # fmt: skip


@pytest.mark.parametrize("scenario", PLACES)
def test_kill_long(scenario: str, outcome: Future[None]) -> None:
    """Whatever is killed wherever: two runs, each with its own signal, one charge, nothing left over."""
    outcome.result()


def play(scenario: str, new_scene: SceneMaker) -> None:
    with new_scene(KeyedOrder) as scene:
        with scene.connection.transaction():
            LongOrder.start(Leg(scene.order), key=scene.order, using=scene.connection)
        victim = scene.worker("victim", fault=f"{scenario}:pause")
        if "@approval" in scenario:  # with its signal there before it, nobody ever begins to wait
            scene.wait_for_hit(victim)
        for note in ("first", "second"):
            with scene.connection.transaction():
                LongOrder.approval.send(Approval(note), key=scene.order, dedupe_id=note, using=scene.connection)
        kill(scene.wait_for_hit(victim).pid, victim)
        heir = scene.worker("heir")
        runs = "select run, status from sagas_saga order by run"
        both = [(1, "completed"), (2, "completed")]
        wait_until(lambda: scene.fetch(runs) == both, "the end of both runs")
        nothing_left = "the end of the lease of the killed worker, on a row that is of no use any more"
        wait_until(lambda: scene.fetch("select 1 from sagas_outbox") == [], nothing_left)
        drain(heir)
        movements = [what for (what,) in scene.fetch("select what from faults_movement order by id")]
        assert movements == ["reserve", "again first", "reserve", "again second"]
        assert (scene.fetch("select 1 from sagas_outbox"), scene.findings()) == ([], [])
        assert scene.money() == {"order": "10.00"}
