"""A database of each test's own with the shop in it, and engines on it with every driver."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session

from sagas.embedded import Embedded
from sagas.testing.servers import Postgres
from sagas.verify import Finding, verify
from sagas_sqlalchemy import Sagas
from tests.sqlalchemy.shop import BANK, ODD, Base, Odd, bank, note, told

DRIVERS = ("psycopg", "psycopg2", "asyncpg", "psycopg_async")


def with_driver(url: str, driver: str) -> str:
    """The URL of a database for a driver."""
    return url.replace("postgresql:", f"postgresql+{driver}:")


@pytest.fixture(scope="session")
def shop_template(postgres_server: Postgres) -> Iterator[str]:
    """Name of a database with the shop's tables, and ours."""
    name = f"sa_template_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    engine = create_engine(with_driver(url, "psycopg"))
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(BANK)
    engine.dispose()
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
def url(postgres_server: Postgres, shop_template: str) -> Iterator[str]:
    """URL of a database that only this test uses."""
    name = f"sa_{uuid.uuid4().hex[:12]}"
    bank.url = postgres_server.create_database(name, template=shop_template)
    told.clear()
    yield bank.url
    postgres_server.drop_database(name)


EngineMaker = Callable[..., Any]


@pytest.fixture
def make_engine(url: str) -> Iterator[EngineMaker]:
    """Makes engines on the test's database, and disposes of them."""
    made: list[Any] = []

    def make(driver: str = "psycopg", **options: Any) -> Any:
        asynchronous = driver in ("asyncpg", "psycopg_async")
        create = create_async_engine if asynchronous else create_engine
        made.append(create(with_driver(url, driver), **options))
        return made[-1]

    yield make
    for engine in made:
        if isinstance(engine, AsyncEngine):
            asyncio.run(engine.dispose())
        else:
            engine.dispose()


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    """An engine on psycopg 3."""
    found: Engine = make_engine()
    return found


@pytest.fixture
def make_runtime() -> Iterator[Callable[..., Sagas]]:
    """Makes runtimes without wake-ups (workers end when idle), and closes them."""
    made: list[Sagas] = []

    def make(source: Any, **options: Any) -> Sagas:
        made.append(Sagas(source, **{"settings": {"wake": False}, "name": "shop_sa", **options}))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()


@pytest.fixture
def runtime(engine: Engine, make_runtime: Callable[..., Sagas]) -> Sagas:
    """The shop's runtime."""
    return make_runtime(engine)


Plan = Callable[[str, Callable[[Odd], object]], None]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Says what bodies of a name do."""
    return partial(monkeypatch.setitem, ODD)


@pytest.fixture
def called(plan: Plan) -> Counter[str]:
    """How often the bodies `counted` were called, by what they note."""
    found: Counter[str] = Counter()

    def counted(self: Odd) -> str:
        found[self.input.text] += 1
        return note(self)

    plan("counted", counted)
    return found


@pytest.fixture
def free(engine: Engine) -> None:
    """A text may be noted twice, so that a second time shows."""
    with engine.begin() as connection:
        connection.exec_driver_sql("alter table note drop constraint note_text_key")


def drain(runtime: Sagas, *, rounds: int = 60, concurrency: int = 1) -> None:
    """Run an embedded worker until nothing is due, without waiting for backoffs; every saga agrees with its log."""
    for _ in range(rounds):
        Embedded(runtime.store, concurrency=concurrency).run(until_idle=True)
        with runtime.store.connect() as connection:
            moved = connection.execute(
                "update sagas_outbox set due_at = clock_timestamp()"
                " where holder is null and due_at <= clock_timestamp() + interval '20 s'"
            ).rowcount
        if not moved:
            break
    else:
        raise AssertionError("there is still work")
    with runtime.store.connect() as connection:
        assert not [str(found) for found in verify(connection) if isinstance(found, Finding)]


def rows(url: str, sql: str) -> list[Any]:
    """What a statement finds, seen from outside."""
    with psycopg.connect(url) as connection:
        return [row[0] if len(row) == 1 else row for row in connection.execute(sql.encode())]


def begin(engine: Engine, saga: Any, *inputs: Any) -> list[Any]:
    """Start a saga for each input in one transaction."""
    with Session(engine) as session, session.begin():
        return [saga.start(each, using=session) for each in inputs]
