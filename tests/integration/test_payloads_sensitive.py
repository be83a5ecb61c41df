"""What is marked Sensitive is stored and used, and shown nowhere."""

from __future__ import annotations

import base64
import io
import logging
import re
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from sagas import InvalidInput, Refused
from sagas.payloads import request_text, shown
from sagas.sensitive import MASK, masked, scrub, secrets
from sagas.states import Status
from sagas.store.rows import paces
from sagas.testing.servers import Redis
from sagas.testing.stories import look, story
from sagas_celery.publisher import CeleryPublisher
from sagas_django.models import DedupeRecord, LogEntry, OutboxRow
from sagas_django.store import DjangoStore
from sagas_outbox.relay import Relay
from tests.shop.payloads import MARKER, Order, Receipt, Review, Vaulted
from tests.shop.world import World
from tests.support.attentive import attentive
from tests.support.codecs import ZlibCodec
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")

TABLES = ("sagas_saga", "sagas_log", "sagas_outbox", "sagas_dedupe", "sagas_signal", "sagas_pace", "sagas_pause")
PAYLOADS = ("result", "saga", "response", "value")  # keys, and columns, that hold payloads


def boom(run: Any) -> None:
    """An application that repeats what it was given in its errors."""
    try:
        raise ValueError(f"cannot use {run.input!r}")
    except ValueError as problem:
        raise ConnectionError(f"card {run.input.card} is not accepted, nor {run.input.card.lower()!s:.0}") from problem


def everywhere_but_payloads() -> str:
    """All columns of all tables of ours, as JSON, without payloads."""
    found = []
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"select (to_jsonb(t) - %s::text[])::text from {table} t", [["data", "payload", "response"]])
            found += [row[0] for row in cursor.fetchall()]
        cursor.execute("select (data - array['result', 'saga'])::text from sagas_log")
        found += [row[0] for row in cursor.fetchall()]
        cursor.execute("select (payload - 'value')::text from sagas_outbox where payload is not null")
        found += [row[0] for row in cursor.fetchall()]
    return "\n".join(found)


