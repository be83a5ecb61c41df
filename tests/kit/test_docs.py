"""The page about testing: its examples are a project, and its tests pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagas.testing.servers import Postgres
from tests.kit.project import BLOCK, ROOT, Project, blocks, django_project

STORE = """
import os
from dataclasses import dataclass
from sqlalchemy import create_engine, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker
from sagas import Saga, external_step, step
from sagas_sqlalchemy import Sagas, sagas_tables

class Base(DeclarativeBase): pass

sagas_tables(Base.metadata)

class Item(Base):
    __tablename__ = "item"
    name: Mapped[str] = mapped_column(primary_key=True)
    paid_with: Mapped[str] = mapped_column(default="")

@dataclass(frozen=True)
class Ordered:
    item: str

class PlaceOrder(Saga[Ordered], name="store.place_order", version=1):
    @external_step(compensate=None)
    def charge(self) -> str:
        raise RuntimeError("no test should reach the bank")

    @step(pivot=True)
    def confirm(self) -> None:
        self.session.execute(update(Item).where(Item.name == self.input.item).values(paid_with=self.charge.result))

engine = create_engine(os.environ["STORE"])
runtime = Sagas(sessionmaker(engine), settings={"wake": False})
Base.metadata.create_all(engine)
"""


@pytest.fixture
def project(postgres_server: Postgres, tmp_path: Path) -> Iterator[Project]:
    """A Django project that plugs in sagas."""
    with django_project(postgres_server, tmp_path) as made:
        yield made


def test_the_examples_pass(project: Project) -> None:
    """Under pytest, and the unittest ones under `manage.py test` too."""
    files = {name: text for name, text in blocks("testing.md").items() if not name.startswith(("alchemy/", "api/"))}
    project.write(files | {"tests/__init__.py": ""})
    ran = project.pytest()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = sum(text.count("def test_") for text in files.values())
    assert re.search(rf"\b{written} passed", ran.stdout), ran.stdout
    unittest = project.python("-m", "django", "test", "--settings", "settings", "tests.test_unittest")
    assert unittest.returncode == 0 and "Ran 2 tests" in unittest.stderr, unittest.stdout + unittest.stderr


def test_the_sqlalchemy_example_passes(postgres_server: Postgres, tmp_path: Path) -> None:
    """In a project without Django."""
    url = postgres_server.create_database(name := f"kit_{tmp_path.name[-8:].replace('-', '_')}_store")
    try:
        project = Project(tmp_path, {"STORE": url.replace("postgresql:", "postgresql+psycopg:")})
        project.write({"store.py": STORE, "pytest.ini": "[pytest]\npythonpath = .\nfilterwarnings = error\n"})
        project.write({name: text for name, text in blocks("testing.md").items() if name.startswith("alchemy/")})
        ran = project.pytest("-p", "no:django")
        assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr
    finally:
        postgres_server.drop_database(name)


def test_the_asynchronous_application_passes(postgres_server: Postgres, tmp_path: Path) -> None:
    """The shop of the FastAPI page, its endpoints called and its sagas drained, as the command of the page does it."""
    url = postgres_server.create_database(name := f"kit_{tmp_path.name[-8:].replace('-', '_')}_api")
    try:
        project = Project(tmp_path, {"TEST_DATABASE_URL": url.replace("postgresql:", "postgresql+asyncpg:")})
        project.write(blocks("fastapi.md"))
        project.write({name: text for name, text in blocks("testing.md").items() if name.startswith("api/")})
        ran = project.pytest("-p", "no:django", "api")
        assert ran.returncode == 0 and "2 passed" in ran.stdout, ran.stdout + ran.stderr
    finally:
        postgres_server.drop_database(name)


def test_every_block_is_a_file() -> None:
    """So that none is left out."""
    page = (ROOT / "docs/testing.md").read_text()
    assert page.count("```python") == len(BLOCK.findall(page)) >= 7
