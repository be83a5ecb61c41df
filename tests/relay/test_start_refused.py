"""A worker whose configuration would defeat the engine, or that the project's own checks refuse, does not start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sagas.testing.processes import Process
from tests.relay.conftest import PlantMaker
from tests.relay.plant import ROOT, Plant

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "eager": ({"CELERY_TASK_ALWAYS_EAGER": True}, "task_always_eager"),
    "annotations": ({"CELERY_TASK_ANNOTATIONS": {"*": {"time_limit": 5}}}, "task_annotations['*']"),
}

USES_CELERY = {"INSTALLED_APPS": ["django.contrib.contenttypes", "sagas_django", "sagas_celery", "tests.relay"]}


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    with new_plant() as plant:
        yield plant


WORKER = (
    "-m",
    "celery",
    "-A",
    "tests.relay.celery_app",
    "worker",
    "-c",
    "1",
    "-Q",
    "nothing",
    "--without-mingle",
    "-l",
    "INFO",
)
RELAY = ("-m", "django", "sagas", "relay", "--app", "tests.relay.celery_app")


def start(
    plant: Plant, settings: dict[str, Any], sagas: dict[str, Any] | None = None, words: tuple[str, ...] = WORKER
) -> Process:
    env = plant.environment(sagas) | {"RELAY_CELERY": json.dumps(settings)}
    return plant.processes.python(*words, name=words[3], env=env, cwd=ROOT)


def test_a_worker_with_a_foreign_configuration_does_not_start(plant: Plant) -> None:
    """It ends at once and says what to change; a logged error beside a running worker would go unseen."""
    started = {name: start(plant, celery | USES_CELERY) for name, (celery, _) in WRONG.items()}
    for name, worker in started.items():
        assert worker.wait(30) != 0, name
        assert WRONG[name][1] in worker.output()
        assert "ready." not in worker.output()


def test_workers_of_a_project_that_runs_its_sagas_without_celery(plant: Plant) -> None:
    """Without `sagas_celery` its Celery app is its own business, until a relay is to publish to it."""
    annotated, _ = WRONG["annotations"]
    worker, relay = start(plant, annotated), start(plant, annotated, words=RELAY)
    assert relay.wait(30) != 0
    assert "sagas.E011" in relay.output() and "Traceback" not in relay.output()
    worker.wait_for_output("ready.", 30)


def test_a_worker_of_a_project_with_errors_does_not_start(plant: Plant, tmp_path: Path) -> None:
    """Celery runs the checks of a Django project and does not look at what they say."""
    file = tmp_path / "saga_definitions.json"
    file.write_text("<<<<<<< ours")
    worker = start(plant, {}, {"DEFINITIONS_FILE": str(file)})
    assert worker.wait(30) != 0
    said = worker.output()
    assert "This worker does not start" in said and "sagas.E005" in said and str(file) in said
    assert "Traceback" not in said and "ready." not in said
