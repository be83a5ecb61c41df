"""`sagas init`, in projects as they are before: it says what is missing, and `--write` adds just that."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sagas.errors import ConfigurationError
from sagas.plugging import append
from sagas.testing.servers import Postgres
from sagas_django.plugging import APP, IMPORTED
from sagas_sqlalchemy.plugging import BASE, MOST_FILES, _find, _revision, _schema, look

MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

class Base(DeclarativeBase): pass

class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
"""
ENGINE = """
import os
from sqlalchemy import create_engine

engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+psycopg:"))
"""
ENV = """
from logging.config import fileConfig
from alembic import context
from shop.db import engine
from shop.models import Base

with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata)
    with context.begin_transaction():
        context.run_migrations()
"""


class Folder:
    """Where somebody works."""

    def __init__(self, path: Path, database: str) -> None:
        self.path = path
        address = urlsplit(database)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "SAGAS_"))}
        self.env = {
            **clean, "DATABASE_URL": database, "PGHOST": str(address.hostname), "PGPORT": str(address.port),
            "PGUSER": str(address.username), "PGPASSWORD": address.password or "",
            "PGDATABASE": address.path.strip("/"), "PYTHONPATH": "",
        }  # fmt: skip

    def python(self, *arguments: str) -> tuple[int, str]:
        """Run Python here; its exit code and all it says."""
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.path, env=self.env, text=True, capture_output=True, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    def init(self, *options: str) -> tuple[int, str]:
        """`sagas init`."""
        return self.python("-m", "sagas.cli", "init", *options)

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def texts(self) -> dict[str, str]:
        """Every source here."""
        return {str(path.relative_to(self.path)): path.read_text() for path in self.path.rglob("*.py")}


@pytest.fixture
def folder(tmp_path: Path, postgres_server: Postgres) -> Iterator[Folder]:
    name = f"init_{uuid.uuid4().hex[:12]}"
    yield Folder(tmp_path, postgres_server.create_database(name))
    postgres_server.drop_database(name)


@pytest.mark.slow
def test_a_django_project(folder: Folder) -> None:
    """From `startproject` to a project that `sagas worker` starts in: by what it writes, and by `migrate`."""
    folder.python("-m", "django", "startproject", "mysite", ".")
    folder.python("manage.py", "startapp", "shop")
    before = folder.texts()
    code, said = folder.init("--celery")
    assert (
        code == 1 and 'INSTALLED_APPS = [*INSTALLED_APPS, "sagas_django"]' in said and "mysite/settings.py" in said
    ), said
    assert folder.texts() == before, "without --write nothing is changed"
    code, said = folder.init("--write", "--celery")
    assert code == 1 and "written" in said and "no app" not in said, said
    settings = folder.path / "mysite" / "settings.py"
    settings.write_text(settings.read_text() + 'INSTALLED_APPS += ["shop"]\n')
    _, said = folder.init("--write")
    assert "sagas.py in an app of yours: " in said and "sagas.W003" in said and "manage.py migrate" in said, said
    assert all(folder.texts()[name].startswith(text) for name, text in before.items())
    code, said = folder.python("manage.py", "migrate", "-v", "0")
    assert code == 0, said
    code, said = folder.python("manage.py", "sagas", "init", "--celery")
    assert code == 0 and "missing" not in said and "tables included" in said, said
    code, said = folder.python("manage.py", "sagas", "worker", "--until-idle")
    assert code == 0, said
    assert (
        folder.python("manage.py", "shell", "-v", "0", "-c", "import mysite; print(mysite.celery_app.main)")[1]
        == "mysite\n"
    )


MANAGE = """
import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "{settings}")
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import os

SECRET_KEY = "x"
INSTALLED_APPS = ("django.contrib.contenttypes", "shop")
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}}
"""


