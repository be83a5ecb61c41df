"""Scenes, each with a database, a broker of this folder, and books outside."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.plugin import DjangoDbBlocker

from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Postgres, Redis, redis
from tests.conftest import REPORT
from tests.deploys.app import bank
from tests.deploys.scene import Scene


@pytest.fixture(scope="session")
def own_redis() -> Iterator[Redis]:
    """A Redis that may be wiped."""
    with redis(private=True) as server:
        yield server


@pytest.fixture
def books(postgres_server: Postgres) -> Iterator[str]:
    """URL of the books of the bank and the carrier."""
    name = f"books_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    with bank.books(url) as connection:
        connection.execute(bank.BOOKS)
    yield url
    postgres_server.drop_database(name)


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, fresh_database: str, books: str, own_redis: Redis, tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[Scene]:  # fmt: skip
    """A scene with an empty broker."""
    own_redis.flushall()
    with django_db_blocker.unblock(), ProcessGroup(tmp_path) as processes:
        request.node.stash[REPORT] = processes
        scene = Scene(fresh_database, books, own_redis, processes)
        yield scene
        scene.close()
