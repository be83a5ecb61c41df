"""What a staff account can and cannot do: looking changes nothing, nothing shown is obeyed, acting needs more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import psycopg
import pytest
from django.contrib.admin import site
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django.utils.html import escape
from psycopg import sql

from sagas import Refused
from sagas_django.models import SagaRow
from tests.security.conftest import AsRole
from tests.security.crawling import ELSEWHERE, EVIL, Crawl, Page, contents
from tests.shop.locking import Holds, Wanted
from tests.shop.sagas import Trip
from tests.shop.waiting import Review, Reviewed
from tests.shop.world import World
from tests.support.schedules import declared
from tests.support.stories import begin, drain

OURS = ("/admin/sagas/",)
ACTIONS = ("retry", "cancel", "abort", "pause", "resume")
FITTING = {  # what CHECK constraints ask for, and what has to be real for a page to be shown at all
    "sagas_saga": {
        "status": "parked", "parked_from": "running", "finished_at": None, "parent": None,
        "steps": json.dumps({EVIL: {"status": "failed"}}),
    },
    "sagas_log": {"kind": "retried"}, "sagas_outbox": {"kind": "step", "direction": "do"},
    "sagas_dedupe": {"state": "done"}, "sagas_pause": {"kind": "queue"}, "sagas_message": {"state": "dead"},
    "sagas_schedule": {"catch_up": "none", "overlap": "allow", "timezone": "Europe/Berlin"},
    "sagas_lock": {"waiting": True}, "sagas_tombstone": {}, "sagas_archive": {}, "sagas_tally": {}, "sagas_queue": {},
    "sagas_process": {}, "sagas_signal": {}, "sagas_inbox": {}, "sagas_pace": {}, "sagas_slot": {},
}  # fmt: skip
STRAY = UUID(int=7)  # a saga that no code knows, all of whose texts are harmful
OF_TYPE: dict[str, Any] = {
    "uuid": STRAY, "text": EVIL, "integer": 1, "bigint": 1, "smallint": 1, "boolean": False, "double precision": 1.0,
    "timestamp with time zone": datetime.now(UTC), "ARRAY": [1],
    "jsonb": json.dumps({
        "error": {"type": EVIL, "message": EVIL, "traceback": EVIL}, "reason": EVIL, "actor": EVIL, "result": EVIL,
        EVIL: EVIL, "step": EVIL, "value": EVIL,
    }),
}  # fmt: skip


@pytest.fixture
def stage(guarded: str, as_role: AsRole, world: World) -> Iterator[str]:
    """A database in which everything has happened, whatever came from outside is meant to do harm."""
    with as_role("sagas_worker"), declared(cron="0 6 1 1 *"):
        _happen(world)
    with psycopg.connect(guarded, autocommit=True) as owner:
        _spoil(owner)
    with as_role("sagas_operator"):
        yield guarded


def _happen(world: World) -> None:
    """Sagas of every sort, parked, waiting, undone; their keys, results, errors and signals are harmful."""
    world.always("charge", EVIL)
    world.plan("charge", ValueError(EVIL), ValueError(EVIL), ValueError(EVIL), saga=f"parked{EVIL}")
    world.plan("charge", Refused(EVIL), saga=f"undone{EVIL}")
    for key in ("parked", "undone", "done"):
        begin(Trip, key + EVIL)
    begin(Reviewed, f"told{EVIL}")
    begin(Reviewed, f"waits{EVIL}")
    begin(Holds, f"held{EVIL}", Wanted(["another"]))
    with transaction.atomic():
        Reviewed.review.send(Review(ok=True, note=EVIL), key=f"told{EVIL}")
        Holds.cancel(key=f"held{EVIL}", reason=EVIL)
    begin(Holds, f"holds{EVIL}", Wanted([f"account{EVIL}"]))
    drain()
    begin(Trip, f"fresh{EVIL}")
    call_command("sagas", "declare-schedules", stdout=StringIO())


def _spoil(owner: psycopg.Connection[Any]) -> None:
    """A row in each table, with harm in every text and every JSON."""
    for table, fitting in FITTING.items():
        found = owner.execute(
            "select column_name, data_type from information_schema.columns where table_name = %s", [table]
        ).fetchall()
        row = {name: fitting.get(name, OF_TYPE[kind]) for name, kind in found}
        names = sql.SQL(", ").join(map(sql.Identifier, row))
        values = sql.SQL(", ").join(sql.Placeholder() * len(row))
        owner.execute(
            sql.SQL("insert into {} ({}) values ({})").format(sql.Identifier(table), names, values), list(row.values())
        )


@pytest.fixture
def root(stage: str) -> Client:
    """A superuser's browser, which has to send CSRF tokens like any other."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    return client


PAGES = ("change", "delete", "history", "signal/review", "redo", "decide/mark_done/charge")
QUERIES = (
    {"q": EVIL, "status": EVIL, "queue": EVIL, "p": EVIL}, {"e": "1", "all": "", "_changelist_filters": ELSEWHERE},
    {"next": ELSEWHERE, "_popup": "1", "_to_field": EVIL},
)  # fmt: skip


