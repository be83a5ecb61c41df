"""Fixtures that every test may use. Servers are real, started when the first test needs one, and gone at the end.

Django's test database and the databases of `fresh_database` are on the same Postgres server.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from sagas.testing import servers
from sagas.testing.processes import ProcessGroup

from .settings import database_from_url

ROOT = Path(__file__).parent.parent
REPORT = pytest.StashKey[ProcessGroup]()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.Postgres]:
    """The Postgres of this test run. Tests that hurt a server start one of their own: `postgres(private=True)`."""
    with servers.postgres(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Redis]:
    """The Redis of this test run."""
    with servers.redis() as server:
        yield server


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_server: servers.Postgres) -> None:
    """Point Django at the server, before pytest-django makes its test database on it."""
    from django.db import connections

    where = database_from_url(postgres_server.dsn)
    for alias, settings in connections.settings.items():
        settings.update({name: where[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")})
        settings["TEST"]["NAME"] = f"test_sagas_{alias}_{uuid.uuid4().hex[:12]}"  # two clones may share a server


@pytest.fixture(scope="session")
def template_database(postgres_server: servers.Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name of a migrated database that others are cloned from."""
    name = f"sagas_template_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    try:
        with ProcessGroup(tmp_path_factory.mktemp("migrate")) as processes:
            migrate = processes.python(
                "-c",
                "import django; django.setup(); from django.core.management import call_command;"
                "call_command('migrate', verbosity=0)",
                name="migrate",
                env={"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"},
                cwd=ROOT,
            )
            if migrate.wait(120) != 0:
                raise migrate.failure("could not migrate the template database")
        yield name
    finally:
        postgres_server.drop_database(name)


@pytest.fixture
def fresh_database(postgres_server: servers.Postgres, template_database: str) -> Iterator[str]:
    """URL of a migrated database that only this test uses, for workers and relays in processes of their own."""
    name = f"sagas_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name, template=template_database)
    yield url
    postgres_server.drop_database(name)


@pytest.fixture
def process_group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessGroup]:
    """Starts processes that end with the test; when it fails, their output is in the report."""
    with ProcessGroup(tmp_path) as processes:
        request.node.stash[REPORT] = processes
        yield processes


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the output of the test's processes to the report of its failure."""
    report = yield
    if report.failed and (processes := item.stash.get(REPORT, None)):
        report.sections.append(("Processes", processes.report()))
    return report
