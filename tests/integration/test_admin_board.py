"""The dashboard, the failures page and the drawings on a saga's page."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from sagas import pauses
from sagas.keys import id_of_next
from sagas.pauses import Scope
from sagas.queues import Limits, limit
from sagas.states import Status
from sagas.tally import EXPIRED, RETRIES, Tally
from sagas_django.admin_timeline import fetch
from sagas_django.board import board
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.operate import rows
from sagas_django.store import DjangoStore
from sagas_outbox import presence
from sagas_outbox.link import Link
from sagas_outbox.presence import Presence
from tests.integration.test_admin_actions import LIST, clerk, form_of, parked, root, saga_page, told
from tests.integration.test_operate_waits import said
from tests.shop.families import Purchase
from tests.shop.sagas import Externals, Ordered, Trip
from tests.shop.waiting import Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain, expire_leases

__all__ = ["root"]

pytestmark = pytest.mark.usefixtures("shop")
BOARD = f"{LIST}dashboard/"
FAILURES = f"{LIST}failures/"


def page(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, shop: str) -> Presence:
    """A worker that has just said that it is there."""
    monkeypatch.setattr(presence, "FIRST", 0.0)
    found, link = Presence("worker:one", ["payments"]), Link(DjangoStore("default").connect)
    found.note_if_due(link)
    link.close()
    return found


def test_its_patience_is_not_that_of_the_request() -> None:
    """With ATOMIC_REQUESTS the page is within a transaction, whose later queries have the time they always had."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local statement_timeout = '7s'")
        assert board(SagaRow.objects.all())["stuck"] == []
        cursor.execute("show statement_timeout")
        assert cursor.fetchone() == ("7s",)


def test_trouble_comes_first(root: Client, world: World, there: Presence) -> None:
    """Parked sagas with their reason, before queues, rates and processes; each leads to its page."""
    done = begin(Trip, "done")
    drain()
    run, open_one = parked(world, "stuck"), begin(Trip, "open")
    html = page(root, BOARD)
    text = text_of(html)
    assert saga_page(run) in html and "its outcome is unknown" in html
    assert html.index("board-trouble") < html.index("board-rates") < html.index("board-processes")
    assert "Open sagas 2" in text and "Started, last hour 3" in text and "Completed, last hour 1" in text
    assert "test.trip" in text and "parked 1" in text and "running 1" in text
    assert "payments" in text and "No saga is stuck." in text
    assert str(done.id) not in html and str(open_one.id) not in html


def test_the_live_part_alone(root: Client, world: World) -> None:
    """What the script fetches is the part of the page that changes; nothing of it is kept by a cache."""
    answer = root.get(f"{BOARD}?fragment")
    assert "no-store" in answer["Cache-Control"]
    html = answer.content.decode()
    assert "board-trouble" in html and "<html" not in html and "No relay and no worker has said" in html


def test_only_those_who_may_look(world: World) -> None:
    """The pages about all sagas need the permission to view them."""
    client = clerk("retry_saga")
    assert {client.get(url).status_code for url in (BOARD, FAILURES)} == {403}


def test_retries_and_claim_expiries_are_rates(root: Client, world: World) -> None:
    """Counted minute by minute as they happen, by the definition of the metrics; an hour later they are gone."""
    world.plan("charge", OSError("once"))
    begin(Trip, "a")
    drain()
    OutboxRow.objects.filter(saga_id=begin(Externals, "b").id).update(deliveries=1, holder="worker:gone")
    expire_leases()
    drain()
    counted = {what: count for what, count in _tally("name <> ''") if what in (RETRIES, EXPIRED)}
    text = text_of(page(root, BOARD))
    for what, label in ((RETRIES, "Retries"), (EXPIRED, "Claims that expired")):
        assert counted[what] > 0
        assert f"{label}: {counted[what]} in the last hour, at most {counted[what]} in a minute" in text
        assert f"{label} a minute, last 5 min {counted[what] / 5:.1f}" in text
    with connection.cursor() as cursor:
        cursor.execute("update sagas_tally set seconds = seconds - 3600 where what like 'minute:%'")
    assert "Retries: none in the last hour" in text_of(page(root, BOARD))