def command(*arguments: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    call_command("sagas", *arguments, stdout=out, stderr=err)
    return out.getvalue() + err.getvalue()


def pages(run: Any) -> str:
    """The admin's pages about a saga."""
    client = Client()
    client.force_login(User.objects.filter(is_superuser=True).first() or User.objects.create_superuser("root"))
    urls = [reverse("admin:sagas_sagarow_change", args=[run.id]), "/admin/sagas/sagarow/", "/admin/sagas/outboxrow/"]
    for record in DedupeRecord.objects.all():
        urls.append(reverse("admin:sagas_deduperecord_change", args=[record.pk]))
    for row in OutboxRow.objects.all():
        urls.append(reverse("admin:sagas_outboxrow_change", args=[row.pk]))
    return "\n".join(client.get(url).content.decode() for url in urls)


def output_about(run: Any) -> str:
    with DjangoStore("default").connect() as raw:
        told = "\n".join(story(seen) for seen in look(raw, [run.id]))
    return "\n".join([told, everywhere_but_payloads(), command("show", str(run.id)), command("list"), pages(run)])


@pytest.mark.parametrize("codec", [None, ZlibCodec()], ids=["plain", "sealed"])
def test_a_marker_is_found_nowhere(codec: Any, world: World, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Errors and tracebacks of bodies, log records, tables, command line and admin, under way and after its undo."""
    settings.SAGAS = {"WAKE": False, "PAYLOAD_CODEC": codec}
    caplog.set_level(logging.DEBUG)
    for name in ("take", "charge", "refund", "give_back"):
        world.plan(name, boom)
    world.plan("ship", boom, boom, lambda run: refuse(run))
    run = begin(Vaulted, input=Order())
    drain()
    with transaction.atomic():
        Vaulted.review.send(Review(ok=True, note=MARKER), key="a", reason="approved")
    sent = output_about(run)
    drain()
    with transaction.atomic():
        Vaulted.review.send(Review(ok=True, note=MARKER), key="a")  # too late: dropped, and logged
    drain()
    assert Vaulted.get(key="a").status is Status.COMPENSATED
    errors = [entry.data["error"] for entry in LogEntry.objects.all() if "error" in entry.data]
    assert len(errors) >= 6 and all(MASK in each["message"] for each in errors)
    logged = "\n".join(logging.Formatter("%(message)s").format(record) for record in caplog.records if ours(record))
    for text in (sent, output_about(run), logged):
        assert MARKER not in text
    if codec is None:
        assert "12345678901234567.890" in pages(run)  # what is not sensitive is shown
    assert MARKER not in str([entry.data for entry in LogEntry.objects.all()]) if codec else True


def refuse(run: Any) -> None:
    raise Refused(f"no {run.charge.result.code} for {run.review.result.note}")


def ours(record: logging.LogRecord) -> bool:
    return record.name.startswith("sagas")


def test_messages_hold_no_payload(redis_server: Redis, settings: Any) -> None:
    """The broker gets row numbers: everything that Redis holds is looked through."""
    queue = f"sensitive-{uuid4().hex}"
    app = Celery("tests.sensitive", broker=redis_server.url, set_as_current=False)
    app.conf.task_default_queue = queue
    begin(Vaulted, input=Order())
    publisher = CeleryPublisher(app, "default", timeout=5)
    store = DjangoStore("default")
    with closing(store.connect()) as opened:
        relay = attentive(Relay(lambda: opened, publisher, store.settings, paces=paces))
        assert relay.run_once() == 1
    publisher.reset()
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        (message,) = client.lrange(queue, 0, -1)
        held = message.decode() + str(list(client.scan_iter()))
    for body in re.findall(r'"body": ?"([^"]+)"', held):
        held += base64.b64decode(body).decode()
    assert MARKER not in held and "12345678901234567" not in held


def test_errors_of_a_body_that_did_not_read_it(world: World, settings: Any) -> None:
    """The other side repeats the card number, and the compensation never looked at it: masked all the same."""

    def gone(run: Any) -> None:
        raise ConnectionError(f"bank: card {MARKER} unknown")

    world.plan("give_back", gone)
    begin(Vaulted, input=Order())
    drain()
    with transaction.atomic():
        Vaulted.cancel(key="a", reason="changed their mind")
    drain()
    (failed,) = LogEntry.objects.filter(kind="undo_failed")
    assert failed.data["error"]["message"] == f"bank: card {MASK} unknown"
    assert MARKER not in failed.data["error"]["traceback"]


def test_start_and_send_repeat_no_value() -> None:
    """Messages about what cannot be stored name the field only."""
    with pytest.raises(InvalidInput, match=r"^input\.card: has a NUL.*test\.vaulted") as caught:
        begin(Vaulted, input=Order(card=MARKER + "\0"))
    assert MARKER not in str(caught.value)
    begin(Vaulted, input=Order())
    with pytest.raises(InvalidInput) as caught, transaction.atomic():
        Vaulted.review.send(Review.model_construct(ok=True, note=[MARKER]), key="a")
    assert MARKER not in str(caught.value)


def test_masking() -> None:
    """Fields, nested or in unions; the rest stays readable. Large ones are not shown at all."""
    assert masked({"card": MARKER, "amount": "1"}, Order) == {"card": MASK, "amount": "1"}
    assert masked([{"total": "1", "code": MARKER}, None], list[Receipt | None]) == [{"total": "1", "code": MASK}, None]
    assert masked({"ok": True, "note": MARKER}, Review) == {"ok": True, "note": MASK}
    assert secrets(Order(), Order) == {MARKER}
    assert scrub("a 12 b 123 12", {"12"}) == f"a {MASK} b 123 {MASK}"
    stored = '{"data": {"card": "x"}, "shown": {"card": "***"}, "$sealed": ""}'
    assert shown(stored) == '{"card": "***"}'
    assert "x" not in request_text('{"step": "s", "value": ' + stored.replace('"x"', '"xxx"') + "}").replace("xxxx", "")
