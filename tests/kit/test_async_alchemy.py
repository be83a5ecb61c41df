"""The kit in a project of SQLAlchemy's asynchronous engine, without Django: bodies share one event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagas.testing.servers import Postgres
from tests.kit.project import Project

STORE = """
import os
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase
from sagas import NOT_DONE, Retry, Saga, external_step
from sagas_sqlalchemy import Sagas, sagas_tables

class Base(DeclarativeBase): pass

sagas_tables(Base.metadata)
engine = create_engine(os.environ["STORE"].replace("postgresql:", "postgresql+psycopg:"))
app = create_async_engine(os.environ["STORE"].replace("postgresql:", "postgresql+asyncpg:"), pool_size=1)
runtime = Sagas(engine, settings={"wake": False})
Base.metadata.create_all(engine)

async def ask(what):
    async with app.connect() as connection:
        return (await connection.execute(text(f"select '{what}'"))).scalar()

class Parcel(Saga[str], name="kit.parcel", version=1):
    @external_step(compensate=None)
    async def weigh(self) -> str:
        return await ask("weighed")

    @external_step(compensate=None, retry=Retry(max_attempts=1))
    def hand_over(self) -> str:
        raise ConnectionError("no reply")

    @hand_over.resolve
    async def find(self) -> str:
        return await ask("found")

    @external_step(pivot=True)
    async def tell(self) -> str:
        return await self.aeffect("tell", lambda key: ask("told"), returns=str)
"""

CONFTEST = """
import pytest
from sqlalchemy.orm import Session
from store import engine

@pytest.fixture
def session():
    with engine.connect() as connection:
        transaction = connection.begin()
        with Session(bind=connection, join_transaction_mode="create_savepoint") as session:
            yield session
        transaction.rollback()

@pytest.fixture
def sagas_using(session):
    return session
"""

TESTS = """
import asyncio
from sagas.testing import explore
from store import Parcel

def completes(sagas, session, key):
    Parcel.start("a parcel", key=key, using=session)
    sagas.drain()
    assert Parcel.get(key=key, using=session).status == "completed"

def test_a_saga(sagas, session):
    completes(sagas, session, "a")

def test_inside_of_a_running_loop(sagas, session):
    async def test():
        completes(sagas, session, "b")
    asyncio.run(test())

def test_explored(session):
    explore(Parcel, "a parcel", using=session)
"""

FORGOTTEN = """
import pytest
from sagas import ConfigurationError
from sagas.testing import assert_started, drain
from store import Parcel

@pytest.mark.parametrize("call", [
    lambda sagas: sagas.run(Parcel, "a parcel"), lambda sagas: sagas.drain(), lambda sagas: sagas.started(Parcel),
    lambda sagas: sagas.clock.now(), lambda _: drain(), lambda _: assert_started(Parcel),
])
def test_it(sagas, call):
    with pytest.raises(ConfigurationError, match="fixture sagas_using.*override this fixture"):
        call(sagas)
"""


@pytest.fixture
def project(postgres_server: Postgres, fresh_database: str, tmp_path: Path) -> Project:
    """Files in a folder."""
    made = Project(tmp_path, {"STORE": fresh_database})
    made.write({"store.py": STORE, "conftest.py": CONFTEST, "test_store.py": TESTS,
                "pytest.ini": "[pytest]\npythonpath = .\nfilterwarnings = error\n"})  # fmt: skip
    return made


def test_bodies_share_one_loop(project: Project) -> None:
    """A pool of connections that one body has opened serves the next, also where the test itself runs on a loop."""
    done = project.pytest("-p", "no:django")
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


def test_nobody_said_where(project: Project) -> None:
    """Without Django there is no default: each call of the kit says which fixture to override."""
    project.write({"conftest.py": "", "test_store.py": FORGOTTEN})
    done = project.pytest("-p", "no:django")
    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout + done.stderr
