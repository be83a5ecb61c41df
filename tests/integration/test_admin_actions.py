"""Retry, cancel and abort in the admin: only what is possible, only by those who may, once, and with a reason."""

from __future__ import annotations

import re
from html import unescape
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.db import connections
from django.test import Client

from sagas import ConfigurationError
from sagas.actions import OFFERS
from sagas.engine import SagaRun
from sagas.events import RESOLUTIONS
from sagas_django import admin_actions, asking
from sagas_django.admin import SagaAdmin
from sagas_django.admin_actions import KINDS
from sagas_django.models import OutboxRow, SagaRow
from tests.shop.sagas import Pivoted, Trip
from tests.shop.world import World
from tests.support.stories import Aside, begin, drain, entries, outbox

pytestmark = pytest.mark.usefixtures("shop")
LIST = "/admin/sagas/sagarow/"


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


def parked(world: World, key: str = "a") -> SagaRun:
    """A trip that parked over its charge."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run = begin(Trip, key)
    drain()
    assert "retry" in [action.name for action in Trip.get(key=key).allowed_actions]
    return run


def saga_page(run: SagaRun) -> str:
    return f"{LIST}{run.id}/change/"


def buttons(client: Client, run: SagaRun) -> list[str]:
    """Where the buttons of a saga's page lead."""
    html = client.get(saga_page(run)).content.decode()
    return [unescape(url) for url in re.findall(r'class="button sagas-ask" href="([^"]+)"', html)]


def form_of(html: str) -> dict[str, Any]:
    """What a browser would send for the form on the page, apart from the reason."""
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html)
    found: dict[str, Any] = {"saga": [value for name, value in fields if name == "saga"]}
    return found | {name: value for name, value in fields if name != "saga"}


def ask(client: Client, kind: str, *runs: SagaRun, reason: str = "the bank is back") -> Any:
    """Look at the page that asks for the reason, and send its form."""
    page = client.get(f"{LIST}ask/{kind}/", {"saga": [str(run.id) for run in runs]})
    return client.post(f"{LIST}ask/{kind}/", form_of(page.content.decode()) | {"reason": reason})


def told(answer: Any) -> list[str]:
    """What this very request said."""
    storage: Any = get_messages(answer.wsgi_request)
    return [str(message) for message in storage._queued_messages]


def requests(run: SagaRun, using: str = "default") -> list[str]:
    return [row.kind for row in outbox(run, using) if row.step is None]


def test_page_has_a_button_for_each_thing_that_is_possible(root: Client, world: World) -> None:
    """And no other: the machine says what is possible, in every state on the way."""
    finished = begin(Trip, "finished")
    drain()
    stuck, running = parked(world, "parked"), begin(Trip, "running")
    for run in (finished, stuck, running):
        actions = [action.name for action in Trip.get(id=run.id).allowed_actions]
        possible = [name for name in actions if name in KINDS]
        steps = [f"{LIST}{run.id}/redo/"] if "redo" in actions else []  # one button, for whichever step
        words = [action for action in Trip.get(id=run.id).allowed_actions if action.name in RESOLUTIONS]
        steps += [f"{LIST}{run.id}/decide/{action.name}/{action.step}/" for action in words]
        assert buttons(root, run) == [f"{LIST}ask/{kind}/?saga={run.id}" for kind in possible] + steps, run.key
        assert bool(possible) == (run is not finished) and ("abort" in possible) == (run is stuck)
    html = root.get(saga_page(stuck)).content.decode()
    assert OFFERS["retry"].does_parked in unescape(html) and OFFERS["retry"].does not in unescape(html)


def test_retry_of_a_parked_saga(root: Client, world: World) -> None:
    """The request goes through the outbox; both logs say who asked and why; the saga goes on."""
    run = parked(world)
    page = root.get(buttons(root, run)[0]).content.decode()
    assert OFFERS["retry"].does_parked in page and "test.trip a" in page
    answer = ask(root, "retry", run, reason="the bank is <back>")
    assert (answer.status_code, answer["Location"]) == (302, saga_page(run))
    assert told(answer) == ["Retry is asked for, a worker will apply it: test.trip a"]
    assert (requests(run), SagaRow.objects.get().parked_from) == (["retry"], "running")
    noted = AdminLog.objects.get()
    assert (noted.object_id, noted.user.username) == (str(run.id), "root")
    assert noted.get_change_message() == "Asked for Retry: the bank is <back>"
    drain()
    (retried,) = [entry for entry in entries(run) if entry.kind == "retried"]
    assert (retried.data["actor"], retried.data["reason"]) == ("admin:root", "the bank is <back>")
    assert not Trip.get(key="a").allowed_actions
    assert "admin:root" in root.get(saga_page(run)).content.decode()


