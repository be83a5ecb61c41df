"""Publishing and taking messages on every kind of session and connection, in the transaction that is open on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

import sagas_sqlalchemy  # noqa: F401 - makes its sessions known
from sagas_outbox import (
    InvalidMessage,
    NewMessage,
    NotPublished,
    UnknownConnection,
    apublish,
    apublish_many,
    atake,
    publish,
    publish_many,
    take,
)
from tests.sqlalchemy.ways import AWAITED, BARE, BLOCKING, Unit, rows, unit

WAYS = BLOCKING + AWAITED + BARE


def published(of: Unit, *payloads: Any, **more: Any) -> Any:
    """Publish on a session or connection, with whichever twin it needs."""
    messages = [NewMessage(destination="shop.pay", payload=each, **more) for each in payloads]
    call = apublish_many if of.awaited else publish_many
    return of.wait(call(messages, using=of.using))


@pytest.mark.parametrize("way", WAYS)
def test_publishing_joins_the_transaction(way: str, fresh_database: str) -> None:
    """Committed with it, in the order given; rolled back with it."""
    with unit(way, fresh_database) as of:
        ids = published(of, *range(5), ordering_key="k")
        assert rows(fresh_database, "select count(*) from sagas_message") == [(0,)]
        of.do("commit")
        published(of, "gone")
        of.do("rollback")
    found = rows(fresh_database, "select message_id, payload from sagas_message order by id")
    assert found == [(id, number) for number, id in enumerate(ids)]


@pytest.mark.parametrize("way", WAYS)
def test_a_message_is_taken_once(way: str, fresh_database: str) -> None:
    """By each handler; and not at all by one whose transaction is rolled back."""
    with unit(way, fresh_database) as of:

        def first(id: str, handler: str) -> bool:
            taken: bool = of.wait((atake if of.awaited else take)(id, handler=handler, using=of.using))
            return taken

        assert first("m-1", "invoices")
        of.do("rollback")
        assert first("m-1", "invoices") and not first("m-1", "invoices")
        of.do("commit")
        assert not first("m-1", "invoices") and first("m-1", "reports") and first("m-2", "invoices")


def test_outside_of_a_transaction(fresh_database: str) -> None:
    """The commonest way to lose a message is an error, unless one says that there is nothing to lose."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        with pytest.raises(NotPublished, match="own_transaction=True"):
            publish("shop.pay", 1, using=connection)
        with pytest.raises(NotPublished, match="no transaction"):
            take("m-1", handler="h", using=connection)
        publish("shop.pay", 1, using=connection, own_transaction=True)
        with connection.transaction():
            publish("shop.pay", 2, using=connection)
    assert rows(fresh_database, "select payload from sagas_message order by id") == [(1,), (2,)]


def test_the_other_twin(fresh_database: str) -> None:
    """Said by its name, before anything is written."""
    with unit("bare Connection", fresh_database) as of, pytest.raises(UnknownConnection, match="publish"):
        of.wait(apublish("shop.pay", 1, using=of.using))
    with unit("bare AsyncConnection", fresh_database) as of, pytest.raises(UnknownConnection, match="apublish"):
        publish("shop.pay", 1, using=of.using)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"payload": {"a": [1, float("nan")]}}, r"payload\.a\[1\]: nan"),
        ({"payload": {"a": "\x00"}}, r"payload\.a: .*NUL"),
        ({"payload": "\ud800"}, "payload"),
        ({"payload": {1: 2}}, "payload"),
        ({"payload": object()}, "payload: cannot be written"),
        ({"payload": "x" * 2**21}, "payload: .* bytes"),
        ({"destination": ""}, "destination"),
        ({"destination": None}, "destination"),
        ({"ordering_key": "x" * 300}, "ordering_key"),
        ({"headers": {"a": 1}}, "headers"),
        ({"due_at": "tomorrow"}, "due_at"),
        ({"destination": "redis:a", "queue": "q"}, "queue"),
        ({"destination": SimpleNamespace(name="shop:pay")}, "destination.*shop:pay.*colon"),
    ],
)
def test_what_cannot_be_stored_is_refused(given: dict[str, Any], words: str, fresh_database: str) -> None:
    """By the name of its field, and nothing of the call is written."""
    with psycopg.connect(fresh_database) as connection:
        with pytest.raises(InvalidMessage, match=words):
            publish_many(
                [NewMessage(destination="a"), NewMessage(**{"destination": "shop.pay"} | given)], using=connection
            )  # fmt: skip
        assert connection.execute("select count(*) from sagas_message").fetchone() == (0,)


def test_a_duplicate_waits_for_the_one_that_is_taking_it(fresh_database: str) -> None:
    """It counts only if that commits; here it does not, so the second is the first."""
    import threading

    from tests.messages.post import wait_until

    with psycopg.connect(fresh_database) as one, psycopg.connect(fresh_database) as two:
        assert take("m-1", handler="h", using=one)
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(take("m-1", handler="h", using=two)))
        thread.start()
        waiting = (
            "select count(*) from pg_locks l join pg_database d on d.datname = current_database() where not granted"
        )
        wait_until(lambda: rows(fresh_database, waiting)[0][0] > 0, "the second to wait")
        one.rollback()
        thread.join(30)
        assert answers == [True]
