"""Who holds what is shown: on the command line, in the admin, and by `verify`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from sagas.testing.moving import Clock
from tests.shop.locking import Awaits, Holds, Wanted
from tests.shop.waiting import Review
from tests.shop.world import World
from tests.support.stories import NO_WAIT, begin, differences, drain

ONE = Wanted(["account:7"])


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says."""
    call_command("sagas", *words)
    return capsys.readouterr().out


def text_of(html: str) -> str:
    """The page without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.fixture
def both(shop: str, world: World) -> tuple[Any, Any]:
    """A saga that holds a subject, and one that waits for it."""
    first = begin(Holds, "a", ONE)
    drain()
    second = begin(Awaits, "b", ONE)
    drain(skip=NO_WAIT)
    return first, second


def test_the_command_lists_holders_and_those_who_wait(
    both: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The holder first, with its status, so that one sees whom to look after."""
    lines = said(capsys, "locks").splitlines()
    assert [line.split()[:3] for line in lines[1:-1]] == [["account:7", "held", "by"], ["account:7", "awaited", "by"]]
    assert "a lock is free when its holder has ended; `manage.py sagas show ID`" in lines[-1]
    assert "running" in lines[1]
    assert str(both[0].id) in lines[1]
    assert "test.awaits  b" in lines[2]


def test_show_says_it(both: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Why a saga waits, for whom, and until when."""
    waits = said(capsys, "show", "test.awaits:b")
    assert "waits     charge waits for a semantic lock until" in waits
    assert re.search(r"lock +account:7 +held by saga test.holds \S+ \(key 'a'\), step charge", waits)
    assert re.search(r"lock +account:7 +awaited by this saga, step charge", waits)
    assert "waits for a lock" in waits
    assert "semantic lock 'account:7' is held by saga test.holds" in waits
    holds = said(capsys, "show", "test.holds:a")
    assert re.search(r"lock +account:7 +held by this saga", holds)


def test_nothing_held(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so."""
    assert "no semantic lock is held" in said(capsys, "locks")


def test_only_what_was_left_behind_is_unlocked(both: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A saga that has not ended keeps its lock, and the message says what to do."""
    with pytest.raises(CommandError, match="has not ended; it is freed when that saga ends"):
        call_command("sagas", "unlock", "account:7", "--reason", "in the way")
    with pytest.raises(CommandError, match="nobody holds it"):
        call_command("sagas", "unlock", "account:8", "--reason", "in the way")
    with pytest.raises(CommandError, match="say why"):
        call_command("sagas", "unlock", "account:7", "--reason", " ")


def test_left_behind(shop: str, world: World, capsys: pytest.CaptureFixture[str], time_machine: Clock) -> None:
    """`verify` finds it, `unlock` frees it, and whoever waits goes on."""
    run = begin(Holds, "a", ONE)
    drain()
    with transaction.atomic():
        Holds.review.send(Review(True), key="a")
    drain()
    with connection.cursor() as cursor:  # nothing of ours does that
        cursor.execute("insert into sagas_lock (subject, saga_id, step) values ('account:7', %s, 'charge')", [run.id])
    begin(Awaits, "b", ONE)
    drain(skip=NO_WAIT, check=False)
    assert any("semantic lock 'account:7' is still in its name" in str(each) for each in differences())
    assert "left behind by" in said(capsys, "locks")
    assert "`manage.py sagas unlock SUBJECT --reason WHY` frees" in said(capsys, "locks")
    assert "is free" in said(capsys, "unlock", "account:7", "--reason", "left over", "--actor", "ann")
    drain(skip=NO_WAIT)
    assert Awaits.get(key="b").status == "completed"


@pytest.mark.django_db
def test_the_admin_shows_it(both: tuple[Any, Any]) -> None:
    """On the page of either saga, and on a page of all locks, with links."""
    client = Client()
    client.force_login(User.objects.create_superuser("root-of-locks"))
    try:
        every = client.get(reverse("admin:sagas_sagarow_locks")).content.decode()
        assert "account:7 held by test.holds a running charge" in text_of(every)
        assert "account:7 awaited by test.awaits b running charge" in text_of(every)
        assert reverse("admin:sagas_sagarow_change", args=[both[0].id]) in every
        page = client.get(reverse("admin:sagas_sagarow_change", args=[both[1].id])).content.decode()
        assert "account:7 held by test.holds a running charge" in text_of(page)
        assert "account:7 awaited by this saga running charge" in text_of(page)
        listed = text_of(client.get(reverse("admin:sagas_sagarow_changelist")).content.decode())
        assert "charge waits for a semantic lock until" in listed
    finally:
        User.objects.filter(username="root-of-locks").delete()


@pytest.mark.django_db
def test_the_admin_keeps_others_out(shop: str) -> None:
    """Whoever may not see sagas may not see their locks."""
    client = Client()
    someone = User.objects.create_user("someone-else", is_staff=True)
    try:
        client.force_login(someone)
        assert client.get(reverse("admin:sagas_sagarow_locks")).status_code == 403
    finally:
        someone.delete()
