"""Publishing is bounded in time and leaves nothing behind, whatever the broker does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from celery import Celery

from sagas.testing.servers import Redis
from sagas_celery.publisher import CeleryPublisher
from tests.relay.plant import wait_until

BOUND = 1.0


def senders() -> int:
    return sum(thread.name == "sagas-publish" for thread in threading.enumerate())


@pytest.fixture
def closed_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where somebody accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def publish(url: str) -> float:
    """Publish where it cannot work; returns how long it took."""
    app = Celery("tests.relay.outsider", broker=url, set_as_current=False)
    publisher = CeleryPublisher(app, "default", timeout=BOUND)
    began = time.monotonic()
    with pytest.raises(Exception):  # noqa: B017, PT011 - the client's, whichever
        publisher.publish("quick", [(1, 0)])
    publisher.reset()
    return time.monotonic() - began


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_is_down(scheme: str, closed_port: int) -> None:
    """An error within the bound; the thread that tried ends, and does not go on trying for days."""
    before = senders()
    assert publish(f"{scheme}://127.0.0.1:{closed_port}//") < BOUND + 1
    wait_until(lambda: senders() <= before, "the publishing thread to end", timeout=10)


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_never_answers(scheme: str, silent_port: int) -> None:
    """The same, however long the client itself would wait."""
    before = senders()
    assert publish(f"{scheme}://127.0.0.1:{silent_port}//") < BOUND + 1
    wait_until(lambda: senders() <= before, "the publishing thread to end", timeout=15)


def test_steps_that_name_no_queue_go_to_the_apps_default_queue(own_redis: Redis) -> None:
    """The worker that a project already runs, without any -Q, serves them."""
    app = Celery("project", broker=own_redis.url)
    publisher = CeleryPublisher(app, "default", timeout=5)
    publisher.publish("default", [(1, 0)])
    publisher.publish("payments", [(2, 0)])
    publisher.reset()
    assert [own_redis.command("LLEN", queue).lstrip(":").strip() for queue in ("celery", "payments", "default")] == [
        "1", "1", "0"
    ]  # fmt: skip
