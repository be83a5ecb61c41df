"""Schedules in the admin: what is shown, and that only those who may can pause, resume and run one, with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client

from sagas import Overlap, Schedule
from sagas.schedules import firing, table
from sagas.schedules.declaration import schedules
from sagas.settings import Settings
from sagas_django.models import SagaRow, ScheduleRow
from sagas_django.store import DjangoStore
from tests.shop.world import World
from tests.support.schedules import NAME, Raises, declared, no_more_connections

pytestmark = pytest.mark.usefixtures("shop")
LIST = "/admin/sagas/schedulerow/"
PAGE = f"{LIST}test.nightly/change/"
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
NONCE = re.compile(r'name="nonce" value="([^"]+)"')


@pytest.fixture(autouse=True)
def schedule(shop: str) -> Iterator[Schedule[Any]]:
    """One that ticks once a year, so that nothing happens by itself."""
    with declared(cron="0 6 1 1 *", timezone="Europe/Berlin", overlap=Overlap.SKIP) as made:
        with closing(DjangoStore("default").connect()) as wire:
            table.declare(wire, made)
            firing.fire_due(wire, Settings(wake=False), [made])
        yield made
    User.objects.all().delete()


@pytest.fixture
def root(schedule: Schedule[Any]) -> Client:
    """A superuser's browser, which has to send CSRF tokens like any other."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    return client


def clerk(*permissions: str) -> Client:
    """The browser of a member of staff who may do this."""
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def url(kind: str) -> str:
    return f"{LIST}ask/{kind}/?schedule={NAME}"


def html_of(client: Client, where: str = PAGE) -> str:
    return unescape(client.get(where).content.decode())


def form(client: Client, kind: str) -> dict[str, str]:
    html = client.get(url(kind)).content.decode()
    return {"csrfmiddlewaretoken": TOKEN.search(html)[1], "nonce": NONCE.search(html)[1]}  # type: ignore[index]


def send(client: Client, kind: str, reason: str = "stock-taking", **given: str) -> Any:
    return client.post(url(kind), form(client, kind) | {"reason": reason} | given)


def told(answer: Any) -> str:
    """What this very request said."""
    storage: Any = get_messages(answer.wsgi_request)
    return "; ".join(str(message) for message in storage._queued_messages)


def row() -> ScheduleRow:
    return ScheduleRow.objects.get(pk=NAME)


def test_what_is_shown(root: Client) -> None:
    """The list says when and what next; the page has the next ticks by the clock of the time zone."""
    html = html_of(root, LIST)
    assert NAME in html and "test.trip v1" in html and "0 6 1 1 * Europe/Berlin" in html
    html = html_of(root)
    assert html.count("-01-01 06:00:00+01:00") == 5
    assert "overlap skip" in html and "never" in html
    assert "/admin/sagas/schedulerow/ask/pause/?schedule=test.nightly" in html and "ask/run/" in html
    assert "ask/resume/" not in html


def test_pause_and_resume(root: Client) -> None:
    """Who and why are with the schedule, and in the admin's log; a GET changes nothing."""
    assert "It starts nothing until it is resumed." in html_of(root, url("pause"))
    assert not row().paused
    answer = send(root, "pause")
    assert (answer.status_code, answer["Location"], told(answer)) == (302, PAGE, f"Pause: {NAME}")
    assert (row().paused, row().actor, row().reason) == (True, "admin:root", "stock-taking")
    html = html_of(root)
    assert "paused by admin:root: stock-taking" in html and "none while it is paused" in html
    assert "ask/pause/" not in html
    assert "there is nothing to do" in html_of(root, url("pause"))
    assert send(root, "resume", reason="done").status_code == 302
    assert not row().paused
    assert [entry.get_change_message() for entry in AdminLog.objects.order_by("pk")] == [
        "Pause: stock-taking", "Resume: done",
    ]  # fmt: skip


