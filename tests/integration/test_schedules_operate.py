"""Schedules on the command line: what is shown and done, and how wrong questions are answered."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from sagas import DefinitionError, Overlap, Schedule
from sagas.desk import connected
from sagas.errors import StoreNotReady
from sagas.schedules.declaration import schedules
from sagas.testing.moving import Clock
from sagas_django.checks import check_schedules
from sagas_django.models import SagaRow, ScheduleRow
from sagas_django.store import DjangoStore
from tests.shop.sagas import Ordered, Trip
from tests.shop.world import World
from tests.support.schedules import NAME, Raises, at, declared, no_more_connections

pytestmark = pytest.mark.usefixtures("shop")


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


@pytest.fixture(autouse=True)
def schedule(shop: str) -> Iterator[Schedule[Any]]:
    """One that ticks once a year, so that nothing happens by itself."""
    with declared(cron="0 6 1 1 *", timezone="Europe/Berlin", overlap=Overlap.SKIP) as made:
        yield made


def test_from_the_declaration_to_the_table_and_back() -> None:
    """What is declared is put there once; what is gone from the code is named, and can be forgotten."""
    assert said("schedules")[0] == "no schedule is in the table of 'default'"
    assert "declared here and not in the table yet: test.nightly" in said("schedules")[1]
    assert said("declare-schedules") == [
        "schedule test.nightly is new", "1 schedules are declared here, 1 of them changed",
    ]  # fmt: skip
    assert said("declare-schedules") == ["1 schedules are declared here, 0 of them changed"]
    head, line = said("schedules")
    assert head.split() == ["name", "saga", "when", "next", "tick", "last", "run", "remarks"]
    assert re.search(r"test.nightly +test.trip:1 +0 6 1 1 \* Europe/Berlin +\d{4}-01-01 06:00:00\+01:00 +never", line)
    assert "is declared in this process" in refused("forget-schedule", NAME)
    schedules.discard(NAME)
    assert "not declared in this process" in said("schedules")[1]
    assert said("declare-schedules")[0].endswith("manage.py sagas forget-schedule test.nightly")
    assert said("forget-schedule", NAME) == [
        "schedule test.nightly is forgotten; the sagas that it started stay",
    ]  # fmt: skip
    assert "no schedule 'test.nightly' is in the table; there are: none" in refused("forget-schedule", NAME)


def test_pause_resume_run(world: World) -> None:
    """Each says what it did and what follows; programs get it as JSON."""
    said("declare-schedules")
    (line,) = said("pause-schedule", NAME, "--reason", "stock-taking", "--actor", "ann")
    assert "starts nothing" in line and "manage.py sagas resume-schedule test.nightly" in line
    assert "paused by ann: stock-taking" in said("schedules")[1]
    (answer,) = said("schedules", "--json")
    (found,) = json.loads(answer)["data"]
    assert (found["name"], found["paused"], found["next_ticks"]) == (NAME, True, [])
    assert "goes on; its next tick is " in said("resume-schedule", NAME)[0]
    assert said("resume-schedule", NAME) == ["schedule test.nightly was not paused"]
    (line,) = said("run-schedule", NAME, "--reason", "needed now")
    saga = SagaRow.objects.get()
    assert line == f"schedule test.nightly started saga {saga.pk}, key {saga.key!r}; its ticks stay as they are"
    assert saga.headers["actor"].startswith("cli:")
    assert "its last run is open" in refused("run-schedule", NAME, "--reason", "again")
    assert "did you mean 'test.nightly'" in refused("run-schedule", "test.nightl", "--reason", "x")
    assert "there are: test.nightly" in refused("pause-schedule", "x", "--reason", "x")
    assert "running" in said("schedules")[1]


def test_a_worker_starts_what_is_due(time_machine: Clock, world: World) -> None:
    """Also one that ends as soon as nothing is due: it puts the schedules into the table, and runs what is due."""
    time_machine.move_to(at(5.5))
    with declared() as hourly:
        said("worker", "--until-idle")
        assert ScheduleRow.objects.get(name=hourly.name).next_at == at(6)
        time_machine.move_to(at(6.25))
        said("worker", "--until-idle")
    assert SagaRow.objects.get().key == f"{NAME}@2027-03-01T06:00:00+00:00"
    assert SagaRow.objects.get().status == "completed"


def test_a_worker_does_not_start_with_an_input_that_cannot_be_stored(schedule: Schedule[Any]) -> None:
    """It was not known when the schedule was declared, and is refused before anything is due."""
    schedules.discard(NAME)
    broken = Schedule.__new__(Schedule)
    broken.__dict__.update(schedule.__dict__ | {"_make": lambda tick: Ordered("x")})
    schedules.add(broken)
    with pytest.raises(CommandError, match="input for the tick") as caught:
        said("worker", "--until-idle")
    assert isinstance(caught.value.__cause__, DefinitionError)


def test_a_schedule_in_a_database_that_is_not_there(schedule: Schedule[Any], shop: str) -> None:
    """Nobody would look after it: the system check says so, and a relay of another database leaves it alone."""
    assert check_schedules(None) == []
    with declared(name="test.elsewhere", store="archive"):
        (problem,) = check_schedules(None)
        assert (problem.id, problem.obj) == ("sagas.E006", Trip)
        assert "schedule 'test.elsewhere' starts its sagas in store 'archive'" in problem.msg
        assert "'default'" in str(problem.hint)
        said("declare-schedules")
    assert [row.name for row in ScheduleRow.objects.all()] == [NAME]


def failed(*arguments: str) -> str:
    """The error that a command writes as JSON, with which it ends."""
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("sagas", *arguments, "--json", stdout=out, skip_checks=True)
    answer = json.loads(out.getvalue())
    assert answer["ok"] is False
    return str(answer["error"])


def test_a_run_without_an_input() -> None:
    """The function that makes it raises: said in words, and to programs as JSON."""
    fails = Raises()
    schedules.discard(NAME)
    with declared(cron="0 6 1 1 *", overlap=Overlap.SKIP, input=fails):
        said("declare-schedules")
        fails.error = LookupError("no shop is open")
        for way in (refused, failed):
            words = way("run-schedule", NAME, "--reason", "needed")
            assert words == f"schedule {NAME}: input= raised LookupError: no shop is open"
    assert not SagaRow.objects.exists()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("set statement_timeout = 1; select pg_sleep(60)", "did not do it: canceling statement due to"),
        ("select pg_terminate_backend(pg_backend_pid())", "cannot be reached: "),
    ],
)
def test_what_the_database_says_is_told(statement: str, says: str) -> None:
    """That it gave up on something does not mean that it is away."""
    with pytest.raises(StoreNotReady) as caught, connected(DjangoStore("default")) as wire:
        wire.execute(statement)  # type: ignore[call-overload]
    assert f"the database of 'default' {says}" in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [("run-schedule", NAME), ("pause-schedule", NAME), ("pause-queue", "payments"), ("run-schedule", "x")],
)
def test_no_second_connection(command: tuple[str, ...]) -> None:
    """Postgres has none left for it: said in words, and to programs as JSON."""
    said("declare-schedules")
    with no_more_connections():
        for way in (refused, failed):
            assert way(*command, "--reason", "x").startswith("the database of 'default' cannot be reached: ")