def small_django(folder: Folder, settings: str) -> Path:
    """A project as it may be: no `__init__.py` beside its settings, INSTALLED_APPS a tuple, line ends of Windows."""
    folder.write("manage.py", MANAGE.format(settings=settings))
    folder.write("shop/__init__.py", "")
    file = folder.path / f"{settings.replace('.', '/')}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(SETTINGS.replace("\n", "\r\n").encode())
    return file


def test_settings_that_are_in_no_package(folder: Folder) -> None:
    """No celery.py beside manage.py, which would hide Celery itself; what to do is said, and found when it was done."""
    file = small_django(folder, "settings")
    before = file.read_bytes()
    code, said = folder.init("--write", "--celery")
    assert code == 1 and "Traceback" not in said and "hide Celery" in said and "shop/__init__.py" in said, said
    assert {str(path.relative_to(folder.path)) for path in folder.path.rglob("*.py")} == {
        "manage.py", "settings.py", "shop/__init__.py", "shop/sagas.py"
    }  # fmt: skip
    after = file.read_bytes()
    assert after.startswith(before) and b"sagas_celery" in after and after.count(b"\n") == after.count(b"\r\n")
    folder.write("shop/celery.py", APP.format(settings="settings", package="shop"))
    folder.write("shop/__init__.py", IMPORTED.format(package="shop"))
    code, said = folder.init("--celery")
    assert "ok       a Celery app" in said and "hide Celery" not in said and "manage.py migrate" in said, said


def test_a_package_without_an_init(folder: Folder) -> None:
    """It gets one, beside its settings, and the project starts."""
    small_django(folder, "mysite.settings")
    code, said = folder.init("--write", "--celery")
    assert code == 1 and "Traceback" not in said, said
    assert (folder.path / "mysite" / "celery.py").exists() and not (folder.path / "celery.py").exists()
    assert (folder.path / "mysite" / "__init__.py").read_text() == IMPORTED.format(package="mysite")
    code, said = folder.python("manage.py", "sagas", "relay", "--help")
    assert code == 0, said
    _, said = folder.init("--celery")
    assert "missing  a" not in said and "manage.py migrate" in said, said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"a\nb\n"),
        (b"", b"a\nb\n"),
        (b"x = 1\n", b"x = 1\n\na\nb\n"),
        (b"x = 1", b"x = 1\n\na\nb\n"),
        (b"x = 1\r\n", b"x = 1\r\n\r\na\r\nb\r\n"),
        (b"# \xe4\n", b"# \xe4\n\na\nb\n"),  # in an encoding of its own
    ],
)
def test_what_is_there_stays(tmp_path: Path, before: bytes | None, after: bytes) -> None:
    """Lines are added at the end, as the file ends its lines; every byte before stays."""
    file = tmp_path / "new" / "settings.py"
    if before is not None:
        file.parent.mkdir()
        file.write_bytes(before)
    append(file, "a\nb\n")
    assert file.read_bytes() == after


@pytest.mark.parametrize("before", [None, b"x = 1\n"])
def test_a_full_disk(tmp_path: Path, before: bytes | None) -> None:
    """It has room for a few bytes yet: the file is what it was, and the error says which file."""
    file = tmp_path / "settings.py"
    if before is not None:
        file.write_bytes(before)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(ConfigurationError, match=r"settings\.py cannot be written"):
            append(file, "INSTALLED_APPS = []")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (file.read_bytes() if file.exists() else None) == before


