"""What operators see of messages, on the command line and in the admin, and what they can do about dead ones."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client

from sagas_django import admin_messages
from sagas_django.models import MessageRow
from sagas_outbox import publish

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _empty(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("delete from sagas_message")


def published(state: str = "waiting") -> str:
    """A message, in a state that a relay would have brought it to."""
    with transaction.atomic():
        id = publish("shop.tasks.pay", {"order": 7}, ordering_key="order-7")
        with connection.cursor() as cursor:
            cursor.execute(
                "update sagas_message set state = %s, failures = 10, error = 'RuntimeError: no',"
                " finished_at = case when %s <> 'waiting' then now() end where message_id = %s", [state, state, id]
            )  # fmt: skip
    return str(id)


def sagas(*words: str) -> str:
    out = StringIO()
    call_command("sagas", *words, stdout=out, stderr=out)
    return out.getvalue()


def state(id: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("select state, failures from sagas_message where message_id = %s", [id])
        return cursor.fetchone()


def test_waiting_and_dead() -> None:
    """By destination how many wait; of the dead each, with its last error."""
    assert "no message waits" in sagas("messages", "waiting") and "no message is dead" in sagas("messages", "dead")
    published()
    dead = published("dead")
    assert "shop.tasks.pay" in sagas("messages", "waiting")
    shown = sagas("messages", "dead")
    assert dead in shown and "RuntimeError: no" in shown and "order-7" in shown


def test_replay_and_drop() -> None:
    """Only what is dead, by its id or all of it; what is not is said."""
    dead, other, waiting = published("dead"), published("dead"), published()
    assert "1 messages are sent again" in sagas("messages", "replay", dead)
    assert state(dead) == ("waiting", 0)
    with pytest.raises(CommandError, match=f"not dead, or not there: {waiting}"):
        sagas("messages", "drop", waiting)
    assert state(waiting) == ("waiting", 10)
    sagas("messages", "drop", "all")
    assert state(other) is None and state(dead) and state(waiting)


@pytest.mark.parametrize("words", [["replay"], ["replay", "x"], ["dead", "x"], ["revive"]])
def test_what_cannot_be_meant(words: list[str]) -> None:
    """An error that says how to say it."""
    with pytest.raises(CommandError, match="messages"):
        sagas("messages", *words)


@pytest.fixture
def client() -> Client:
    """A superuser's browser."""
    User.objects.filter(username="ann").delete()
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    return client


def replayed(client: Client) -> Any:
    """All messages of the list are chosen, and to be sent again."""
    rows = [str(id) for id in MessageRow.objects.values_list("id", flat=True)]
    form = {"action": "replay_messages", "_selected_action": rows[:1], "select_across": "1"}
    return client.post("/admin/sagas/messagerow/", form, follow=True)


def test_admin_sends_none_again_without_a_word_in_its_log(client: Client) -> None:
    """Both are one transaction: who sent it again is known."""
    dead = [published("dead"), published("dead")]
    with connection.cursor() as cursor:
        cursor.execute("alter table django_admin_log add constraint no_room check (action_flag <> 2) not valid")
        try:
            with pytest.raises(IntegrityError):
                replayed(client)
        finally:
            cursor.execute("alter table django_admin_log drop constraint no_room")
    assert [state(id) for id in dead] == [("dead", 10)] * 2
    replayed(client)
    assert [state(id) for id in dead] == [("waiting", 0)] * 2
    assert set(AdminLog.objects.values_list("object_repr", "change_message")) == {(id, "sent again") for id in dead}


def test_admin_sends_no_more_again_than_it_can_log(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a request cannot do the command line can."""
    dead = [published("dead"), published("dead")]
    monkeypatch.setattr(admin_messages, "MOST_AT_ONCE", 1)
    assert "manage.py sagas messages replay all" in replayed(client).content.decode()
    assert [state(id) for id in dead] == [("dead", 10)] * 2


def test_admin(client: Client) -> None:
    """The list by state, a page of each, and the action, for those who may."""
    dead = published("dead")
    page = client.get("/admin/sagas/messagerow/?state=dead")
    assert page.status_code == 200 and dead in page.content.decode()
    assert dead in client.get("/admin/sagas/messagerow/?q=order-7").content.decode()
    with connection.cursor() as cursor:
        cursor.execute("select id from sagas_message")
        (row,) = cursor.fetchone()
    shown = client.get(f"/admin/sagas/messagerow/{row}/change/").content.decode()
    assert "RuntimeError: no" in shown and "&quot;order&quot;: 7" in shown
    client.post("/admin/sagas/messagerow/", {"action": "replay_messages", "_selected_action": [row]})
    assert state(dead) == ("waiting", 0)
