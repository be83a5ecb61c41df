"""What the relay puts into the broker. The relay runs in this process; the broker is a real Redis, and nobody takes
the messages out but the test."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from celery import Celery

from sagas.settings import Settings
from sagas.store.rows import paces
from sagas.testing.servers import Redis
from sagas_celery.publisher import CeleryPublisher
from sagas_outbox.relay import Relay
from tests.relay.conftest import PlantMaker
from tests.relay.plant import Plant, wait_until
from tests.relay.sagas import OTHER_QUEUE, Hop, Job, Single
from tests.support.attentive import attentive


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message as it lies in Redis."""

    headers: dict[str, Any]
    body: bytes
    size: int  # in Redis

    @property
    def arguments(self) -> dict[str, Any]:
        kwargs: dict[str, Any] = json.loads(self.body)[1]
        return kwargs

    @property
    def rows(self) -> list[list[int]]:
        rows: list[list[int]] = self.arguments["rows"]
        return rows


@pytest.fixture(scope="module")
def yard(new_plant: PlantMaker) -> Iterator[Plant]:
    with new_plant() as plant:
        yield plant


@pytest.fixture
def plant(yard: Plant, own_redis: Redis) -> Plant:
    """A plant without processes, its outbox empty and its broker too."""
    yard.connection.execute("truncate sagas_outbox, sagas_pace")
    own_redis.flushall()
    return yard


@pytest.fixture
def relay(plant: Plant) -> Iterator[Relay]:
    with _relay(plant) as made:
        yield made


class _relay:
    """A relay in this process, driven pass by pass."""

    def __init__(self, plant: Plant, app: Celery | None = None, **settings: Any) -> None:
        self.publisher = CeleryPublisher(app or plant.celery, "default", timeout=2.0)
        chosen = Settings(**({"publish_timeout": 2.0} | settings))
        self.relay = attentive(
            Relay(lambda: psycopg.connect(plant.url, autocommit=True), self.publisher, chosen, paces=paces)
        )

    def __enter__(self) -> Relay:
        return self.relay

    def __exit__(self, *_: object) -> None:
        self.publisher.reset()
        self.relay._link.close()


def messages(redis: Redis, queue: str = "quick") -> list[Message]:
    """The messages in a queue, oldest first."""
    import redis as client  # Celery's

    with client.Redis(host=redis.host, port=redis.port) as connection:
        found = [(json.loads(raw), len(raw)) for raw in reversed(connection.lrange(queue, 0, -1))]
    return [
        Message(headers=each["headers"], body=base64.b64decode(each["body"]), size=size) for each, size in found
    ]  # fmt: skip


