"""Versions of definitions: what is here and under way, what was released, draining, and replaying logs."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from sagas.operate_commands import COMMANDS
from sagas.plan import Plan
from sagas.registry import registry
from sagas_django.checks import check_definitions
from sagas_django.models import LogEntry, SagaRow
from tests.integration.conftest import database_alias
from tests.shop.sagas import Trip
from tests.shop.waiting import Reviewed, ReviewedBefore
from tests.shop.world import World
from tests.support.stories import Aside, begin, drain

shop = pytest.mark.usefixtures("shop")
ROOT = Path(__file__).parents[2]
NO_DATABASE = {"ENGINE": "django.db.backends.postgresql", "NAME": "none", "HOST": "127.0.0.1", "PORT": "1"}


def said(*arguments: str) -> str:
    """What a command writes."""
    out = io.StringIO()
    call_command("sagas", *arguments, stdout=out, skip_checks=True)
    return out.getvalue()


def refused(*arguments: str) -> str:
    """How a command fails, after what it has written."""
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("sagas", *arguments, stdout=out, skip_checks=True)
    return f"{out.getvalue()}{caught.value}"


@pytest.fixture
def file(tmp_path: Path, settings: Any) -> Path:
    """Where the project keeps its released definitions."""
    path = tmp_path / "saga_definitions.json"
    settings.SAGAS = {"WAKE": False, "DEFINITIONS_FILE": path}
    return path


def change(path: Path, name: str, version: int) -> None:
    """Let the file say that something else was released."""
    released = json.loads(path.read_text())
    released[name][str(version)] = "0" * 16
    path.write_text(json.dumps(released))


# --- released definitions ---


def test_release_and_check(file: Path) -> None:
    """Without a file the check fails and says how to make it; once released it agrees; neither needs a database."""
    with database_alias("nowhere", NO_DATABASE):
        answer = refused("definitions", "--check", "--database", "nowhere")
        assert f"there is no {file} yet, `manage.py sagas definitions --release` writes it" in answer
        assert "test.trip version 1 is not in the file of releases" in answer
        assert "test.trip version 1 is released" in said("definitions", "--release", "--database", "nowhere")
        assert f"definitions are as {file} says" in said("definitions", "--check", "--database", "nowhere")
    released = json.loads(file.read_text())
    assert released["test.reviewed"] == {"1": Reviewed.fingerprint(), "2": ReviewedBefore.fingerprint()}
    assert said("definitions", "--release") == f"{file} is up to date; commit it together with the code\n"


def test_a_changed_definition_fails_the_check(file: Path) -> None:
    """The message names the class and the remedy; releasing it over the old one is refused; the file stays."""
    said("definitions", "--release")
    change(file, "test.trip", 1)
    before = file.read_text()
    for option in ("--check", "--release"):
        answer = refused("definitions", option)
        assert "the steps of test.trip version 1 (tests.shop.sagas.Trip) were changed after its release" in answer
        assert "version=2 in a class of its own" in answer
    assert file.read_text() == before


def test_a_definition_that_is_missing_in_the_file_fails_the_check(file: Path) -> None:
    """So that nobody forgets to release; a version that is gone from the code is no problem."""
    said("definitions", "--release")
    released = json.loads(file.read_text())
    del released["test.trip"]
    released["test.gone"] = {"7": "0" * 16}
    file.write_text(json.dumps(released))
    answer = refused("definitions", "--check")
    assert answer.startswith("test.trip version 1 is not in the file") and answer.endswith("1 of the definitions "
    "are not as they were released")  # fmt: skip


def test_the_file_can_be_named(tmp_path: Path, settings: Any) -> None:
    """By --file; else by SAGAS; else it is in BASE_DIR; without all of them the command says so."""
    assert "pass --file, or set SAGAS['DEFINITIONS_FILE']" in refused("definitions", "--check")
    settings.BASE_DIR = tmp_path
    said("definitions", "--release")
    assert (tmp_path / "saga_definitions.json").exists()
    other = tmp_path / "other.json"
    said("definitions", "--release", "--file", str(other))
    assert other.read_text() == (tmp_path / "saga_definitions.json").read_text()


def test_system_check(file: Path) -> None:
    """Nothing without a file; an error for a changed definition or a broken file, a warning for a new definition."""
    assert check_definitions(None) == []
    said("definitions", "--release")
    assert check_definitions(None) == []
    change(file, "test.trip", 1)
    (problem,) = check_definitions(None)
    assert problem.id == "sagas.E004" and "test.trip version 1" in problem.msg
    released = json.loads(file.read_text())
    del released["test.trip"]
    file.write_text(json.dumps(released))
    (problem,) = check_definitions(None)
    assert problem.id == "sagas.W005" and "definitions --release" in str(problem.hint)
    file.write_text("{")
    (problem,) = check_definitions(None)
    assert problem.id == "sagas.E005" and str(file) in problem.msg


def test_the_example_project_keeps_a_file() -> None:
    """Its definitions are as they were released; run `definitions --release` there after adding one."""
    done = subprocess.run(
        [sys.executable, "-m", "example_project.manage", "sagas", "definitions", "--check"],
        cwd=ROOT, text=True, capture_output=True, timeout=60, env={"PATH": "/usr/bin", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0 and "saga_definitions.json says" in done.stdout, done.stdout + done.stderr


@shop
def test_operators_can_look_while_the_check_fails(file: Path) -> None:
    """The check stops workers and relays, and no command that looks or asks."""
    said("definitions", "--release")
    change(file, "test.trip", 1)
    out = io.StringIO()
    call_command("sagas", "list", stdout=out, skip_checks=False)
    assert "no saga in 'default'" in out.getvalue()
    with pytest.raises(CommandError, match=r"sagas\.E004"):
        call_command("sagas", "worker", "--until-idle", skip_checks=False)


def test_setting_that_is_no_path(settings: Any) -> None:
    """Said by the check, not by a traceback."""
    settings.SAGAS = {"DEFINITIONS_FILE": 7}
    (problem,) = check_definitions(None)
    assert (problem.id, "DEFINITIONS_FILE" in problem.msg) == ("sagas.E005", True)


# --- what is here, and what is under way ---


def cells(name: str, version: int, text: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.split()[:2] == [name, str(version)]]
    return line.split(maxsplit=3)


@shop
def test_definitions_lists_what_is_here_and_what_is_under_way(world: World, file: Path) -> None:
    """Every version of this process and of every open saga, with what is the matter with it."""
    begin(Trip, "a")
    begin(Trip, "b")
    begin(Reviewed, "c")
    begin(Reviewed, "d")
    SagaRow.objects.filter(key="c").update(version=9)
    SagaRow.objects.filter(key="b").update(definition="0" * 16)
    said("definitions", "--release")
    change(file, "test.trip", 1)
    text = said("definitions")
    head = text.splitlines()[0].split()
    assert head == ["name", "version", "fingerprint", "open", "oldest", "note"]
    trip = cells("test.trip", 1, text)
    assert trip[2] == Trip.fingerprint() and trip[3].startswith("2 ")
    assert "changed since its release; its steps were changed: 1 sagas wait" in trip[3]
    gone = [line for line in text.splitlines() if line.startswith("test.reviewed") and "  9  " in line]
    assert len(gone) == 1 and "not in this process: its sagas wait" in gone[0]
    assert cells("test.reviewed", 2, text)[3] == "0"


@shop
def test_definitions_that_are_not_released(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the project keeps a file."""
    assert "not released yet" not in said("definitions")
    file.write_text("{}")
    assert "not released yet" in said("definitions")


