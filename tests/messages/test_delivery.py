"""What a relay does with messages: sends each after its commit, in order of its key, and loses none."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg
import pytest

from sagas_outbox import NewMessage, Unreachable, Unsendable, clock, delivery, publish, publish_many
from sagas_outbox.link import Link
from tests.messages.post import Post, deliver, messenger, wait_until

Connection = psycopg.Connection[Any]


def test_a_message_is_sent_after_its_commit(fresh_database: str, connection: Connection, post: Post) -> None:
    """Not before it, with the id that publish() returned, and once."""
    relay = messenger(fresh_database, post)
    id = publish("post:a", {"order": 7}, using=connection, headers={"traceparent": "00-1-2-01"})
    deliver(relay)
    assert not post.sent
    connection.commit()
    deliver(relay)
    (sent,) = post.sent
    assert (sent.id, sent.payload, sent.headers) == (id, {"order": 7}, {"traceparent": "00-1-2-01"})
    deliver(relay)
    assert len(post.sent) == 1


def test_a_rollback_sends_nothing(fresh_database: str, connection: Connection, post: Post) -> None:
    """What the caller takes back was never published, also to a savepoint."""
    relay = messenger(fresh_database, post)
    publish("post:a", 1, using=connection)
    connection.rollback()
    publish("post:a", 2, using=connection)
    with connection.transaction(force_rollback=True):
        publish("post:a", 3, using=connection)
    connection.commit()
    deliver(relay)
    assert post.payloads() == [2]


def test_what_was_sent_is_deleted(fresh_database: str, connection: Connection, post: Post, states: Any) -> None:
    """The table holds what is to be done, unless one wants to look back."""
    publish("post:a", 1, using=connection)
    connection.commit()
    deliver(messenger(fresh_database, post))
    assert states() == {}


def test_what_was_sent_is_kept_for_a_while(
    fresh_database: str, connection: Connection, post: Post, states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With keep_sent, and no longer."""
    relay = messenger(fresh_database, post, keep_sent=3600.0)
    publish("post:a", 1, using=connection)
    connection.commit()
    deliver(relay)
    assert states() == {"sent": 1}
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(hours=2))
    relay._pruned_at = 0.0
    deliver(relay)
    assert states() == {}


def test_due_at(fresh_database: str, connection: Connection, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message waits for its time, by the database clock."""
    relay = messenger(fresh_database, post)
    publish("post:a", "later", due_at=timedelta(hours=1), using=connection)
    publish("post:a", "latest", due_at=datetime.now(UTC) + timedelta(hours=3), using=connection)
    publish("post:a", "now", using=connection)
    connection.commit()
    deliver(relay)
    assert post.payloads() == ["now"]
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(hours=2))
    deliver(relay)
    assert post.payloads() == ["now", "later"]


def test_messages_of_a_key_go_in_order(fresh_database: str, connection: Connection, post: Post) -> None:
    """However many relays there are: each key is sent in the order of its publishing."""
    relays = [messenger(fresh_database, post) for _ in range(2)]
    for number in range(600):
        publish(f"post:{number % 3}", number, ordering_key=f"key-{number % 7}", using=connection)
    connection.commit()
    deliver(*relays)
    wait_until(lambda: deliver(*relays) or len(post.sent) >= 600, "all messages")
    for key in range(7):
        found = [each.payload for each in post.sent if each.key == f"key-{key}"]
        assert found == sorted(found) and len(found) == len(range(key, 600, 7))


def test_a_failed_message_holds_up_its_key_and_nobody_else(
    fresh_database: str, connection: Connection, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again after a while, and what comes after it in its key waits for it."""
    relay = messenger(fresh_database, post)
    post.broken["1"] = RuntimeError("not today")
    publish_many(
        [NewMessage(destination="post:a", payload=number, ordering_key=key) for number, key in
         [(1, "k"), (2, "k"), (3, "other"), (4, None)]],
        using=connection,
    )  # fmt: skip
    connection.commit()
    deliver(relay)
    assert post.payloads() == [3, 4]
    post.broken.clear()
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(seconds=30))
    deliver(relay)
    assert post.payloads() == [3, 4, 1, 2]


