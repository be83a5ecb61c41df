"""Messages to Celery tasks, with relays and workers that are real processes."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import redis as client
from celery import Celery
from django.db import transaction
from pytest_django.plugin import DjangoDbBlocker

from sagas.settings import Settings
from sagas.testing.faults import wait_for_hit
from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Redis, redis
from sagas_celery import drop_in
from sagas_celery.drop_in import make_transactional, publishing_on
from sagas_celery.messages import CeleryMessages
from sagas_outbox import Message, NewMessage, Routes, Unreachable, publish, publish_many
from sagas_outbox.messenger import Messenger
from sagas_outbox.redis_stream import RedisStreamPublisher
from tests.messages.mill import Mill
from tests.messages.post import PATIENCE, deliver, wait_until

PLAIN, ONCE = "tests.messages.tasks.plain", "tests.messages.tasks.once"


@pytest.fixture(scope="module")
def broker() -> Iterator[Redis]:
    """A Redis that may be emptied."""
    with redis(private=True) as server:
        yield server


@pytest.fixture
def mill(
    fresh_database: str, broker: Redis, process_group: ProcessGroup, django_db_blocker: DjangoDbBlocker
) -> Iterator[Mill]:
    """A database of this test's own, and an empty broker."""
    broker.flushall()
    made = Mill(fresh_database, broker.url, process_group)
    with django_db_blocker.unblock():
        yield made
    made.connection.close()


def test_from_a_transaction_to_a_task(mill: Mill) -> None:
    """Arguments, headers, the id and the queue arrive as published; what is rolled back never does."""
    mill.relay()
    mill.worker()
    with mill.alias() as alias:
        publish(PLAIN, {"gone": True}, using=alias)
        transaction.set_rollback(True, using=alias)
    with mill.alias() as alias:
        named = publish(PLAIN, {"order": 7}, using=alias, headers={"traceparent": "00-1-2-01"})
        listed = publish(PLAIN, [1, "two"], queue="apart", using=alias)
        single = publish(PLAIN, 5, using=alias, due_at=timedelta(seconds=0.2))
    wait_until(lambda: len(mill.notes("plain")) >= 3, "three calls")
    assert dict(mill.notes("plain")) == {
        str(named): [[], {"order": 7}, "00-1-2-01"], str(listed): [[1, "two"], {}, None], str(single): [[5], {}, None]
    }  # fmt: skip
    wait_until(lambda: mill.waiting() == 0, "the table to be empty")


def test_a_destination_that_is_broken_delays_only_itself(mill: Mill) -> None:
    """The app has no such queue: its messages are tried again, and all others are sent."""
    mill.relay()
    mill.worker()
    with mill.alias() as alias:
        for number in range(20):
            publish("tests.messages.tasks.nowhere", [number], using=alias)
            publish(PLAIN, [number], using=alias)
    wait_until(lambda: len(mill.notes("plain")) >= 20, "twenty calls")
    wait_until(lambda: mill.waiting() == 20, "the twenty others to be alone")
    assert mill.connection.execute("select count(*) from sagas_message where error like 'QueueNotFound%'").fetchone()


@pytest.mark.parametrize("point", ["messages.after_claim", "messages.after_send"])
def test_a_relay_is_killed(mill: Mill, tmp_path: Path, point: str) -> None:
    """Nothing is lost: another one sends it when the lease ends; and through the inbox each counts once."""
    mill.worker()
    marker = tmp_path / "killed"
    first = mill.relay(fault=(f"{point}:kill", marker))
    with mill.alias() as alias:
        for number in range(30):
            publish(ONCE, [number], using=alias, ordering_key="k")
    wait_for_hit(marker, first)
    assert first.wait(30) == -signal.SIGKILL
    mill.relay()
    wait_until(lambda: mill.waiting() == 0, "all to be sent")
    wait_until(lambda: len(mill.notes("once")) >= 30, "all to be handled")
    assert [what for _, what in mill.notes("once")] == list(range(30))


