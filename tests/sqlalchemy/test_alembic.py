"""Alembic: a small project of a user's, whose autogenerate has nothing to say about our tables."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine

from sagas.errors import ConfigurationError
from sagas.testing.servers import Postgres
from sagas_sqlalchemy import alembic
from tests.docs.reading import ROOT, blocks
from tests.sqlalchemy.conftest import with_driver
from tests.support.catalog import catalog

MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sagas_sqlalchemy import HasSagas, sagas_tables

class Base(DeclarativeBase):
    pass

sagas_tables(Base.metadata, schema={schema!r})

class Order(HasSagas, Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
"""
ENV, ENV_SYNC = [
    block.text
    for block in blocks(ROOT / "docs" / "sqlalchemy.md")
    if block.file == "migrations/env.py" or "is_offline_mode" in block.text
]
SCRIPT = '''"""${message}"""
from alembic import op
import sqlalchemy as sa
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}

def upgrade() -> None:
    ${upgrades if upgrades else "pass"}

def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
'''
REVISION = """
from alembic import op
from sagas_sqlalchemy.alembic import downgrade as sagas_downgrade, upgrade as sagas_upgrade

revision, down_revision = "sagas1", None

def upgrade() -> None:
    sagas_upgrade(op, to={newest}, schema={schema!r})

def downgrade() -> None:
    sagas_downgrade(op, to=0, schema={schema!r})
"""


def env(url: str, schema: str | None) -> str:
    """The env.py of docs/sqlalchemy.md, with its end for that driver, and all that Alembic can compare."""
    text = ENV if "asyncpg" in url else ENV[: ENV.index("\nasync def")] + ENV_SYNC
    plain = "include_object=include_object"
    assert plain in text
    others = f"compare_type=True, compare_server_default=True, include_schemas={schema is not None}"
    text = text.replace(plain, f"include_object=including(lambda *_: True), {others}")
    return text.replace("import include_object", "import including")


class Project:
    """A user's project with Alembic in it."""

    def __init__(self, folder: Path, url: str, schema: str | None) -> None:
        self.folder, versions = folder, folder / "migrations" / "versions"
        self._env = {**os.environ, "DATABASE_URL": url}
        versions.mkdir(parents=True)
        (folder / "shop").mkdir()
        (folder / "alembic.ini").write_text("[alembic]\nscript_location = %(here)s/migrations\nprepend_sys_path = .\n")
        (folder / "shop" / "models.py").write_text(MODELS.format(schema=schema))
        (folder / "migrations" / "env.py").write_text(env(url, schema))
        (folder / "migrations" / "script.py.mako").write_text(SCRIPT)
        (versions / "sagas1.py").write_text(REVISION.format(newest=alembic.NEWEST, schema=schema))

    def alembic(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "alembic", *words], cwd=self.folder, env=self._env, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def empty(postgres_server: Postgres) -> Iterator[str]:
    """URL of an empty database."""
    name = f"alembic_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


def ours(url: str, schema: str = "public") -> int:
    """How much of ours is there."""
    with psycopg.connect(url) as connection:
        (there,) = connection.execute("select to_regnamespace(%s) is not null", [schema]).fetchone() or (False,)
        return len(catalog(connection, schema)) if there else 0


@pytest.mark.parametrize(
    ("driver", "schema"),
    [
        ("psycopg", None),
        ("asyncpg", "saga"),
        pytest.param("psycopg", "saga", marks=pytest.mark.full),
        pytest.param("psycopg2", None, marks=pytest.mark.full),
    ],
)
def test_a_project(driver: str, schema: str | None, empty: str, tmp_path: Path) -> None:
    """Upgrade, autogenerate the user's own tables, upgrade, and `alembic check` finds nothing left; then all back."""
    project = Project(tmp_path, with_driver(empty, driver), schema)
    project.alembic("upgrade", "head")
    project.alembic("revision", "--autogenerate", "-m", "orders", "--rev-id", "orders2")
    (made,) = (tmp_path / "migrations" / "versions").glob("orders2*.py")
    assert "orders" in made.read_text() and "sagas_" not in made.read_text()
    project.alembic("upgrade", "head")
    assert "No new upgrade operations" in project.alembic("check")
    assert ours(empty, schema or "public") > 100 and (schema is None or not ours(empty))
    project.alembic("downgrade", "base")
    assert ours(empty, schema or "public") == 0


