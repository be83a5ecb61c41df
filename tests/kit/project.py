"""A project that has just begun to use the kit: files in a folder, and a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sagas.testing.servers import Postgres
from tests.settings import database_from_url

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n# ([\w/]+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

DJANGO: Mapping[str, str] = {
    "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = settings\npythonpath = .\nfilterwarnings = error\n",
    "market/__init__.py": "",
    "market/models.py": """
from django.db import models

class Order(models.Model):
    cents = models.IntegerField()
    paid_with = models.TextField(default="")

class Reservation(models.Model):
    order_id = models.BigIntegerField()
""",
    "market/views.py": """
from django.db import transaction
from market.models import Order
from market.sagas import OrderPlaced, PlaceOrder

def place_order(cents):
    with transaction.atomic():
        order = Order.objects.create(cents=cents)
        PlaceOrder.start(OrderPlaced(order.pk, cents), key=f"order-{order.pk}", subject=order)
    return order
""",
}


@dataclass(frozen=True)
class Project:
    """One folder.

    Args:
        folder: where.
        env: what its processes get besides the usual.
    """

    folder: Path
    env: Mapping[str, str]

    def write(self, files: Mapping[str, str]) -> None:
        """Write files, by their path in the project."""
        for name, text in files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the project, for two minutes at most."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DJANGO_"))}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=env | self.env, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its tests."""
        return self.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


@contextmanager
def django_project(server: Postgres, folder: Path) -> Iterator[Project]:
    """A Django project that plugs in sagas and has no tests yet."""
    entry = database_from_url(server.dsn) | {"TEST": {"NAME": f"test_kit_{uuid.uuid4().hex[:12]}"}}
    project = Project(folder, {})
    project.write(DJANGO)
    project.write({
        "settings.py": f"SECRET_KEY = 'x'\nUSE_TZ = True\nDATABASES = {{'default': {entry!r}}}\n"
        "INSTALLED_APPS = ['django.contrib.contenttypes', 'sagas_django', 'market']\n"
        "DEFAULT_AUTO_FIELD = 'django.db.models.BigAutoField'\n"
    })  # fmt: skip
    yield project


def blocks(page: str) -> dict[str, str]:
    """The files that a page of the documentation shows; what it says about one of them in several places is joined."""
    files: dict[str, str] = {}
    for name, text in BLOCK.findall((ROOT / "docs" / page).read_text()):
        files[name] = files.get(name, "") + text + "\n"
    return files
