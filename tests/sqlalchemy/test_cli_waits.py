"""`sagas --app module:runtime ...` has the commands of `manage.py sagas`: signals, pauses, versions."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from sagas import Retry, Saga, external_step, wait_for
from sagas.cli.commands import sagas
from sagas.operate_commands import COMMANDS
from tests.sqlalchemy.conftest import begin, rows
from tests.sqlalchemy.shop import Told
from tests.sqlalchemy.test_cli import MODULE

Call = Callable[..., Result]


class Heard(Saga[Told], name="sa.heard", version=1):
    """Waits for one word."""

    word = wait_for(str)


class Deaf(Saga[Told], name="sa.deaf", version=1):
    """Hears nothing, and parks."""

    word = wait_for(str, timeout=0)


class Lost(Saga[Told], name="sa.lost", version=1):
    """Its one attempt brings no answer."""

    @external_step(compensate=None, retry=Retry(max_attempts=1))
    def ask(self) -> str:
        raise OSError("no reply")


@pytest.fixture
def call(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Calls a command in this process, in a directory of its own."""
    name = f"app_{uuid.uuid4().hex[:12]}"
    text = MODULE.format(url=url.replace("postgresql:", "postgresql+psycopg2:"), name=name)
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delenv("SAGAS_APP", raising=False)
    yield lambda *words: CliRunner().invoke(sagas, ["--app", f"{name}:runtime", *words])
    module = sys.modules.pop(name, None)
    if module is not None:
        module.runtime.close()
        module.engine.dispose()


def test_signal_pauses_and_why(call: Call, engine: Engine, url: str) -> None:
    """Held up by a pause, then waiting for a word, then told it."""
    (run,) = begin(engine, Heard, Told("note", "hello"))
    assert call("pause-definition", "sa.heard", "--reason", "maintenance", "--actor", "ann").exit_code == 0
    assert "definition  sa.heard" in call("pauses").output
    assert "(definition sa.heard is paused by ann: maintenance)" in call("list").output
    assert "goes on" in call("resume-definition", "sa.heard").output
    assert call("worker", "--until-idle").exit_code == 0
    assert "(word waits for a signal)" in call("list", "--waiting").output
    answer = call("signal", str(run.id), "word", "7", "--reason", "x")
    assert answer.exit_code == 1 and "word: Expected `str`, got `int`" in answer.output
    assert call("signal", str(run.id), "word", '"hi"', "--reason", "asked for", "--actor", "ann").exit_code == 0
    assert call("worker", "--until-idle").exit_code == 0
    assert rows(url, "select status from sagas_saga") == ["completed"]
    shown = call("show", str(run.id)).output
    assert '"hi"  reason: asked for  actor: ann' in shown
    assert call("replay", str(run.id)).exit_code == 0
    answer = call("signal", str(run.id), "word", '"hi"', "--reason", "again")
    assert answer.exit_code == 1 and "signals it would take: none" in answer.output


def test_versions(call: Call, engine: Engine, tmp_path: Path) -> None:
    """The file of releases is in the working directory; a changed definition fails; a version is drained or not."""
    begin(engine, Heard, Told("note", "hello"))
    assert call("definitions", "--check").exit_code == 1
    assert call("definitions", "--release").exit_code == 0
    file = tmp_path / "saga_definitions.json"
    assert json.loads(file.read_text())["sa.heard"] == {"1": Heard.fingerprint()}
    assert call("definitions", "--check").exit_code == 0
    released = json.loads(file.read_text())
    released["sa.heard"]["1"] = "0" * 16
    file.write_text(json.dumps(released))
    answer = call("definitions", "--check")
    assert answer.exit_code == 1 and "the steps of sa.heard version 1" in answer.output
    assert "changed since its release" in call("definitions").output
    answer = call("drain", "sa.heard", "1")
    assert answer.exit_code == 1 and "1 sagas of sa.heard version 1 are open" in answer.output


def test_redo_is_refused_without_a_person(call: Call, engine: Engine) -> None:
    """Nobody can be asked here, so it says what it means of such a step, and nothing is asked for."""
    deaf, lost = begin(engine, Deaf, Told("note", "hello")) + begin(engine, Lost, Told("note", "hello"))
    answer = call("redo", str(lost.id), "ask", "--reason", "x")
    assert answer.exit_code == 1 and "redo ask: saga sa.lost" in answer.output and "possible now: " in answer.output
    assert call("worker", "--until-idle").exit_code == 0
    answer = call("redo", str(lost.id), "ask", "--reason", "x")
    assert answer.exit_code == 1 and "under a new idempotency key" in answer.output and "--yes" in answer.output
    answer = call("redo", str(deaf.id), "word", "--reason", "x")
    assert answer.exit_code == 1 and "the saga waits again. Pass --yes" in answer.output
    assert "idempotency key" not in answer.output


def test_what_a_parked_saga_is_about(call: Call, engine: Engine) -> None:
    """The key to ask the other side about, the last error, and payloads where wanted; `resolve` by its own name."""
    (run,) = begin(engine, Lost, Told("note", "hello"))
    assert call("worker", "--until-idle").exit_code == 0
    shown = call("show", str(run.id)).output
    assert f"key       {run.id}:ask:do:0 is the idempotency key of ask" in shown
    assert "error     ask, attempt 1: OSError: no reply, " in shown and "hello" not in shown
    assert "no further attempt may begin; OSError: no reply)" in call("list").output
    shown = call("show", str(run.id), "--payloads", "--traceback").output
    assert '"hello"' in shown and "Traceback (most recent call last)" in shown
    answer = call("resolve", str(run.id), "ask", "--done", '"yes"', "--reason", "x")
    assert answer.exit_code == 1 and "resolve --done: The step counts as done" in answer.output


def test_both_command_lines_have_every_command(call: Call) -> None:
    """The table is the one that Django's command is made from, too; each command has a help of its own."""
    names = {name for each in COMMANDS for name in (each.name, *each.also)}
    assert names | {"worker", "relay", "metrics", "init"} == set(sagas.commands)
    for each in COMMANDS:
        answer = call(each.name, "--help")
        assert answer.exit_code == 0 and each.help.split()[0] in answer.output, answer.output