def test_the_next_run_of_an_old_saga_was_started_now(world: World) -> None:
    """Its id says when the first one was; once it has ended it counts where it belongs, and once."""
    begin(Trip)
    drain()
    (new,) = SagaRow.objects.all()
    old = id_of_next(UUID(int=new.pk.int - (7_200_000 << 80)), 2)
    SagaRow.objects.bulk_create([SagaRow(
        id=old, name="test.poll", version=1, key="k", run=2, status="completed", seq=2, input_hash="x",
        created_at=new.created_at, updated_at=new.updated_at, finished_at=new.finished_at,
    )])  # fmt: skip
    counted: Counter[str] = Counter()
    for line in fetch("default", "board_rates", most=100, good="completed"):
        counted[line["what"]] += line["sagas"]
    assert counted == {"started": 2, "good": 2}


def test_a_minute_of_an_hour_ago_is_not_added_to(world: World) -> None:
    """There is one row for each minute of an hour, and it begins anew."""
    link = Link(DjangoStore("default").connect)
    for expected in (2, 4, 2):
        tally = Tally()
        tally.add("test.trip", "charge", RETRIES, 2)
        with link.use() as wire:
            tally.save(wire)
            found = rows("default", "tally_minutes", {})
            assert {each.what for each in found} == {RETRIES} and sum(each.count for each in found) == expected
            if expected == 4:
                wire.execute("update sagas_tally set seconds = seconds - 3600 where what like 'minute:%'")
    link.close()


def _tally(condition: str) -> list[tuple[str, int]]:
    with connection.cursor() as cursor:
        cursor.execute(f"select what, sum(count)::int from sagas_tally where {condition} group by what")
        return cursor.fetchall()  # type: ignore[no-any-return]


