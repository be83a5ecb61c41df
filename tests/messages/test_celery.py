"""Messages to Celery tasks, with relays and workers that are real processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from pytest_django.plugin import DjangoDbBlocker

from sagas.testing.faults import wait_for_hit
from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Redis, redis
from sagas_outbox import publish
from tests.messages.mill import Mill
from tests.messages.post import wait_until

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
    import redis as client

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
