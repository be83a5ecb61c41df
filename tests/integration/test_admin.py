"""The admin pages: what they show, that they only look, and that they stay quick and safe."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from sagas import NOT_DONE, Refused
from sagas.states import Status
from sagas_django import admin_base, admin_timeline
from sagas_django.admin_filters import known_names, search_sagas
from sagas_django.models import DedupeRecord, LogEntry, OutboxRow, SagaRow
from sagas_django.operate import in_status
from tests.shop.sagas import Asked, Everything, Kinds, Ordered, Pivoted, Trip
from tests.shop.waiting import Hurried, Sleeper
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
LIST = "/admin/sagas/sagarow/"


@pytest.fixture
def client(db: None) -> Client:
    """A superuser's browser."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def page(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, f"{url}: {answer.status_code}"
    return answer.content.decode()


def detail(client: Client, saga: Any) -> str:
    return page(client, reverse("admin:sagas_sagarow_change", args=[saga.id]))


def text_of(html: str) -> str:
    """The page without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def make_saga(number: int = 0, *, status: Status = Status.RUNNING, **fields: Any) -> SagaRow:
    """A saga row as it may be found, written past the engine."""
    now = timezone.now()
    ended = status in (Status.COMPLETED, Status.COMPENSATED, Status.CANCELLED, Status.ABORTED)
    values: dict[str, Any] = {
        "id": UUID(int=number + 1), "name": "test.trip", "version": 1, "key": f"k{number}", "status": status, "seq": 0,
        "input_hash": "x", "created_at": now, "updated_at": now, "finished_at": now if ended else None,
        "parked_from": Status.RUNNING if status is Status.PARKED else None,
    }  # fmt: skip
    return SagaRow.objects.bulk_create([SagaRow(**{**values, **fields})])[0]


def log(saga: SagaRow, seq: int, kind: str, at: datetime | None = None, **fields: Any) -> LogEntry:
    entry = LogEntry(saga_id=saga.id, seq=seq, kind=kind, at=at or timezone.now(), **fields)
    return LogEntry.objects.bulk_create([entry])[0]


def test_list_shows_where_each_saga_stands(client: Client) -> None:
    """Status, name, key, current step and age; newest first."""
    trip = begin(Trip, "first")
    make_saga(status=Status.PARKED, id=UUID(int=2**127), name="test.charge", key="second", steps={"book": {
        "status": "done", "result": 1, "ended": 1}})  # fmt: skip
    html = page(client, LIST)
    rows = [text_of(row) for row in re.findall(r"<tr><td.*?</tr>|<tr><th.*?</tr>", html, re.DOTALL)]
    assert [row.split(" ")[:4] for row in rows] == [
        ["parked", "test.charge", "v1", "second"],
        ["running", "test.trip", "v1", "first"],
    ]
    assert " charge " in rows[0] and " book " in rows[1]
    assert reverse("admin:sagas_sagarow_change", args=[trip.id]) in html


def test_list_needs_the_same_queries_for_any_number_of_sagas(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """No query per row: session, user, names for the filter, the bounded count, the page."""
    for expected in (1, 40):
        for number in range(SagaRow.objects.count(), expected):
            make_saga(number)
        with django_assert_num_queries(6):
            page(client, LIST)


def test_list_counts_only_so_far(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of sagas are neither counted nor paged through; the page says so."""
    monkeypatch.setattr(admin_base, "MOST_COUNTED", 3)
    for number in range(3):
        make_saga(number)
    assert "counting and paging end here" not in page(client, LIST)
    for number in range(3, 10):
        make_saga(number)
    html = page(client, LIST)
    assert "counting and paging end here" in html and "4 sagas" in html and "10 sagas" not in html


def test_filters_by_status(client: Client) -> None:
    """Every status can be picked, and all open or all finished at once."""
    for number, status in enumerate(Status):
        make_saga(number, status=status, key=f"key-{status}")
    keys = {f"key-{status}" for status in Status}
    for status in Status:
        html = page(client, f"{LIST}?status={status}")
        assert {key for key in keys if f">{key}<" in html} == {f"key-{status}"}
        assert list(SagaRow.objects.filter(in_status(status)).values_list("status", flat=True)) == [status]
    html = page(client, f"{LIST}?status=open")
    assert ">key-parked<" in html and ">key-completed<" not in html
    html = page(client, f"{LIST}?status=finished")
    assert ">key-parked<" not in html and ">key-completed<" in html
    page(client, f"{LIST}?status=nonsense")