def test_queries_do_not_grow_with_the_sagas(
    root: Client, world: World, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """So many for two sagas, and for twelve."""
    for many in (2, 12):
        for number in range(many):
            begin(Trip, f"{many}-{number}")
        with django_assert_num_queries(12):
            page(root, BOARD)
        with django_assert_num_queries(3):
            page(root, FAILURES)
        with django_assert_num_queries(7):
            page(root, f"{LIST}queues/")


def test_a_process_that_goes_is_forgotten_and_one_that_is_killed_is_missed(there: Presence, root: Client) -> None:
    """Silence counts: whoever is killed cannot say that it goes."""
    assert "gone?" not in page(root, BOARD)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_process set seen_at = seen_at - interval '40 minutes'")
    html = text_of(page(root, BOARD))
    assert "gone? 40 min" in html and html.index("has gone without a word; last seen 40 min") < html.index("Open sagas")
    begin(Trip, "late")
    OutboxRow.objects.update(due_at=timezone.now() - timedelta(minutes=3))
    assert "Work in queue default has been due for 3 min" in text_of(page(root, BOARD))
    assert "and nobody takes what is due" in page(root, f"{LIST}queues/")
    link = Link(DjangoStore("default").connect)
    there.leave(link)
    link.close()
    assert "No relay and no worker" in page(root, BOARD)


def test_what_was_not_seen_for_a_day_is_pruned(there: Presence, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever says next that it is there."""
    with connection.cursor() as cursor:
        cursor.execute("update sagas_process set seen_at = seen_at - interval '25 hours'")
    link = Link(DjangoStore("default").connect)
    Presence("relay:two").note_if_due(link)
    link.close()
    with connection.cursor() as cursor:
        cursor.execute("select holder, queues from sagas_process")
        assert cursor.fetchall() == [("relay:two", "")]


# --- queues ---


def test_queues_say_what_holds_them_up(root: Client, world: World, there: Presence) -> None:
    """Depth, age, pause, limits, lanes and who serves it; a paused one first."""
    begin(Trip, "a")
    with transaction.atomic():
        Externals.start(Ordered(), key="b", priority=5)
    with DjangoStore("default").connect() as wire:
        pauses.pause(wire, Scope.QUEUE, "payments", version=0, actor="ann", reason="the bank is down")
        limit(wire, "default", Limits(concurrency=3, rate="100/m"), actor="bob", reason="go slow")
    html = page(root, f"{LIST}queues/")
    lines = [text_of(row) for row in re.findall(r'<tr class="sagas-queue">.*?</tr>', html, re.DOTALL)]
    assert lines[0].startswith("payments paused by ann: the bank is down Resume") and "1 workers" in lines[0]
    (line,) = [each for each in lines if each.startswith("default")]
    assert line.startswith("default 2 ") and "0 of 3 at work 0 begun lately, 100/m allowed by bob: go slow" in line
    assert re.search(r"test.externals \(priority 5\).*test.trip", line) and "nobody that has said so" in line
    assert f'href="{LIST}queues/"' in page(root, LIST) and f'href="{LIST}queues/"' in page(root, BOARD)
    assert clerk("retry_saga").get(f"{LIST}queues/").status_code == 403


# --- failures ---


def fail(world: World, key: str, error: Exception) -> Any:
    world.plan("charge", *[error] * 3, saga=key)
    run = begin(Trip, key)
    drain()
    return run


def test_failures_are_grouped_without_numbers_and_ids(root: Client, world: World) -> None:
    """Two sagas with one error are one line, with counts; another error is another."""
    fail(world, "a", ConnectionError("no reply to request 17 of 01a22b15-e59d-727e-8fc4-9ff5f6d75a9e"))
    fail(world, "b", ConnectionError("no reply to request 4711 of 02a22b15-e59d-727e-8fc4-9ff5f6d75a9e"))
    fail(world, "c", TimeoutError("too slow"))
    html = page(root, FAILURES)
    rows = [text_of(row) for row in re.findall(r'<tr class="sagas-group">.*?</tr>', html, re.DOTALL)]
    assert len(rows) == 2
    assert rows[0].startswith("test.trip charge its outcome is unknown") and "no reply to request # of #" in rows[0]
    assert "TimeoutError: too slow" in rows[1]


def test_retry_of_a_group(root: Client, world: World) -> None:
    """All that are parked with one error, and no other; each once."""
    runs = [fail(world, key, ConnectionError(f"no reply to {key}{n}")) for n, key in enumerate("ab")]
    runs = [fail(world, key, ConnectionError(f"no reply {n}")) for n, key in enumerate("cd")]
    html = page(root, FAILURES)
    row = next(row for row in re.findall(r'<tr class="sagas-group">.*?</tr>', html, re.DOTALL) if "no reply #" in row)
    url = re.search(r'href="([^"]+ask/retry[^"]+)"', row)
    assert url is not None
    confirm = root.get(url[1]).content.decode()
    assert confirm.count('name="saga"') == 2
    answer = root.post(f"{LIST}ask/retry/", form_of(confirm) | {"reason": "the bank is back"})
    assert "of 2 sagas" in told(answer)[0]
    assert {row.saga_id for row in OutboxRow.objects.filter(kind="retry")} == {run.id for run in runs}
    drain()
    assert Trip.get(key="c").status == Status.COMPLETED and Trip.get(key="a").status == Status.PARKED


# --- the page of a saga ---


def test_the_graph_shows_where_each_step_stands(root: Client, world: World) -> None:
    """A node for each step, with its state in words too, and an arrow for each need."""
    run = parked(world)
    html = page(root, saga_page(run))
    assert html.count('class="sagas-edge"') == 2 and html.count('<g class="sagas-node ') == 3
    node = re.search(r'<a href="#step-charge" aria-label="([^"]+)"', html)
    assert node is not None and "waits for a person" in node[1] and "outcome of an attempt unknown" in node[1]
    assert re.search(r'sagas-node-done[^"]*"[^>]*>\s*<title>book: local, done', html)
    assert 'id="step-charge"' in html and "ConnectionError: no reply" in html


def test_the_lanes_show_how_long_each_step_took(root: Client, world: World) -> None:
    """A bar for each step that was under way, with its failures."""
    run = parked(world)
    html = page(root, saga_page(run))
    assert re.search(r'aria-label="charge: [^"]+, 4 failures"', html)
    assert "When it turns back, these are undone, in this order: book" in text_of(html)


def test_signals_and_what_became_of_them(root: Client, world: World) -> None:
    """A table of its own."""
    run = begin(Reviewed)
    drain()
    said("signal", "test.reviewed:a", "review", '{"ok": true}', "--reason", "fine", "--actor", "ann")
    drain()
    html = text_of(page(root, saga_page(run)))
    assert "Signals Time Step By What became of it" in html and "ann was taken" in html


def test_parent_and_children_lead_to_each_other(root: Client, world: World) -> None:
    """Both ways, each with its status; a saga that cannot have children asks for none."""
    run = begin(Purchase)
    drain()
    child = SagaRow.objects.get(parent=run.id)
    html = page(root, saga_page(run))
    assert f"{LIST}{child.pk}/change/" in html and "Children" in html and "other sagas · done" in html
    assert f"{LIST}{run.id}/change/" in page(root, f"{LIST}{child.pk}/change/")
    assert "Parent and children" not in page(root, saga_page(begin(Trip, "alone")))