@pytest.mark.slow
def test_a_sqlalchemy_application(folder: Folder) -> None:
    """From a base and an engine to an application that `sagas worker` starts in."""
    for name, text in {"shop/__init__.py": "", "shop/models.py": MODELS, "shop/db.py": ENGINE}.items():
        folder.write(name, text)
    folder.write("alembic.ini", "[alembic]\nscript_location = migrations\nprepend_sys_path = .\n")
    folder.write("migrations/env.py", ENV)
    folder.write("migrations/script.py.mako", "")
    folder.write("migrations/versions/first.py", 'revision = "first"\ndown_revision = None\ndef upgrade(): ...\n')
    before = folder.texts()
    code, said = folder.init()
    assert code == 1 and "sagas_tables(Base.metadata)" in said and "Sagas(engine" in said, said
    assert folder.texts() == before
    code, said = folder.init("--write")
    assert code == 1 and "shop/sagas.py" in said, said
    assert "include_object" in said, said
    ours = "from sagas_sqlalchemy.alembic import include_object\nfrom shop.db"
    env = ENV.replace("from shop.db", ours).replace(".metadata)", ".metadata, include_object=include_object)")
    folder.write("migrations/env.py", env)
    code, said = folder.python("-m", "alembic", "upgrade", "head")
    assert code == 0, said
    code, said = folder.init()
    assert code == 0 and "missing" not in said, said
    code, said = folder.python("-m", "sagas.cli", "--app", "shop.db:sagas", "worker", "--until-idle")
    assert code == 0, said


START = 'PlaceOrder.start(Placed(7), key="order-7", using=session)'
ASYNC_START = 'await PlaceOrder.astart(Placed(7), key="order-7", using=session)'


@pytest.mark.parametrize(
    ("db", "source", "start"),
    [
        ("engine = create_engine(URL)\n", "engine", START),
        ("engine = create_engine(URL)\nSession = sessionmaker(engine, autoflush=False)\n", "Session", START),
        ("engine = create_engine(URL)\nSession = scoped_session(sessionmaker(bind=engine))\n", "Session", START),
        ("engine = create_engine(URL)\nSession = sessionmaker()\n", "engine", START),  # bound to nothing yet
        ("engine = create_engine(URL)\nSession = sessionmaker(other_engine)\n", "engine", START),
        ("engine = create_async_engine(URL)\n", "engine", ASYNC_START),
        (
            "db = create_async_engine(URL)\n"
            "make: async_sessionmaker[AsyncSession] = async_sessionmaker(\n    db,\n    expire_on_commit=False,\n)\n",
            "make", ASYNC_START,
        ),
        ("db = create_async_engine(URL)\nmake = async_sessionmaker[AsyncSession](db)\n", "make", ASYNC_START),
    ],
)  # fmt: skip
@pytest.mark.parametrize("circle", [False, True])
def test_the_session_factory_is_used(db: str, source: str, start: str, circle: bool, tmp_path: Path) -> None:
    """So that local steps get sessions like the application's own; and the saga says how it is started there."""
    (tmp_path / "models.py").write_text(MODELS + ("\nimport db\n" if circle else ""))
    (tmp_path / "db.py").write_text(db)
    found = {each.what: each for each in look(tmp_path)}
    lines = found[f"a runtime, Sagas({source})"].lines
    assert f"\nsagas = Sagas({source}, metadata=Base.metadata, " in lines
    assert lines.startswith(f"from db import {source}\n" if circle else "from sagas_sqlalchemy ")
    saga = found["a module sagas.py"].lines
    assert f"    {start}\n" in saga
    compile(saga, "sagas.py", "exec")


@pytest.mark.parametrize("also_ini", [False, True])
def test_alembic_that_is_set_up_in_pyproject(also_ini: bool, tmp_path: Path) -> None:
    """As `alembic init --template pyproject` does it: the revision goes where Alembic looks."""
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "db.py").write_text("engine = create_engine(URL)\n")
    (tmp_path / "pyproject.toml").write_text('[tool.alembic]\nscript_location = "%(here)s/migrations"\n')
    if also_ini:
        (tmp_path / "alembic.ini").write_text("[alembic]\nsqlalchemy.url = postgresql+psycopg:///\n")
    (revision,) = [each for each in look(tmp_path) if each.what == "a revision that makes the tables"]
    assert revision.file == tmp_path / "migrations" / "versions" / "sagas_1.py"


