"""System checks: each wrong setting has an id, says what is wrong, and hints at what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.core.checks import CheckMessage
from django.core.checks.registry import registry
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import override_settings
from kombu import Queue
from pytest_django import DjangoDbBlocker

from sagas_celery.checks import Problem, problems
from sagas_django import checks
from sagas_django.conf import sagas_settings
from sagas_django.management.commands.sagas import Command
from sagas_django.models import SagaRow
from sagas_django.operate import check_ready
from tests.integration.conftest import database_alias
from tests.settings import database_from_url

ROOT = Path(__file__).parents[2]
NOBODY = database_from_url("postgresql://nobody@127.0.0.1:1/nothing")
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
SAFE = {"broker_url": "redis://localhost", "broker_transport_options": {
    "socket_timeout": 10, "socket_connect_timeout": 5}}  # fmt: skip


def only(found: list[CheckMessage], id: str) -> CheckMessage:
    """The one message; it has a hint, as all have."""
    assert [message.id for message in found] == [id], found
    assert found[0].hint
    return found[0]


def ours(**arguments: Any) -> list[CheckMessage]:
    """All checks of this project with our tag; where no database is given into none, as `manage.py check` does."""
    return registry.run_checks(tags=["sagas"], **{"databases": [], **arguments})


def manage(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", *arguments], cwd=ROOT, text=True, capture_output=True, timeout=60,
        env={"PATH": "/usr/bin", "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "tests.settings", **environment},
    )  # fmt: skip


@contextmanager
def vendor(alias: str, name: str) -> Iterator[None]:
    """An alias that says it is of another vendor."""
    kept = connections[alias].vendor
    connections[alias].vendor = name
    try:
        yield
    finally:
        connections[alias].vendor = kept


@pytest.mark.django_db
def test_nothing_is_wrong_with_the_test_project() -> None:
    """A migrated Postgres and good settings pass."""
    assert ours(databases=["default"]) == []


def test_without_a_database_none_is_touched() -> None:
    """`manage.py check` works where the database is down; pytest-django would refuse a query here."""
    assert ours() == []
    done = manage("check", DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing")
    assert done.returncode == 0 and "sagas.W002" not in done.stderr, done.stderr


def test_check_of_a_database_looks_into_it(fresh_database: str, postgres_server: Any) -> None:
    """`manage.py check --database default` passes on a migrated one and warns about an empty one."""
    done = manage("check", "--database", "default", DATABASE_URL=fresh_database)
    assert done.returncode == 0 and "no issues" in done.stdout, done.stderr
    name = "sagas_empty_for_checks"
    url = postgres_server.create_database(name)
    try:
        done = manage("check", "--database", "default", DATABASE_URL=url)
    finally:
        postgres_server.drop_database(name)
    assert done.returncode == 0 and "sagas.W003" in done.stderr and "manage.py migrate" in done.stderr, done.stderr


def test_a_worker_looks_into_its_own_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """And into no other one of the project, which may be down: with any Django."""
    seen: list[str] = []
    monkeypatch.setattr(checks, "check_postgres", lambda alias: seen.append(alias) or [])
    monkeypatch.setitem(connections.settings, "down", connections.settings["default"] | NOBODY)
    command = Command()
    command.check(**command.get_check_kwargs({"database": "default"}))
    assert seen == ["default"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "SAGAS must be a dict, not list"),
        ({"lease": 30}, "capitals"),
        ({"LEESE": 30}, "did you mean 'LEASE'"),
        ({"LEASE": "30"}, "lease='30'"),
        ({"LEASE": 6, "HEARTBEAT": 5}, "at most a third"),
        ({"POLL": 0}, "poll=0"),
    ],
)
def test_invalid_settings(settings: Any, given: Any, said: str) -> None:
    """E001: SAGAS cannot be read; the message says which name or value."""
    settings.SAGAS = given
    message = only(checks.check_settings(None), "sagas.E001")
    assert said in message.msg and message.is_serious()


def test_short_publish_window(settings: Any) -> None:
    """W001: messages would be published again while workers are still busy with earlier ones."""
    settings.SAGAS = {"PUBLISH_WINDOW": 1.0}
    assert "PUBLISH_WINDOW" in only(checks.check_settings(None), "sagas.W001").msg
    settings.SAGAS = {"PUBLISH_WINDOW": 2.0}
    assert checks.check_settings(None) == []
    assert sagas_settings().publish_window == 2.0


def test_no_postgres_at_all() -> None:
    """E002: wrong engine, found without connecting."""
    with vendor("default", "sqlite"):
        message = only(checks.check_engines(None), "sagas.E002")
    assert "default: sqlite" in message.msg and message.is_serious()


def test_default_database_is_not_postgres() -> None:
    """W004: sagas live in another alias, which calls must name."""
    with database_alias("other", NOBODY), vendor("default", "mysql"):
        message = only(checks.check_engines(None), "sagas.W004")
    assert "using=" in (message.hint or "")


def test_other_databases_need_not_be_postgres() -> None:
    """A cache in SQLite beside the Postgres is nobody's business."""
    with database_alias("other", SQLITE):
        assert checks.check_engines(None) == []
        assert checks.check_databases(None, ["other"]) == []


