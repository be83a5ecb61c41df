"""A Celery worker dies over a signal: it is applied once, and the saga goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagas.testing.faults import environment, wait_for_hit
from sagas.testing.processes import Process
from tests.relay.conftest import PlantMaker
from tests.relay.plant import ROOT, SHORT, Plant, wait_until
from tests.relay.sagas import Importing
from tests.relay.test_signals import kinds, said, send, waits


@pytest.mark.full
@pytest.mark.parametrize("point", ["worker.before_record", "worker.after_begin", "worker.after_record"])
def test_a_worker_killed_over_a_signal(new_plant: PlantMaker, tmp_path: Path, point: str) -> None:
    """Whatever it had done is done once when another takes over: one signal, one step after it."""
    with new_plant(SHORT) as plant:
        first = plant.worker("quick", processes=1)
        plant.relay()
        waits(plant, "killed")
        first.terminate()
        assert first.wait(30) == 0
        marker = tmp_path / "marker"
        doomed = _worker(plant, environment(marker, f"{point}:kill"))
        send(plant, "killed")
        wait_for_hit(marker, doomed)
        plant.worker("quick")
        plant.wait_until_completed("killed")
        assert kinds(plant, "killed").count("signalled") == 1
        assert said(plant, "killed") == ["prepare", "yes"]
        wait_until(lambda: plant.value("select count(*) from sagas_outbox") == 0, "the lease of a killed worker to end")


def _worker(plant: Plant, fault: dict[str, str]) -> Process:
    words = ("-m", "celery", "-A", "tests.relay.celery_app", "worker", "-c", "1", "-Q", "quick", "--loglevel=INFO",
             "--without-gossip", "--without-mingle", "-n", "doomed@test")  # fmt: skip
    worker = plant.processes.python(*words, name="doomed", env=plant.environment() | fault, cwd=ROOT)
    worker.wait_for_output("ready.", 60)
    return worker


@pytest.mark.full
def test_a_worker_killed_in_the_middle_of_an_import(new_plant: PlantMaker) -> None:
    """The next attempt goes on with the line it was at, and with none before it."""
    with new_plant(SHORT) as plant:
        plant.worker("quick")
        plant.relay()
        plant.start("import", saga=Importing)
        plant.wait_until_completed("import")
        notes = [(int(what), attempt) for what, attempt, _, _ in plant.notes("import")]
        assert notes == [(line, 1) for line in range(18)] + [(line, 2) for line in range(17, 30)]
