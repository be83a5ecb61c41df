"""The lines of docs/django.md, applied to a plain `django-admin startproject`, make a project whose sagas run.

The page itself is what is tested: its code blocks are taken out of it by the file name in their first line.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagas.testing import servers
from sagas.testing.processes import ProcessGroup
from tests.settings import database_from_url

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "django.md").read_text().split("## Plugging in")[1].split("\n## ")[0]
PLAIN, CELERY = SECTION.split("**On Celery**")
BLOCK = re.compile(r"```python\n# (\S+\.py)\n(.*?)```", re.DOTALL)
PLACE_ORDERS = """
from django.test import Client
for total in ("12.50", "5000"):
    answer = Client(headers={"host": "localhost"}).post("/orders", {"total": total})
    assert answer.status_code == 201, answer.content
    print("placed", answer.json()["order"])
"""


class Site:
    """A project as a user has it, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")}
        self.run("-m", "django", "startproject", "mysite", ".")
        self.manage("startapp", "shop")

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=self.environment, text=True, capture_output=True,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def manage(self, *arguments: str) -> str:
        return self.run("manage.py", *arguments)

    def append(self, name: str, code: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(f"\n\n{code}")

    def apply(self, text: str) -> None:
        """Put each code block of a part of the page at the end of the file it names."""
        blocks = BLOCK.findall(text)
        assert len(blocks) == text.count("```python"), "every block says in its first line where it belongs"
        for name, code in blocks:
            self.append(name, code)


def commands(text: str, *, but: tuple[str, ...] = ()) -> list[list[str]]:
    """The `manage.py` commands of a part of the page, in order."""
    lines = re.findall(r"^\$ python manage\.py (.+)$", text, re.MULTILINE)
    return [line.split() for line in lines if not line.startswith(but)]


@pytest.fixture
def site(tmp_path: Path, postgres_server: servers.Postgres) -> Iterator[Site]:
    """A fresh project with the page's lines applied, on an empty database."""
    name = f"sagas_site_{os.getpid()}_{tmp_path.name}".replace("-", "_").lower()
    database = database_from_url(postgres_server.create_database(name))
    try:
        site = Site(tmp_path)
        site.append("mysite/settings.py", f"DATABASES = {{'default': {database!r}}}\n")
        site.apply(PLAIN)
        yield site
    finally:
        postgres_server.drop_database(name)


def prepare(site: Site) -> None:
    """Run what the page says before a worker, and place two orders through the view."""
    for command in commands(PLAIN, but=("sagas", "runserver")):
        site.manage(*command)
    assert "no issues" in site.manage("check", "--database", "default")
    assert site.manage("shell", "--verbosity", "0", "-c", PLACE_ORDERS).split("\n")[:2] == ["placed 1", "placed 2"]


def check_outcome(site: Site) -> None:
    """One order went through, one was refused and undone."""
    listed = site.manage("sagas", "list")
    assert re.search(r"^completed .* order-1$", listed, re.MULTILINE), listed
    assert re.search(r"^compensated .* order-2 +\(refused: card declined\)$", listed, re.MULTILINE), listed
    query = "from shop.models import Order; print([o.status[:8] for o in Order.objects.order_by('pk')])"
    assert "['paid: ch', 'rejected']" in site.manage("shell", "--verbosity", "0", "-c", query)
    assert "2 sagas verified, 0 problems" in site.manage("sagas", "verify")


@pytest.mark.slow
@pytest.mark.full
def test_the_page_makes_a_project_that_runs(site: Site) -> None:
    """Settings, migrate, sagas.py, start in a view, embedded worker, list and show: as written."""
    prepare(site)
    (worker, *look) = commands(PLAIN, but=("makemigrations", "migrate", "runserver"))
    assert worker == ["sagas", "worker"]
    site.manage(*worker, "--until-idle")
    check_outcome(site)
    for command in look:
        assert "shop.place_order" in site.manage(*command)


@pytest.mark.slow
@pytest.mark.full  # likewise tests/docs/test_tutorials.py
def test_the_page_on_celery(site: Site, redis_server: servers.Redis, process_group: ProcessGroup) -> None:
    """The same with a relay and a Celery worker, started as the page says."""
    site.apply(CELERY)
    site.append("mysite/settings.py", f"CELERY_BROKER_URL = {redis_server.url.removesuffix('/0') + '/7'!r}\n")
    prepare(site)
    (relay,) = commands(CELERY)
    (worker,) = re.findall(r"^\$ celery (.+)$", CELERY, re.MULTILINE)
    for name, command in (("relay", ["manage.py", *relay]), ("worker", ["-m", "celery", *worker.split(), "-c", "1"])):
        process_group.python(*command, name=name, cwd=site.folder, env={"DJANGO_SETTINGS_MODULE": "mysite.settings"})
    wait_until_done(site)
    check_outcome(site)
    for process in process_group.processes:
        process.terminate()
        assert process.wait(30) == 0, process_group.report()


def wait_until_done(site: Site) -> None:
    """Until no saga is open: asked inside one process, since each start of Django costs a second of two cores."""
    site.manage("shell", "--verbosity", "0", "-c", (
        "import time; from sagas_django.models import SagaRow\n"
        "end = time.monotonic() + 60\n"
        "while SagaRow.objects.filter(finished_at=None).exists():\n"
        "    assert time.monotonic() < end, list(SagaRow.objects.values('key', 'status'))\n"
        "    time.sleep(0.1)\n"
    ))  # fmt: skip