# --- draining ---


@shop
def test_drain_says_what_is_left(world: World) -> None:
    """Bounded, and with why each waits; other versions do not count."""
    begin(Reviewed, "a")
    drain()
    answer = refused("drain", "test.reviewed", "1")
    assert "a  (review waits for a signal until" in answer
    assert answer.endswith("1 sagas of test.reviewed version 1 are open in 'default'; keep its class")
    begin(Trip)
    assert "test.reviewed version 2 is drained" in said("drain", "test.reviewed", "2")


@shop
def test_drain_waits_until_the_last_has_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --wait it looks again, and ends as soon as none is open."""
    begin(Trip)
    looked: list[float] = []

    def ends_meanwhile(seconds: float) -> None:
        looked.append(seconds)
        drain()

    monkeypatch.setattr("sagas.operate_versions.time.sleep", ends_meanwhile)
    text = said("drain", "test.trip", "1", "--wait", "30")
    assert text.splitlines() == [
        "1 sagas of test.trip version 1 are open",
        "test.trip version 1 is drained: none of its sagas is open in 'default'",
    ]
    assert len(looked) == 1 and 0 < looked[0] <= 1


@shop
def test_drain_is_bounded(world: World) -> None:
    """It gives up when its time is over."""
    begin(Trip)
    waiter = Aside(lambda: refused("drain", "test.trip", "1", "--wait", "0.2"))
    waiter.join(20)


@shop
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("test.trp", "1"), "neither this process nor 'default' has ever had it; `manage.py sagas definitions` lists"),
        (("test.trip", "7"), "there is version 1"),
        (("test.trip", "1", "--wait", "-1"), "--wait -1.0: seconds, from 0 on"),
    ],
)
def test_drain_of_nothing_known(arguments: tuple[str, ...], answer: str) -> None:
    """A slip of the pen is not a drained version."""
    assert answer in refused("drain", *arguments)


# --- replay ---


@shop
def test_replay_of_a_log_that_fits(world: World) -> None:
    """Every entry, what it leads to, and that it fits; nothing is run or written."""
    run = begin(Trip)
    drain()
    calls, lines = list(world.calls), LogEntry.objects.count()
    text = said("replay", str(run.id))
    assert "leads to completed; next: nothing" in text
    assert "fits: today's test.trip version 1 would have written this log" in text
    assert (world.calls, LogEntry.objects.count()) == (calls, lines)


@shop
def test_replay_of_a_log_that_does_not_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences are marked at their entries, and the command fails."""
    begin(Trip)
    drain()
    steps = tuple(Trip.plan.by_name[name] for name in ("charge", "book", "confirm"))
    monkeypatch.setattr(Trip, "plan", Plan(name="test.trip", version=1, steps=steps))
    answer = refused("replay", "test.trip:a")
    assert "    ! it was at book (do), today's code would be at charge (do)" in answer
    assert "differs in" in answer and answer.endswith("places, marked !")