@pytest.mark.django_db
def test_old_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    """E003: the server is older than what the SQL needs."""
    monkeypatch.setattr(checks, "OLDEST_POSTGRES", 990000)
    message = only(checks.check_databases(None, ["default"]), "sagas.E003")
    assert "99" in message.msg and message.is_serious()


def test_unreachable_database(django_db_blocker: DjangoDbBlocker) -> None:
    """W002: down, or wrong address. A warning for `check`; commands that need the database refuse to start."""
    with django_db_blocker.unblock(), database_alias("other", NOBODY):
        message = only(checks.check_databases(None, ["other"]), "sagas.W002")
        with pytest.raises(CommandError, match=r"(?s)'other'.* cannot be reached.*HOST, PORT"):
            call_command("sagas", "list", "--database", "other", skip_checks=True)
    assert "'other'" in message.msg


@pytest.mark.django_db
def test_missing_and_old_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """W003: the tables are not there, or those of an older version."""
    monkeypatch.setattr(checks, "SCHEMA", 99)
    message = only(checks.check_databases(None, ["default"]), "sagas.W003")
    assert "version 99 is needed" in message.msg and "migrate --database default" in (message.hint or "")
    monkeypatch.undo()
    with connection.cursor() as cursor:
        cursor.execute("set local search_path = pg_catalog")
        assert "lacks our tables" in only(checks.check_databases(None, ["default"]), "sagas.W003").msg


