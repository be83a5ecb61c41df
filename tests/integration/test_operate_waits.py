"""`manage.py sagas`: signals, pauses, redo, why a saga does not go on; refused is what would change nothing."""

from __future__ import annotations

import io
import re
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import pytest
from django.core.management import CommandError, call_command

from sagas import Saga, Sensitive, pauses, wait_for
from sagas.embedded import Embedded
from sagas.pauses import Scope
from sagas.states import Status
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.sagas import Ordered, Trip
from tests.shop.waiting import Choosy, Crowded, Hurried, Import, LastWord, Patient, Reviewed, Shipped, Sleeper
from tests.shop.world import World
from tests.support.stories import NO_WAIT, begin, drain, entries, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")


@dataclass(frozen=True)
class Card:
    """Something that is not shown."""

    number: Annotated[str, Sensitive]
    month: int


class Paid(Saga[Ordered], name="test.paid", version=1):
    """Waits for a card."""

    card = wait_for(Card)


def said(*arguments: str) -> str:
    """What a command writes."""
    out = io.StringIO()
    call_command("sagas", *arguments, stdout=out, skip_checks=True)
    return out.getvalue()


def refused(*arguments: str) -> str:
    """How a command refuses."""
    with pytest.raises(CommandError) as caught:
        said(*arguments)
    return str(caught.value)


def waiting(key: str = "a") -> Any:
    """A saga that waits for its review."""
    saga = begin(Reviewed, key)
    drain()
    assert log_of(saga)[-1] == "waiting review"
    return saga


