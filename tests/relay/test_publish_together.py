"""Messages that are published together: fewer round trips, and each row is treated as if its message went alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from amqp.exceptions import MessageNacked
from celery import Celery

from sagas.settings import Settings
from sagas.testing.servers import Redis
from sagas_celery.publisher import TOGETHER, CeleryPublisher
from sagas_outbox.claims import Held
from sagas_outbox.relay import Addressed, Relay, UnknownQueue
from tests.relay.conftest import PlantMaker
from tests.relay.plant import Plant
from tests.relay.sagas import Single

MANY = 30


class Broker:
    """Takes up to ten messages at once, and none about a queue that it does not know."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.stop: Callable[[], object] = dict
        self.down = False
        self.refused: set[str] = set()  # queues; what is published together with them is not taken either
        self.slow = False  # and that takes as long as a relay waits

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        raise AssertionError("one at a time")

    def together(self) -> int:
        return 10

    def publish_all(self, messages: Sequence[Addressed]) -> Sequence[UnknownQueue | None]:
        if self.down and self.groups:
            raise ConnectionError("down")
        if self.refused.intersection(queue for queue, _, _ in messages):
            self.groups.append([])
            raise TimeoutError("no answer") if self.slow else ConnectionError("holding the wrong kind of value")
        self.groups.append([queue for queue, _, _ in messages])
        self.stop()
        return [UnknownQueue(queue) if queue == "misspelt" else None for queue, _, _ in messages]

    def reset(self) -> None:
        """Nothing to drop."""


@pytest.fixture(scope="module")
def yard(new_plant: PlantMaker) -> Iterator[Plant]:
    """A plant without processes: the relays of these tests are here."""
    with new_plant() as plant:
        yield plant


@pytest.fixture
def plant(yard: Plant) -> Plant:
    """The same, its outbox empty."""
    yard.connection.execute("truncate sagas_outbox")
    return yard


def short(_: psycopg.Connection) -> Mapping[tuple[str, str, str], float]:
    return {(Single.saga_name, step.name, "do"): 0.001 for step in Single.steps}


def pass_again(plant: Plant, relay: Relay) -> int:
    """One more pass, for which what was published is begun, and what was given back is due."""
    plant.connection.execute("update sagas_outbox set token = token + 1, holder = 'worker' where holder is not null")
    plant.connection.execute("update sagas_outbox set due_at = clock_timestamp() where holder is null")
    return relay.run_once()


@contextmanager
def due(plant: Plant, *, misspelt: int = 0, poll: float = 1.0) -> Iterator[tuple[Broker, Relay]]:
    """Some rows that are due, of which some name a queue that there is not, and a relay of one row a message."""
    for number in range(MANY):
        plant.start(f"{uuid4()}-{number}")
    plant.connection.execute(
        "update sagas_outbox set queue = 'misspelt' where id in (select id from sagas_outbox limit %s)", [misspelt]
    )
    broker = Broker()
    settings = Settings(
        poll=poll, message_rows=1, message_work=1.0, publish_window=60.0
    )  # room for all of them at once
    with psycopg.connect(plant.url, autocommit=True) as connection:
        yield broker, Relay(lambda: connection, broker, settings, paces=short)


def waiting(plant: Plant) -> int:
    """Rows that no relay holds."""
    ((many,),) = plant.fetch("select count(*) from sagas_outbox where holder is null")
    return int(many)


def test_no_more_than_the_publisher_takes_at_once(plant: Plant) -> None:
    """Thirty messages of one row are handed over by tens."""
    with due(plant) as (broker, relay):
        assert relay.run_once() == MANY
        assert [len(group) for group in broker.groups] == [10, 10, 10]
        assert waiting(plant) == 0


def test_only_the_rows_of_a_missing_queue_wait(plant: Plant) -> None:
    """What cannot be published is given back, whatever was published together with it."""
    with due(plant, misspelt=3) as (broker, relay):
        assert relay.run_once() == MANY - 3
        assert waiting(plant) == 3
        assert sum(group.count("misspelt") for group in broker.groups) == 3


def test_a_relay_that_is_to_end_looks_up_between_groups(plant: Plant) -> None:
    """What it has claimed and not handed over yet is due again at once."""
    with due(plant) as (broker, relay):
        broker.stop = relay.stop
        assert relay.run_once() == 10
        assert waiting(plant) == MANY - 10


def test_a_group_that_the_broker_does_not_take_stays_due(plant: Plant) -> None:
    """The groups before it are published, its rows and those after it are given back."""
    with due(plant) as (broker, relay):
        broker.down = True
        assert relay.run_once() == 10
        assert waiting(plant) == MANY - 10


@pytest.mark.parametrize("refused", [1, 2])
def test_a_queue_that_is_refused_does_not_stop_the_others(plant: Plant, refused: int) -> None:
    """Nobody says which of a group it was: each is tried alone, and those in doubt come last from then on."""
    with due(plant, misspelt=2 * refused) as (broker, relay):
        broker.refused = {f"misspelt-{number}" for number in range(refused)}
        plant.connection.execute(
            "update sagas_outbox set queue = 'misspelt-' || id %% %s where queue = 'misspelt'", [refused]
        )
        assert relay.run_once() == 0
        assert sum(pass_again(plant, relay) for _ in range(refused + 4)) == MANY - 2 * refused
        ((quick,),) = plant.fetch("select count(*) from sagas_outbox where holder is null and queue = 'quick'")
        assert (quick, waiting(plant)) == (0, 2 * refused)