def test_order_holds_across_two_relays_a_kill_and_a_redelivery(mill: Mill, tmp_path: Path) -> None:
    """One worker that handles one after the other: first calls of a key come in the order of publishing."""
    mill.worker()
    marker = tmp_path / "killed"
    doomed = mill.relay(fault=("messages.after_send#3:kill", marker))
    mill.relay()

    def batch(start: int) -> None:
        with mill.alias() as alias:
            for number in range(start, start + 50):
                publish(PLAIN, [number], using=alias, ordering_key=f"key-{number % 3}")

    start = 0
    while doomed.poll() is None:
        batch(start)
        start += 50
        wait_until(lambda: mill.waiting() < 50 or doomed.poll() is not None, "the relays to go on")
    wait_until(lambda: mill.waiting() == 0, "all to be sent")
    seen: dict[int, None] = {}

    def all_seen() -> bool:
        seen.clear()
        seen.update((what[0][0], None) for _, what in mill.notes("plain"))
        return len(seen) == start

    wait_until(all_seen, "all to be handled")
    wait_until(lambda: len(mill.notes("plain")) > start, "what was sent before the kill to come twice")
    for key in range(3):
        of_key = [number for number in seen if number % 3 == key]
        assert of_key == sorted(of_key)


def test_a_handler_that_raises_leaves_nothing_and_is_called_again(mill: Mill) -> None:
    """Its writes and the note that it took the message go together; Celery retries, and the third time counts."""
    mill.relay()
    mill.worker()
    with mill.alias() as alias:
        id = publish(ONCE, {"number": 1, "fails": 2}, using=alias)
    wait_until(lambda: mill.notes("once"), "the handler to succeed")
    assert [what for _, what in mill.notes("once")] == [1]
    assert mill.connection.execute("select last_value from tries").fetchone() == (3,)
    assert mill.connection.execute("select message_id, handler from sagas_inbox").fetchall() == [(str(id), "once")]


def test_a_stream_of_redis(mill: Mill, broker: Redis) -> None:
    """A publisher of the project's own, in order, with payload, key and headers."""
    mill.relay()
    with mill.alias() as alias:
        ids = [
            publish("redis:orders", {"n": number}, using=alias, ordering_key="k", headers={"traceparent": "t"})
            for number in range(40)
        ]
    wait_until(lambda: mill.waiting() == 0, "all to be sent")
    with client.Redis.from_url(broker.url, decode_responses=True) as wire:
        entries: list[Any] = wire.xrange("orders")  # type: ignore[assignment]
    assert [fields["id"] for _, fields in entries] == [str(id) for id in ids]
    assert entries[3][1] | {"published_at": ""} == {
        "id": str(ids[3]), "payload": '{"n": 3}', "published_at": "", "key": "k", "header:traceparent": "t"
    }  # fmt: skip


def test_tasks_that_were_chosen_in_the_settings(mill: Mill) -> None:
    """`delay()` in a transaction is sent after its commit only; a retry of the task goes on as ever, under its id."""
    mill.relay()
    mill.worker()
    with mill.alias() as alias:
        publish("tests.messages.tasks.calls", [1, True], using=alias)
        publish("tests.messages.tasks.calls", [2], using=alias)
    wait_until(lambda: len(mill.notes("drop_in")) >= 2, "the call and its retry")
    (first, what), (second, again) = mill.notes("drop_in")
    assert first == second and what == again == [[2], {"again": True}]


