"""What `manage.py sagas list` and `show` tell an operator, and how wrong questions are answered."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone, translation

from sagas import NOT_DONE, Refused
from sagas import operate as core_operate
from sagas.events import Direction, Kind, Source
from sagas.states import Status, StepStatus
from sagas_django import wording
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from tests.integration.conftest import database_alias
from tests.shop.sagas import Asked, Blind, Pivoted, Trip
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.django_db


def said(*arguments: str) -> list[str]:
    """What a command writes, as lines."""
    out = io.StringIO()
    call_command("sagas", *arguments, stdout=out, skip_checks=True)
    return out.getvalue().splitlines()


def refused(*arguments: str) -> str:
    """How a command refuses."""
    with pytest.raises(CommandError) as caught:
        said(*arguments)
    return str(caught.value)


def test_list_is_a_table_of_the_newest() -> None:
    """One line a saga, columns aligned, newest first, with the step it is at."""
    begin(Trip, "first")
    latest = begin(Asked, "second")
    head, newest, oldest = said("list")
    assert head.split() == ["status", "id", "age", "step", "name", "key"]
    assert newest.split()[:2] == ["running", str(latest.id)] and newest.endswith("charge  test.asked  second")
    assert oldest.endswith("book    test.trip   first")
    assert {line.index(word) for line, word in ((head, "key"), (newest, "second"), (oldest, "first"))} == {
        head.index("key")
    }


def test_list_narrows() -> None:
    """By status, by name, by number."""
    for number in range(3):
        begin(Trip, f"trip-{number}")
    begin(Asked, "asked")
    assert len(said("list", "--limit", "2")) == 3
    assert len(said("list", "--name", "test.asked")) == 2
    assert said("list", "--status", "parked", "--status", "aborted") == ["no saga in 'default' fits"]
    assert len(said("list", "--status", "running")) == 5


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("list", "--status", "park"), "'park': no such status; did you mean 'parked'?"),
        (("list", "--status", "x"), "there are running, compensating"),
        (("list", "--limit", "0"), "--limit 0: at least 1"),
        (("list", "--database", "nowhere"), "'nowhere': no such alias in DATABASES; known: default"),
        (("show", "nonsense"), "'nonsense' is neither a saga's id nor name:key; `manage.py sagas list` shows both"),
        (("show", "test.trip:none"), "no saga test.trip with key 'none'"),
        (("show", str(uuid4())), "no saga"),
        (("show", "test.trip:", "--database", "default"), "key"),
        (("verify", "--database", "nowhere"), "no such alias"),
        (("cancel", "test.trip:none", "--reason", "x"), "no saga test.trip with key 'none'"),
    ],
)
def test_wrong_questions(arguments: tuple[str, ...], answer: str) -> None:
    """Each is answered with what is wrong and what there is; never with a traceback."""
    assert answer in refused(*arguments)


def test_database_of_another_kind() -> None:
    """Sagas live in Postgres."""
    with database_alias("other", {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}):
        for command in (["list"], ["worker"], ["show", "a:b"]):
            assert "'other' is sqlite" in refused(*command, "--database", "other")


def test_show_lists_steps_in_declared_order() -> None:
    """Also those that have not begun, with what is next."""
    saga = begin(Trip, "new")
    lines = said("show", "test.trip:new")
    assert lines[0] == "saga      test.trip version 1, key 'new', run 1"
    assert lines[1] == f"id        {saga.id}"
    steps = [line.split()[1:] for line in lines if line.startswith("step ")]
    assert [step[0] for step in steps] == ["book", "charge", "confirm"]
    assert steps[0] == ["book", "pending", "local,", "next:", "do"]
    assert steps[1] == ["charge", "pending", "external"]
    assert any(re.search(r"outbox    book \(do\) +held by nobody, due .*ago\), queue default", line) for line in lines)
    assert said("show", str(saga.id))[:3] == lines[:3]


@pytest.mark.django_db(transaction=True)
def test_show_tells_what_happened(world: World, quiet: None) -> None:
    """Errors, who answered, why it turned back, what is unknown; durations between entries."""
    world.plan("charge", OSError("no\nroute\x1b[31m"), OSError("no route"), OSError("no route"))
    world.always("find", NOT_DONE)
    begin(Asked, "story")
    drain()
    text = "\n".join(said("show", "test.asked:story"))
    assert "OSError: no route" in text and "\x1b" not in text
    assert "step failed" in text and "attempt 1" in text and "outcome unknown" in text
    assert "reason: resolve says it did not happen" in text
    assert re.search(r"^    1  \S+ \S+ +\+0\.\d{3} s  step failed", text, re.MULTILINE)
    assert "outcome of an attempt unknown" in text


@pytest.mark.django_db(transaction=True)
def test_show_parked(world: World, quiet: None) -> None:
    """What it parked over is what is next."""
    world.always("invoice", Refused("no address"))
    begin(Pivoted, "p")
    drain()
    text = "\n".join(said("show", "test.pivoted:p"))
    assert "status    parked (from running)" in text and "reason    refused after the pivot: no address" in text
    assert re.search(r"step      ship +done +external pivot, 1 attempt", text)
    assert re.search(r"step      invoice +pending +external, 1 attempt, next: do", text)
    line, hint = said("list", "--status", "parked")[1:]
    assert hint.startswith("`manage.py sagas show ID` says")
    assert "invoice" in line and "(refused after the pivot: no address)" in line


@pytest.mark.django_db(transaction=True)
def test_show_settling(world: World, quiet: None) -> None:
    """A step undone without knowing whether it happened is looked at once more; until then that is what is next."""
    world.plan("charge", OSError("lost"))
    begin(Blind, "b")
    drain()
    text = "\n".join(said("show", "test.blind:b"))
    assert "status    settling" in text
    assert re.search(r"step      charge +undone +external, 1 attempt, 1 undo attempt, .*unknown, next: settle", text)
    assert re.search(r"outbox    charge \(settle\) +held by nobody, due .*\(in [\d minsec.]+\)", text)
    assert "step given up, outcome unknown" in text
    assert re.search(r"\nwaits     charge is looked at once more at .* \(in [\d minsec.]+\), since nobody knows", text)
    assert "\nnext      Nothing is to be done: it goes on by itself.\n" in text
    with translation.override("de"):
        assert "charge wird um " in "\n".join(said("show", "test.blind:b"))


@pytest.mark.django_db(transaction=True)
def test_show_an_expired_claim(world: World) -> None:
    """Its worker has died, or cannot reach the database: what happens next, and what to do where it does not."""
    run = begin(Trip, "e")
    claim = OutboxRow.objects.filter(saga_id=run.id)
    claim.update(holder="worker:w1", due_at=timezone.now() + timedelta(seconds=60))
    assert not any(line.startswith("waits ") for line in said("show", "test.trip:e"))
    claim.update(holder="relay:r1", due_at=timezone.now() - timedelta(seconds=5))
    assert not any(line.startswith("waits ") for line in said("show", "test.trip:e"))
    claim.update(holder="worker:w1", due_at=timezone.now() - timedelta(seconds=5))
    text = "\n".join(said("show", "test.trip:e"))
    assert re.search(r"\nwaits     the claim of worker:w1 on book ended at .* \([\d.]+ s ago\)", text)
    assert "\nnext      manage.py sagas doctor\n          Another worker takes it over by itself; " in text


def test_show_without_the_definition() -> None:
    """Begun steps only, in the order they ended."""
    now = timezone.now()
    SagaRow.objects.bulk_create([SagaRow(
        id=uuid4(), name="gone.saga", version=3, key="k", status="running", seq=2, input_hash="x", created_at=now,
        updated_at=now, steps={"z": {"status": "done", "ended": 1, "result": 1}, "a": {"status": "done", "ended": 2,
        "result": 2}})])  # fmt: skip
    lines = said("show", "gone.saga:k")
    assert any("does not know gone.saga version 3" in line for line in lines)
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["z", "a"]


def test_times_are_local(settings: Any) -> None:
    """In the time zone of the project, which is named."""
    begin(Trip, "t")
    with timezone.override("Asia/Tokyo"):
        lines = said("show", "test.trip:t")
        expected = timezone.localtime(SagaRow.objects.get().created_at).strftime("%Y-%m-%d %H:%M:%S")
    assert any(line.startswith(f"started   {expected} Asia/Tokyo (") for line in lines), lines


def test_request_says_what_it_did() -> None:
    """A request is a row in the outbox; a worker applies it."""
    saga = begin(Trip, "c")
    (line,) = said("cancel", "test.trip:c", "--reason", "changed my mind")
    assert str(saga.id) in line and "outbox" in line
    row = OutboxRow.objects.get(kind="cancel")
    assert row.payload["reason"] == "changed my mind" and row.payload["actor"].startswith("cli:")
    assert any(line.startswith("outbox    cancel ") for line in said("show", "test.trip:c"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 ms"), (0.35, "350 ms"), (0.9999, "1.0 s"), (2.34, "2.3 s"), (9.97, "10 s"), (59.7, "1 min 0 s"),
        (250, "4 min 10 s"), (7500, "2 h 5 min"), (86399.6, "1 d 0 h"), (273600, "3 d 4 h"),
    ],
)  # fmt: skip
def test_spans_are_readable(seconds: float, text: str) -> None:
    """Two units at most, and never a rounding to 60 s."""
    with translation.override("en"):
        assert wording.span(timedelta(seconds=seconds)) == text


def test_everything_has_a_word() -> None:
    """Every status, kind, direction and source that the engine writes; what it does not know is shown as it is."""
    assert set(wording.STATUS) == set(Status) and set(wording.STEP_STATUS) == set(StepStatus)
    assert set(wording.KIND) == set(Kind) and set(wording.DIRECTION) == set(Direction)
    assert set(wording.SOURCE) == set(Source)
    assert wording.word(wording.KIND, "newer") == "newer"


def test_entries_of_any_kind_have_a_line() -> None:
    """Also with facts of a newer version."""
    entry = LogEntry(kind="newer", step=None, data={"error": {"message": "m"}, "source": "oracle"}, attempt=0)
    assert core_operate.entry_text(entry, wording).split() == ["newer", "answered", "by", "oracle", ":", "m"]
