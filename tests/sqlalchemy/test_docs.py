"""The program of docs/sqlalchemy.md, as a reader would put it together, and its commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Postgres, Redis
from tests.sqlalchemy.conftest import with_driver
from tests.sqlalchemy.waiting import wait_for

PAGE = Path(__file__).parents[2] / "docs" / "sqlalchemy.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^\$ (.+)$", re.MULTILINE)


@pytest.fixture
def reader(tmp_path: Path, postgres_server: Postgres) -> Iterator[Path]:
    """A folder with the files of the page in it."""
    for name, text in BLOCK.findall(PAGE.read_text()):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    name = f"reader_{os.getpid()}_{tmp_path.name.replace('-', '_')}"
    postgres_server.create_database(name)
    yield tmp_path
    postgres_server.drop_database(name)


def environment(reader: Path, postgres_server: Postgres, driver: str = "psycopg") -> dict[str, str]:
    name = f"reader_{os.getpid()}_{reader.name.replace('-', '_')}"
    return {
        **os.environ, "DATABASE_URL": with_driver(postgres_server.url(name), driver),
        "DJANGO_SETTINGS_MODULE": "",  # pytest-django's: Celery would set up the tests' Django project
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip


def run(command: str, reader: Path, env: dict[str, str]) -> str:
    """Run a command of the page."""
    words = command.split()
    words = {"python": [sys.executable], "sagas": [sys.executable, "-m", "sagas.cli"]}[words[0]] + words[1:]
    done = subprocess.run(words, cwd=reader, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_page_is_a_program_that_runs(reader: Path, postgres_server: Postgres) -> None:
    """Its commands, in their order, give what it says: one saga completed, one compensated."""
    env = environment(reader, postgres_server)
    commands = [each for each in SHELL.findall(PAGE.read_text()) if each.startswith(("python ", "sagas "))]
    assert len(commands) == 5
    said = {command: run(command, reader, env) for command in commands}
    assert said[commands[0]] == "order-1 running\n"
    listed = said["sagas --app shop.db:sagas list"].splitlines()
    assert [line.split()[0] for line in listed[:3]] == ["status", "compensated", "completed"]
    assert "card declined" in said["sagas --app shop.db:sagas show shop.place_order:order-2"]
    looked = run("python -m shop.look", reader, env).splitlines()
    assert looked == ["lamp (paid: charge) ['completed']", "lamp ['compensated']", "[] need a person"]
    assert run("sagas --app shop.db:sagas verify", reader, env) == "2 sagas verified, 0 problems\n"


@pytest.mark.parametrize("driver", ["psycopg", pytest.param("psycopg2", marks=pytest.mark.full)])
def test_the_page_on_celery(
    driver: str, reader: Path, postgres_server: Postgres, redis_server: Redis, process_group: ProcessGroup
) -> None:
    """A relay and a prefork worker, whose engine was made before the fork."""
    env = {**environment(reader, postgres_server, driver), "REDIS_URL": redis_server.url}
    for amount in (25, 5000):
        run(f"python -m shop.place {amount}", reader, env)
    relay = process_group.python("-m", "sagas.cli", "--app", "shop.celery_app:sagas", "relay", name="relay",
                                 env=env, cwd=reader)  # fmt: skip
    process_group.python("-m", "celery", "-A", "shop.celery_app", "worker", "--concurrency", "2", "--loglevel", "info",
                         name="worker", env=env, cwd=reader)  # fmt: skip
    url = env["DATABASE_URL"].replace(f"+{driver}", "")
    statuses = "select array_agg(status order by key) from sagas_saga having bool_and(finished_at is not null)"
    assert wait_for(url, statuses, process_group) == ["completed", "compensated"]
    relay.terminate()
    assert relay.wait(20) == 0


def test_a_celery_worker_without_the_definitions(
    reader: Path, postgres_server: Postgres, redis_server: Redis, process_group: ProcessGroup
) -> None:
    """It does not start, and says which module is missing; rather than put off every saga it is sent."""
    module = reader / "shop" / "db.py"
    module.write_text(module.read_text().replace("shop.sagas", "shop.sagaz"))
    env = {**environment(reader, postgres_server), "REDIS_URL": redis_server.url}
    worker = process_group.python("-m", "celery", "-A", "shop.celery_app", "worker", name="worker", env=env, cwd=reader)
    assert worker.wait(60) != 0
    assert "there is no module 'shop.sagaz'" in worker.output()


def test_the_alembic_revision_of_the_page(reader: Path) -> None:
    """It is one that Alembic can load: its names are all there."""
    text = (reader / "migrations" / "versions" / "sagas_1.py").read_text()
    compile(text, "sagas_1.py", "exec")
    namespace: dict[str, object] = {}
    exec(text, namespace)
    assert namespace["revision"] == "sagas_1" and callable(namespace["upgrade"]) and callable(namespace["downgrade"])
