"""Approval, redo and pauses in the admin: only what is possible, only by those who may, once, and with a reason."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from html import unescape
from threading import Barrier
from typing import Annotated, Any, Literal

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.db import connections
from django.test import Client
from msgspec import Meta, Struct

from sagas import Saga, Sensitive, wait_for
from sagas.engine import SagaRun
from sagas.states import Status
from sagas_django import admin_signal
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.signal_form import form_for
from tests.shop.sagas import Ordered, Trip
from tests.shop.waiting import Choosy, Crowded, Hurried, Reviewed
from tests.shop.world import World
from tests.support.schedules import no_more_connections
from tests.support.stories import NO_WAIT, Aside, begin, drain, entries, outbox

pytestmark = pytest.mark.usefixtures("shop")
LIST = "/admin/sagas/sagarow/"
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
UNSEEN = re.compile(r'name="(nonce|seen)" value="([^"]+)"')


@pytest.fixture
def root(shop: str) -> Client:
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


def page_of(client: Client, run: SagaRun) -> str:
    """The page of a saga, as text."""
    return unescape(client.get(f"{LIST}{run.id}/change/").content.decode())


def url_of(run: SagaRun, *parts: str) -> str:
    return f"{LIST}{run.id}/{'/'.join(parts)}/"


def hidden(client: Client, url: str) -> dict[str, str]:
    """What the form on a page sends without anybody's doing."""
    html = client.get(url).content.decode()
    found = {"csrfmiddlewaretoken": TOKEN.search(html)[1]}  # type: ignore[index]
    return found | dict(UNSEEN.findall(html))


def told(answer: Any) -> str:
    """What this very request said."""
    storage: Any = get_messages(answer.wsgi_request)
    return "; ".join(str(message) for message in storage._queued_messages)


def waiting(key: str = "a") -> SagaRun:
    """A saga that waits for its review."""
    run = begin(Reviewed, key)
    drain()
    return run


def parked(world: World) -> SagaRun:
    """A trip that parked over its charge."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run = begin(Trip)
    drain()
    return run


def approve(client: Client, run: SagaRun, **given: str) -> Any:
    """Fill in the form of the review and send it."""
    url = url_of(run, "signal", "review")
    return client.post(url, hidden(client, url) | {"value_ok": "true", "value_note": "", "reason": "fine"} | given)


# --- approval ---


def test_approval(root: Client, world: World) -> None:
    """The page leads to a form made from the type; who, when and why are in the timeline, and in the admin's log."""
    run = waiting()
    html = page_of(root, run)
    assert "review waits for a signal until" in html and "The saga waits for this now." in html
    assert f'href="{url_of(run, "signal", "review")}"' in html
    answer = approve(root, run, value_note="looks <good>", reason="papers are right")
    assert (answer.status_code, answer["Location"]) == (302, url_of(run, "change"))
    assert told(answer) == "The signal review is sent, a worker will apply it: test.reviewed a"
    noted = AdminLog.objects.get()
    assert (noted.object_id, noted.user.username) == (str(run.id), "root")
    assert noted.get_change_message() == 'Sent signal review {"ok": true, "note": "looks <good>"}: papers are right'
    drain()
    assert Reviewed.get(key="a").status == Status.COMPLETED
    (entry,) = [entry for entry in entries(run) if entry.kind == "signalled"]
    assert (entry.data["actor"], entry.data["reason"]) == ("admin:root", "papers are right")
    assert entry.data["result"] == {"ok": True, "note": "looks <good>"}
    html = page_of(root, run)
    assert "admin:root" in html and "papers are right" in html and "looks <good>" in html
    assert "signal/review" not in html and "of entry" in html


@pytest.mark.parametrize(
    ("given", "wrong"),
    [({"value_ok": ""}, "value_ok"), ({"value_ok": "maybe"}, "value_ok"), ({"reason": " "}, "reason")],
)
def test_a_form_that_is_not_complete_comes_back(
    given: dict[str, str], wrong: str, root: Client, world: World
) -> None:  # fmt: skip
    """With what is missing, and with what was entered; nothing is sent. Yes is never chosen by itself."""
    run = waiting()
    answer = approve(root, run, value_note="kept", **given)
    assert answer.status_code == 200 and list(answer.context["form"].errors) == [wrong]
    assert 'value="kept"' in answer.content.decode()
    assert [row.kind for row in outbox(run)] == ["step"]


def test_approval_before_the_saga_comes_to_it(root: Client, world: World) -> None:
    """It is kept, shown as queued, and not asked for twice."""
    run = begin(Crowded)
    drain()
    assert "The saga will wait for this; it may come early." in page_of(root, run)
    url = url_of(run, "signal", "two")
    root.post(url, hidden(root, url) | {"value": "early", "reason": "r"})
    assert "waits for a worker to apply it" in unescape(root.get(url).content.decode())
    drain()
    assert "1 signal queued" in page_of(root, run)
    assert "this signal was sent before, and waits until the saga comes to it" in root.get(url).content.decode()


