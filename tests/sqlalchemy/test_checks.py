"""What the system checks say of a Django project, said of a SQLAlchemy application too, before anything runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import psycopg
import pytest
from celery import Celery
from sqlalchemy import create_engine

from sagas.errors import StoreNotReady
from sagas.testing.processes import ProcessGroup
from sagas_sqlalchemy import Sagas, checks
from tests.sqlalchemy.shop import Odd
from tests.sqlalchemy.test_cli import Call, app, call
from tests.sqlalchemy.test_schedules import hourly_in

__all__ = ["app", "call"]

ROOT = Path(__file__).parents[2]
CELERY = """
from celery import Celery
import {app}
app = Celery("{app}", broker="memory://")
app.conf.update({conf!r})
"""


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """The file of released definitions, by which a class of the shop was changed since."""
    file = tmp_path / "saga_definitions.json"
    file.write_text(json.dumps({Odd.saga_name: {str(Odd.saga_version): "another"}}))
    return file


@pytest.fixture(autouse=True)
def _celery_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded here makes itself the current app, which is not to be that of the tests after these."""
    from celery import _state

    monkeypatch.setattr(_state._tls, "current_app", _state._tls.current_app)
    monkeypatch.setattr(_state, "default_app", _state.default_app)


def celery_in(folder: Path, app: str, **conf: Any) -> str:
    """What `--celery` is given: a module beside that of the runtime."""
    (folder / f"celery_of_{app}.py").write_text(CELERY.format(app=app, conf=conf))
    return f"celery_of_{app}:app"


def test_a_changed_definition_stops_workers_and_relays(call: Call, app: str, changed: Path, tmp_path: Path) -> None:
    """With the name of the class and what to do; looking is allowed, and doctor says it too."""
    for words in (("worker", "--until-idle"), ("relay", "--celery", celery_in(tmp_path, app))):
        answer = call(*words)
        assert answer.exit_code == 1 and "sagas.E004: the steps of sa.odd version 1" in answer.output, answer.output
        assert f"`sagas --app {app}:runtime definitions` lists all" in answer.output
    assert call("list").exit_code == 0
    found = {each["id"]: each["level"] for each in json.loads(call("doctor", "--json").output)["data"]}
    assert found["sagas.E004"] == "error" and found["sagas.W005"] == "warning"


def test_a_file_that_cannot_be_read(call: Call, tmp_path: Path) -> None:
    """Nobody knows then what was changed."""
    (tmp_path / "saga_definitions.json").write_text("{")
    answer = call("worker", "--until-idle")
    assert answer.exit_code == 1 and "sagas.E005" in answer.output, answer.output


def test_what_hurts_one_day_is_logged(
    engine: Any, make_runtime: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And workers start all the same."""
    file = tmp_path / "released.json"
    file.write_text("{}")
    runtime = make_runtime(engine, definitions_file=file, settings={"publish_window": 1.0, "message_work": 0.5})
    with caplog.at_level(logging.WARNING, "sagas.worker"), hourly_in("elsewhere"):
        runtime.check("sagas --app shop.db:sagas")
    assert "sagas.E006: schedule 'sa.nightly' starts its sagas in store 'elsewhere', which this process" in caplog.text
    assert "sagas.W001" in caplog.text and "sagas.W005: sa.odd version 1 is not in" in caplog.text
    assert "`sagas --app shop.db:sagas definitions --release`" in caplog.text


def test_a_celery_app_that_defeats_the_outbox(call: Call, app: str, tmp_path: Path) -> None:
    """The relay would run the steps itself: it does not start."""
    answer = call("relay", "--celery", celery_in(tmp_path, app, task_always_eager=True))
    assert answer.exit_code == 1 and "sagas.E010: task_always_eager" in answer.output, answer.output


def test_a_celery_app_that_may_hang(runtime: Sagas, caplog: pytest.LogCaptureFixture) -> None:
    """The relay says so, and publishes."""
    runtime.celery = Celery("shop", broker="redis://127.0.0.1:1", set_as_current=False)
    with caplog.at_level(logging.WARNING, "sagas.worker"):
        runtime.publisher()
    assert "sagas.W010: broker_transport_options lacks socket_timeout" in caplog.text


def test_the_doctor_sees_the_app_of_the_process(
    runtime: Sagas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was not given to the runtime, as the module of the app is imported."""
    from celery import _state

    monkeypatch.setattr(_state._tls, "current_app", None)
    monkeypatch.setattr(_state, "default_app", None)
    assert "sagas.E010" not in {each.id for each in runtime.problems()}
    Celery("shop", broker="memory://", set_as_current=True).conf.task_always_eager = True
    assert "sagas.E010" in {each.id for each in runtime.problems()}


def test_a_database_that_is_down_is_waited_for(
    make_runtime: Any, runtime: Sagas, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A Celery worker need not start after its database; one without our tables it refuses."""
    checks.before_work(runtime)
    nobody = make_runtime(create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing"), name="nobody")
    with caplog.at_level(logging.WARNING, "sagas.worker"):
        checks.before_work(nobody)
    assert "cannot be reached" in caplog.text
    with psycopg.connect(url) as connection:
        connection.execute("drop table sagas_schema")
    with pytest.raises(StoreNotReady, match="lacks our tables: run a migration"):
        checks.before_work(runtime)


@pytest.mark.parametrize("what", ["changed", pytest.param("tables", marks=pytest.mark.full)])
def test_a_celery_worker_does_not_start(
    what: str, app: str, url: str, changed: Path, tmp_path: Path, process_group: ProcessGroup
) -> None:
    """It ends at once and says why, rather than with a traceback for each message."""
    if what == "tables":
        changed.unlink()
        with psycopg.connect(url) as connection:
            connection.execute("drop table sagas_schema")
    name = celery_in(tmp_path, app)
    worker = process_group.python(
        "-m", "celery", "-A", name, "worker", "--pool", "solo", "--without-mingle", name="worker", cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": ""},
    )  # fmt: skip
    assert worker.wait(60) != 0
    said = worker.output()
    assert "This worker does not start" in said and "Traceback" not in said, said
    assert {"changed": "sagas.E004", "tables": "lacks our tables"}[what] in said, said
