"""What a browser may send that nobody means: every form and every parameter of our admin pages.

An answer in words that names the field, never an error of the server; nothing is written; and no saga is stuck.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Literal
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connection, transaction
from django.test import Client

from sagas import Overlap, Saga, pauses, wait_for
from sagas.engine import SagaRun
from sagas.pauses import Scope
from sagas.schedules import firing, table
from sagas.settings import Settings
from sagas_django.models import SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox import publish
from tests.shop.sagas import Ordered, Trip
from tests.shop.waiting import Reviewed
from tests.shop.world import World
from tests.support.odd import everything
from tests.support.schedules import NAME, declared
from tests.support.stories import begin, differences, drain

SAGAS = "/admin/sagas/sagarow/"
SCHEDULES = "/admin/sagas/schedulerow/"
MESSAGES = "/admin/sagas/messagerow/"
NOBODY = uuid.UUID(int=7)
MEGABYTE = "x" * 1_000_000
HIDDEN = re.compile(r'<input type="hidden" name="(nonce|seen)" value="([^"]*)"')

EMPTY: tuple[Any, ...] = (None, "", " ", "a\x00b")  # None: the field is missing
NO_ID = (*EMPTY, "7", "x", f"{uuid.UUID(int=0)}g", "'; drop table sagas_saga; --", MEGABYTE)
NO_NUMBER = (*EMPTY, "x", "1e400", "nan", "0x7", "[1]", "9" * 5000)
NO_CHOICE = (*EMPTY, "x", "None", "[]", MEGABYTE)
NO_TIME = (*EMPTY, "x", "0", "2026-13-01", "10000-01-01", "-1", "9" * 5000)
NO_REASON = (*EMPTY, MEGABYTE)
NO_LIST = (
    *EMPTY, "x", "{", "[1,", "null", "{}", '"7"', '["7"]', "[1.5]", "[NaN]", "[1e400]", f"[{'9' * 5000}]",
    '["\\ud800"]', '["\\u0000"]', "[" * 100_000, f'"{MEGABYTE}"', "[1] [2]",
)  # fmt: skip
NO_TEXT = (*EMPTY[:2], "\x00", "x", "7", "null", "[]", '"\\ud800"', '"a\\u0000b"', f'"{MEGABYTE}"')


class Colour(Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Told:
    """A field of each sort."""

    number: int
    share: float
    price: Decimal
    id: uuid.UUID
    day: date
    at: datetime
    colour: Colour
    size: Literal[1, 2]
    sure: bool
    note: str


class Tells(Saga[Ordered], name="property.forms", version=1):
    """Waits for one of each field, and for JSON."""

    told = wait_for(Told)
    listed = wait_for(list[int])


TOLD = {
    "number": ("7", NO_NUMBER), "share": ("0.5", NO_NUMBER), "price": ("1.50", (*EMPTY, "x", "nan", "inf", "[1]")),
    "id": (str(NOBODY), NO_ID), "day": ("2026-01-01", NO_TIME), "at": ("2026-01-01T10:00:00", NO_TIME),
    "colour": ("red", NO_CHOICE), "size": ("1", NO_CHOICE), "sure": ("true", NO_CHOICE), "note": ("fine", EMPTY),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form that is filled in well, and what is wrong for each of its fields."""

    url: str
    given: dict[str, Any]
    wrong: dict[str, tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Where everything can be asked for: sagas that wait for somebody, a schedule, a dead message, a pause."""

    client: Client
    parked: SagaRun
    review: SagaRun
    tells: SagaRun
    done: SagaRun
    message: str

    def filled(self, url: str, given: dict[str, Any], **wrong: tuple[Any, ...]) -> Form:
        """A form as its page shows it, with what a user enters."""
        hidden = dict(HIDDEN.findall(self.client.get(url).content.decode()))
        assert hidden, f"no form at {url}"
        own = {"nonce": NO_ID, "reason": NO_REASON}
        own |= {"seen": (*NO_NUMBER, "-1", "99999", "9" * 30)} if "seen" in hidden else {}
        return Form(url=url, given=hidden | {"reason": "because"} | given, wrong=own | wrong)


@pytest.fixture
def stage(shop: str, world: World) -> Iterator[Stage]:
    """A superuser's browser before all of it."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    world.plan("charge", *[ConnectionError("no reply")] * 3, saga="parked")
    with declared(cron="0 6 1 1 *", overlap=Overlap.SKIP) as made, closing(DjangoStore("default").connect()) as wire:
        table.declare(wire, made)
        firing.fire_due(wire, Settings(wake=False), [made])
        runs = {"parked": begin(Trip, "parked"), "review": begin(Reviewed, "r"), "tells": begin(Tells, "t")}
        runs["done"] = begin(Trip, "done")
        drain()
        pauses.pause(wire, Scope.QUEUE, "left", actor="somebody", reason="rest")
        with transaction.atomic(), connection.cursor() as cursor:
            message = str(publish("shop.tasks.pay", {"order": 7}, ordering_key="order-7"))
            cursor.execute("update sagas_message set state = 'dead', failures = 10, finished_at = now()")
        yield Stage(client=client, message=message, **runs)
    with connection.cursor() as cursor:
        cursor.execute("delete from sagas_message")


def written() -> Any:
    """Everything that a form could write: our tables, and the admin's log."""
    return everything(), list(AdminLog.objects.values())


def forms(stage: Stage) -> dict[str, Callable[[], Form]]:
    """Every form about sagas and schedules; its page is opened when it is called."""
    one, decide = str(stage.parked.id), f"{SAGAS}{stage.parked.id}/decide/"
    signal = f"{SAGAS}{stage.tells.id}/signal/"
    kinds = {"retry": stage.parked, "abort": stage.parked, "cancel": stage.review, "pause": stage.review}
    found: dict[str, Callable[[], Form]] = {
        f"ask-{kind}": partial(stage.filled, f"{SAGAS}ask/{kind}/?saga={run.id}", {"saga": str(run.id)}, saga=NO_ID)
        for kind, run in kinds.items()
    }
    found["decide-done"] = partial(stage.filled, f"{decide}mark_done/charge/", {"value": "ch-7"}, value=("\x00",))
    found |= {
        f"decide-{kind}": partial(stage.filled, f"{decide}{kind}/charge/", {}) for kind in ("mark_not_done", "skip")
    }
    found["redo"] = partial(stage.filled,
        f"{SAGAS}{one}/redo/", {"step": "charge", "sure": "on"},
        step=(*EMPTY, "nope", "confirm", MEGABYTE), sure=(None, "", "false", "False"),
    )  # fmt: skip
    found["signal-parts"] = partial(stage.filled,
        f"{signal}told/", {f"value_{name}": good for name, (good, _wrong) in TOLD.items()},
        **{f"value_{name}": wrong for name, (_good, wrong) in TOLD.items()},
    )  # fmt: skip
    found["signal-json"] = partial(stage.filled, f"{signal}listed/", {"value": f"[1, {'9' * 30}]"}, value=NO_LIST)
    found["pauses"] = partial(
        Form,
        url=f"{SAGAS}pauses/", given={"what": "queue 0 right", "reason": "rest"},
        wrong={"what": (*NO_CHOICE, "queue 0 ", "queue 1 right", "queue", "step 0 right", f"queue {'9' * 5000} right"),
               "reason": NO_REASON},
    )  # fmt: skip
    found |= {
        f"schedule-{kind}": partial(stage.filled, f"{SCHEDULES}ask/{kind}/?schedule={NAME}", {})
        for kind in ("pause", "run")
    }
    return found


OFTEN = ("ask-retry", "decide-done", "redo", "signal-parts", "signal-json", "pauses", "schedule-run")
RARELY = ("ask-abort", "ask-cancel", "ask-pause", "decide-mark_not_done", "decide-skip", "schedule-pause")
MANY = [pytest.param(each, "all", marks=pytest.mark.full) for each in (*OFTEN, *RARELY)]
FEW = slice(1, None, 3)  # of the wrong values of a field


def said(answer: Any) -> str:
    """What somebody reads who has sent this form: the messages, and the complaints beside the fields."""
    storage: Any = get_messages(answer.wsgi_request)
    texts = [str(each) for each in storage._queued_messages]  # not those that nobody has looked at before
    context = answer.context if answer.status_code == 200 else None
    form = context.get("form") if context is not None else None
    if form is not None:
        texts += [f"{name}: {text}" for name, found in form.errors.items() for text in found]
    return "\n".join(texts)


@pytest.mark.parametrize(("name", "values"), [*((each, "few") for each in OFTEN), *MANY])
def test_every_field_of_every_form(stage: Stage, name: str, values: str) -> None:
    """A wrong value: the form comes back with a complaint at that field, or a message says it. Sent well: it counts."""
    form, before = forms(stage)[name](), written()
    for field, wrong in form.wrong.items():
        for value in wrong if values == "all" else wrong[FEW] or wrong:
            given = {key: each for key, each in (form.given | {field: value}).items() if each is not None}
            answer = stage.client.post(form.url, given)
            where = (name, field, str(value)[:40], answer.status_code)
            assert answer.status_code in (200, 302), where
            told = said(answer)
            assert told and len(told) < 2000, (*where, told[:300])
            assert answer.status_code == 302 or field in told, (*where, told)
            assert answer.status_code == 302 or 'class="errorlist' in answer.content.decode(), where
        assert written() == before, (name, field)
    answer = stage.client.post(form.url, form.given)
    assert answer.status_code == 302 and written() != before, said(answer)
    assert AdminLog.objects.count() == 1
    after = written()
    stage.client.post(form.url, form.given)
    assert written() == after or "nonce" not in form.given, "a form counts once"
    if values == "all" or name in ("redo", "signal-json"):
        goes_on(stage)


def goes_on(stage: Stage) -> None:
    """Whatever was asked, the sagas can be brought to their end by those forms, and their logs agree."""
    drain()
    for url, more in (
        (f"{SAGAS}ask/retry/?saga={stage.parked.id}", {"saga": str(stage.parked.id)}),
        (f"{SAGAS}ask/resume/?saga={stage.review.id}", {"saga": str(stage.review.id)}),
        (f"{SAGAS}{stage.review.id}/signal/review/", {"value_ok": "true", "value_note": "fine"}),
        (f"{SAGAS}{stage.tells.id}/signal/told/", {f"value_{k}": good for k, (good, _w) in TOLD.items()}),
        (f"{SAGAS}{stage.tells.id}/signal/listed/", {"value": "[1]"}),
    ):
        if 'name="nonce"' in stage.client.get(url).content.decode():
            form = stage.filled(url, more)
            stage.client.post(form.url, form.given)
            drain()
    assert not SagaRow.objects.filter(finished_at=None).exists()
    assert differences() == []


def test_forms_of_others(stage: Stage) -> None:
    """Kinds, steps, sagas and schedules that are none: not found; methods that are none: not allowed."""
    one, before = stage.parked.id, written()
    gone = [
        f"{SAGAS}ask/{kind}/?saga={one}" for kind in ("nope", "mark_done", "redo", "signal", "%00", "x" * 3000)
    ] + [
        f"{SAGAS}{id}/{page}/" for id in (NOBODY, one)
        for page in ("signal/nope", "signal/charge", "signal/%00", "decide/nope/charge", "decide/mark_done/nope",
                     "decide/mark_done/%00", "decide/retry/charge")
    ] + [
        f"{SAGAS}{NOBODY}/redo/", f"{SCHEDULES}ask/nope/?schedule={NAME}",
        *(f"{SCHEDULES}ask/pause/?schedule={name}" for name in ("", "nope", "a%00b", "%ED%A0%80", "x" * 3000)),
        f"{SCHEDULES}ask/run/",
    ]  # fmt: skip
    for url in gone:
        for send in (stage.client.get, stage.client.post):
            assert send(url).status_code == 404, (url[:200], send)
    for url in (f"{SAGAS}ask/retry/", f"{SAGAS}{one}/redo/", f"{SAGAS}pauses/", f"{SCHEDULES}ask/run/"):
        assert stage.client.put(url, "{").status_code == 405 and stage.client.delete(url).status_code == 405
    assert written() == before


TEXTS = (
    "", " ", "a\x00b", "\ufffd", "x" * 3000, "-1", "7", "9" * 5000, "1e400", "%s", "%", "'; drop table x; --", "{", "(",
)  # fmt: skip
PARAMETERS = {
    SAGAS: ("q", "status", "name", "p", "o", "e", "all", "_changelist_filters", "nope", "id", "id__in", "status__regex",
            "key", "headers__a", "created_at", "version", "parent__exact", "_popup", "_to_field"),
    MESSAGES: ("q", "state", "p", "o", "message_id", "error__regex", "destination", "nope", "payload__a", "due_at"),
    SCHEDULES: ("q", "name", "name__regex", "p", "o", "paused", "last_started_at"),
    "/admin/sagas/outboxrow/": ("q", "queue", "held", "p", "o", "saga_id", "queue__regex", "progress__a", "id__in"),
    "/admin/sagas/deduperecord/": ("q", "key", "state", "p", "o", "saga_id", "key__regex", "response"),
    f"{SAGAS}dashboard/": ("fragment", "nope"), f"{SAGAS}failures/": ("nope",), f"{SAGAS}locks/": ("nope",),
    f"{SAGAS}pauses/": ("nope",), f"{SAGAS}queues/": ("nope",),
    f"{SAGAS}ask/retry/": ("saga", "group", "scope", "_changelist_filters"),
    f"{SCHEDULES}ask/pause/": ("schedule",), f"{SCHEDULES}{NAME}/change/": ("_changelist_filters", "_popup"),
}  # fmt: skip


@pytest.mark.parametrize("texts", [TEXTS[2:3], pytest.param(TEXTS, marks=pytest.mark.full)], ids=["nul", "all"])
def test_every_parameter_of_every_page(stage: Stage, texts: tuple[str, ...]) -> None:
    """What a URL may carry: a page, a no, or a redirect to a page that says what was wrong; looking writes nothing."""
    before = written()
    for page, names in PARAMETERS.items():
        for name in names:
            for text in (*texts, *(["("] if name.endswith("regex") else [])):
                answer = stage.client.get(f"{page}?{urlencode({name: text})}")
                assert answer.status_code in (200, 302, 400, 404), (page, name, text[:40])
                assert answer.status_code != 302 or said(answer), (page, name, text[:40])
    assert written() == before


def test_pages_of_rows_that_are_none(stage: Stage) -> None:
    """Ids of every sort, and `?before=` of a saga's page, whatever it says."""
    urls = [f"{SAGAS}{stage.parked.id}/change/?{urlencode({'before': text})}" for text in (*TEXTS, "\u0663", "9" * 30)]
    for model in ("sagarow", "messagerow", "schedulerow", "outboxrow", "deduperecord"):
        for id in ("nope", "a%00b", "_00", "9" * 30, "9" * 5000, "-1", str(NOBODY), "x" * 3000):
            urls += [f"/admin/sagas/{model}/{id}/{page}/" for page in ("change", "history", "delete")]
    for url in urls:
        assert stage.client.get(url).status_code in (200, 302, 403, 404), url[:100]


@pytest.mark.parametrize(
    "page",
    [SAGAS, MESSAGES, *(pytest.param(each, marks=pytest.mark.full) for each in ("/admin/sagas/outboxrow/", SCHEDULES))],
)
def test_the_menus_of_lists(stage: Stage, page: str) -> None:
    """Unknown actions, and chosen rows that are none."""
    action = "replay_messages" if page == MESSAGES else "retry_sagas"
    before = written()
    for field, values in {
        "action": (*EMPTY, "nope", "delete_selected", "__class__", MEGABYTE),
        "index": (*EMPTY, "x", "-1", "99", "9" * 5000),
        "_selected_action": (*NO_ID, "9" * 30, str(NOBODY)), "select_across": (*EMPTY[:2], "x", "7", "9" * 5000),
    }.items():  # fmt: skip
        for value in values:
            given = {"action": action, "index": "0", "_selected_action": str(NOBODY), "select_across": "0"}
            given = {key: each for key, each in (given | {field: value}).items() if each is not None}
            answer = stage.client.post(page, given)
            assert answer.status_code in (200, 302, 400, 403), (field, str(value)[:40])
            assert answer.status_code != 302 or said(answer), (field, str(value)[:40])
    assert written() == before


SCOPES = (
    "nonsense", "group:", "group:a\x00b", "group:nope", "filters:name=%00", "filters:id=nope", "filters:id__regex=(",
    "filters:status__regex=(", "filters:nope=1", f"group:{MEGABYTE}", "filters:q=nope", "filters:name=nope", "\x00",
)  # fmt: skip


def test_scopes_of_many(stage: Stage) -> None:
    """All of a group, or of what was filtered, where that is nothing: nothing is asked, and somebody is told."""
    form, before = forms(stage)["ask-retry"](), written()
    for scope in SCOPES:
        answer = stage.client.post(form.url, form.given | {"everything": "1", "scope": scope})
        assert answer.status_code == 302 and "nothing was asked for" in said(answer), scope[:40]
    assert written() == before


def test_pauses_that_are_none(stage: Stage) -> None:
    """Resuming what is not paused says so; the one that is paused is resumed."""
    before = written()
    wrong = ("", " ", "a\x00b", "queue", "queue 0 nope", "queue 1 left", "step 0 left", MEGABYTE)
    for what in wrong:
        answer = stage.client.post(f"{SAGAS}pauses/", {"resume": what})
        assert answer.status_code == 302 and said(answer) == "This is not paused any more.", what[:40]
    assert written() == before
    assert "Resumed" in said(stage.client.post(f"{SAGAS}pauses/", {"resume": "queue 0 left"}))


def test_bodies_that_are_no_forms(stage: Stage) -> None:
    """Broken multipart, JSON, bytes that are no text, too many fields, too much of it: a no, and nothing is written."""
    form, before = forms(stage)["ask-retry"](), written()
    odd = {"nonce": b"%ED%A0%80", "saga": b"%00", "reason": b"%FF%FE", "csrfmiddlewaretoken": b"x"}
    bodies = [
        ("application/json", b'{"nonce": 7}'), ("application/json", b"\xff"), ("text/plain", b"reason=x"), ("", b"x"),
        ("multipart/form-data", b"x"), ("multipart/form-data; boundary=x", b"--x\r\n\r\n"),
        ("application/x-www-form-urlencoded", b"&".join(b"%s=%s" % (name.encode(), raw) for name, raw in odd.items())),
        ("application/x-www-form-urlencoded", b"&".join(b"saga=%d" % number for number in range(2000))),
        ("application/x-www-form-urlencoded", b"reason=" + b"x" * 3_000_000),
    ]  # fmt: skip
    for kind, body in bodies:
        answer = stage.client.post(form.url, body, content_type=kind)
        assert answer.status_code in (200, 302, 400, 413, 415), (kind, body[:40])
    assert written() == before


def test_a_nonce_of_another_form(stage: Stage) -> None:
    """It counts once for a saga, whatever is asked with it; for another saga it is a new one."""
    made = forms(stage)
    retry, skip, signal = (made[name]() for name in ("ask-retry", "decide-skip", "signal-json"))
    assert "Retry is asked for" in said(stage.client.post(retry.url, retry.given))
    before = written()
    answer = stage.client.post(skip.url, skip.given | {"nonce": retry.given["nonce"]})
    assert "it counts once" in said(answer) and written() == before
    assert "is sent" in said(stage.client.post(signal.url, signal.given | {"nonce": retry.given["nonce"]}))
    goes_on(stage)
