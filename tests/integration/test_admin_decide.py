"""Deciding in the admin what became of a step: legal, checked against its type, once, and only if nothing moved."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.test import Client

from sagas import engine
from sagas.engine import SagaRun
from sagas.states import Status
from sagas_django.models import OutboxRow
from tests.integration.test_admin_actions import LIST, clerk, form_of, parked, root, saga_page, told
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.stories import drain, entries, log_of

__all__ = ["root"]

pytestmark = pytest.mark.usefixtures("shop")


def url_of(run: SagaRun, kind: str, step: str = "charge") -> str:
    return f"{LIST}{run.id}/decide/{kind}/{step}/"


def decide(client: Client, run: SagaRun, kind: str, **given: Any) -> Any:
    """Open the form and send it."""
    form = form_of(client.get(url_of(run, kind)).content.decode())
    return client.post(url_of(run, kind), form | {"reason": "on the statement"} | given)


def asked() -> list[str]:
    return [row.kind for row in OutboxRow.objects.filter(step=None)]


def test_done_with_this_result(root: Client, world: World) -> None:
    """A field of the step's type; both logs say who said what and why; later steps get it."""
    run = parked(world)
    page = root.get(url_of(run, "mark_done")).content.decode()
    assert "counts as done, with the result that you give" in page and 'name="value"' in page
    assert decide(root, run, "mark_done", value="ch-7")["Location"] == saga_page(run)
    assert AdminLog.objects.get().get_change_message() == 'Asked for Mark done charge "ch-7": on the statement'
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED and world.of("confirm")[0].argument[1] == "ch-7"
    word = next(entry for entry in entries(run) if entry.kind == "resolved")
    assert (word.data["actor"], word.data["reason"]) == ("admin:root", "on the statement")
    html = root.get(saga_page(run)).content.decode()
    assert "decided by an operator" in html and "/decide/" not in html


@pytest.mark.parametrize(("kind", "next"), [("mark_not_done", "undo_done book"), ("skip", "step_skipped charge")])
def test_the_other_words(root: Client, world: World, kind: str, next: str) -> None:
    """What each means is said before; it is applied by a worker."""
    run = parked(world)
    decide(root, run, kind)
    assert asked() == [kind]
    drain()
    assert next in log_of(run) and world.count()["charge"] == 3


def test_a_form_counts_once(root: Client, world: World) -> None:
    """However often it is sent."""
    run = parked(world)
    form = form_of(root.get(url_of(run, "skip")).content.decode()) | {"reason": "x"}
    for _ in range(2):
        assert "Skip step is asked for" in told(root.post(url_of(run, "skip"), form))[0]
    assert (asked(), AdminLog.objects.count()) == (["skip"], 1)


def test_a_saga_that_has_moved_on_while_the_form_was_open(root: Client, world: World) -> None:
    """It parked again over the same step, after another attempt: nothing is asked for."""
    run = parked(world)
    form = form_of(root.get(url_of(run, "mark_not_done")).content.decode()) | {"reason": "x"}
    engine.request(None, "retry", id=run.id, reason="once more")
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    drain()
    assert Trip.get(key="a").status == Status.PARKED
    assert "has moved on since you looked at it" in told(root.post(url_of(run, "mark_not_done"), form))[0]
    assert asked() == []


def test_only_what_is_legal_and_permitted(root: Client, world: World) -> None:
    """Of another step nothing is offered, nor to whoever may not."""
    run = parked(world)
    page = root.get(url_of(run, "skip", "confirm")).content.decode()
    assert "does not wait for somebody to decide this" in page and "<form method" not in page.split("content-main")[1]
    assert root.get(url_of(run, "skip", "nope")).status_code == 404
    assert root.get(url_of(run, "retry")).status_code == 404
    client = clerk("view_sagarow", "skip_saga")
    assert client.get(url_of(run, "skip")).status_code == 200
    assert client.get(url_of(run, "mark_done")).status_code == 403
    html = client.get(saga_page(run)).content.decode()
    assert "/decide/skip/charge/" in html and "/decide/mark_done/" not in html