def test_a_message_that_cannot_be_sent_is_dead_and_can_be_replayed(
    fresh_database: str, connection: Connection, post: Post, states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its last try; its key waits, and goes on in order once it is sent again."""
    relay = messenger(fresh_database, post, message_tries=3)
    post.broken["1"] = RuntimeError("never")
    dead = publish("post:a", 1, ordering_key="k", using=connection)
    publish("post:a", 2, ordering_key="k", using=connection)
    connection.commit()
    for minutes in range(4):
        monkeypatch.setattr(clock, "now", lambda minutes=minutes: datetime.now(UTC) + timedelta(minutes=5 * minutes))
        deliver(relay)
    assert states() == {"dead": 1, "waiting": 1} and not post.sent
    post.broken.clear()
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        assert wire.execute("select failures, error from sagas_message where state = 'dead'").fetchone() == (
            3, "RuntimeError: never"
        )  # fmt: skip
        assert delivery.replay(wire, [dead, UUID(int=0)], now=clock.now()) == {dead}
    wait_until(lambda: deliver(relay) or len(post.sent) == 2, "the breaker to try again")
    assert post.payloads() == [1, 2] and states() == {}


def test_a_hopeless_message_is_dead_at_once_and_can_be_dropped(
    fresh_database: str, connection: Connection, post: Post, states: Any
) -> None:
    """No use in trying again; once it is given up its key goes on without it."""
    relay = messenger(fresh_database, post)
    post.broken["1"] = Unsendable("no such thing")
    publish("post:a", 1, ordering_key="k", using=connection)
    publish("post:a", 2, ordering_key="k", using=connection)
    connection.commit()
    deliver(relay)
    assert states() == {"dead": 1, "waiting": 1}
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        assert len(delivery.drop(wire, None)) == 1
    deliver(relay)
    assert post.payloads() == [2] and states() == {}


@pytest.mark.parametrize("change", [delivery.drop, delivery.replay])
def test_what_was_put_off_goes_on_at_once_and_together(
    fresh_database: str, connection: Connection, post: Post, change: Any
) -> None:
    """A claim after the head is dropped or replayed takes them all: none is left behind another that was put off."""
    post.broken["0"] = Unsendable("no")
    messages = [NewMessage(destination="post:a", payload=n, ordering_key="k") for n in range(301)]
    publish_many(messages, using=connection)
    connection.commit()
    deliver(messenger(fresh_database, post))
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        rooms = [delivery.Room("post:a", 500, datetime(2000, 1, 1, tzinfo=UTC))]
        assert delivery.claim(wire, rooms, holder="x", lease=30.0, now=None) == ([], 0)
        change(wire, None)
        taken, put_off = delivery.claim(wire, rooms, holder="x", lease=30.0, now=None)
    left = 301 if change is delivery.replay else 300
    assert [each.message.payload for each in taken] == list(range(301 - left, 301)) and put_off == 0


@pytest.mark.parametrize(("head", "age", "seconds"), [
    ("due", 0, 0.05), ("due", 20, 2), ("due", 3600, 5), ("held", 3600, 1), ("later", 3600, 40),
    ("dead", 0, 60), ("dead", 6000, 60), ("dead again", 0, 60), ("dead again", 6000, 600), ("dead again", 99000, 3600),
])  # fmt: skip
def test_how_long_a_message_is_put_off(
    fresh_database: str, connection: Connection, head: str, age: float, seconds: float
) -> None:
    """For a share of the age of what it waits for, so that a relay does not write all that waits again and again while
    another destination is broken or slow; and never so long that a key stands still for want of a wake-up. Whoever
    drops a dead one wakes what was put off behind it before, so that this may wait long, but not what is put off for
    the first time while that happens."""
    publish("post:other", 1, ordering_key="k", due_at=timedelta(seconds=40 if head == "later" else 0), using=connection)
    publish("post:a", 2, ordering_key="k", using=connection)
    connection.execute("update sagas_message set created_at = created_at - make_interval(secs => %s)", [age])
    if head == "dead again":
        connection.execute("update sagas_message set holder = 'behind' where destination = 'post:a'")
    connection.execute({
        "held": "update sagas_message set holder = 'x' where destination = 'post:other'",
        "dead": "update sagas_message set state = 'dead', finished_at = now() where destination = 'post:other'",
    }.get(head.split()[0], "select 1"))  # fmt: skip
    connection.commit()
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        rooms = [delivery.Room("post:a", 500, datetime(2000, 1, 1, tzinfo=UTC))]
        assert delivery.claim(wire, rooms, holder="y", lease=30.0, now=None) == ([], 1)
        row = wire.execute(
            "select extract(epoch from due_at - now())::float8 from sagas_message where destination = 'post:a'"
        ).fetchone()
    assert row is not None and seconds - 1 < row[0] < seconds + 1


def test_what_is_put_off_while_the_dead_one_is_dropped_is_woken(fresh_database: str, connection: Connection) -> None:
    """A claim that does not see it yet would put off for an hour."""
    publish("post:other", 1, ordering_key="k", using=connection)
    publish("post:a", 2, ordering_key="k", using=connection)
    connection.execute("update sagas_message set created_at = created_at - interval '1 day', holder = 'behind'")
    connection.execute("update sagas_message set state = 'dead', finished_at = now() where destination = 'post:other'")
    connection.commit()
    rooms = [delivery.Room("post:a", 500, datetime(2000, 1, 1, tzinfo=UTC))]
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        assert delivery.claim(connection, rooms, holder="x", lease=30.0, now=None) == ([], 1)
        dropping = threading.Thread(target=delivery.drop, args=(wire, None))
        dropping.start()
        with psycopg.connect(fresh_database, autocommit=True) as eye:
            waits = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
            wait_until(lambda: eye.execute(waits, [wire.info.backend_pid]).fetchone(), "the drop waits")
            connection.commit()
            dropping.join(10)
            assert len(delivery.claim(eye, rooms, holder="x", lease=30.0, now=None)[0]) == 1


def test_what_waits_behind_a_message_is_woken_when_that_is_sent(fresh_database: str, connection: Connection) -> None:
    """The next of its key, twice as many as were sent: a note is bounded, however many wait."""
    publish_many([NewMessage(destination="post:other", payload=0, ordering_key="k")], using=connection)
    publish_many([NewMessage(destination="post:a", payload=n, ordering_key="k") for n in range(1, 9)], using=connection)
    connection.execute("update sagas_message set created_at = created_at - interval '1 hour'")
    connection.commit()
    rooms = {name: [delivery.Room(name, 500, datetime(2000, 1, 1, tzinfo=UTC))] for name in ("post:a", "post:other")}
    now = datetime.now(UTC) + timedelta(seconds=1)  # and stays so
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        sent, _ = delivery.claim(wire, rooms["post:other"], holder="x", lease=30.0, now=now)
        for many in (2, 4, 2):
            assert delivery.claim(wire, rooms["post:a"], holder="y", lease=30.0, now=now)[0] == []
            delivery.settle_sent(wire, sent, keep=False, now=now)
            sent, _ = delivery.claim(wire, rooms["post:a"], holder="y", lease=30.0, now=now)
            assert len(sent) == many


@pytest.mark.parametrize("text", ["x", ""])
def test_a_claim_is_bounded_in_bytes(
    fresh_database: str, connection: Connection, post: Post, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """As many as a relay has room for in its memory, and always one; all are sent in order, whatever their size. What
    Postgres has compressed counts for more than it takes there."""
    monkeypatch.setattr(delivery, "MOST_BYTES", 100_000, raising=False)
    payloads = [text * 120_000 or token_hex(60_000), *(text * 20_000 or token_hex(10_000) for _ in range(200)), 1]
    publish_many(
        [NewMessage(destination="post:a", payload=each, ordering_key="k") for each in payloads], using=connection
    )
    connection.commit()
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        rooms = [delivery.Room("post:a", 500, datetime(2000, 1, 1, tzinfo=UTC))]
        taken, put_off = delivery.claim(wire, rooms, holder="x", lease=0.0, now=None)
    assert [each.message.payload for each in taken] == payloads[: len(taken)] and put_off == 0
    assert 0 < sum(len(each.message.body) for each in taken) < 300_000
    deliver(messenger(fresh_database, post))
    assert post.payloads() == payloads


def test_nobody_serves_a_destination(fresh_database: str, connection: Connection, post: Post, states: Any) -> None:
    """A typo in a scheme is a dead letter, and holds up nobody."""
    publish("pots:a", 1, using=connection)
    publish("post:a", 2, using=connection)
    connection.commit()
    deliver(messenger(fresh_database, post))
    assert post.payloads() == [2] and states() == {"dead": 1}


def test_a_destination_that_is_down_counts_for_no_message(
    fresh_database: str, connection: Connection, post: Post, states: Any
) -> None:
    """It is tried with one message now and then, others go on meanwhile, and all is sent when it is back."""
    relay = messenger(fresh_database, post, message_tries=2)
    post.down, post.broken["post:down"] = {"post:down"}, Unreachable("no route")
    for number in range(20):
        publish("post:down", number, using=connection)
        publish("post:up", number, using=connection)
    connection.commit()
    for _ in range(5):
        deliver(relay)
    assert post.payloads("post:up") == list(range(20)) and not post.payloads("post:down")
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        assert wire.execute("select distinct failures from sagas_message").fetchall() == [(0,)]
    post.down.clear(), post.broken.clear()
    wait_until(lambda: deliver(relay) or not states(), "the breaker to close")
    assert post.payloads("post:down") == list(range(20))


def test_a_destination_that_refuses_everything_is_tried_less_and_less(
    fresh_database: str, connection: Connection, post: Post
) -> None:
    """Each message fails by itself; after three batches it is one at a time, and seldom."""
    relay = messenger(fresh_database, post)
    post.broken["post:refuses"] = RuntimeError("500")
    for batch in range(6):
        for number in range(20):
            publish("post:refuses", number, using=connection)
        publish("post:fine", batch, using=connection)
        connection.commit()
        deliver(relay)
    assert post.payloads() == list(range(6))
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        tried = wire.execute("select sum(failures) from sagas_message").fetchone()
    assert tried is not None and 60 <= tried[0] <= 130


def test_a_slow_publisher_keeps_what_it_is_sending(
    fresh_database: str, connection: Connection, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as it takes: another relay does not send it meanwhile."""
    first, second = (messenger(fresh_database, post) for _ in range(2))
    gate = post.gates["post:slow"] = threading.Event()
    publish("post:slow", 1, using=connection)
    connection.commit()
    first.run_once()
    for seconds in (20, 40, 60):
        monkeypatch.setattr(clock, "now", lambda seconds=seconds: datetime.now(UTC) + timedelta(seconds=seconds))
        first._renewed_at = 0.0
        first.run_once()
        deliver(second)
    assert post.tries == ["post:slow"]
    gate.set()
    deliver(first)
    assert post.payloads() == [1]


def test_a_publisher_that_breaks_in_its_reset_ends_no_relay(
    fresh_database: str, connection: Connection, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error where none was foreseen is logged, and messages to others are sent."""

    def reset() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(post, "reset", reset)
    post.down.add("post:down")
    relay = messenger(fresh_database, post)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        publish("post:down", 1, using=connection)
        connection.commit()
        wait_until(lambda: "post:down" in post.tries, "the batch that fails")
        publish("post:fine", 2, using=connection)
        connection.commit()
        wait_until(lambda: post.payloads("post:fine"), "the other")
    finally:
        relay.stop()
        thread.join(30)
    assert not thread.is_alive()


def test_a_relay_waits_while_postgres_is_down(post: Post) -> None:
    """Also if it was just about to look from the beginning."""
    relay, asked = messenger("", post, poll=0.2, wake=False), list[float]()

    def connect() -> Connection:
        asked.append(monotonic())
        raise psycopg.OperationalError("down")

    relay._link = Link(connect)
    relay._blind = 0.001
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        wait_until(lambda: len(asked) >= 3, "three passes")
    finally:
        relay.stop()
        thread.join(10)
    assert asked[2] - asked[0] >= 0.39


def test_many_destinations_have_their_turn(fresh_database: str, connection: Connection, post: Post) -> None:
    """More than one claim is about: all are sent to."""
    publish_many([NewMessage(destination=f"post:{n}", payload=n) for n in range(450)], using=connection)
    connection.commit()
    relay = messenger(fresh_database, post)
    wait_until(lambda: deliver(relay) or len(post.sent) == 450, "all")


def test_a_destination_that_does_not_answer_delays_only_itself(
    fresh_database: str, connection: Connection, post: Post
) -> None:
    """While one batch hangs, messages to all others are sent by the same relay."""
    relay = messenger(fresh_database, post)
    gate = post.gates["post:hangs"] = threading.Event()
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        publish("post:hangs", 1, using=connection)
        connection.commit()
        wait_until(lambda: "post:hangs" in post.tries, "the batch that hangs")
        for number in range(3):
            publish("post:fine", number, using=connection)
            connection.commit()
            wait_until(lambda number=number: number in post.payloads("post:fine"), "a message to another destination")
        assert not post.payloads("post:hangs")
        gate.set()
        wait_until(lambda: post.payloads("post:hangs"), "the answer")
    finally:
        gate.set()
        relay.stop()
        thread.join(30)
    assert not thread.is_alive()


def test_what_a_dead_relay_had_claimed_is_sent_by_another(
    fresh_database: str, connection: Connection, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its lease; and the dead one, should it come back, notes nothing down any more."""
    first, second = messenger(fresh_database, post), messenger(fresh_database, post)
    for number in range(3):
        publish("post:a", number, ordering_key="k", using=connection)
    connection.commit()
    with psycopg.connect(fresh_database, autocommit=True) as wire:
        rooms = [delivery.Room("post:a", 10, datetime(2000, 1, 1, tzinfo=UTC))]
        taken, _ = delivery.claim(wire, rooms, holder=first.holder, lease=30.0, now=None)
        assert len(taken) == 3
        deliver(second)
        assert not post.sent
        monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(seconds=31))
        post.gates["post:a"] = threading.Event()
        wait_until(lambda: second.run_once() or post.tries, "the second to send")
        assert delivery.settle_sent(wire, taken, keep=False, now=None) == set()
        post.gates["post:a"].set()
        deliver(second)
    assert post.payloads() == [0, 1, 2]


def test_a_constant_number_of_statements(fresh_database: str, connection: Connection, post: Post) -> None:
    """A claim, a note of what was sent, and a look around: for 400 messages as many as for one, or a few."""
    counts = []
    for many in (1, 400):
        publish_many(
            [NewMessage(destination="post:a", payload=n, ordering_key="k") for n in range(many)], using=connection
        )
        connection.commit()
        relay = messenger(fresh_database, post)
        with psycopg.connect(fresh_database, autocommit=True) as wire:
            before = _statements(wire)
            deliver(relay)
            counts.append(_statements(wire) - before)
    assert len(post.sent) == 401 and counts[1] <= counts[0] + 2, counts


def _statements(wire: Connection) -> int:
    wire.execute("select pg_stat_clear_snapshot()")
    row = wire.execute("select xact_commit from pg_stat_database where datname = current_database()").fetchone()
    return 0 if row is None else int(row[0])
