"""A migrated template database of the kill tests' application, and a bank."""

from __future__ import annotations

import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from example_project.bank.desk import Desk, open_bank
from sagas import Saga
from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Postgres
from tests.faults.app.sagas import Ordered
from tests.faults.lives import Kept, Lives
from tests.faults.route import Route
from tests.faults.sampling import CASES, summary
from tests.faults.scene import ROOT, Scene, connections_change
from tests.integration.conftest import database_alias
from tests.settings import database_from_url

AT_A_TIME = 7  # scenarios; most of the time each waits for a lease to end

SceneMaker = Callable[..., AbstractContextManager[Scene]]

_one_at_a_time = threading.Lock()


def migrate(url: str, directory: Path) -> None:
    """Create all tables in a database."""
    with ProcessGroup(directory) as processes:
        env = {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.faults.settings"}
        migrating = processes.python("-m", "django", "migrate", "--verbosity=0", env=env, cwd=ROOT)
        if migrating.wait(60) != 0:
            raise migrating.failure("could not migrate")


@pytest.fixture(scope="session")
def faults_template(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name of a migrated database that scenes are cloned from."""
    name = f"faults_template_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    try:
        migrate(url, tmp_path_factory.mktemp("migrate"))
        yield name
    finally:
        postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A bank for everybody; tests tell their orders apart."""
    with ProcessGroup(tmp_path_factory.mktemp("bank")) as processes:
        yield open_bank(processes, "--longest-wait", "100")


@pytest.fixture(scope="session")
def new_scene(
    postgres_server: Postgres,
    faults_template: str,
    bank: Desk,
    tmp_path_factory: pytest.TempPathFactory,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[SceneMaker]:
    """Makes scenes, also in several threads at a time. What its processes said is in the report of a failure."""

    @contextmanager
    def make(saga: type[Saga[Ordered]], *, url: str | None = None, **settings: str) -> Iterator[Scene]:
        name = f"faults_{uuid.uuid4().hex[:12]}"
        with _one_at_a_time:
            given = url or postgres_server.create_database(name, template=faults_template)
            directory = tmp_path_factory.mktemp("scene")
        try:
            with ProcessGroup(directory) as processes:
                scene = Scene(url=given, bank=bank, processes=processes, saga=saga, settings=settings)
                try:
                    yield scene
                except BaseException as problem:
                    problem.add_note(processes.report())
                    raise
                finally:
                    scene.disconnect()
        finally:
            if url is None:
                postgres_server.drop_database(name)

    with django_db_blocker.unblock():
        yield make


@contextmanager
def default_database(url: str) -> Iterator[None]:
    """Let a database be Django's default, beside scenes that run in threads."""
    with ExitStack() as stack:
        with connections_change:
            stack.enter_context(database_alias("default", database_from_url(url)))
        stack.callback(Kept.close_all)
        yield


@pytest.fixture(scope="module")
def ground(
    postgres_server: Postgres, faults_template: str, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:  # fmt: skip
    """URL of a database of the module's tests, which is Django's default meanwhile."""
    name = f"faults_ground_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name, template=faults_template)
    with django_db_blocker.unblock(), default_database(url):
        yield url
    postgres_server.drop_database(name)


@pytest.fixture
def new_lives(ground: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lives]]:
    """Places an order in this process; afterwards the database is empty again."""
    with ExitStack() as stack:

        def make(route: Route, **options: Any) -> Lives:
            lives = Lives(url=ground, route=route, **options)
            stack.callback(lives.disconnect)
            stack.callback(lives.empty)
            monkeypatch.setattr("tests.faults.app.sagas.bank", lives.till)
            lives.start()
            return lives

        yield make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many cases ran of how many, and how to draw the same sample again."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    tests = [re.sub(r".*::|\[.*", "", report.nodeid) for report in reports if report.when == "call"]
    if ran := Counter(CASES[test] for test in tests if test in CASES):
        terminalreporter.write_line(summary(ran))


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest, new_scene: SceneMaker) -> Iterator[dict[str, Future[None]]]:
    """All selected scenarios of this folder by node id, several at a time, each in a database of its own."""
    items: list[Any] = [each for each in request.session.items if "outcome" in getattr(each, "fixturenames", ())]
    servers = {"redis_server"} & {name for item in items for name in item.fixturenames}
    given = {name: request.getfixturevalue(name) for name in servers}
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="scenario") as pool:

        def submit(item: Any) -> Future[None]:
            wanted = {name: server for name, server in given.items() if name in item.fixturenames}
            return pool.submit(item.module.play, item.callspec.params["scenario"], new_scene, **wanted)

        try:
            yield {item.nodeid: submit(item) for item in items}
        finally:
            pool.shutdown(cancel_futures=True)


@pytest.fixture
def outcome(request: pytest.FixtureRequest, running: dict[str, Future[None]]) -> Future[None]:
    """What becomes of `play(scenario, new_scene)` of this test's module, in a thread of its own."""
    return running[request.node.nodeid]
