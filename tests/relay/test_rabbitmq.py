"""Sagas over RabbitMQ, where it is installed: the same promises, and the broker confirms what it has taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from kombu import Queue

from sagas.testing.proxy import BlackHole, Pass, Proxy
from sagas_celery.publisher import CeleryPublisher
from sagas_outbox.relay import UnknownQueue
from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, Plant, wait_until
from tests.relay.rabbit import Rabbit, rabbitmq
from tests.relay.sagas import OTHER_QUEUE, Hop


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    """One for all of these tests; without RabbitMQ they are reported as NOT RUN."""
    with rabbitmq(tmp_path_factory.mktemp("rabbit")) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(rabbit: Rabbit) -> Iterator[Proxy]:
    """Between the relay and RabbitMQ; the worker talks to it directly."""
    with Proxy("127.0.0.1", rabbit.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker, rabbit: Rabbit, proxy: Proxy) -> Iterator[Plant]:
    """A relay behind the proxy, and a worker."""
    with new_plant(SHORT, broker=rabbit.url) as plant:
        plant.worker(f"quick,{OTHER_QUEUE}")
        plant.relay(broker=f"amqp://guest:guest@127.0.0.1:{proxy.port}//")
        yield plant


def test_sagas_run_over_rabbitmq(plant: Plant, rabbit: Rabbit) -> None:
    """Steps of two queues; each is begun once, and nothing is left in the broker."""
    mark, keys = plant.mark(), [f"hop-{number}" for number in range(40)]
    plant.start(*keys, saga=Hop)
    plant.wait_until_completed(*keys)
    assert {key: [what for what, *_ in plant.notes(key)] for key in keys} == {
        key: ["first", "second", "third"] for key in keys
    }  # fmt: skip
    assert set(plant.begins(mark).values()) <= {1, 2, 3}
    wait_until(lambda: rabbit.depth("quick") == 0, "an empty queue")


def test_a_rabbitmq_that_does_not_answer_loses_nothing(plant: Plant, proxy: Proxy) -> None:
    """Publishing is given up in time; when it answers again everything is done, once."""
    proxy.fault = BlackHole()
    keys = [f"silent-{number}" for number in range(5)]
    plant.start(*keys)
    relay = next(each for each in plant.processes.processes if each.name == "relay")
    wait_until(lambda: "its rows stay due" in relay.output(), "a publish that was given up")
    proxy.fault = Pass()
    plant.wait_until_completed(*keys)
    assert plant.value("select count(*) from relay_note where key like 'silent-%%'") == len(keys)


def test_what_rabbitmq_refuses_was_not_published(rabbit: Rabbit) -> None:
    """It confirms what it takes: a queue that is full says so, and the relay keeps the row."""
    app = Celery("refused", broker=rabbit.url, set_as_current=False)
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    app.conf.task_queues = [Queue("full", queue_arguments=full)]
    publisher = CeleryPublisher(app, "default", timeout=10)
    try:
        publisher.publish("full", [(1, 0)])
        with pytest.raises(UnknownQueue, match="is the queue full"):
            publisher.publish("full", [(2, 0)])
    finally:
        publisher.reset()
        app.close()


def test_the_tests_know_where_rabbitmq_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are not counted as passed there, and say why."""
    monkeypatch.setattr("tests.relay.rabbit.FOLDERS", (tmp_path,))
    with pytest.raises(pytest.skip.Exception, match="NOT RUN: no RabbitMQ"), rabbitmq(tmp_path):
        raise AssertionError("there is none")
