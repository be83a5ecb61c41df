"""Old and new code side by side on one database: what either writes the other understands, or leaves alone."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from sagas.engine import request
from sagas_celery import process, tasks
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.stories import begin, differences, drain, log_of
from tests.support.workers import run_together

pytestmark = pytest.mark.usefixtures("shop")


def sql(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def said(key: str, **more: Any) -> dict[str, Any]:
    """What a caller sends: only what there was to be said at first, and more."""
    head = {"name": "test.trip", "version": 1, "key": key, "input": {"number": 7}, "headers": {}}
    row = {"step": "book", "direction": "do", "queue": "default"}
    return {
        "id": str(uuid4()), "name": "test.trip", "version": 1, "key": key, "status": "running", "seq": 0,
        "input_hash": "x", "steps": {}, "headers": {}, "run_again_after": [], "saga": head | more, "rows": [row | more],
    } | more  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"colour": "red"}], ids=["less", "more"])
def test_a_start_of_another_release(more: dict[str, Any]) -> None:
    """One that says only what there was to be said at first, and one that says what these tables do not know."""
    sql("select sagas_start_v1(%s)", json.dumps(said("old", **more)))
    drain()
    assert SagaRow.objects.get(key="old").status == "completed"
    assert differences() == []


def test_rows_that_say_more(world: World) -> None:
    """Fields of a later release in the steps of a saga, in its log and in a request are passed over."""
    saga = begin(Trip)
    run_together()  # `book`
    sql("""update sagas_saga set steps = jsonb_set(steps, '{book,colour}', '"red"')""")
    sql("alter table sagas_log disable trigger sagas_log_append_only")
    try:
        sql("""update sagas_log set data = jsonb_set(data, '{colour}', '"red"')""")
    finally:
        sql("alter table sagas_log enable trigger sagas_log_append_only")
    request(None, "cancel", id=saga.id, reason="changed their mind", using=None)
    sql("""update sagas_outbox set payload = jsonb_set(payload, '{colour}', '"red"') where kind = 'cancel'""")
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "cancelled"
    assert log_of(saga)[-2:] == ["undo_done book", "cancelled"]
    assert differences() == []


def test_rows_that_say_less(world: World) -> None:
    """What says nothing is left out: steps that nobody came to, facts without a value. So new ones may be added."""
    saga = begin(Trip)
    run_together()
    row = SagaRow.objects.get(id=saga.id)
    assert set(row.steps) == {"book"}
    assert set(LogEntry.objects.get(saga_id=saga.id, seq=1).data) <= {
        "direction", "deliveries", "first_begun_at", "source", "result"
    }  # fmt: skip
    assert OutboxRow.objects.get(saga_id=saga.id).progress is None
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "completed"


def test_messages_of_other_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says more is understood; one of another shape is dropped, and its rows are published again."""
    ran: list[Any] = []
    monkeypatch.setattr(process, "run", lambda store, held: ran.append((store, held)))
    tasks.run(v=1, store="default", rows=[[7, 3]])
    tasks.run(v=1, store="default", rows=[[7, 3]], colour="red")
    assert ran == [("default", [(7, 3)])] * 2
    tasks.run(v=2, store="default", sagas=[{"id": 7}])
    tasks.run(v=2, store="default", rows=[[7, 3, "red"]])
    assert len(ran) == 2
