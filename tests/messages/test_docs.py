"""What the pages about messages show is code that works."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from celery import Celery
from django.db import transaction
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import sagas_sqlalchemy  # noqa: F401 - makes its sessions known
from sagas.settings import Settings
from sagas_celery import drop_in
from sagas_outbox import Message, NewMessage, Unreachable, Unsendable, one_by_one, publish, publish_many
from sagas_outbox.messenger import Messenger
from sagas_outbox.publishers import Routes
from tests.messages.post import made, wait_until
from tests.sqlalchemy.ways import sqlalchemy_url


def remind(*args: Any) -> None:
    """A task."""


DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    """The Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["messages.md", "drop-in.md"])
def test_every_block_can_be_read(page: str) -> None:
    """As Python that may await."""
    for block in blocks(page):
        compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.django_db(transaction=True)
def test_publishing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Django part of the first block, as it stands."""
    (block,) = [each for each in blocks("messages.md") if each.startswith("from sagas_outbox import publish")]
    django = block.partition("with Session(")[0]
    app = Celery("shop", set_as_current=False)
    names: dict[str, Any] = {
        "transaction": transaction, "timedelta": timedelta,
        "remind": app.task(name="shop.remind", shared=False)(remind),
        "Order": SimpleNamespace(objects=SimpleNamespace(create=lambda *_: SimpleNamespace(pk=7))),
    }  # fmt: skip
    exec(compile(django, "messages.md", "exec"), names)
    from sagas_django.models import MessageRow

    found = list(MessageRow.objects.order_by("id").values_list("destination", "payload", "ordering_key"))
    assert found == [
        ("shop.tasks.send_invoice", {"order": 7}, None), ("shop.remind", [7], None),
        ("shop.tasks.index", {"order": 7}, "order-7"),
    ]  # fmt: skip


def test_publishing_from_sql(connection: psycopg.Connection[Any]) -> None:
    """The SQL of the page, as it stands."""
    (block,) = re.findall(r"^```sql\n(.*?)^```", (DOCS / "messages.md").read_text(), re.MULTILINE | re.DOTALL)
    assert connection.execute(block).fetchone() == ({"written": 1},)
    found = connection.execute("select destination, payload, ordering_key, due_at - created_at from sagas_message")
    assert found.fetchone() == ("shop.tasks.index", {"order": 7}, "order-7", timedelta(seconds=60))


@pytest.mark.django_db(transaction=True)
def test_the_inbox() -> None:
    """The handler of the page, as it stands."""
    (block,) = [each for each in blocks("messages.md") if each.startswith("from sagas_django.inbox")]
    written: list[int] = []
    app = Celery("shop", set_as_current=False)
    names: dict[str, Any] = {
        "__name__": "shop.tasks", "shared_task": partial(app.task, name="shop.docs", shared=False),
        "Invoice": SimpleNamespace(objects=SimpleNamespace(create=lambda order_id: written.append(order_id))),
    }  # fmt: skip
    exec(compile(block, "messages.md", "exec"), names)
    task = app.tasks["shop.docs"]
    id = str(uuid4())
    for _ in range(2):  # delivered twice
        task.apply(kwargs={"order": 7}, task_id=id, throw=True)
    assert written == [7]


def test_drop_in(fresh_database: str, connection: psycopg.Connection[Any]) -> None:
    """The lines for everything but Django, as they stand."""
    (block,) = [each for each in blocks("drop-in.md") if "make_transactional" in each]
    app, engine = Celery("shop", set_as_current=False), create_engine(sqlalchemy_url(fresh_database))
    task = app.task(name="shop.tasks.send_invoice", shared=False)(remind)
    names: dict[str, Any] = {"app": app, "send_invoice": task, "Session": Session, "engine": engine}
    try:
        exec(compile(block, "drop-in.md", "exec"), names)
    finally:
        drop_in._rules.clear()
        engine.dispose()
    assert names["SAGAS"]["OUTBOX_TASKS"]
    found = connection.execute("select destination, payload->'args' from sagas_message").fetchall()
    assert found == [("shop.tasks.send_invoice", [7])]


class _Client:
    """The other side of the publisher of the page."""

    ConnectError = ConnectionRefusedError

    def __init__(self) -> None:
        self.seen: list[str] = []

    def post(self, url: str, *, content: str, timeout: float, headers: dict[str, str]) -> Any:
        if "down" in url:
            raise ConnectionRefusedError("down")
        self.seen.append(content)
        code = 503 if "busy" in url else 400 if content == "0" else 200
        return SimpleNamespace(status_code=code, text="bad", raise_for_status=lambda: None)


def test_the_publisher_of_ones_own(fresh_database: str, connection: psycopg.Connection[Any]) -> None:
    """Sent, refused for good, or not reachable; and the relay without Celery."""
    (block,) = [each for each in blocks("messages.md") if each.startswith("class Hooks")]
    client = _Client()
    names: dict[str, Any] = {
        "one_by_one": one_by_one, "Unreachable": Unreachable, "Unsendable": Unsendable, "client": client
    }  # fmt: skip
    exec(compile(block, "messages.md", "exec"), names)
    hooks = names["Hooks"]()

    def message(destination: str, body: str) -> Message:
        return Message(
            id=uuid4(), destination=destination, body=body, key=None, options={}, headers={},
            published_at=datetime.now(UTC),
        )  # fmt: skip

    first, second = hooks.send([message("hook:https://x", "0"), message("hook:https://x", "1")])
    assert isinstance(first, Unsendable) and second is None and client.seen == ["0", "1"]
    for address in ("hook:down", "hook:busy"):
        with pytest.raises(Unreachable):
            hooks.send([message(address, "1")])
    client.seen.remove("1")
    publish_many([NewMessage(destination="hook:https://x", payload=number) for number in (2, 3)], using=connection)
    connection.commit()
    relay = Messenger(
        lambda: psycopg.connect(fresh_database, autocommit=True), Routes(None, {"hook": hooks}), Settings()
    )
    made.append(relay)
    wait_until(lambda: relay.run_once() == 0 and len(client.seen) >= 4 and relay.idle(), "both to be sent")
    assert client.seen[2:] == ["2", "3"]


def test_the_table_of_what_is_refused() -> None:
    """The options that the page lists as errors are those of the code."""
    page = (DOCS / "drop-in.md").read_text()
    refused = page.partition("**An error at the call**")[2].partition("\n\n")[0]
    for word in ("link", "link_error", "chains", "groups", "chords", "stamps", "reply_to"):
        assert word in refused
    assert {"link", "link_error", "chord", "chain", "group_id", "stamped_headers", "reply_to"} <= set(drop_in.CANVAS)


def test_a_task_itself_is_a_destination(connection: psycopg.Connection[Any]) -> None:
    """By its name."""
    task = Celery("shop", set_as_current=False).task(name="shop.pay", shared=False)(remind)
    publish(task, 1, using=connection)
    assert connection.execute("select destination from sagas_message").fetchone() == ("shop.pay",)
