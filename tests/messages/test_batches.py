"""A batch is bounded in time, and what was sent of it is known: the time limit is that of one message."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from sagas_celery.messages import CeleryMessages
from sagas_outbox import Message, NewMessage, Unreachable, publish, publish_many
from sagas_outbox.publishers import Behind
from tests.messages.post import PATIENCE, Post, Slow, deliver, messenger, wait_until

Connection = psycopg.Connection[Any]


@pytest.mark.parametrize(("seconds", "many"), [(0.02, 200), (0.35, 5)])
def test_a_slow_broker_gets_each_message_once(
    fresh_database: str, connection: Connection, post: Post, states: Any, seconds: float, many: int
) -> None:
    """The time limit is one message's, and not a batch's: what was sent in a while is noted down, then comes more."""
    broker = Slow(seconds)
    publisher = CeleryMessages(broker.app(), timeout=0.5)
    relay = messenger(fresh_database, post, publisher, publish_timeout=0.5)
    ids = [
        str(publish(f"shop.tasks.{number % 3}", number, ordering_key=f"key-{number % 7}", using=connection))
        for number in range(many)
    ]
    connection.commit()
    deliver(relay, passes=100)
    publisher.reset()
    assert states() == {} and {*broker.sent} == {*ids}
    assert len(broker.sent) <= many + 3  # a machine that stands still makes a message late
    first = [*dict.fromkeys(broker.sent)]
    for key in range(7):
        assert [id for id in first if id in ids[key::7]] == ids[key::7]


def test_what_was_sent_before_a_destination_went_away_is_not_sent_again(
    fresh_database: str, connection: Connection, post: Post
) -> None:
    """A publisher that sends one by one knows what was taken: that is noted down, and counts for no message."""
    relay = messenger(fresh_database, post)
    post.broken["5"] = Unreachable("no route")
    publish_many(
        [NewMessage(destination="post:a", payload=number, ordering_key="k") for number in range(10)], using=connection
    )
    connection.commit()
    for _ in range(3):
        deliver(relay)
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        assert wire.execute("select sum(failures), count(*) from sagas_message").fetchone() == (0, 5)
    post.broken.clear()
    wait_until(lambda: deliver(relay) or len(post.sent) >= 10, "the breaker to close")
    assert post.payloads() == list(range(10))


def test_a_batch_that_is_too_large_for_its_destination(
    fresh_database: str, connection: Connection, post: Post, states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what it took when time was up: the next batch is of one message, and they grow from there."""
    send = post.send

    def sends(messages: Any) -> Any:
        outcomes = send(messages)
        if len(messages) > 20:
            raise Unreachable("no answer within the time limit")
        return outcomes

    monkeypatch.setattr(post, "send", sends)
    relay = messenger(fresh_database, post)
    publish_many([NewMessage(destination="post:a", payload=number) for number in range(80)], using=connection)
    connection.commit()
    wait_until(lambda: deliver(relay) or not states(), "all to be sent")
    assert {*post.payloads()} == {*range(80)} and len(post.sent) <= 80 + 80 + 4 * 26  # each lost batch again


def test_a_sender_that_was_given_up_sends_nothing_more() -> None:
    """What it had in hand may still be sent; what comes after that is left to the next one."""
    broker = Slow()
    gate = broker.gates[1] = threading.Event()
    publisher = CeleryMessages(broker.app(), timeout=0.5)
    before = {*threading.enumerate()}
    sent, unknown, *others = publisher.send([
        Message(
            id=uuid4(), destination="shop.pay", body="1", key=None, options={}, headers={},
            published_at=datetime.now(UTC),
        )
        for _ in range(20)
    ])  # fmt: skip
    assert sent is None and isinstance(unknown, Unreachable) and all(isinstance(each, Behind) for each in others)
    left = [thread for thread in threading.enumerate() if thread not in before]
    publisher.reset()
    gate.set()
    for thread in left:
        thread.join(PATIENCE)
    assert len(broker.sent) == 2
