"""`sagas --app module:runtime ...`: what each command says, and how a wrong call is answered."""

from __future__ import annotations

import json
import re
import signal
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from sagas import serving
from sagas.cli.commands import sagas
from sagas.testing.processes import ProcessGroup
from tests.docs.reading import ROOT, blocks
from tests.sqlalchemy.conftest import begin, rows
from tests.sqlalchemy.shop import Odd, Placed, PlaceOrder, Told, bank
from tests.sqlalchemy.waiting import wait_for

MODULE = """
from sqlalchemy import create_engine
from sagas_sqlalchemy import Sagas
engine = create_engine({url!r})
runtime = Sagas(engine, modules=["tests.sqlalchemy.shop"], settings={{"wake": False}}, name={name!r})
"""
Call = Callable[..., Result]


@pytest.fixture
def app(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a module with a runtime called `runtime` in it, in the working directory."""
    name = f"app_{uuid.uuid4().hex[:12]}"
    (tmp_path / f"{name}.py").write_text(
        MODULE.format(url=url.replace("postgresql:", "postgresql+psycopg2:"), name=name)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delenv("SAGAS_APP", raising=False)
    yield name
    module = sys.modules.pop(name, None)
    if module is not None:
        module.runtime.close()
        module.engine.dispose()


@pytest.fixture
def call(app: str) -> Call:
    """Calls a command in this process."""

    def call(*words: str, app: str = f"{app}:runtime") -> Result:
        return CliRunner().invoke(sagas, ["--app", app, *words])

    return call


def test_looking_at_sagas(call: Call, engine: Engine, app: str) -> None:
    """List and show: the same lines as in Django, read without it."""
    assert call("list").output == f"no saga in {app!r}\n"
    (run,) = begin(engine, Odd, Told("note", "hello"))
    listed = call("list")
    assert listed.exit_code == 0, (listed.output, listed.exception)
    head, line = listed.output.splitlines()
    assert head.split() == ["status", "id", "age", "step", "name", "key"]
    assert line.split()[:2] == ["running", str(run.id)] and " go " in line
    assert call("list", "--status", "parked").output == f"no saga in {app!r} fits\n"
    shown = call("show", f"sa.odd:{run.key}").output.splitlines()
    assert shown[0].startswith("saga      sa.odd version 1") and shown[1] == f"id        {run.id}"
    assert any(re.match(r"outbox    go \(do\) +held by nobody, due ", each) for each in shown)
    assert shown[-1].split()[-1] == "started"


def test_asking_for_something(call: Call, engine: Engine, url: str) -> None:
    """Requests are rows in the outbox, with who asked; what would change nothing is refused."""
    (run,) = begin(engine, Odd, Told("note", "hello"))
    said = call("cancel", str(run.id), "--reason", "changed my mind")
    assert said.exit_code == 0 and "is in the outbox" in said.output, said.output
    (payload,) = rows(url, "select payload from sagas_outbox where kind = 'cancel'")
    assert payload["reason"] == "changed my mind" and payload["actor"].startswith("cli:")
    refused = call("abort", str(run.id), "--reason", "x")
    assert refused.exit_code == 1 and "where this changes nothing; possible now: " in refused.output


def test_verify_and_rebuild(call: Call, engine: Engine, url: str) -> None:
    """What was lost is found and made again from the log."""
    begin(engine, Odd, Told("note", "hello"))
    assert call("verify").output == "1 sagas verified, 0 problems\n"
    rows(url, "delete from sagas_outbox returning 1")
    found = call("verify")
    assert found.exit_code == 1 and "the outbox holds []" in found.output
    assert call("rebuild").output.endswith("1 sagas rebuilt, 0 problems\n")
    assert call("verify").exit_code == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nonsense", "write module:name, such as shop.db:sagas"),
        (":runtime", "write module:name"),
        ("no.such.module:runtime", "there is no module 'no' here"),
        ("{app}:runtim", "has no 'runtim'; there is {app}:runtime"),
        ("{app}:engine", "that is a Engine, not a runtime object such as sagas_sqlalchemy.Sagas(engine); "
                         "there is {app}:runtime"),
        ("{app}:Sagas", "that is the class itself, not a runtime object"),
        ("inside:runtime", "there is src/inside: call this with PYTHONPATH=src"),
        ("raising:runtime", "raising cannot be imported: KeyError: 'NO_SUCH_VARIABLE'\n"),
        ("raising:runtime", "    os.environ['NO_SUCH_VARIABLE']"),
        ("late:runtime", "a module that defines sagas cannot be imported: KeyError: 'NO_SUCH_VARIABLE'\n"),
        ("broken:runtime", "broken imports 'nothing_of_ours', which is not installed here"),
    ],
)  # fmt: skip
def test_wrong_apps(given: str, message: str, app: str, call: Call, tmp_path: Path) -> None:
    """Each says what is wrong and what is there; none is a traceback."""
    (tmp_path / "broken.py").write_text("import nothing_of_ours\n")
    (tmp_path / "raising.py").write_text("import os\nos.environ['NO_SUCH_VARIABLE']\n")
    (tmp_path / "late.py").write_text(
        f"import {app}\nruntime = {app}.runtime\nruntime.modules = ['raising']\n".format(app=app)
    )
    (tmp_path / "src" / "inside").mkdir(parents=True)
    answer = call("list", app=given.format(app=app))
    sys.modules.pop("late", None)
    assert answer.exit_code == 1 and message.format(app=app) in answer.output, answer.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "nonsense"), "neither a saga's id nor name:key; `sagas --app "),
        (("show", "sa.odd:none"), "no saga sa.odd with key 'none'"),
        (("list", "--status", "park"), "did you mean 'parked'"),
        (("relay",), "no Celery app: give the runtime celery=app, or name the app with --celery shop.celery_app:app"),
        (("relay", "--celery", "nowhere"), "--celery nowhere: no Celery app found there"),
        (("relay", "--celery", "tests.sqlalchemy.shop:Odd"), "not a Celery app"),
    ],
)
def test_wrong_questions(words: tuple[str, ...], message: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answered in words."""
    from celery import _state

    monkeypatch.setattr(_state, "default_app", None)
    monkeypatch.setattr(_state._tls, "current_app", None)
    answer = call(*words)
    assert answer.exit_code == 1 and message in answer.output, answer.output


@pytest.mark.parametrize("command", ["worker", "list", "verify", "show a:b"])
def test_a_database_without_our_tables(command: str, call: Call, url: str) -> None:
    """Workers do not start on it, and everything says how the tables get there."""
    with psycopg.connect(url) as connection:
        connection.execute("drop table sagas_schema")
    answer = call(*command.split())
    assert answer.exit_code == 1 and "lacks our tables: run a migration that calls" in answer.output, answer.output


def test_a_worker_ends_when_told(
    app: str, url: str, engine: Engine, process_group: ProcessGroup, tmp_path: Path
) -> None:
    """An embedded worker runs what is there, and ends at SIGTERM after what it began."""
    begin(engine, Odd, Told("note", "by the worker"))
    worker = process_group.python(
        "-m", "sagas.cli", "worker", "--concurrency", "2", name="worker", cwd=tmp_path,
        env={"SAGAS_APP": f"{app}:runtime", "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert wait_for(url, "select status from sagas_saga where finished_at is not null", process_group) == "completed"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert f"serves all queues of {app!r}" in worker.output()


def test_a_queue_that_no_step_names_is_noted(call: Call, app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By workers and by relays: they serve it, and nothing will ever be in it."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    said: list[str] = []
    try:
        answer = call("worker", "--until-idle", "--queue", "payment", "--queue", "default")
        monkeypatch.setattr("sagas.serving.Relay.run", lambda self: None)
        serving.relay(sys.modules[app].runtime.store, Unused(), queues=["payment", "default"], say=said.append)
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    note = "note: no step that this process knows is in queue 'payment'; is it spelled right?"
    assert answer.output.splitlines()[1:] == [note] and said[1:] == [note]


class Unused:
    """A broker that is not asked for anything."""

    def publish(self, queue: str, rows: object) -> None:
        raise AssertionError

    def reset(self) -> None:
        raise AssertionError


def test_until_idle(call: Call, engine: Engine, url: str) -> None:
    """Ends by itself when nothing is due."""
    begin(engine, Odd, Told("note", "once"))
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        assert call("worker", "--until-idle").exit_code == 0
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert rows(url, "select text from note") == ["once"]


def test_a_parked_saga_is_found_by_what_the_log_says(
    call: Call, engine: Engine, url: str, app: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names the command as it has to be typed here, `--app` and all."""
    monkeypatch.setattr(bank, "charge", lambda *_: "\x00")  # it happened, and what it returned cannot be stored
    rows(url, "insert into orders (id, amount) values (7, 5) returning 1")
    (run,) = begin(engine, PlaceOrder, Placed(7, 5))
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        for _ in range(20):
            if rows(url, "select 1 from sagas_saga where parked_from is not null"):
                break
            assert call("worker", "--until-idle").exit_code == 0
            rows(url, "update sagas_outbox set due_at = clock_timestamp() where holder is null returning 1")
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert f"look with `sagas --app {app}:runtime show {run.id}`" in caplog.text
    assert call(*f"show {run.id}".split()).exit_code == 0


def test_watching_and_keeping(call: Call, engine: Engine, url: str, tmp_path: Path) -> None:
    """Stuck sagas, numbers, doctor, pruning and the archive: the same as in Django, also as JSON."""
    (run,) = begin(engine, Odd, Told("note", "hello"))
    assert call("list", "--stuck").output.startswith("no saga is stuck in ")
    rows(url, "update sagas_outbox set due_at = clock_timestamp() - interval '1 hour' returning 1")
    stuck = json.loads(call("list", "--stuck", "--json").output)
    assert [(each["id"], each["reason"]) for each in stuck["data"]] == [(str(run.id), "overdue")]
    doctor = call("doctor", "--json")
    assert doctor.exit_code == 1
    assert {"stuck", "dead-relays"} <= {each["id"] for each in json.loads(doctor.output)["data"]}
    assert call("stats").output.startswith("attention 1 stuck, 0 parked, 0 paused")
    assert call("tail", "--since-start", "--count", "1").output.count("started") == 1
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        assert call("worker", "--until-idle").exit_code == 0
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    rows(url, "update sagas_saga set finished_at = finished_at - interval '1 year' returning 1")
    assert call("prune").output.startswith("1 sagas that ended more than 90 days ago were pruned")
    file = tmp_path / "sagas.jsonl"
    assert call("archive", str(file)).exit_code == 0
    assert json.loads(file.read_text())["id"] == str(run.id)
    missing = json.loads(call("show", str(run.id), "--json").output)
    assert not missing["ok"] and "no saga" in missing["error"]
    assert call("prune", "--older-than", "x").exit_code == 2


def test_a_worker_logs_as_the_application_says(
    app: str, process_group: ProcessGroup, engine: Engine, url: str, tmp_path: Path
) -> None:
    """`dictConfig` in the module of the runtime takes the place of what the command set up before it imported that."""
    (logging,) = [block.text for block in blocks(ROOT / "docs" / "metrics.md") if block.text.startswith("LOGGING")]
    module = tmp_path / f"{app}.py"
    module.write_text(f"import logging.config\n{logging}logging.config.dictConfig(LOGGING)\n{module.read_text()}")
    rows(url, "insert into orders (id, amount) values (7, 5000) returning 1")
    (run,) = begin(engine, PlaceOrder, Placed(7, 5000))
    worker = process_group.python(
        "-m", "sagas.cli", "--app", f"{app}:runtime", "worker", "--until-idle", name="worker", cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert worker.wait(60) == 0
    lines = [json.loads(line) for line in worker.output().splitlines() if "saga_id" in line]
    assert [(line["level"], line["saga_id"], line["saga_step"]) for line in lines] == [("INFO", str(run.id), "charge")]
    assert "INFO sagas.worker: " not in worker.output(), "nothing is said twice"


def test_metrics_of_a_process(app: str, process_group: ProcessGroup, engine: Engine, tmp_path: Path) -> None:
    """`sagas metrics` answers Prometheus until it is told to end."""
    begin(engine, Odd, Told("note", "hello"))
    started = process_group.python(
        "-m", "sagas.cli", "--app", f"{app}:runtime", "metrics", "--port", "0", "--address", "127.0.0.1",
        name="metrics", cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    started.wait_for_output("/metrics", 60)
    (address,) = re.findall(r"http://\S+/metrics", started.output())
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert 'sagas_started_total{name="sa.odd"}' in answer.read().decode()
    started.send_signal(signal.SIGTERM)
    assert started.wait(30) == 0
