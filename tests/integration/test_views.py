"""The views for analysts: what is in them, and that the usual question finds an index."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection

from sagas import NOT_DONE, Refused
from sagas.machine import TERMINAL
from sagas.states import Status
from sagas.store.schema_files import NAMES, schema_sql
from tests.shop.sagas import Asked, Charge, Trip
from tests.shop.waiting import Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")

SECRET = "top-secret"
VIEWS = ("sagas_v_status", "sagas_v_steps", "sagas_v_failures", "sagas_v_attempts", "sagas_v_queues")


def ask(statement: str) -> list[dict[str, Any]]:
    """What a query finds."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def plan_of(statement: str) -> str:
    """How the planner would answer it, had the tables many rows."""
    with connection.cursor() as cursor:
        cursor.execute("set enable_seqscan = off")
        cursor.execute(f"explain {statement}")
        found = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("reset enable_seqscan")
        return found


def test_views_name_statuses_that_there_are() -> None:
    """What the views call a failure is every end but one, as the machine has them, and being parked."""
    text = "".join(schema_sql(number) for number in range(1, len(NAMES) + 1))
    views = re.findall(r"^create view (\w+) as\n(.*?);$", text, re.S | re.M)
    assert tuple(name for name, _ in views) == VIEWS
    named = {word for _, body in views for word in re.findall(r"status (?:=|<>|in) *\(?'(\w+)'", body)}
    assert named == {Status.COMPLETED} and named < {status.value for status in TERMINAL}


def test_what_the_views_say(world: World) -> None:
    """Sagas, their steps, failures, failed attempts and queues: each with what an analyst joins by."""
    world.plan("book", OSError("no route"), saga="undone")
    world.plan("charge", Refused("no money"), saga="undone")
    begin(Trip, "undone")
    begin(Trip, "done")
    begin(Reviewed, "waits")
    world.always("charge", OSError("no route"), saga="parked")
    begin(Charge, "parked")
    drain()
    status = {each["key"]: each for each in ask("select * from sagas_v_status")}
    assert status["done"]["status"] == "completed" and status["done"]["seconds"] > 0
    assert status["done"]["next_steps"] is None and status["waits"]["next_steps"] == ["review"]
    assert status["parked"]["parked_from"] and status["parked"]["error"]
    steps = {each["step"]: each for each in ask("select * from sagas_v_steps where key = 'undone'")}
    assert steps["book"]["status"] == "undone" and steps["book"]["undo_attempts"] == 1
    assert steps["book"]["attempts"] == 2 and steps["charge"]["attempts"] == 1
    failures = {each["key"]: each["status"] for each in ask("select * from sagas_v_failures")}
    assert set(failures) == {"undone", "parked"} and failures["undone"] == status["undone"]["status"]
    attempts = ask("select * from sagas_v_attempts where key = 'undone' order by seq")
    assert [(each["step"], each["attempt"], each["error_type"]) for each in attempts] == [
        ("book", 1, "OSError"), ("charge", 1, "sagas.errors.Refused"),
    ]  # fmt: skip
    assert attempts[0]["error_message"] == "no route" and attempts[0]["retry_in"] is not None
    (queue,) = ask("select * from sagas_v_queues")
    assert queue["queue"] == "default" and queue["later"] == 1 and queue["due"] == 0


def test_all_that_failed_last_month_uses_an_index() -> None:
    """However many sagas have ended in all, only those of the month are looked at, or only those that failed."""
    found = plan_of("select * from sagas_v_failures where failed_at >= now() - interval '1 month'")
    ended = "sagas_saga_ended" in found or "sagas_saga_failed" in found  # by what the planner knows of the tables
    assert ended and "sagas_saga_parked" in found and "Seq Scan" not in found, found


def test_one_saga_uses_keys() -> None:
    """Looking one saga up in any view reads that saga only."""
    one = "'00000000-0000-0000-0000-000000000000'"
    for view, column in (("sagas_v_status", "id"), ("sagas_v_steps", "saga_id"), ("sagas_v_attempts", "saga_id")):
        found = plan_of(f"select * from {view} where {column} = {one}")
        assert "sagas_saga_pkey" in found and "Seq Scan" not in found, found


def test_views_show_no_payloads(world: World) -> None:
    """Neither inputs nor results nor signals."""
    world.plan("charge", SECRET, saga="secret")
    world.always("find", NOT_DONE)
    begin(Asked, "secret")
    drain()
    for view in VIEWS:
        assert SECRET not in str(ask(f"select * from {view}"))
