"""Schedules without Django: behind an engine, with tables in a schema of their own too, and on a bare connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, MetaData

from sagas import CatchUp, DefinitionError, Schedule
from sagas import clock as engine_clock
from sagas.schedules import firing, table
from sagas.schedules.declaration import schedules
from sagas.schedules.scheduler import Scheduler, scheduling
from sagas.settings import Settings
from sagas_sqlalchemy import Sagas, sagas_tables
from tests.sqlalchemy.conftest import EngineMaker, drain, rows
from tests.sqlalchemy.shop import Odd, Told
from tests.sqlalchemy.test_cli_waits import Call, call  # noqa: F401 - a fixture
from tests.sqlalchemy.waiting import wait_for

NAME = "sa.nightly"
SIX = datetime(2027, 3, 1, 6, tzinfo=UTC)


@contextmanager
def hourly_in(store: str) -> Iterator[Schedule[Any]]:
    """A schedule of the shop, for as long as the block lasts."""
    try:
        yield Schedule(
            Odd, cron="0 * * * *", input=lambda tick: Told("note", tick.isoformat()), catch_up=CatchUp.ALL, name=NAME,
            store=store,
        )  # fmt: skip
    finally:
        schedules.discard(NAME)


@pytest.fixture
def hourly() -> Iterator[Schedule[Any]]:
    """A schedule in the store of these tests; this process has Django's as well."""
    with hourly_in("shop_sa") as schedule:
        yield schedule


@pytest.fixture
def move() -> Iterator[Callable[[datetime], None]]:
    """Moves the clock that statements of this process go by."""
    yield lambda moment: engine_clock.go_by(lambda: moment)
    engine_clock.go_by(None)


def test_ticks_start_sagas(runtime: Sagas, hourly: Schedule[Any], move: Any, url: str) -> None:
    """Two ticks, two sagas, which run like any other."""
    move(SIX - timedelta(minutes=30))
    Scheduler(runtime.store).once()
    move(SIX + timedelta(hours=1, minutes=1))
    for _ in range(2):
        Scheduler(runtime.store).once()
    drain(runtime)
    keys = [f"{NAME}@2027-03-01T0{hour}:00:00+00:00" for hour in (6, 7)]
    assert rows(url, "select key from sagas_saga where status = 'completed' order by key") == keys
    assert rows(url, "select text from note order by text") == [key.partition("@")[2] for key in keys]


def test_in_a_schema_of_its_own(
    make_engine: EngineMaker, make_runtime: Callable[..., Sagas], hourly: Schedule[Any], move: Any, url: str
) -> None:
    """The tables need not be where `search_path` leads, nor the driver be psycopg 3."""
    engine: Engine = make_engine("psycopg2")
    metadata = MetaData()
    tables = sagas_tables(metadata, schema="our sagas")
    metadata.create_all(engine)
    runtime = make_runtime(engine, metadata=metadata)
    move(SIX - timedelta(minutes=30))
    Scheduler(runtime.store).once()
    move(SIX)
    Scheduler(runtime.store).once()
    assert tables.schedule.schema == "our sagas"
    assert rows(url, 'select key from "our sagas".sagas_saga') == [f"{NAME}@2027-03-01T06:00:00+00:00"]
    assert rows(url, "select count(*) from public.sagas_schedule") == [0]


def test_the_thread_starts_what_is_due_by_itself(runtime: Sagas, url: str) -> None:
    """It wakes up for the tick, by the database clock, and ends with the block."""
    each = Schedule(Odd, every=timedelta(seconds=1), input=Told("nothing"), name=NAME, store="shop_sa")
    try:
        with scheduling(runtime.store) as scheduler:
            late = wait_for(url, "select min(created_at - (split_part(key, '@', 2))::timestamptz) from sagas_saga"
                                 " having count(*) >= 2")  # fmt: skip
            assert scheduler._thread.is_alive()
        assert late >= timedelta(0)
        assert not scheduler._thread.is_alive()
    finally:
        schedules.discard(each.name)


def test_without_schedules_there_is_no_thread(runtime: Sagas) -> None:
    """Who has none pays nothing."""
    before = schedules.all()
    for each in before:
        schedules.discard(each.name)
    try:
        with scheduling(runtime.store) as scheduler:
            assert not scheduler._thread.is_alive()
    finally:
        for each in before:
            schedules.add(each)


def test_on_a_bare_connection(hourly: Schedule[Any], move: Any, url: str) -> None:
    """Whoever has no framework at all calls the same functions on a psycopg connection."""
    with psycopg.connect(url, autocommit=True) as connection:
        move(SIX - timedelta(minutes=30))
        assert table.declare(connection, hourly) == "new"
        assert firing.fire_due(connection, Settings(), [hourly])
        assert firing.seconds_left(connection, [hourly]) == 1800
        move(SIX)
        assert firing.fire_due(connection, Settings(), [hourly])
        (row,) = table.rows(connection)
        assert (row.last_key, row.open) == (f"{NAME}@2027-03-01T06:00:00+00:00", True)


def test_on_the_command_line(call: Call) -> None:  # noqa: F811 - the fixture
    """`sagas --app` has the same commands."""
    (store,) = re.findall(r"no saga in '(\w+)'", call("list").output)
    with hourly_in(store):
        assert f"schedule {NAME} is new" in call("declare-schedules").output
        answer = call("run-schedule", NAME, "--reason", "needed", "--actor", "ann")
        assert answer.exit_code == 0 and f"schedule {NAME} started saga" in answer.output, answer.output
        assert call("pause-schedule", NAME, "--reason", "stop", "--actor", "ann").exit_code == 0
        assert "paused by ann: stop" in call("schedules").output
        assert "goes on" in call("resume-schedule", NAME).output


def test_which_store_a_schedule_belongs_to(monkeypatch: pytest.MonkeyPatch, hourly: Schedule[Any]) -> None:
    """The one it names; else "default", or the only one there is; where that says nothing, it is refused."""
    homeless = Schedule(Odd, cron="0 * * * *", input=Told("nothing"), name="sa.homeless")
    try:
        for known, expected in (
            (["default", "shop_sa"], {"default": [homeless], "shop_sa": [hourly]}),
            (["shop_sa"], {"shop_sa": [homeless, hourly]}),
            ([], {"other": [homeless], "shop_sa": [homeless, hourly]}),
        ):
            monkeypatch.setattr("sagas.ports.store_names", lambda known=known: known)
            for store, some in expected.items():
                assert [each for each in schedules.of(store) if each.name.startswith("sa.")] == some
        monkeypatch.setattr("sagas.ports.store_names", lambda: ["other", "shop_sa"])
        with pytest.raises(
            DefinitionError, match=r"schedules .*sa\.homeless.*has the stores other, shop_sa; say store="
        ):
            schedules.of("shop_sa")
    finally:
        schedules.discard("sa.homeless")