@shop
@pytest.mark.parametrize("ended", [False, True])
def test_replay_after_a_change_that_the_log_does_not_show(
    ended: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`list` says that the saga waits for its former steps, so `replay` does not say that all is well."""
    run = begin(Trip)
    if ended:
        drain()
    before = Trip.fingerprint()
    monkeypatch.setattr(Trip, "_fingerprint", "0123456789abcdef")
    assert ("its steps were changed without a new version" in said("list")) is not ended
    answer = refused("replay", str(run.id))
    assert "fits:" not in answer and "without a new version" in answer
    assert before in answer and "0123456789abcdef" in answer
    assert ("no worker goes on with it" in answer) is not ended


@shop
def test_replay_without_the_definition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says which versions this process has."""
    begin(Trip)
    monkeypatch.setattr(registry, "_sagas", {("test.trip", 2): Trip})
    assert "not registered in this process, only version 2" in refused("replay", "test.trip:a")


# --- the pages ---

DOCS = ROOT / "docs"


def test_the_page_about_versions_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code makes two versions of one name, with a step in common and fingerprints of their own."""
    monkeypatch.setattr(registry, "_sagas", {})
    (code,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "versions.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, "versions.md", "exec"), names)
    assert registry.versions("docs.versions") == [1, 2]
    first, second = names["PlaceOrderV1"], names["PlaceOrder"]
    assert first.fingerprint() != second.fingerprint() and first.plan.steps[0] == second.plan.steps[0]


def test_every_command_is_on_the_page() -> None:
    """And every command that a page speaks of exists."""
    speaking = ("operating", "versions", "django", "cli", "queues", "retention", "metrics")
    pages = "".join((DOCS / f"{name}.md").read_text() for name in speaking)
    named = set(re.findall(r"(?:manage\.py |`)sagas ([a-z][a-z-]+)", pages))
    assert (
        {each.name for each in COMMANDS}
        <= named
        <= {each.name for each in COMMANDS} | {"worker", "relay", "metrics", "init"}
    )
