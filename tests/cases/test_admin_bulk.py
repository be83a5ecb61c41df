"""Incidents of actions on many sagas at once in the admin."""

from __future__ import annotations

import re
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.db import connection, transaction
from django.test import Client

from sagas import engine
from sagas.states import Status
from sagas_django import admin_actions, admin_bulk
from sagas_django.admin import SagaAdmin
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from tests.integration.test_admin_actions import LIST, choose, form_of, root, told
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.stories import NO_WAIT, begin, begin_many, drain

__all__ = ["root"]

pytestmark = pytest.mark.usefixtures("shop")
PAGE = 100
ENDED = {Status.COMPLETED, Status.COMPENSATED, Status.CANCELLED, Status.ABORTED}
NO_REPLY = ConnectionError("no reply")
APPLIED = {"retry": "retried", "cancel": "cancel_requested", "abort": "aborted"}  # kinds of entries


def choose_all(client: Client, kind: str, query: str = "") -> Any:
    """Tick one saga of the list, then "select all across pages", and pick an action from the menu."""
    page = form_of(client.get(LIST).content.decode())
    chosen = [str(SagaRow.objects.values_list("id", flat=True)[0])]
    form = {"action": f"{kind}_sagas", "_selected_action": chosen, "select_across": "1", "index": "0"}
    return client.post(LIST + query, form | {"csrfmiddlewaretoken": page["csrfmiddlewaretoken"]})


def send(client: Client, kind: str, page: Any, reason: str) -> list[str]:
    """Send the form that asks for the reason; returns what the admin says."""
    return told(client.post(f"{LIST}ask/{kind}/", form_of(page.content.decode()) | {"reason": reason}))


def in_every_state(world: World) -> None:
    """Sagas that ended in each way, a parked one, and so many new ones that they do not fit on a page."""
    begin(Trip, "completed")
    drain()
    world.plan("confirm", ValueError("a bug"), ValueError("a bug"), ValueError("a bug"), saga="compensated")
    world.always("charge", NO_REPLY, saga="parked")
    world.always("charge", NO_REPLY, saga="aborted")
    begin_many(Trip, ["parked", "aborted", "compensated"])
    begin(Trip, "cancelled")
    with transaction.atomic():
        Trip.cancel(key="cancelled", reason="changed my mind")
    drain()
    engine.request(None, "abort", id=Trip.get(key="aborted").id, reason="never mind")
    drain()
    assert set(SagaRow.objects.values_list("status", flat=True)) == ENDED | {Status.PARKED}
    begin_many(Trip, [f"new {number}" for number in range(PAGE)])


def possible(kind: str) -> set[str]:
    """The keys of all sagas for which the engine says that this is possible."""
    keys = SagaRow.objects.values_list("key", flat=True)
    return {key for key in keys if kind in [action.name for action in Trip.get(key=key).allowed_actions]}


@pytest.mark.parametrize("kind", ["retry", "cancel", "abort"])
def test_ad01_a_bulk_action_goes_through_the_machine(root: Client, world: World, kind: str) -> None:
    """All of several pages, in every state: each gets the request that the engine would insert, with actor and reason
    in its log, or is refused and named; no action writes a status itself.

    What one may ask of many is retry, cancel, abort, pause and resume: there is no skip, and to compensate is to
    cancel.
    """
    in_every_state(world)
    fine, before = possible(kind), dict(SagaRow.objects.values_list("key", "status"))
    refused = set(before) - fine
    assert fine and refused >= {str(status) for status in ENDED}
    said = send(root, kind, choose_all(root, kind), "the bank is back")
    asked = SagaRow.objects.filter(pk__in=OutboxRow.objects.filter(kind=kind).values("saga_id"))
    assert set(asked.values_list("key", flat=True)) == fine
    assert dict(SagaRow.objects.values_list("key", "status")) == before
    assert (f"of {len(fine)} sagas" in said[0]) == (len(fine) > 1)
    named = said[1].count("by now, this would change nothing")
    more = re.search(r"and (\d+) more$", said[1])
    assert named + int(more[1] if more else 0) == len(refused)
    assert AdminLog.objects.count() == len(fine)
    drain(skip=NO_WAIT)  # only what is due, as the requests are
    noted = LogEntry.objects.filter(kind=APPLIED[kind], data__actor="admin:root", data__reason="the bank is back")
    assert noted.values("saga_id").distinct().count() == len(fine)


def test_ad01_all_of_1500_are_asked_after_one_confirmation(root: Client) -> None:
    """Choosing all asks nothing of any; the form that then says "all that fit" asks each, as the API would, once."""
    begin_many(Trip, [f"new {number}" for number in range(1500)])
    page = choose_all(root, "cancel")
    assert not OutboxRow.objects.exclude(kind="step").exists()
    for _ in range(5):  # on a slow machine the time for one request may run out before all are asked
        form = form_of(page.content.decode()) | {"reason": "fair is cancelled", "everything": "on"}
        told(root.post(f"{LIST}ask/cancel/", form))
        if OutboxRow.objects.filter(kind="cancel").count() >= 1500:
            break
        page = choose_all(root, "cancel")
    assert OutboxRow.objects.filter(kind="cancel").values("saga_id").distinct().count() == 1500
    assert OutboxRow.objects.filter(kind="cancel").count() == 1500
    assert AdminLog.objects.filter(change_message__contains="fair is cancelled").count() >= 1500