@pytest.mark.parametrize("kind", ["cancel", "abort"])
def test_the_other_ways_out_of_a_parked_saga(root: Client, world: World, kind: str) -> None:
    """Abort closes it as it is, and the page warns of that; cancel turns it back."""
    run = parked(world)
    warning = "It cannot be taken back"
    assert (warning in root.get(f"{LIST}ask/{kind}/?saga={run.id}").content.decode()) == (kind == "abort")
    ask(root, kind, run)
    drain()
    kinds = [entry.kind for entry in entries(run)]
    assert ("aborted" if kind == "abort" else "cancel_requested") in kinds


@pytest.mark.parametrize("reason", ["", "   ", "x" * 2001, "nul\x00"])
def test_a_reason_is_required(root: Client, world: World, reason: str) -> None:
    """Without one, or with one that cannot be kept, the form comes back with the same nonce and says so."""
    run = parked(world)
    page = root.get(buttons(root, run)[0]).content.decode()
    answer = root.post(f"{LIST}ask/retry/", form_of(page) | {"reason": reason})
    assert answer.status_code == 200 and "errorlist" in answer.content.decode()
    assert form_of(answer.content.decode())["nonce"] == form_of(page)["nonce"]
    assert requests(run) == []


def test_only_those_who_may(world: World) -> None:
    """Each action has a permission of its own; without it there is neither button nor page."""
    run = parked(world)
    client = clerk("view_sagarow", "retry_saga")
    assert buttons(client, run) == [f"{LIST}ask/retry/?saga={run.id}"]
    menu = client.get(LIST).content.decode()
    assert 'value="retry_sagas"' in menu and 'value="cancel_sagas"' not in menu
    token = form_of(client.get(buttons(client, run)[0]).content.decode())
    for kind in set(KINDS) - {"retry"}:
        assert client.get(f"{LIST}ask/{kind}/?saga={run.id}").status_code == 403
        assert client.post(f"{LIST}ask/{kind}/", token | {"reason": "x"}).status_code == 403
    assert (requests(run), AdminLog.objects.count()) == ([], 0)
    assert ask(client, "retry", run).status_code == 302 and requests(run) == ["retry"]


@pytest.mark.parametrize("permissions", [["retry_saga"], ["view_sagarow"], []])
def test_permission_to_ask_needs_permission_to_look(world: World, permissions: list[str]) -> None:
    """Half of it is nothing."""
    run = parked(world)
    client = clerk(*permissions)
    assert client.get(f"{LIST}ask/retry/?saga={run.id}").status_code == 403
    assert client.post(f"{LIST}ask/retry/", {"saga": run.id}).status_code == 403
    assert Client().get(f"{LIST}ask/retry/?saga={run.id}").status_code == 302, "to the login"


def test_only_a_post_with_a_token_asks(root: Client, world: World) -> None:
    """A link, an image or another site's form asks for nothing."""
    run = parked(world)
    url = f"{LIST}ask/retry/"
    form = form_of(root.get(f"{url}?saga={run.id}").content.decode()) | {"reason": "x"}
    root.get(url, form)
    root.head(url, form)
    assert (
        root.post(url, {name: value for name, value in form.items() if name != "csrfmiddlewaretoken"}).status_code
        == 403
    )
    assert root.put(url, headers={"X-CSRFToken": form["csrfmiddlewaretoken"]}).status_code == 405
    assert root.get(f"{LIST}ask/explode/?saga={run.id}").status_code == 404
    for nobody in ("", "nonsense", str(uuid4())):
        assert root.get(url, {"saga": nobody}).status_code in (200, 302)
    assert requests(run) == []