def test_a_form_sent_twice_at_once_sends_once(
    root: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Both requests have passed every check of the views before either writes; one signal, one entry."""
    run = waiting()
    url, once = url_of(run, "signal", "review"), admin_signal.once
    form = hidden(root, url) | {"value_ok": "true", "value_note": "", "reason": "fine"}
    both, answers = Barrier(2, timeout=20), []

    def together(*given: Any) -> bool:
        both.wait()
        return once(*given)

    monkeypatch.setattr(admin_signal, "once", together)

    def click() -> None:
        answers.append(root.post(url, form))

    clicks = [Aside(click), Aside(click)]
    for each in clicks:
        each.join()
    assert [answer.status_code for answer in answers] == [302, 302]
    assert sum("it counts once" in told(answer) for answer in answers) == 1
    assert (OutboxRow.objects.filter(kind="signal").count(), AdminLog.objects.count()) == (1, 1)
    connections.close_all()


def test_a_decision_that_comes_too_late(root: Client, world: World) -> None:
    """The saga has moved on while the form was open: nothing is sent, and the message says so."""
    run = waiting()
    url = url_of(run, "signal", "review")
    form = hidden(root, url) | {"value_ok": "false", "value_note": "", "reason": "no"}
    approve(root, run)
    drain()
    answer = root.post(url, form)
    assert "the saga does not wait for this signal, and will not" in told(answer)
    assert not OutboxRow.objects.filter(kind="signal").exists() and AdminLog.objects.count() == 1


def test_only_those_who_may_approve(world: World) -> None:
    """Neither button nor page nor post without the permission; and it needs that to look."""
    run = waiting()
    client = clerk("view_sagarow", "retry_saga")
    url = url_of(run, "signal", "review")
    assert "signal/review" not in page_of(client, run)
    token = hidden(client, f"{LIST}ask/retry/?saga={run.id}")
    assert client.get(url).status_code == 403 and client.post(url, token).status_code == 403
    User.objects.all().delete()
    client = clerk("view_sagarow", "signal_saga")
    assert approve(client, run).status_code == 302
    assert client.get(url_of(run, "signal", "ship")).status_code == 404
    assert client.put(url, headers={"X-CSRFToken": hidden(client, url)["csrfmiddlewaretoken"]}).status_code == 405
    form = hidden(client, url)
    del form["csrfmiddlewaretoken"]
    assert client.post(url, form).status_code == 403
    User.objects.all().delete()
    assert clerk("signal_saga").get(url).status_code == 403


def test_what_is_sensitive_is_not_shown(root: Client, world: World) -> None:
    """It is sent, and masked in both logs."""
    run = begin(Told, "t")
    drain()
    url = url_of(run, "signal", "pin")
    root.post(url, hidden(root, url) | {"value_number": "4711", "value_note": "n", "reason": "r"})
    assert AdminLog.objects.get().get_change_message() == 'Sent signal pin {"number": "***", "note": "n"}: r'
    drain()
    assert Told.get(key="t").status == Status.COMPLETED
    html = page_of(root, run)
    assert "***" in html and "4711" not in html


# --- the form ---


class Colour(Enum):
    """Something to choose from."""

    RED = "red"
    BLUE = "blue"


class Ordinary(Struct):
    """Everything that has a field of its own."""

    text: str
    number: int
    amount: Decimal
    share: float
    colour: Colour
    size: Literal["s", "m"]
    day: date
    limit: Annotated[int, Meta(ge=1)] = 5
    flag: bool = True
    note: str = "-"
    maybe: int | None = None
    hue: Colour = Colour.BLUE
    at: datetime | None = None
    word: str | None = None


@dataclass(frozen=True)
class Nested:
    """Has a part that is no single field."""

    ok: bool
    lines: list[str] = field(default_factory=list)


class InOrder(Struct, array_like=True):
    """Is a list in JSON."""

    ok: bool


class Pin(Struct):
    """Has something that is not shown."""

    number: Annotated[str, Sensitive]
    note: str


class Told(Saga[Ordered], name="test.told_in_admin", version=1):
    """Waits for what is not shown."""

    pin = wait_for(Pin)


class Formed(Saga[Ordered], name="test.formed", version=1):
    """Waits for one of each."""

    ordinary = wait_for(Ordinary)
    nested = wait_for(Nested)
    in_order = wait_for(InOrder)
    word = wait_for(str)
    flag = wait_for(bool)
    number = wait_for(int)


BASE = {"nonce": "6f0f3c2e-9a52-4d6c-9e3a-111111111111", "reason": "r"}
GIVEN = BASE | {
    "value_text": "t", "value_number": "3", "value_amount": "1.10", "value_share": "0.5", "value_colour": "blue",
    "value_size": "m", "value_day": "2026-02-03",
}  # fmt: skip


def test_a_field_for_each_part() -> None:
    """Text, numbers, yes or no, choices, dates; defaults are shown, and taken where nothing is entered."""
    form = form_for(Formed.ordinary)(GIVEN)
    assert form.is_valid(), form.errors
    assert form.value == Ordinary("t", 3, Decimal("1.10"), 0.5, Colour.BLUE, "m", date(2026, 2, 3), note="")
    shown = form_for(Formed.ordinary)()
    initial = [shown.fields[f"value_{name}"].initial for name in ("limit", "flag", "note", "hue")]
    assert initial == [5, "true", "-", "blue"]
    assert list(shown.fields) == ["nonce", *(f"value_{name}" for name in Ordinary.__struct_fields__), "reason"]
    form = form_for(Formed.ordinary)(
        GIVEN | {"value_flag": "false", "value_maybe": "7", "value_at": "2026-02-03T10:00"}
    )
    assert form.is_valid(), form.errors
    value = form.value
    assert (value.flag, value.maybe, value.word, value.at.tzinfo is None) == (False, 7, None, False)


def test_a_time_where_time_zones_are_off(settings: Any) -> None:
    """It is meant in the time zone of the project; what is kept of a saga says which that was."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    form = form_for(Formed.ordinary)(GIVEN | {"value_at": "2026-07-03T10:00"})
    assert form.is_valid(), form.errors
    assert form.value.at.isoformat() == "2026-07-03T10:00:00+02:00"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"value_number": "x"}, "whole number"), ({"value_limit": "0"}, ">= 1"), ({"value_text": ""}, "required"),
     ({"value_colour": "green"}, "valid choice"), ({"value_amount": "NaN"}, "number")],
)  # fmt: skip
def test_what_is_wrong_is_said_at_its_field(wrong: dict[str, str], message: str) -> None:
    """Also limits that only the type knows."""
    form = form_for(Formed.ordinary)(GIVEN | wrong)
    assert not form.is_valid() and list(form.errors) == list(wrong)
    assert message in unescape(str(form.errors))


