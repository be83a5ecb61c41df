"""Handlers of the inbox: their writes and the note that they took a message are one transaction."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from sagas_django.inbox import inbox as django_inbox
from sagas_outbox import NotPublished
from sagas_sqlalchemy import inbox
from tests.sqlalchemy.ways import rows, sqlalchemy_url


@django_inbox
def remember(model: str, *, fail: bool = False) -> str:
    """Writes a line, and may fail after it."""
    ContentType.objects.create(app_label="messages", model=model)
    if fail:
        raise RuntimeError("after the write")
    return model


def remembered() -> list[str]:
    return list(ContentType.objects.filter(app_label="messages").values_list("model", flat=True))


@pytest.mark.django_db(transaction=True)
def test_django_handler() -> None:
    """Once for each message; a failure leaves neither write nor note, so that the next try counts."""
    with connection.cursor() as cursor:
        cursor.execute("delete from sagas_inbox")
    with pytest.raises(RuntimeError):
        remember.take("m-1", "one", fail=True)
    assert remembered() == []
    assert remember.take("m-1", "one") == "one"
    assert remember.take("m-1", "one") is None
    assert remember.take("m-2", model="two") == "two"
    assert sorted(remembered()) == ["one", "two"]
    ContentType.objects.filter(app_label="messages").delete()


def test_which_message_is_it() -> None:
    """Outside of a task nobody knows, and the error says how to say it."""
    with pytest.raises(NotPublished, match=r"remember\.take\(message_id"):
        remember("one")


@pytest.fixture
def engine(fresh_database: str) -> Iterator[Engine]:
    """An application's own."""
    made = create_engine(sqlalchemy_url(fresh_database))
    with made.begin() as wire:
        wire.execute(text("create table invoice (number integer)"))
    yield made
    with made.begin() as wire:
        wire.execute(text("drop table invoice"))
    made.dispose()


@pytest.mark.parametrize("source", ["engine", "sessionmaker"])
def test_sqlalchemy_handler(engine: Engine, fresh_database: str, source: str) -> None:
    """The same with a session of its own, which callers do not give."""

    @inbox(engine if source == "engine" else sessionmaker(engine, expire_on_commit=False), name="invoices")
    def invoice(session: Session, number: int, fail: bool = False) -> int:
        session.execute(text("insert into invoice values (:number)"), {"number": number})
        if fail:
            raise RuntimeError("after the write")
        return number

    with pytest.raises(RuntimeError):
        invoice.take("m-1", 1, fail=True)
    assert [invoice.take(*given) for given in [("m-1", 1), ("m-1", 1), ("m-2", 2)]] == [1, None, 2]
    assert rows(fresh_database, "select number from invoice order by number") == [(1,), (2,)]
    assert rows(fresh_database, "select message_id, handler from sagas_inbox order by 1") == [
        ("m-1", "invoices"), ("m-2", "invoices")
    ]  # fmt: skip
    parameters: Any = inspect.signature(invoice).parameters
    assert list(parameters) == ["number", "fail"]