def test_a_queue_that_is_slow_to_refuse_is_asked_once_in_a_pass(plant: Plant) -> None:
    """Each would cost the time that a relay waits for the broker."""
    with due(plant, misspelt=2) as (broker, relay):
        broker.refused, broker.slow = {"misspelt"}, True
        for _ in range(4):
            before = len(broker.groups)
            pass_again(plant, relay)
            assert broker.groups[before:].count([]) <= 1


def refuse(app: Celery, queues: dict[str, Exception]) -> list[str]:
    """Let an app's messages to these queues fail, as its client would; returns the queues of those that failed."""
    send, failed = app.amqp.send_task_message, list[str]()

    def sends(producer: Any, name: str, made: Any, *, queue: Any, **options: Any) -> None:
        if queue.name in queues:
            failed.append(queue.name)
            raise queues[queue.name]
        send(producer, name, made, queue=queue, **options)

    app.amqp.send_task_message = sends
    return failed


def test_a_queue_that_is_full_is_no_broken_broker(plant: Plant, caplog: pytest.LogCaptureFixture) -> None:
    """RabbitMQ refuses what one queue has no room for: only its rows wait, and the relay does not pause."""
    app = Celery(broker="memory://full", set_as_current=False)
    refuse(app, {"misspelt": MessageNacked()})
    publisher = CeleryPublisher(app, "default", timeout=5)
    with due(plant, misspelt=3) as (_, relay):
        relay._publisher = relay._many = publisher
        assert relay.run_once() == MANY - 3
        pass_again(plant, relay)
    publisher.reset()
    assert (relay._failures, relay._presence.trouble, waiting(plant)) == (0, "", 3)
    assert "queue 'misspelt' cannot be published to" in caplog.text and "is the queue full?" in caplog.text


@pytest.mark.parametrize(
    ("problem", "tries"),
    [(MessageNacked(), 1), (ConnectionError("wrong kind"), 2)],  # the other one might be that of a broker that is down
    ids=["full", "broken"],
)
def test_a_queue_that_is_refused_is_tried_once_in_a_while(
    plant: Plant, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, problem: Exception, tries: int
) -> None:
    """With one message, however many wait for it; they go out when it takes one."""
    app, refused = Celery(broker="memory://refused", set_as_current=False), {"misspelt": problem}
    failed = refuse(app, refused)
    publisher = CeleryPublisher(app, "default", timeout=5)
    with due(plant, misspelt=MANY - 5, poll=60.0) as (_, relay):
        relay._publisher = relay._many = publisher
        assert sum(pass_again(plant, relay) for _ in range(4)) == 5
        assert len(failed) == tries
        assert caplog.text.count("queue 'misspelt' cannot be published to now") == 1
        refused.clear()
        monkeypatch.setattr("sagas_outbox.relay.time", SimpleNamespace(monotonic=lambda: time.monotonic() + 60.0))
        assert [pass_again(plant, relay), pass_again(plant, relay)] == [1, MANY - 6]
    publisher.reset()


def test_an_unknown_compression_is_called_by_its_name(own_redis: Redis) -> None:
    """The client has it among its connection errors, but the broker is well."""
    app = Celery(broker=own_redis.url, set_as_current=False)
    app.conf.task_compression = "nope"
    publisher = CeleryPublisher(app, "default", timeout=5)
    with pytest.raises(KeyError, match="nope"):
        publisher.publish("quick", [(1, 0)])
    publisher.reset()


def test_celery_takes_them_in_one_round_trip(own_redis: Redis) -> None:
    """In their order, each in its queue; one that the app does not list comes back with the reason."""
    app = Celery(broker=own_redis.url, set_as_current=False)
    app.conf.update(task_create_missing_queues=False, task_queues={"quick": {}, "slow": {}})
    publisher = CeleryPublisher(app, "default", timeout=5)
    assert publisher.together() in (1, TOGETHER)
    queues = ("quick", "misspelt", "slow", "quick")
    problems = publisher.publish_all([(queue, [(number, 0)], {}) for number, queue in enumerate(queues)])
    publisher.reset()
    assert [problem is None for problem in problems] == [True, False, True, True]
    assert [own_redis.command("LLEN", queue).lstrip(":").strip() for queue in queues] == ["2", "0", "1", "2"]


def test_a_broker_that_ends_between_two_groups(own_redis: Redis) -> None:
    """The error is the one that a message which travels alone would bring, and says which broker it is."""
    app = Celery(broker=own_redis.url, set_as_current=False)
    publisher = CeleryPublisher(app, "default", timeout=5)
    messages: list[Addressed] = [("quick", [(number, 0)], {}) for number in range(5)]
    publisher.publish_all(messages)
    own_redis.kill()
    try:
        with pytest.raises(ConnectionError, match="is it running"):
            publisher.publish_all(messages)
    finally:
        own_redis.restart()
        publisher.reset()


@pytest.mark.parametrize(
    ("broker", "options"),
    [("amqp://guest@localhost//", {}), ("memory://", {}), ("redis://localhost", {"retry_on_timeout": True})],
)
def test_brokers_that_answer_for_each_are_asked_one_by_one(broker: str, options: dict[str, bool]) -> None:
    """The bound of one publish would not last for many. What a client tries again by itself never goes in one trip."""
    app = Celery(broker=broker, set_as_current=False)
    app.conf.broker_transport_options = options
    assert CeleryPublisher(app, "default", timeout=5).together() == 1