def test_filters_by_name_without_a_scan(client: Client) -> None:
    """Choices are what this process knows and what is there; each name costs one probe of the index."""
    make_saga(1, name="gone.definition", key="old")
    make_saga(2, key="new")
    html = page(client, f"{LIST}?name=gone.definition")
    assert ">old<" in html and ">new<" not in html
    assert {"gone.definition", "test.trip", "test.asked"} <= set(known_names("default"))
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into sagas_saga (id, name, version, key, status, seq, input_hash) select"
            " gen_random_uuid(), 'many', 1, n::text, 'running', 0, '' from generate_series(1, 20000) n"
        )
        cursor.execute("analyze sagas_saga")
        cursor.execute("explain (analyze, buffers, format json) " + admin_base.query("sagas_django", "saga_names"),
                       {"limit": 100})  # fmt: skip
        plan = cursor.fetchone()[0]
    top = plan[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 100
    assert "many" in known_names("default")


@pytest.mark.parametrize("term", ["order-7", "test.trip:order-7", " order-7 ", "id"])
def test_search_is_exact(client: Client, term: str) -> None:
    """By id, key, or name:key; never by a part of one."""
    wanted = begin(Trip, "order-7")
    begin(Trip, "order-77")
    begin(Asked, "order-8")
    html = page(client, f"{LIST}?q={wanted.id if term == 'id' else term}")
    assert ">order-7<" in html and ">order-77<" not in html and ">order-8<" not in html


def test_search_finds_a_key_with_a_colon() -> None:
    """A key may look like name:key."""
    wanted = begin(Trip, "urn:order:7")
    for term in ("urn:order:7", "test.trip:urn:order:7"):
        assert [saga.id for saga in search_sagas(SagaRow.objects.all(), term)] == [wanted.id]
    assert not search_sagas(SagaRow.objects.all(), "order")


@pytest.mark.django_db(transaction=True)
def test_page_tells_the_whole_story(client: Client, world: World, quiet: None) -> None:
    """A saga that failed, was asked about and turned back: every entry with its step, attempt, error and reason."""
    world.plan("charge", OSError("no route"), OSError("no route"), OSError("no route"))
    world.always("find", NOT_DONE)
    saga = begin(Asked, "story")
    drain()
    html = detail(client, saga)
    text = text_of(html)
    for entry in LogEntry.objects.filter(saga_id=saga.id):
        assert f"sagas-kind-{entry.kind}" in html, entry.kind
    assert "OSError: no route" in text
    assert "resolve says it did not happen" in text
    assert "outcome unknown" in text
    assert "Traceback (most recent call last)" in text
    assert f"{saga.id}:charge:do:0" in text
    assert re.search(r"\+\d+(\.\d)? (ms|s)", text), "durations since the entry before"
    assert "&quot;number&quot;: 0" in html, "the input"


@pytest.mark.django_db(transaction=True)
def test_page_of_a_parked_saga(client: Client, world: World, quiet: None) -> None:
    """It says what it parked over, from where and why, and that nothing is in the outbox."""
    world.always("ship", Refused("address unknown"))
    saga = begin(Pivoted, "stuck")
    drain()
    text = text_of(detail(client, saga))
    if SagaRow.objects.get().parked_from is None:  # refused by the pivot itself: turned back
        assert "refused: address unknown" in text
    else:
        assert "parked while running" in text
    world.reset()
    world.always("invoice", Refused("no invoice address"))
    parked = begin(Pivoted, "parked")
    drain()
    text = text_of(detail(client, parked))
    assert "parked while running" in text and "refused after the pivot: no invoice address" in text
    assert "waits for a person" in text
    assert "ship external, pivot done" in text


@pytest.mark.django_db(transaction=True)
def test_page_escapes_whatever_it_shows(client: Client, world: World, quiet: None) -> None:
    """Payloads, errors, keys and reasons come from outside."""
    world.plan("charge", ValueError(SCRIPT), Everything(text=SCRIPT))
    saga = begin(Kinds, f"key{SCRIPT}", Everything(text=SCRIPT))
    drain()
    DedupeRecord.objects.bulk_create(
        [DedupeRecord(key=SCRIPT, saga_id=saga.id, state="done", response={"t": SCRIPT}, created_at=timezone.now())]
    )
    html = detail(client, saga)
    assert SCRIPT not in html
    assert html.count(ESCAPED) >= 6, "key, input, error, traceback, result, dedupe key and response"
    for url in (LIST, "/admin/sagas/deduperecord/", "/admin/sagas/outboxrow/"):
        assert SCRIPT not in page(client, url)
    assert SCRIPT not in page(client, reverse("admin:sagas_deduperecord_change", args=[SCRIPT]))


def test_page_bounds_payloads(client: Client) -> None:
    """A megabyte of input does not become a megabyte of page; what is left out is said."""
    saga = begin(Kinds, "big", Everything(text="x" * 500_000))
    html = detail(client, saga)
    assert len(html) < 60_000
    assert "Only the beginning is shown." in html and re.search(r"500,?\d\d\d characters", html)


def test_page_bounds_the_log(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest entries, and a link to those before them."""
    monkeypatch.setattr(admin_timeline, "MOST_ENTRIES", 4)
    saga = make_saga()
    log(saga, 0, "started", data={"saga": {"input": {"first": True}}})
    for seq in range(1, 10):
        log(saga, seq, "step_failed", step="charge", attempt=seq, data={"direction": "do"})
    html = detail(client, saga)
    assert re.findall(r'<th scope="row">(\d+)</th>', html)[-4:] == ["6", "7", "8", "9"]
    assert 'href="?before=6#sagas-log"' in html
    url = reverse("admin:sagas_sagarow_change", args=[saga.id])
    earlier = page(client, f"{url}?before=2")
    assert re.findall(r'<th scope="row">(\d+)</th>', earlier)[-2:] == ["0", "1"]
    assert "Newest entries" in earlier and "Earlier entries" not in earlier
    page(client, f"{url}?before=nonsense")


def test_page_needs_the_same_queries_for_any_log(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """Session, user, the row, the log, the outbox, the dedupe table, and what is paused."""
    saga = make_saga()
    detail(client, saga)  # Django looks up the content type once in a process
    for expected in (1, 60):
        for seq in range(LogEntry.objects.count(), expected):
            log(saga, seq, "step_failed" if seq else "started", step="charge", data={"direction": "do"})
        for number in range(OutboxRow.objects.count(), expected):
            OutboxRow.objects.bulk_create([OutboxRow(
                saga_id=saga.id, kind="cancel", queue="q", due_at=timezone.now(), payload={"n": number})])  # fmt: skip
        with django_assert_num_queries(8):
            detail(client, saga)


def test_page_shows_who_holds_what(client: Client) -> None:
    """Outbox rows with holder, due time, token and deliveries."""
    saga = begin(Trip, "held")
    OutboxRow.objects.filter(saga_id=saga.id).update(
        holder="worker-7", token=41, deliveries=3, due_at=timezone.now() + timedelta(seconds=90)
    )
    text = text_of(detail(client, saga))
    assert re.search(r"book \(do\) default worker-7 .*\(in 1 min \d+ s\) 41 0 3 0", text), text
    listed = text_of(page(client, "/admin/sagas/outboxrow/"))
    assert re.search(rf"default book \(do\) {saga.id} in 1 min \d+ s worker-7 3 (.* )?1 outbox row", listed), listed


def test_page_of_a_saga_without_work() -> None:
    """Open, and yet nothing in the outbox: the page says that something is wrong, and what to run."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    saga = make_saga()
    assert "sagas verify" in detail(client, saga)
    for number, status in enumerate(Status, 1):
        expected = {"completed": "has ended", "aborted": "has ended", "parked": "waits for a person"}
        text = text_of(detail(client, make_saga(number, status=status)))
        assert expected.get(status, "") in text and ("sagas verify" in text) == (status in ("running", "compensating",
            "settling")), status  # fmt: skip


def test_outbox_filters(client: Client) -> None:
    """By queue and by whether somebody holds the row; search is exact."""
    now = timezone.now()
    OutboxRow.objects.bulk_create([
        OutboxRow(saga_id=UUID(int=1), kind="cancel", queue="left", due_at=now),
        OutboxRow(saga_id=UUID(int=2), kind="cancel", queue="right", due_at=now, holder="w"),
    ])  # fmt: skip
    url = "/admin/sagas/outboxrow/"
    for query, shown in [
        ("?queue=left", {1}), ("?held=yes", {2}), ("?held=no", {1}), (f"?q={UUID(int=2)}", {2}), ("?q=x", set()),
        ("", {1, 2}),
    ]:  # fmt: skip
        html = page(client, url + query)
        assert {n for n in (1, 2) if str(UUID(int=n)) in html.split('id="result_list"')[-1]} == shown, query


def test_page_links_to_the_subject(client: Client) -> None:
    """Only when the subject's model is in this admin, and this user may see it."""
    user = User.objects.create_user("anna")
    with transaction.atomic():
        saga = Trip.start(Ordered(), key="s", subject=user)
    link = f'href="/admin/auth/user/{user.pk}/change/"'
    assert link in detail(client, saga)
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="view_sagarow"))
    other = Client()
    other.force_login(clerk)
    html = detail(other, saga)
    assert link not in html and f"auth.User {user.pk}" in html
    SagaRow.objects.filter(id=saga.id).update(subject_type="gone.Model")
    assert "gone.Model" in detail(client, saga)