@pytest.mark.parametrize("workers", [True, False])
def test_ad01_every_form_goes_on_where_the_last_one_ran_out_of_time(
    root: Client, workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is paused already, or waits for a worker to pause it, fits the filters too; it takes no more than a look."""
    begin_many(Trip, [f"new {number}" for number in range(6)])
    with connection.cursor() as cursor:  # so that workers find nothing but requests
        cursor.execute("update sagas_outbox set due_at = due_at + interval '1 hour'")
    now, ask_each = [0.0], admin_bulk.ask_each

    def slowly(admin: Any, request: Any, sagas: Any, question: Any) -> Any:
        now[0] += 6.0 * len(sagas)
        return ask_each(admin, request, sagas, question)

    monkeypatch.setattr(admin_actions, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(admin_bulk, "CHUNK", 2)
    monkeypatch.setattr(admin_bulk, "ask_each", slowly)
    monkeypatch.setattr(admin_bulk, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for asked in (2, 4, 6):
        form = form_of(choose_all(root, "pause").content.decode()) | {"reason": "stock-taking", "everything": "on"}
        said = "; ".join(told(root.post(f"{LIST}ask/pause/", form)))
        assert "is asked for of 2 sagas" in said and ("Ask again for the rest" in said) == (asked < 6), said
        assert said.count("would change nothing" if workers else "asked for already") == asked - 2
        if workers:
            drain(skip=NO_WAIT)
            assert SagaRow.objects.filter(paused=True).count() == asked
        else:
            assert OutboxRow.objects.filter(kind="pause").count() == asked


def test_ad01_all_that_fit_are_not_those_of_a_page(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen on the third page of a list that is shorter by the time the form is sent: all that fit are asked."""
    monkeypatch.setattr(admin_actions, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(SagaAdmin, "list_per_page", 2)
    begin_many(Trip, [f"new {number}" for number in range(6)])
    page = choose_all(root, "pause", "?name=test.trip&p=3")
    SagaRow.objects.filter(key__in=["new 0", "new 3", "new 4"]).update(name="test.other")
    form = form_of(unescape(page.content.decode())) | {"reason": "stock-taking", "everything": "on"}
    assert "is asked for of 3 sagas" in "; ".join(told(root.post(f"{LIST}ask/pause/", form)))


def test_ad01_the_status_cannot_be_edited(root: Client) -> None:
    """The page of a saga has no field for it, and a forged form changes nothing."""
    run = begin(Trip)
    url = f"{LIST}{run.id}/change/"
    page = root.get(url).content.decode()
    assert not re.search(r'<(input|select|textarea)[^>]*name="(status|_save)"', page)
    token = form_of(root.get(LIST).content.decode())["csrfmiddlewaretoken"]
    answer = root.post(url, {"status": "completed", "_save": "Save", "csrfmiddlewaretoken": token})
    assert answer.status_code == 403
    assert SagaRow.objects.get().status == Status.RUNNING


def test_ad03_four_of_fifty_do_not_stop_the_rest(root: Client, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One was aborted meanwhile, one is asked for already, one is of a class that is not here, and one fails in the
    database: these four are named with their reasons, and forty-six are asked for, each in a transaction of its own.
    """
    world.always("charge", NO_REPLY)
    begin_many(Trip, [f"k{number:02}" for number in range(50)])
    drain()
    runs = [Trip.get(key=f"k{number:02}") for number in range(50)]
    assert {run.status for run in runs} == {Status.PARKED}
    page = choose(root, "retry", runs)
    engine.request(None, "abort", id=runs[0].id, reason="never mind")
    drain()
    engine.request(None, "retry", id=runs[10].id, reason="somebody was faster")
    SagaRow.objects.filter(pk=runs[20].id).update(name="gone.saga")
    request = engine.request

    def fails_in_the_database(name: Any, kind: str, **given: Any) -> Any:
        answer = request(name, kind, **given)
        if given["id"] == runs[30].id:
            with connection.cursor() as cursor:
                cursor.execute("select 1 / 0")
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(engine, "request", fails_in_the_database)
        done, not_done = send(root, "retry", page, "the bank is back")
    assert "of 46 sagas" in done
    reasons = ("k00: it is aborted", "k10: this was asked for already", "not registered in this process",
               "k30: division by zero")  # fmt: skip
    assert all(reason in not_done for reason in reasons) and not_done.count("; ") == 3, not_done
    assert AdminLog.objects.count() == 46
    world.reset()
    SagaRow.objects.filter(pk=runs[20].id).update(name="test.trip")
    drain()
    by_status = {
        status: SagaRow.objects.filter(status=status).count() for status in (Status.COMPLETED, Status.ABORTED)
    }  # fmt: skip
    assert by_status == {Status.COMPLETED: 47, Status.ABORTED: 1}, "46, and the one that somebody was faster with"
    assert [run.key for run in runs if Trip.get(key=run.key).status == Status.PARKED] == ["k20", "k30"]
