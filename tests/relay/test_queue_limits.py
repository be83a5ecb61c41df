"""Limits of queues, by processes: relays, Celery workers and embedded workers together, some of them killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.db import transaction

from sagas import queues
from sagas.queues import Limits
from sagas.testing.processes import Process
from tests.relay.conftest import PlantMaker
from tests.relay.plant import PATIENCE, ROOT, SHORT, Plant, wait_until
from tests.relay.queued import BODIES, InOrder, Narrow

MOST = 3
LINES = 4
RATE, PERIOD = 12, 2.0
WAIT = 60.0  # seconds


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    """Two relays, a Celery worker, and a worker without a broker."""
    with new_plant({**SHORT, "QUEUES": {"narrow": {"concurrency": MOST}}}) as plant:
        plant.worker("narrow", processes=3)
        plant.relay()
        plant.relay()
        yield plant


@pytest.fixture(autouse=True)
def _nothing_noted(plant: Plant) -> None:
    plant.connection.execute("truncate relay_note; truncate relay_change")


class Hands:
    """The worker without a broker, and another one where it was killed."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self.worker = self._start()

    def _start(self) -> Process:
        worker = self.plant.processes.python(
            "-m", "django", "sagas", "worker", "--concurrency", "8", name="embedded", env=self.plant.environment(),
            cwd=ROOT,
        )  # fmt: skip
        worker.wait_for_output("serves", PATIENCE)
        return worker

    def kill_somebody(self) -> None:
        """SIGKILL a process that runs a body just now."""
        victim = wait_until(self._at_work, "a body at work")
        os.kill(victim, signal.SIGKILL)
        if victim == self.worker.pid:
            self.worker = self._start()

    def _at_work(self) -> int:
        found = self.plant.fetch(
            "select n.pid from relay_note n join pg_locks l on l.pid = n.backend"
            " where l.locktype = 'advisory' and l.classid = %s and l.granted limit 1", BODIES)  # fmt: skip
        return found[0][0] if found else 0


@pytest.fixture(scope="module")
def hands(plant: Plant) -> Hands:
    return Hands(plant)


def start(plant: Plant, saga: Any, keys: Sequence[str], seconds: float, **options: Any) -> None:
    """Start sagas one after the other, in one transaction."""
    with plant._alias() as alias, transaction.atomic(using=alias):
        for key in keys:
            saga.start(seconds, key=key, using=alias, **options)


def wait_for_notes(plant: Plant, many: int) -> None:
    wait_until(lambda: plant.value("select count(*) from relay_note") >= many, f"{many} bodies")


def test_concurrency_holds_for_all_processes_and_through_kills(plant: Plant, hands: Hands) -> None:
    """Relays, Celery children and embedded workers, some killed at work: never more bodies at once than the queue is
    given, as the bodies saw themselves; what a killed one held comes back with the end of its lease, and everything is
    done."""
    keys = [f"narrow-{number}" for number in range(50)]
    start(plant, Narrow, keys, 0.1)
    for notes in (5, 15, 25):
        wait_for_notes(plant, notes)
        hands.kill_somebody()
    next(each for each in plant.processes.processes if each.name == "relay").kill()
    plant.wait_until_completed(*keys, timeout=WAIT)
    assert plant.value("select max(what::int) from relay_note") == MOST
    assert plant.value("select count(distinct pid) from relay_note") >= 4  # those that were killed, and others
    assert plant.value("select count(*) from relay_note") >= len(keys) + 3
    plant.relay()


@pytest.mark.full  # tests/integration/test_queues.py has the same in one process
def test_a_rate_holds_in_every_period(plant: Plant, hands: Hands) -> None:
    """Whoever begins them, in no span of a period more steps begin than the rate says, by the clock of the database;
    and the rate is nearly used."""
    queues.limit(plant.connection, "narrow", Limits(rate=f"{RATE}/{PERIOD:.0f}s"), actor="ann")
    keys = [f"rated-{number}" for number in range(50)]
    start(plant, Narrow, keys, 0.0)
    plant.wait_until_completed(*keys, timeout=WAIT)
    begun = [row[0] for row in plant.fetch(
        "select extract(epoch from at)::float8 from relay_change"
        " where deliveries > deliveries_before and holder like 'worker:%%' order by at")]  # fmt: skip
    assert len(begun) == len(keys)
    spans = [later - first for first, later in zip(begun, begun[RATE:], strict=False)]
    assert min(spans) > PERIOD - 0.02, spans  # a trigger notes it a moment after the time that counts
    assert begun[-1] - begun[0] < 1.5 * PERIOD * len(keys) / RATE, begun


def test_sagas_with_one_key_run_one_at_a_time_in_order(plant: Plant, hands: Hands) -> None:
    """Of each ordering key one step at a time, the sagas in the order of their start, though workers are killed."""
    queues.limit(plant.connection, "narrow", Limits(), actor="ann")
    keys = [f"{line}-{number:02}" for number in range(8) for line in range(LINES)]
    for key in keys:
        start(plant, InOrder, [key], 0.02, ordering_key=f"line-{key[0]}")
    for notes in (8, 24):
        wait_for_notes(plant, notes)
        hands.kill_somebody()
    plant.wait_until_completed(*keys, timeout=WAIT)
    for line in range(LINES):
        order = [row[0] for row in plant.fetch(
            "select key from relay_note where key like %s order by id", f"{line}-%")]  # fmt: skip
        assert order == sorted(order) and len(order) >= 16, order
    assert plant.value("select max(what::int) from relay_note") <= LINES
