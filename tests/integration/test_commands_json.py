"""Every command with `--json`: one object for programs, and exit codes that say how it went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from django.core.management import execute_from_command_line
from django.db import connection, transaction

from sagas import engine
from sagas.cli.commands import sagas as sagas_command
from sagas.commanding import Command
from sagas.operate_commands import COMMANDS
from tests.shop.locking import Holds, Wanted
from tests.shop.sagas import Trip
from tests.shop.waiting import Reviewed
from tests.shop.world import World
from tests.support.schedules import NAME, declared
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")

WHY = ("--reason", "testing")
CALLS: dict[str, tuple[str, ...]] = {  # how each command is called here, so that it does something
    "list": (), "show": ("test.trip:open",), "signal": ("test.reviewed:waits", "review", '{"ok": true}', *WHY),
    "retry": ("test.trip:parked", *WHY), "cancel": ("test.trip:open", *WHY), "abort": ("test.trip:parked", *WHY),
    "pause": ("test.trip:open", *WHY), "resume": ("test.trip:paused", *WHY),
    "redo": ("test.trip:parked", "charge", "--yes", *WHY),
    "resolve": ("test.trip:parked", "charge", "--not-done", "--yes", *WHY),
    "locks": (), "unlock": ("left behind", *WHY), "pauses": (), "pause-queue": ("payments", *WHY),
    "resume-queue": ("slow",), "pause-definition": ("test.trip:1", *WHY), "resume-definition": ("test.charge",),
    "definitions": (), "drain": ("test.pivoted", "1"), "replay": ("test.trip:done",), "verify": (), "rebuild": (),
    "queues": (), "limit-queue": ("payments", "--concurrency", "3", *WHY), "reset-queue": ("payments",),
    "schedules": (), "declare-schedules": (), "pause-schedule": (NAME, *WHY), "resume-schedule": (NAME,),
    "run-schedule": (NAME, *WHY), "forget-schedule": ("gone",), "messages": ("waiting",),
    "restored": WHY, "reconcile": ("FOLDER/list.jsonl",),
    "tail": ("test.trip:done", "--since-start", "--count", "1"), "top": ("--count", "1"), "stats": (), "doctor": (),
    "prune": ("--dry-run",), "archive": ("FOLDER/archive.jsonl",), "roles": (),
}  # fmt: skip
MAY_FIND = {"doctor"}  # something wrong that is none of this test's business
SHAPES: dict[str, Callable[[Any], bool]] = {
    "list": lambda data: {each["key"] for each in data} >= {"open", "parked", "waits"},
    "signal": lambda data: data["added"] and data["step"] == "review",
    "retry": lambda data: (data["request"], data["status_before"]) == ("retry", "parked"),
    "resolve": lambda data: data["request"] == "mark_not_done",
    "locks": lambda data: {each["subject"] for each in data} == {"account:7", "left behind"},
    "pauses": lambda data: [each["name"] for each in data] == ["slow", "test.charge"],
    "pause-definition": lambda data: (data["name"], data["version"], data["paused"]) == ("test.trip", 1, True),
    "definitions": lambda data: any(each["name"] == "test.trip" and each["open"] == 3 for each in data),
    "drain": lambda data: data["open"] == 0,
    "replay": lambda data: data["fits"] and data["entries"][0]["kind"] == "started",
    "declare-schedules": lambda data: data["declared"] == 1 and data["not_declared_here"] == ["gone"],
    "run-schedule": lambda data: data["schedule"] == NAME and data["saga"],
}


@pytest.fixture
def scene(shop: str, world: World) -> Iterator[None]:
    """One saga in each state, something paused, limited, locked and left behind, and schedules. What is asked for is
    never applied, so that all commands can work on one scene."""
    begin(Trip, "done")
    world.plan("charge", *[OSError("no reply")] * 3, saga="parked")
    begin(Trip, "parked")
    begin(Reviewed, "waits")
    begin(Holds, "holds", Wanted(["account:7"]))
    engine.request(Trip.saga_name, "pause", id=begin(Trip, "paused").id, reason="x", using="default")
    drain()
    begin(Trip, "open")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SCENE)
    with declared(cron="0 6 1 1 *", timezone="Europe/Berlin"):
        with declared(cron="0 6 1 1 *", timezone="Europe/Berlin", name="gone"):
            execute_from_command_line(["manage.py", "sagas", "declare-schedules"])
        yield


SCENE = """
insert into sagas_lock (subject, saga_id, step) select 'left behind', id, 'charge' from sagas_saga where key = 'done';
insert into sagas_pause (kind, name, reason, at) values ('queue', 'slow', 'x', clock_timestamp() - interval '1 hour'),
    ('definition', 'test.charge', 'x', clock_timestamp());
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and standard output of `manage.py sagas ...`."""
    code = 0
    try:
        execute_from_command_line(["manage.py", "sagas", *words])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    return code, capsys.readouterr().out


def test_every_command_is_called_here() -> None:
    """A new command gets a line in `CALLS`."""
    assert set(CALLS) == {each.name for each in COMMANDS}


def test_data_for_programs(scene: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object and nothing else, with data of its own, from every command; what follows something writes an
    object a line."""
    (tmp_path / "list.jsonl").write_text("")
    capsys.readouterr()
    wrong = {}
    for command in sorted(COMMANDS, key=lambda each: ORDER.get(each.name, 0)):
        words = [word.replace("FOLDER", str(tmp_path)) for word in CALLS[command.name]]
        code, out = run(capsys, command.name, *words, "--json")
        if problem := misfit(command, code, out):
            wrong[command.name] = problem
    assert wrong == {}


