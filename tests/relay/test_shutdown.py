"""Celery workers that end: in good order, and without any."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, Plant, children, wait_until
from tests.relay.sagas import Alone, Job, Together

GATE = 1


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    """A relay; each test starts the workers it needs."""
    with new_plant({**SHORT, "HAND_BACK_AFTER": 30.0}) as plant:
        plant.measured(Together, "act", 0.001)  # before the relay looks
        plant.relay()
        yield plant


def test_a_worker_that_is_told_to_end_leaves_nothing_behind(plant: Plant) -> None:
    """What runs is finished and recorded; what waits is given back as if it had not been begun."""
    waiting = [f"waiting-{number}" for number in range(6)]
    worker = plant.worker("quick")
    with plant.gate(GATE):
        plant.start_each({"running": Job(gate=GATE)} | {key: Job() for key in waiting}, saga=Together)
        plant.wait_for_notes("running")
        begun = plant.mark()
        worker.terminate()
        given_back = (
            "select count(*) from relay_change"
            " where id > %s and holder = '' and deliveries = 0 and deliveries_before = 1"
        )
        wait_until(lambda: plant.value(given_back, begun) == len(waiting), "the rows that wait to be given back")
    assert worker.wait(15) == 0, worker.output()
    assert plant.attempts("running") == [("step_done", 1), ("completed", 0)]
    assert plant.value("select count(*) from sagas_outbox where holder like 'worker:%%'") == 0
    assert [plant.row(key)[1] for key in waiting] == [0] * len(waiting)
    assert plant.value("select count(*) from relay_note where key like 'waiting-%%'") == 0
    successor = plant.worker("quick")
    plant.wait_until_completed(*waiting)
    assert [plant.attempts(key)[0] for key in waiting] == [("step_done", 1)] * len(waiting)
    successor.kill()


def test_a_worker_killed_with_all_its_children_is_taken_over(plant: Plant) -> None:
    """By another one when the leases end; nobody has to clean up."""
    worker = plant.worker("quick")
    with plant.gate(GATE):
        plant.start("killed", job=Job(gate=GATE))
        plant.wait_for_notes("killed")
        everybody = [worker.pid, *children(worker.pid)]
        for pid in everybody:
            os.kill(pid, signal.SIGKILL)
        assert worker.wait(10) == -signal.SIGKILL
        assert plant.row("killed")[:2] == ("worker", 1)
    successor = plant.worker("quick")
    plant.wait_until_completed("killed")
    assert plant.attempts("killed") == [("step_done", 2), ("completed", 0)]
    successor.kill()


def test_a_pool_of_threads_works_too(plant: Plant) -> None:
    """Several messages at a time in one process, each row begun once."""
    mark, keys = plant.mark(), [f"threaded-{number}" for number in range(60)]
    worker = plant.worker("quick", "--pool=threads", processes=6)
    plant.start(*keys, saga=Alone)  # many messages
    plant.wait_until_completed(*keys)
    assert [plant.attempts(key)[0] for key in keys] == [("step_done", 1)] * len(keys)
    assert set(plant.begins(mark).values()) == {1}
    worker.terminate()
    assert worker.wait(15) == 0, worker.output()