@pytest.mark.parametrize(
    ("driver", "schema"),
    [
        ("psycopg", None),
        ("asyncpg", "saga"),
        pytest.param("asyncpg", None, marks=pytest.mark.full),
        pytest.param("psycopg2", "saga", marks=pytest.mark.full),
    ],
)
def test_the_revision_of_roles(driver: str, schema: str | None, empty: str, tmp_path: Path) -> None:
    """That of docs/security.md gives the roles their rights, whatever the driver is."""
    (text,) = [block.text for block in blocks(ROOT / "docs" / "security.md") if block.file]
    text = text.replace('"sagas_1"', '"sagas1"')
    if schema is not None:
        text = text.replace("    for statement in", f'    run("set search_path to {schema}")\n    for statement in')
        text = text.replace("\n\n\ndef downgrade", '\n    run("reset search_path")\n\n\ndef downgrade')
    project = Project(tmp_path, with_driver(empty, driver), schema)
    (tmp_path / "migrations" / "versions" / "sagas_roles_1.py").write_text(text)
    project.alembic("upgrade", "head")
    assert "sagas_roles_1" in project.alembic("current")
    with psycopg.connect(empty) as connection:
        asked = "select has_table_privilege(role, %s, 'update') from unnest(array['sagas_worker', 'sagas_reader']) role"
        assert connection.execute(asked, [f"{schema or 'public'}.sagas_saga"]).fetchall() == [(True,), (False,)]
    project.alembic("downgrade", "base")
    assert ours(empty, schema or "public") == 0


@pytest.mark.parametrize("schema", [None, "saga"])
def test_offline(schema: str | None, empty: str, tmp_path: Path) -> None:
    """`--sql` prints what does the same when psql, or anything else, runs it."""
    project = Project(tmp_path, with_driver(empty, "psycopg"), schema)
    script = project.alembic("upgrade", "head", "--sql")
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(script.encode(), prepare=False)
        offline = catalog(connection, schema or "public")
        connection.execute(project.alembic("downgrade", "head:base", "--sql").encode(), prepare=False)
    assert ours(empty, schema or "public") == 0
    project.alembic("upgrade", "head")
    with psycopg.connect(empty) as connection:
        assert catalog(connection, schema or "public") == offline


def test_upgrade_leaves_out_what_is_there(empty: str) -> None:
    """It may be called again, and what does not fit is refused in words."""
    engine = create_engine(with_driver(empty, "psycopg"))
    try:
        with engine.begin() as connection:
            op = Operations(MigrationContext.configure(connection))
            alembic.upgrade(op, to=1)
            before = catalog(connection.connection.driver_connection)  # type: ignore[arg-type]
            alembic.upgrade(op, to=alembic.NEWEST)
            alembic.upgrade(op, to=alembic.NEWEST)
            alembic.downgrade(op, to=alembic.NEWEST)
            assert catalog(connection.connection.driver_connection) >= before  # type: ignore[arg-type]
            for call in (alembic.upgrade, alembic.downgrade):
                with pytest.raises(ConfigurationError, match="versions of the tables go from 1"):
                    call(op, to=99)
            with pytest.raises(ConfigurationError, match="below to="):
                alembic.upgrade(op, to=1, since=1)
    finally:
        engine.dispose()


def test_unfinished_sagas_are_not_dropped(empty: str) -> None:
    """Going back with work in flight would leave it undone for ever."""
    engine = create_engine(with_driver(empty, "psycopg"))
    try:
        with engine.begin() as connection:
            op = Operations(MigrationContext.configure(connection))
            alembic.upgrade(op, to=alembic.NEWEST)
            connection.exec_driver_sql(
                "insert into sagas_saga (id, name, version, key, status, seq, input_hash)"
                " values (gen_random_uuid(), 'a', 1, 'b', 'running', 0, '')"
            )
            with pytest.raises(Exception, match="not finished would be lost"), connection.begin_nested():
                alembic.downgrade(op, to=0)
            connection.exec_driver_sql("truncate sagas_saga")
            alembic.downgrade(op, to=0)
        assert ours(empty) == 0
    finally:
        engine.dispose()


def test_offline_output_is_the_file_itself() -> None:
    """Nothing in a function body is taken for a parameter."""
    out = io.StringIO()
    context = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": out})
    alembic.upgrade(Operations(context), to=1)
    assert "sagas_log is append-only: % of saga % entry % refused" in out.getvalue()
    assert "next_run := existing.run + 1;" in out.getvalue()
