"""A database of each module's own, emptied for each test, and a connection on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sagas.testing.servers import Postgres
from tests.messages.post import Post, made


@pytest.fixture(scope="module")
def database(postgres_server: Postgres, template_database: str) -> Iterator[str]:
    """A database of each module's own."""
    name = f"messages_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name, template=template_database)
    postgres_server.drop_database(name)


@pytest.fixture
def fresh_database(database: str) -> str:
    """URL of that database, without a message in it."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("truncate sagas_message, sagas_inbox restart identity")
    return database


@pytest.fixture
def connection(fresh_database: str) -> Iterator[psycopg.Connection[Any]]:
    """The caller's own, without autocommit: a transaction is open from the first statement on."""
    with psycopg.connect(fresh_database) as connection:
        yield connection


@pytest.fixture
def post() -> Post:
    """A publisher that notes down what it sends."""
    return Post()


@pytest.fixture
def states(fresh_database: str) -> Iterator[Any]:
    """How many messages are in which state."""
    with psycopg.connect(fresh_database, autocommit=True) as looking:
        yield lambda: dict(looking.execute("select state, count(*) from sagas_message group by state").fetchall())


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Connections of messengers end with their test."""
    yield
    while made:
        made.pop()._link.close()
