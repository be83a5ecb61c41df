"""Waits and signals over a real broker: nothing in it while a saga waits, and nothing depends on it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from sagas import KEEP
from sagas.testing.servers import Redis
from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, Plant, everything_else_is_idle, wait_until
from tests.relay.sagas import Approved


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    """One relay and one worker that serves the queue of the steps only."""
    with new_plant(SHORT) as plant:
        plant.worker("quick")
        plant.relay()
        yield plant


def waits(plant: Plant, *keys: str) -> None:
    """Sagas that have come to their wait."""
    plant.start(*keys, saga=Approved)
    query = "select count(*) from sagas_log l join sagas_saga s on s.id = l.saga_id where s.key = any(%s) and kind = %s"
    wait_until(lambda: plant.value(query, list(keys), "waiting") == len(keys), "the wait to be reached")


def send(plant: Plant, key: str, value: str = "yes", **options: object) -> None:
    with psycopg.connect(plant.url) as sender:
        assert Approved.approval.send(value, key=key, using=sender, **options)  # type: ignore[arg-type]


def said(plant: Plant, key: str) -> list[str]:
    """What the bodies of a saga have noted."""
    return [what for (what,) in plant.fetch("select what from relay_note where key = %s order by id", key)]


def kinds(plant: Plant, key: str) -> list[str]:
    return [kind for kind, _ in plant.attempts(key)]


def test_a_saga_that_waits_has_no_message_and_no_holder(plant: Plant, own_redis: Redis) -> None:
    """It is a row that is due in an hour; the broker is empty, and relay and worker ask for no more than before."""
    waits(plant, "idle")
    wait_until(lambda: everything_else_is_idle(plant, 0.1), "everybody to be idle")
    assert plant.row("idle") == ("", 0, plant.row("idle")[2])
    assert plant.celery.connection().default_channel.client.llen("quick") == 0
    mark = plant.mark()
    wait_until(lambda: everything_else_is_idle(plant, 0.15), "another round")
    assert plant.publishes(mark) == 0 and plant.begins(mark) == {}
    send(plant, "idle")
    plant.wait_until_completed("idle")
    assert said(plant, "idle") == ["prepare", "yes"]


def test_a_redis_that_forgets_everything_loses_no_signal(plant: Plant, own_redis: Redis) -> None:
    """The signal is a row: the relay publishes it again, and whoever comes twice changes nothing."""
    keys = [f"wiped-{number}" for number in range(10)]
    waits(plant, *keys)
    for key in keys:
        send(plant, key)
        own_redis.flushall()
    plant.wait_until_completed(*keys)
    assert {key: said(plant, key) for key in keys} == {key: ["prepare", "yes"] for key in keys}
    assert {key: kinds(plant, key).count("signalled") for key in keys} == dict.fromkeys(keys, 1)
    assert plant.value("select count(*) from sagas_outbox") == 0


def test_a_signal_that_was_kept_for_its_saga(plant: Plant) -> None:
    """Sent before there is one; published, put off, and applied once there is."""
    send(plant, "kept", "early", missing=KEEP)
    wait_until(lambda: plant.value("select count(*) from sagas_outbox where kind = 'signal' and token > 0") == 1,
               "the signal to be looked at")  # fmt: skip
    plant.start("kept", saga=Approved)
    plant.wait_until_completed("kept")
    assert said(plant, "kept") == ["prepare", "early"]


def test_signals_arrive_in_order_over_several_processes(plant: Plant) -> None:
    """Ten in one transaction, two worker processes: the log has them in the order they were sent."""
    waits(plant, "order")
    with psycopg.connect(plant.url) as sender:
        for number in range(10):
            Approved.approval.send(str(number), key="order", using=sender)
    plant.wait_until_completed("order")
    assert said(plant, "order") == ["prepare", "0"]
    wait_until(lambda: plant.value("select count(*) from sagas_outbox") == 0, "the others to be dropped")
    arrived = plant.fetch(
        "select data->>'result' from sagas_log l join sagas_saga s on s.id = l.saga_id"
        " where s.key = 'order' and kind = 'signalled' order by l.seq"
    )
    assert arrived == [(str(number),) for number in range(len(arrived))]
