"""Tasks that note down in Postgres what they were called with."""

from __future__ import annotations

import json
from typing import Any

from celery import chain, shared_task
from django.db import connection, transaction
from kombu.utils.json import dumps

from sagas_django.inbox import inbox

HEADERS = ("a", "n", "when", "headers")


def note(task: str, id: str, what: Any) -> None:
    """One line for each call."""
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into note (task, id, what) values (%s, %s, %s::jsonb)", [task, id, json.dumps(what)]
        )  # fmt: skip


@shared_task(bind=True)
def plain(self: Any, *args: Any, **kwargs: Any) -> None:
    """Runs each time it is delivered."""
    note("plain", self.request.id, [args, kwargs, getattr(self.request, "traceparent", None)])


@shared_task(bind=True)
def headed(self: Any, *args: Any, **kwargs: Any) -> None:
    """Tells which headers it was given, and which arguments."""
    found = [*(getattr(self.request, name) for name in HEADERS), args, kwargs]
    note("headed", self.request.id, json.loads(dumps(found)))


@shared_task
def nowhere(number: int) -> None:
    """Is routed to a queue that the app does not have."""


@shared_task(acks_late=True, autoretry_for=(RuntimeError,), retry_backoff=False, default_retry_delay=0, max_retries=5)
@inbox(name="once")
def once(number: int, fails: int = 0) -> None:
    """Handles each message once; fails the first `fails` times, after it has written."""
    note("once", "", number)
    if fails:
        with connection.cursor() as cursor:
            cursor.execute("select nextval('tries')")
            (tries,) = cursor.fetchone()
        if tries <= fails:
            raise RuntimeError("not yet")


@shared_task(bind=True, max_retries=2, default_retry_delay=0)
def drop_in(self: Any, *args: Any, **kwargs: Any) -> None:
    """One of the tasks whose calls are published."""
    note("drop_in", self.request.id, [args, kwargs])
    if kwargs.get("again") and self.request.retries < 1:
        raise self.retry()


@shared_task
def begins() -> None:
    """A chain that begins with a task whose calls are not published, and ends with one whose are."""
    chain(nothing.si(), drop_in.si("last")).apply_async(link_error=nothing.si())


@shared_task
def nothing() -> None:
    """Runs, and that is all."""


@shared_task
def calls(number: int, fails: bool = False) -> None:
    """Calls the other one in a transaction, as code does that knows nothing of an outbox."""
    with transaction.atomic():
        drop_in.delay(number, again=True)
        if fails:
            transaction.set_rollback(True)