def parked(world: World) -> Any:
    """A trip that parked over its charge, whose outcome is unknown."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run = begin(Trip)
    drain()
    assert Trip.get(key="a").parked_from == Status.RUNNING
    return run


# --- signals ---


def test_a_signal_from_the_command_line(world: World) -> None:
    """It is read as the declared type; who, when and why are in the log, and `show` says so."""
    saga = waiting()
    line = said("signal", "test.reviewed:a", "review", '{"ok": true, "note": "fine"}', "--reason", "papers are right")
    assert f"signal review for saga test.reviewed {saga.id} (was running) is in the outbox of 'default'" in line
    drain()
    assert Reviewed.get(key="a").status == Status.COMPLETED
    (signalled,) = [entry for entry in entries(saga) if entry.kind == "signalled"]
    assert signalled.data["reason"] == "papers are right" and signalled.data["actor"].startswith("cli:")
    text = said("show", str(saga.id))
    assert re.search(r'signalled +review  \{"ok": true, "note": "fine"\}  reason: papers are right  actor: cli:', text)
    assert re.search(rf"step done +review +answered by signal +of entry {signalled.seq}", text)


def test_a_signal_with_another_actor_and_an_id_of_its_own(world: World) -> None:
    """`--actor` names who decided; the same `--dedupe-id` again adds nothing."""
    saga = waiting()
    words = ("signal", str(saga.id), "review", '{"ok": true}', "--reason", "r", "--actor", "ann", "--dedupe-id", "h1")
    said(*words)
    assert "'h1' was sent before; nothing was added" in said(*words)
    (row,) = OutboxRow.objects.filter(kind="signal")
    assert row.payload["actor"] == "ann"


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ('{"ok": "perhaps"}', "review.ok: Expected `bool`, got `str`; signal 'review' is JSON of Review"),
        ("{}", "Object missing required field `ok`"),
        ("yes", "review: JSON is malformed"),
    ],
)
def test_a_value_of_another_type_is_refused(value: str, answer: str, world: World) -> None:
    """The message names the field, the signal and its type; nothing is sent."""
    waiting()
    assert answer in refused("signal", "test.reviewed:a", "review", value, "--reason", "x")
    assert not OutboxRow.objects.filter(kind="signal").exists()


def test_a_signal_that_nobody_will_take_is_refused(world: World) -> None:
    """No such wait, or the wait is over, or the saga is: each with what would be taken."""
    waiting()
    assert "there are: review" in refused("signal", "test.reviewed:a", "ship", "1", "--reason", "x")
    begin(Crowded, "c")
    drain()
    said("signal", "test.crowded:c", "two", '"early"', "--reason", "x")
    said("signal", "test.crowded:c", "go", '"now"', "--reason", "x")
    drain()
    assert "signals it would take: one, two" in refused("signal", "test.crowded:c", "go", '"late"', "--reason", "x")
    begin(LastWord, "l")
    said("signal", "test.last_word:l", "word", '"end"', "--reason", "x")
    drain()
    assert "signals it would take: none" in refused("signal", "test.last_word:l", "word", '"more"', "--reason", "x")


def test_an_early_signal_is_shown_as_queued(world: World) -> None:
    """`show` says how many signals a wait has that the saga has not come to."""
    begin(Crowded, "c")
    drain()
    said("signal", "test.crowded:c", "two", '"early"', "--reason", "x")
    drain()
    assert re.search(r"step      two +pending +wait for a signal, signals queued: 1", said("show", "test.crowded:c"))


def test_what_is_sensitive_is_not_shown(world: World) -> None:
    """Neither in the log that `show` prints, nor in the answer to a value that does not fit."""
    saga = begin(Paid, "p")
    drain()
    answer = refused("signal", "test.paid:p", "card", '{"number": "4711-0815", "month": "May"}', "--reason", "x")
    assert "card.month" in answer and "4711-0815" not in answer and "May" not in answer
    said("signal", "test.paid:p", "card", '{"number": "4711-0815", "month": 5}', "--reason", "x")
    drain()
    text = said("show", str(saga.id))
    assert '{"month": 5, "number": "***"}' in text and "4711-0815" not in text


# --- why it waits ---


def test_show_and_list_say_what_is_waited_for(world: World) -> None:
    """The waiting step and until when: for a signal, with and without end, and for a time."""
    waiting()
    begin(Patient, "p")
    begin(Sleeper, "s", Ordered(number=1))
    begin(Trip, "t")
    drain()
    lines = said("list", "--waiting").splitlines()
    assert len(lines) == 5 and "test.trip" not in "".join(lines)
    assert re.search(
        r"review  test.reviewed  a  \(review waits for a signal until \S+ \S+ \(in [12] d \d+ h\)\)", lines[3]
    )
    assert lines[2].endswith("p  (first waits for a signal)")
    assert re.search(r"s  \(nap sleeps until \S+ \S+ \(in (59 min|1 h) \d+ (s|min)\)\)$", lines[1])
    assert "waits     first waits for a signal\n" in said("show", "test.patient:p")
    assert re.search(r"waiting +review +until \d{4}-", said("show", "test.reviewed:a"))


def test_show_has_deadline_skips_and_progress(world: World) -> None:
    """When it turns back; why a step was skipped; how far the attempt at work has come."""
    begin(Hurried, "h")
    assert re.search(r"deadline  \S+ \S+ \S+ \(in (59 min|1 h) \d+ (s|min)\)", said("show", "test.hurried:h"))
    begin(Choosy, "c", Ordered(number=13))
    drain(skip=NO_WAIT)
    assert re.search(r"step      wrap +skipped +external, unlucky", said("show", "test.choosy:c"))
    world.plan("line", None, None, OSError("cable"))
    begin(Import, "i", Ordered(number=4))
    drain(skip=timedelta(0))
    assert ", progress 2" in said("show", "test.import:i")


def test_a_saga_of_a_version_that_is_not_here_is_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one whose steps were changed: both are shown with what they wait for, never an error."""
    waiting()
    begin(Trip, "t")
    SagaRow.objects.filter(name="test.reviewed").update(version=9)
    SagaRow.objects.filter(name="test.trip").update(definition="0" * 16)
    text = said("list")
    assert "(its definition is not in this process; review waits for a signal until" in text
    assert "t  (its steps were changed without a new version: deploy the former code)" in text
    assert "waits     its definition is not in this process" in said("show", "test.reviewed:a")
    for command in ("retry", "signal"):
        words = ("review", "1") if command == "signal" else ()
        assert "not registered in this process" in refused(command, "test.reviewed:a", *words, "--reason", "x")


# --- requests ---


def test_only_what_is_possible_is_asked_for(world: World) -> None:
    """A cancel after the pivot would only be noted: it is refused, with what is possible."""
    world.always("tell", ConnectionError("no reply"))
    begin(Shipped, "a")
    drain(skip=NO_WAIT)
    answer = refused("cancel", "test.shipped:a", "--reason", "too late")
    assert "cancel: saga test.shipped" in answer and "possible now: retry, pause" in answer
    assert not OutboxRow.objects.filter(kind="cancel").exists()


def test_pause_and_resume_one_saga(world: World) -> None:
    """In between nothing of it begins, and it says so."""
    begin(Trip)
    said("pause", "test.trip:a", "--reason", "look first")
    drain(skip=NO_WAIT)
    assert world.calls == []
    text = said("show", "test.trip:a")
    assert "status    running, paused" in text and "waits     is paused" in text
    assert "possible now: retry, cancel, resume" in refused("pause", "test.trip:a", "--reason", "again")
    said("resume", "test.trip:a", "--reason", "seen")
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED


