"""RabbitMQ confirms what it has; whoever switches that off is told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from kombu import Queue

from sagas_celery.checks import problems
from sagas_celery.messages import CeleryMessages
from sagas_outbox import Message
from sagas_outbox.errors import Refused
from sagas_outbox.publishers import Behind
from tests.relay.rabbit import Rabbit, rabbitmq


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    """Without RabbitMQ these tests are reported as NOT RUN."""
    with rabbitmq(tmp_path_factory.mktemp("rabbit")) as server:
        yield server


def app(broker: str, **options: Any) -> Celery:
    made = Celery("confirms", broker=broker, set_as_current=False)
    made.conf.broker_transport_options = options
    return made


@pytest.mark.parametrize(
    ("broker", "options", "warned"),
    [
        ("amqp://", {}, False),
        ("amqp://", {"confirm_publish": False}, True),
        ("amqp://", {"confirm_publish": True}, False),
        ("redis://", {"socket_timeout": 1, "socket_connect_timeout": 1}, False),
    ],
)
def test_the_system_check(broker: str, options: dict[str, Any], warned: bool) -> None:
    """Of RabbitMQ only, and where confirms are switched off; relays ask for them."""
    found = [problem.id for problem in problems(app(broker, **options))]
    assert ("sagas.W013" in found) == warned


def test_relays_ask_for_confirms(rabbit: Rabbit) -> None:
    """Also where the app does not: messages are there when they count as sent."""
    publisher = CeleryMessages(app(rabbit.url), timeout=10)
    messages = [
        Message(
            id=uuid4(), destination="nobody.knows", body=str(number), key=None, options={}, headers={},
            published_at=datetime.now(UTC),
        )
        for number in range(50)
    ]  # fmt: skip
    assert publisher.send(messages) == [None] * 50
    assert rabbit.depth("celery") == 50
    assert publisher._sender is not None
    confirmed = publisher._sender.do(lambda producer: producer.channel.connection.confirm_publish, 5)
    assert confirmed is True
    publisher.reset()


def test_a_queue_that_is_full_delays_only_its_own(rabbit: Rabbit) -> None:
    """RabbitMQ refuses what it has no room for: no fault of the message, and the others are sent."""
    made = app(rabbit.url)
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    made.conf.task_queues = [Queue("full", queue_arguments=full), Queue("roomy")]
    publisher = CeleryMessages(made, timeout=10)
    outcomes = publisher.send([
        Message(
            id=uuid4(), destination=f"to.{queue}", body="1", key=None, options={"queue": queue}, headers={},
            published_at=datetime.now(UTC),
        )
        for queue in ("full", "roomy", "full", "full", "roomy")
    ])  # fmt: skip
    publisher.reset()
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), Refused, Behind, type(None)]