def test_other_types_are_given_as_json() -> None:
    """One box, which says which type; what does not fit is named."""
    made = form_for(Formed.nested)
    assert list(made.base_fields) == ["nonce", "reason", "value"] or set(made.base_fields) == {
        "nonce",
        "reason",
        "value",
    }
    assert made().fields["value"].help_text == "JSON of Nested"
    form = made(BASE | {"value": '{"ok": true, "lines": ["a"]}'})
    assert form.is_valid() and form.value == Nested(True, ["a"])
    form = form_for(Formed.in_order)(BASE | {"value": "[true]"})
    assert form.is_valid() and form.value == InOrder(True)
    form = made(BASE | {"value": '{"ok": true, "lines": [1]}'})
    assert not form.is_valid() and "nested.lines[0]: Expected `str`, got `int`" in unescape(str(form.errors["value"]))


@pytest.mark.parametrize(
    ("wait", "given", "value"),
    [(Formed.word, "yes", "yes"), (Formed.flag, "false", False), (Formed.number, "12", 12)],
)
def test_a_signal_without_parts(wait: Any, given: str, value: object) -> None:
    """One field."""
    form = form_for(wait)(BASE | {"value": given})
    assert form.is_valid() and form.value == value
    assert not form_for(wait)(BASE).is_valid()


# --- the page ---


def test_the_page_says_what_it_waits_for(root: Client, world: World) -> None:
    """Deadline, pauses, skips with their reason, definitions that are not here; and so does the list."""
    run = begin(Hurried, "h")
    assert "Deadline" in page_of(root, run)
    skipped = begin(Choosy, "c", Ordered(number=13))
    drain(skip=NO_WAIT)
    assert "unlucky" in page_of(root, skipped)
    lost = waiting("lost")
    listed = unescape(root.get(LIST).content.decode())
    assert '<td class="field-shown_step">review waits for a signal until' in listed
    SagaRow.objects.filter(pk=lost.id).update(version=9)
    html = page_of(root, lost)
    assert "its definition is not in this process" in html and "signal/review" not in html


# --- redo ---


