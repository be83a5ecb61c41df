"""Relay processes: any number of them, woken after commit, ended in good order."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import monotonic

import psycopg
import pytest
from django.test import override_settings

from sagas.settings import Settings
from sagas.testing.faults import resume, wait_for_hit
from sagas.testing.processes import Process
from sagas_celery.publisher import CeleryPublisher
from sagas_outbox.claims import Held
from sagas_outbox.relay import Relay
from sagas_outbox.wake import NOTIFY
from tests.relay.conftest import PlantMaker
from tests.relay.plant import Plant, everything_else_is_idle, wait_until
from tests.relay.sagas import Single

POLL = 1.0
ROWS = 2000


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    """A worker; each test starts the relays it needs."""
    with new_plant({"POLL": POLL}) as plant:
        plant.worker("quick")
        yield plant


def end(relay: Process) -> None:
    """SIGTERM: it must end in good order."""
    relay.terminate()
    assert relay.wait(15) == 0, relay.output()


def test_two_relays_publish_two_thousand_rows_once(plant: Plant) -> None:
    """No row is begun twice, and next to none is published twice."""
    keys = [f"many-{number}" for number in range(ROWS)]
    mark = plant.mark()
    plant.measured(Single, "act", 0.002)
    relays = [plant.relay(), plant.relay()]
    plant.start(*keys)
    plant.wait_until_completed(*keys, timeout=60)
    begins = plant.begins(mark)
    assert len(begins) == ROWS and set(begins.values()) == {1}
    assert plant.publishes(mark) <= 1.05 * ROWS
    assert plant.value("select count(distinct holder) from relay_change where holder like 'relay:%%'") == 2
    assert plant.value("select count(*) from relay_note where key like 'many-%%'") == ROWS
    for relay in relays:
        end(relay)


def latencies(plant: Plant, name: str, times: int) -> list[float]:
    """Seconds from start to begin, each time when everybody is idle."""
    keys = [f"{name}-{number}" for number in range(times)]
    for key in keys:
        wait_until(lambda: everything_else_is_idle(plant, 0.08), "the relay to be idle")
        plant.start(key)
        plant.wait_until_completed(key)
    found = plant.fetch(
        "select extract(epoch from min(c.at) - s.created_at)::float8 from sagas_saga s"
        " join relay_change c on c.saga_id = s.id and c.holder like 'worker:%%' where s.key = any(%s) group by s.id",
        keys,
    )  # fmt: skip
    return [seconds for (seconds,) in found]


def test_work_is_begun_soon_after_commit(plant: Plant) -> None:
    """The wake-up, and not the next poll, decides when: the median is under a quarter of the poll interval."""
    relay = plant.relay()
    took = latencies(plant, "woken", 15)
    assert median(took) < POLL / 4, took
    end(relay)


@override_settings(SAGAS={"WAKE": False})
@pytest.mark.full
def test_without_wake_ups_the_next_poll_finds_it(plant: Plant) -> None:
    """Polling is the guarantee."""
    relay = plant.relay(WAKE=False)
    took = latencies(plant, "polled", 5)
    assert median(took) < POLL, took
    assert max(took) < 1.5 * POLL, took
    end(relay)


@pytest.mark.parametrize("point", ["relay.after_claim", "relay.after_publish"])
def test_a_relay_that_is_told_to_end_gives_back_what_it_did_not_publish(
    plant: Plant, tmp_path: Path, point: str
) -> None:
    """As if it had not been claimed, and due at once; the next relay goes on with it, and nothing is lost."""
    plant.measured(Single, "act", 0.001)
    together = CeleryPublisher(plant.celery, "default", timeout=5).together()  # it is interrupted between two groups
    published = together if point == "relay.after_publish" else 0
    marker, keys = tmp_path / "marker", [f"{point}-{number}" for number in range(together + 12)]
    mark = plant.mark()
    relay = plant.relay(fault=(f"{point}:pause", marker), MESSAGE_ROWS=1, MESSAGE_WORK=1.0)
    plant.start(*keys)
    wait_for_hit(marker, relay)
    relay.terminate()
    resume(marker)
    assert relay.wait(15) == 0, relay.output()
    plant.wait_until_completed(*keys[:published])
    left = plant.fetch("select holder, publishes, token, due_at <= clock_timestamp() from sagas_outbox")
    assert left == [(None, 0, 0, True)] * (len(keys) - published)
    successor = plant.relay()
    plant.wait_until_completed(*keys)
    assert set(plant.begins(mark).values()) == {1}
    end(successor)


def test_a_relay_killed_between_claim_and_publish_loses_nothing(plant: Plant, tmp_path: Path) -> None:
    """What it claimed is published by another one after the publish window."""
    plant.measured(Single, "act", 0.001)
    marker, keys = tmp_path / "marker", [f"killed-{number}" for number in range(5)]
    relay = plant.relay(fault=("relay.after_claim:kill", marker), PUBLISH_WINDOW=1.5)
    plant.start(*keys)
    wait_for_hit(marker, relay)
    assert relay.wait(10) == -9
    successor = plant.relay()
    plant.wait_until_completed(*keys)
    assert plant.fetch("select distinct attempt from relay_note where key like 'killed-%%'") == [(1,)]
    end(successor)


class Refusing:
    """A publisher whose broker is down; it notes when it was asked."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        self.asked.append(monotonic())
        raise ConnectionRefusedError(queue)

    def reset(self) -> None:
        """Nothing to drop."""


def test_wake_ups_do_not_hurry_a_relay_whose_broker_is_down(plant: Plant) -> None:
    """It tries again after the poll interval, twice that, and so on, however much is started meanwhile."""
    publisher = Refusing()
    relay = Relay(
        lambda: psycopg.connect(plant.url, autocommit=True), publisher, Settings(poll=0.3), paces=lambda _: {}
    )
    thread = threading.Thread(target=relay.run)
    plant.start(*[f"hurried-{number}" for number in range(20)])
    thread.start()
    try:
        wait_until(lambda: plant.connection.execute(NOTIFY) and len(publisher.asked) >= 3, "three tries")
    finally:
        relay.stop()
        thread.join(10)
    first, second, third = publisher.asked[:3]
    assert second - first >= 0.29 and third - second >= 0.59
    assert not thread.is_alive()


def test_a_relay_waits_while_postgres_is_down(plant: Plant) -> None:
    """Also if its last pass published nothing and had more to look at."""
    asked: list[float] = []

    def connect() -> psycopg.Connection:
        asked.append(monotonic())
        raise psycopg.OperationalError("down")

    relay = Relay(connect, Refusing(), Settings(poll=0.2, wake=False), paces=lambda _: {})
    relay._again = True
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        wait_until(lambda: len(asked) >= 5, "three passes, of at most two tries each")
    finally:
        relay.stop()
        thread.join(10)
    assert asked[4] - asked[0] >= 0.39