def keys(count: int, name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


def publish_all(relay: Relay) -> None:
    """Pass after pass until nothing is published any more; bounded by the window."""
    while relay.run_once():
        pass


@pytest.mark.parametrize(("seconds", "rows"), [(0.001, [40]), (0.01, [5] * 8), (0.2, [1] * 40)])
def test_a_message_carries_about_fifty_milliseconds_of_work(
    plant: Plant, relay: Relay, own_redis: Redis, seconds: float, rows: list[int]
) -> None:
    """Tiny steps share a message, slow steps get one each, by what workers measured."""
    plant.measured(Single, "act", seconds)
    plant.start(*keys(40, f"sized-{seconds}"))
    publish_all(relay)
    assert [len(message.rows) for message in messages(own_redis)] == rows


def test_a_message_never_carries_more_than_its_most_rows(plant: Plant, own_redis: Redis) -> None:
    """Steps that take next to no time do not make a message of unbounded size."""
    plant.measured(Single, "act", 1e-6)
    plant.start(*keys(45, "most"))
    with _relay(plant, message_rows=10) as relay:
        publish_all(relay)
    assert [len(message.rows) for message in messages(own_redis)] == [10, 10, 10, 10, 5]


def test_a_step_that_nobody_measured_travels_alone(plant: Plant, relay: Relay, own_redis: Redis) -> None:
    """It may take any time: its neighbours do not wait behind it."""
    plant.start(*keys(7, "unmeasured"))
    publish_all(relay)
    assert [len(message.rows) for message in messages(own_redis)] == [1] * 7


def test_a_redis_that_is_full_costs_a_row_nothing(plant: Plant, relay: Relay, own_redis: Redis) -> None:
    """It stays due, as if nobody had tried, and is published once there is room."""
    plant.start("full")
    own_redis.command("CONFIG", "SET", "maxmemory", "1")
    try:
        for _ in range(3):
            plant.connection.execute("update sagas_outbox set due_at = clock_timestamp()")
            assert relay.run_once() == 0
    finally:
        own_redis.command("CONFIG", "SET", "maxmemory", "0")
    assert plant.fetch("select holder, publishes, deliveries from sagas_outbox") == [(None, 0, 0)]
    plant.connection.execute("update sagas_outbox set due_at = clock_timestamp()")
    assert relay.run_once() == 1


def test_a_begun_row_travels_alone_and_under_a_new_token(plant: Plant, relay: Relay, own_redis: Redis) -> None:
    """It may kill its worker again, and whoever held it is fenced off. A row never begun keeps its token."""
    plant.measured(Single, "act", 0.001)
    plant.start(*keys(6, "begun"))
    plant.connection.execute(
        "update sagas_outbox set deliveries = 1, holder = 'worker:gone', token = 1"
        " where id in (select id from sagas_outbox order by id limit 2)"
    )  # fmt: skip
    publish_all(relay)
    found = sorted((message.rows for message in messages(own_redis)), key=len)
    assert [len(rows) for rows in found] == [1, 1, 4]
    assert [token for rows in found for _, token in rows] == [2, 2, 0, 0, 0, 0]


def test_a_message_is_an_id_and_a_token_for_each_row(plant: Plant, relay: Relay, own_redis: Redis) -> None:
    """Nothing else: no eta, no countdown, no expiry, which a worker would hold against its own clock."""
    plant.start("plain")
    publish_all(relay)
    (message,) = messages(own_redis)
    (row,) = plant.fetch("select id, token from sagas_outbox")
    assert message.arguments == {"v": 1, "store": "default", "rows": [list(row)]}
    assert json.loads(message.body)[0] == []
    assert message.headers["task"] == "sagas.run"
    assert [message.headers[name] for name in ("eta", "expires", "timelimit", "group")] == [
        None,
        None,
        [None, None],
        None,
    ]


def test_a_message_has_the_same_size_whatever_the_payload(plant: Plant, relay: Relay, own_redis: Redis) -> None:
    """A saga of 500 kB travels as ten bytes."""
    plant.start("light")
    publish_all(relay)
    plant.start("heavy", job=Job(ballast="x" * 500_000))
    publish_all(relay)
    light, heavy = messages(own_redis)
    assert abs(heavy.size - light.size) < 20


def test_queues_of_steps_are_queues_of_celery(plant: Plant, relay: Relay, own_redis: Redis) -> None:
    """Names are taken as they are; a row that moved on to another queue is published there."""
    plant.start("queued", saga=Hop)
    publish_all(relay)
    assert len(messages(own_redis)) == 1
    plant.connection.execute("update sagas_outbox set queue = %s, holder = null, due_at = now()", [OTHER_QUEUE])
    wait_until(relay.run_once, "the row in its new queue", timeout=1.0)
    assert len(messages(own_redis, OTHER_QUEUE)) == 1


def test_a_backlog_waits_in_postgres(plant: Plant, own_redis: Redis) -> None:
    """Without workers a relay publishes a window of rows and no more, however many are due."""
    plant.measured(Single, "act", 0.001)
    plant.start(*keys(300, "backlog"))
    with _relay(plant, in_flight=60) as relay:
        publish_all(relay)
        for _ in range(5):
            assert relay.run_once() == 0
    under_way = sum(len(message.rows) for message in messages(own_redis))
    assert 20 <= under_way <= 60
    (holders,) = plant.fetch("select count(*) from sagas_outbox where holder is not null")
    assert holders == (under_way,)


def test_a_window_of_one_queue_leaves_others_alone(plant: Plant, own_redis: Redis) -> None:
    """Workers of one queue that stand still hold nobody else up."""
    plant.start(*keys(80, "full"))
    with _relay(plant, in_flight=20) as relay:
        publish_all(relay)
        plant.start("queued-too", saga=Hop)
        plant.connection.execute("update sagas_outbox set queue = %s where step = 'first'", [OTHER_QUEUE])
        wait_until(relay.run_once, "the row of the other queue", timeout=5.0)
    assert len(messages(own_redis, OTHER_QUEUE)) == 1


def test_a_row_that_nobody_begins_is_published_again(plant: Plant, own_redis: Redis) -> None:
    """Under the same token, so that a message that was only slow still begins it; the window doubles each time."""
    plant.start("slow")
    with _relay(plant, publish_window=0.2) as relay:
        assert relay.run_once() == 1
        windows = []
        for publishes in (1, 2, 3):
            plant.connection.execute(
                "update sagas_outbox set due_at = clock_timestamp() where publishes = %s", [publishes]
            )
            assert relay.run_once() == 1
            windows.append(
                plant.value("select extract(epoch from due_at - clock_timestamp())::float8 from sagas_outbox")
            )  # fmt: skip
    assert len({tuple(message.rows[0]) for message in messages(own_redis)}) == 1
    assert windows == [pytest.approx(0.2 * 2**times, abs=0.15) for times in (1, 2, 3)]


def test_work_in_a_queue_that_was_empty_is_found_at_once(plant: Plant, relay: Relay) -> None:
    """In one that no relay has ever seen as soon as looking everywhere is cheap enough."""
    assert relay.run_once() == 0
    plant.start("first-ever")
    wait_until(relay.run_once, "the first row of a queue", timeout=1.0)
    plant.connection.execute("truncate sagas_outbox")
    relay._marks.full_scan_at = relay._marks.idle_scan_at = 0.0
    assert relay.run_once() == 0
    plant.start("again")
    assert relay.run_once() == 1


def test_work_is_found_beside_rows_that_are_due_much_later(plant: Plant, relay: Relay) -> None:
    """Leases, timers and retries do not hide what is due now."""
    plant.start("later")
    plant.connection.execute("update sagas_outbox set due_at = clock_timestamp() + interval '1 hour'")
    assert relay.run_once() == 0
    plant.start("now")
    assert relay.run_once() == 1


def test_a_queue_that_celery_does_not_know_holds_no_other_up(plant: Plant, own_redis: Redis) -> None:
    """Where the project lists its queues, a step may name one that is missing: its rows wait, and only they."""
    plant.start("misplaced", saga=Hop)
    plant.connection.execute("update sagas_outbox set queue = 'misspelt'")
    plant.start("placed")
    listed = Celery(broker=plant.broker, set_as_current=False)
    listed.conf.update(task_create_missing_queues=False, task_queues={"quick": {}})
    with _relay(plant, app=listed) as relay:
        wait_until(relay.run_once, "the row in a known queue", timeout=5.0)
    assert len(messages(own_redis)) == 1
    assert plant.fetch("select holder, token, deliveries from sagas_outbox where queue = 'misspelt'") == [(None, 0, 0)]