def test_a_call_that_was_published_arrives_as_celery_brings_it(mill: Mill) -> None:
    """Headers: nested, as Sentry's integration adds them, numbers and moments too. Arguments: of the same types."""
    headers = {"a": "b", "headers": {"a": "b"}, "n": 1.5, "when": datetime(2026, 1, 2, tzinfo=UTC)}
    args = (
        Decimal("12.50"),
        uuid4(),
        datetime(2026, 1, 2, 3, tzinfo=UTC),
        date(2026, 1, 2),
        time(3, 4),
        b"text",
        b"\xff",
    )
    kwargs = {"deep": [{"price": Decimal("0.10")}, (1, None)], "numbers": {1: 2.5}}
    app = Celery("shop", broker=mill.broker, set_as_current=False)

    @app.task(name="tests.messages.tasks.headed", shared=False)  # type: ignore[untyped-decorator]
    def headed(*args: Any, **kwargs: Any) -> None: ...

    mill.relay()
    mill.worker()
    try:
        headed.apply_async(args, kwargs, headers=headers)
        make_transactional(app, [headed.name])
        with mill.alias() as alias, publishing_on(alias):
            result = headed.apply_async(args, kwargs, headers=headers)
    finally:
        drop_in._rules.clear()
        app.close()
    wait_until(lambda: len(mill.notes("headed")) >= 2, "two calls")
    (_, theirs), (id, ours) = sorted(mill.notes("headed"), key=lambda each: each[0] == result.id)
    assert id == result.id and ours == theirs
    assert (ours[:2], ours[2]["__type__"], ours[3]) == (["b", 1.5], "datetime", {"a": "b"})
    assert [each["__type__"] for each in ours[4]] == [
        "decimal", "uuid", "datetime", "date", "time", "bytes", "base64"
    ]  # fmt: skip


def test_a_chain_that_another_task_began_goes_on_in_the_worker(mill: Mill) -> None:
    """Its last part may be a task of the outbox: the worker sends it as ever."""
    mill.relay()
    mill.worker()
    with mill.alias() as alias:
        publish("tests.messages.tasks.begins", using=alias)
    wait_until(lambda: mill.notes("drop_in"), "the part that comes last")
    assert [what for _, what in mill.notes("drop_in")] == [[["last"], {}]]


@pytest.fixture
def own(fresh_database: str, broker: Redis) -> Iterator[Messenger]:
    """A messenger in this process, whose passes the test makes, to the empty broker: tasks and streams."""
    broker.flushall()
    app = Celery("own", broker=broker.url, set_as_current=False)
    wire = client.Redis(host=broker.host, port=broker.port, socket_timeout=2, socket_connect_timeout=2)
    tasks = CeleryMessages(app, timeout=2)
    made = Messenger(
        lambda: psycopg.connect(fresh_database, autocommit=True),
        Routes(tasks, {"redis": RedisStreamPublisher(wire)}), Settings(poll=0.1, message_tries=2),
    )  # fmt: skip
    yield made
    made._link.close()
    tasks.reset()
    wire.close()


def test_a_round_trip_that_was_given_up_is_not_made(own: Messenger, broker: Redis) -> None:
    """What was gathered for it is let go of: the next sender sends it."""
    tasks = own.routes.publisher("shop.tasks.pay")
    assert isinstance(tasks, CeleryMessages)
    made, send, gate = list[str](), tasks._app.amqp.send_task_message, threading.Event()

    def gated(producer: Any, name: str, *given: Any, **options: Any) -> None:
        made.append(name)
        if len(made) == 3:
            gate.wait(PATIENCE)
        send(producer, name, *given, **options)

    tasks._app.amqp.send_task_message, tasks._timeout = gated, 0.5
    before = {*threading.enumerate()}
    messages = [
        Message(
            id=uuid4(), destination="shop.tasks.pay", body="1", key=None, options={}, headers={},
            published_at=datetime.now(UTC),
        )
        for _ in range(20)
    ]  # fmt: skip
    with suppress(Unreachable):
        assert sum(outcome is None for outcome in tasks.send(messages)) < 3
    left = [thread for thread in threading.enumerate() if thread not in before]
    gate.set()
    for thread in left:
        thread.join(PATIENCE)
    assert int(broker.command("LLEN", "celery").strip(": \r\n")) <= 3  # none of them, where a trip takes several


