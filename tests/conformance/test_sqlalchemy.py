"""SQLAlchemy keeps the whole suite, whatever the driver, and whatever a saga is started on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sagas.testing.conformance import CallerSuite, Integration, WorkerSuite
from sagas_sqlalchemy import Sagas
from tests.conformance.alchemy import Alchemy, Base

BLOCKING = [
    pytest.param(("psycopg", Session), id="psycopg-Session"),
    pytest.param(("psycopg2", Session), id="psycopg2-Session"),
    pytest.param(("psycopg", lambda engine: engine.connect()), id="psycopg-Connection", marks=pytest.mark.full),
]
AWAITED = [
    pytest.param(("asyncpg", AsyncSession), id="asyncpg-AsyncSession"),
    pytest.param(("psycopg", AsyncSession), id="psycopg-AsyncSession", marks=pytest.mark.full),
    pytest.param(("asyncpg", AsyncConnection), id="asyncpg-AsyncConnection"),
]


def address(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


class TestBlocking(CallerSuite):
    """`using=` a `Session` or a `Connection`."""

    @pytest.fixture(params=BLOCKING)
    def integration(self, request: pytest.FixtureRequest, conformance_url: str) -> Iterator[Integration]:
        driver, open = request.param
        engine = create_engine(address(conformance_url, driver))
        sagas = Sagas(engine, metadata=Base.metadata, name="conformance")
        yield Alchemy(conformance_url, lambda: engine, open, sagas)
        sagas.close()
        engine.dispose()


class TestAwaited(CallerSuite):
    """`using=` an `AsyncSession` or an `AsyncConnection`."""

    @pytest.fixture(params=AWAITED)
    def integration(self, request: pytest.FixtureRequest, conformance_url: str) -> Iterator[Integration]:
        driver, open = request.param
        make = partial(create_async_engine, address(conformance_url, driver))  # one for each event loop
        sagas = Sagas(make(), metadata=Base.metadata, name="conformance")
        yield Alchemy(conformance_url, make, open, sagas)
        sagas.close()


class TestWorkers(WorkerSuite):
    """Local steps on the application's own engine, where that is one of psycopg 3, or on one like it."""

    @pytest.fixture(params=["psycopg", "psycopg2", "asyncpg"])
    def integration(self, request: pytest.FixtureRequest, conformance_url: str) -> Iterator[Integration]:
        plain = create_engine(address(conformance_url, "psycopg"))
        source: Any = {
            "psycopg": lambda: scoped_session(sessionmaker(plain)),
            "psycopg2": lambda: create_engine(address(conformance_url, "psycopg2")),
            "asyncpg": lambda: create_async_engine(address(conformance_url, "asyncpg")),
        }[request.param]()
        sagas = Sagas(source, metadata=Base.metadata, name="conformance", settings={"wake": False})
        yield Alchemy(conformance_url, lambda: plain, Session, sagas)
        sagas.close()
        plain.dispose()