def test_page_of_a_saga_that_this_process_does_not_know(client: Client) -> None:
    """Begun steps are shown without a plan; a row that cannot be read still has a page."""
    saga = make_saga(
        name="gone.saga", steps={"pay": {"status": "done", "result": 1, "ended": 1, "do": {"attempts": 2}}}
    )
    log(saga, 0, "started", data={"saga": {"input": {}}})
    log(saga, 1, "step_failed", data={"error": {"type": "E"}, "direction": "sideways", "source": "oracle"})
    text = text_of(detail(client, saga))
    assert "does not know gone.saga version 1" in text and re.search(r"pay \S done 2 0", text)
    assert "E:" in text and "sideways" not in text and "oracle" in text, (
        "words of a newer version are shown as they are"
    )
    broken = make_saga(1, name="gone.saga", steps={"pay": "nonsense"})
    assert "cannot be read" in text_of(detail(client, broken))
    page(client, LIST)


def test_nobody_can_change_anything(client: Client) -> None:
    """Not even a superuser: no button, and a forged request is refused."""
    saga = begin(Trip, "safe")
    row = OutboxRow.objects.get(saga_id=saga.id)
    for model, pk in ((SagaRow, saga.id), (OutboxRow, row.pk)):
        base = f"admin:sagas_{model._meta.model_name}"
        html = page(client, reverse(f"{base}_change", args=[pk]))
        assert 'name="_save"' not in html and "deletelink" not in html
        assert client.get(reverse(f"{base}_add")).status_code == 403
        for url in (reverse(f"{base}_change", args=[pk]), reverse(f"{base}_delete", args=[pk])):
            assert client.post(url, {"status": "completed", "post": "yes"}).status_code == 403
        assert reverse(f"{base}_add") not in page(client, reverse(f"{base}_changelist"))
    assert SagaRow.objects.get().status == "running"