@pytest.mark.django_db
def test_a_router_keeps_sagas_out_of_a_database(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a router allows no tables of ours, none are missed; a worker for it still refuses to start."""

    class Elsewhere:
        def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
            return False if app_label == "sagas" else None

    monkeypatch.setattr(checks, "SCHEMA", 99)
    settings.DATABASE_ROUTERS = [Elsewhere()]
    assert checks.check_databases(None, ["default"]) == []
    with pytest.raises(Exception, match="version 99 is needed"):
        check_ready("default")


def wrong(**conf: Any) -> list[Problem]:
    """What is wrong with a Celery app of these settings, all others being good."""
    app = Celery("checked", set_as_current=False)
    app.conf.update({**SAFE, **conf})
    return problems(app)


def test_a_good_celery_app() -> None:
    """The README's settings pass; so does RabbitMQ without socket options."""
    assert wrong() == []
    assert wrong(broker_url="amqp://localhost", broker_transport_options={}) == []
    assert wrong(task_annotations={"shop.tasks.mail": {"rate_limit": "1/s"}}) == []


@pytest.mark.parametrize(
    ("id", "conf"),
    [
        ("sagas.E010", {"task_always_eager": True}),
        ("sagas.E011", {"task_annotations": {"*": {"time_limit": 5}}}),
        ("sagas.E011", {"task_annotations": {"sagas.run": {"acks_late": True}}}),
        ("sagas.E011", {"task_annotations": [{"other": {}}, {"*": {"rate_limit": "1/s"}}]}),
        ("sagas.E011", {"task_annotations": [object()]}),
        ("sagas.E012", {"accept_content": ["pickle"]}),
        ("sagas.W010", {"broker_transport_options": {}}),
        ("sagas.W010", {"broker_transport_options": {"socket_timeout": 5}}),
        ("sagas.W010", {"broker_url": ["sentinel://a;sentinel://b"], "broker_transport_options": {}}),
    ],
)  # fmt: skip
def test_what_defeats_the_outbox(id: str, conf: dict[str, Any]) -> None:
    """Eager tasks, foreign annotations, no json, and a Redis that could hang a worker for ever."""
    (problem,) = wrong(**conf)
    assert problem.id == id and problem.message and problem.hint
    assert problem.fatal == id.startswith("sagas.E")


def test_celery_is_checked_only_where_it_runs_sagas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project that uses the embedded worker may run its own tasks eagerly."""
    app = Celery("eager", set_as_current=False)
    app.conf.update({**SAFE, "task_always_eager": True})
    monkeypatch.setattr("sagas_celery.checks.current_app", app)
    assert checks.check_celery(None) == []
    monkeypatch.setattr(checks.apps, "is_installed", lambda name: True)
    only(checks.check_celery(None), "sagas.E010")


def test_only_what_is_deployed(settings: Any, tmp_path: Path) -> None:
    """W006 and W007 are said by `check --deploy` only: both are fine while one tries things out."""
    settings.SAGAS = {"LEASE": 3.0, "HEARTBEAT": 1.0, "DEFINITIONS_FILE": tmp_path / "definitions.json"}
    found = {message.id: message for message in ours(include_deployment_checks=True)}
    assert {"sagas.W006", "sagas.W007"} <= set(found)
    assert "definitions --release" in (found["sagas.W006"].hint or "") and "3.0 s" in found["sagas.W007"].msg
    assert {"sagas.W006", "sagas.W007"}.isdisjoint(message.id for message in ours())
    settings.SAGAS = {}
    assert "sagas.W007" not in {message.id for message in ours(include_deployment_checks=True)}


def test_checks_have_djangos_tags() -> None:
    """Whoever runs `check --tag database` gets ours that look into databases, and those of `--deploy` are apart."""
    assert checks.check_databases in registry.get_checks(include_deployment_checks=False)
    assert "database" in checks.check_databases.tags and "sagas" in checks.check_databases.tags  # type: ignore[attr-defined]
    usual = registry.get_checks(include_deployment_checks=False)
    assert checks.check_deployment not in usual and checks.check_celery_deployment not in usual
    assert checks.check_deployment in registry.get_checks(include_deployment_checks=True)


def test_override_settings_holds_at_once() -> None:
    """Django's own way of changing settings in a test reaches ours, and is taken back."""
    before = sagas_settings().lease
    with override_settings(SAGAS={"LEASE": 47.0}):
        assert sagas_settings().lease == 47.0
    assert sagas_settings().lease == before


@pytest.mark.parametrize(
    ("conf", "missing"),
    [
        ({}, False),  # Celery makes queues up
        ({"task_create_missing_queues": False, "task_queues": [Queue("celery"), Queue("payments")]}, False),
        ({"task_create_missing_queues": False, "task_queues": [Queue("celery")]}, True),
    ],
)
def test_queues_that_celery_does_not_list(conf: dict[str, Any], missing: bool) -> None:
    """W011: the relay could publish nothing for them; the queue of steps that name none is the app's own."""
    app = Celery("checked", set_as_current=False)
    app.conf.update({**SAFE, **conf})
    found = problems(app, queues={"default", "payments"})
    assert [problem.id for problem in found] == (["sagas.W011"] if missing else [])
    assert not missing or "payments" in found[0].message


def test_a_broker_that_nobody_else_reaches() -> None:
    """W012: fine in a test, lost in production."""
    app = Celery("checked", set_as_current=False)
    app.conf.update(SAFE | {"broker_url": "memory://"})
    assert problems(app) == []
    (problem,) = problems(app, deploy=True)
    assert problem.id == "sagas.W012" and "sagas worker" in problem.hint


def test_words_can_be_translated() -> None:
    """What the admin says goes through gettext."""
    from sagas_django import wording

    found = french(wording)
    assert found, "no lazy text in the words"
    assert SagaRow._meta.verbose_name.__class__.__name__ == "__proxy__"


def french(module: Any) -> list[str]:
    """The names of a module that are, or hold, texts to be translated."""
    held = [(name, value) for name, value in vars(module).items() if not name.startswith("__")]
    return [name for name, value in held if any(_lazy(each) for each in ([value, *_inside(value)]))]


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _lazy(value: Any) -> bool:
    return type(value).__name__ == "__proxy__" or getattr(value, "__name__", "") in ("gettext", "gettext_lazy")