def test_redo(root: Client, world: World) -> None:
    """One button, a choice of steps, what it means, and a box to tick; the log says who and why."""
    run = parked(world)
    url = url_of(run, "redo")
    assert f'href="{url}"' in page_of(root, run)
    html = unescape(root.get(url).content.decode())
    assert "under a new idempotency key: if it did happen, it happens twice" in html
    assert '<option value="charge">' in html and '<option value="confirm">' not in html
    form = hidden(root, url) | {"step": "charge", "reason": "the bank has lost it"}
    answer = root.post(url, form)
    assert answer.status_code == 200 and list(answer.context["form"].errors) == ["sure"]
    assert root.post(url, form | {"sure": "on", "step": "confirm"}).status_code == 302
    assert not OutboxRow.objects.filter(kind="redo").exists(), "not of a step where it is not legal"
    answer = root.post(url, hidden(root, url) | {"step": "charge", "reason": "the bank has lost it", "sure": "on"})
    assert "Redo is asked for" in told(answer)
    assert AdminLog.objects.get().get_change_message() == "Asked for Redo charge: the bank has lost it"
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED
    (entry,) = [entry for entry in entries(run) if entry.kind == "redone"]
    assert (entry.step, entry.data["actor"]) == ("charge", "admin:root")
    html = page_of(root, run)
    assert "done anew once" in html and f"{run.id}:charge:do:1" in html and f'href="{url}"' not in html


def test_a_redo_whose_form_was_open_while_the_saga_moved_on(root: Client, world: World) -> None:
    """Two people open it; the second sends theirs after the first one's redo has parked again: it happens once."""
    run = parked(world)
    url = url_of(run, "redo")
    forms = [hidden(root, url) | {"step": "charge", "reason": "it is lost", "sure": "on"} for _ in range(2)]
    root.post(url, forms[0])
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    drain()
    assert Trip.get(key="a").status == Status.PARKED
    assert "has moved on since you looked at it" in told(root.post(url, forms[1]))
    drain()
    assert [entry.kind for entry in entries(run)].count("redone") == 1


def test_only_those_who_may_redo(world: World) -> None:
    """Neither button nor page."""
    run = parked(world)
    client = clerk("view_sagarow", "retry_saga")
    assert url_of(run, "redo") not in page_of(client, run)
    assert client.get(url_of(run, "redo")).status_code == 403


# --- pauses ---


def test_pauses(root: Client, world: World) -> None:
    """The list leads to a page that pauses with a reason and resumes; sagas say what holds them up."""
    run = begin(Trip)
    url = f"{LIST}pauses/"
    assert f'href="{url}"' in root.get(LIST).content.decode()
    form = hidden(root, url) | {"what": "definition 0 test.trip"}
    assert list(root.post(url, form).context["form"].errors) == ["reason"]
    answer = root.post(url, form | {"reason": "the bank is down"})
    assert (answer.status_code, told(answer)) == (302, "Paused: definition test.trip")
    drain(skip=NO_WAIT)
    assert world.calls == []
    assert "definition test.trip is paused by admin:root: the bank is down" in page_of(root, run)
    html = unescape(root.get(url).content.decode())
    assert "the bank is down" in html and 'name="resume" value="definition 0 test.trip"' in html
    token = hidden(root, url)
    assert told(root.post(url, token | {"resume": "definition 0 test.trip"})) == "Resumed: definition test.trip"
    assert told(root.post(url, token | {"resume": "definition 0 test.trip"})) == "This is not paused any more."
    notes = list(AdminLog.objects.order_by("id").values_list("object_repr", "change_message"))
    assert notes == [("definition 0 test.trip", "Paused: the bank is down"), ("definition 0 test.trip", "Resumed")]
    drain(skip=NO_WAIT)
    assert Trip.get(key="a").status == Status.COMPLETED


def test_no_connection_to_pause_with(root: Client) -> None:
    """Postgres has none left for it: the page says so, and nothing is paused or noted."""
    url = f"{LIST}pauses/"
    form = hidden(root, url) | {"what": "definition 0 test.trip", "reason": "x"}
    with no_more_connections():
        answer = root.post(url, form)
    assert answer.status_code == 302 and "the database of 'default' cannot be reached" in told(answer)
    assert "Nothing is paused as a whole" in root.get(url).content.decode() and not AdminLog.objects.exists()


def test_only_those_who_may_pause(world: World) -> None:
    """Who may look sees the list, and no form."""
    url = f"{LIST}pauses/"
    client = clerk("view_sagarow")
    html = client.get(url).content.decode()
    assert "Nothing is paused as a whole" in html and 'name="what"' not in html
    token = {"csrfmiddlewaretoken": client.cookies["csrftoken"].value} if "csrftoken" in client.cookies else {}
    assert client.post(url, token | {"what": "queue 0 default", "reason": "x"}).status_code == 403
    assert client.post(url, token | {"resume": "queue 0 default"}).status_code == 403
    User.objects.all().delete()
    assert clerk("pause_saga").get(url).status_code == 403
