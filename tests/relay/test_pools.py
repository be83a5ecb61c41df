"""Celery's other pools: threads and greenlets share one worker of ours, and each body has connections of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from sagas.testing.processes import Process
from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, Plant, wait_until
from tests.relay.sagas import Job, Local, Single, Spawns, Together

pytestmark = pytest.mark.usefixtures("running")

GATE, SECOND_GATE = 1, 2
SLOTS = 4  # bodies at the same time
OURS = 6  # connections that the worker may have beside one for each body: begin, record, heart, effects


@dataclass(frozen=True, kw_only=True)
class Running:
    """A plant with one relay, and one worker whose pool is not prefork."""

    plant: Plant
    worker: Process


@pytest.fixture(scope="module", params=["threads", "gevent"])
def running(request: pytest.FixtureRequest, new_plant: PlantMaker) -> Iterator[Running]:
    if request.param == "gevent":
        pytest.importorskip("gevent")
    with new_plant(SHORT) as plant:
        plant.measured(Together, "act", 0.001)
        worker = plant.worker("quick", "--pool", request.param, processes=SLOTS)
        relay = plant.relay()
        yield Running(plant=plant, worker=worker)
        assert relay.poll() is None


def connections(plant: Plant) -> int:
    """How many there are to the plant's database, ours apart."""
    return int(
        plant.value(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and backend_type = 'client backend'"
        )
    )


def test_sagas_run_to_the_end(running: Running) -> None:
    """Steps of every kind, many of them in one message, sagas that start others, effects: each exactly once."""
    plant = running.plant
    names = [f"spawns {number}" for number in range(12)]
    plant.start(*names, saga=Spawns)
    plant.start(*[f"together {number}" for number in range(40)], saga=Together)
    plant.start(*[f"local {number}" for number in range(20)], saga=Local)
    plant.wait_until_completed(*names, *[f"of {name}" for name in names])
    plant.wait_until_completed(*[f"together {number}" for number in range(40)])
    plant.wait_until_completed(*[f"local {number}" for number in range(20)])
    for name in names:
        assert [what for what, *_ in plant.notes(f"of {name}")] == ["first", "second", "third"]
        assert len(plant.notes(name)) == 1
    assert plant.fetch("select key from relay_note where key like 'together %%' group by key having count(*) > 1") == []
    assert plant.value("select count(*) from sagas_outbox") == 0


def test_bodies_wait_side_by_side(running: Running) -> None:
    """A body that waits for its database holds up no other, and shares its connection with none."""
    plant = running.plant
    keys = [f"waits {number}" for number in range(SLOTS)]
    with plant.gate(GATE):
        for key in keys:
            plant.start(key, job=Job(gate=GATE), saga=Single)
        backends = {plant.wait_for_notes(key)[0][3] for key in keys}
        assert len(backends) == SLOTS
    plant.wait_until_completed(*keys)
    assert [len(plant.notes(key)) for key in keys] == [2] * SLOTS


@pytest.mark.parametrize("saga", [Single, Local])
def test_leases_are_kept_meanwhile(running: Running, saga: type[Single] | type[Local]) -> None:
    """The heart beats on while bodies wait: nobody takes over what runs longer than a lease."""
    plant, key = running.plant, f"long {saga.__name__}"
    due = (
        "select extract(epoch from o.due_at)::float8 from sagas_outbox o join sagas_saga s on s.id = o.saga_id"
        " where s.key = %s"
    )
    with plant.gate(SECOND_GATE):
        plant.start(key, job=Job(gate=SECOND_GATE), saga=saga)
        if saga is Single:
            plant.wait_for_notes(key)
            first = plant.value(due, key)
            wait_until(lambda: plant.value(due, key) > first + SHORT["LEASE"], "a lease that is renewed")
        else:  # its row is locked and its notes are not committed
            waiting = (
                "select count(*) from pg_locks where locktype = 'advisory' and not granted"
                " and database = (select oid from pg_database where datname = current_database())"
            )
            wait_until(lambda: plant.value(waiting), "a body at the gate")
    plant.wait_until_completed(key)
    assert len(plant.notes(key)) == 2
    assert {attempt for _, attempt, *_ in plant.notes(key)} == {1}


def test_connections_do_not_leak(running: Running) -> None:
    """After a hundred sagas more there are no more connections than bodies and our few need."""
    plant = running.plant
    relays = 4  # of the relay: claims, listening, spare
    for batch, saga in enumerate((Single, Spawns, Local, Spawns)):
        keys = [f"many {batch} {number}" for number in range(25)]
        plant.start(*keys, saga=saga)
        plant.wait_until_completed(*keys)
        wait_until(
            lambda: connections(plant) <= SLOTS + OURS + relays,
            f"few connections after batch {batch}; there are {connections(plant)}",
        )


def test_the_end(running: Running) -> None:
    """SIGTERM: what runs is finished and recorded, nothing is begun, every connection is given back."""
    plant = running.plant
    with ExitStack() as gates:
        gates.enter_context(plant.gate(GATE))
        plant.start("last", job=Job(gate=GATE), saga=Single)
        plant.wait_for_notes("last")
        running.worker.send_signal(signal.SIGTERM)
        running.worker.wait_for_output("Warm shutdown", 30)
    assert running.worker.wait(60) == 0
    plant.wait_until_completed("last")
    assert plant.attempts("last") == [("step_done", 1), ("completed", 0)]
