"""`tail`, `--json` and exit codes: what programs and people who wait are given."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from sagas.cli.bars import bar
from sagas.commanding import JSON
from sagas.errors import InvalidInput
from sagas.operate_commands import COMMANDS
from sagas.operate_watching import Followed, tail
from sagas_django.operate import DjangoDesk
from tests.shop.sagas import Ordered, Trip
from tests.shop.waiting import Review, Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")

SECRET = 731_731_731
ALL = {"name": None, "interval": 0.1, "count": 1, "since_start": True}


def kinds(found: list[Followed], key: str) -> list[str]:
    """What was told of one saga."""
    return [each.kind for each in found if each.key == key]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command gives a program."""
    call_command("sagas", *arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_tail_tells_each_entry_once(world: World) -> None:
    """Of sagas that were open, of new ones, of those that end meanwhile; in the order in which they were written."""
    begin(Reviewed, "old")
    drain()
    found: list[Followed] = []
    looks = tail(DjangoDesk("default"), [], **ALL | {"count": 4, "since_start": False})  # type: ignore[arg-type]

    def meanwhile() -> None:
        begin(Trip, "new")
        Reviewed.review.send(Review(ok=True), key="old")
        drain()

    def after_first_look(seconds: float) -> None:
        if not done:
            done.append(1)
            meanwhile()

    done: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sagas.operate_watching.time.sleep", after_first_look)
        found = list(looks)
    assert kinds(found, "new") == ["started", "step_done", "step_done", "step_done", "completed"]
    assert kinds(found, "old")[0] == "signalled" and kinds(found, "old")[-1] == "completed"
    assert len({(each.saga_id, each.seq) for each in found}) == len(found)


def test_tail_of_one_saga(capsys: pytest.CaptureFixture[str], world: World) -> None:
    """From its start if asked for; as lines, or as an object a line, without payloads."""
    begin(Trip, "a", Ordered(number=SECRET))
    begin(Trip, "b")
    drain()
    call_command("sagas", "tail", "test.trip:a", "--since-start", "--count", "1")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and "test.trip:a" in lines[0] and lines[-1].endswith("completed")
    call_command("sagas", "tail", "test.trip:a", "--since-start", "--count", "1", "--json")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["kind"] for each in found][-1] == "completed" and found[1]["step"] == "book"
    assert str(SECRET) not in str(found)


@pytest.mark.parametrize("wrong", [{"interval": 0.01}, {"interval": float("inf")}, {"count": 0}])
def test_tail_does_not_ask_too_often(wrong: dict[str, Any]) -> None:
    """The pace is bounded: it is a poll."""
    with pytest.raises(InvalidInput):
        next(tail(DjangoDesk("default"), [], **ALL | wrong))


def test_tail_ends_at_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a traceback."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sagas.operate_watching.time.sleep", interrupted)
    call_command("sagas", "tail")


def test_json_of_looking(capsys: pytest.CaptureFixture[str], world: World) -> None:
    """List, show, pauses and verify give data; nothing but the object is written."""
    saga = begin(Trip, "a", Ordered(number=SECRET))
    drain()
    begin(Reviewed, "b")
    drain()
    listed = answer(capsys, "list")
    assert listed["ok"] and [each["key"] for each in listed["data"]] == ["b", "a"]
    assert listed["data"][0]["waits"] and listed["data"][1]["status"] == "completed"
    shown = answer(capsys, "show", "test.trip:a")["data"]
    assert shown["id"] == str(saga.id) and [each["status"] for each in shown["steps"]] == ["done"] * 3
    assert shown["log"][0]["kind"] == "started" and str(SECRET) not in str(shown)
    assert answer(capsys, "show", "test.reviewed:b")["data"]["allowed"]
    assert answer(capsys, "pauses")["data"] == []
    assert answer(capsys, "verify")["data"] == {"seen": 2, "problems": 0}


def test_json_of_asking_and_of_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """What was said is there; what cannot be done is an error in the object, and exit code 1."""
    begin(Trip, "a")
    found = answer(capsys, "cancel", "test.trip:a", "--reason", "x")
    assert found["ok"] and "is in the outbox" in found["said"][0]
    with pytest.raises(SystemExit) as ended:
        call_command("sagas", "show", "test.trip:none", "--json")
    found = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1 and not found["ok"] and "no saga test.trip" in found["error"]


def test_every_command_takes_json() -> None:
    """No command has an argument of that name of its own, which would hide it; names are unique."""
    for command in COMMANDS:
        assert JSON.key not in {each.key for each in command.arguments}, command.name
    names = [name for command in COMMANDS for name in (command.name, *command.also)]
    assert len(names) == len(set(names)) and "send" in names


def test_stuck_goes_with_nothing_else() -> None:
    """A question that makes no sense is refused."""
    with pytest.raises(CommandError, match="--stuck goes with --name and --limit only"):
        call_command("sagas", "list", "--stuck", "--waiting")


def test_long_work_shows_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, with click's own bar; elsewhere nothing is written that a program would have to skip."""
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", shown)
    with bar(2, "sagas") as progress:
        progress.update(1)
        progress.update(1)
    assert "sagas" in shown.getvalue() and "100%" in shown.getvalue()
    monkeypatch.setattr("sys.stderr", quiet := io.StringIO())
    with bar(2, "sagas") as progress:
        progress.update(2)
    assert quiet.getvalue() == ""


def test_top_in_a_terminal(world: World) -> None:
    """rich shows pages in place; without it they come one after the other."""
    from sagas.live import shown_live

    said: list[str] = []
    shown_live(iter([["one", "two"], ["three"]]), said.append)
    assert said == ["one", "two", "", "three", ""]