def test_run_now(root: Client, world: World) -> None:
    """One form starts one saga, however often it is sent; while that is open another one is not possible."""
    given = form(root, "run") | {"reason": "the report is needed"}
    for again in ("", " (This form was sent before; it counts once.)"):
        answer = root.post(url("run"), given)
        assert told(answer) == f"Run now: {NAME}{again}"
    saga = SagaRow.objects.get()
    assert saga.headers == {"schedule": NAME, "reason": "the report is needed", "actor": "admin:root"}
    answer = send(root, "run")
    assert "its last run is open" in told(answer)
    assert SagaRow.objects.count() == 1 and AdminLog.objects.count() == 1
    html = html_of(root)
    assert saga.key in html and "sagas-status-running" in html


def test_run_now_without_an_input(root: Client) -> None:
    """The function that makes it raises: the page says so, and nothing was started or noted."""
    fails = Raises()
    schedules.discard(NAME)
    with declared(cron="0 6 1 1 *", timezone="Europe/Berlin", overlap=Overlap.SKIP, input=fails):
        fails.error = LookupError("no shop is open")
        answer = send(root, "run")
    assert answer.status_code == 302 and "input= raised LookupError: no shop is open" in told(answer)
    assert not SagaRow.objects.exists() and not AdminLog.objects.exists()


@pytest.mark.parametrize("kind", ["run", "pause"])
def test_no_second_connection(root: Client, kind: str) -> None:
    """Postgres has none left for it: the page says so, and nothing was done or noted."""
    given = form(root, kind) | {"reason": "x"}
    with no_more_connections():
        answer = root.post(url(kind), given)
    assert answer.status_code == 302 and "the database of 'default' cannot be reached" in told(answer)
    assert not SagaRow.objects.exists() and not AdminLog.objects.exists() and not row().paused


def test_a_reason_is_needed(root: Client) -> None:
    """And the form comes back without one, or with one that is too long for the headers of a saga."""
    for reason in ("", " ", "x" * 501):
        answer = send(root, "run", reason=reason)
        assert answer.status_code == 200 and "errorlist" in answer.content.decode()
    assert not SagaRow.objects.exists() and not AdminLog.objects.exists()


@pytest.mark.parametrize("kind", ["pause", "resume", "run"])
def test_each_needs_its_permission(kind: str) -> None:
    """The right to look is not enough, nor is the right to another of them."""
    others = [f"{each}_schedule" for each in ("pause", "resume", "run") if each != kind]
    client = clerk("view_schedulerow", *others)
    assert client.get(url(kind)).status_code == 403
    assert client.post(url(kind), {"reason": "x"}).status_code == 403
    assert f"ask/{kind}/" not in html_of(client)
    assert not row().paused and not SagaRow.objects.exists()


def test_the_permission_alone_is_not_enough(root: Client) -> None:
    """Who may not look may not ask either; nothing can be added, changed or deleted; other methods are refused."""
    client = clerk("pause_schedule")
    assert client.get(url("pause")).status_code == 403
    assert root.get(f"{LIST}add/").status_code == root.get(f"{LIST}{NAME}/delete/").status_code == 403
    assert root.put(url("pause")).status_code in (403, 405)
    assert root.get(f"{LIST}ask/abolish/?schedule={NAME}").status_code == 404
    assert root.get(f"{LIST}ask/pause/?schedule=x").status_code == 404
    assert Client(enforce_csrf_checks=True).get(url("pause")).status_code == 302


def test_without_its_code(root: Client) -> None:
    """A schedule that this process does not declare is shown, can be paused, and cannot be run."""
    schedules.discard(NAME)
    html = html_of(root)
    assert "not declared in this process: it waits for one that declares it" in html
    assert "ask/pause/" in html and "ask/run/" not in html
    assert "not declared in this process" in html_of(root, LIST)


def test_overdue(root: Client) -> None:
    """Nobody looks after it: the page says what is missing."""
    ScheduleRow.objects.update(look_at="2020-01-01T00:00:00Z")
    assert "overdue: does a relay, or an embedded worker, run with its code?" in html_of(root)


def test_a_failing_log_entry_keeps_the_schedule_as_it_is(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no pause without its entry in the admin's log."""
    from sagas_django.admin_schedules import ScheduleAdmin

    given = form(root, "pause") | {"reason": "x"}
    monkeypatch.setattr(ScheduleAdmin, "log_change", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        root.post(url("pause"), given)
    assert not row().paused