LOOKS = ("list", "locks", "pauses", "queues", "schedules", "messages", "top", "stats", "tail", "definitions", "doctor")


def test_what_looks_where_time_zones_are_off(scene: None, settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """USE_TZ = False gives naive times, and these commands tell how long ago or ahead they are."""
    settings.USE_TZ = False
    calls = [("show", f"{name}:{key}") for name, key in (("test.trip", "parked"), ("test.reviewed", "waits"))]
    calls += [("list", "--stuck"), *((name, *CALLS[name]) for name in LOOKS)]
    codes = {call: run(capsys, *call)[0] for call in calls}
    assert {call for call, code in codes.items() if code and call[0] not in MAY_FIND} == set()


ORDER = {"reset-queue": 1, "resume-schedule": 1}  # after what they take back


def misfit(command: Command, code: int, out: str) -> str:
    """What is wrong with an answer."""
    lines = [json.loads(line) for line in out.splitlines()]
    if command.follows:
        return "" if code == 0 and lines and all(isinstance(line, dict) for line in lines) else out
    (answer,) = lines
    sound = command.name in MAY_FIND or (answer["ok"] and answer["error"] is None and code == 0)
    shaped = set(answer) == {"ok", "data", "said", "error"} and isinstance(answer["data"], dict | list)
    fits = SHAPES.get(command.name, lambda data: True)
    return "" if sound and shaped and fits(answer["data"]) else out


# --- exit codes ---


def test_exit_codes(scene: None, capsys: pytest.CaptureFixture[str]) -> None:
    """0: it did what it says. 1: it did not, or found something wrong. 2: it was called in a wrong way."""
    assert run(capsys, "show", "test.trip:open")[0] == 0
    for words in (("show", "test.trip:nobody"), ("drain", "test.trip", "1"), ("retry", "test.trip:done", *WHY)):
        assert run(capsys, *words)[0] == 1
        code, out = run(capsys, *words, "--json")
        answer = json.loads(out)
        assert code == 1 and not answer["ok"] and answer["error"], words
    assert json.loads(run(capsys, "drain", "test.trip", "1", "--json")[1])["data"]["open"] == 3
    for words in (("show",), ("no-such-command",), ("list", "--limit", "many"), ("retry", "test.trip:open")):
        assert run(capsys, *words)[0] == 2
        assert run(capsys, *words, "--json")[0] == 2


def test_a_reader_that_has_seen_enough(shop: str) -> None:
    """`sagas show SAGA | head` ends without a traceback."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": shop}
    words = [sys.executable, "-m", "django", "sagas", "roles"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
        assert process.wait(60) == 1 and complaint == "", complaint


def test_exit_codes_without_django(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of the other command line, which shares the commands; `init` has `--json` too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAGAS_APP", raising=False)

    def call(*words: str) -> tuple[int, str]:
        found = CliRunner().invoke(sagas_command, words)
        return found.exit_code, found.output

    assert call("--help")[0] == 0
    assert call("list")[0] == 2  # --app is missing
    assert call("--app", "nowhere:runtime", "no-such-command")[0] == 2
    assert call("--app", "nowhere:runtime", "list")[0] == 1
    for words in (
        ("retry", "a:b"),
        ("resolve", "a:b", "charge", "--skip"),
        ("drain", "a"),
        ("list", "--limit", "many"),
    ):
        code, out = call("--app", "nowhere:runtime", *words)
        assert code == 2 and ("--reason" in out or words[0] in ("drain", "list")), out
    code, out = call("init", "--json")
    answer = json.loads(out)
    assert code == 1 and not answer["ok"] and "missing" in answer["error"]
    assert all({"what", "there", "file"} == set(each) for each in answer["data"])
