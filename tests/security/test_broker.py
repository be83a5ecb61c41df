"""Who may write to the broker cannot run code, nor a step twice, early or out of order; a Celery worker is asked."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sagas.store.schema_files import roles_sql
from sagas.testing.processes import Process
from tests.relay.conftest import PlantMaker, _report, new_plant, own_redis, plant_template
from tests.relay.plant import Plant
from tests.relay.sagas import Job
from tests.security.forging import send_raw, task_body
from tests.security.users import for_bodies

pytestmark = pytest.mark.full  # the sample that always runs is tests/relay/test_forged_messages.py
__all__ = ["_report", "new_plant", "own_redis", "plant_template"]
GATE = 7


class Bomb:
    """Runs a function of the attacker's choice where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.file,)


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    """A relay and a Celery worker that act as their roles."""
    with new_plant({"PRUNE": False}) as plant:
        plant.connection.execute(roles_sql())
        plant.connection.execute(for_bodies("sagas_application", "sagas_worker"))
        plant.connection.execute("grant insert on relay_change to sagas_relay")  # by a trigger of these tests
        with acting("sagas_relay"):
            plant.relay()
        yield plant


@pytest.fixture(scope="module")
def worker(plant: Plant) -> Process:
    """A Celery worker that acts as its role."""
    with acting("sagas_worker"):
        return plant.worker("quick")


@contextmanager
def acting(role: str) -> Iterator[None]:
    """Processes that are started meanwhile act as a role."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGOPTIONS", f"-c role={role}")
        yield


def still_works(plant: Plant, key: str) -> None:
    """What comes after the attack is run, once."""
    plant.start(key)
    plant.wait_until_completed(key, timeout=30)
    assert plant.attempts(key) == [("step_done", 1), ("completed", 0)]


def test_relay_and_celery_workers_under_their_roles(plant: Plant, worker: Process) -> None:
    """A relay that may read no log and no payload publishes, a worker that may delete no saga runs."""
    still_works(plant, "as-roles")
    said = worker.output() + "".join(each.output() for each in plant.processes.processes)
    assert "permission denied" not in said, said


def test_messages_run_no_code(plant: Plant, worker: Process, tmp_path: Path) -> None:
    """Pickle, YAML and the like are not unpacked, whatever they are called; no task but those of the app is there."""
    touched = tmp_path / "touched"
    bomb = pickle.dumps(((), {"v": Bomb(touched)}, {}))
    yaml = f"!!python/object/apply:os.system ['touch {touched}']".encode()
    for content in (
        "application/x-python-serialize",
        "application/x-pickle",
        "pickle",
        "application/json",
        "text/plain",
    ):
        send_raw(plant, bomb, content=content, encoding="binary")
    send_raw(plant, yaml, content="application/x-yaml")
    send_raw(plant, base64.b64encode(bomb), content="application/x-python-serialize", encoding="base64")
    send_raw(plant, task_body(), task="os.system")
    send_raw(plant, task_body(), task="sagas.testing")
    still_works(plant, "after-code")
    assert not touched.exists()


def test_huge_and_nested_messages_are_dropped(plant: Plant, worker: Process) -> None:
    """Ten megabytes, a hundred thousand brackets, numbers without end: the worker says so, and goes on."""
    send_raw(plant, task_body(v=1, store="default", rows=[[1, 0]], more="x" * 10_000_000))
    send_raw(plant, b'[[], {"v": 1, "store": "default", "rows": ' + b"[" * 100_000 + b"]" * 100_000 + b"}, {}]")
    send_raw(plant, b'[[], {"v": 1, "store": "default", "rows": [[' + b"9" * 4_000 + b", 0]]}, {}]")
    send_raw(plant, b'[[], {"v": 1, "store": "default", "rows": [[NaN, Infinity]]}, {}]')
    send_raw(plant, task_body(v=1, store="../../etc/passwd", rows=[[1, 0]]))
    send_raw(plant, b"\xff\xfe\x00")
    still_works(plant, "after-bulk")


def test_a_step_runs_once_however_often_it_is_published(plant: Plant, worker: Process) -> None:
    """Somebody who guesses ids and tokens sends hundreds of messages for a row: while it is held nothing begins it, and
    when it is done there is nothing to begin. The step after it has no row before.
    """
    with plant.gate(GATE):
        plant.start("forged", job=Job(gate=GATE))
        plant.wait_for_notes("forged")
        (row,) = plant.fetch(
            "select o.id, o.token from sagas_outbox o join sagas_saga s on s.id = o.saga_id where s.key = 'forged'"
        )
        for token in range(row[1] + 5):
            send_raw(plant, task_body(v=1, store="default", rows=[[row[0], token]] * 100))
        still_works(plant, "beside-forged")
    plant.wait_until_completed("forged", timeout=30)
    still_works(plant, "after-forged")
    assert plant.attempts("forged") == [("step_done", 1), ("completed", 0)]
    assert [what for what, *_ in plant.notes("forged")] == ["", "after the gate"], "one body"
