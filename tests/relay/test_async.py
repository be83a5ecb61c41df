"""`async def` steps in a prefork Celery worker of one child: many at the same time, and none lost with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from django.db import transaction

from sagas.testing.processes import Process
from tests.relay.awaiting import Asked, Awaited, Stubborn
from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, Plant, children, wait_until
from tests.support.slow_server import SlowServer


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    with new_plant(SHORT | {"MESSAGE_ROWS": 100}) as plant:
        plant.relay()
        yield plant


@pytest.fixture
def worker(plant: Plant) -> Iterator[Process]:
    worker = plant.worker("quick", processes=1)
    yield worker
    worker.kill()


@pytest.fixture
def server() -> Iterator[SlowServer]:
    with SlowServer() as running:
        yield running


def start(plant: Plant, saga: type[Awaited] | type[Stubborn], prefix: str, many: int, asked: Asked) -> list[str]:
    keys = [f"{prefix}-{number}" for number in range(many)]
    with plant._alias() as alias, transaction.atomic(using=alias):
        for key in keys:
            saga.start(asked, key=key, using=alias)
    return keys


@pytest.mark.usefixtures("worker")
def test_hundreds_of_slow_calls_in_one_child(plant: Plant, server: SlowServer) -> None:
    """300 calls of a second each, of a step that nobody has measured, in a tenth of the time or less."""
    began = time.monotonic()
    keys = start(plant, Awaited, "many", 300, Asked(server.port, 1.0))
    plant.wait_until_completed(*keys)
    took = time.monotonic() - began
    assert took < 300 / 10, f"{took:.1f} s"
    assert server.most > 50
    assert sum(server.calls.values()) == 300
    mean = plant.value("select mean from sagas_pace where name = 'relay.awaited' and step = 'charge'")
    assert 0.004 < mean < 0.05  # of a second in 200 slots: many rows share a message


def test_a_killed_child(plant: Plant, worker: Process, server: SlowServer) -> None:
    """kill -9 with 30 calls under way: each is unknown, and is taken over under the same key by the next child."""
    keys = start(plant, Awaited, "killed", 30, Asked(server.port, "gate"))
    server.wait_for_calls(30)
    [child] = children(worker.pid)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: sum(server.calls.values()) >= 60, "the calls of the next child")
    server.open_gate()
    plant.wait_until_completed(*keys)
    assert set(server.calls) == set(keys)
    assert min(server.calls.values()) >= 2


def test_a_warm_shutdown(plant: Plant, worker: Process, server: SlowServer) -> None:
    """What runs is finished and recorded before the child ends; nothing is called twice."""
    start(plant, Awaited, "warm", 20, Asked(server.port, "gate"))
    server.wait_for_calls(20)
    worker.terminate()
    worker.wait_for_output("Warm shutdown", 20)
    server.open_gate()
    assert worker.wait(30) == 0
    done = "select count(*) from sagas_log l join sagas_saga s on s.id = l.saga_id where s.key like %s and l.step = %s"
    assert plant.value(done, "warm-%", "charge") == 20
    assert set(server.calls.values()) == {1}


def test_a_body_that_does_not_heed_its_timeout(plant: Plant, worker: Process, server: SlowServer) -> None:
    """It ends its child past timeout and grace, like a body in a thread of execution; the next attempt goes on."""
    [child] = children(worker.pid)
    [key] = start(plant, Stubborn, "stubborn", 1, Asked(server.port, "gate", stubborn=True))
    wait_until(lambda: child not in children(worker.pid), "the end of the child")
    assert "outlived its timeout of 0.2 s" in worker.output()
    server.open_gate()
    plant.wait_until_completed(key)