def test_a_form_sent_twice_at_once_asks_once(root: Client, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both requests have passed every check of the views before either writes; the second waits, and is told so."""
    run = parked(world)
    form = form_of(root.get(buttons(root, run)[0]).content.decode()) | {"reason": "the bank is back"}
    both, ask_each = Barrier(2, timeout=10), asking.ask_each

    def together(*given: Any) -> Any:
        both.wait()
        return ask_each(*given)

    monkeypatch.setattr(admin_actions, "ask_each", together)
    answers: list[Any] = []
    clicks = [Aside(lambda: answers.append(root.post(f"{LIST}ask/retry/", form))) for _ in range(2)]
    for click in clicks:
        click.join()
    assert [answer.status_code for answer in answers] == [302, 302]
    assert (requests(run), AdminLog.objects.count()) == (["retry"], 1)
    said = sorted(text for answer in answers for text in told(answer))
    assert all(text.startswith("Retry is asked for") for text in said)
    assert sum("sent before" in text for text in said) == 1


def test_a_form_sent_again_after_it_was_applied(root: Client, world: World) -> None:
    """The saga has parked again meanwhile, so that a new retry would be possible: the old form makes none."""
    run = parked(world)
    form = form_of(root.get(buttons(root, run)[0]).content.decode()) | {"reason": "the bank is back"}
    root.post(f"{LIST}ask/retry/", form)
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    drain()
    assert "retry" in [action.name for action in Trip.get(key="a").allowed_actions]
    assert "sent before" in told(root.post(f"{LIST}ask/retry/", form))[0]
    assert requests(run) == []
    ask(root, "retry", run)
    assert requests(run) == ["retry"]


def test_the_same_from_another_page_waits_for_the_first(root: Client, world: World) -> None:
    """While a retry waits to be applied a second one is refused, and the message says why; a cancel is not."""
    run = parked(world)
    ask(root, "retry", run)
    (said,) = told(ask(root, "retry", run))
    assert said.startswith("Not asked for Retry: test.trip a: this was asked for already"), said
    assert "Cancel is asked for" in told(ask(root, "cancel", run))[0]
    assert requests(run) == ["retry", "cancel"]


def test_what_is_not_possible_any_more(root: Client, world: World) -> None:
    """The saga moved on while somebody looked at the form."""
    run = parked(world)
    form = form_of(root.get(f"{LIST}ask/abort/?saga={run.id}").content.decode()) | {"reason": "given up"}
    ask(root, "retry", run)
    drain()
    (said,) = told(root.post(f"{LIST}ask/abort/", form))
    assert said == "Not asked for Abort: test.trip a: it is completed by now, this would change nothing"
    page = root.get(f"{LIST}ask/abort/?saga={run.id}").content.decode()
    assert "it would change nothing now" in page and 'type="submit"' not in page.split("content-main")[1]
    assert AdminLog.objects.count() == 1


def choose(client: Client, kind: str, runs: list[SagaRun], query: str = "") -> Any:
    """Tick sagas in the list and pick an action from its menu."""
    token = form_of(client.get(LIST + query).content.decode())["csrfmiddlewaretoken"]
    form = {"action": f"{kind}_sagas", "_selected_action": [str(run.id) for run in runs], "index": "0"}
    return client.post(LIST + query, form | {"csrfmiddlewaretoken": token})


def test_many_at_once(root: Client, world: World) -> None:
    """What cannot be done for one saga does not stop the others; messages name both; the list stays filtered."""
    runs = [parked(world, f"k{number}") for number in range(4)]
    query = "?status=parked"
    page = choose(root, "retry", runs, query).content.decode()
    assert all(f"test.trip k{number}" in page for number in range(4))
    ask(root, "retry", runs[1])  # somebody else was faster with one
    ask(root, "abort", runs[2])
    drain()
    ask(root, "retry", runs[3])
    (target,) = re.findall(r'<form method="post" action="([^"]+)"', page)
    answer = root.post(unescape(target), form_of(page) | {"reason": "the bank is back"})
    assert answer["Location"] == LIST + query
    done, not_done = told(answer)
    assert done == "Retry is asked for, a worker will apply it: test.trip k0"
    assert all(
        text in not_done for text in ("k1: it is completed", "k2: it is aborted", "k3: this was asked for already")
    )
    assert [requests(run) for run in runs] == [["retry"], [], [], ["retry"]]
    again = root.post(unescape(target), form_of(page) | {"reason": "the bank is back"})
    assert "sent before" in told(again)[0] and requests(runs[0]) == ["retry"]


def test_one_that_fails_does_not_stop_the_rest(root: Client, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it stays behind, neither in the outbox nor in a log, and the same form may be sent again for it."""
    runs = [parked(world, f"k{number}") for number in range(3)]
    request = asking.engine.request

    def fails(name: Any, kind: str, **given: Any) -> Any:
        request(name, kind, **given)
        if given["id"] == runs[1].id:
            raise ConfigurationError("this one not")

    form = form_of(choose(root, "cancel", runs).content.decode()) | {"reason": "all of them"}
    with monkeypatch.context() as patched:
        patched.setattr(asking.engine, "request", fails)
        done, not_done = told(root.post(f"{LIST}ask/cancel/", form))
    assert "k0" in done and "k2" in done and "of 2 sagas" in done and not_done.endswith("test.trip k1: this one not")
    assert ([requests(run) for run in runs], AdminLog.objects.count()) == ([["cancel"], [], ["cancel"]], 2)
    root.post(f"{LIST}ask/cancel/", form)
    assert [requests(run) for run in runs] == [["cancel"]] * 3


def test_a_bound_on_how_many(root: Client, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a million sagas are not asked by one click."""
    runs = [begin(Trip, f"k{number}") for number in range(3)]
    monkeypatch.setattr(admin_actions, "MOST_AT_ONCE", 2)
    token = form_of(root.get(LIST).content.decode())["csrfmiddlewaretoken"]
    everything = {"action": "cancel_sagas", "select_across": "1", "_selected_action": [str(runs[0].id)], "index": "0"}
    page = root.post(f"{LIST}?status=open", everything | {"csrfmiddlewaretoken": token}).content.decode()
    assert page.count('name="saga"') == 2 and "Not only these" in page
    form = {"saga": [str(run.id) for run in runs], "csrfmiddlewaretoken": token, "reason": "x", "nonce": uuid4()}
    answer = root.post(f"{LIST}ask/cancel/", form)
    assert answer.status_code == 302 and not OutboxRow.objects.filter(kind="cancel").exists()
    for _ in range(2):
        answer = root.post(f"{LIST}ask/cancel/", form_of(page) | {"reason": "x", "everything": "on"})
        assert "of 3 sagas" in told(answer)[0]
    assert OutboxRow.objects.filter(kind="cancel").count() == 3, "all that fit, and each once"


def test_a_saga_that_this_process_does_not_know(root: Client, world: World) -> None:
    """Nothing is offered, and a forged form is answered with the reason."""
    run = parked(world)
    SagaRow.objects.filter(pk=run.id).update(name="gone.saga")
    assert buttons(root, run) == []
    page = root.get(f"{LIST}ask/retry/?saga={run.id}").content.decode()
    (said,) = told(root.post(f"{LIST}ask/retry/", form_of(page) | {"reason": "x"}))
    assert "not registered in this process" in said and requests(run) == []


def test_acts_on_the_database_that_the_admin_shows(
    root: Client, world: World, other_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saga, request and nonce are in one database, the admin's own log in another; both are committed or neither is."""
    here, there = begin(Trip, "same"), begin(Trip, "same", using=other_database)
    shown = SagaAdmin.get_queryset
    monkeypatch.setattr(SagaAdmin, "get_queryset", lambda self, request: shown(self, request).using(other_database))
    assert root.get(saga_page(here)).status_code == 302, "is not in the database shown"
    assert "Cancel is asked for" in told(ask(root, "cancel", there))[0]
    assert (requests(here), requests(there, other_database)) == ([], ["cancel"])
    assert AdminLog.objects.get().object_id == str(there.id)
    monkeypatch.setattr(SagaAdmin, "log_change", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask(root, "retry", there)
    assert requests(there, other_database) == ["cancel"]
    connections["default"].close()


def test_after_the_pivot_there_is_no_cancel(root: Client, world: World) -> None:
    """The button is gone, since the machine would only take note."""
    world.always("invoice", ConnectionError("no reply"))
    run = begin(Pivoted, "late")
    drain()
    assert [url.split("/")[-2] for url in buttons(root, run)][:2] == ["retry", "abort"]


def test_pause_and_resume(root: Client, world: World) -> None:
    """One button or the other."""
    run = begin(Trip, "a")
    ask(root, "pause", run)
    drain()
    kinds = [url.split("/")[-2] for url in buttons(root, run)]
    assert ("pause" in kinds, "resume" in kinds) == (False, True)
    ask(root, "resume", run)
    drain()
    assert buttons(root, run) == []
