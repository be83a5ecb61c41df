"""What may be typed wrongly: every command, every argument, in both worlds. An answer in words, and nothing written."""

from __future__ import annotations

import io
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from django.core.management import CommandError, call_command

from sagas import Saga, wait_for
from sagas.cli.commands import sagas
from sagas.commanding import Argument, Command
from sagas.operate_commands import COMMANDS
from tests.shop.sagas import Ordered, Trip
from tests.support.odd import everything
from tests.support.stories import begin

pytestmark = pytest.mark.usefixtures("shop")

TYPED = (
    "", " ", "a\x00b", "x" * 3000, "-1", "0", "7", "1e400", "nan", "99999999999999999999999999", ":", "a:b:c",
    "test.trip:", ":there", "test.trip:there", str(uuid.UUID(int=0)), "00000000-0000-0000-0000-00000000000g", "%s", "%",
    "'; drop table sagas_saga; --", "{", "[1,", "null", "\u202e\x1b[31m", "../../etc/passwd", "\n", "é",
)  # fmt: skip
NEVER_ENDING = {"top", "tail", "board"}  # they follow something
FOUND = [command for command in COMMANDS if command.name not in NEVER_ENDING and not command.follows]
WRITES_FILES = {"file", "release", "out", "output"}


class Waits(Saga[Ordered], name="property.typed", version=1):
    """Waits for a text."""

    go = wait_for(str)


def words(command: Command, wrong: Argument, value: str) -> list[str]:
    """A call of a command with one wrong argument, and usual ones besides."""
    found: list[str] = []
    for each in command.arguments:
        given = value if each is wrong else "property.typed:waits" if each.name == "saga" else "go"
        if not each.option:
            found.append(given)
        elif each is wrong or each.required:
            found.append(f"{each.name}={given}")
    return found if value[:1] != "-" or wrong.option else ["--", *found]


CALLS = [
    (command, argument)
    for command in FOUND
    for argument in command.arguments
    if argument.type is not bool and argument.key not in WRITES_FILES
]
OFTEN = {
    "list-name",
    "list-limit",
    "show-saga",
    "signal-value",
    "drain-version",
    "prune-older_than",
    "pause-queue-reason",
}


def every_call() -> list[Any]:
    """All of them; a sample where the long tests are left out."""
    named = [(f"{command.name}-{argument.key}", command, argument) for command, argument in CALLS]
    return [
        pytest.param(command, argument, id=name, marks=() if name in OFTEN else pytest.mark.full)
        for name, command, argument in named
    ]


@pytest.mark.parametrize(("command", "argument"), every_call())
def test_manage_py(command: Command, argument: Argument) -> None:
    """`manage.py sagas`: a `CommandError`, or it did what it says; nothing is written but a request that was meant."""
    begin(Trip, "there")
    begin(Waits, "waits")
    before = everything()
    for value in TYPED:
        out = io.StringIO()
        try:
            call_command("sagas", command.name, *words(command, argument, value), stdout=out, stderr=out)
        except CommandError as problem:
            said = str(problem)
        except SystemExit as problem:  # that is how argparse says no, and JSON
            said = str(problem.code)
        else:
            before, said = everything(), "done"
        assert said and said != "0" and "\x1b" not in said and "\x00" not in said, (command.name, value, said)
        assert everything() == before, (command.name, argument.name, value)


MODULE = """
from sqlalchemy import create_engine
from sagas_sqlalchemy import Sagas
runtime = Sagas(create_engine({url!r}), settings={{"wake": False}}, name={name!r})
"""


@pytest.fixture
def app(shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A runtime object on the same database."""
    name = f"typed_{uuid.uuid4().hex[:12]}"
    url = shop.replace("postgresql:", "postgresql+psycopg:").replace("postgres:", "postgresql+psycopg:")
    (tmp_path / f"{name}.py").write_text(MODULE.format(url=url, name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield f"{name}:runtime"
    sys.modules.pop(name).runtime.close()


@pytest.mark.parametrize("part", [slice(2, 3), pytest.param(slice(None), marks=pytest.mark.full)], ids=["nul", "all"])
def test_the_other_command_line(app: str, part: slice) -> None:
    """`sagas --app`: the same; no traceback, and an exit code that says that it failed."""
    begin(Trip, "there")
    begin(Waits, "waits")
    before = everything()
    for command, argument in CALLS:
        for value in TYPED[part]:
            answer = CliRunner().invoke(sagas, ["--app", app, command.name, *words(command, argument, value)])
            where = (command.name, argument.name, value, answer.output[-200:])
            assert answer.exception is None or isinstance(answer.exception, SystemExit), (*where, answer.exception)
            assert "Traceback" not in answer.output, where
            if answer.exit_code:
                assert answer.output.strip(), where
                assert everything() == before, where
            before = everything()


@pytest.mark.parametrize(
    "place", ["", ":", "a", "no.such:thing", "os:nothing", "os:path", "sys:version", ":x", "x:", "1:2"]
)
def test_an_app_that_is_none(place: Any) -> None:
    """What `--app` cannot mean, in words."""
    answer = CliRunner().invoke(sagas, ["--app", place, "list"])
    assert answer.exit_code and "Traceback" not in answer.output
    assert isinstance(answer.exception, SystemExit) and len(answer.output) > 20