def test_a_missing_saga_is_not_an_error(client: Client) -> None:
    """As everywhere in the admin: back to its index with a message."""
    for id in (uuid4(), "nonsense"):
        assert client.get(f"{LIST}{id}/change/").status_code == 302


def test_tables_are_accessible(client: Client) -> None:
    """Every header cell says what it heads, every section has a name, moments are machine-readable."""
    saga = begin(Trip, "a11y")
    html = detail(client, saga).split('id="content-main"')[1].split("<footer")[0]
    assert re.findall(r'<th(?!ead)(?! scope="(?:col|row)")[^>]*>', html) == []
    assert all(f'id="{name}"' in html for name in re.findall(r'aria-labelledby="([^"]+)"', html))
    assert len(re.findall(r"<time datetime=", html)) >= 4


def test_colours_are_the_admins_own() -> None:
    """A fixed colour would be unreadable in dark mode: there are none but for themes without the admin's variables."""
    from django.contrib.staticfiles import finders

    css = Path(finders.find("sagas_django/admin.css")).read_text()
    rules = re.sub(r"/\*.*?\*/|var\(--[\w-]+, (?:[^()]|\([^()]*\))*\)", "", css, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb|hsl", rules)


@pytest.mark.django_db(transaction=True)
def test_works_where_time_zones_are_off(client: Client, world: World, quiet: None, settings: Any) -> None:
    """USE_TZ = False gives naive times, and what the log and the saga row say of moments is aware."""
    world.plan("charge", ConnectionError("no reply"), saga="naive")
    sagas = [begin(Trip, "naive"), begin(Hurried, "waits"), begin(Sleeper, "sleeps")]
    drain()
    sagas.append(begin(Trip, "under way"))
    settings.USE_TZ = False
    html = "".join(detail(client, saga) for saga in sagas)
    assert "review waits for a signal" in html and "nap sleeps until" in html
    for url in (LIST, *(f"{LIST}{name}/" for name in ("dashboard", "queues", "locks", "failures"))):
        page(client, url)
    page(client, "/admin/sagas/outboxrow/")


def test_registered_models() -> None:
    """Composite primary keys are not for the admin; everything else is there."""
    assert {SagaRow, OutboxRow, DedupeRecord} <= set(admin.site._registry)