def route_by_tenant(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
    """A router as applications have it, for tasks that are called with a tenant."""
    if name == "shop.tasks.routed":
        return {"queue": kwargs["tenant"]}
    if name == "shop.tasks.looked_up":
        return {"queue": Path("/no/such/file").read_text()}
    return None


@pytest.mark.parametrize("poison", ["shop.tasks.pay", "shop.tasks.routed", "shop.tasks.looked_up"])
def test_a_message_that_cannot_be_made_fails_alone(
    own: Messenger, broker: Redis, connection: psycopg.Connection[Any], poison: str
) -> None:
    """An unknown compression and a router that raises look like a lost connection to clients: they are none, so the
    message uses up its tries, and others are sent."""
    tasks = own.routes.publisher(poison)
    assert isinstance(tasks, CeleryMessages)
    tasks._app.conf.task_routes = (route_by_tenant,)
    publish(poison, [0], using=connection, options={"compression": "nope"} if poison == "shop.tasks.pay" else {})
    for number in range(20):
        publish(f"shop.tasks.{('pay', 'ship')[number % 2]}", [number], using=connection)
    connection.commit()
    deliver(own)
    assert broker.command("LLEN", "celery").strip(": \r\n") == "20"
    assert connection.execute("select destination, failures from sagas_message").fetchall() == [(poison, 1)]


@pytest.mark.parametrize("destination", ["redis:orders", "shop.tasks.pay"])
@pytest.mark.parametrize("limit", ["maxmemory", "min-replicas-to-write"])
def test_a_redis_that_takes_no_writes_counts_for_no_message(
    own: Messenger, broker: Redis, connection: psycopg.Connection[Any], states: Any, destination: str, limit: str
) -> None:
    """It is full, or has lost its replicas: nothing is dead after any number of tries, and all is sent in the end."""
    for number in range(5):
        publish(destination, [number], using=connection, ordering_key="k")
    connection.commit()
    broker.command("CONFIG", "SET", limit, "1")
    try:
        for _ in range(3):
            own._judge._breakers.clear()  # as after its pauses
            connection.execute("update sagas_message set due_at = clock_timestamp()")
            connection.commit()
            deliver(own)
        found = connection.execute("select state, failures, error from sagas_message").fetchall()
        connection.commit()
        assert {row[:2] for row in found} == {("waiting", 0)} and "Unreachable" in found[0][2]
    finally:
        broker.command("CONFIG", "SET", limit, "0")
    wait_until(lambda: deliver(own) or not states(), "the breaker to close")
    key, count = ("orders", "XLEN") if destination == "redis:orders" else ("celery", "LLEN")
    assert broker.command(count, key).strip(": \r\n") == "5"


def test_a_redis_that_is_nearly_full_is_not_given_the_same_again_and_again(
    own: Messenger, broker: Redis, connection: psycopg.Connection[Any], states: Any
) -> None:
    """Of a round trip that failed halfway nobody knows what was taken; what comes next is sent one by one."""
    many = 60
    publish_many(
        [NewMessage(destination="shop.tasks.pay", payload=["x" * 20_000]) for _ in range(many)], using=connection
    )
    connection.commit()
    found = list[str]()
    with client.Redis.from_url(broker.url, decode_responses=True) as wire:
        try:
            wire.config_set("maxmemory", int(wire.info("memory")["used_memory"]) + 600_000)
            for _ in range(12):
                own._judge._breakers.clear()  # as after its pauses
                connection.execute("update sagas_message set due_at = clock_timestamp()")
                connection.commit()
                deliver(own)
                found += [json.loads(each)["headers"]["id"] for each in wire.lrange("celery", 0, -1)]
                wire.delete("celery")  # a worker has taken them
                if not states():
                    break
        finally:
            wire.config_set("maxmemory", 0)
    assert not states() and len({*found}) == many
    assert len(found) < 2 * many  # those of one round trip come twice