def test_redo_has_to_be_meant(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --yes, and without a person to ask, it is refused and says what it means."""
    parked(world)
    redo = ("redo", "test.trip:a", "charge", "--reason", "the bank has lost it")
    answer = refused(*redo)
    assert "under a new idempotency key: if it did happen, it happens twice. Pass --yes" in answer
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert refused(*redo) == "redo: nothing was asked for"
    assert not OutboxRow.objects.filter(kind="redo").exists()
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "y")
    said(*redo)
    assert "happens twice" in asked[0] and OutboxRow.objects.filter(kind="redo").count() == 1


@pytest.mark.parametrize("command", [("redo",), ("resolve", "--not-done")])
def test_a_saga_that_moves_on_while_somebody_thinks(
    world: World, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Whoever answers yes has seen the saga as it was before the question."""
    parked(world)

    def think(question: str) -> str:
        said("retry", "test.trip:a", "--reason", "somebody else's")
        world.plan("charge", *[ConnectionError("no reply")] * 3)
        drain()
        assert Trip.get(key="a").status == Status.PARKED
        return "y"

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", think)
    verb, *options = command
    assert "has moved on" in refused(verb, "test.trip:a", "charge", *options, "--reason", "it is lost")
    assert not OutboxRow.objects.filter(step=None).exists()


def test_redo_of_a_step(world: World) -> None:
    """It is done anew under another key, and `show` says so; of a step where that is not legal it is refused."""
    parked(world)
    before = [call.key for call in world.of("charge")]
    assert "redo ship: saga test.trip" in refused("redo", "test.trip:a", "ship", "--reason", "x", "--yes")
    said("redo", "test.trip:a", "charge", "--reason", "the bank has lost it", "--yes", "--actor", "ann")
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED
    assert world.of("charge")[-1].key not in before
    text = said("show", "test.trip:a")
    assert re.search(r"step      charge +done .*done anew 1 times", text)
    assert re.search(r"redo requested +charge +reason: the bank has lost it  actor: ann", text)


# --- queues and definitions ---


def test_pausing_a_definition(world: World) -> None:
    """Listed with who and why; its sagas say that they are held up by it; resumed they go on."""
    begin(Trip)
    assert said("pauses") == "no queue and no definition is paused in 'default'\n"
    text = said("pause-definition", "test.trip", "--reason", "the bank is down", "--actor", "ann")
    assert "its sagas begin nothing" in text and "`manage.py sagas resume-definition test.trip`" in text
    drain(skip=NO_WAIT)
    assert re.search(r"^definition  test.trip  \S+ \S+  ann  the bank is down$", said("pauses"), re.MULTILINE)
    assert said("pauses").splitlines()[-1].startswith("`manage.py sagas resume-queue NAME`")
    assert "waits     definition test.trip is paused by ann: the bank is down" in said("show", "test.trip:a")
    assert "(definition test.trip is paused by ann: the bank is down)" in said("list")
    assert said("resume-definition", "test.trip") == "definition test.trip goes on in 'default'\n"
    drain(skip=NO_WAIT)
    assert Trip.get(key="a").status == Status.COMPLETED
    assert "definition test.trip is not paused; paused are: none" in refused("resume-definition", "test.trip")


def test_pausing_one_version_and_a_queue(world: World) -> None:
    """NAME:VERSION is that version only; of a queue nothing is claimed."""
    begin(Trip)
    said("pause-definition", "test.trip:2", "--reason", "x")
    said("pause-queue", "default", "--reason", "maintenance", "--actor", "ann")
    assert "queue default is paused by ann: maintenance" in (text := said("show", "test.trip:a"))
    assert "definition" not in text
    assert "paused are: test.trip:2" in refused("resume-definition", "test.trip")
    Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)
    assert world.calls == []
    said("resume-queue", "default")
    drain(skip=NO_WAIT)
    assert Trip.get(key="a").status == Status.COMPLETED


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("pause-definition", "test.trip:one"), "'test.trip:one': write NAME, or NAME:VERSION"),
        (("pause-definition", ":1"), "write NAME"),
        (("pause-queue", ""), "write NAME"),
    ],
)
def test_wrong_scopes_are_refused(arguments: tuple[str, ...], answer: str) -> None:
    """Nothing is paused."""
    assert answer in refused(*arguments, "--reason", "x")
    with closing(DjangoStore("default").connect()) as connection:
        assert list(pauses.pauses(connection)) == []


def test_a_name_that_nobody_knows_is_noted() -> None:
    """It is paused all the same: the code that has it may come later."""
    assert "note: this process knows no queue 'pyments'" in said("pause-queue", "pyments", "--reason", "x")
    with closing(DjangoStore("default").connect()) as connection:
        assert [(each.kind, each.name) for each in pauses.pauses(connection)] == [(Scope.QUEUE, "pyments")]


def test_nothing_is_written_by_looking(world: World) -> None:
    """`list`, `show` and `pauses` only read."""
    saga = waiting()
    lines, rows = LogEntry.objects.count(), [row.token for row in outbox(saga)]
    for words in (("list", "--waiting"), ("show", str(saga.id)), ("pauses",), ("definitions",)):
        said(*words)
    assert (LogEntry.objects.count(), [row.token for row in outbox(saga)]) == (lines, rows)