def alembic_in(folder: Folder, models: str = MODELS) -> None:
    """An application with Alembic, and nothing of ours but what is in its models."""
    folder.write("shop/__init__.py", "")
    folder.write("shop/models.py", models)
    folder.write("shop/db.py", ENGINE)
    folder.write("alembic.ini", "[alembic]\nscript_location = migrations\nprepend_sys_path = .\n")
    folder.write("migrations/env.py", ENV)
    folder.write("migrations/script.py.mako", "")
    folder.write("migrations/versions/first.py", 'revision = "first"\ndown_revision = None\ndef upgrade(): ...\n')


def test_tables_in_a_schema_of_their_own(folder: Folder) -> None:
    """The revision names the schema that the models name; before it is applied, and where it was applied without, the
    next thing to do is said."""
    tables = 'from sagas_sqlalchemy import sagas_tables\nsagas_tables(Base.metadata, schema="sagas")\n'
    alembic_in(folder, MODELS + tables)
    code, said = folder.init("--write")
    revision = folder.path / "migrations" / "versions" / "sagas_1.py"
    text = revision.read_text()
    assert 'sagas_upgrade(op, to=1, schema="sagas")' in text and 'sagas_downgrade(op, to=0, schema="sagas")' in text
    assert code == 1 and "lacks our tables: run `alembic upgrade head`" in said, said
    folder.write("migrations/versions/sagas_1.py", text.replace(', schema="sagas"', ""))
    assert folder.python("-m", "alembic", "upgrade", "head")[0] == 0
    code, said = folder.init()
    assert 'missing  schema="sagas" in that revision' in said and 'sagas_downgrade(op, to=0, schema="sagas")' in said
    assert '(search_path is "sagas"), and has some in schema public' in said, said


@pytest.mark.parametrize(
    ("models", "there"),
    [
        (MODELS + "\nsagas_tables(Base.metadata)  # schema='no'\n", None),
        (MODELS + "\ntables = sagas_tables(\n    Base.metadata,\n    schema='ours',\n)\n", "'ours'"),
        (MODELS + "\nsagas = Sagas(engine, modules=['a'], schema=SCHEMA)\n", "SCHEMA"),
        (MODELS.replace(": pass", ": metadata = MetaData(schema='all')"), "'all'"),
    ],
)
def test_where_the_schema_is_said(models: str, there: str | None, tmp_path: Path) -> None:
    """For the tables, the runtime, or for all tables of the metadata; a name has to be imported by hand."""
    (tmp_path / "models.py").write_text(models)
    base = _find(tmp_path, BASE)
    assert base is not None and _schema(tmp_path, base) == there
    (first, *_) = _revision(tmp_path, there)
    assert first.lines.count(f", schema={there})") == (2 if there else 0)
    assert (first.file is None) is (there == "SCHEMA")


def test_nothing_here(folder: Folder) -> None:
    """A folder without a project: what was looked for is said."""
    code, said = folder.init()
    assert code == 1 and "declarative base" in said and "create_engine" in said, said


def test_a_command_without_app(folder: Folder) -> None:
    """`sagas list` still wants to know where, and says what else there is."""
    code, said = folder.python("-m", "sagas.cli", "list")
    assert code == 2 and "--app shop.db:sagas" in said and "manage.py sagas" in said, said


def test_an_environment_in_the_folder_is_passed_over(tmp_path: Path) -> None:
    """Where the tutorials make it: its thousands of modules hide none of the project's, whatever it is called."""
    for name in (".venv", "myenv"):
        site = tmp_path / name / "lib"
        site.mkdir(parents=True)
        (tmp_path / name / "pyvenv.cfg").write_text("")
        for number in range(MOST_FILES // 2 + 1):
            (site / f"m{number}.py").write_text("class Base(DeclarativeBase): ...")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "models.py").write_text("class Base(DeclarativeBase):\n    pass\n")
    found = _find(tmp_path, BASE)
    assert found is not None and found.module == "shop.models"