def everywhere() -> list[str]:
    """Every sort of page of ours, also where no link leads to just now, with everything that a URL may carry."""
    pages = [f"/admin/sagas/sagarow/{name}/" for name in ("dashboard", "failures", "locks", "pauses")]
    for model in site._registry:
        if model._meta.app_label == "sagas":
            base = f"/admin/sagas/{model._meta.model_name}/"
            one = model._default_manager.values_list("pk", flat=True).first()
            pages += [base, f"{base}add/", *(f"{base}{quote(str(one))}/{page}/" for page in PAGES[:3])]
            pages += [f"{base}?{urlencode(query)}" for query in QUERIES]
    ids = [str(pk) for pk in SagaRow.objects.values_list("pk", flat=True)]
    pages += [f"/admin/sagas/sagarow/{id}/change/" for id in ids]
    pages += [f"/admin/sagas/sagarow/{waits().pk}/{page}/" for page in PAGES]
    for kind in ACTIONS:
        ask = f"/admin/sagas/sagarow/ask/{kind}/"
        pages += [f"{ask}?{urlencode({'saga': ids, 'next': ELSEWHERE}, doseq=True)}", f"{ask}?group={quote(EVIL)}"]
    return pages


def waits() -> SagaRow:
    """The saga that waits for a signal."""
    return SagaRow.objects.get(key=f"waits{EVIL}")


def test_looking_changes_nothing_and_obeys_nothing(root: Client, stage: str) -> None:
    """Every page by GET, as an operator's role that could change rows: no table changes, and no text becomes markup.

    Names, keys, payloads, errors, reasons, actors, queues, hosts and the URL itself carry markup and scripts.
    """
    crawl = Crawl(root, OURS)
    with psycopg.connect(stage, autocommit=True) as owner:
        before = contents(owner)
        crawl.visit("/admin/", *everywhere())
        changed = {name for name, found in contents(owner).items() if found != before[name]}
    assert not changed, "a look changed these tables"
    harmed = {url: page.harm for url, page in crawl.seen.items() if page.harm}
    assert not harmed, "what was to be shown became markup"
    wrong = {url: code for url, code in crawl.answers.items() if code >= 500}
    assert not wrong
    assert sum(code == 200 for code in crawl.answers.values()) > 50, crawl.answers
    assert all(where.startswith(("/", "?", "../")) for where in crawl.redirects.values()), crawl.redirects


@pytest.mark.full
def test_sending_needs_a_token_and_leads_nowhere_else(root: Client, stage: str) -> None:
    """Each form that a page shows is refused without its CSRF token, and changes nothing.

    With it the browser stays here, whatever `next`, Referer or filters say.
    """
    crawl = Crawl(root, OURS)
    crawl.visit(*everywhere(), follow=0)
    forms = {target: fields for page in crawl.seen.values() for target, fields in page.forms if target.startswith(OURS)}
    assert len(forms) > 10
    carried = urlencode({"next": ELSEWHERE, "_changelist_filters": ELSEWHERE})
    with psycopg.connect(stage, autocommit=True) as owner:
        before = contents(owner)
        for target, fields in forms.items():
            given = {name: value for name, value in fields.items() if name != "csrfmiddlewaretoken"}
            assert root.post(target, given | {"reason": "because"}).status_code == 403, target
        assert contents(owner) == before
        for target, fields in forms.items():
            where = f"{target}{'&' if '?' in target else '?'}{carried}"
            answer: Any = root.post(
                where, fields | {"reason": EVIL, "next": ELSEWHERE}, headers={"Referer": f"{ELSEWHERE}page"}
            )
            assert answer.status_code in (200, 302, 400, 403, 404), (target, answer.status_code)
            if answer.status_code == 302:
                assert answer["Location"].startswith("/admin/"), answer["Location"]
        assert contents(owner)["sagas_outbox"] != before["sagas_outbox"], (
            "with the token some of them did what they say"
        )


@pytest.mark.full
@pytest.mark.parametrize("may", [(), ("view_sagarow", "view_outboxrow", "view_deduperecord")])
def test_staff_need_permissions_to_look_and_others_to_act(stage: str, may: tuple[str, ...]) -> None:
    """Without `view` no page is shown; with `view` alone no form is, and none is taken."""
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename__in=may))
    client = Client()
    client.force_login(clerk)
    with psycopg.connect(stage, autocommit=True) as owner:
        before = contents(owner)
        crawl = Crawl(client, OURS)
        crawl.visit(*everywhere(), follow=0)
        shown = {url for url, code in crawl.answers.items() if code == 200}
        assert bool(shown) == bool(may), shown
        assert not [url for url in shown if "/ask/" in url or "/signal/" in url or "/decide/" in url or "/redo/" in url]
        for url in everywhere():
            client.post(url, {"reason": "x", "action": "cancel_sagas", "_selected_action": [str(STRAY)], "post": "yes"})
        assert contents(owner) == before


def test_nobody_who_is_not_staff_sees_anything(stage: str) -> None:
    """Neither the public nor a logged-in customer: they are sent to the login page."""
    customer = Client()
    customer.force_login(User.objects.create_user("customer"))
    for client in (Client(), customer):
        crawl = Crawl(client, OURS)
        crawl.visit(*everywhere(), follow=0)
        assert set(crawl.answers.values()) == {302}
        assert {where.partition("?")[0] for where in crawl.redirects.values()} == {"/admin/login/"}


@pytest.mark.parametrize(
    "html",
    [
        f"<td>{EVIL}</td>", f'<a href="/x" title="{EVIL}">x</a>', f"<a title='{EVIL}'>x</a>",
        f"<script>var a = '{EVIL}'</script>",
        '<a href="javascript:evil()">x</a>', f'<form action="{ELSEWHERE}x"></form>', "<b onclick='evil()'>x</b>",
    ],
)  # fmt: skip
def test_harm_is_noticed(html: str) -> None:
    """The crawl finds what it is meant to find."""
    assert Page("/", html).harm and not Page("/", escape(html)).harm
